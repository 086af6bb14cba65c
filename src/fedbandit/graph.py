"""Communication graphs: topologies, the gossip matrix W and its second eigenvalue; links that change over time.

Which edges gossip in a round is part of the problem (``edges_per_round``).
"""

import csv
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, closest, instance, whole_number
from fedbandit.edge_arrays import MAX_AGENTS, checked_edges, numbered_edges, pairs_of
from fedbandit.random_graphs import erdos_renyi, geometric, random_regular, scale_free, small_world
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
    return from_edges(numbered_edges(source), source.number_of_nodes(), name)


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
                        values.append(_whole(line[column] or ""))
                    except (TypeError, ValueError):
                        raise InvalidArgument(f"{where}, {column}", line[column], "a whole number") from None
                rows.append((where, values))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgument("contacts", str(path), "a readable CSV file", f"{reason}.") from None
    return rows


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
