"""Averages over the links of a round, in compiled code: one edge, a matching, or all links that are present.

Formulas are in ``fedbandit.rules``.
"""

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from fedbandit.outside.modules import digest_of
from fedbandit.rules.gossip import metropolis_weight
from fedbandit.simulation.compiled import compilable
from fedbandit.simulation.matching import average_matching, average_pair
from fedbandit.simulation.streams import next_bits, uniform, whole_below

__all__ = ["LINKS", "LinkKind", "links_by"]

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


def average_one_link(averages: Any, num_columns: int, links: Any, turns: Any, tape: Any, t: int, bits: Any) -> None:
    """Algorithm 1, lines 17-20: the ends of one random edge average what was gossiped up to t - 1."""
    if tape.on:
        average_pair(averages, num_columns, turns, np.uint32(tape.edges[t - 1, 0]), np.uint32(tape.edges[t - 1, 1]))
    elif len(links.edges) > 0:
        e = whole_below(bits, len(links.edges))
        average_pair(averages, num_columns, turns, links.edges[e, 0], links.edges[e, 1])


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
