"""Where the numbers of a simulation lie: a problem, a policy, a state and its randomness as arrays.

Here belongs the layout that the engines read and write; what happens to it in a round is ``round``'s.
"""

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "ALONE",
    "BATCHES",
    "BERNOULLI",
    "BETA",
    "BY_KL",
    "BY_RADIUS",
    "BY_THOMPSON",
    "CENTRAL",
    "CONSENSUS",
    "EXACT",
    "GAUSSIAN",
    "GOSSIP",
    "LAST_BATCH",
    "MATCHING",
    "NO_ELIMINATION",
    "ONE_EDGE",
    "PEERS_ELIMINATE",
    "PRESENT_EDGES",
    "PULL_TREE",
    "RADIUS_BY_DEGREE",
    "RADIUS_BY_PULLS",
    "RADIUS_BY_VARIANCE",
    "RADIUS_OF_COUNT",
    "SERVER",
    "SERVER_ELIMINATES",
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
ALONE, GOSSIP, CENTRAL, SERVER = 0, 1, 2, 3
# What an agent gossips: its sample mean, exact or private; means of batches with a weight; sums and counts.
EXACT, PULL_TREE, TIME_TREE, BATCHES, LAST_BATCH, CONSENSUS = 0, 1, 2, 3, 4, 5
BY_RADIUS, BY_THOMPSON, BY_KL = 0, 1, 2
# Where the part of a radius that only changes at a pull comes from.
RADIUS_BY_PULLS, RADIUS_BY_DEGREE, RADIUS_BY_VARIANCE, RADIUS_OF_COUNT = 0, 1, 2, 3
NO_ELIMINATION, SERVER_ELIMINATES, PEERS_ELIMINATE = 0, 1, 2


class World(NamedTuple):
    """A problem as numbers."""

    means: Any  # [N, M]
    family: int
    sigma: float
    concentration: float
    edges: Any  # [E, 2], unsigned like all stored indices (see State.arms)
    first_neighbour: Any  # [N + 1], into neighbours
    neighbours: Any
    in_step: bool
    rates: Any  # [N]: probability that an agent acts in a round, unless in_step


class Plan(NamedTuple):
    """A policy on a problem as numbers."""

    network: int
    edge_choice: int
    presence: float  # probability of each edge, for PRESENT_EDGES
    edge_weight: float  # of each present edge; 0: Metropolis
    catches_up: bool
    allowed: int  # how many pulls an agent may lag behind
    mechanism: int
    gossips_pairs: bool  # of value and weight, whose ratio is theta
    commits: bool  # an arm is pulled until its batch is full
    choice: int
    radius_kind: int
    elimination: int
    share: Any  # [N]: N * weight of each agent
    sampling_constant: float
    noise_constant: float
    scale: float
    offset: float
    alpha: float
    reward_variance: float
    learns_variance: bool
    averaging: float  # variance of theta / variance of an agent's own mean, after mixing: 1 / N
    log_horizon: float
    epsilon: float
    noise_scale: float
    noise_variance: float
    clamps: bool
    low: float
    high: float
    num_levels: int
    first_batch: int
    growth: float
    has_tail: bool
    phase: int  # pulls of an arm per phase of a server
    delay: float  # GSE's L and tau
    mixing: float


class State(NamedTuple):
    """What the next round needs, and counters for the record."""

    theta: Any  # [N, M]
    gossiped: Any  # [N, M], the same array as theta; or [N, 2 M]: values, then weights, whose ratio is theta
    x_mean: Any
    total: Any  # sum of an agent's rewards per arm; of the batch that is being filled
    n: Any
    n_max: Any  # [2, N, M]: n~(t) lies in n_max[t % 2]
    sampling: Any  # the parts of the radius that change at a pull only
    noise: Any
    slope: Any
    level: Any
    deviation: Any  # for Thompson sampling
    worth: Any  # for the index by divergence: how many rewards theta is worth
    slots: Any  # [N, M, levels]: noise of tree prefixes
    last_pull: Any  # [N, M]: time, for the tree over time
    batch_end: Any  # [N, M]: the pull that fills the batch
    released: Any  # [N, M]: pulls released so far
    releases: Any  # [N, M]
    precision: Any  # [N, M]: sum of 1/v of releases
    square: Any  # [N, M]: sum of 1/(v^2 m) of releases
    eligible: Any  # [N, M]: arms that are tried in turn: unknown ones; those not eliminated
    num_eligible: Any  # [N]
    clock: Any  # [N]: own pulls since t = 0
    acts: Any  # [N]: whether the agent acts in this round
    committed: Any  # [N]: pulls still to come of the present arm
    phase_end: Any  # [1]: pulls of each live arm when a server last spoke
    arms: Any  # [N], this round's; unsigned, since compiled code tests signed indices for being negative
    x_before: Any  # [N], the pulled arm's x_mean before this round
    radius: Any  # [M], scratch
    mixed: Any  # like gossiped, scratch
    degree: Any  # [N], scratch
    order: Any  # [E], scratch
    lagging_rounds: Any  # [N]
    messages: Any  # [N]


class Draws(NamedTuple):
    """Where randomness comes from: streams, or a tape."""

    edges: Any  # [1] stream
    picks: Any  # [N] streams
    arrivals: Any  # [N] streams
    normals: Any  # [N, M] streams
    rewards: Any  # [N, M] streams
    noise: Any  # [N, M] streams
    on_tape: bool
    tape_rewards: Any  # [T + 1, N, M]
    tape_edges: Any  # [T, 2]
    tape_picks: Any  # [T, N]
    tape_has_noise: bool
    tape_noise: Any  # [T + 2, N, M]: of the interval that ends at the first index
    tape_has_normals: bool
    tape_normals: Any  # [T, N, M]


def new_state(world: World, plan: Plan) -> State:
    """Zeros of the right shapes."""
    num_agents, num_arms = shape = world.means.shape
    theta = np.zeros(shape)
    waits = plan.mechanism in (BATCHES, LAST_BATCH) or plan.elimination != NO_ELIMINATION
    gossiped = np.zeros((num_agents, 2 * num_arms)) if plan.gossips_pairs else theta
    return State(
        theta=theta,
        gossiped=gossiped,
        x_mean=np.zeros(shape),
        total=np.zeros(shape),
        n=np.zeros(shape, np.int32),
        n_max=np.zeros((2, *shape), np.int32),
        sampling=np.zeros(shape),
        noise=np.zeros(shape),
        slope=np.zeros(shape),
        level=np.zeros(shape),
        deviation=np.zeros(shape),
        worth=np.ones(shape),
        slots=np.zeros((*shape, plan.num_levels)),
        last_pull=np.zeros(shape, np.int64),
        batch_end=np.full(shape, plan.first_batch, np.int32),
        released=np.zeros(shape, np.int32),
        releases=np.zeros(shape, np.int32),
        precision=np.zeros(shape),
        square=np.zeros(shape),
        eligible=np.full(shape, waits),
        num_eligible=np.full(num_agents, num_arms if waits else 0, np.int64),
        clock=np.zeros(num_agents, np.int64),
        acts=np.ones(num_agents, np.bool_),
        committed=np.zeros(num_agents, np.int64),
        phase_end=np.zeros(1, np.int64),
        arms=np.zeros(num_agents, np.uint64),
        x_before=np.zeros(num_agents),
        radius=np.zeros(num_arms),
        mixed=np.zeros_like(gossiped),
        degree=np.zeros(num_agents, np.int64),
        order=np.arange(len(world.edges)),
        lagging_rounds=np.zeros(num_agents, np.int64),
        messages=np.zeros(num_agents, np.int64),
    )
