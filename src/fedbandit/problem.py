"""Bandit problems: agents, arms, local means, reward distributions, and the best arm that defines regret.

A problem states the truth; ``policies.protocol.Setting`` states what an agent may know of it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import FunctionType
from typing import Any, Literal, cast

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
from fedbandit.graph import Contacts, Graph, Schedule
from fedbandit.rules.batch import largest_reward_variance

__all__ = ["EdgesPerRound", "Problem"]

EdgesPerRound = Literal["one", "matching", "all"] | float | Callable[[int, int, int, float], bool]
AnyGraph = Graph | Schedule | Contacts | str
Family = Literal["gaussian", "bernoulli", "beta"]

MAX_ARMS = 10_000
_FAMILIES = ("gaussian", "bernoulli", "beta")


@dataclass(frozen=True, eq=False)
class Problem:
    """N agents on a graph face the same M arms; agent i sees rewards of arm k with mean ``means[i, k]``.

    Build one with ``Problem.gaussian``, ``.bernoulli``, ``.beta``, ``.random`` or ``.changing``.

    ``graph`` is a ``Graph``, a text like "path:10", or links that change: ``graph.schedule`` or ``graph.contacts``.
    All constructors take these keyword arguments:

    * ``weights``: the true quality of arm k is sum_i weights[i] means[i, k] (the paper's footnote: any
      convex combination); default: the plain average.
    * ``edges_per_round``: the edges that gossip in a round: ``"one"`` uniform edge (the paper), a random maximal
      ``"matching"``, ``"all"`` edges, a probability with which each edge is present, or your own rule: a function
      ``meets(t, i, j, u)`` that tells whether edge (i, j) is present in round t; u is a fresh draw in [0, 1).
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
    changes: tuple[tuple[int, NDArray[np.float64]], ...] = ()  # first round of new means, and the means
    over_time: Schedule | Contacts | None = None  # links that change; ``graph`` then has all edges that there ever are

    def __post_init__(self) -> None:
        """Check everything once: every existing problem is valid."""
        if isinstance(self.graph, (Schedule, Contacts)):
            object.__setattr__(self, "over_time", self.graph)
            object.__setattr__(self, "graph", self.graph.union)
        object.__setattr__(self, "means", _finite_matrix("means", self.means))
        instance("graph", self.graph, Graph, "a Graph, a schedule, a contact list, or a text like 'path:10'")
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
        object.__setattr__(self, "edges_per_round", _checked_edges_per_round(self.edges_per_round))
        if isinstance(self.over_time, Contacts) and self.edges_per_round != "one":
            raise InvalidArgument("edges_per_round", self.edges_per_round, "left out: the contact list has all links")
        object.__setattr__(self, "changes", tuple(self._checked_changes()))

    def _checked_changes(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        last = 0
        for position, (start, given) in enumerate(self.changes, 1):
            last = whole_number(f"changes[{position}], first round", start, last + 1, 10**12)
            means = _finite_matrix(f"changes[{position}], means", given)
            if means.shape != self.means.shape:
                accepted = f"of the first means' shape {self.means.shape}"
                raise InvalidArgument(f"changes[{position}], means", f"of shape {means.shape}", accepted)
            if self.family != "gaussian":
                _inside_unit_interval(means, closed=self.family == "bernoulli")
            yield last, means

    @classmethod
    def gaussian(
        cls,
        means: ArrayLike,
        graph: AnyGraph,
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
        graph: AnyGraph,
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
        graph: AnyGraph,
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
        graph: AnyGraph,
        seed: int = 0,
        rewards: Family = "gaussian",
        same_means: bool = False,
        **options: Any,
    ) -> "Problem":
        """Local means uniform in [0, 1], as in the paper's synthetic experiments; ``same_means``: equal for all agents.

        ``graph`` is a ``Graph`` or a text like "path:10"; a bare name ("path") takes ``num_agents``. ``options``
        go to the constructor for that kind of rewards.
        """
        agents = whole_number("num_agents", num_agents, 1, graphs.MAX_AGENTS)
        arms = whole_number("num_arms", num_arms, 2, MAX_ARMS)
        built = _graph(f"{graph}:{agents}" if isinstance(graph, str) and ":" not in graph else graph)
        in_graph = (built if isinstance(built, Graph) else built.union).num_agents
        if in_graph != agents:
            raise InvalidArgument("num_agents", agents, f"that of the graph ({in_graph})")
        build = cls._builder(rewards)
        source = np.random.default_rng(whole_number("seed", seed, 0, 2**64 - 1))
        drawn = source.random((1 if true_or_false("same_means", same_means) else agents, arms))
        return build(np.repeat(drawn, agents, axis=0) if same_means else drawn, built, **options)

    @classmethod
    def _builder(cls, rewards: str) -> Callable[..., "Problem"]:
        builders = {"gaussian": cls.gaussian, "bernoulli": cls.bernoulli, "beta": cls.beta}
        if rewards not in builders:
            raise InvalidArgument("rewards", rewards, f"one of {', '.join(builders)}")
        return builders[rewards]

    @classmethod
    def changing(
        cls,
        changes: Sequence[tuple[int, ArrayLike]],
        graph: AnyGraph,
        rewards: Family = "gaussian",
        **options: Any,
    ) -> "Problem":
        """Means that change: ``[(0, means), (50_000, other_means)]``, each with its first round.

        Regret counts against the best arm of the moment. ``options`` go to the constructor for that kind of rewards.
        """
        accepted = "a list of (first round, means), the first of them (0, means)"
        if not isinstance(changes, Sequence) or not changes or any(not _is_change(c) for c in changes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument("changes", changes, accepted)
        if changes[0][0] != 0:
            raise InvalidArgument("changes[0], first round", changes[0][0], "0")
        return replace(cls._builder(rewards)(changes[0][1], graph, **options), changes=tuple(changes[1:]))

    @classmethod
    def drifting(
        cls,
        means: ArrayLike,
        final_means: ArrayLike,
        graph: AnyGraph,
        rounds: tuple[int, int],
        rewards: Family = "gaussian",
        steps: int = 1000,
        **options: Any,
    ) -> "Problem":
        """Means that move evenly from ``means`` to ``final_means`` between two rounds, in so many equal steps."""
        first, last = _finite_matrix("means", means), _finite_matrix("final_means", final_means)
        if first.shape != last.shape:
            raise InvalidArgument("final_means", f"of shape {last.shape}", f"of the means' shape {first.shape}")
        start, end = (whole_number("rounds", t, 0, 10**12) for t in rounds)
        count = min(whole_number("steps", steps, 1, 10**5), end - start)
        if count < 1:
            raise InvalidArgument("rounds", rounds, "two rounds, the later one last")
        ends = [start + (end - start) * step // count for step in range(1, count + 1)]
        drift = [(t, first + (last - first) * (step / count)) for step, t in enumerate(ends, 1)]
        return cls.changing([(0, first), *drift], graph, rewards, **options)

    @cached_property
    def periods(self) -> tuple[tuple[int, "Problem"], ...]:
        """The problem of each period in which the means stay the same, by its first round."""
        return ((0, self), *((start, replace(self, means=means, changes=())) for start, means in self.changes))

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
        """mu_k = sum_i weight_i mu_{i,k}: the true quality of each arm, in the first period if means change."""
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
        starts = tuple(start for start, _ in self.changes)
        return (self.means.shape, self.graph.edges, tuple(self.weights), rates, starts, id(self.over_time), *common)

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
    graph: AnyGraph,
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


def _graph(graph: AnyGraph) -> Graph | Schedule | Contacts:
    return graphs.parse(graph) if isinstance(graph, str) else graph


def _is_change(change: Any) -> bool:
    return isinstance(change, (tuple, list)) and len(cast("tuple[Any, ...]", change)) == 2


def _checked_edges_per_round(given: Any) -> Any:
    if given in ("one", "matching", "all"):
        return given
    accepted = "'one', 'matching', 'all', a probability, or a function meets(t, i, j, u)"
    if isinstance(given, FunctionType):
        if given.__code__.co_argcount != 4 or given.__defaults__ or given.__kwdefaults__:
            raise InvalidArgument("edges_per_round", given, "a function of t, i, j and u")
        return given
    if isinstance(given, str) or callable(given):
        raise InvalidArgument("edges_per_round", given, accepted)
    return number_between("edges_per_round", given, 0.0, 1.0)


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
