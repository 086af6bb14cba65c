"""Bandit problems: agents, arms, local means that may change, rewards, and the best arm that defines regret.

A problem states the truth; ``policies.protocol.Setting`` states what an agent may know of it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import FunctionType
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbandit.checks import (
    LARGEST,
    Counts,
    Gossip,
    InvalidArgument,
    checked_counts,
    checked_gossip,
    instance,
    number_between,
    true_or_false,
    whole_number,
)
from fedbandit.notebook import problem_html, problem_text
from fedbandit.world import features as distributions
from fedbandit.world import graph as graphs
from fedbandit.world.delays import Delays, GivenDelays, checked_lateness
from fedbandit.world.features import Distribution, checked_theta
from fedbandit.world.graph import Contacts, Graph, Schedule
from fedbandit.world.rewards import (
    Bernoulli,
    Beta,
    Empirical,
    Family,
    Gaussian,
    Own,
    Range,
    Samples,
    StudentT,
    empirical_of,
)
from fedbandit.world.strata import (
    are_by_stratum,
    cell_weights,
    checked_strata,
    given_strata,
    number_of,
    with_interactions,
)

EdgesPerRound = Literal["one", "matching", "all"] | float | Callable[[int, int, int, float], bool]
Means = NDArray[np.float64]
AnyGraph = Graph | Schedule | Contacts | str
Rewards = str | Callable[[Any, Any], Any]

MAX_ARMS = 10_000
MOST_RELEASING = 2_000  # agents
_LATEST = 10**12  # round


class _Options(TypedDict, total=False):
    """What every constructor takes."""

    weights: ArrayLike | None
    edges_per_round: EdgesPerRound
    gossip: Gossip
    rates: ArrayLike | None
    counts: Counts
    delays: GivenDelays
    reward_window: int
    default_reward: float | None
    strata: ArrayLike | int | None


@dataclass(frozen=True, eq=False)
class Problem:
    """N agents on a graph face the same M arms; agent i sees rewards of arm k with mean ``means[i, k]``.

    Build one with ``Problem.gaussian``, ``.bernoulli``, ``.beta``, ``.student_t``, ``.empirical``, ``.own``,
    ``.random``, ``.changing``, ``.drifting`` or ``.linear``.

    ``graph`` is a ``Graph``, a text like "path:10", or links that change: ``graph.schedule`` or ``graph.contacts``.
    All constructors take these keyword arguments:

    * ``weights``: the true quality of arm k is sum_i weights[i] means[i, k] (the paper's footnote: any
      convex combination); default: the plain average.
    * ``edges_per_round``: the edges that gossip in a round: ``"one"`` uniform edge (the paper), a random maximal
      ``"matching"``, ``"all"`` edges, a probability with which each edge is present, or your own rule: a function
      ``meets(t, i, j, u)`` that tells whether edge (i, j) is present in round t; u is a fresh draw in [0, 1).
    * ``gossip``: what the ends of an active link exchange: ``"averages"`` of what both hold (the paper), or
      ``"releases"``: the newest of what each agent has published, passed on as it is (docs/fedbatch.md). Releases need
      memory of N^2 M numbers: up to 2,000 agents.
    * ``rates``: how often each agent acts: in a round it pulls with this probability (above 0, at most 1).
      Each agent's clock t then counts its own pulls; gossip continues in every round. Default: all in step, as in
      the paper.
    * ``counts``: whose average decides which arm is best: ``"sites"`` count alike (the paper) or by ``weights``;
      with ``"patients"`` each agent has the weight of its rate. FedBatch then measures rates; others are told them.
    * ``delays``: rewards come so many rounds after their decision (``fedbandit.world.delays``, or a text like
      "geometric:100"); one for all agents, or a list of one for each. Default: at once, as in the paper.
    * ``reward_window``: each reward counts so many rounds after its decision, the ``default_reward`` if it has not come
      by then (default: the lowest one). 0: as rewards come, in the order of an arm's decisions (docs/late-rewards.md).
    * ``strata``: each decision has a stratum, which is known before its arm is chosen, such as a patient's age group;
      then ``means[i, s, k]`` is that of agent i, stratum s and arm k, and the best arm is that of the stratum
      (docs/context.md). How often each comes: their number if all are alike, a probability for each, or a row of them
      for each agent.
    """

    means: NDArray[np.float64]
    graph: Graph
    rewards: Family
    weights: NDArray[np.float64] = None  # pyright: ignore[reportAssignmentType]  # made from None: all equal
    edges_per_round: EdgesPerRound = "one"
    rates: NDArray[np.float64] | None = None
    changes: tuple[tuple[int, NDArray[np.float64]], ...] = ()  # first round of new means, and the means
    counts: Counts = "sites"
    delays: tuple[Delays, ...] | None = None  # of each agent
    reward_window: int = 0
    default_reward: float | None = None
    gossip: Gossip = "averages"
    over_time: Schedule | Contacts | None = None  # links that change; ``graph`` then has all edges that there ever are
    strata: NDArray[np.float64] | None = None  # [N, S]: how often each stratum comes at each agent
    features: Distribution | None = None  # of decisions; then means are those of average decisions
    theta: NDArray[np.float64] | None = None  # [N, M, F]: the mean of a reward is theta . x

    __repr__ = problem_text
    _repr_html_ = problem_html

    def __post_init__(self) -> None:
        """Check everything once: every existing problem is valid."""
        graph: Any = graphs.parse(self.graph) if isinstance(self.graph, str) else self.graph
        if isinstance(graph, (Schedule, Contacts)):
            object.__setattr__(self, "over_time", graph)
            graph = graph.union
        object.__setattr__(self, "graph", graph)
        instance("graph", self.graph, Graph, "a Graph, a schedule, a contact list, or a text like 'path:10'")
        self._check_features()
        strata: Any = given_strata(self.strata, self.means)
        by_stratum = strata is not None
        object.__setattr__(self, "means", finite_matrix("means", self.means, by_stratum))
        if self.means.shape[0] != self.graph.num_agents:
            raise InvalidArgument(
                "means",
                f"{self.means.shape[0]} rows",
                f"one row for each of the graph's {self.graph.num_agents} agents",
            )
        whole_number("num_arms (columns of means)", self.means.shape[-1], 2, MAX_ARMS)
        if by_stratum:
            object.__setattr__(self, "strata", checked_strata(strata, self.num_agents, self.means.shape[1]))
        instance("rewards", self.rewards, Family, "a family of fedbandit.world.rewards")
        self.rewards.check(self.means)
        object.__setattr__(self, "rates", _checked_rates(self.rates, self.num_agents))
        by_rate = np.ones(self.num_agents) if self.rates is None else self.rates
        by_rate = by_rate if checked_counts("counts", self.counts) == "patients" else None
        object.__setattr__(self, "weights", _checked_weights(self.weights, self.num_agents, by_rate))
        object.__setattr__(self, "edges_per_round", _checked_edges_per_round(self.edges_per_round))
        if isinstance(self.over_time, Contacts) and self.edges_per_round != "one":
            raise InvalidArgument("edges_per_round", self.edges_per_round, "left out: the contact list has all links")
        if checked_gossip("gossip", self.gossip) == "releases" and self.num_agents > MOST_RELEASING:
            size = self.num_agents**2 * self.num_arms * 8 / 2**30
            raise InvalidArgument(
                "gossip",
                self.gossip,
                f"averages for more than {MOST_RELEASING:,} agents",
                f"Each agent holds what every agent has published: N^2 M numbers of 8 bytes, here {size:,.0f} GiB for "
                "each number that a page publishes of an arm.",
            )
        object.__setattr__(self, "changes", tuple(_checked_changes(self.changes, self.means, self.rewards)))
        late = self.delays, self.reward_window, self.default_reward
        found = checked_lateness(*late, self.num_agents, self.rewards)
        for name, value in zip(("delays", "reward_window", "default_reward"), found, strict=True):
            object.__setattr__(self, name, value)

    def _check_features(self) -> None:
        """Theta, and the means of average decisions, which follow from it."""
        if self.features is None or self.theta is None:
            if self.features is not None or self.theta is not None:
                raise InvalidArgument("features", self.features, "given together with theta: see Problem.linear")
            return
        for name, given in (("strata", self.strata), ("changes", self.changes or None)):
            if given is not None:
                raise InvalidArgument(name, given, "left out where decisions have features")
        if isinstance(self.rewards, Empirical):
            raise InvalidArgument("rewards", "empirical", "of another family where decisions have features")
        self.features.check_agents(self.graph.num_agents)
        theta = checked_theta(self.theta, self.features)
        if len(theta) != self.graph.num_agents:
            accepted = f"of the graph's {self.graph.num_agents} agents"
            raise InvalidArgument("theta", f"of {len(theta)} agents", accepted)
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "means", means_of(theta, self.features))
        for extremes in self.features.extremes(theta):
            try:
                self.rewards.check(extremes)
            except InvalidArgument as error:
                hint = f"Some features make the mean of this agent and arm {error.value:.4g}."
                place = error.argument.replace("means", "theta")
                raise InvalidArgument(place, "too large", f"such that means are {error.accepted}", hint) from None

    @classmethod
    def gaussian(
        cls,
        means: ArrayLike,
        graph: AnyGraph,
        sigma: float = 1.0,
        reward_range: Range | None = None,
        **options: Unpack[_Options],
    ) -> "Problem":
        """Rewards means[i, k] + sigma * standard normal, as in the paper's synthetic experiments.

        They are unbounded, so they cannot be differentially private as they are. With a
        ``reward_range`` a private policy first clamps each reward to it; a tight range biases the
        means that it learns, while regret is still computed from ``means``.
        """
        return cls(rewards=Gaussian(sigma, reward_range), **_world(means, graph, options))

    @classmethod
    def bernoulli(cls, means: ArrayLike, graph: AnyGraph, **options: Unpack[_Options]) -> "Problem":
        """Rewards 0 or 1 with P(1) = means[i, k]."""
        return cls(rewards=Bernoulli(), **_world(means, graph, options))

    @classmethod
    def beta(
        cls, means: ArrayLike, graph: AnyGraph, concentration: float = 2.0, **options: Unpack[_Options]
    ) -> "Problem":
        """Rewards in [0, 1], Beta(m c, (1 - m) c) with m = means[i, k] and c = ``concentration``.

        The larger the concentration, the closer rewards lie to their mean: variance m (1 - m) / (c + 1).
        """
        return cls(rewards=Beta(concentration), **_world(means, graph, options))

    @classmethod
    def student_t(
        cls,
        means: ArrayLike,
        graph: AnyGraph,
        degrees_of_freedom: float = 3.0,
        scale: float = 1.0,
        reward_range: Range | None = None,
        **options: Unpack[_Options],
    ) -> "Problem":
        """Rewards with heavy tails: means[i, k] + scale * Student's t, with more than one degree of freedom.

        Policies are told the standard deviation; with two degrees of freedom or fewer there is none, and they
        take ``scale`` for it. In either case their radii assume lighter tails than these. For a private policy
        declare a ``reward_range``, as for Gaussian rewards.
        """
        return cls(rewards=StudentT(degrees_of_freedom, scale, reward_range), **_world(means, graph, options))

    @classmethod
    def empirical(
        cls, samples: Samples, graph: AnyGraph, reward_range: Range | None = None, **options: Unpack[_Options]
    ) -> "Problem":
        """Rewards that were observed, drawn with replacement: ``samples[i][k]`` lists those of arm k at agent i.

        ``samples`` may also be the path of a CSV file, or a DataFrame, with the columns agent (or site, or hospital),
        arm (or treatment) and reward (or outcome). Agents and arms are numbered from 0, or named; names count in order
        of first appearance, and label the result. A private policy needs a ``reward_range`` that was not computed from
        the samples; it clamps those outside it.
        """
        family = empirical_of(samples, reward_range)
        return cls(rewards=family, **_world(family.means, graph, options))

    @classmethod
    def own(
        cls,
        draw: Callable[[Any, Any], Any],
        means: ArrayLike,
        graph: AnyGraph,
        variance: float | None = None,
        reward_range: Range | None = None,
        bounded: bool = False,
        **options: Unpack[_Options],
    ) -> "Problem":
        """Rewards of your own: ``draw(bits, mean)`` makes one of that mean from 64 random bits (docs/own-rewards.md).

        ``variance``: an upper bound on the variance of one reward, told to the policies; ``inf`` if there is none.
        ``bounded``: rewards lie in the ``reward_range`` by themselves, and ``variance`` may be left out. Otherwise a
        private policy clamps them. ``simulate`` tries the draw and refuses one that breaks these promises.
        """
        return cls(rewards=Own(draw, variance, reward_range, bounded), **_world(means, graph, options))

    @classmethod
    def random(
        cls,
        num_agents: int,
        num_arms: int,
        graph: AnyGraph,
        seed: int = 0,
        rewards: Rewards = "gaussian",
        same_means: bool = False,
        strata: ArrayLike | int | None = None,
        interaction: float | None = None,
        **options: Any,
    ) -> "Problem":
        """Local means uniform in [0, 1], as in the paper's synthetic experiments; ``same_means``: equal for all agents.

        With ``strata`` each stratum's mean of an arm is off by a normal number, the same at all agents, of standard
        deviation ``interaction`` (default: 0.1); means stay in [0.01, 0.99].

        ``graph`` is a ``Graph`` or a text like "path:10"; a bare name ("path") takes ``num_agents``. ``options``
        go to the constructor for that kind of rewards; ``rewards`` may be a draw of your own.
        """
        agents = whole_number("num_agents", num_agents, 1, graphs.MAX_AGENTS)
        arms = whole_number("num_arms", num_arms, 2, MAX_ARMS)
        if isinstance(graph, str):
            graph = graphs.parse(graph if ":" in graph else f"{graph}:{agents}")
        instance("graph", graph, (Graph, Schedule, Contacts), "a Graph, a schedule, a contact list, or 'path'")
        in_graph = (graph if isinstance(graph, Graph) else graph.union).num_agents
        if in_graph != agents:
            raise InvalidArgument("num_agents", agents, f"that of the graph ({in_graph})")
        source = np.random.default_rng(whole_number("seed", seed, 0, 2**64 - 1))
        drawn = source.random((1 if true_or_false("same_means", same_means) else agents, arms))
        means = np.repeat(drawn, agents, axis=0) if same_means else drawn
        if strata is None:
            if interaction is not None:
                raise InvalidArgument("interaction", interaction, "left out without strata")
            return cls.of(rewards, means, graph, **options)
        normals = source.standard_normal((number_of(strata), arms))
        by_stratum = with_interactions(means, 0.1 if interaction is None else interaction, normals)
        return cls.of(rewards, by_stratum, graph, strata=strata, **options)

    @classmethod
    def of(cls, rewards: Rewards, means: ArrayLike, graph: AnyGraph, **options: Any) -> "Problem":
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

    @classmethod
    def changing(
        cls, changes: Sequence[tuple[int, ArrayLike]], graph: AnyGraph, rewards: Rewards = "gaussian", **options: Any
    ) -> "Problem":
        """Means that change: ``[(0, means), (50_000, other_means)]``, each with its first round.

        Regret counts against the best arm of the moment. ``options`` go to the constructor for that kind of rewards.
        """
        given = list(changes) if isinstance(changes, Sequence) else []  # pyright: ignore[reportUnnecessaryIsInstance]
        if not given or any(not isinstance(change, Sequence) or len(change) != 2 for change in given):  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
            raise InvalidArgument("changes", changes, "a list of (first round, means)")
        if given[0][0] != 0:
            raise InvalidArgument("changes[0], first round", given[0][0], "0")
        return replace(cls.of(rewards, given[0][1], graph, **options), changes=tuple(given[1:]))

    @classmethod
    def drifting(
        cls,
        means: ArrayLike,
        final_means: ArrayLike,
        graph: AnyGraph,
        rounds: tuple[int, int],
        rewards: Rewards = "gaussian",
        steps: int = 1000,
        **options: Any,
    ) -> "Problem":
        """Means that move evenly from ``means`` to ``final_means`` between two rounds, in so many equal steps."""
        return cls.changing(_drift(means, final_means, rounds, steps), graph, rewards, **options)

    @classmethod
    def linear(
        cls,
        theta: ArrayLike,
        graph: AnyGraph,
        features: Distribution | str,
        rewards: Rewards = "bernoulli",
        num_arms: int | None = None,
        **options: Any,
    ) -> "Problem":
        """Rewards that depend on features of the decision: their mean is theta[i, k] . x (docs/context.md).

        The features x of a decision are known before its arm is chosen. ``features``: how they are distributed, a
        ``features.ball`` or ``features.rows``, or a text like "ball:4". Theta has an entry for each, the first one for
        the constant 1, by agent and arm; by arm alone it is that of all agents. Where each arm has features of its own
        (``by_arm``), the mean is theta[i, k] . x_k, and theta may be one row, that of all agents and arms, or one for
        each agent, with ``num_arms``. Regret counts against the arm that is best for these features on average over
        agents. ``options`` go to the constructor for that kind of rewards.
        """
        found: Any = distributions.parse(features) if isinstance(features, str) else features
        accepted = "a distribution of fedbandit.features, or a text like 'ball:4'"
        instance("features", found, (distributions.Ball, distributions.Rows), accepted)
        for name in ("strata", "means"):
            if name in options:
                raise InvalidArgument(name, options[name], "left out where decisions have features")
        parsed: Any = graphs.parse(graph) if isinstance(graph, str) else graph
        instance("graph", parsed, (Graph, Schedule, Contacts), "a Graph, a schedule, a contact list, or 'path:10'")
        theta = _for_all(theta, getattr(parsed, "union", parsed).num_agents, num_arms, found.by_arm)
        checked = checked_theta(theta, found)
        if rewards == "student_t" or rewards == "empirical":
            raise InvalidArgument("rewards", rewards, "one of gaussian, bernoulli, beta, or a function (bits, mean)")
        plain = cls.of(rewards, np.full(checked.shape[:2], 0.5), graph, **options)
        return replace(plain, features=found, theta=checked)

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
        return int(self.means.shape[-1])

    @property
    def num_strata(self) -> int:
        """S; 0: decisions have no strata."""
        return 0 if self.strata is None else int(self.strata.shape[1])

    @property
    def stratum_weights(self) -> NDArray[np.float64]:
        """Each agent's weight in the average that counts, by agent and stratum."""
        strata = np.ones((self.num_agents, 1)) if self.strata is None else self.strata
        return cell_weights(self.weights, strata, self.counts == "patients")

    @property
    def agent_names(self) -> tuple[str, ...]:
        """The agents' names, if the samples of their rewards have names."""
        return self.rewards.agents if isinstance(self.rewards, Empirical) else ()

    @property
    def arm_names(self) -> tuple[str, ...]:
        """The arms' names, if the samples of their rewards have names."""
        return self.rewards.arms if isinstance(self.rewards, Empirical) else ()

    @cached_property
    def arm_means(self) -> NDArray[np.float64]:
        """mu_k = sum_i weight_i mu_{i,k}: the true quality of each arm; in the first period, if means change.

        With strata it has a row for each.
        """
        if self.strata is not None:
            return (self.stratum_weights[:, :, np.newaxis] * self.means).sum(axis=0)
        # No ``@``: the order in which BLAS adds, and so the last bit, depends on the processor.
        return (self.weights[:, np.newaxis] * self.means).sum(axis=0)

    @cached_property
    def gaps(self) -> NDArray[np.float64]:
        """Delta_k: the expected loss of one pull of arm k against the best arm; with strata, that of the stratum."""
        return self.arm_means.max(axis=-1, keepdims=self.strata is not None) - self.arm_means

    @cached_property
    def best_arm(self) -> int:
        """The arm with the largest mean over all agents (the first of equals).

        With strata it is the one arm that is best for all decisions together; ``best_arms`` has that of each stratum.
        """
        if self.strata is not None:
            rates = np.ones(self.num_agents) if self.rates is None else self.rates
            return int(((rates @ self.strata)[:, np.newaxis] * self.arm_means).sum(axis=0).argmax())
        return int(self.arm_means.argmax())

    @property
    def best_arms(self) -> tuple[int, ...]:
        """The best arm of each stratum; without strata there is one."""
        return tuple(np.atleast_2d(self.arm_means).argmax(axis=1).tolist())

    @property
    def kind_of_world(self) -> tuple[object, ...]:
        """Everything but the means: problems that run together must agree on it."""
        rates = (None if self.rates is None else tuple(self.rates)), self.counts
        starts, links = tuple(start for start, _ in self.changes), (self.graph.edge_array.tobytes(), self.over_time)
        late = (self.delays, self.reward_window, self.default_reward)
        gossip = (self.edges_per_round, self.gossip)
        strata = None if self.strata is None else self.strata.tobytes()
        features = None if self.features is None else self.features.digest
        return (
            self.means.shape,
            links,
            tuple(self.weights),
            rates,
            starts,
            self.rewards,
            gossip,
            late,
            strata,
            features,
        )

    @property
    def num_features(self) -> int:
        """F, with the constant; 0: decisions have no features."""
        return 0 if self.features is None else self.features.length

    @property
    def rows_of_features(self) -> int:
        """How many rows of features a decision has: one, or one for each arm."""
        return self.num_arms if self.features is not None and self.features.by_arm else 1

    @cached_property
    def average_theta(self) -> NDArray[np.float64]:
        """The average model, by arm: its best arm for some features is the one that counts."""
        if self.theta is None:
            return np.zeros((self.num_arms, 0))
        return (self.weights[:, np.newaxis, np.newaxis] * self.theta).sum(axis=0)

    @property
    def is_late(self) -> bool:
        """Whether rewards may count later than in the round of their decision."""
        return self.delays is not None or self.reward_window > 0

    @property
    def may_miss_window(self) -> bool:
        """Whether a reward may come too late, so that the default counts instead."""
        longest = max((each.longest for each in self.delays or ()), default=0)
        return 0 < self.reward_window <= longest

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


def _for_all(theta: Any, num_agents: int, num_arms: int | None, by_arm: bool) -> Any:
    """Theta by agent and arm: of all agents alike, or, where arms have features of their own, of all arms alike."""
    if num_arms is None:
        if by_arm and np.ndim(theta) < 3:
            raise InvalidArgument("num_arms", None, "given where theta is that of all arms")
        return np.repeat(np.array(theta)[np.newaxis], num_agents, axis=0) if np.ndim(theta) == 2 else theta
    whole_number("num_arms", num_arms, 2, MAX_ARMS)
    if not by_arm or np.ndim(theta) > 2:
        raise InvalidArgument("num_arms", num_arms, "left out, unless arms that have features of their own share theta")
    rows = np.atleast_2d(np.array(theta))
    if len(rows) not in (1, num_agents):
        raise InvalidArgument("theta", f"of {len(rows)} agents", f"one row, or one for each of {num_agents} agents")
    return np.repeat(np.repeat(rows, num_agents // len(rows), axis=0)[:, np.newaxis], num_arms, axis=1)


def means_of(theta: NDArray[np.float64], features: Distribution) -> NDArray[np.float64]:
    """The mean of each agent and arm over its decisions."""
    return (features.averages(len(theta))[:, np.newaxis] * theta).sum(axis=-1)


def _world(means: ArrayLike, graph: AnyGraph, options: Any) -> dict[str, Any]:
    return {"means": means, "graph": graph, **options}


# ---------------------------------------------------------------- checks


def finite_matrix(argument: str, value: ArrayLike, by_stratum: bool = False) -> NDArray[np.float64]:
    """``value`` as a read-only matrix of finite floats; ``by_stratum``: by agent, stratum and arm."""
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(argument, value, "a matrix of numbers, one row per agent") from None
    if matrix.ndim != 2 + by_stratum or matrix.size == 0:
        accepted = "by agent, stratum and arm" if by_stratum else "a matrix: a row per agent, a column per arm"
        raise InvalidArgument(argument, f"an array of shape {matrix.shape}", accepted)
    if not np.isfinite(matrix).all():
        place = np.argwhere(~np.isfinite(matrix))[0].tolist()
        name = f"{argument}[{', '.join(map(str, place))}]"
        raise InvalidArgument(name, float(matrix[tuple(place)]), "finite")
    if np.abs(matrix).max() > LARGEST:
        raise InvalidArgument(argument, float(np.abs(matrix).max()), f"at most {LARGEST:g} in size")
    matrix.flags.writeable = False
    return matrix


def _checked_weights(
    weights: ArrayLike | None, num_agents: int, rates: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Weights of all agents, read-only; equal ones by default, or those of their rates, where patients count."""
    if rates is not None:
        by_rate = rates / rates.sum()
        if weights is not None and not np.array_equal(weights, by_rate):
            raise InvalidArgument("weights", weights, "left out where patients count: they follow from the rates")
        weights = by_rate
    if weights is None:
        weights = np.full(num_agents, 1.0 / num_agents)
    accepted = f"{num_agents} numbers of at least 0 with sum 1, one per agent"
    given = _one_per_agent("weights", weights, num_agents, accepted)
    if not np.isfinite(given).all() or (given < 0).any():
        raise InvalidArgument("weights", weights, accepted)
    if abs(given.sum() - 1.0) > 1e-9:
        raise InvalidArgument("weights", f"weights with sum {given.sum():g}", accepted)
    return given


def _checked_rates(rates: ArrayLike | None, num_agents: int) -> NDArray[np.float64] | None:
    """Rates of all agents, read-only; None: all in step."""
    if rates is None:
        return None
    accepted = f"{num_agents} numbers above 0 and at most 1, one per agent"
    given = _one_per_agent("rates", rates, num_agents, accepted)
    if not ((given > 0) & (given <= 1)).all():
        raise InvalidArgument("rates", rates, accepted)
    return given


def _one_per_agent(argument: str, value: ArrayLike, num_agents: int, accepted: str) -> NDArray[np.float64]:
    """A number for each agent, read-only."""
    try:
        given = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(argument, value, accepted) from None
    if given.shape != (num_agents,):
        raise InvalidArgument(argument, value, accepted)
    given.flags.writeable = False
    return given


def _checked_edges_per_round(given: Any) -> Any:
    """The rule, if it is one."""
    if isinstance(given, FunctionType):
        if given.__code__.co_argcount != 4 or given.__defaults__ or given.__kwdefaults__:
            raise InvalidArgument("edges_per_round", given, "a function of t, i, j and u")
        return given
    if isinstance(given, str) and given in ("one", "matching", "all"):
        return given
    if isinstance(given, str) or callable(given):
        accepted = "'one', 'matching', 'all', a probability, or a function meets(t, i, j, u)"
        raise InvalidArgument("edges_per_round", given, accepted)
    return number_between("edges_per_round", given, 0.0, 1.0)


# ---------------------------------------------------------------- means that change


def _checked_changes(
    changes: Sequence[tuple[int, ArrayLike]], first: Means, rewards: Family
) -> Iterator[tuple[int, Means]]:
    """First rounds of new means, in order, and the means: of the shape of the ``first``, and right for the rewards."""
    last = 0
    if not isinstance(changes, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument("changes", changes, "a list of (first round, means)")
    for position, change in enumerate(changes, 1):
        where = f"changes[{position}]"
        if not isinstance(change, Sequence) or len(change) != 2:  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
            raise InvalidArgument(where, change, "a first round and means")
        start, given = change
        last = whole_number(f"{where}, first round", start, last + 1, _LATEST)
        means = finite_matrix(f"{where}, means", given, first.ndim == 3)
        if means.shape != first.shape:
            accepted = f"of the first means' shape {first.shape}"
            raise InvalidArgument(f"{where}, means", f"of shape {means.shape}", accepted)
        try:
            rewards.check(means)
        except InvalidArgument as error:
            raise error.at(where) from None
        yield last, means


def _drift(means: ArrayLike, final_means: ArrayLike, rounds: tuple[int, int], steps: int) -> list[tuple[int, Means]]:
    """Means that move evenly from ``means`` to ``final_means`` between two rounds, in so many equal steps."""
    by_stratum = are_by_stratum(means)
    first, last = finite_matrix("means", means, by_stratum), finite_matrix("final_means", final_means, by_stratum)
    if first.shape != last.shape:
        raise InvalidArgument("final_means", f"of shape {last.shape}", f"of the means' shape {first.shape}")
    if not isinstance(rounds, Sequence) or len(rounds) != 2:  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
        raise InvalidArgument("rounds", rounds, "the rounds in which the drift begins and ends")
    start = whole_number("rounds[0]", rounds[0], 0, _LATEST)
    end = whole_number("rounds[1]", rounds[1], start + 1, _LATEST)
    count = min(whole_number("steps", steps, 1, 10**5), end - start)
    later = [(start + (end - start) * s // count, first + (last - first) * (s / count)) for s in range(1, count + 1)]
    return [(0, first), *later]
