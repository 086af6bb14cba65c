"""Averages over the links of a round, in compiled code: one edge, a matching, or all links that are present.

Formulas are in ``fedbandit.rules``.
"""

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from fedbandit.outside.modules import digest_of
from fedbandit.rules.gossip import average, metropolis_weight
from fedbandit.simulation.compiled import compilable, compile_inner
from fedbandit.simulation.matching import average_matching
from fedbandit.simulation.streams import next_bits, uniform, whole_below

__all__ = ["LINKS", "LinkKind", "divides", "links_by"]

compilable(metropolis_weight)


class LinkKind(NamedTuple):
    """How the links of a round are found and used.

    * ``average(averages, num_columns, links, turns, tape, t, bits)``: the ends of the round's links average
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
def _average_ends(averages: Any, num_columns: int, links: Any, turns: Any, edges: Any, e: Any) -> None:
    """The ends of one edge take the mean of both; threads divide the columns among them."""
    i, j, crew = np.uint32(edges[e, 0]), np.uint32(edges[e, 1]), links.crew
    if crew.parts == 1:  # column after column, which the compiler turns into vectors
        for c in range(num_columns):
            _average_column(averages, i, j, c)
    else:
        for c in range(crew.part, num_columns, crew.parts):
            _average_column(averages, i, j, c)
    for end in (i, j):
        if crew.first <= end < crew.last:
            turns[end].messages += 1
            turns[end].mixed = 1


def average_one_link(averages: Any, num_columns: int, links: Any, turns: Any, tape: Any, t: int, bits: Any) -> None:
    """Algorithm 1, lines 17-20: the ends of one random edge average what was gossiped up to t - 1."""
    if tape.on:
        _average_ends(averages, num_columns, links, turns, tape.edges, t - 1)
    elif len(links.edges) > 0:
        _average_ends(averages, num_columns, links, turns, links.edges, whole_below(bits, len(links.edges)))


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
    averages: Any, num_columns: int, links: Any, turns: Any, tape: Any, t: int, bits: Any
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
                step = weight * (averages[j, c] - averages[i, c])
                mixed[i, c] += step
                mixed[j, c] -= step
    for i in range(len(degree)):
        turns[i].messages += degree[i]
        turns[i].mixed = 1
        for c in range(num_columns):
            averages[i, c] = mixed[i, c]


def average_links_by_chance(
    averages: Any, num_columns: int, links: Any, turns: Any, tape: Any, t: int, bits: Any
) -> None:
    """Every edge is present with some probability."""
    mark_by_chance(links, t, bits)
    average_present_links(averages, num_columns, links, turns, tape, t, bits)


LINKS: dict[str, LinkKind] = {
    "one": LinkKind(average_one_link),
    "matching": LinkKind(average_matching),
    "present": LinkKind(average_links_by_chance),
    "contacts": LinkKind(average_present_links, mark_contacts),
}
"""By the kind of ``Links``."""


@cache
def links_by(meets: FunctionType) -> LinkKind:
    """Links by a user's own rule: edge (i, j) is present in round t if ``meets(t, i, j, u)``, u a draw in [0, 1)."""

    def mark(links: Any, t: int, bits: Any) -> None:
        for e in range(len(links.present)):
            bits = next_bits(bits)
            i, j = np.int64(links.edges[e, 0]), np.int64(links.edges[e, 1])
            links.present[e] = 1 if meets(t, i, j, uniform(bits)) else 0

    return LinkKind(average_present_links, mark, digest_of(meets))
