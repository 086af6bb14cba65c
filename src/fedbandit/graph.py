"""Communication graphs: topologies, the gossip matrix W and its second eigenvalue; links that change over time.

Which edges gossip in a round is part of the problem (``edges_per_round``). Up to 5,000 agents, Erdos-Renyi and regular
graphs are networkx's; larger ones are drawn by ``fedbandit.random_graphs``.
"""

import csv
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log, pi, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbandit import random_graphs
from fedbandit.checks import InvalidArgument, closest, instance, number_above, number_between, whole_number
from fedbandit.edge_arrays import MAX_AGENTS, MAX_EDGES, checked_edges, components, pairs_of
from fedbandit.topology import MAX_DENSE, Graph

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "MAX_AGENTS",
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

_DRAWS, _DRAWS_OF_LARGE = 1000, 20
"""Random graphs to draw until one is connected: of up to 5,000 agents, and of more."""

_MAX_LARGE_DEGREE = 1000


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


def erdos_renyi(num_agents: int, probability: float, seed: int = 0) -> Graph:
    """Each pair is an edge with the given probability, conditional on a connected graph.

    Redraws until the graph is connected; a hopelessly small probability is an error.
    """
    n = _agents(num_agents)
    p = number_between("probability", probability, 0.0, 1.0)
    expected = p * n * (n - 1) / 2
    if n > MAX_DENSE and expected > MAX_EDGES:
        accepted = f"at most {MAX_EDGES / (n * (n - 1) / 2):.2g}: with it there are {MAX_EDGES:,} edges"
        raise InvalidArgument("probability", p, accepted)

    def draw(source: np.random.RandomState) -> NDArray[np.int64]:
        import networkx as nx

        generators: Any = nx  # not typed
        if n > MAX_DENSE:
            return random_graphs.independent_edges(n, p, source) if p > 0.0 else np.zeros((0, 2), np.int64)
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
            return random_graphs.regular_edges(n, d, source)
        drawn = generators.random_regular_graph(d, n, seed=source)
        return pairs_of(_numbered(drawn))

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
    return _first_connected(lambda source: random_graphs.small_world_edges(n, d, p, source), n, seed, name, "degree", d)


def geometric(num_agents: int, radius: float, seed: int = 0) -> Graph:
    """Agents at random places in the unit square, joined within the radius, conditional on a connected graph."""
    n = _agents(num_agents)
    r = number_above("radius", radius, 0.0)
    if r > sqrt(2.0):
        raise InvalidArgument("radius", radius, "at most 1.41: with it every two agents are joined")
    name = f"geometric:{n}:{r}:{seed}"
    if pi * r * r * n * n / 2 > MAX_EDGES:
        accepted = f"at most {sqrt(2 * MAX_EDGES / pi) / n:.2g}: with it there are {MAX_EDGES:,} edges"
        raise InvalidArgument("radius", radius, accepted)
    hint = f"Half of all such graphs are connected at a radius of about {sqrt((log(n) + 1) / (pi * n)):.2g}."
    return _first_connected(
        lambda source: random_graphs.geometric_edges(n, r, source), n, seed, name, "radius", radius, hint
    )


def scale_free(num_agents: int, links: int, seed: int = 0) -> Graph:
    """Agents join one after the other, and link to earlier ones in proportion to their degrees (Barabasi, Albert 1999).

    ``links``: how many each joins with. A few agents end up with very many neighbours.
    """
    n = whole_number("num_agents", num_agents, 3, MAX_AGENTS)
    m = whole_number("links", links, 1, min(n - 1, 100, MAX_EDGES // n))
    name = f"scale_free:{n}:{m}:{seed}"
    return _first_connected(lambda source: random_graphs.scale_free_edges(n, m, source), n, seed, name, "links", m)


def _steps(n: int) -> NDArray[np.int64]:
    return np.column_stack([np.arange(n - 1), np.arange(1, n)])


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
    return from_edges(_numbered(source), source.number_of_nodes(), name)


def _numbered(source: "nx.Graph[Any]") -> list[tuple[int, int]]:
    """The edges between agents, numbered in the order of its nodes."""
    number = {node: i for i, node in enumerate(source.nodes)}
    return [(number[a], number[b]) for a, b in source.edges()]


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
    checked = [checked_edges(pairs_of(part), union.num_agents).tolist() for part in parts]
    return Schedule(
        tuple((start, tuple((i, j) for i, j in part)) for start, part in zip(starts, checked, strict=True)), union
    )


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
    "small_world": ("small_world:N:DEGREE:P[:SEED]", small_world, (int, int, float, int)),
    "geometric": ("geometric:N:RADIUS[:SEED]", geometric, (int, float, int)),
    "scale_free": ("scale_free:N:LINKS[:SEED]", scale_free, (int, int, int)),
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
