"""From problems and policies to the numbers that the engines read.

Here belongs what a policy means on a problem (noise scale, clamping, shares), decided once before the
first round, and refused here if it makes no sense.
"""

import warnings
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, instance
from fedbandit.graph import Graph
from fedbandit.policy import CentralUCB, FedUCB, GossipUCB, LocalUCB, Policy, PrivacyWarning
from fedbandit.problem import Problem
from fedbandit.rules.mean import epsilon_per_node, paper_epsilon_per_node
from fedbandit.rules.radius import alpha1
from fedbandit.simulation.state import (
    ALONE,
    BERNOULLI,
    BETA,
    CENTRAL,
    EXACT,
    GAUSSIAN,
    GOSSIP,
    MATCHING,
    ONE_EDGE,
    PRESENT_EDGES,
    PULL_TREE,
    TIME_TREE,
    Plan,
    World,
)

__all__ = ["plan_of", "world_of"]

_FAMILIES = {"gaussian": GAUSSIAN, "bernoulli": BERNOULLI, "beta": BETA}


def world_of(problem: Problem) -> World:
    """A problem as numbers."""
    edge_choice, presence = PRESENT_EDGES, 1.0
    if problem.edges_per_round == "one":
        edge_choice = ONE_EDGE
    elif problem.edges_per_round == "matching":
        edge_choice = MATCHING
    elif problem.edges_per_round != "all":
        presence = float(problem.edges_per_round)
    first_neighbour, neighbours = _adjacency(problem.graph)
    return World(
        means=np.ascontiguousarray(problem.means).copy(),
        family=_FAMILIES[problem.family],
        sigma=float(problem.sigma),
        concentration=float(problem.concentration),
        edges=np.array(problem.graph.edges, np.uint32),
        first_neighbour=first_neighbour,
        neighbours=neighbours,
        edge_choice=edge_choice,
        presence=presence,
    )


def _adjacency(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    counts = [len(agents) for agents in graph.neighbours]
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return first, np.concatenate(graph.neighbours).astype(np.uint32)


def plan_of(policy: Policy, problem: Problem, horizon: int) -> Plan:
    """What a policy does on a problem, as numbers."""
    instance("policy", policy, Policy, "a policy: GossipUCB, FedUCB, LocalUCB or CentralUCB")
    num_agents = problem.num_agents
    low, high = problem.reward_range or (0.0, 1.0)  # without a range nothing is clamped
    shares = num_agents * problem.weights
    if np.all(problem.weights == problem.weights[0]):
        shares = np.ones(num_agents)  # exactly the paper's update, whatever N * (1 / N) rounds to
    plain = Plan(
        network=GOSSIP,
        catches_up=True,
        mechanism=EXACT,
        share=shares,
        sampling_constant=float(np.sum(shares**2)) / num_agents,
        noise_constant=0.0,
        scale=problem.sigma if problem.family == "gaussian" else high - low,
        offset=alpha1(num_agents),
        alpha=0.0,
        reward_variance=problem.reward_variance,
        log_horizon=log(horizon),
        epsilon=inf,
        noise_scale=0.0,
        clamps=False,
        low=low,
        high=high,
        num_levels=1,
    )
    match policy:
        case GossipUCB():
            return plain
        case FedUCB():
            return _private(plain, policy, problem, horizon)
        case LocalUCB():
            return plain._replace(network=ALONE, catches_up=False, share=np.ones(num_agents), offset=0.0)
        case CentralUCB():
            return plain._replace(network=CENTRAL, catches_up=False, scale=1.0, offset=0.0, alpha=float(policy.alpha))


def _private(plain: Plan, policy: FedUCB, problem: Problem, horizon: int) -> Plan:
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


def _sensitivity(policy: FedUCB, problem: Problem) -> float:
    """How far one changed reward can move a sum of rewards."""
    if problem.reward_range is not None:
        low, high = problem.reward_range
        return high - low
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
