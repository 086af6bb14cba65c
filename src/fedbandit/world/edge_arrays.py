"""Arrays of edges, for graphs of up to a million agents: checks, neighbours, connectivity, slowest mode, random draws.

Whole arrays at a time, and memory in proportion to the number of edges. Random edges come from a ``RandomState``, whose
streams NumPy has promised never to change; ``world.graph`` checks arguments and draws until a graph is connected.

Why no library draws them: a seed would stand for other graphs, and results on them would change, now and with later
versions of the library. Nor is one faster. CPU seconds for a million agents and 5 million edges, here and igraph 1.0
(with its list of edges): regular 5.0 and 7.7, Erdos-Renyi 0.6 and 3.0, small world 1.6 and 3.9, geometric 3.8 and 3.6,
scale-free 4.9 and 5.5. networkx takes 15 to 30 times as long with 100,000. SciPy needs 0.4 s for the components of a
million agents, as we do, and 26 s for the slowest mode of 100,000, against 8 s here.
"""

from collections.abc import Iterable
from itertools import chain
from math import log1p
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, whole_number

if TYPE_CHECKING:
    import networkx as nx


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


# ---------------------------------------------------------------- random edges


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
