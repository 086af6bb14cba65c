"""A link that survives faults: the pairwise average of Algorithm 1, line 20, kept as a flow (beyond the paper).

Here belongs what the two ends of one link do to their flow, and no message, site or disk. After one lost reply plain
averaging is wrong for ever: one end has moved, the other has not. So an agent never overwrites what it gossips:
gossiped_i = own_i + sum_j flow_ij, and an exchange sets the flow of one link alone. Where the ends of every link hold
flow_ij = -flow_ji, the sum of what all gossip is the sum of what all own, whatever happened before.

A link is a register of which both ends keep a copy, and the last writer wins:

    i -> j : an offer of flow_ij with its stamp, and of what i gossips now
    j      : ``answer``: if the stamp is older than its own, its own flow, and nothing changes; else it adopts -flow_ij,
             moves it so that both would gossip the average, and counts the version up; then it answers with flow_ji
    i      : ``adopt``: -flow_ji if the stamp of the answer is newer

So lost, repeated, late and crossing messages heal at the next contact. Without faults it is the paper's average.
Rows have a column for each number that is gossiped: values of all arms, then weights.
"""

from collections.abc import Sequence

from fedbandit.rules.gossip import average

__all__ = ["FIRST", "Register", "Stamp", "adopt", "answer", "empty", "gossiped", "mirrored", "moved"]

Stamp = tuple[int, str]
"""How often the link was written, and who wrote last: two ends that write at once are told apart by name."""

Register = tuple[tuple[float, ...], Stamp]
"""One end's copy of a link: the flow towards it, and its stamp."""

FIRST: Stamp = (0, "")
"""The stamp of a link on which nothing has flowed: older than any other."""


def empty(num_arms: int) -> Register:
    """A new link, one that was dropped, or one that a lost disk forgot."""
    return (0.0,) * (2 * num_arms), FIRST


def gossiped(own: Sequence[float], flows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """What an agent gossips: its own numbers and what has flowed to it over its links."""
    total = list(own)
    for flow in flows:
        for c in range(len(total)):
            total[c] += flow[c]
    return tuple(total)


def mirrored(flow: Sequence[float]) -> tuple[float, ...]:
    """A flow seen from the other end: what has left there has come here; 0.0, never -0.0."""
    return tuple(0.0 - x for x in flow)


def moved(flow: Sequence[float], here: Sequence[float], there: Sequence[float]) -> tuple[float, ...]:
    """The flow with which the one who gossips ``here`` would gossip the average with ``there``.

    Algorithm 1, line 20: once the other end has adopted the mirrored flow, it gossips the same average.
    """
    return tuple(flow[c] + (average(here[c], there[c]) - here[c]) for c in range(len(flow)))


def answer(mine: Register, rest: Sequence[float], offered: Register, there: Sequence[float], writer: str) -> Register:
    """What ``writer`` holds after an offer, and answers with.

    ``rest`` is what it gossips without this link, ``there`` what the other end gossips. An older offer changes nothing.
    """
    flow, stamp = offered
    if stamp < mine[1]:
        return mine
    flow = mirrored(flow)
    return moved(flow, gossiped(rest, [flow]), there), (stamp[0] + 1, writer)


def adopt(mine: Register, answered: Register) -> Register:
    """What the one who offered holds after an answer: the other end's flow if its stamp is newer."""
    flow, stamp = answered
    return (mirrored(flow), stamp) if mine[1] < stamp else mine
