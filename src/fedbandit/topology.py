"""A graph of agents: its edges, neighbours, the gossip matrix W and its second eigenvalue.

``fedbandit.graph`` builds graphs. Edges are held in an array, so that a million agents fit.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, whole_number
from fedbandit.edge_arrays import MAX_AGENTS, MAX_EDGES, adjacency, checked_edges, components, pairs_of, smallest_mode
from fedbandit.notebook import graph_html

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["MAX_DENSE", "Graph"]

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
        found = checked_edges(pairs, agents)
        cut_off = np.flatnonzero(components(found, agents))
        if len(cut_off):
            raise InvalidArgument("edges", f"a graph in which agent {cut_off[0]} is cut off", "a connected graph")
        self.__dict__.update(num_agents=agents, edge_array=found, name=name)

    def __setattr__(self, name: str, value: object) -> None:
        """Refused: a graph never changes."""
        raise AttributeError(f"cannot assign to {name!r}: a graph never changes")

    def __eq__(self, other: object) -> bool:
        """The same agents, edges and name."""
        if not isinstance(other, Graph):
            return NotImplemented
        return (self.num_agents, self.name) == (other.num_agents, other.name) and np.array_equal(
            self.edge_array, other.edge_array
        )

    def __hash__(self) -> int:
        """By what counts for equality."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.num_agents, self.edge_array.tobytes(), self.name))

    def __getstate__(self) -> dict[str, Any]:
        """Without what is derived: the hash is another one in every process, and matrices are large."""
        return {"num_agents": self.num_agents, "edge_array": self.edge_array, "name": self.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As it was, read-only."""
        self.__dict__.update(state)
        self.edge_array.flags.writeable = False

    def __repr__(self) -> str:
        """The name and the size."""
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
        return adjacency(self.edge_array, self.num_agents)

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
        mode = smallest_mode(*self.adjacency)
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
