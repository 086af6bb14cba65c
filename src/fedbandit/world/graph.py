"""Communication graphs: the gossip matrix W and its second eigenvalue, graphs by name, links that change over time.

Which edges gossip in a round is part of the problem (``edges_per_round``). Edges are held in an array, so that a
million agents fit.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, pi, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, closest, instance, number_above, number_between, whole_number
from fedbandit.notebook import graph_html
from fedbandit.world import edge_arrays
from fedbandit.world.edge_arrays import MAX_AGENTS, MAX_EDGES, pairs_of
from fedbandit.world.tables import UserTable, is_table, rows_of

if TYPE_CHECKING:
    import networkx as nx


__all__ = [
    "MAX_AGENTS",
    "MAX_DENSE",
    "Contacts",
    "Graph",
    "Schedule",
    "complete",
    "contacts",
    "erdos_renyi",
    "from_edges",
    "from_networkx",
    "geometric",
    "grid",
    "parse",
    "path",
    "random_regular",
    "ring",
    "scale_free",
    "schedule",
    "small_world",
    "star",
]


MAX_DENSE = 5_000
"""Up to so many agents there are matrices with an entry for each pair of them."""


class Graph:
    """A simple, undirected, connected graph of agents, numbered from 0.

    The paper has at least three agents: with two the model is a centralised one, alone nobody gossips.
    ``edges`` are pairs of agents, or an array of whole numbers with two columns. Graphs never change.
    """

    num_agents: int
    edge_array: NDArray[np.uint32]  # [E, 2], in order, the smaller end first; read-only
    name: str

    def __init__(self, num_agents: int, edges: "Iterable[tuple[int, int]] | NDArray[Any]", name: str = "graph") -> None:
        """Refuse graphs that the paper's section "Communication Graph" excludes, with the reason."""
        agents = whole_number("num_agents", num_agents, 1, MAX_AGENTS)
        pairs = pairs_of(edges)
        if len(pairs) > MAX_EDGES:
            raise InvalidArgument("edges", f"{len(pairs):,} edges", f"at most {MAX_EDGES:,}")
        found = edge_arrays.checked_edges(pairs, agents)
        cut_off = np.flatnonzero(edge_arrays.components(found, agents))
        if len(cut_off):
            raise InvalidArgument("edges", f"a graph in which agent {cut_off[0]} is cut off", "a connected graph")
        self.__dict__.update(num_agents=agents, edge_array=found, name=name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to {name!r}: a graph never changes")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return (self.num_agents, self.name) == (other.num_agents, other.name) and np.array_equal(
            self.edge_array, other.edge_array
        )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.num_agents, self.edge_array.tobytes(), self.name))

    def __getstate__(self) -> dict[str, Any]:
        """Without what is derived: the hash is another one in every process, and matrices are large."""
        return {"num_agents": self.num_agents, "edge_array": self.edge_array, "name": self.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.edge_array.flags.writeable = False

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {self.num_agents:,} agents, {self.num_edges:,} edges)"

    _repr_html_ = graph_html

    @property
    def num_edges(self) -> int:
        """|E|."""
        return len(self.edge_array)

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """All edges in order, the smaller end first. For a large graph ``edge_array`` takes a tenth of the memory."""
        return tuple((i, j) for i, j in self.edge_array.tolist())

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """The number of neighbours of each agent."""
        return np.bincount(self.edge_array.ravel(), minlength=self.num_agents)

    @cached_property
    def adjacency(self) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Where the neighbours of each agent begin, and all neighbours: agent i has those from first[i] to first[i+1].

        The compressed sparse rows of the adjacency matrix.
        """
        return edge_arrays.adjacency(self.edge_array, self.num_agents)

    @cached_property
    def neighbours(self) -> tuple[tuple[int, ...], ...]:
        """The neighbours of each agent, in order (the paper's script N_i). For a large graph use ``adjacency``."""
        first, neighbours = self.adjacency
        return tuple(tuple(part.tolist()) for part in np.split(neighbours, first[1:-1]))

    def to_networkx(self) -> "nx.Graph[int]":
        """The same graph for networkx."""
        import networkx as nx

        result: nx.Graph[int] = nx.Graph()
        result.add_nodes_from(range(self.num_agents))
        result.add_edges_from(self.edges)
        return result

    @cached_property
    def gossip_matrix(self) -> NDArray[np.float64]:
        """W = I - L / (2 |E|): the expected averaging when one uniform edge gossips."""
        self._check_dense("gossip_matrix")
        if self.num_agents == 1:
            return np.eye(1)
        laplacian = np.diag(self.degrees.astype(np.float64))
        one, other = self.edge_array[:, 0], self.edge_array[:, 1]
        laplacian[one, other] = laplacian[other, one] = -1.0
        return np.eye(self.num_agents) - laplacian / (2.0 * self.num_edges)

    @cached_property
    def lambda2(self) -> float:
        """The second-largest eigenvalue of W: the closer to 1, the slower gossip mixes; 0 for a single agent.

        With more than 5,000 agents 1 - lambda2 is found to a relative accuracy of 1e-6. On long rings, paths and grids
        that takes too many steps, and is refused.
        """
        if self.num_agents == 1:
            return 0.0
        if self.num_agents <= MAX_DENSE:
            return float(np.linalg.eigvalsh(self.gossip_matrix)[-2])
        mode = edge_arrays.smallest_mode(*self.adjacency)
        if mode is None:
            hint = "1 - lambda2 is too close to 0 to be found in 1,000 Lanczos steps: gossip on it hardly mixes."
            raise InvalidArgument("graph", self.name, "one that mixes faster, for lambda2", hint)
        return 1.0 - mode / (2.0 * self.num_edges)

    @cached_property
    def distances(self) -> NDArray[np.int64]:
        """d[i, j]: the number of edges on a shortest path from i to j."""
        import networkx as nx

        self._check_dense("distances and the diameter")
        table = np.zeros((self.num_agents, self.num_agents), np.int64)
        for i, lengths in nx.all_pairs_shortest_path_length(self.to_networkx()):
            table[i, list(lengths)] = list(lengths.values())
        return table

    @cached_property
    def diameter(self) -> int:
        """The largest distance."""
        return int(self.distances.max())

    def _check_dense(self, what: str) -> None:
        if self.num_agents > MAX_DENSE:
            accepted = f"one of at most {MAX_DENSE:,} agents, for {what}"
            hint = "They have an entry for each pair of agents."
            raise InvalidArgument("graph", f"{self.name}, {self.num_agents:,} agents", accepted, hint)


# ---------------------------------------------------------------- random graphs


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
            return edge_arrays.independent_edges(n, p, source) if p > 0.0 else np.zeros((0, 2), np.int64)
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
            return edge_arrays.regular_edges(n, d, source)
        drawn = generators.random_regular_graph(d, n, seed=source)
        return pairs_of(edge_arrays.numbered_edges(drawn))

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
    return _first_connected(lambda source: edge_arrays.small_world_edges(n, d, p, source), n, seed, name, "degree", d)


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
        lambda source: edge_arrays.geometric_edges(n, r, source), n, seed, name, "radius", radius, hint
    )


def scale_free(num_agents: int, links: int, seed: int = 0) -> Graph:
    """Agents join one after the other, and link to earlier ones in proportion to their degrees (Barabasi, Albert 1999).

    ``links``: how many each joins with. A few agents end up with very many neighbours.
    """
    n = whole_number("num_agents", num_agents, 3, MAX_AGENTS)
    m = whole_number("links", links, 1, min(n - 1, 100, MAX_EDGES // n))
    name = f"scale_free:{n}:{m}:{seed}"
    return _first_connected(lambda source: edge_arrays.scale_free_edges(n, m, source), n, seed, name, "links", m)


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
        if not edge_arrays.components(edges, num_agents).any():
            return Graph(num_agents, edges, name)
    raise InvalidArgument(argument, value, f"larger ({draws} draws gave no connected graph)", hint)


# ---------------------------------------------------------------- graphs by name


def path(num_agents: int) -> Graph:
    """0 - 1 - 2 - ... : the slowest of the usual graphs (the paper's lambda_2 of about 0.99 at N = 10)."""
    n = _agents(num_agents)
    return Graph(n, _steps(n), f"path:{n}")


def ring(num_agents: int) -> Graph:
    """A path with its ends joined."""
    n = _agents(num_agents)
    closing = np.array([(0, n - 1)] if n > 2 else [], np.int64).reshape(-1, 2)
    return Graph(n, np.concatenate([_steps(n), closing]), f"ring:{n}")


def complete(num_agents: int) -> Graph:
    """Every pair of agents is joined (the paper's lambda_2 = 0.5 at N = 3)."""
    n = whole_number("num_agents", num_agents, 1, MAX_DENSE)
    return Graph(n, np.column_stack(np.triu_indices(n, 1)), f"complete:{n}")


def star(num_agents: int) -> Graph:
    """Agent 0 in the centre, joined to all others."""
    n = _agents(num_agents)
    return Graph(n, np.column_stack([np.zeros(n - 1, np.int64), np.arange(1, n)]), f"star:{n}")


def grid(rows: int, columns: int) -> Graph:
    """A rectangle of agents, each joined to its horizontal and vertical neighbours."""
    r, c = whole_number("rows", rows, 1, MAX_AGENTS), whole_number("columns", columns, 1, MAX_AGENTS)
    whole_number("rows times columns", r * c, 1, MAX_AGENTS)
    places = np.arange(r * c).reshape(r, c)
    across = np.column_stack([places[:, :-1].ravel(), places[:, 1:].ravel()])
    down = np.column_stack([places[:-1].ravel(), places[1:].ravel()])
    return Graph(r * c, np.concatenate([across, down]), f"grid:{r}x{c}")


def _steps(n: int) -> NDArray[np.int64]:
    return np.column_stack([np.arange(n - 1), np.arange(1, n)])


def from_edges(
    edges: Iterable[Sequence[int]] | NDArray[Any], num_agents: int | None = None, name: str = "edges"
) -> Graph:
    """A graph from pairs of agents; ``num_agents`` defaults to the largest agent number plus one."""
    pairs = pairs_of(edges)
    if num_agents is None:
        num_agents = 1 + (int(pairs.max()) if len(pairs) else -1)
    return Graph(whole_number("num_agents", num_agents, 1, MAX_AGENTS), pairs, name)


def from_networkx(source: "nx.Graph[Any]", name: str = "networkx") -> Graph:
    """A networkx graph; agents are numbered in the order of its nodes."""
    import networkx as nx

    instance("source", source, nx.Graph, "a networkx graph")
    if source.is_directed():
        raise InvalidArgument("source", source, "an undirected graph")
    return from_edges(edge_arrays.numbered_edges(source), source.number_of_nodes(), name)


# ---------------------------------------------------------------- links that change over time


@dataclass(frozen=True)
class Schedule:
    """Links by period: (first round, edges). ``union`` has every edge that there ever is."""

    periods: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    union: Graph


@dataclass(frozen=True, eq=False)
class Contacts:
    """Who meets whom and when: in round ``times[c]`` the edge ``union.edges[edge_numbers[c]]`` is there."""

    times: NDArray[np.int64]
    edge_numbers: NDArray[np.int64]
    union: Graph


def schedule(periods: Sequence[tuple[int, Graph | str | Iterable[Sequence[int]]]]) -> Schedule:
    """A graph for each period, ``[(0, g1), (10_000, g2)]``: g1 from round 0, g2 from round 10,000.

    A period takes a graph, a text like "path:10", or a list of pairs, which may be empty. A period's graph need not be
    connected, but all of them together must be.
    """
    starts: list[int] = []
    parts: list[tuple[tuple[int, int], ...]] = []
    names: list[str] = []
    sizes: set[int] = set()
    if not isinstance(periods, Sequence) or isinstance(periods, str) or not periods:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument("periods", periods, "a list of (first round, graph)")
    for position, period in enumerate(periods):
        where = f"periods[{position}]"
        if not isinstance(period, Sequence) or isinstance(period, str) or len(period) != 2:  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
            raise InvalidArgument(where, period, "a first round and a graph")
        start, given = period
        low = 0 if position == 0 else starts[-1] + 1
        starts.append(whole_number(f"{where}, first round", start, low, low if position == 0 else 10**12))
        graph = parse(given) if isinstance(given, str) else given
        if isinstance(graph, Graph):
            sizes.add(graph.num_agents)
            names.append(graph.name)
            parts.append(graph.edges)
        else:
            if not isinstance(graph, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidArgument(where, graph, "a first round, and a graph or a list of pairs")
            parts.append(tuple((i, j) for i, j in pairs_of(graph, where).tolist()))
            names.append(f"{len(parts[-1])} edge{'s' * (len(parts[-1]) != 1)}")
    if len(sizes) > 1:
        raise InvalidArgument("periods", f"graphs of {sorted(sizes)} agents", "graphs with one number of agents")
    name = "schedule of " + ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    union = _union([(min(e), max(e)) for part in parts for e in part], max(sizes, default=None), name)
    checked = [edge_arrays.checked_edges(pairs_of(part), union.num_agents).tolist() for part in parts]
    return Schedule(
        tuple((start, tuple((i, j) for i, j in part)) for start, part in zip(starts, checked, strict=True)), union
    )


def contacts(source: UserTable | Iterable[Sequence[int]], num_agents: int | None = None) -> Contacts:
    """A contact list: triples (time, a, b), or a CSV file (its path) or DataFrame with these columns; in any order.

    The agents a and b gossip in round ``time``, from 1 on. If an agent meets several others in a round, all these links
    average at once.
    """
    name = f"contacts:{Path(source).name}" if isinstance(source, (str, os.PathLike)) else "contacts"
    met: set[tuple[int, int, int]] = set()
    for where, row in _triples(source):
        if not hasattr(row, "__getitem__") or isinstance(row, (str, dict)) or len(row) != 3:
            raise InvalidArgument(where, row, "a time and two agents")  # pyright: ignore[reportUnknownArgumentType]
        time = whole_number(f"{where}, time", row[0], 1, 10**12)
        ((i, j),) = pairs_of([row[1:]], where).tolist()
        if i == j:
            raise InvalidArgument(where, (i, j), "two different agents")
        met.add((time, min(i, j), max(i, j)))
    if not met:
        raise InvalidArgument("contacts", source, "at least one contact")
    union = _union([(i, j) for _, i, j in met], num_agents, name)
    number = {edge: e for e, edge in enumerate(union.edges)}
    in_order = sorted(met)
    return Contacts(
        np.array([time for time, _, _ in in_order], np.int64),
        np.array([number[i, j] for _, i, j in in_order], np.int64),
        union,
    )


_CONTACT_COLUMNS = {"time": ("time",), "a": ("a",), "b": ("b",)}


def _triples(source: Any) -> Iterable[tuple[str, Any]]:
    """What should be a time and two agents, each with its place."""
    if is_table(source):
        rows = rows_of("contacts", source, _CONTACT_COLUMNS)
        return ((where, _whole_cells(where, row)) for where, row in rows)
    if not isinstance(source, Iterable):
        raise InvalidArgument("contacts", source, "a list of (time, a, b), the path of a CSV file, or a DataFrame")
    return ((f"contacts[{c}]", row) for c, row in enumerate(source))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _whole_cells(where: str, row: list[str]) -> list[int]:
    values: list[int] = []
    for column, cell in zip(_CONTACT_COLUMNS, row, strict=True):
        try:
            values.append(_whole(cell))
        except ValueError:
            raise InvalidArgument(f"{where}, {column}", cell, "a whole number") from None
    return values


def _union(edges: Iterable[tuple[int, int]], num_agents: int | None, name: str) -> Graph:
    try:
        return from_edges(sorted(set(edges)), num_agents, name)
    except InvalidArgument as error:
        hint = "All edges that there ever are count together, and agents are numbered from 0."
        raise InvalidArgument(error.argument, error.value, error.accepted, hint) from None


def _agents(num_agents: int) -> int:
    return whole_number("num_agents", num_agents, 1, MAX_AGENTS)


def _plain(text: str) -> str:
    """A number as everybody writes it: Python also takes digits of other scripts, and 1_0."""
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return text


def _whole(text: str) -> int:
    return int(_plain(text))


def _real(text: str) -> float:
    return float(_plain(text))


def _grid_of(size: str) -> Graph:
    rows, _, columns = size.partition("x")
    return grid(_whole(rows), _whole(columns))


_FORMS: dict[str, tuple[str, Callable[..., Graph], tuple[Callable[[str], Any], ...]]] = {
    "path": ("path:N", path, (_whole,)),
    "ring": ("ring:N", ring, (_whole,)),
    "complete": ("complete:N", complete, (_whole,)),
    "star": ("star:N", star, (_whole,)),
    "grid": ("grid:RxC", _grid_of, (str,)),
    "erdos_renyi": ("erdos_renyi:N:P[:SEED]", erdos_renyi, (_whole, _real, _whole)),
    "random_regular": ("random_regular:N:DEGREE[:SEED]", random_regular, (_whole, _whole, _whole)),
    "small_world": ("small_world:N:DEGREE:P[:SEED]", small_world, (_whole, _whole, _real, _whole)),
    "geometric": ("geometric:N:RADIUS[:SEED]", geometric, (_whole, _real, _whole)),
    "scale_free": ("scale_free:N:LINKS[:SEED]", scale_free, (_whole, _whole, _whole)),
}


def parse(text: str) -> Graph:
    """A graph from a short text such as ``path:10``, ``grid:3x4`` or ``erdos_renyi:20:0.3:7``."""
    instance("graph", text, str, "a text like path:10")
    name, *arguments = text.strip().split(":")
    accepted = ", ".join(form for form, _, _ in _FORMS.values())
    if name not in _FORMS:
        raise InvalidArgument("graph", text, f"one of {accepted}", closest(name, _FORMS))
    form, build, types = _FORMS[name]
    optional = form.count("[")
    if not len(types) - optional <= len(arguments) <= len(types):
        raise InvalidArgument("graph", text, form)
    try:
        values = [convert(argument) for convert, argument in zip(types, arguments, strict=False)]
        return build(*values)
    except InvalidArgument:
        raise
    except ValueError:
        raise InvalidArgument("graph", text, form) from None


def __dir__() -> list[str]:
    return __all__
