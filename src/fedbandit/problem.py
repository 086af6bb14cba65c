"""Bandit problems: agents, arms, local means, reward distributions, and the best arm that defines regret.

A problem states the truth; ``policies.protocol.Setting`` states what an agent may know of it.
"""

from collections.abc import Callable
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
    number_between,
    true_or_false,
    whole_number,
)
from fedbandit.graph import Graph
from fedbandit.rewards import Bernoulli, Beta, Family, Gaussian, Own, Range, StudentT
from fedbandit.samples import Samples, empirical_of

__all__ = ["EdgesPerRound", "Problem"]

EdgesPerRound = Literal["one", "matching", "all"] | float

MAX_ARMS = 10_000


@dataclass(frozen=True, eq=False)
class Problem:
    """N agents on a graph face the same M arms; agent i sees rewards of arm k with mean ``means[i, k]``.

    Build one with ``Problem.gaussian``, ``.bernoulli``, ``.beta``, ``.student_t``, ``.empirical``, ``.own`` or
    ``.random``.

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
    rewards: Family
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
        instance("rewards", self.rewards, Family, "a family of fedbandit.rewards")
        self.rewards.check(self.means)
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
        reward_range: Range | None = None,
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
        return cls(rewards=Gaussian(sigma, reward_range), **common)

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
        return cls(rewards=Bernoulli(), **_common(means, graph, weights, edges_per_round, rates))

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
        return cls(rewards=Beta(concentration), **_common(means, graph, weights, edges_per_round, rates))

    @classmethod
    def student_t(
        cls,
        means: ArrayLike,
        graph: Graph | str,
        degrees_of_freedom: float = 3.0,
        scale: float = 1.0,
        reward_range: Range | None = None,
        weights: ArrayLike | None = None,
        edges_per_round: EdgesPerRound = "one",
        rates: ArrayLike | None = None,
    ) -> "Problem":
        """Rewards with heavy tails: means[i, k] + scale * Student's t, with more than one degree of freedom.

        Policies are told the standard deviation; with two degrees of freedom or fewer there is none, and they
        take ``scale`` for it. In either case their radii assume lighter tails than these. For a private policy
        declare a ``reward_range``, as for Gaussian rewards.
        """
        common = _common(means, graph, weights, edges_per_round, rates)
        return cls(rewards=StudentT(degrees_of_freedom, scale, reward_range), **common)

    @classmethod
    def empirical(
        cls,
        samples: Samples,
        graph: Graph | str,
        reward_range: Range | None = None,
        weights: ArrayLike | None = None,
        edges_per_round: EdgesPerRound = "one",
        rates: ArrayLike | None = None,
    ) -> "Problem":
        """Rewards that were observed, drawn with replacement: ``samples[i][k]`` lists those of arm k at agent i.

        ``samples`` may also be the path of a CSV file with the columns agent, arm and reward. Agents and arms are
        numbered from 0, or named; names count in order of first appearance. A private policy needs a
        ``reward_range`` that was not computed from the samples; it clamps those outside it.
        """
        family = empirical_of(samples, reward_range)
        return cls(rewards=family, **_common(family.means, graph, weights, edges_per_round, rates))

    @classmethod
    def own(
        cls,
        draw: Callable[[Any, Any], Any],
        means: ArrayLike,
        graph: Graph | str,
        variance: float | None = None,
        reward_range: Range | None = None,
        bounded: bool = False,
        weights: ArrayLike | None = None,
        edges_per_round: EdgesPerRound = "one",
        rates: ArrayLike | None = None,
    ) -> "Problem":
        """Rewards of your own: ``draw(bits, mean)`` makes one of that mean from 64 random bits (docs/own-rewards.md).

        ``variance``: an upper bound on the variance of one reward, told to the policies; ``inf`` if there is none.
        ``bounded``: rewards lie in the ``reward_range`` by themselves, and ``variance`` may be left out. Otherwise a
        private policy clamps them. ``simulate`` rehearses the draw and refuses one that breaks these promises.
        """
        common = _common(means, graph, weights, edges_per_round, rates)
        return cls(rewards=Own(draw, variance, reward_range, bounded), **common)

    @classmethod
    def random(
        cls,
        num_agents: int,
        num_arms: int,
        graph: Graph | str,
        seed: int = 0,
        rewards: str | Callable[[Any, Any], Any] = "gaussian",
        same_means: bool = False,
        **options: Any,
    ) -> "Problem":
        """Local means uniform in [0, 1], as in the paper's synthetic experiments; ``same_means``: equal for all agents.

        ``graph`` is a ``Graph`` or a text like "path:10"; a bare name ("path") takes ``num_agents``. ``options``
        go to the constructor for that kind of rewards; ``rewards`` may be a draw of your own.
        """
        agents = whole_number("num_agents", num_agents, 3, graphs.MAX_AGENTS)
        arms = whole_number("num_arms", num_arms, 2, MAX_ARMS)
        built = _graph(f"{graph}:{agents}" if isinstance(graph, str) and ":" not in graph else graph)
        if built.num_agents != agents:
            raise InvalidArgument("num_agents", agents, f"that of the graph ({built.num_agents})")
        source = np.random.default_rng(whole_number("seed", seed, 0, 2**64 - 1))
        drawn = source.random((1 if true_or_false("same_means", same_means) else agents, arms))
        return cls.of(rewards, np.repeat(drawn, agents, axis=0) if same_means else drawn, built, **options)

    @classmethod
    def of(
        cls, rewards: str | Callable[[Any, Any], Any], means: ArrayLike, graph: Graph | str, **options: Any
    ) -> "Problem":
        """Rewards of a kind, by its name, or of a draw of your own; ``options`` go to the constructor for that kind."""
        if callable(rewards):
            return cls.own(rewards, means, graph, **options)
        builders: dict[str, Callable[..., Problem]] = {
            "gaussian": cls.gaussian,
            "bernoulli": cls.bernoulli,
            "beta": cls.beta,
            "student_t": cls.student_t,
        }
        if rewards not in builders:
            accepted = f"one of {', '.join(builders)}, or a function (bits, mean)"
            hint = "The means of empirical rewards are those of their samples." if rewards == "empirical" else ""
            raise InvalidArgument("rewards", rewards, accepted, hint)
        return builders[rewards](means, graph, **options)

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
        return (self.means.shape, self.graph.edges, tuple(self.weights), rates, self.rewards, self.edges_per_round)

    @property
    def family(self) -> str:
        """The kind of rewards."""
        return self.rewards.kind

    @property
    def reward_range(self) -> Range | None:
        """The declared range of rewards."""
        return self.rewards.reward_range

    @property
    def reward_variance(self) -> float:
        """An upper bound on the variance of one reward, known to the agents; infinite if there is none."""
        return self.rewards.variance


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
