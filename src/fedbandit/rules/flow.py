"""A link that survives faults: the pairwise average of Algorithm 1, line 20, kept as a flow (beyond the paper).

Here belongs what the two ends of one link do to their flow, and no message, site or disk. After one lost reply plain
averaging is wrong for ever: one end has moved, the other has not. So an agent never overwrites what it gossips:
gossiped_i = own_i + sum_j flow_ij, and an exchange sets the flow of one link alone. Where the ends of every link hold
flow_ij = -flow_ji, the sum of what all gossip is the sum of what all own, whatever happened before.

A link is a register of which both ends keep a copy, and the last writer wins:

    i -> j : offer(flow_ij, gossiped_i, stamp)
    j      : if the stamp is older than its own, answer with its own and change nothing (``is_older``);
             else adopt -flow_ij (``mirrored``), move it so that both would hold the average (``moved``),
             version + 1 (``next_stamp``), answer
    i      : if the stamp of the answer is newer, adopt -flow_ji

So lost, repeated, late and crossing messages heal at the next contact. Without faults it is the paper's average.
Rows have a column for each number that is gossiped: values of all arms, then weights.
"""

from collections.abc import Sequence

from fedbandit.rules.gossip import average

__all__ = ["FIRST", "Stamp", "gossiped", "is_older", "mirrored", "moved", "next_stamp", "no_flow"]

Stamp = tuple[int, str]
"""How often the link was written, and who wrote last: two ends that write at once are told apart by name."""

FIRST: Stamp = (0, "")
"""The stamp of a link on which nothing has flowed."""


def no_flow(num_arms: int) -> tuple[float, ...]:
    """The flow of a new link, of one that was dropped, and of one that a lost disk forgot."""
    return (0.0,) * (2 * num_arms)


def gossiped(own: Sequence[float], flows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """What an agent gossips: its own numbers and what has flowed to it over its links."""
    total = list(own)
    for flow in flows:
        for c in range(len(total)):
            total[c] += flow[c]
    return tuple(total)


def is_older(stamp: Stamp, other: Stamp) -> bool:
    """Whether the other stamp was written later, or at once by the end whose name wins."""
    return stamp < other


def next_stamp(stamp: Stamp, writer: str) -> Stamp:
    """The stamp of what ``writer`` makes of a flow that has this one."""
    return stamp[0] + 1, writer


def mirrored(flow: Sequence[float]) -> tuple[float, ...]:
    """The other end's flow, seen from this one: what has left there has come here. 0.0, not -0.0."""
    return tuple(0.0 - x for x in flow)


def moved(flow: Sequence[float], here: Sequence[float], there: Sequence[float]) -> tuple[float, ...]:
    """The flow with which the one who gossips ``here`` would gossip the average with ``there``.

    Algorithm 1, line 20: the other end adopts the mirrored flow and gossips the same average.
    """
    return tuple(flow[c] + (average(here[c], there[c]) - here[c]) for c in range(len(flow)))
