"""Where the numbers of a simulation lie: a problem, a policy, a state and its randomness as arrays.

Here belongs the layout that the engines read and write; what happens to it in a round is ``round``'s.
"""

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "ALONE",
    "BERNOULLI",
    "BETA",
    "CENTRAL",
    "EXACT",
    "GAUSSIAN",
    "GOSSIP",
    "MATCHING",
    "ONE_EDGE",
    "PRESENT_EDGES",
    "PULL_TREE",
    "TIME_TREE",
    "Draws",
    "Plan",
    "State",
    "World",
    "new_state",
]

# Enumerations as plain numbers: compiled code compares them in every round.
GAUSSIAN, BERNOULLI, BETA = 0, 1, 2
ONE_EDGE, MATCHING, PRESENT_EDGES = 0, 1, 2
ALONE, GOSSIP, CENTRAL = 0, 1, 2
EXACT, PULL_TREE, TIME_TREE = 0, 1, 2


class World(NamedTuple):
    """A problem as numbers."""

    means: Any  # [N, M]
    family: int
    sigma: float
    concentration: float
    edges: Any  # [E, 2], unsigned like all stored indices (see State.arms)
    first_neighbour: Any  # [N + 1], into neighbours
    neighbours: Any
    edge_choice: int
    presence: float  # probability of each edge, for PRESENT_EDGES


class Plan(NamedTuple):
    """A policy on a problem as numbers."""

    network: int
    catches_up: bool
    mechanism: int
    share: Any  # [N]: N * weight of each agent
    sampling_constant: float
    noise_constant: float
    scale: float
    offset: float
    alpha: float
    reward_variance: float
    log_horizon: float
    epsilon: float
    noise_scale: float
    clamps: bool
    low: float
    high: float
    num_levels: int


class State(NamedTuple):
    """What the next round needs, and counters for the record."""

    theta: Any  # [N, M]
    x_mean: Any
    total: Any  # sum of an agent's rewards per arm
    n: Any
    n_max: Any  # [2, N, M]: n~(t) lies in n_max[t % 2]
    sampling: Any  # the parts of the radius that change at a pull only
    noise: Any
    slots: Any  # [N, M, levels]: noise of tree prefixes
    last_pull: Any  # [N, M]: time, for the tree over time
    arms: Any  # [N], this round's; unsigned, since compiled code tests signed indices for being negative
    x_before: Any  # [N], the pulled arm's x_mean before this round
    radius: Any  # [M], scratch
    mixed: Any  # [N, M], scratch
    degree: Any  # [N], scratch
    order: Any  # [E], scratch
    lagging_rounds: Any  # [N]
    messages: Any  # [N]


class Draws(NamedTuple):
    """Where randomness comes from: streams, or a tape."""

    edges: Any  # [1] stream
    picks: Any  # [N] streams
    rewards: Any  # [N, M] streams
    noise: Any  # [N, M] streams
    on_tape: bool
    tape_rewards: Any  # [T + 1, N, M]
    tape_edges: Any  # [T, 2]
    tape_picks: Any  # [T, N]
    tape_has_noise: bool
    tape_noise: Any  # [T + 2, N, M]: of the interval that ends at the first index


def new_state(world: World, plan: Plan) -> State:
    """Zeros of the right shapes."""
    num_agents, num_arms = shape = world.means.shape
    return State(
        theta=np.zeros(shape),
        x_mean=np.zeros(shape),
        total=np.zeros(shape),
        n=np.zeros(shape, np.int32),
        n_max=np.zeros((2, *shape), np.int32),
        sampling=np.zeros(shape),
        noise=np.zeros(shape),
        slots=np.zeros((*shape, plan.num_levels)),
        last_pull=np.zeros(shape, np.int64),
        arms=np.zeros(num_agents, np.uint64),
        x_before=np.zeros(num_agents),
        radius=np.zeros(num_arms),
        mixed=np.zeros(shape),
        degree=np.zeros(num_agents, np.int64),
        order=np.arange(len(world.edges)),
        lagging_rounds=np.zeros(num_agents, np.int64),
        messages=np.zeros(num_agents, np.int64),
    )
