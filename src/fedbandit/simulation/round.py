"""One round of all agents in compiled code: who reads what when.

Here belongs the order of events; no formula: those are the rules'. ``play_round`` runs under
both drivers, the trials of ``cpu`` and the tapes of ``replay``.
"""

from math import log
from typing import Any

from fedbandit.simulation.compiled import compile_inner, compile_rare
from fedbandit.simulation.decide import decide, hear
from fedbandit.simulation.exchange import add_news, drop_beaten_arms, drop_by_server, exchange, judge, pool
from fedbandit.simulation.pull import pull
from fedbandit.simulation.state import BY_THOMPSON, CENTRAL, CONSENSUS, GOSSIP, PEERS_ELIMINATE, SERVER
from fedbandit.simulation.streams import ARRIVALS, EDGES, NOISE, NORMALS, PICKS, REWARDS, draw, stream, uniform

__all__ = ["name_streams", "play_round", "pull_every_arm_once"]


@compile_rare
def name_streams(seed: Any, trial: Any, draws: Any) -> None:
    """Fill in the streams of a trial: edges, picks and arrivals per agent, the rest per agent and arm."""
    num_agents, num_arms = draws.rewards.shape
    draws.edges[0] = stream(seed, trial, EDGES, 0, 0)
    for i in range(num_agents):
        draws.picks[i] = stream(seed, trial, PICKS, i, 0)
        draws.arrivals[i] = stream(seed, trial, ARRIVALS, i, 0)
        for k in range(num_arms):
            draws.rewards[i, k] = stream(seed, trial, REWARDS, i, k)
            draws.noise[i, k] = stream(seed, trial, NOISE, i, k)
            draws.normals[i, k] = stream(seed, trial, NORMALS, i, k)


@compile_rare
def pull_every_arm_once(state: Any, world: Any, plan: Any, draws: Any) -> None:
    """Algorithm 1, line 1: t = 0."""
    num_agents, num_arms = state.n.shape
    for i in range(num_agents):
        for k in range(num_arms):
            pull(state, world, plan, draws, 0, i, k)
            if plan.mechanism != CONSENSUS:
                add_news(state, plan, i, k)  # the mean before was 0: theta is the agent's own mean (Eq. (1) at t = 0)
            state.n_max[0, i, k] = 1
            state.n_max[1, i, k] = 1
        if plan.mechanism == CONSENSUS:
            judge(state, plan, i)
    if plan.network == CENTRAL:
        for k in range(num_arms):
            pool(state, plan, k)


@compile_inner
def _act(state: Any, world: Any, plan: Any, draws: Any, t: int, log_t: float, i: int) -> None:
    """Algorithm 1, lines 6-16, for one agent."""
    state.clock[i] += 1
    clock = state.clock[i]
    arm = decide(state, plan, draws, t, clock, log_t if world.in_step else log(clock), i)
    state.arms[i] = arm
    state.x_before[i] = state.x_mean[i, arm]
    pull(state, world, plan, draws, clock, i, arm)


@compile_inner
def play_round(t: int, state: Any, world: Any, plan: Any, draws: Any) -> None:
    """Round t >= 1 of all agents (Algorithm 1, lines 3-23)."""
    num_agents = len(state.n)
    log_t = log(t)
    for i in range(num_agents):
        if plan.catches_up:
            hear(state, world, i, t)
        if not world.in_step:
            state.acts[i] = uniform(draw(draws.arrivals[i], t)) < world.rates[i]
        if state.acts[i]:
            _act(state, world, plan, draws, t, log_t, i)
    if plan.network == GOSSIP:
        exchange(state, world, plan, draws, t)
        if plan.mechanism != CONSENSUS:  # whose news went in before the exchange
            for i in range(num_agents):
                if state.acts[i]:
                    add_news(state, plan, i, state.arms[i])
        if plan.elimination == PEERS_ELIMINATE:
            drop_beaten_arms(state, world, plan)
    elif plan.network == CENTRAL:
        _pool_pulled(state, world, plan)
    elif plan.network == SERVER:
        drop_by_server(state, plan)
    else:
        for i in range(num_agents):
            if state.acts[i]:
                add_news(state, plan, i, state.arms[i])


@compile_rare
def _pool_pulled(state: Any, world: Any, plan: Any) -> None:
    """The centralised baseline: pool every arm that was pulled."""
    num_agents = len(state.n)
    if world.in_step and plan.choice != BY_THOMPSON:
        pool(state, plan, state.arms[0])  # all see the same, so all chose the same
    else:
        for i in range(num_agents):
            if state.acts[i]:
                pool(state, plan, state.arms[i])
    for i in range(num_agents):
        state.messages[i] += num_agents - 1
