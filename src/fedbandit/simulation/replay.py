"""Replays a policy on a tape, which fixes all randomness, and keeps every number of every round.

Tests compare these traces with literal versions of the algorithms. The rounds are the simulator's own. A tape may be a
log, which has rewards only where someone pulled: ``NotLogged`` says where a policy leaves it. See docs/replay.md.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbandit.checks import (
    MAX_STRATA,
    Counts,
    Gossip,
    InvalidArgument,
    instance,
    number_above,
    true_or_false,
    whole_number,
)
from fedbandit.engine import layout
from fedbandit.policies import Policy
from fedbandit.policies.protocol import Setting
from fedbandit.rules.batch import largest_reward_variance
from fedbandit.simulation.run import compiled_policy
from fedbandit.world.features import Rows
from fedbandit.world.graph import Graph, parse
from fedbandit.world.problem import Problem, finite_matrix


@dataclass(frozen=True, eq=False)
class Tape:
    """All randomness of a run of T rounds, N agents and M arms.

    * ``rewards[t, i, k]``: the reward of agent i if it pulls arm k at time t (t = 0: the first pulls); NaN: not logged
    * ``edges[t - 1]``: the pair that gossips at time t
    * ``picks[t - 1, i]``: the draw in [0, 1) that picks from a non-empty lagging set
    * ``noise[e, i, k]``: for a private policy, the Laplace draw of scale 1 of the interval that ends at e
      (a pull number; a time if ``paper=True``), e = 0 .. T + 1. Without it, one fixed stream is used.
    * ``normals[t - 1, i, k]``: for Thompson sampling, the standard normal draw for arm k in round t. Without it, one
      fixed stream is used.
    * ``reward_range``: as in a problem, for a private policy.
    * ``sigma``: the standard deviation of rewards that agents assume, the unit of their radii
    * ``counts``, ``gossip``: as in a problem; all agents act in every round
    * ``strata[d, i]``: the stratum of agent i's decision d; the first M are the pulls at t = 0, arm by arm. Without
      it, decisions have none. ``rewards`` are those of the strata that come; for a private policy that takes strata,
      ``noise`` has a column for each stratum and arm, one stratum after the other.
    * ``features[d, i]``: the row of features of agent i's decision d, in the same order. Without it, decisions have
      none. A first entry that is 1 in every row is the constant. ``by_arm``: each arm has a row of its own, one after
      the other. For a private policy that takes features ``noise``
      has a column for each number that it releases, those of one arm after the other, and e goes up to M + T.
    * ``bounded``: rewards lie in ``reward_range`` by themselves; agents then go by the range and not by ``sigma``
    """

    rewards: NDArray[np.float64]
    edges: NDArray[np.int64]
    picks: NDArray[np.float64]
    graph: Graph
    noise: NDArray[np.float64] | None = None
    reward_range: tuple[float, float] | None = None
    normals: NDArray[np.float64] | None = None
    sigma: float = 1.0
    bounded: bool = False
    counts: Counts = "sites"
    gossip: Gossip = "averages"
    strata: NDArray[np.int64] | None = None
    features: NDArray[np.float64] | None = None
    by_arm: bool = False

    def __post_init__(self) -> None:
        """Check shapes and values against each other."""
        instance("graph", self.graph, Graph, "a Graph")
        agents = self.graph.num_agents
        rewards = _floats("rewards", self.rewards, 3, or_nan=True)
        horizon, arms = len(rewards) - 1, rewards.shape[2]
        if horizon < 1 or rewards.shape[1] != agents:
            raise InvalidArgument("rewards", f"of shape {rewards.shape}", f"[T + 1, {agents} agents, M arms], T >= 1")
        _check_first_pulls(rewards[0])
        edges = _floats("edges", self.edges, 2).astype(np.int64)
        if edges.shape != (horizon, 2) or (edges != np.array(self.edges)).any():
            raise InvalidArgument("edges", f"of shape {edges.shape}", f"one pair of agents per round, [{horizon}, 2]")
        known = {*self.graph.edges, *((j, i) for i, j in self.graph.edges)}
        for t, (i, j) in enumerate(edges.tolist()):
            if (i, j) not in known:
                raise InvalidArgument(f"edges[{t}]", (i, j), "an edge of the graph")
        picks = _floats("picks", self.picks, 2)
        if picks.shape != (horizon, agents) or (picks < 0).any() or (picks >= 1).any():
            raise InvalidArgument("picks", f"of shape {picks.shape}", f"[{horizon}, {agents}] numbers in [0, 1)")
        if self.strata is not None:
            object.__setattr__(self, "strata", _checked_strata(self.strata, horizon + arms, agents))
        if self.features is not None:
            found = _floats("features", self.features, 3)
            if found.shape[:2] != (horizon + arms, agents) or found.shape[2] < 1:
                accepted = f"[{horizon + arms}, {agents}, F]: of the first pulls, then of T"
                raise InvalidArgument("features", f"of shape {found.shape}", accepted)
            if self.strata is not None:
                raise InvalidArgument("strata", "given", "left out where decisions have features")
            object.__setattr__(self, "features", found)
        cells = arms * max(self.num_strata, 1)
        if self.features is not None and self.noise is not None:
            cells = max(np.shape(self.noise)[-1], 1)  # the page says how many numbers it releases
        ends = horizon + 2 if self.features is None else horizon + arms + 1  # decisions, of all arms together
        for name, rows, columns in (("noise", ends, cells), ("normals", horizon, arms)):
            if getattr(self, name) is not None:
                drawn = _floats(name, getattr(self, name), 3)
                if drawn.shape != (rows, agents, columns):
                    raise InvalidArgument(name, f"of shape {drawn.shape}", f"[{rows}, {agents}, {columns}]")
                object.__setattr__(self, name, drawn)
        number_above("sigma", self.sigma, 0.0)
        if true_or_false("bounded", self.bounded):
            _check_bounds(rewards, self.reward_range)
        for name, array in (("rewards", rewards), ("edges", edges), ("picks", picks)):
            object.__setattr__(self, name, array)

    @property
    def horizon(self) -> int:
        """T."""
        return len(self.rewards) - 1

    @property
    def num_strata(self) -> int:
        """S; 0: decisions have none."""
        return 0 if self.strata is None else int(self.strata.max()) + 1

    @property
    def num_features(self) -> int:
        """F; 0: decisions have none."""
        return 0 if self.features is None else int(self.features.shape[2]) // self.rows_of_features

    @property
    def rows_of_features(self) -> int:
        """How many rows of features a decision has: one, or one for each arm."""
        return self.rewards.shape[2] if self.by_arm else 1

    @classmethod
    def logged(cls, graph: Graph | str, log: ArrayLike, edges: ArrayLike, **parts: Any) -> "Tape":
        """A tape from a log with a row (time, agent, arm, reward) for every pull, in any order.

        Agents and arms count from 0. Time 0 has every agent's first pull of every arm. ``parts`` are the other parts of
        a tape; without ``picks``, an agent that has to catch up takes the first of its lagging arms.
        """
        rows = _floats("log", log, 2)
        if rows.shape[1] != 4 or len(rows) == 0:
            raise InvalidArgument("log", f"of shape {rows.shape}", "rows of four numbers: time, agent, arm, reward")
        places = rows[:, :3].astype(np.int64)
        if (bad := (places != rows[:, :3]) | (places < 0)).any():
            row, column = np.argwhere(bad)[0].tolist()
            raise InvalidArgument(f"log[{row}, {column}]", float(rows[row, column]), "a whole number from 0 on")
        graph = _graph(graph)
        agents, shape = graph.num_agents, (places.max(axis=0) + 1).tolist()
        if shape[0] * agents * shape[2] > _MOST_REWARDS:
            hint = f"The largest time is {shape[0] - 1} and the largest arm {shape[2] - 1}."
            raise InvalidArgument("log", f"{shape[0] * agents * shape[2]:.3g} rewards", "fewer", hint)
        if shape[1] > agents:
            row = int(places[:, 1].argmax())
            raise InvalidArgument(
                f"log[{row}, 1]", shape[1] - 1, f"one of the graph's {agents} agents, 0 to {agents - 1}"
            )
        rewards = np.full((shape[0], agents, shape[2]), np.nan)
        _, first = np.unique(places, axis=0, return_index=True)
        if len(first) < len(rows):
            row = int(np.setdiff1d(np.arange(len(rows)), first)[0])
            raise InvalidArgument(f"log[{row}]", rows[row].tolist(), "the only row of its time, agent and arm")
        rewards[tuple(places.T)] = rows[:, 3]
        parts = {"picks": np.zeros((shape[0] - 1, agents))} | parts
        return cls(rewards=rewards, edges=np.array(edges), graph=graph, **parts)

    @classmethod
    def random(
        cls,
        graph: Graph | str,
        num_arms: int,
        horizon: int,
        seed: int = 0,
        means: ArrayLike | None = None,
        reward_range: tuple[float, float] | None = None,
        num_strata: int = 0,
        num_features: int = 0,
    ) -> "Tape":
        """Unit Gaussian rewards around ``means`` (default: uniform in [0, 1]) and Laplace noise.

        With ``num_strata`` decisions have strata that are alike frequent; rewards do not depend on them. With
        ``num_features`` they have so many features F: the constant, and others in [-1, 1]. There are F + F^2 numbers of
        noise for each arm then, as many as any policy of this package releases.
        """
        source = np.random.default_rng(whole_number("seed", seed, 0, 2**64 - 1))
        whole_number("horizon", horizon, 1, 10**8)
        whole_number("num_arms", num_arms, 2, 10**4)
        graph = _graph(graph)
        agents = graph.num_agents
        centre = source.random((agents, num_arms)) if means is None else finite_matrix("means", means)
        if centre.shape != (agents, num_arms):
            raise InvalidArgument("means", f"of shape {centre.shape}", f"[{agents} agents, {num_arms} arms]")
        ends = horizon + num_arms + 1 if num_features else horizon + 2
        released = max(num_strata, num_features * (num_features + 1), 1)
        return cls(
            rewards=centre + source.standard_normal((horizon + 1, agents, num_arms)),
            edges=np.array(graph.edges)[source.integers(len(graph.edges), size=horizon)],
            picks=source.random((horizon, agents)),
            graph=graph,
            noise=source.laplace(size=(ends, agents, num_arms * released)),
            normals=source.standard_normal((horizon, agents, num_arms)),
            reward_range=reward_range,
            strata=source.integers(num_strata, size=(num_arms + horizon, agents)) if num_strata else None,
            features=_random_features(source, (num_arms + horizon, agents, num_features)) if num_features else None,
        )


@dataclass(frozen=True, eq=False)
class Trace:
    """Every number of every round. Entry t of an array is its value at the end of round t (0: the start)."""

    arms: NDArray[np.int64]  # [T, N]: entry t - 1 is the arm of round t
    theta: NDArray[np.float64]  # [T + 1, N, M]; with strata [T + 1, N, S M], one stratum after the other
    n: NDArray[np.int64]  # [T + 1, N, M]
    n_max: NDArray[np.int64]  # [T + 2, N, M]: entry t is n~(t)
    x_mean: NDArray[np.float64]  # [T + 1, N, M]
    gossiped: NDArray[np.float64]  # [T + 1, N, M]: what is seen: theta; or [..., 2 M]: values, then weights
    releases: NDArray[np.int64]  # [T + 1, N, M]: batches released


class NotLogged(LookupError):
    """A policy chose an arm whose reward the tape does not have.

    ``logged``: the arms whose rewards it has there. ``trace``: everything up to the round before.
    """

    def __init__(self, time: int, agent: int, arm: int, logged: list[int], trace: Trace) -> None:
        """Name the place."""
        self.time, self.agent, self.arm, self.logged, self.trace = time, agent, arm, logged, trace
        there = ", ".join(map(str, logged)) or "none"
        super().__init__(
            f"round {time}: agent {agent} chose arm {arm}, whose reward was not logged (logged there: {there}). "
            f"The error's trace has all rounds before."
        )


def replay(tape: Tape, policy: Policy) -> Trace:
    """Run a policy on a tape; ``NotLogged`` if it chooses an arm whose reward the tape does not have."""
    instance("tape", tape, Tape, "a Tape")
    horizon, agents, arms = tape.horizon, tape.graph.num_agents, tape.rewards.shape[2]
    strata, problem = tape.num_strata, _problem_of(tape)
    cells = arms * max(strata, 1)
    compiled = compiled_policy(policy, problem, horizon, settings=_settings(tape, problem))
    page, terms, ((_, links),), play_rounds, *_ = compiled
    population = layout.new_population(
        page,
        terms,
        arms,
        releasing=compiled.releasing,
        num_strata=strata,
        num_features=tape.num_features,
        rows_of_features=tape.rows_of_features,
    )
    world = layout.world_of(problem)
    missing, nothing = np.isnan(tape.rewards), np.zeros((1, 1, 1))
    fixed = layout.TapeArrays(
        on=True,
        rewards=np.where(missing, 0.0, tape.rewards),  # compiled code never sees a NaN
        edges=np.ascontiguousarray(tape.edges),
        picks=np.ascontiguousarray(tape.picks),
        has_noise=tape.noise is not None,
        noise=nothing if tape.noise is None else np.ascontiguousarray(tape.noise),
        has_normals=tape.normals is not None,
        normals=nothing if tape.normals is None else np.ascontiguousarray(tape.normals),
        strata=np.zeros((1, 1), np.int64) if tape.strata is None else np.ascontiguousarray(tape.strata),
        features=np.zeros((1, 1, 1)) if tape.features is None else np.ascontiguousarray(tape.features),
    )
    columns = len(page.averaged) * arms
    trace = Trace(
        arms=np.zeros((horizon, agents), np.int64),
        theta=np.zeros((horizon + 1, agents, cells)),
        n=np.zeros((horizon + 1, agents, arms), np.int64),
        n_max=np.ones((horizon + 2, agents, arms), np.int64),
        x_mean=np.zeros((horizon + 1, agents, arms)),
        gossiped=np.zeros((horizon + 1, agents, columns)),
        releases=np.zeros((horizon + 1, agents, arms), np.int64),
    )
    zero, no_misses, theta = np.uint64(0), np.zeros(agents), np.zeros((agents, cells))
    flat_means = problem.arm_means.ravel()
    for t in range(horizon + 1):
        play_rounds(t, t, zero, zero, population, world, links, fixed, theta, flat_means, no_misses)
        if t > 0:
            chosen = population.steps["arm"].astype(np.int64)
            for i in np.flatnonzero(missing[t, np.arange(agents), chosen]).tolist():  # before anything of it is kept
                raise NotLogged(t, i, int(chosen[i]), np.flatnonzero(~missing[t, i]).tolist(), _before(t, trace))
            trace.arms[t - 1] = chosen
        known = population.agents
        trace.theta[t] = theta
        trace.n[t] = known["tried"]
        trace.n_max[t + 1] = population.agents["n_max"]
        trace.gossiped[t] = population.averages[:, :columns]
        if "x_mean" in page.knows:
            trace.x_mean[t] = known["x_mean"]
        if "releases" in page.knows:
            trace.releases[t] = known["releases"]
    return trace


def _problem_of(tape: Tape) -> Problem:
    """A problem in which agents know what those of the tape know."""
    agents, strata, arms = tape.graph.num_agents, tape.num_strata, tape.rewards.shape[2]
    means = np.zeros((agents, strata, arms) if strata else (agents, arms))
    problem = Problem.gaussian(means, tape.graph, tape.sigma, tape.reward_range, counts=tape.counts, gossip=tape.gossip)
    if tape.features is None:
        return problem
    rows = tape.features.reshape(-1, tape.num_features)
    has_constant = bool((rows[:, 0] == 1.0).all()) and tape.num_features > 1
    found = Rows((rows[:, int(has_constant) :],), intercept=has_constant, by_arm=tape.by_arm)
    return replace(problem, features=found, theta=np.zeros((agents, arms, tape.num_features)))


def _random_features(source: np.random.Generator, shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """The constant, and others in [-1, 1]."""
    x = source.uniform(-1.0, 1.0, shape)
    x[:, :, 0] = 1.0
    return x


def _settings(tape: Tape, problem: Problem) -> list[Setting]:
    """What each agent knows of the tape's world."""
    settings = [layout.setting_of(problem, tape.horizon, i) for i in range(problem.num_agents)]
    if not tape.bounded:
        return settings
    known = {"bounded": True, "rewards": "bounded"}
    return [
        s._replace(**known, scale=s.high - s.low, reward_variance=largest_reward_variance(s.low, s.high))
        for s in settings
    ]


def _before(t: int, trace: Trace) -> Trace:
    """The rounds before round t, as a trace of its own."""
    whole = {name: getattr(trace, name)[:t] for name in ("theta", "n", "x_mean", "gossiped", "releases")}
    return Trace(arms=trace.arms[: t - 1], n_max=trace.n_max[: t + 1], **whole)


def _check_first_pulls(rewards: NDArray[np.float64]) -> None:
    """At t = 0 nobody chooses, so nothing may be missing."""
    for i, k in np.argwhere(np.isnan(rewards)).tolist():
        raise InvalidArgument(
            f"rewards[0, {i}, {k}]",
            np.nan,
            "a number",
            "At t = 0 every agent pulls every arm once (Algorithm 1, line 1): a log needs these rewards, all of them.",
        )


def _check_bounds(rewards: NDArray[np.float64], reward_range: tuple[float, float] | None) -> None:
    if reward_range is None:
        raise InvalidArgument("reward_range", None, "given with bounded=True")
    low, high = reward_range
    for t, i, k in np.argwhere((rewards < low) | (rewards > high)).tolist():
        raise InvalidArgument(f"rewards[{t}, {i}, {k}]", float(rewards[t, i, k]), f"from {low:g} to {high:g} (bounded)")


_MOST_REWARDS = 10**9


def _graph(graph: Graph | str) -> Graph:
    """A graph with links, which a tape names."""
    found = parse(graph) if isinstance(graph, str) else graph
    instance("graph", found, Graph, "a Graph that does not change, or a text like 'path:10'")
    if found.num_agents < 2:
        raise InvalidArgument("graph", found.name, "one of at least 2 agents: a tape names a pair that gossips")
    return found


def _checked_strata(strata: Any, decisions: int, agents: int) -> NDArray[np.int64]:
    """Numbers of strata, of each agent's decisions."""
    given = _floats("strata", strata, 2)
    whole = given.astype(np.int64)
    if given.shape != (decisions, agents) or (whole != given).any() or not 0 <= whole.min() <= whole.max() < MAX_STRATA:
        accepted = f"[{decisions}, {agents}] whole numbers from 0 to {MAX_STRATA - 1}: of the first pulls, then of T"
        raise InvalidArgument("strata", f"of shape {given.shape}", accepted)
    return whole


def _floats(name: str, value: Any, dimensions: int, or_nan: bool = False) -> NDArray[np.float64]:
    accepted = f"{dimensions} dimensions of finite numbers"
    try:
        array = np.array(value, np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(name, value, accepted) from None
    if array.ndim != dimensions or not (np.isfinite(array) | (or_nan & np.isnan(array))).all():
        raise InvalidArgument(name, f"of shape {array.shape}", accepted)
    return array
