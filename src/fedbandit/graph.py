"""Communication graphs: topologies, the gossip matrix W and its second eigenvalue; links that change over time.

Which edges gossip in a round is part of the problem (``edges_per_round``).
"""

import csv
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, closest, instance, number_between, whole_number

__all__ = [
    "Contacts",
    "Graph",
    "Schedule",
    "complete",
    "contacts",
    "erdos_renyi",
    "from_edges",
    "from_networkx",
    "grid",
    "parse",
    "path",
    "random_regular",
    "ring",
    "schedule",
    "star",
]

MAX_AGENTS = 5_000  # the gossip matrix and the distances are dense

_nx: Any = nx  # its generators are not typed


@dataclass(frozen=True)
class Graph:
    """A simple, undirected, connected graph of agents, numbered from 0.

    The paper has at least three agents: with two the model is a centralised one, alone nobody gossips.
    """

    num_agents: int
    edges: tuple[tuple[int, int], ...]
    name: str = "graph"

    def __post_init__(self) -> None:
        """Refuse graphs that the paper's section "Communication Graph" excludes, with the reason."""
        whole_number("num_agents", self.num_agents, 1, MAX_AGENTS)
        object.__setattr__(self, "edges", _checked_edges(self.edges, self.num_agents))
        cut_off = set(range(self.num_agents)) - nx.node_connected_component(self.to_networkx(), 0)
        if cut_off:
            raise InvalidArgument("edges", f"a graph in which agent {min(cut_off)} is cut off", "a connected graph")

    def to_networkx(self) -> "nx.Graph[int]":
        """The same graph for networkx."""
        result: nx.Graph[int] = nx.Graph()
        result.add_nodes_from(range(self.num_agents))
        result.add_edges_from(self.edges)
        return result

    @cached_property
    def neighbours(self) -> tuple[tuple[int, ...], ...]:
        """The neighbours of each agent, in order (the paper's script N_i)."""
        lists: list[list[int]] = [[] for _ in range(self.num_agents)]
        for i, j in self.edges:
            lists[i].append(j)
            lists[j].append(i)
        return tuple(tuple(sorted(agents)) for agents in lists)

    @cached_property
    def gossip_matrix(self) -> NDArray[np.float64]:
        """W = I - L / (2 |E|): the expected averaging when one uniform edge gossips."""
        if self.num_agents == 1:
            return np.eye(1)
        laplacian = np.zeros((self.num_agents, self.num_agents))
        for i, j in self.edges:
            laplacian[[i, j], [i, j]] += 1.0
            laplacian[[i, j], [j, i]] -= 1.0
        return np.eye(self.num_agents) - laplacian / (2.0 * len(self.edges))

    @cached_property
    def lambda2(self) -> float:
        """The second-largest eigenvalue of W: the closer to 1, the slower gossip mixes; 0 for a single agent."""
        if self.num_agents == 1:
            return 0.0
        return float(np.linalg.eigvalsh(self.gossip_matrix)[-2])

    @cached_property
    def distances(self) -> NDArray[np.int64]:
        """d[i, j]: the number of edges on a shortest path from i to j."""
        table = np.zeros((self.num_agents, self.num_agents), np.int64)
        for i, lengths in nx.all_pairs_shortest_path_length(self.to_networkx()):
            table[i, list(lengths)] = list(lengths.values())
        return table

    @cached_property
    def diameter(self) -> int:
        """The largest distance."""
        return int(self.distances.max())


def _checked_edges(edges: Iterable[tuple[int, int]], num_agents: int) -> tuple[tuple[int, int], ...]:
    seen: set[tuple[int, int]] = set()
    for i, j in edges:
        if not (0 <= i < num_agents and 0 <= j < num_agents):
            raise InvalidArgument("edges", (i, j), f"pairs of agents from 0 to {num_agents - 1}")
        if i == j:
            raise InvalidArgument("edges", (i, j), "between two different agents (no loops)")
        if (min(i, j), max(i, j)) in seen:
            raise InvalidArgument("edges", f"{(i, j)} twice", "distinct (no parallel edges)")
        seen.add((min(i, j), max(i, j)))
    return tuple(sorted(seen))


def path(num_agents: int) -> Graph:
    """0 - 1 - 2 - ... : the slowest of the usual graphs (the paper's lambda_2 of about 0.99 at N = 10)."""
    n = _agents(num_agents)
    return Graph(n, tuple((i, i + 1) for i in range(n - 1)), f"path:{n}")


def ring(num_agents: int) -> Graph:
    """A path with its ends joined."""
    n = _agents(num_agents)
    closing = [(0, n - 1)] if n > 2 else []
    return Graph(n, tuple([(i, i + 1) for i in range(n - 1)] + closing), f"ring:{n}")


def complete(num_agents: int) -> Graph:
    """Every pair of agents is joined (the paper's lambda_2 = 0.5 at N = 3)."""
    n = _agents(num_agents)
    return Graph(n, tuple((i, j) for i in range(n) for j in range(i + 1, n)), f"complete:{n}")


def star(num_agents: int) -> Graph:
    """Agent 0 in the centre, joined to all others."""
    n = _agents(num_agents)
    return Graph(n, tuple((0, i) for i in range(1, n)), f"star:{n}")


def grid(rows: int, columns: int) -> Graph:
    """A rectangle of agents, each joined to its horizontal and vertical neighbours."""
    r, c = whole_number("rows", rows, 1, MAX_AGENTS), whole_number("columns", columns, 1, MAX_AGENTS)
    across = [(a * c + b, a * c + b + 1) for a in range(r) for b in range(c - 1)]
    down = [(a * c + b, (a + 1) * c + b) for a in range(r - 1) for b in range(c)]
    return Graph(r * c, tuple(across + down), f"grid:{r}x{c}")


def erdos_renyi(num_agents: int, probability: float, seed: int = 0) -> Graph:
    """Each pair is an edge with the given probability, conditional on a connected graph.

    Redraws until the graph is connected; a hopelessly small probability is an error.
    """
    n = _agents(num_agents)
    p = number_between("probability", probability, 0.0, 1.0)
    name = f"erdos_renyi:{n}:{p:g}:{seed}"
    return _first_connected(partial(_nx.gnp_random_graph, n, p), seed, name, "probability", p)


def random_regular(num_agents: int, degree: int, seed: int = 0) -> Graph:
    """A random connected graph in which every agent has the same number of neighbours."""
    n = whole_number("num_agents", num_agents, 3, MAX_AGENTS)
    d = whole_number("degree", degree, 2, n - 1)
    if n * d % 2:
        raise InvalidArgument("degree", d, f"even when num_agents is odd ({n})")
    name = f"random_regular:{n}:{d}:{seed}"
    return _first_connected(partial(_nx.random_regular_graph, d, n), seed, name, "degree", d)


def _first_connected(draw: Callable[..., Any], seed: int, name: str, argument: str, value: object) -> Graph:
    source = np.random.RandomState(whole_number("seed", seed, 0, 2**32 - 1))
    for _ in range(1000):
        candidate = draw(seed=source)
        if nx.is_connected(candidate):
            return from_networkx(candidate, name=name)
    raise InvalidArgument(argument, value, "larger (1000 draws gave no connected graph)")


def from_edges(edges: Iterable[Sequence[int]], num_agents: int | None = None, name: str = "edges") -> Graph:
    """A graph from pairs of agents; ``num_agents`` defaults to the largest agent number plus one."""
    pairs = [_pair(edge) for edge in edges]
    if num_agents is None:
        num_agents = 1 + max((max(pair) for pair in pairs), default=-1)
    return Graph(whole_number("num_agents", num_agents, 1, MAX_AGENTS), tuple(pairs), name)


def from_networkx(source: "nx.Graph[Any]", name: str = "networkx") -> Graph:
    """A networkx graph; agents are numbered in the order of its nodes."""
    instance("source", source, nx.Graph, "a networkx graph")
    if source.is_directed():
        raise InvalidArgument("source", source, "an undirected graph")
    number = {node: i for i, node in enumerate(source.nodes)}
    return from_edges([(number[a], number[b]) for a, b in source.edges()], len(number), name)


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
            parts.append(tuple(_pair(edge, where) for edge in graph))
            names.append(f"{len(parts[-1])} edge{'s' * (len(parts[-1]) != 1)}")
    if len(sizes) > 1:
        raise InvalidArgument("periods", f"graphs of {sorted(sizes)} agents", "graphs with one number of agents")
    name = "schedule of " + ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    union = _union([(min(e), max(e)) for part in parts for e in part], max(sizes, default=None), name)
    checked = [_checked_edges(part, union.num_agents) for part in parts]
    return Schedule(tuple(zip(starts, checked, strict=True)), union)


def contacts(source: str | os.PathLike[str] | Iterable[Sequence[int]], num_agents: int | None = None) -> Contacts:
    """A contact list: the path of a CSV file with columns time, a, b, or triples (time, a, b), in any order.

    The agents a and b gossip in round ``time``, from 1 on. If an agent meets several others in a round, all these links
    average at once.
    """
    name = "contacts"
    if isinstance(source, (str, os.PathLike)):
        name, rows = f"contacts:{Path(source).name}", _rows_of(source)
    elif isinstance(source, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        rows = [(f"contacts[{c}]", row) for c, row in enumerate(source)]
    else:
        raise InvalidArgument("contacts", source, "the path of a CSV file, or a list of (time, a, b)")
    met: set[tuple[int, int, int]] = set()
    for where, row in rows:
        if not hasattr(row, "__getitem__") or isinstance(row, (str, dict)) or len(row) != 3:
            raise InvalidArgument(where, row, "a time and two agents")
        time = whole_number(f"{where}, time", row[0], 1, 10**12)
        i, j = _pair(row[1:], where)
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


def _rows_of(path: str | os.PathLike[str]) -> list[tuple[str, list[Any]]]:
    """The lines of a contact list, with their places."""
    rows: list[tuple[str, list[Any]]] = []
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns = ("time", "a", "b")
            if reader.fieldnames is None or set(reader.fieldnames) != set(columns):
                raise InvalidArgument(f"columns of {path}", reader.fieldnames or "none", "time, a, b, with commas")
            for line in reader:
                where = f"{path}, line {reader.line_num}"
                values: list[Any] = []
                for column in columns:
                    try:
                        values.append(int(line[column]))
                    except (TypeError, ValueError):
                        raise InvalidArgument(f"{where}, {column}", line[column], "a whole number") from None
                rows.append((where, values))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument("contacts", str(path), "a readable CSV file", str(error)) from None
    return rows


def _pair(edge: Any, where: str = "edges") -> tuple[int, int]:
    if not hasattr(edge, "__len__") or len(edge) != 2:
        raise InvalidArgument(where, edge, "pairs of agents")
    return whole_number(where, edge[0], 0, MAX_AGENTS), whole_number(where, edge[1], 0, MAX_AGENTS)


def _union(edges: Iterable[tuple[int, int]], num_agents: int | None, name: str) -> Graph:
    try:
        return from_edges(sorted(set(edges)), num_agents, name)
    except InvalidArgument as error:
        hint = "All edges that there ever are count together, and agents are numbered from 0."
        raise InvalidArgument(error.argument, error.value, error.accepted, hint) from None


def _agents(num_agents: int) -> int:
    return whole_number("num_agents", num_agents, 1, MAX_AGENTS)


def _grid_of(size: str) -> Graph:
    rows, _, columns = size.partition("x")
    return grid(int(rows), int(columns))


_FORMS: dict[str, tuple[str, Callable[..., Graph], tuple[Callable[[str], Any], ...]]] = {
    "path": ("path:N", path, (int,)),
    "ring": ("ring:N", ring, (int,)),
    "complete": ("complete:N", complete, (int,)),
    "star": ("star:N", star, (int,)),
    "grid": ("grid:RxC", _grid_of, (str,)),
    "erdos_renyi": ("erdos_renyi:N:P[:SEED]", erdos_renyi, (int, float, int)),
    "random_regular": ("random_regular:N:DEGREE[:SEED]", random_regular, (int, int, int)),
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
