"""Updates the averages and n~ over the network in a round, in compiled code.

The network owns the averages: a page never touches a neighbour. Formulas are in ``fedbandit.rules``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedbandit.rules.gossip import average, heard, metropolis_weight, with_news
from fedbandit.simulation.compiled import compilable, compile_inner, compile_rare
from fedbandit.simulation.streams import next_bits, uniform, whole_below

__all__ = ["LINKS", "add_news", "hear_n_max"]

for _rule in (average, heard, metropolis_weight, with_news):
    compilable(_rule)


@compile_inner
def hear_n_max(announced: Any, me: Any, terms: Any, seen: Any, n_max: Any, links: Any, i: int) -> None:
    """Algorithm 1, line 5: n~(t+1) from the agent's own count before this round's pull and its neighbours' n~(t)."""
    first, last = links.first_neighbour[i], links.first_neighbour[i + 1] - 1
    # Two neighbours at a time: half the passes over the arms.
    one, other = seen[links.neighbours[first]].n_max, seen[links.neighbours[min(first + 1, last)]].n_max
    for k in range(len(one)):
        n_max[i, k] = heard(heard(announced(me, terms, k), one[k]), other[k])
    for e in range(first + 2, last + 1, 2):
        one, other = seen[links.neighbours[e]].n_max, seen[links.neighbours[min(e + 1, last)]].n_max
        for k in range(len(one)):
            n_max[i, k] = heard(heard(n_max[i, k], one[k]), other[k])


@compile_inner
def add_news(averages: Any, i: int, first_column: Any, num_arms: int, after: Any, before: Any) -> None:
    """Algorithm 1, lines 20 and 22: what this round's pull changed in what the agent publishes."""
    for c in range(len(after)):
        column = first_column + c * num_arms
        averages[i, column] = with_news(averages[i, column], after[c], before[c])


# ---------------------------------------------------------------- links: who averages in a round


def average_one_link(averages: Any, num_columns: int, links: Any, turns: Any, tape: Any, t: int, bits: Any) -> None:
    """Algorithm 1, lines 17-20: the ends of one random edge average what was gossiped up to t - 1."""
    if tape.on:
        _average_pair(averages, num_columns, turns, np.uint32(tape.edges[t - 1, 0]), np.uint32(tape.edges[t - 1, 1]))
    else:
        e = whole_below(bits, len(links.edges))
        _average_pair(averages, num_columns, turns, links.edges[e, 0], links.edges[e, 1])


@compile_rare
def _average_pair(averages: Any, num_columns: int, turns: Any, i: Any, j: Any) -> None:
    for c in range(num_columns):
        mixed = average(averages[i, c], averages[j, c])
        averages[i, c] = mixed
        averages[j, c] = mixed
    turns[i].messages += 1
    turns[i].mixed = 1
    turns[j].messages += 1
    turns[j].mixed = 1


def average_matching(averages: Any, num_columns: int, links: Any, turns: Any, tape: Any, t: int, bits: Any) -> None:
    """A random maximal matching: edges in random order, each taken if both its ends are still free."""
    order, busy = links.order, links.degree
    for i in range(len(busy)):
        busy[i] = 0
    for position in range(len(order) - 1, -1, -1):
        bits = next_bits(bits)
        other = whole_below(bits, position + 1)
        order[position], order[other] = order[other], order[position]
        i, j = links.edges[order[position], 0], links.edges[order[position], 1]
        if busy[i] == 0 and busy[j] == 0:
            busy[i], busy[j] = 1, 1
            _average_pair(averages, num_columns, turns, i, j)
    for e in range(len(order)):
        order[e] = e  # the next round's matching must not depend on this one's


def average_present_links(
    averages: Any, num_columns: int, links: Any, turns: Any, tape: Any, t: int, bits: Any
) -> None:
    """Every edge is present with some probability; all present ones average at once."""
    present, degree, mixed = links.order, links.degree, links.mixed
    for i in range(len(degree)):
        degree[i] = 0
    for e in range(len(present)):
        bits = next_bits(bits)
        present[e] = uniform(bits) < links.presence
        if present[e]:
            degree[links.edges[e, 0]] += 1
            degree[links.edges[e, 1]] += 1
    for i in range(len(degree)):
        for c in range(num_columns):
            mixed[i, c] = averages[i, c]
    for e in range(len(present)):
        if present[e]:
            i, j = links.edges[e, 0], links.edges[e, 1]
            weight = links.weight if links.weight > 0.0 else metropolis_weight(degree[i], degree[j])
            for c in range(num_columns):
                step = weight * (averages[j, c] - averages[i, c])
                mixed[i, c] += step
                mixed[j, c] -= step
    for i in range(len(degree)):
        turns[i].messages += degree[i]
        turns[i].mixed = 1
        for c in range(num_columns):
            averages[i, c] = mixed[i, c]


LINKS: dict[str, Callable[..., None]] = {
    "one": average_one_link,
    "matching": average_matching,
    "present": average_present_links,
}
"""By the kind of ``Links``."""
