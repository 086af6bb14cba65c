"""What a pull does to an agent's own numbers, in compiled code.

Here belong rewards, noise and the agent's own mean with what its radius needs; formulas are the rules'.
"""

from math import log
from typing import Any

from fedbandit.rules.batch import (
    batch_size,
    equivalent_rewards,
    last_weight,
    learnt_reward_variance,
    mean_variance,
    release_square,
    release_variance,
    released,
    weighted_mean,
)
from fedbandit.rules.mean import clamp, pull_tree_add, time_tree_add, time_tree_first_new
from fedbandit.rules.radius import (
    deviation,
    dist_sampling,
    gossip_sampling,
    local_sampling,
    private_noise,
    tail_level,
    tail_slope,
    tail_tilt,
    variance_sampling,
)
from fedbandit.simulation.compiled import compile_inner, compile_rare
from fedbandit.simulation.state import (
    ALONE,
    BATCHES,
    BERNOULLI,
    CONSENSUS,
    EXACT,
    GAUSSIAN,
    LAST_BATCH,
    PULL_TREE,
    RADIUS_BY_DEGREE,
    RADIUS_BY_PULLS,
)
from fedbandit.simulation.streams import beta, draw, laplace, standard_normal, uniform

__all__ = ["pull", "trust"]


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
def trust(state: Any, plan: Any, i: int, arm: Any, variance: float) -> None:
    """Keep what an index needs of the variance of an estimate."""
    state.sampling[i, arm] = variance_sampling(plan.alpha, variance)
    state.deviation[i, arm] = deviation(variance)


@compile_rare
def _release(state: Any, plan: Any, draws: Any, t: int, i: int, arm: Any) -> None:
    """A batch is full: its noisy mean goes out, weighted by what it is worth; the next batch begins."""
    n = state.n[i, arm]
    size = n - state.released[i, arm]
    noise = _noise(plan, draws, i, arm, n) if plan.noise_scale > 0.0 else 0.0
    variance = release_variance(size, plan.reward_variance, plan.noise_variance)
    if plan.mechanism == LAST_BATCH:
        state.precision[i, arm], state.square[i, arm] = 0.0, 0.0
    state.precision[i, arm] += 1.0 / variance
    state.square[i, arm] += release_square(size, variance)
    weight = last_weight(state.precision[i, arm], variance)
    mean = released(state.total[i, arm], noise, size)
    state.x_mean[i, arm] = weighted_mean(state.x_mean[i, arm], mean, weight)
    state.total[i, arm] = 0.0
    state.released[i, arm] = n
    state.releases[i, arm] += 1
    state.batch_end[i, arm] = n + batch_size(n, plan.first_batch, plan.growth)
    state.worth[i, arm] = (n if plan.mechanism == BATCHES else size) / plan.averaging
    precision = state.precision[i, arm]
    learnt = plan.reward_variance
    if plan.learns_variance:
        learnt = learnt_reward_variance(state.x_mean[i, arm], 1.0 / precision, plan.low, plan.high, learnt)
    own = mean_variance(precision, state.square[i, arm], plan.reward_variance, learnt)
    trust(state, plan, i, arm, plan.averaging * own)
    if plan.has_tail:
        _add_tail(state, plan, t, i, arm, size, weight)


@compile_inner
def _add_tail(state: Any, plan: Any, t: int, i: int, arm: Any, size: int, weight: float) -> None:
    """The safe radius: the paper's C for as many rewards as the mean is worth, and the tail of the noise."""
    equivalent = equivalent_rewards(state.precision[i, arm], state.square[i, arm])
    state.sampling[i, arm] = gossip_sampling(equivalent, len(state.n), plan.sampling_constant)
    # Batches grow, and with them the share of one reward: the newest noise has the largest coefficient.
    largest = plan.noise_scale * weight / size
    # Chosen by the number of releases alone, on which sizes depend too: a choice by time would depend on the noise.
    tilt = tail_tilt(state.releases[i, arm], 2.0 * log(max(state.n[i, arm], 2)))
    state.slope[i, arm] = tail_slope(largest, tilt)
    state.level[i, arm] = tail_level(largest, state.releases[i, arm], tilt)


@compile_inner
def pull(state: Any, world: Any, plan: Any, draws: Any, t: int, i: int, arm: Any) -> None:
    """Algorithm 1, lines 15-16: observe, count, update the sample mean and the parts of the radius."""
    num_agents, num_arms = state.n.shape
    reward = _reward(world, draws, t, i, arm, state.n[i, arm])
    if plan.clamps:
        reward = clamp(reward, plan.low, plan.high)
    state.total[i, arm] += reward
    state.n[i, arm] += 1
    n = state.n[i, arm]
    if plan.mechanism == EXACT:
        state.x_mean[i, arm] = state.total[i, arm] / n
    elif plan.mechanism == BATCHES or plan.mechanism == LAST_BATCH:
        if n == state.batch_end[i, arm]:
            _release(state, plan, draws, t, i, arm)
        return
    elif plan.mechanism == CONSENSUS:
        state.gossiped[i, arm] += plan.share[i] * reward
        state.gossiped[i, num_arms + arm] += plan.share[i]
        return
    else:
        state.x_mean[i, arm] = _private_total(state, plan, draws, t, i, arm) / n
        noised = n if plan.mechanism == PULL_TREE else n - 1
        state.noise[i, arm] = private_noise(n, noised, num_agents, plan.log_horizon, plan.epsilon, plan.noise_constant)
    if plan.network == ALONE:
        state.sampling[i, arm] = local_sampling(n)
    elif plan.radius_kind == RADIUS_BY_PULLS:
        state.sampling[i, arm] = gossip_sampling(n, num_agents, plan.sampling_constant)
    elif plan.radius_kind == RADIUS_BY_DEGREE:
        state.sampling[i, arm] = dist_sampling(n, world.first_neighbour[i + 1] - world.first_neighbour[i])
