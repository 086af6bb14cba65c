"""Array layout of a simulation: agents, what they see, their terms, streams and links as arrays for compiled code.

What an agent knows is one record of a structured array. The number of arms is part of the type, so compiled code
unrolls its loops over arms.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument
from fedbandit.graph import Graph
from fedbandit.policies import Policy
from fedbandit.policies.protocol import ARMS, Count, LinkRule, Page, Setting
from fedbandit.problem import Problem

__all__ = [
    "Links",
    "Population",
    "Tape",
    "World",
    "links_of",
    "new_population",
    "no_tape",
    "setting_of",
    "terms_of",
    "with_own_scratch",
    "world_of",
]

_KINDS = {"count": "i4", "number": "f8", "flag": "u1"}  # Numba has no nested arrays of booleans


class World(NamedTuple):
    """A problem as numbers."""

    means: Any  # [N, M]
    sigma: float
    concentration: float
    in_step: bool
    rates: Any  # [N]: probability that an agent acts in a round, unless in_step


class Links(NamedTuple):
    """The graph's links, and which of them are active in a round."""

    edges: Any  # [E, 2]; indices are unsigned: compiled code tests signed ones for negative values
    first_neighbour: Any  # [N + 1], into neighbours
    neighbours: Any
    presence: float  # probability of each edge, where they come and go
    weight: float  # of each present edge; 0: Metropolis
    order: Any  # [E], scratch; where edges come and go: whether the edge was present
    degree: Any  # [N], scratch
    mixed: Any  # like the averages, scratch


class Tape(NamedTuple):
    """Fixed randomness, instead of streams."""

    on: bool
    rewards: Any  # [T + 1, N, M]
    edges: Any  # [T, 2]
    picks: Any  # [T, N]
    has_noise: bool
    noise: Any  # [T + 2, N, M]: of the interval that ends at the first index
    has_normals: bool
    normals: Any  # [T, N, M]


class Population(NamedTuple):
    """All agents of one trial."""

    agents: Any  # [N] records of what each knows, and of what the network shows it
    terms: Any  # [N] records of each one's fixed numbers
    averages: Any  # [N, ...]: the same memory as rows of numbers, of which the first are averaged
    n_max: Any  # [N, M]: n~ of the next round
    turns: Any  # [N] records of what each does in the current round
    streams: Any  # [N] records of the names of its random streams
    pooled: Any  # [M]: the round in which an arm was last pooled


def _dtype_of(page: Page, num_arms: int) -> np.dtype[Any]:
    """The record of one agent: what the network averages for it first, then the rest, numbers before counts.

    What it sees and what it knows lie in one record, so that compiled code can tell that they do not overlap.
    """
    described = [
        (name, _KINDS[field.kind], tuple(num_arms if size == "arms" else int(size) for size in field.shape))
        for name, field in (page.knows | {"n_max": Count[ARMS]}).items()
    ]
    described.sort(key=lambda entry: -np.dtype(entry[1]).itemsize)
    averaged = [(name, "f8", (num_arms,)) for name in page.averaged]
    packed = np.dtype([*averaged, *described])
    padding = [("padding", "u1", (-packed.itemsize % 8,))] if packed.itemsize % 8 else []
    return np.dtype([*averaged, *described, *padding])


def _dtype_of_terms(terms: Any) -> np.dtype[Any]:
    kinds = {int: "i8", float: "f8"}
    return np.dtype([(name, kinds[type(value)]) for name, value in terms._asdict().items()])


def new_population(page: Page, terms: Any, num_arms: int) -> Population:
    """Agents that know nothing yet."""
    num_agents, columns = len(terms), len(page.averaged)
    agents = np.zeros(num_agents, _dtype_of(page, num_arms))
    agents["n_max"] = 1  # after the first pulls everyone has pulled every arm once
    turn = [("before", "f8", (columns,)), ("clock", "i8"), ("arm", "u8"), ("messages", "i8"), ("mixed", "i8")]
    stream = [("picks", "u8"), ("arrivals", "u8"), *((name, "u8", (num_arms,)) for name in _STREAMS_PER_ARM)]
    return Population(
        agents=agents,
        terms=terms,
        averages=agents.view(np.float64).reshape(num_agents, -1),
        n_max=np.ones((num_agents, num_arms), np.int32),
        turns=np.zeros(num_agents, np.dtype([*turn, ("released", "i8"), ("acts", "i8")])),
        streams=np.zeros(num_agents, np.dtype(stream)),
        pooled=np.zeros(num_arms, np.int64),
    )


_STREAMS_PER_ARM = ("rewards", "noise", "normals")


# ---------------------------------------------------------------- from a problem


def world_of(problem: Problem) -> World:
    """A problem as numbers."""
    return World(
        means=np.ascontiguousarray(problem.means).copy(),
        sigma=float(problem.sigma),
        concentration=float(problem.concentration),
        in_step=problem.rates is None,
        rates=np.ones(problem.num_agents) if problem.rates is None else problem.rates.copy(),
    )


def _shares(problem: Problem) -> NDArray[np.float64]:
    """N times each agent's weight."""
    if np.all(problem.weights == problem.weights[0]):
        return np.ones(problem.num_agents)  # exactly the paper's update, whatever N * (1 / N) rounds to
    return problem.num_agents * problem.weights


def setting_of(problem: Problem, horizon: int, agent: int = 0) -> Setting:
    """What one agent may know of its world."""
    num_agents = problem.num_agents
    low, high = problem.reward_range or (-np.inf, np.inf)
    shares = _shares(problem)
    return Setting(
        num_agents=num_agents,
        num_arms=problem.num_arms,
        share=float(shares[agent]),
        sum_of_squares=float(np.sum(problem.weights**2)),
        mean_square_share=float(np.sum(shares**2)) / num_agents,
        degree=len(problem.graph.neighbours[agent]),
        complete=len(problem.graph.edges) == num_agents * (num_agents - 1) // 2,
        in_step=problem.rates is None,
        horizon=horizon,
        low=float(low),
        high=float(high),
        bounded=problem.family != "gaussian",
        scale=float(problem.sigma) if problem.family == "gaussian" else float(high - low),
        reward_variance=float(problem.reward_variance),
        unit=1.0,
        rewards=problem.family,
    )


def terms_of(policy: Policy, problem: Problem, horizon: int) -> Any:
    """The fixed numbers of all agents, as records."""
    each = [policy.terms(setting_of(problem, horizon, i)) for i in range(problem.num_agents)]
    if len({tuple(map(type, terms)) for terms in each}) > 1:
        raise InvalidArgument("terms", each[0], "numbers of the same types for every agent")
    return np.array([tuple(terms) for terms in each], _dtype_of_terms(each[0]))


def _adjacency(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    counts = [len(agents) for agents in graph.neighbours]
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return first, np.concatenate(graph.neighbours).astype(np.uint32)


def links_of(policy: Policy, problem: Problem, horizon: int) -> tuple[str, Links]:
    """The problem's links, or those that the policy brings; and their kind, a key of ``network.LINKS``."""
    first_neighbour, neighbours = _adjacency(problem.graph)
    bring_links = getattr(policy, "links", None)
    kind, rule = "present", LinkRule(1.0)
    if bring_links is not None:
        rule = bring_links(setting_of(problem, horizon))
    elif problem.edges_per_round in ("one", "matching"):
        kind = problem.edges_per_round
    elif problem.edges_per_round != "all":
        rule = LinkRule(float(problem.edges_per_round))
    columns = len(policy.page().averaged) * problem.num_arms
    return str(kind), Links(
        edges=np.array(problem.graph.edges, np.uint32),
        first_neighbour=first_neighbour,
        neighbours=neighbours,
        presence=rule.presence,
        weight=rule.weight,
        order=np.arange(len(problem.graph.edges)),
        degree=np.zeros(problem.num_agents, np.int64),
        mixed=np.zeros((problem.num_agents, columns)),
    )


def with_own_scratch(links: Links) -> Links:
    """The same links, with scratch memory for another thread."""
    return links._replace(order=links.order.copy(), degree=links.degree.copy(), mixed=links.mixed.copy())


def no_tape() -> Tape:
    """Randomness from streams alone."""
    cube = np.zeros((1, 1, 1))
    return Tape(False, cube, np.zeros((1, 2), np.int64), np.zeros((1, 1)), False, cube, False, cube)
