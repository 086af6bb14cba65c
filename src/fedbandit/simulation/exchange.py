"""What agents do to each other's numbers in a round, in compiled code.

Here belong edges, averages over them, the pool of the centralised baseline and the eliminations of those
baselines that drop arms; formulas are the rules'.
"""

from math import inf
from typing import Any

from fedbandit.rules.batch import learnt_reward_variance
from fedbandit.rules.gossip import average, is_known, metropolis_weight, ratio, with_news
from fedbandit.rules.radius import elimination_radius, gse_radius, is_beaten
from fedbandit.simulation.compiled import compile_inner, compile_rare
from fedbandit.simulation.pull import trust
from fedbandit.simulation.state import BATCHES, CONSENSUS, LAST_BATCH, MATCHING, ONE_EDGE
from fedbandit.simulation.streams import draw, next_bits, uniform, whole_below

__all__ = ["add_news", "drop_beaten_arms", "drop_by_server", "exchange", "judge", "pool"]


@compile_inner
def judge(state: Any, plan: Any, i: int) -> None:
    """Where value and weight are gossiped: the agent's estimates, and the arms of which it knows nothing yet."""
    num_agents, num_arms = state.theta.shape
    value, weight, theta = state.gossiped[i, :num_arms], state.gossiped[i, num_arms:], state.theta[i]
    if plan.mechanism == CONSENSUS:
        for k in range(num_arms):
            theta[k] = ratio(value[k], weight[k])
        return
    unknown = 0
    for k in range(num_arms):
        known = is_known(weight[k], state.releases[i, k], plan.share[i], num_agents)
        state.eligible[i, k] = not known
        if known:
            theta[k] = ratio(value[k], weight[k])
        else:
            unknown += 1
    state.num_eligible[i] = unknown


@compile_inner
def _average_pair(state: Any, i: int, j: int) -> None:
    gossiped = state.gossiped
    for c in range(gossiped.shape[1]):
        mixed = average(gossiped[i, c], gossiped[j, c])
        gossiped[i, c] = mixed
        gossiped[j, c] = mixed
    state.messages[i] += 1
    state.messages[j] += 1


@compile_inner
def _average_and_judge(state: Any, plan: Any, i: int, j: int) -> None:
    _average_pair(state, i, j)
    if plan.gossips_pairs:
        judge(state, plan, i)
        judge(state, plan, j)


@compile_rare
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


@compile_rare
def _average_present(state: Any, world: Any, plan: Any, bits: Any) -> None:
    """Every edge is present with some probability; all present ones average at once."""
    present, degree, gossiped, mixed = state.order, state.degree, state.gossiped, state.mixed
    for i in range(len(degree)):
        degree[i] = 0
    for e in range(len(present)):
        bits = next_bits(bits)
        present[e] = uniform(bits) < plan.presence
        if present[e]:
            degree[world.edges[e, 0]] += 1
            degree[world.edges[e, 1]] += 1
    for i in range(len(degree)):
        for c in range(gossiped.shape[1]):
            mixed[i, c] = gossiped[i, c]
    for e in range(len(present)):
        if present[e]:
            i, j = world.edges[e, 0], world.edges[e, 1]
            weight = plan.edge_weight if plan.edge_weight > 0.0 else metropolis_weight(degree[i], degree[j])
            for c in range(gossiped.shape[1]):
                step = weight * (gossiped[j, c] - gossiped[i, c])
                mixed[i, c] += step
                mixed[j, c] -= step
    for i in range(len(degree)):
        state.messages[i] += degree[i]
        for c in range(gossiped.shape[1]):
            gossiped[i, c] = mixed[i, c]


@compile_inner
def exchange(state: Any, world: Any, plan: Any, draws: Any, t: int) -> None:
    """Algorithm 1, lines 17-20: active edges average what was gossiped up to t - 1."""
    bits = draw(draws.edges[0], t)
    if plan.edge_choice == ONE_EDGE:
        if draws.on_tape:
            _average_and_judge(state, plan, draws.tape_edges[t - 1, 0], draws.tape_edges[t - 1, 1])
        else:
            e = whole_below(bits, len(world.edges))
            _average_and_judge(state, plan, world.edges[e, 0], world.edges[e, 1])
        return
    if plan.edge_choice == MATCHING:
        _average_matching(state, world, bits)
    else:
        _average_present(state, world, plan, bits)
    if plan.gossips_pairs:
        for i in range(len(state.n)):
            judge(state, plan, i)


@compile_inner
def add_news(state: Any, plan: Any, i: int, arm: Any) -> None:
    """Algorithm 1, lines 20 and 22: what this round's pull changed in the agent's own mean."""
    if plan.mechanism != BATCHES and plan.mechanism != LAST_BATCH:
        theta = state.theta
        theta[i, arm] = with_news(theta[i, arm], state.x_mean[i, arm], state.x_before[i], plan.share[i])
    elif state.released[i, arm] == state.n[i, arm]:  # else the batch is not full: nothing new to tell
        _tell_release(state, plan, i, arm)


@compile_rare
def _tell_release(state: Any, plan: Any, i: int, arm: Any) -> None:
    gossiped, num_arms = state.gossiped, state.theta.shape[1]
    if state.releases[i, arm] == 1:
        gossiped[i, num_arms + arm] += plan.share[i]
    gossiped[i, arm] = with_news(gossiped[i, arm], state.x_mean[i, arm], state.x_before[i], plan.share[i])
    judge(state, plan, i)


@compile_inner
def pool(state: Any, plan: Any, arm: int) -> None:
    """The centralised baseline: everyone sees the weighted mean of all agents' means of an arm."""
    num_agents = len(state.n)
    mean, variance, rewards = 0.0, 0.0, 0.0
    for j in range(num_agents):
        weight, x_mean, n = plan.share[j] / num_agents, state.x_mean[j, arm], state.n[j, arm]
        mean += weight * x_mean
        one = plan.reward_variance
        if plan.learns_variance:
            one = learnt_reward_variance(x_mean, one / n, plan.low, plan.high, one)
        variance += weight * weight * one / n
        rewards += weight * weight / n
    for i in range(num_agents):
        state.theta[i, arm] = mean
        state.worth[i, arm] = 1.0 / rewards
        trust(state, plan, i, arm, variance)


@compile_rare
def drop_by_server(state: Any, plan: Any) -> None:
    """Fed1-UCB: at the end of a phase the server averages, drops beaten arms and tells everyone."""
    num_agents, num_arms = state.n.shape
    eligible = state.eligible
    fewest = 1 << 62
    for i in range(num_agents):
        for k in range(num_arms):
            if eligible[i, k] and state.n[i, k] < fewest:
                fewest = state.n[i, k]
    if state.num_eligible[0] == 1 or fewest < state.phase_end[0] + plan.phase:
        return
    state.phase_end[0] = fewest
    best_lower = -inf
    radius = plan.scale * elimination_radius(fewest, num_agents, plan.log_horizon)
    for k in range(num_arms):
        if eligible[0, k]:
            pool(state, plan, k)
            best_lower = max(best_lower, state.theta[0, k] - radius)
    for k in range(num_arms):
        if eligible[0, k] and is_beaten(state.theta[0, k], radius, best_lower):
            for i in range(num_agents):
                eligible[i, k] = False
                state.num_eligible[i] -= 1
    for i in range(num_agents):
        state.messages[i] += 1


@compile_rare
def drop_beaten_arms(state: Any, world: Any, plan: Any) -> None:
    """GSE: each agent drops the arms that its estimates rule out, and those that a neighbour on a present edge dropped.

    ``state.order`` still tells which edges were present in this round's exchange.
    """
    num_agents, num_arms = state.n.shape
    eligible, radius = state.eligible, state.radius
    for e in range(len(state.order)):
        if state.order[e]:
            i, j = world.edges[e, 0], world.edges[e, 1]
            for k in range(num_arms):
                if eligible[i, k] != eligible[j, k]:
                    _drop(state, i, k)
                    _drop(state, j, k)
    for i in range(num_agents):
        if state.num_eligible[i] > 1:
            best_lower = -inf
            for k in range(num_arms):
                radius[k] = plan.scale * gse_radius(
                    state.n[i, k], num_agents, plan.log_horizon, plan.delay, plan.mixing
                )
                if eligible[i, k]:
                    best_lower = max(best_lower, state.theta[i, k] - radius[k])
            for k in range(num_arms):
                if eligible[i, k] and is_beaten(state.theta[i, k], radius[k], best_lower):
                    _drop(state, i, k)


@compile_inner
def _drop(state: Any, i: int, k: int) -> None:
    """Drop an arm, but never the last one."""
    if state.eligible[i, k] and state.num_eligible[i] > 1:
        state.eligible[i, k] = False
        state.num_eligible[i] -= 1
