"""Bandit problems: agents, arms, local means, reward distributions, and the best arm that defines regret.

A problem states the truth; ``policies.protocol.Setting`` states what an agent may know of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbandit import graph as graphs
from fedbandit.checks import (
    LARGEST,
    InvalidArgument,
    instance,
    number_above,
    number_between,
    true_or_false,
    whole_number,
)
from fedbandit.graph import Graph
from fedbandit.rules.batch import largest_reward_variance

__all__ = ["EdgesPerRound", "Problem"]

EdgesPerRound = Literal["one", "matching", "all"] | float
Family = Literal["gaussian", "bernoulli", "beta"]

MAX_ARMS = 10_000
_FAMILIES = ("gaussian", "bernoulli", "beta")


@dataclass(frozen=True, eq=False)
class Problem:
    """N agents on a graph face the same M arms; agent i sees rewards of arm k with mean ``means[i, k]``.

    Build one with ``Problem.gaussian``, ``.bernoulli``, ``.beta`` or ``.random``.

    All of them take these keyword arguments:

    * ``weights``: the true quality of arm k is sum_i weights[i] means[i, k] (the paper's footnote: any
      convex combination); default: the plain average.
    * ``edges_per_round``: the edges that gossip in a round: ``"one"`` uniform edge (the paper), a random maximal
      ``"matching"``, ``"all"`` edges, or a probability with which each edge is present.
    * ``rates``: how often each agent acts: in a round it pulls with this probability (above 0, at most 1).
      Each agent's clock t then counts its own pulls; gossip continues in every round. Default: all in step, as in
      the paper.
    """

    means: NDArray[np.float64]
    graph: Graph
    family: Family
    sigma: float = 1.0
    concentration: float = 1.0
    reward_range: tuple[float, float] | None = None
    weights: NDArray[np.float64] = None  # pyright: ignore[reportAssignmentType]  # made from None: all equal
    edges_per_round: EdgesPerRound = "one"
    rates: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        """Check everything once: every existing problem is valid."""
        object.__setattr__(self, "means", _finite_matrix("means", self.means))
        instance("graph", self.graph, Graph, "a Graph or a text like 'path:10'")
        if self.means.shape[0] != self.graph.num_agents:
            raise InvalidArgument(
                "means",
                f"{self.means.shape[0]} rows",
                f"one row for each of the graph's {self.graph.num_agents} agents",
            )
        whole_number("num_arms (columns of means)", self.means.shape[1], 2, MAX_ARMS)
        if self.family not in _FAMILIES:
            raise InvalidArgument("family", self.family, f"one of {', '.join(_FAMILIES)}")
        if self.family != "gaussian":
            _inside_unit_interval(self.means, closed=self.family == "bernoulli")
            object.__setattr__(self, "reward_range", (0.0, 1.0))
        for name in ("sigma", "concentration"):
            object.__setattr__(self, name, number_above(name, getattr(self, name), 0.0))
        object.__setattr__(self, "reward_range", _checked_range(self.reward_range))
        object.__setattr__(self, "weights", _checked_weights(self.weights, self.num_agents))
        object.__setattr__(self, "rates", _checked_rates(self.rates, self.num_agents))
        if self.edges_per_round not in ("one", "matching", "all"):
            if isinstance(self.edges_per_round, str):
                raise InvalidArgument(
                    "edges_per_round", self.edges_per_round, "'one', 'matching', 'all' or a probability"
                )
            probability = number_between("edges_per_round", self.edges_per_round, 0.0, 1.0)
            object.__setattr__(self, "edges_per_round", probability)

    @classmethod
    def gaussian(
        cls,
        means: ArrayLike,
        graph: Graph | str,
        sigma: float = 1.0,
        reward_range: tuple[float, float] | None = None,
        weights: ArrayLike | None = None,
        edges_per_round: EdgesPerRound = "one",
        rates: ArrayLike | None = None,
    ) -> "Problem":
        """Rewards means[i, k] + sigma * standard normal, as in the paper's synthetic experiments.

        They are unbounded, so they cannot be differentially private as they are. With a
        ``reward_range`` a private policy first clamps each reward to it; a tight range biases the
        means that it learns, while regret is still computed from ``means``.
        """
        common = _common(means, graph, weights, edges_per_round, rates)
        return cls(family="gaussian", sigma=sigma, reward_range=reward_range, **common)

    @classmethod
    def bernoulli(
        cls,
        means: ArrayLike,
        graph: Graph | str,
        weights: ArrayLike | None = None,
        edges_per_round: EdgesPerRound = "one",
        rates: ArrayLike | None = None,
    ) -> "Problem":
        """Rewards 0 or 1 with P(1) = means[i, k]."""
        return cls(family="bernoulli", **_common(means, graph, weights, edges_per_round, rates))

    @classmethod
    def beta(
        cls,
        means: ArrayLike,
        graph: Graph | str,
        concentration: float = 2.0,
        weights: ArrayLike | None = None,
        edges_per_round: EdgesPerRound = "one",
        rates: ArrayLike | None = None,
    ) -> "Problem":
        """Rewards in [0, 1], Beta(m c, (1 - m) c) with m = means[i, k] and c = ``concentration``.

        The larger the concentration, the closer rewards lie to their mean: variance m (1 - m) / (c + 1).
        """
        return cls(family="beta", concentration=concentration, **_common(means, graph, weights, edges_per_round, rates))

    @classmethod
    def random(
        cls,
        num_agents: int,
        num_arms: int,
        graph: Graph | str,
        seed: int = 0,
        rewards: Family = "gaussian",
        same_means: bool = False,
        **options: Any,
    ) -> "Problem":
        """Local means uniform in [0, 1], as in the paper's synthetic experiments; ``same_means``: equal for all agents.

        ``graph`` is a ``Graph`` or a text like "path:10"; a bare name ("path") takes ``num_agents``. ``options``
        go to the constructor for that kind of rewards.
        """
        agents = whole_number("num_agents", num_agents, 3, graphs.MAX_AGENTS)
        arms = whole_number("num_arms", num_arms, 2, MAX_ARMS)
        built = _graph(f"{graph}:{agents}" if isinstance(graph, str) and ":" not in graph else graph)
        if built.num_agents != agents:
            raise InvalidArgument("num_agents", agents, f"that of the graph ({built.num_agents})")
        builders = {"gaussian": cls.gaussian, "bernoulli": cls.bernoulli, "beta": cls.beta}
        if rewards not in builders:
            raise InvalidArgument("rewards", rewards, f"one of {', '.join(builders)}")
        source = np.random.default_rng(whole_number("seed", seed, 0, 2**64 - 1))
        drawn = source.random((1 if true_or_false("same_means", same_means) else agents, arms))
        return builders[rewards](np.repeat(drawn, agents, axis=0) if same_means else drawn, built, **options)

    @property
    def num_agents(self) -> int:
        """N."""
        return int(self.means.shape[0])

    @property
    def num_arms(self) -> int:
        """M."""
        return int(self.means.shape[1])

    @cached_property
    def arm_means(self) -> NDArray[np.float64]:
        """mu_k = sum_i weight_i mu_{i,k}: the true quality of each arm."""
        return self.weights @ self.means

    @cached_property
    def gaps(self) -> NDArray[np.float64]:
        """Delta_k: the expected loss of one pull of arm k against the best arm."""
        return self.arm_means.max() - self.arm_means

    @cached_property
    def best_arm(self) -> int:
        """The arm with the largest mean over all agents (the first of equals)."""
        return int(self.arm_means.argmax())

    @property
    def kind_of_world(self) -> tuple[object, ...]:
        """Everything but the means: problems that run together must agree on it."""
        rates = None if self.rates is None else tuple(self.rates)
        common = (self.family, self.sigma, self.concentration, self.reward_range, self.edges_per_round)
        return (self.means.shape, self.graph.edges, tuple(self.weights), rates, *common)

    @cached_property
    def reward_variance(self) -> float:
        """An upper bound on the variance of one reward, known to the agents: sigma^2, or (high - low)^2 / 4."""
        if self.family == "gaussian":
            return self.sigma**2
        return largest_reward_variance(0.0, 1.0)


def _finite_matrix(argument: str, value: ArrayLike) -> NDArray[np.float64]:
    """``value`` as a read-only matrix of finite floats."""
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(argument, value, "a matrix of numbers, one row per agent") from None
    if matrix.ndim != 2 or matrix.size == 0:
        raise InvalidArgument(
            argument, f"an array of shape {matrix.shape}", "a matrix: a row per agent, a column per arm"
        )
    if not np.isfinite(matrix).all():
        i, k = np.argwhere(~np.isfinite(matrix))[0]
        raise InvalidArgument(f"{argument}[{i}, {k}]", float(matrix[i, k]), "finite")
    if np.abs(matrix).max() > LARGEST:
        raise InvalidArgument(argument, float(np.abs(matrix).max()), f"at most {LARGEST:g} in size")
    matrix.flags.writeable = False
    return matrix


def _common(
    means: ArrayLike,
    graph: Graph | str,
    weights: ArrayLike | None,
    edges_per_round: EdgesPerRound,
    rates: ArrayLike | None,
) -> dict[str, Any]:
    return {
        "means": means,
        "graph": _graph(graph),
        "weights": weights,
        "edges_per_round": edges_per_round,
        "rates": rates,
    }


def _graph(graph: Graph | str) -> Graph:
    return graphs.parse(graph) if isinstance(graph, str) else graph


def _inside_unit_interval(means: NDArray[np.float64], closed: bool) -> None:
    bad = (means < 0) | (means > 1) if closed else (means <= 0) | (means >= 1)
    if bad.any():
        i, k = np.argwhere(bad)[0]
        accepted = "between 0 and 1" if closed else "strictly between 0 and 1"
        raise InvalidArgument(f"means[{i}, {k}]", float(means[i, k]), accepted)


def _checked_range(reward_range: Sequence[float] | None) -> tuple[float, float] | None:
    if reward_range is None:
        return None
    accepted = "None or two finite numbers (low, high) with low < high"
    try:
        low, high = (float(end) for end in reward_range)
    except (TypeError, ValueError):
        raise InvalidArgument("reward_range", reward_range, accepted) from None
    if not (-LARGEST <= low < high <= LARGEST):
        raise InvalidArgument("reward_range", reward_range, accepted)
    return low, high


def _checked_weights(weights: ArrayLike | None, num_agents: int) -> NDArray[np.float64]:
    if weights is None:
        weights = np.full(num_agents, 1.0 / num_agents)
    accepted = f"{num_agents} numbers of at least 0 with sum 1, one per agent"
    try:
        given = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument("weights", weights, accepted) from None
    if given.shape != (num_agents,) or not np.isfinite(given).all() or (given < 0).any():
        raise InvalidArgument("weights", weights, accepted)
    if abs(given.sum() - 1.0) > 1e-9:
        raise InvalidArgument("weights", f"weights with sum {given.sum():g}", accepted)
    given.flags.writeable = False
    return given


def _checked_rates(rates: ArrayLike | None, num_agents: int) -> NDArray[np.float64] | None:
    if rates is None:
        return None
    accepted = f"{num_agents} numbers above 0 and at most 1, one per agent"
    try:
        given = np.array(rates, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument("rates", rates, accepted) from None
    if given.shape != (num_agents,) or not ((given > 0) & (given <= 1)).all():
        raise InvalidArgument("rates", rates, accepted)
    given.flags.writeable = False
    return given
