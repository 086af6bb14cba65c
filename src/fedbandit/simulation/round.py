"""One round of all agents in compiled code: who reads what when.

Here belongs the order of events; no formula: those are the rules'. ``play_round`` runs under
both drivers, the trials of ``cpu`` and the tapes of ``replay``.
"""

from math import log
from typing import Any

import numpy as np

from fedbandit.rules.choose import choose, count_lagging
from fedbandit.rules.gossip import average, heard, metropolis_weight, with_news
from fedbandit.rules.mean import clamp, pull_tree_add, time_tree_add, time_tree_first_new
from fedbandit.rules.radius import central_sampling, gossip_sampling, local_sampling, private_noise, radius
from fedbandit.simulation.compiled import compile_inner
from fedbandit.simulation.state import (
    ALONE,
    BERNOULLI,
    CENTRAL,
    EXACT,
    GAUSSIAN,
    GOSSIP,
    MATCHING,
    ONE_EDGE,
    PULL_TREE,
)
from fedbandit.simulation.streams import (
    EDGES,
    NOISE,
    PICKS,
    REWARDS,
    beta,
    draw,
    laplace,
    next_bits,
    standard_normal,
    stream,
    uniform,
    whole_below,
)

__all__ = ["name_streams", "play_round", "pull_every_arm_once"]


@compile_inner
def name_streams(seed: Any, trial: Any, draws: Any) -> None:
    """Fill in the streams of a trial: edges, picks per agent, rewards and noise per agent and arm."""
    num_agents, num_arms = draws.rewards.shape
    draws.edges[0] = stream(seed, trial, EDGES, 0, 0)
    for i in range(num_agents):
        draws.picks[i] = stream(seed, trial, PICKS, i, 0)
        for k in range(num_arms):
            draws.rewards[i, k] = stream(seed, trial, REWARDS, i, k)
            draws.noise[i, k] = stream(seed, trial, NOISE, i, k)


@compile_inner
def _reward(world: Any, draws: Any, t: int, i: int, k: int, earlier_pulls: int) -> Any:
    if draws.on_tape:
        return draws.tape_rewards[t, i, k]
    bits = draw(draws.rewards[i, k], earlier_pulls)
    mean = world.means[i, k]
    if world.family == GAUSSIAN:
        return mean + world.sigma * standard_normal(bits)
    if world.family == BERNOULLI:
        return 1.0 if uniform(bits) < mean else 0.0
    return beta(bits, mean * world.concentration, (1.0 - mean) * world.concentration)


@compile_inner
def _noise(plan: Any, draws: Any, i: int, k: int, end: int) -> Any:
    """The noise of the interval that ends at ``end``: always the same one, never drawn anew."""
    if draws.tape_has_noise:
        return plan.noise_scale * draws.tape_noise[end, i, k]
    return plan.noise_scale * laplace(draw(draws.noise[i, k], end))


@compile_inner
def _private_total(state: Any, plan: Any, draws: Any, t: int, i: int, arm: Any) -> Any:
    """The arm's sum of rewards with the noise of its tree (Algorithm 3)."""
    slots = state.slots[i, arm]
    if plan.mechanism == PULL_TREE:
        n = state.n[i, arm]
        return state.total[i, arm] + pull_tree_add(slots, n, _noise(plan, draws, i, arm, n))
    if t == 0:
        return state.total[i, arm]  # Alg. 4, line 1, as printed: the first reward goes out raw
    last = state.last_pull[i, arm]
    first_new = time_tree_first_new(t, last)
    fresh_first = _noise(plan, draws, i, arm, first_new) if first_new != t else 0.0
    state.last_pull[i, arm] = t
    return state.total[i, arm] + time_tree_add(slots, t, last, fresh_first, _noise(plan, draws, i, arm, t))


@compile_inner
def _pull(state: Any, world: Any, plan: Any, draws: Any, t: int, i: int, arm: Any) -> None:
    """Algorithm 1, lines 15-16: observe, count, update the sample mean and the parts of the radius."""
    num_agents = len(state.n)
    reward = _reward(world, draws, t, i, arm, state.n[i, arm])
    if plan.clamps:
        reward = clamp(reward, plan.low, plan.high)
    state.total[i, arm] += reward
    state.n[i, arm] += 1
    n = state.n[i, arm]
    if plan.mechanism == EXACT:
        state.x_mean[i, arm] = state.total[i, arm] / n
    else:
        state.x_mean[i, arm] = _private_total(state, plan, draws, t, i, arm) / n
        noised = n if plan.mechanism == PULL_TREE else n - 1
        state.noise[i, arm] = private_noise(n, noised, num_agents, plan.log_horizon, plan.epsilon, plan.noise_constant)
    if plan.network == GOSSIP:
        state.sampling[i, arm] = gossip_sampling(n, num_agents, plan.sampling_constant)
    elif plan.network == ALONE:
        state.sampling[i, arm] = local_sampling(n)


@compile_inner
def _average_pair(state: Any, i: int, j: int) -> None:
    theta = state.theta
    for k in range(theta.shape[1]):
        mixed = average(theta[i, k], theta[j, k])
        theta[i, k] = mixed
        theta[j, k] = mixed
    state.messages[i] += 1
    state.messages[j] += 1


@compile_inner
def _average_matching(state: Any, world: Any, bits: Any) -> None:
    """A random maximal matching: edges in random order, each taken if both its ends are still free."""
    order, busy = state.order, state.degree
    for i in range(len(busy)):
        busy[i] = 0
    for position in range(len(order) - 1, -1, -1):
        bits = next_bits(bits)
        other = whole_below(bits, position + 1)
        order[position], order[other] = order[other], order[position]
        i, j = world.edges[order[position], 0], world.edges[order[position], 1]
        if busy[i] == 0 and busy[j] == 0:
            busy[i], busy[j] = 1, 1
            _average_pair(state, i, j)
    for e in range(len(order)):
        order[e] = e  # the next round's matching must not depend on this one's


@compile_inner
def _average_present(state: Any, world: Any, bits: Any) -> None:
    """Every edge is present with some probability; all present ones average at once."""
    present, degree, theta, mixed = state.order, state.degree, state.theta, state.mixed
    for i in range(len(degree)):
        degree[i] = 0
    for e in range(len(present)):
        bits = next_bits(bits)
        present[e] = uniform(bits) < world.presence
        if present[e]:
            degree[world.edges[e, 0]] += 1
            degree[world.edges[e, 1]] += 1
    for i in range(len(degree)):
        for k in range(theta.shape[1]):
            mixed[i, k] = theta[i, k]
    for e in range(len(present)):
        if present[e]:
            i, j = world.edges[e, 0], world.edges[e, 1]
            weight = metropolis_weight(degree[i], degree[j])
            for k in range(theta.shape[1]):
                step = weight * (theta[j, k] - theta[i, k])
                mixed[i, k] += step
                mixed[j, k] -= step
    for i in range(len(degree)):
        state.messages[i] += degree[i]
        for k in range(theta.shape[1]):
            theta[i, k] = mixed[i, k]


@compile_inner
def _exchange(state: Any, world: Any, draws: Any, t: int) -> None:
    """Algorithm 1, lines 17-20: active edges average theta(t-1)."""
    bits = draw(draws.edges[0], t)
    if draws.on_tape:
        _average_pair(state, draws.tape_edges[t - 1, 0], draws.tape_edges[t - 1, 1])
    elif world.edge_choice == ONE_EDGE:
        e = whole_below(bits, len(world.edges))
        _average_pair(state, world.edges[e, 0], world.edges[e, 1])
    elif world.edge_choice == MATCHING:
        _average_matching(state, world, bits)
    else:
        _average_present(state, world, bits)


@compile_inner
def _pool(state: Any, plan: Any, arm: int) -> None:
    """The centralised baseline: everyone sees the weighted mean of all agents' means of an arm."""
    num_agents = len(state.n)
    mean, variance = 0.0, 0.0
    for j in range(num_agents):
        weight = plan.share[j] / num_agents
        mean += weight * state.x_mean[j, arm]
        variance += weight * weight * plan.reward_variance / state.n[j, arm]
    for i in range(num_agents):
        state.theta[i, arm] = mean
        state.sampling[i, arm] = central_sampling(plan.alpha, variance)


@compile_inner
def pull_every_arm_once(state: Any, world: Any, plan: Any, draws: Any) -> None:
    """Algorithm 1, line 1: t = 0."""
    num_agents, num_arms = state.n.shape
    for i in range(num_agents):
        for k in range(num_arms):
            _pull(state, world, plan, draws, 0, i, k)
            state.theta[i, k] = plan.share[i] * state.x_mean[i, k]
            state.n_max[0, i, k] = 1
            state.n_max[1, i, k] = 1  # Eq. (1) at t = 0
    if plan.network == CENTRAL:
        for k in range(num_arms):
            _pool(state, plan, k)


@compile_inner
def _hear(state: Any, world: Any, i: int, t: int) -> None:
    """Algorithm 1, line 5: n~(t+1) from the own count before this round's pull and neighbours' n~(t)."""
    n, now, then = state.n[i], state.n_max[t & 1], state.n_max[(t + 1) & 1, i]
    known = n
    last = world.first_neighbour[i + 1] - 1
    for e in range(world.first_neighbour[i], last + 1, 2):  # two at a time: half the passes over the arms
        one, other = now[world.neighbours[e]], now[world.neighbours[min(e + 1, last)]]
        for k in range(len(n)):
            then[k] = heard(heard(known[k], one[k]), other[k])
        known = then


@compile_inner
def play_round(t: int, state: Any, world: Any, plan: Any, draws: Any) -> None:
    """Round t >= 1 of all agents (Algorithm 1, lines 3-23)."""
    num_agents, num_arms = state.n.shape
    log_t = log(t)
    for i in range(num_agents):
        n, n_max = state.n[i], state.n_max[t & 1, i]
        lagging = 0
        if plan.catches_up:
            _hear(state, world, i, t)
            lagging = count_lagging(n, n_max, num_agents)
        u = 0.0
        if lagging > 0:
            u = draws.tape_picks[t - 1, i] if draws.on_tape else uniform(draw(draws.picks[i], t))
            state.lagging_rounds[i] += 1
        else:
            for k in range(num_arms):
                state.radius[k] = radius(state.sampling[i, k], state.noise[i, k], log_t, plan.scale, plan.offset)
        arm = np.uint64(choose(state.theta[i], state.radius, n, n_max, num_agents, lagging, u))
        state.arms[i] = arm
        state.x_before[i] = state.x_mean[i, arm]
        _pull(state, world, plan, draws, t, i, arm)
    if plan.network == CENTRAL:
        _pool(state, plan, state.arms[0])  # all see the same, so all chose the same
        for i in range(num_agents):
            state.messages[i] += num_agents - 1
        return
    if plan.network == GOSSIP:
        _exchange(state, world, draws, t)
    for i in range(num_agents):
        arm = state.arms[i]
        state.theta[i, arm] = with_news(state.theta[i, arm], state.x_mean[i, arm], state.x_before[i], plan.share[i])
