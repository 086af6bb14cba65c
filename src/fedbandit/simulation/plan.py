"""From problems and policies to the numbers that the engines read.

Here belongs what a policy means on a problem (noise scale, clamping, shares), decided once before the
first round, and refused here if it makes no sense.
"""

import warnings
from math import ceil, inf, log

import numpy as np
from numpy.typing import NDArray

from fedbandit.baselines import GSE, AdaPUCB, CentralUCB, CoopUCB2, DistUCB, Fed1UCB, LocalUCB
from fedbandit.checks import InvalidArgument, instance
from fedbandit.graph import Graph
from fedbandit.policy import FedBatch, FedUCB, GossipUCB, Policy, PrivacyWarning
from fedbandit.problem import Problem
from fedbandit.rules.batch import default_first_batch, laplace_variance, largest_reward_variance
from fedbandit.rules.mean import epsilon_per_node, paper_epsilon_per_node
from fedbandit.rules.radius import CALIBRATED_ALPHA, alpha1
from fedbandit.simulation.state import (
    ALONE,
    BATCHES,
    BERNOULLI,
    BETA,
    BY_KL,
    BY_RADIUS,
    BY_THOMPSON,
    CENTRAL,
    CONSENSUS,
    EXACT,
    GAUSSIAN,
    GOSSIP,
    LAST_BATCH,
    MATCHING,
    NO_ELIMINATION,
    ONE_EDGE,
    PEERS_ELIMINATE,
    PRESENT_EDGES,
    PULL_TREE,
    RADIUS_BY_DEGREE,
    RADIUS_BY_PULLS,
    RADIUS_BY_VARIANCE,
    RADIUS_OF_COUNT,
    SERVER,
    SERVER_ELIMINATES,
    TIME_TREE,
    Plan,
    World,
)

__all__ = ["plan_of", "world_of"]

_FAMILIES = {"gaussian": GAUSSIAN, "bernoulli": BERNOULLI, "beta": BETA}
_INDICES = {"ucb": BY_RADIUS, "thompson": BY_THOMPSON, "kl": BY_KL}


def world_of(problem: Problem) -> World:
    """A problem as numbers."""
    first_neighbour, neighbours = _adjacency(problem.graph)
    return World(
        means=np.ascontiguousarray(problem.means).copy(),
        family=_FAMILIES[problem.family],
        sigma=float(problem.sigma),
        concentration=float(problem.concentration),
        edges=np.array(problem.graph.edges, np.uint32),
        first_neighbour=first_neighbour,
        neighbours=neighbours,
        in_step=problem.rates is None,
        rates=np.ones(problem.num_agents) if problem.rates is None else problem.rates.copy(),
    )


def _adjacency(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    counts = [len(agents) for agents in graph.neighbours]
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return first, np.concatenate(graph.neighbours).astype(np.uint32)


def plan_of(policy: Policy, problem: Problem, horizon: int) -> Plan:
    """What a policy does on a problem, as numbers."""
    instance("policy", policy, Policy, "a policy, such as FedBatch(epsilon=1.0) or GossipUCB()")
    plain = _plain(problem, horizon)
    num_agents, num_arms = problem.means.shape
    every_link = {"edge_choice": PRESENT_EDGES, "presence": 1.0}
    match policy:
        case GossipUCB():
            return plain
        case FedUCB():
            return _tree(plain, policy, problem, horizon)
        case FedBatch():
            return _batches(plain, policy, problem)
        case LocalUCB():
            return plain._replace(network=ALONE, catches_up=False, share=np.ones(num_agents), offset=0.0)
        case CentralUCB():
            if policy.index == "kl":
                _needs_range(policy, problem)
            return plain._replace(
                network=CENTRAL,
                catches_up=False,
                choice=_INDICES[policy.index],
                radius_kind=RADIUS_BY_VARIANCE,
                scale=1.0,
                offset=0.0,
                alpha=float(policy.alpha),
                learns_variance=policy.learns_variance and problem.family != "gaussian",
            )
        case DistUCB():
            return plain._replace(radius_kind=RADIUS_BY_DEGREE, offset=0.0, allowed=num_arms - 1, **every_link)
        case CoopUCB2():
            return plain._replace(
                mechanism=CONSENSUS,
                gossips_pairs=True,
                radius_kind=RADIUS_OF_COUNT,
                catches_up=False,
                share=np.ones(num_agents),  # it weighs by pulls, whatever counts
                **every_link,
            )
        case AdaPUCB():
            return _episodes(plain, policy, problem)
        case Fed1UCB():
            _needs_step(policy, problem)
            return plain._replace(
                network=SERVER, elimination=SERVER_ELIMINATES, catches_up=False, phase=ceil(10.0 * log(max(horizon, 2)))
            )
        case GSE():
            _needs_step(policy, problem)
            complete = len(problem.graph.edges) == num_agents * (num_agents - 1) // 2
            return plain._replace(
                elimination=PEERS_ELIMINATE,
                catches_up=False,
                edge_choice=PRESENT_EDGES,
                presence=policy.present,
                edge_weight=1.0 / num_agents,
                delay=num_arms * log(horizon) / policy.present,
                mixing=(1 if complete else num_agents) * log(horizon) / policy.present,
            )


def _plain(problem: Problem, horizon: int) -> Plan:
    """Gossip_UCB; the other policies are told by how they differ from it."""
    num_agents = problem.num_agents
    low, high = problem.reward_range or (0.0, 1.0)  # without a range nothing is clamped
    shares = num_agents * problem.weights
    if np.all(problem.weights == problem.weights[0]):
        shares = np.ones(num_agents)  # exactly the paper's update, whatever N * (1 / N) rounds to
    edge_choice, presence = PRESENT_EDGES, 1.0
    if problem.edges_per_round == "one":
        edge_choice = ONE_EDGE
    elif problem.edges_per_round == "matching":
        edge_choice = MATCHING
    elif problem.edges_per_round != "all":
        presence = float(problem.edges_per_round)
    return Plan(
        network=GOSSIP,
        edge_choice=edge_choice,
        presence=presence,
        edge_weight=0.0,
        catches_up=True,
        allowed=num_agents,
        mechanism=EXACT,
        gossips_pairs=False,
        commits=False,
        choice=BY_RADIUS,
        radius_kind=RADIUS_BY_PULLS,
        elimination=NO_ELIMINATION,
        share=shares,
        sampling_constant=float(np.sum(shares**2)) / num_agents,
        noise_constant=0.0,
        scale=float(problem.sigma) if problem.family == "gaussian" else high - low,
        offset=alpha1(num_agents),
        alpha=CALIBRATED_ALPHA,
        reward_variance=float(problem.reward_variance),
        learns_variance=False,
        averaging=float(np.sum(problem.weights**2)),
        log_horizon=log(horizon),
        epsilon=inf,
        noise_scale=0.0,
        noise_variance=0.0,
        clamps=False,
        low=low,
        high=high,
        num_levels=1,
        first_batch=1,
        growth=2.0,
        has_tail=False,
        phase=1,
        delay=0.0,
        mixing=0.0,
    )


def _tree(plain: Plan, policy: FedUCB, problem: Problem, horizon: int) -> Plan:
    """Fed_UCB: a tree of partial sums, radius C~."""
    if policy.horizon is not None and horizon > policy.horizon:
        raise InvalidArgument(
            "horizon", horizon, f"at most the policy's own ({policy.horizon}): past it the tree's epsilon is spent"
        )
    tuned = plain._replace(
        sampling_constant=policy.sampling_constant * plain.sampling_constant,
        noise_constant=float(policy.noise_constant),
    )
    if policy.epsilon == inf:
        return tuned  # "Gossip_UCB is a special case of Fed_UCB when epsilon is infinity"
    known = policy.horizon or horizon
    if policy.paper:
        return tuned._replace(
            mechanism=TIME_TREE,
            epsilon=policy.epsilon,
            log_horizon=log(known),
            noise_scale=1.0 / paper_epsilon_per_node(policy.epsilon, known),
            num_levels=known.bit_length() + 1,
        )
    sensitivity = _sensitivity(policy, problem)
    max_pulls = known + 1  # the pull at t = 0 and one in each round
    return tuned._replace(
        mechanism=PULL_TREE,
        epsilon=policy.epsilon * plain.scale / sensitivity,  # C~ is for sensitivity 1, in units of the scale
        log_horizon=log(known),
        noise_scale=sensitivity / epsilon_per_node(policy.epsilon, max_pulls),
        clamps=problem.reward_range is not None,
        num_levels=max_pulls.bit_length(),
    )


def _batches(plain: Plan, policy: FedBatch, problem: Problem) -> Plan:
    """FedBatch: means of batches with their weights, calibrated or safe."""
    if policy.index == "kl":
        _needs_range(policy, problem)
    mean = _batch_mean(plain, policy.epsilon, _sensitivity(policy, problem), problem)._replace(
        mechanism=BATCHES,
        catches_up=policy.catches_up,
        choice=_INDICES[policy.index],
        first_batch=policy.first_batch or default_first_batch(policy.epsilon),
        growth=float(policy.growth),
    )
    if policy.sigma is not None:
        mean = mean._replace(reward_variance=float(policy.sigma) ** 2, learns_variance=False)
    if policy.radius == "safe":
        return mean._replace(has_tail=True, scale=plain.scale, offset=plain.offset)
    return mean


def _episodes(plain: Plan, policy: AdaPUCB, problem: Problem) -> Plan:
    """AdaP-UCB: doubling episodes, of which the last one counts."""
    mean = _batch_mean(plain, policy.epsilon, _sensitivity(policy, problem), problem)
    return mean._replace(mechanism=LAST_BATCH, catches_up=False, commits=True)


def _batch_mean(plain: Plan, epsilon: float, sensitivity: float, problem: Problem) -> Plan:
    """What is common to policies that release batches: a calibrated radius and pairs of value and weight."""
    noise_scale = sensitivity / epsilon
    clamps = problem.reward_range is not None and epsilon < inf
    bounded = clamps or problem.family != "gaussian"
    most = largest_reward_variance(plain.low, plain.high)  # of what is clamped, whatever the world's sigma is
    return plain._replace(
        gossips_pairs=True,
        radius_kind=RADIUS_BY_VARIANCE,
        scale=1.0,
        offset=0.0,
        reward_variance=min(plain.reward_variance, most) if bounded else plain.reward_variance,
        learns_variance=bounded,
        epsilon=epsilon,
        noise_scale=noise_scale,
        noise_variance=laplace_variance(noise_scale),
        clamps=clamps,
    )


def _sensitivity(policy: FedUCB | FedBatch | AdaPUCB, problem: Problem) -> float:
    """How far one changed reward can move a sum of rewards."""
    if problem.reward_range is not None:
        low, high = problem.reward_range
        return high - low
    if policy.epsilon == inf:
        return 1.0  # nothing is promised, so nothing depends on it
    if policy.assume_sensitivity is None:
        raise InvalidArgument(
            "reward_range",
            None,
            f"declared for {policy.label}",
            f"{problem.family.capitalize()} rewards are unbounded, so that one reward can move a sum by any amount "
            "and no noise hides it. Give the problem a reward_range=(low, high), to which rewards are clamped, or opt "
            "out with assume_sensitivity=1.0 as the paper does (epsilon then does not hold).",
        )
    warnings.warn(
        f"{policy.label} with assume_sensitivity={policy.assume_sensitivity:g} on unbounded {problem.family} "
        "rewards: epsilon does not hold, since a reward can move a sum by more than that.",
        PrivacyWarning,
        stacklevel=6,  # the caller of simulate
    )
    return float(policy.assume_sensitivity)


def _needs_range(policy: FedBatch | CentralUCB, problem: Problem) -> None:
    """The index by divergence is for rewards in [0, 1]."""
    if problem.reward_range != (0.0, 1.0):
        raise InvalidArgument(
            "reward_range",
            problem.reward_range,
            f"(0, 1) for {policy.label}: its divergence is that of Bernoulli rewards",
        )


def _needs_step(policy: Fed1UCB | GSE, problem: Problem) -> None:
    if problem.rates is not None:
        raise InvalidArgument("rates", problem.rates.tolist(), f"left out for {policy.label}, whose agents act in step")
