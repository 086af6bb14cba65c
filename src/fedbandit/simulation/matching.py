"""A random maximal matching of a round, in compiled code, agent by agent and not edge after edge.

Each edge has a random priority, a hash of (seed, trial, round, edge). The matching is the greedy one: edges in the order
of their priority, each taken if both its ends are still free. Agents find it by themselves: each chooses the free
neighbour whose edge has the highest priority, and two that choose each other are a pair. Those whose choice is taken
choose again, until nobody has a choice left. An edge is taken exactly if none with a higher priority at its ends
is, so the result does not depend on who comes first: agents may choose at once, in any number of threads.
"""

from typing import Any, NamedTuple

import numpy as np

from fedbandit.rules.gossip import average
from fedbandit.simulation.compiled import compilable, compile_inner, compile_rare
from fedbandit.simulation.crew import meet, total_of
from fedbandit.simulation.streams import draw

__all__ = ["Matching", "average_matching", "average_pair", "new_matching"]

compilable(average)

_NOBODY = np.uint32(0xFFFFFFFF)


class Matching(NamedTuple):
    """Scratch memory of a round's matching."""

    choice: Any  # [N]: the neighbour that an agent has chosen
    is_free: Any  # [N]: whether it has no partner yet
    waiting: Any  # [N]: agents without a partner that have a choice, those of each thread from its first agent on


def new_matching(num_agents: int) -> Matching:
    """Scratch memory."""
    return Matching(np.zeros(num_agents, np.uint32), np.zeros(num_agents, np.uint8), np.zeros(num_agents, np.uint32))


@compile_inner
def average_pair(averages: Any, num_columns: int, turns: Any, i: Any, j: Any) -> None:
    """Algorithm 1, line 20: the ends of a link take the mean of both."""
    for c in range(num_columns):
        mixed = average(averages[i, c], averages[j, c])
        averages[i, c] = mixed
        averages[j, c] = mixed
    turns[i].messages += 1
    turns[i].mixed = 1
    turns[j].messages += 1
    turns[j].mixed = 1


@compile_inner
def _priority(bits: Any, i: Any, j: Any) -> Any:
    """Of an edge; different edges have different ones, since the hash of a counter is one to one."""
    low, high = np.uint64(min(i, j)), np.uint64(max(i, j))
    return draw(bits, (low << np.uint64(32)) | high)


@compile_inner
def _choose(links: Any, bits: Any, i: Any, all_are_free: bool) -> Any:
    """The free neighbour of an agent whose edge has the highest priority."""
    chosen, highest = _NOBODY, np.uint64(0)
    for e in range(links.first_neighbour[i], links.first_neighbour[i + 1]):
        j = links.neighbours[e]
        priority = _priority(bits, np.uint32(i), j)
        if priority >= highest and j != i and (all_are_free or links.matching.is_free[j] > 0):
            chosen, highest = j, priority
    return chosen


@compile_rare
def _find_and_average(averages: Any, num_columns: int, links: Any, turns: Any, bits: Any) -> None:
    (choice, is_free, waiting), crew = links.matching, links.crew
    count = 0
    for i in range(crew.first, crew.last):
        is_free[i] = 1
        choice[i] = _choose(links, bits, i, True)
        if choice[i] != _NOBODY:
            waiting[crew.first + count] = i
            count += 1
    passes = 0
    while total_of(crew, count, passes) > 0:
        passes += 1
        # Pairs have no agent in common: each averages at once, by the thread of its smaller end.
        for w in range(crew.first, crew.first + count):
            i = waiting[w]
            j = choice[i]
            if choice[j] == i:
                is_free[i] = 0
                if i < j:
                    average_pair(averages, num_columns, turns, i, j)
        meet(crew)
        left = 0
        for w in range(crew.first, crew.first + count):
            i = waiting[w]
            if is_free[i] > 0:
                if is_free[choice[i]] == 0:
                    choice[i] = _choose(links, bits, i, False)
                if choice[i] != _NOBODY:
                    waiting[crew.first + left] = i
                    left += 1
        count = left


def average_matching(averages: Any, num_columns: int, links: Any, turns: Any, tape: Any, t: int, bits: Any) -> None:
    """The pairs of a random maximal matching average."""
    _find_and_average(averages, num_columns, links, turns, bits)
