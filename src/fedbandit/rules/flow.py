"""Averages two neighbours by a flow that survives faults: Algorithm 1, line 20, made robust (beyond the paper).

This file has the two ends of one link, and no message, site or disk. With plain averaging, one lost reply is wrong for
ever: one end has moved, the other has not. So an agent never overwrites the values it gossips:
gossiped_i = own_i + sum_j flow_ij, and an exchange changes only the flow of its link. When the ends of every link hold
flow_ij = -flow_ji, the gossiped values sum to the own values, whatever happened before.

A link is a register replicated at both ends; the last writer wins:

    i -> j : offers flow_ij with its stamp, and the values that i gossips now
    j      : ``answer``: if the stamp is older than its own, j returns its own flow and changes nothing; otherwise it
             adopts -flow_ij, moves it until both would gossip the average, increments the version, and returns flow_ji
    i      : ``adopt``: takes -flow_ji if the stamp of the answer is newer

So lost, repeated, late and crossing messages heal at the next contact. Without faults this is the paper's average.
Rows have a column for each gossiped number: values of all arms, then weights.
"""

from collections.abc import Sequence

from fedbandit.rules.gossip import average

__all__ = ["FIRST", "Register", "Stamp", "adopt", "answer", "empty", "gossiped", "mirrored", "moved"]

Stamp = tuple[int, str]
"""How often the link was written, and by whom last: the name breaks the tie when both ends write at once."""

Register = tuple[tuple[float, ...], Stamp]
"""One end's copy of a link: the flow towards it, and its stamp."""

FIRST: Stamp = (0, "")
"""The stamp of a link that nothing has flowed over: older than any other."""


def empty(num_arms: int) -> Register:
    """A link that is new, was dropped, or was forgotten with a lost disk."""
    return (0.0,) * (2 * num_arms), FIRST


def gossiped(own: Sequence[float], flows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The values that an agent gossips: its own plus the flows over its links."""
    total = list(own)
    for flow in flows:
        for c in range(len(total)):
            total[c] += flow[c]
    return tuple(total)


def mirrored(flow: Sequence[float]) -> tuple[float, ...]:
    """A flow seen from the other end: the negative; 0.0, never -0.0."""
    return tuple(0.0 - x for x in flow)


def moved(flow: Sequence[float], here: Sequence[float], there: Sequence[float]) -> tuple[float, ...]:
    """The flow that makes an agent that gossips ``here`` gossip the average with ``there`` instead.

    Algorithm 1, line 20: once the other end has adopted the mirrored flow, it gossips the same average.
    """
    return tuple(flow[c] + (average(here[c], there[c]) - here[c]) for c in range(len(flow)))


def answer(mine: Register, rest: Sequence[float], offered: Register, there: Sequence[float], writer: str) -> Register:
    """The register of ``writer`` after an offer, which is also its answer.

    ``rest`` is what it gossips without this link, ``there`` what the other end gossips. An older offer changes nothing.
    """
    flow, stamp = offered
    if stamp < mine[1]:
        return mine
    flow = mirrored(flow)
    return moved(flow, gossiped(rest, [flow]), there), (stamp[0] + 1, writer)


def adopt(mine: Register, answered: Register) -> Register:
    """The offerer's register after an answer: the other end's flow if its stamp is newer."""
    flow, stamp = answered
    return (mirrored(flow), stamp) if mine[1] < stamp else mine
