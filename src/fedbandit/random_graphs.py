"""Random graphs, drawn until one is connected: Erdos-Renyi, regular, small worlds, geometric and scale-free.

Up to 5,000 agents, Erdos-Renyi and regular graphs are networkx's; larger ones and all others are drawn by
``random_edges``. ``fedbandit.graph`` has these, too.
"""

from collections.abc import Callable
from math import log, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit import random_edges
from fedbandit.checks import InvalidArgument, number_above, number_between, whole_number
from fedbandit.edge_arrays import MAX_AGENTS, MAX_EDGES, components, numbered_edges, pairs_of
from fedbandit.topology import MAX_DENSE, Graph

__all__ = ["erdos_renyi", "geometric", "random_regular", "scale_free", "small_world"]

_DRAWS, _DRAWS_OF_LARGE = 1000, 20
"""Random graphs to draw until one is connected: of up to 5,000 agents, and of more."""

_MAX_LARGE_DEGREE = 1000


def erdos_renyi(num_agents: int, probability: float, seed: int = 0) -> Graph:
    """Each pair is an edge with the given probability, conditional on a connected graph.

    Redraws until the graph is connected; a hopelessly small probability is an error.
    """
    n = whole_number("num_agents", num_agents, 1, MAX_AGENTS)
    p = number_between("probability", probability, 0.0, 1.0)
    expected = p * n * (n - 1) / 2
    if n > MAX_DENSE and expected > MAX_EDGES:
        accepted = f"at most {MAX_EDGES / (n * (n - 1) / 2):.2g}: with it there are {MAX_EDGES:,} edges"
        raise InvalidArgument("probability", p, accepted)

    def draw(source: np.random.RandomState) -> NDArray[np.int64]:
        import networkx as nx

        generators: Any = nx  # not typed
        if n > MAX_DENSE:
            return random_edges.independent_edges(n, p, source) if p > 0.0 else np.zeros((0, 2), np.int64)
        return pairs_of(generators.gnp_random_graph(n, p, seed=source).edges())

    return _first_connected(draw, n, seed, f"erdos_renyi:{n}:{p:g}:{seed}", "probability", p)


def random_regular(num_agents: int, degree: int, seed: int = 0) -> Graph:
    """A random connected graph in which every agent has the same number of neighbours."""
    n = whole_number("num_agents", num_agents, 3, MAX_AGENTS)
    most = n - 1 if n <= MAX_DENSE else min(_MAX_LARGE_DEGREE, 2 * MAX_EDGES // n)
    d = whole_number("degree", degree, 2, most)
    if n * d % 2:
        raise InvalidArgument("degree", d, f"even when num_agents is odd ({n})")

    def draw(source: np.random.RandomState) -> NDArray[np.int64]:
        import networkx as nx

        generators: Any = nx  # not typed
        if n > MAX_DENSE:
            return random_edges.regular_edges(n, d, source)
        drawn = generators.random_regular_graph(d, n, seed=source)
        return pairs_of(numbered_edges(drawn))

    return _first_connected(draw, n, seed, f"random_regular:{n}:{d}:{seed}", "degree", d)


def small_world(num_agents: int, degree: int, probability: float, seed: int = 0) -> Graph:
    """A ring of agents joined to their nearest neighbours, whose edges move elsewhere at random (Watts, Strogatz 1998).

    ``degree``: an even number, half of it on either side. The far end of each edge moves with the ``probability``.
    """
    n = whole_number("num_agents", num_agents, 5, MAX_AGENTS)
    d = whole_number("degree", degree, 2, min((n - 1) // 2, _MAX_LARGE_DEGREE, 2 * MAX_EDGES // n))
    if d % 2:
        raise InvalidArgument("degree", d, "even")
    p = number_between("probability", probability, 0.0, 1.0)
    name = f"small_world:{n}:{d}:{p}:{seed}"
    return _first_connected(lambda source: random_edges.small_world_edges(n, d, p, source), n, seed, name, "degree", d)


def geometric(num_agents: int, radius: float, seed: int = 0) -> Graph:
    """Agents at random places in the unit square, joined within the radius, conditional on a connected graph."""
    n = whole_number("num_agents", num_agents, 1, MAX_AGENTS)
    r = number_above("radius", radius, 0.0)
    if r > sqrt(2.0):
        raise InvalidArgument("radius", radius, "at most 1.41: with it every two agents are joined")
    name = f"geometric:{n}:{r}:{seed}"
    if pi * r * r * n * n / 2 > MAX_EDGES:
        accepted = f"at most {sqrt(2 * MAX_EDGES / pi) / n:.2g}: with it there are {MAX_EDGES:,} edges"
        raise InvalidArgument("radius", radius, accepted)
    hint = f"Half of all such graphs are connected at a radius of about {sqrt((log(n) + 1) / (pi * n)):.2g}."
    return _first_connected(
        lambda source: random_edges.geometric_edges(n, r, source), n, seed, name, "radius", radius, hint
    )


def scale_free(num_agents: int, links: int, seed: int = 0) -> Graph:
    """Agents join one after the other, and link to earlier ones in proportion to their degrees (Barabasi, Albert 1999).

    ``links``: how many each joins with. A few agents end up with very many neighbours.
    """
    n = whole_number("num_agents", num_agents, 3, MAX_AGENTS)
    m = whole_number("links", links, 1, min(n - 1, 100, MAX_EDGES // n))
    name = f"scale_free:{n}:{m}:{seed}"
    return _first_connected(lambda source: random_edges.scale_free_edges(n, m, source), n, seed, name, "links", m)


def _first_connected(
    draw: Callable[[np.random.RandomState], NDArray[np.int64]],
    num_agents: int,
    seed: int,
    name: str,
    argument: str,
    value: object,
    hint: str = "",
) -> Graph:
    source = np.random.RandomState(whole_number("seed", seed, 0, 2**32 - 1))
    draws = _DRAWS if num_agents <= MAX_DENSE else _DRAWS_OF_LARGE
    for _ in range(draws):
        edges = draw(source)
        if not components(edges, num_agents).any():
            return Graph(num_agents, edges, name)
    raise InvalidArgument(argument, value, f"larger ({draws} draws gave no connected graph)", hint)
