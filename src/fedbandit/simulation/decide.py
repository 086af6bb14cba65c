"""Which arm an agent pulls in a round, in compiled code: what it reads for that; formulas are the rules'.

Here belongs the way from an agent's numbers to its arm.
"""

from typing import Any

import numpy as np

from fedbandit.rules.choose import choose, count_lagging, fewest_pulls
from fedbandit.rules.gossip import heard
from fedbandit.rules.kl import highest_kl_index
from fedbandit.rules.radius import coop_radius, radius
from fedbandit.simulation.compiled import compile_inner
from fedbandit.simulation.state import BY_KL, BY_THOMPSON, RADIUS_OF_COUNT
from fedbandit.simulation.streams import coarse_normal, draw, uniform

__all__ = ["decide", "hear", "set_radii"]


@compile_inner
def hear(state: Any, world: Any, i: int, t: int) -> None:
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
def set_radii(state: Any, plan: Any, i: int, log_t: float) -> None:
    """The radii of an agent's arms at its time t, into ``state.radius``."""
    num_agents, num_arms = state.n.shape
    if plan.radius_kind == RADIUS_OF_COUNT:
        for k in range(num_arms):
            state.radius[k] = plan.scale * coop_radius(state.gossiped[i, num_arms + k], num_agents, log_t)
        return
    for k in range(num_arms):
        state.radius[k] = radius(state.sampling[i, k], state.noise[i, k], log_t, plan.scale, plan.offset)
    if plan.has_tail:
        for k in range(num_arms):
            state.radius[k] += state.slope[i, k] * log_t + state.level[i, k]


@compile_inner
def _draw_around_theta(state: Any, draws: Any, i: int, clock: int) -> None:
    """Thompson sampling: how far from theta each arm's draw falls, into ``state.radius``."""
    num_arms = len(state.radius)
    if draws.tape_has_normals:
        for k in range(num_arms):
            state.radius[k] = state.deviation[i, k] * draws.tape_normals[clock - 1, i, k]
        return
    for pair in range((num_arms + 1) // 2):
        bits = draw(draws.normals[i, pair], clock)
        k = np.uint64(2 * pair)
        state.radius[k] = state.deviation[i, k] * coarse_normal(bits, np.uint64(0))
        if 2 * pair + 1 < num_arms:
            k = np.uint64(2 * pair + 1)
            state.radius[k] = state.deviation[i, k] * coarse_normal(bits, np.uint64(1))


@compile_inner
def decide(state: Any, plan: Any, draws: Any, t: int, clock: int, log_t: float, i: int) -> Any:
    """The arm of agent i in round t, which is its own pull number ``clock``."""
    n, n_max = state.n[i], state.n_max[t & 1, i]
    if state.committed[i] > 0:
        state.committed[i] -= 1
        return state.arms[i]
    if state.num_eligible[i] > 0:
        return np.uint64(fewest_pulls(n, state.eligible[i]))
    lagging = count_lagging(n, n_max, plan.allowed) if plan.catches_up else 0
    u = 0.0
    if lagging > 0:
        u = draws.tape_picks[clock - 1, i] if draws.on_tape else uniform(draw(draws.picks[i], clock))
        state.lagging_rounds[i] += 1
    elif plan.choice == BY_KL:
        return np.uint64(highest_kl_index(state.theta[i], state.worth[i], log_t, plan.epsilon))
    elif plan.choice == BY_THOMPSON:
        _draw_around_theta(state, draws, i, clock)
    else:
        set_radii(state, plan, i, log_t)
    arm = np.uint64(choose(state.theta[i], state.radius, n, n_max, plan.allowed, lagging, u))
    if plan.commits:
        state.committed[i] = state.batch_end[i, arm] - n[arm] - 1  # after this round's pull
    return arm
