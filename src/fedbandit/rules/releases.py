"""Gossip of releases: agents pass on what each has published, and everybody computes the mean (beyond the paper).

An agent numbers its publications: its **version** is how many there have been, 0 before the first. Its **row** is all
that it publishes in the newest one. A board is what one agent holds: the newest row known to it of every agent, itself
among them. An exchange hands over rows that are newer at the other end. Taking over what is newer is idempotent,
commutative and associative, so repeated, late and crossing exchanges need no thought, and nobody's row is lost or
counted twice. The simulator and a board of live sites call the same functions, with agents in the same order: they
compute the same bits.
"""

from collections.abc import MutableSequence, Sequence

__all__ = ["is_newer", "mean_of_heard", "take_newer"]


def is_newer(offered: int, held: int) -> bool:
    """Whether a version is worth taking over."""
    return offered > held


def take_newer(
    versions: MutableSequence[int],
    rows: Sequence[MutableSequence[float]],
    offered_versions: Sequence[int],
    offered_rows: Sequence[Sequence[float]],
) -> bool:
    """Take over from another board the rows of all agents that are newer there; whether there were any."""
    has_changed = False
    for j in range(len(versions)):
        if is_newer(offered_versions[j], versions[j]):
            versions[j] = offered_versions[j]
            row, offered = rows[j], offered_rows[j]
            for c in range(len(row)):
                row[c] = offered[c]
            has_changed = True
    return has_changed


def mean_of_heard(
    rows: Sequence[Sequence[float]], versions: Sequence[int], shares: Sequence[float], seen: MutableSequence[float]
) -> None:
    """Fill in what a page sees of an arm: the sum of what all agents heard have published of it, over their shares.

    ``shares`` are N times the agents' weights in the average that counts: 1 where all count alike. So an agent that was
    not heard counts as the mean of those that were. Once all are heard it is their plain average, (1/N) sum_j row_j,
    the number that gossip of averages tends to. Agents are added up in their order.
    """
    for c in range(len(seen)):
        seen[c] = 0.0
    heard, total = 0, 0.0
    for j in range(len(versions)):
        if versions[j] > 0:
            heard += 1
            total += shares[j]
            row = rows[j]
            for c in range(len(seen)):
                seen[c] += row[c]
    if heard == len(versions):
        total = float(heard)  # whatever shares add up to after rounding
    if total > 0.0:
        for c in range(len(seen)):
            seen[c] /= total
