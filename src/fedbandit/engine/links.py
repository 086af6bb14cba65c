"""Averages over the links of a round, in compiled code: one edge, a random maximal matching, or all present links.

Formulas are in ``fedbandit.rules``.
"""

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from fedbandit.engine.compiled import compilable, compile_inner, compile_rare
from fedbandit.engine.streams import draw, next_bits, uniform, whole_below
from fedbandit.engine.threads import barrier, stopped, total_of
from fedbandit.policies.registry import digest_of
from fedbandit.rules.gossip import average, metropolis_weight

compilable(average)

# ---------------------------------------------------------------- a random maximal matching

# Each edge has a random priority, a hash of (seed, trial, round, edge). The matching is the greedy one: edges in order
# of their priority, each taken if both its ends are still free. Agents find it by themselves: each chooses the free
# neighbour whose edge has the highest priority, and two that choose each other are a pair. Those whose choice is taken
# choose again, until nobody has a choice left. An edge is taken exactly if none with a higher priority at its ends is,
# so the result does not depend on who comes first: agents may choose at once, in any number of threads.

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
def _average_pair(averages: Any, num_columns: int, steps: Any, i: Any, j: Any) -> None:
    """Algorithm 1, line 20: the ends of a link take the mean of both."""
    for c in range(num_columns):
        mixed = average(averages[i, c], averages[j, c])
        averages[i, c] = mixed
        averages[j, c] = mixed
    steps[i].messages += 1
    steps[i].mixed = 1
    steps[j].messages += 1
    steps[j].mixed = 1


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
        priority = _priority(bits, np.uint32(i), j) * np.uint64(j != i)  # no branches: nobody could foresee them
        if not all_are_free:
            priority *= np.uint64(links.matching.is_free[j])
        if priority > highest:
            chosen, highest = j, priority
    return chosen


@compile_rare
def _find_and_average(averages: Any, num_columns: int, links: Any, steps: Any, bits: Any) -> None:
    (choice, is_free, waiting), team = links.matching, links.team
    count = 0
    for i in range(team.first, team.last):
        is_free[i] = 1
        choice[i] = _choose(links, bits, i, True)
        if choice[i] != _NOBODY:
            waiting[team.first + count] = i
            count += 1
    passes = 0
    while total_of(team, count, passes) > 0 and not stopped(team):
        passes += 1
        # Pairs have no agent in common: each averages at once, by the thread of its smaller end.
        for w in range(team.first, team.first + count):
            i = waiting[w]
            j = choice[i]
            if choice[j] == i:
                is_free[i] = 0
                if i < j:
                    _average_pair(averages, num_columns, steps, i, j)
        barrier(team)
        left = 0
        for w in range(team.first, team.first + count):
            i = waiting[w]
            if is_free[i] > 0:
                if is_free[choice[i]] == 0:
                    choice[i] = _choose(links, bits, i, False)
                if choice[i] != _NOBODY:
                    waiting[team.first + left] = i
                    left += 1
        count = left


def average_matching(averages: Any, num_columns: int, links: Any, steps: Any, tape: Any, t: int, bits: Any) -> None:
    """The pairs of a random maximal matching average."""
    _find_and_average(averages, num_columns, links, steps, bits)


# ---------------------------------------------------------------- one link, or all that are present


compilable(metropolis_weight)


class LinkKind(NamedTuple):
    """How the links of a round are found and used.

    * ``average(averages, num_columns, links, steps, tape, t, bits)``: the ends of the round's links average
    * ``mark(links, t, bits)``: sets ``links.present`` of every edge before the decisions; n~ then spreads over the
      present links only. ``None``: n~ spreads over all edges of the graph, as in the paper.
    """

    average: Callable[..., None]
    mark: Callable[..., None] | None = None
    code: str = ""  # a hash of a user's own rule


@compile_inner
def _average_column(averages: Any, i: Any, j: Any, c: Any) -> None:
    mixed = average(averages[i, c], averages[j, c])
    averages[i, c] = mixed
    averages[j, c] = mixed


@compile_inner
def _average_ends(averages: Any, num_columns: int, links: Any, steps: Any, edges: Any, e: Any) -> None:
    """The ends of one edge take the mean of both; threads divide the columns among them."""
    i, j, team = np.uint32(edges[e, 0]), np.uint32(edges[e, 1]), links.team
    if team.parts == 1:  # column after column, which the compiler steps into vectors
        for c in range(num_columns):
            _average_column(averages, i, j, c)
    else:
        for c in range(team.part, num_columns, team.parts):
            _average_column(averages, i, j, c)
    for end in (i, j):
        if team.first <= end < team.last:
            steps[end].messages += 1
            steps[end].mixed = 1


def average_one_link(averages: Any, num_columns: int, links: Any, steps: Any, tape: Any, t: int, bits: Any) -> None:
    """Algorithm 1, lines 17-20: the ends of one random edge average what was gossiped up to t - 1."""
    if tape.on:
        _average_ends(averages, num_columns, links, steps, tape.edges, t - 1)
    elif len(links.edges) > 0:
        _average_ends(averages, num_columns, links, steps, links.edges, whole_below(bits, len(links.edges)))


def divides(average_links: Callable[..., None]) -> bool:
    """Whether threads divide the averages over links among them; otherwise one computes all of them."""
    return average_links in (average_one_link, average_matching)


def mark_by_chance(links: Any, t: int, bits: Any) -> None:
    """Every edge is present with the same probability."""
    for e in range(len(links.present)):
        bits = next_bits(bits)
        links.present[e] = uniform(bits) < links.presence


def mark_contacts(links: Any, t: int, bits: Any) -> None:
    """The edges that the contact list has for this round."""
    present, times = links.present, links.contact_times
    for e in range(len(present)):
        present[e] = 0
    c = np.searchsorted(times, t)
    while c < len(times) and times[c] == t:
        present[links.contact_edges[c]] = 1
        c += 1


def average_present_links(
    averages: Any, num_columns: int, links: Any, steps: Any, tape: Any, t: int, bits: Any
) -> None:
    """All present edges average at once."""
    present, degree, mixed = links.present, links.degree, links.mixed
    for i in range(len(degree)):
        degree[i] = 0
    for e in range(len(present)):
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
                flow = weight * (averages[j, c] - averages[i, c])
                mixed[i, c] += flow
                mixed[j, c] -= flow
    for i in range(len(degree)):
        steps[i].messages += degree[i]
        steps[i].mixed = 1
        for c in range(num_columns):
            averages[i, c] = mixed[i, c]


def average_links_by_chance(
    averages: Any, num_columns: int, links: Any, steps: Any, tape: Any, t: int, bits: Any
) -> None:
    """Every edge is present with some probability."""
    mark_by_chance(links, t, bits)
    average_present_links(averages, num_columns, links, steps, tape, t, bits)


LINKS: dict[str, LinkKind] = {
    "one": LinkKind(average_one_link),
    "matching": LinkKind(average_matching),
    "present": LinkKind(average_links_by_chance),
    "contacts": LinkKind(average_present_links, mark_contacts),
}
"""By the kind of ``LinkArrays``."""


@cache
def links_by(meets: FunctionType) -> LinkKind:
    """Links by a user's own rule: edge (i, j) is present in round t if ``meets(t, i, j, u)``, u a draw in [0, 1)."""

    def mark(links: Any, t: int, bits: Any) -> None:
        for e in range(len(links.present)):
            bits = next_bits(bits)
            i, j = np.int64(links.edges[e, 0]), np.int64(links.edges[e, 1])
            links.present[e] = 1 if meets(t, i, j, uniform(bits)) else 0

    return LinkKind(average_present_links, mark, digest_of(meets))
