"""Arrays of edges, for graphs of up to a million agents: checks, neighbours, connectivity, and the slowest mode.

Whole arrays at a time, and memory in proportion to the number of edges.
"""

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, whole_number

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "MAX_AGENTS",
    "MAX_EDGES",
    "adjacency",
    "checked_edges",
    "components",
    "numbered_edges",
    "pairs_of",
    "smallest_mode",
]

MAX_AGENTS = 1_000_000
MAX_EDGES = 50_000_000

Edges = NDArray[np.int64]


def pairs_of(edges: Iterable[Any], where: str = "edges") -> Edges:
    """Pairs of agents as an array; refused unless all are whole numbers that an agent can have."""
    array: Any = edges
    if isinstance(edges, np.ndarray) and array.dtype.kind in "iu" and array.ndim == 2 and array.shape[1] == 2:
        bad = ((array < 0) | (array > MAX_AGENTS)).any(axis=1)
        if bad.any():
            pair = tuple(array[bad][0].tolist())
            raise InvalidArgument(where, pair, f"pairs of whole numbers from 0 to {MAX_AGENTS}")
        return array.astype(np.int64)
    if hasattr(array, "adj") or not hasattr(array, "__iter__"):  # nodes are all that a networkx graph iterates over
        hint = "This is a graph of networkx: write graph.from_networkx(...)." if hasattr(array, "adj") else ""
        raise InvalidArgument(where, array, "pairs of agents", hint)
    given: list[Any] = list(array)
    try:
        if set(map(len, given)) <= {2} and set(map(type, chain.from_iterable(given))) <= {int}:
            return pairs_of(np.array(given, np.int64).reshape(-1, 2), where)
    except (TypeError, OverflowError):
        pass  # one by one, to name the pair that is wrong
    return np.array([_pair(edge, where) for edge in given], np.int64).reshape(-1, 2)


def _pair(edge: Any, where: str) -> tuple[int, int]:
    if not hasattr(edge, "__len__") or type(edge) in (str, dict, set) or len(edge) != 2:
        raise InvalidArgument(where, edge, "pairs of agents")
    try:
        return whole_number(where, edge[0], 0, MAX_AGENTS), whole_number(where, edge[1], 0, MAX_AGENTS)
    except InvalidArgument:
        raise InvalidArgument(where, edge, f"pairs of whole numbers from 0 to {MAX_AGENTS}") from None


def numbered_edges(source: "nx.Graph[Any]") -> list[tuple[int, int]]:
    """The edges of a networkx graph between agents, numbered in the order of its nodes."""
    number = {node: i for i, node in enumerate(source.nodes)}
    return [(number[a], number[b]) for a, b in source.edges()]


def checked_edges(edges: Edges, num_agents: int) -> NDArray[np.uint32]:
    """The edges in order, the smaller end first, read-only; refused if an end is no agent, a loop, or twice."""
    for bad, accepted in (
        ((edges < 0) | (edges >= num_agents), f"pairs of agents from 0 to {num_agents - 1}"),
        ((edges[:, :1] == edges[:, 1:]), "between two different agents (no loops)"),
    ):
        wrong = bad.any(axis=1)
        if wrong.any():
            raise InvalidArgument("edges", tuple(edges[wrong.argmax()].tolist()), accepted)
    keys = key_of(edges, num_agents)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    again = np.flatnonzero(keys[1:] == keys[:-1])
    if len(again):
        pair = tuple(edges[order[again + 1].min()].tolist())
        raise InvalidArgument("edges", f"{pair} twice", "distinct (no parallel edges)")
    found = np.column_stack([keys // num_agents, keys % num_agents]).astype(np.uint32)
    found.flags.writeable = False
    return found


def key_of(edges: Edges, num_agents: int) -> NDArray[np.int64]:
    """A number for each edge, the same for both directions, in the order of edges."""
    low, high = edges.min(axis=1), edges.max(axis=1)
    return low.astype(np.int64) * num_agents + high


def adjacency(edges: NDArray[Any], num_agents: int) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Where the neighbours of each agent begin [N + 1], and all neighbours, those of an agent in order."""
    degrees = np.bincount(edges.ravel(), minlength=num_agents)
    first = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    # With edges in order, the smaller neighbours of an agent come in order, and so do the larger ones.
    ends = np.concatenate([edges[:, 1], edges[:, 0]])
    order = np.argsort(ends, kind="stable")
    return first, np.concatenate([edges[:, 0], edges[:, 1]])[order].astype(np.uint32)


def components(edges: NDArray[Any], num_agents: int) -> NDArray[np.int64]:
    """For each agent the smallest agent that it is connected to.

    Labels move to smaller neighbours, and each agent then takes the label of its label: a number of passes
    that grows like log N, on a path too.
    """
    labels = np.arange(num_agents)
    one, other = edges[:, 0].astype(np.int64), edges[:, 1].astype(np.int64)
    while len(one):
        here, there = labels[one], labels[other]
        apart = here != there
        one, other, here, there = one[apart], other[apart], here[apart], there[apart]
        np.minimum.at(labels, np.maximum(here, there), np.minimum(here, there))
        while True:
            further = labels[labels]
            if np.array_equal(further, labels):
                break
            labels = further
    return labels


_MOST_STEPS = 1_000


def smallest_mode(first: NDArray[np.int64], neighbours: NDArray[np.uint32], accuracy: float = 1e-6) -> float | None:
    """The smallest eigenvalue of the Laplacian but 0, to a relative accuracy; None if it is not found in 1,000 steps.

    Lanczos steps on the vectors with sum 0. They are not made orthogonal again: that costs copies of eigenvalues that
    are found already, and an end of the spectrum is found all the same (Paige 1980).
    """
    num_agents = len(first) - 1
    degrees, starts = np.diff(first).astype(np.float64), first[:-1]
    vector = np.random.RandomState(0).standard_normal(num_agents)
    before, link = np.zeros(num_agents), 0.0
    diagonal: list[float] = []
    beside: list[float] = []
    look = 20
    for step in range(1, _MOST_STEPS + 1):
        vector -= vector.mean()
        vector /= np.linalg.norm(vector)
        after = degrees * vector - np.add.reduceat(vector[neighbours], starts)
        diagonal.append(float(vector @ after))
        after -= diagonal[-1] * vector + link * before
        link = float(np.linalg.norm(after))
        exhausted = link < 1e-12 * max(diagonal)
        if step >= look or exhausted:
            look += look // 4
            values, modes = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
            residual = link * abs(float(modes[-1, 0]))
            # The error is at most the residual, and about its square over the distance to the next eigenvalue.
            if exhausted or residual**2 < accuracy * values[0] * max(values[1] - values[0], residual):
                return float(values[0])
        beside.append(link)
        before, vector = vector, after
    return None
