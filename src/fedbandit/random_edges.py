"""Edges of random graphs, for up to a million agents: regular, Erdos-Renyi, small worlds, geometric and scale-free.

Each function draws once, from a ``RandomState``, whose streams NumPy has promised never to change. ``random_graphs``
checks arguments and draws again until the graph is connected.
"""

from math import log1p

import numpy as np
from numpy.typing import NDArray

from fedbandit.edge_arrays import key_of

__all__ = ["geometric_edges", "independent_edges", "regular_edges", "scale_free_edges", "small_world_edges"]

Edges = NDArray[np.int64]


def _clashes(edges: Edges, num_agents: int) -> NDArray[np.bool_]:
    """Which edges are loops, or the same as an earlier one."""
    keys = key_of(edges, num_agents)
    order = np.argsort(keys, kind="stable")
    clashes = edges[:, 0] == edges[:, 1]
    clashes[order[1:]] |= keys[order[1:]] == keys[order[:-1]]
    return clashes


def regular_edges(num_agents: int, degree: int, source: np.random.RandomState) -> Edges:
    """Each agent has ``degree`` ends, and ends are paired at random (the configuration model).

    Loops and parallel edges are broken up, and their ends paired anew with those of as many other edges: as many
    switches as there are such pairs, about degree^2 / 4 in all, whatever N.
    """
    edges = source.permutation(np.repeat(np.arange(num_agents), degree)).reshape(-1, 2)
    while True:
        bad = np.flatnonzero(_clashes(edges, num_agents))
        if len(bad) == 0:
            return edges
        chosen = np.unique(np.concatenate([bad, source.randint(0, len(edges), len(bad) + 1)]))
        edges[chosen] = source.permutation(edges[chosen].ravel()).reshape(-1, 2)


def independent_edges(num_agents: int, probability: float, source: np.random.RandomState) -> Edges:
    """Each pair is an edge with the same probability: from edge to edge by geometric steps (Batagelj, Brandes 2005)."""
    pairs = num_agents * (num_agents - 1) // 2
    parts: list[NDArray[np.int64]] = []
    last = -1
    while last < pairs:
        uniforms = 1.0 - source.random_sample(int(1.05 * (pairs - last) * probability) + 1000)
        steps = 1 + np.floor(np.log(uniforms) / log1p(-probability)) if probability < 1.0 else np.ones(len(uniforms))
        parts.append(last + np.cumsum(np.minimum(steps, pairs + 1).astype(np.int64)))
        last = int(parts[-1][-1])
    chosen = np.concatenate(parts)
    chosen = chosen[chosen < pairs]
    # Pair number p = high (high - 1) / 2 + low; the root may be off by one where it is rounded.
    high = ((1.0 + np.sqrt(1.0 + 8.0 * chosen)) / 2.0).astype(np.int64)
    high -= high * (high - 1) // 2 > chosen
    high += (high + 1) * high // 2 <= chosen
    return np.column_stack([chosen - high * (high - 1) // 2, high])


def small_world_edges(num_agents: int, degree: int, probability: float, source: np.random.RandomState) -> Edges:
    """A ring with the ``degree`` nearest as neighbours; the far end of each edge moves with the probability."""
    agents = np.arange(num_agents)
    steps = np.repeat(np.arange(1, degree // 2 + 1), num_agents)
    edges = np.column_stack([np.tile(agents, degree // 2), (np.tile(agents, degree // 2) + steps) % num_agents])
    moves = source.random_sample(len(edges)) < probability
    edges = edges[np.argsort(moves, kind="stable")]  # those that stay come first: the others give way
    moving = np.arange(len(edges)) >= len(edges) - int(moves.sum())
    redrawn = np.flatnonzero(moving)
    while len(redrawn):
        edges[redrawn, 1] = source.randint(0, num_agents, len(redrawn))
        redrawn = np.flatnonzero(_clashes(edges, num_agents))
    return edges


def geometric_edges(num_agents: int, radius: float, source: np.random.RandomState) -> Edges:
    """Places uniform in the unit square; pairs within the radius are joined. Found cell by cell."""
    places = source.random_sample((num_agents, 2))
    across = max(1, min(int(1.0 / radius), 1 + int(num_agents**0.5)))  # cells of at least the radius
    cells: NDArray[np.int64] = np.minimum((places * across).astype(np.int64), across - 1)
    number = cells[:, 0] * across + cells[:, 1]
    order = np.argsort(number, kind="stable")
    starts = np.searchsorted(number[order], np.arange(across * across + 1))
    found: list[Edges] = []
    for right, up in ((0, 0), (0, 1), (1, -1), (1, 0), (1, 1)):  # half of the cells around: each pair once
        beside: NDArray[np.int64] = cells + np.array([right, up], np.int64)
        inside = np.flatnonzero(((beside >= 0) & (beside < across)).all(axis=1))
        there = beside[inside, 0] * across + beside[inside, 1]
        first, count = starts[there], starts[there + 1] - starts[there]
        one = np.repeat(inside, count)
        offset = np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count)
        other = order[np.repeat(first, count) + offset]
        near = ((places[one] - places[other]) ** 2).sum(axis=1) <= radius * radius
        near &= (one < other) | (right + abs(up) > 0)
        found.append(np.column_stack([one[near], other[near]]))
    return np.concatenate(found)


_ONE_BY_ONE = 1_000


def scale_free_edges(num_agents: int, links: int, source: np.random.RandomState) -> Edges:
    """Agents join one after the other, each linked to so many different earlier ones, in proportion to their degrees.

    The first ``links`` + 1 form a star. To draw by degree is to draw an end of any earlier edge, which is an agent, or
    the earlier end of an edge that was drawn itself (Batagelj, Brandes 2005): all at once, then follow the pointers.
    The first thousand agents come one by one, since there two links often draw the same agent.
    """
    ends: list[int] = [end for i in range(1, links + 1) for end in (i, 0)]
    for agent in range(links + 1, min(num_agents, _ONE_BY_ONE)):
        chosen: list[int] = []
        while len(chosen) < links:
            drawn = ends[source.randint(len(ends))]
            if drawn not in chosen:
                chosen.append(drawn)
        ends += [end for earlier in chosen for end in (agent, earlier)]
    if num_agents <= _ONE_BY_ONE:
        return np.array(ends).reshape(-1, 2)
    joining = np.repeat(np.arange(_ONE_BY_ONE, num_agents), links)
    old = len(ends)  # an even number; position old + 2 e is the joining end of edge e, and the next one its other end
    before = old + 2 * links * (joining - _ONE_BY_ONE)  # ends there are when the agent joins
    drawn = (source.random_sample(len(joining)) * before).astype(np.int64)
    while True:
        at = drawn.copy()
        while len(waiting := np.flatnonzero((at >= old) & (at % 2 == 1))):
            at[waiting] = drawn[(at[waiting] - old) // 2]
        earlier = np.where(at < old, np.array(ends)[np.minimum(at, old - 1)], joining[np.maximum(at - old, 0) // 2])
        edges = np.column_stack([joining, earlier])
        again = np.flatnonzero(_clashes(edges, num_agents))
        if len(again) == 0:
            return np.concatenate([np.array(ends).reshape(-1, 2), edges])
        drawn[again] = (source.random_sample(len(again)) * before[again]).astype(np.int64)
