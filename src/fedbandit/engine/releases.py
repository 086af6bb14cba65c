"""Gossip of releases over the links of a round, in compiled code: what each agent has published spreads as it is.

Links act on what was known before the round, and those of one round at once: nothing makes two hops in it. Formulas
are in ``fedbandit.rules.releases``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument
from fedbandit.engine.compiled import compilable, compile_inner, compile_rare
from fedbandit.engine.links import (
    LinkKind,
    average_links_by_chance,
    average_matching,
    average_one_link,
    average_present_links,
    mark_by_chance,
)
from fedbandit.engine.streams import whole_below
from fedbandit.rules.releases import is_newer, mean_of_heard, take_newer

MOST_BYTES = 8 * 2**30  # of one trial

for _rule in (is_newer, mean_of_heard, take_newer):
    compilable(_rule)


class Releases(NamedTuple):
    """The boards of all agents: by who holds it, and whose it is."""

    rows: Any  # [N, N, M C]: what is published of the first arm, then of the second, ...
    versions: Any  # [N, N]
    shares: Any  # [N]: N times each agent's weight
    sources: Any  # [N], scratch: from whom an agent takes a row
    newest: Any  # [N], scratch: its version
    taken: Any  # [N, M C], scratch: the row


def new_releases(shares: NDArray[np.float64], num_arms: int, columns: int) -> Releases:
    """Boards on which nobody has published anything."""
    num_agents, width = len(shares), num_arms * columns
    return Releases(
        rows=np.zeros((num_agents, num_agents, width)),
        versions=np.zeros((num_agents, num_agents), np.int32),
        shares=shares,
        sources=np.zeros(num_agents, np.int64),
        newest=np.zeros(num_agents, np.int32),
        taken=np.zeros((num_agents, width)),
    )


def check_size(num_agents: int, num_arms: int, columns: int) -> None:
    """Refuse boards that no memory holds."""
    size = 8 * num_agents**2 * num_arms * columns
    if size > MOST_BYTES:
        raise InvalidArgument(
            "gossip",
            "releases",
            "averages for so many agents and arms",
            f"Each agent holds what every agent has published: {num_agents:,}^2 agents x {num_arms:,} arms x {columns} "
            f"numbers of 8 bytes are {size / 2**30:,.0f} GiB in each trial, more than {MOST_BYTES / 2**30:.0f}.",
        )


# ---------------------------------------------------------------- one agent


@compile_inner
def publish(releases: Releases, i: int, first: Any, values: Any) -> bool:
    """Enter what an agent publishes of an arm, from the column ``first`` on, in its own row; whether it has changed."""
    row, has_changed = releases.rows[i, i], False
    for c in range(len(values)):
        if row[first + c] != values[c]:
            row[first + c] = values[c]
            has_changed = True
    return has_changed


@compile_inner
def see_mean(releases: Releases, i: int, first: Any, seen: Any) -> None:
    """Fill in what an agent sees of an arm, whose columns begin at ``first``."""
    rows = releases.rows[i, :, first : first + len(seen)]
    mean_of_heard(rows, releases.versions[i], releases.shares, seen)


# ---------------------------------------------------------------- links


@compile_inner
def _exchange_ends(releases: Releases, steps: Any, i: Any, j: Any) -> None:
    """Both ends of a link take over what is newer at the other: no other link touches them in this round."""
    rows, versions = releases.rows, releases.versions
    steps[i].messages += 1
    steps[j].messages += 1
    if take_newer(versions[i], rows[i], versions[j], rows[j]):
        steps[i].mixed = 1
    if take_newer(versions[j], rows[j], versions[i], rows[i]):
        steps[j].mixed = 1


def _pass_on_one_link(population: Any, links: Any, tape: Any, t: int, bits: Any) -> None:
    """Over one random edge."""
    edges = links.edges
    if tape.on:
        _exchange_ends(
            population.releases, population.steps, np.uint32(tape.edges[t - 1, 0]), np.uint32(tape.edges[t - 1, 1])
        )
    elif len(edges) > 0:
        e = whole_below(bits, len(edges))
        _exchange_ends(population.releases, population.steps, edges[e, 0], edges[e, 1])


@compile_rare
def _exchange_pairs(releases: Releases, links: Any, steps: Any) -> None:
    choice, is_free = links.matching.choice, links.matching.is_free
    for i in range(len(choice)):
        if is_free[i] == 0 and i < choice[i]:
            j = choice[i]
            steps[i].messages -= 1  # counted when the pair was found
            steps[j].messages -= 1
            steps[i].mixed = 0
            steps[j].mixed = 0
            _exchange_ends(releases, steps, np.uint32(i), j)


def _pass_on_matching(population: Any, links: Any, tape: Any, t: int, bits: Any) -> None:
    """Over a random maximal matching: of averages without columns only the pairs are found."""
    average_matching(population.averages, 0, links, population.steps, tape, t, bits)
    _exchange_pairs(population.releases, links, population.steps)


@compile_rare
def _exchange_present(releases: Releases, links: Any, steps: Any) -> None:
    """All present links at once: whose row travels is found from versions that do not change meanwhile."""
    (rows, versions, _, sources, newest, taken), edges = releases, links.edges
    for e in range(len(links.present)):
        if links.present[e]:
            steps[edges[e, 0]].messages += 1
            steps[edges[e, 1]].messages += 1
    for origin in range(len(versions)):
        for i in range(len(versions)):
            sources[i], newest[i] = i, versions[i, origin]
        for e in range(len(links.present)):
            if links.present[e]:
                i, j = edges[e, 0], edges[e, 1]
                if is_newer(versions[j, origin], newest[i]):
                    sources[i], newest[i] = j, versions[j, origin]
                if is_newer(versions[i, origin], newest[j]):
                    sources[j], newest[j] = i, versions[i, origin]
        for i in range(len(versions)):
            if sources[i] != i:
                for c in range(taken.shape[1]):
                    taken[i, c] = rows[sources[i], origin, c]
        for i in range(len(versions)):
            if sources[i] != i:
                for c in range(taken.shape[1]):
                    rows[i, origin, c] = taken[i, c]
                versions[i, origin] = newest[i]
                steps[i].mixed = 1


def _pass_on_present_links(population: Any, links: Any, tape: Any, t: int, bits: Any) -> None:
    """Over all present edges."""
    _exchange_present(population.releases, links, population.steps)


def _pass_on_links_by_chance(population: Any, links: Any, tape: Any, t: int, bits: Any) -> None:
    """Every edge is present with some probability."""
    mark_by_chance(links, t, bits)
    _exchange_present(population.releases, links, population.steps)


_BY_AVERAGE: dict[Callable[..., None], Callable[..., None]] = {
    average_one_link: _pass_on_one_link,
    average_matching: _pass_on_matching,
    average_links_by_chance: _pass_on_links_by_chance,
    average_present_links: _pass_on_present_links,
}


def pass_on_by(kind: LinkKind) -> Callable[..., None]:
    """``pass_on(population, links, tape, t, bits)``: releases instead of averages over links of a kind."""
    return _BY_AVERAGE[kind.average]
