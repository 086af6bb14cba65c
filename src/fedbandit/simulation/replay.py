"""Replays a policy on a tape, which fixes all randomness, and keeps every number of every round.

Tests compare these traces with literal versions of the algorithms. The rounds are the simulator's own.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbandit.checks import InvalidArgument, instance, whole_number
from fedbandit.graph import Graph
from fedbandit.policies import Policy
from fedbandit.problem import Problem
from fedbandit.simulation import layout
from fedbandit.simulation.run import plan_of

__all__ = ["Tape", "Trace", "replay"]


@dataclass(frozen=True, eq=False)
class Tape:
    """All randomness of a run of T rounds, N agents and M arms.

    * ``rewards[t, i, k]``: the reward of agent i if it pulls arm k at time t (t = 0: the first pulls)
    * ``edges[t - 1]``: the pair that gossips at time t
    * ``picks[t - 1, i]``: the draw in [0, 1) that picks from a non-empty lagging set
    * ``noise[e, i, k]``: for a private policy, the Laplace draw of scale 1 of the interval that ends at e
      (a pull number; a time if ``paper=True``), e = 0 .. T + 1. Without it, one fixed stream is used.
    * ``normals[t - 1, i, k]``: for Thompson sampling, the standard normal draw for arm k in round t. Without it, one
      fixed stream is used.
    * ``reward_range``: as in a problem, for a private policy.
    """

    rewards: NDArray[np.float64]
    edges: NDArray[np.int64]
    picks: NDArray[np.float64]
    graph: Graph
    noise: NDArray[np.float64] | None = None
    reward_range: tuple[float, float] | None = None
    normals: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        """Check shapes and values against each other."""
        instance("graph", self.graph, Graph, "a Graph")
        agents = self.graph.num_agents
        rewards = _floats("rewards", self.rewards, 3)
        horizon, arms = len(rewards) - 1, rewards.shape[2]
        if horizon < 1 or rewards.shape[1] != agents:
            raise InvalidArgument("rewards", f"of shape {rewards.shape}", f"[T + 1, {agents} agents, M arms], T >= 1")
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
        if self.noise is not None:
            noise = _floats("noise", self.noise, 3)
            if noise.shape != (horizon + 2, agents, arms):
                raise InvalidArgument("noise", f"of shape {noise.shape}", f"[{horizon + 2}, {agents}, {arms}]")
            object.__setattr__(self, "noise", noise)
        if self.normals is not None:
            normals = _floats("normals", self.normals, 3)
            if normals.shape != (horizon, agents, arms):
                raise InvalidArgument("normals", f"of shape {normals.shape}", f"[{horizon}, {agents}, {arms}]")
            object.__setattr__(self, "normals", normals)
        for name, array in (("rewards", rewards), ("edges", edges), ("picks", picks)):
            object.__setattr__(self, name, array)

    @property
    def horizon(self) -> int:
        """T."""
        return len(self.rewards) - 1

    @classmethod
    def random(
        cls,
        graph: Graph,
        num_arms: int,
        horizon: int,
        seed: int = 0,
        means: ArrayLike | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> "Tape":
        """Unit Gaussian rewards around ``means`` (default: uniform in [0, 1]) and Laplace noise."""
        source = np.random.default_rng(whole_number("seed", seed, 0, 2**64 - 1))
        whole_number("horizon", horizon, 1, 10**8)
        whole_number("num_arms", num_arms, 2, 10**4)
        agents = graph.num_agents
        centre = source.random((agents, num_arms)) if means is None else np.asarray(means, np.float64)
        return cls(
            rewards=centre + source.standard_normal((horizon + 1, agents, num_arms)),
            edges=np.array(graph.edges)[source.integers(len(graph.edges), size=horizon)],
            picks=source.random((horizon, agents)),
            graph=graph,
            noise=source.laplace(size=(horizon + 2, agents, num_arms)),
            normals=source.standard_normal((horizon, agents, num_arms)),
            reward_range=reward_range,
        )


@dataclass(frozen=True, eq=False)
class Trace:
    """Every number of every round. Entry t of an array is its value at the end of round t (0: the start)."""

    arms: NDArray[np.int64]  # [T, N]: entry t - 1 is the arm of round t
    theta: NDArray[np.float64]  # [T + 1, N, M]
    n: NDArray[np.int64]  # [T + 1, N, M]
    n_max: NDArray[np.int64]  # [T + 2, N, M]: entry t is n~(t)
    x_mean: NDArray[np.float64]  # [T + 1, N, M]
    gossiped: NDArray[np.float64]  # [T + 1, N, M]: theta; or [..., 2 M]: values, then weights; theta is their ratio
    releases: NDArray[np.int64]  # [T + 1, N, M]: batches released


def replay(tape: Tape, policy: Policy) -> Trace:
    """Run a policy on a tape."""
    instance("tape", tape, Tape, "a Tape")
    horizon, agents, arms = tape.horizon, tape.graph.num_agents, tape.rewards.shape[2]
    problem = Problem.gaussian(np.zeros((agents, arms)), tape.graph, reward_range=tape.reward_range)
    page, terms, ((_, links),), play_rounds = plan_of(policy, problem, horizon)
    population, world = layout.new_population(page, terms, arms), layout.world_of(problem)
    nothing = np.zeros((1, 1, 1))
    fixed = layout.Tape(
        on=True,
        rewards=np.ascontiguousarray(tape.rewards),
        edges=np.ascontiguousarray(tape.edges),
        picks=np.ascontiguousarray(tape.picks),
        has_noise=tape.noise is not None,
        noise=nothing if tape.noise is None else np.ascontiguousarray(tape.noise),
        has_normals=tape.normals is not None,
        normals=nothing if tape.normals is None else np.ascontiguousarray(tape.normals),
    )
    columns = arms if page.network == "pooled" else len(page.averaged) * arms
    trace = Trace(
        arms=np.zeros((horizon, agents), np.int64),
        theta=np.zeros((horizon + 1, agents, arms)),
        n=np.zeros((horizon + 1, agents, arms), np.int64),
        n_max=np.ones((horizon + 2, agents, arms), np.int64),
        x_mean=np.zeros((horizon + 1, agents, arms)),
        gossiped=np.zeros((horizon + 1, agents, columns)),
        releases=np.zeros((horizon + 1, agents, arms), np.int64),
    )
    zero, no_misses, theta = np.uint64(0), np.zeros(agents), np.zeros((agents, arms))
    for t in range(horizon + 1):
        play_rounds(t, t, zero, zero, population, world, links, fixed, theta, problem.arm_means, no_misses)
        if t > 0:
            trace.arms[t - 1] = population.turns["arm"]
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


def _floats(name: str, value: Any, dimensions: int) -> NDArray[np.float64]:
    try:
        array = np.array(value, np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(name, value, f"{dimensions} dimensions of finite numbers") from None
    if array.ndim != dimensions or not np.isfinite(array).all():
        raise InvalidArgument(name, f"of shape {array.shape}", f"{dimensions} dimensions of finite numbers")
    return array
