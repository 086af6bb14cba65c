"""Plays one round of all agents in compiled code: decide, draw, observe, then the network.

``rounds_of`` builds the loop for a page. It states the order of events and no formula: formulas are in the rules and
pages. It closes over plain functions, because only then does Numba's disk cache work across processes.
"""

from collections.abc import Callable
from functools import cache
from math import log, sqrt
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from fedbandit.policies import protocol
from fedbandit.policies.protocol import Now, Page
from fedbandit.simulation.compiled import (
    INLINE,
    SOURCES,
    by_value,
    compilable,
    compile_driver,
    compile_inner,
    compile_rare,
    leave_out,
)
from fedbandit.simulation.network import add_news, average_active_links, hear_n_max
from fedbandit.simulation.rewards import draw_reward
from fedbandit.simulation.streams import (
    ARRIVALS,
    EDGES,
    NOISE,
    NORMALS,
    PICKS,
    REWARDS,
    coarse_normal,
    draw,
    laplace,
    stream,
    uniform,
)

__all__ = ["rounds_of"]

_NETWORKS = {"gossip": 0, "consensus": 1, "alone": 2, "pooled": 3, "server": 4}
_GOSSIP, _CONSENSUS, _ALONE, _POOLED = 0, 1, 2, 3


# ---------------------------------------------------------------- randomness


class DecisionDraws(NamedTuple):
    """The randomness of one decision of an agent: see ``protocol.uniform`` and ``protocol.fill_with_normals``."""

    agent: int
    clock: int
    streams: Any
    tape: Any


def _is_simulated(draws: Any) -> bool:
    return isinstance(draws, types.NamedTuple) and draws.instance_class is DecisionDraws


@overload(protocol.uniform, strict=False, jit_options=INLINE)
def _uniform(draws: Any) -> Any:
    if not _is_simulated(draws):
        return None

    def pick(draws: Any) -> Any:
        if draws.tape.on:
            return draws.tape.picks[draws.clock - 1, draws.agent]
        return uniform(draw(draws.streams.picks, draws.clock))

    return pick


@overload(protocol.fill_with_normals, strict=False, jit_options=INLINE)
def _fill_with_normals(row: Any, draws: Any) -> Any:
    if not _is_simulated(draws):
        return None

    def fill(row: Any, draws: Any) -> None:
        if draws.tape.has_normals:
            for k in range(len(row)):
                row[k] = draws.tape.normals[draws.clock - 1, draws.agent, k]
            return
        for pair in range((len(row) + 1) // 2):
            bits = draw(draws.streams.normals[pair], draws.clock)
            row[2 * pair] = coarse_normal(bits, np.uint64(0))
            if 2 * pair + 1 < len(row):
                row[2 * pair + 1] = coarse_normal(bits, np.uint64(1))

    return fill


leave_out(protocol.uniform)
leave_out(protocol.fill_with_normals)


@compile_inner
def _noise(tape: Any, streams: Any, i: int, arm: Any, end: Any) -> Any:
    """The noise of scale 1 of the interval that ends at ``end``: always the same draw."""
    if end == 0:
        return 0.0
    if tape.has_noise:
        return tape.noise[end, i, arm]
    return laplace(draw(streams.noise[arm], end))


def draw_noise(tape: Any, streams: Any, i: int, arm: Any, scale: float, due: Any) -> Any:
    """The noise of an interval, or of several: see ``Page.noise_due``."""
    raise NotImplementedError  # compiled only


@overload(draw_noise, strict=False, jit_options=INLINE)
def _draw_noise(tape: Any, streams: Any, i: int, arm: Any, scale: float, due: Any) -> Any:
    if isinstance(due, types.BaseTuple):

        def several(tape: Any, streams: Any, i: int, arm: Any, scale: float, due: Any) -> Any:
            first, second = due
            return (
                scale * _noise(tape, streams, i, arm, first),
                scale * _noise(tape, streams, i, arm, second),
            )

        return several

    def one(tape: Any, streams: Any, i: int, arm: Any, scale: float, due: Any) -> Any:
        return scale * _noise(tape, streams, i, arm, due)

    return one


@compile_rare
def _name_streams(seed: Any, trial: Any, streams: Any) -> None:
    for i in range(len(streams)):
        mine = streams[i]
        mine.picks = stream(seed, trial, PICKS, i, 0)
        mine.arrivals = stream(seed, trial, ARRIVALS, i, 0)
        for k in range(len(mine.rewards)):
            mine.rewards[k] = stream(seed, trial, REWARDS, i, k)
            mine.noise[k] = stream(seed, trial, NOISE, i, k)
            mine.normals[k] = stream(seed, trial, NORMALS, i, k)


# ---------------------------------------------------------------- functions that a page may leave out


def _no_start(me: Any, terms: Any) -> None:
    """Zeros will do."""


def _no_noise_due(me: Any, terms: Any, arm: Any) -> int:
    return 0


def _no_belief(me: Any, terms: Any, seen: Any, arm: Any) -> None:
    """Nothing is derived from the averages."""


def _nothing_unknown(me: Any, arm: Any) -> bool:
    return False


def _no_radius(me: Any, terms: Any, seen: Any, now: Any, arm: Any) -> float:
    return np.inf


def _no_meeting(agents: Any, terms: Any, seen: Any, edges: Any, present: Any) -> int:
    return 0


def _nothing_announced(me: Any, terms: Any, arm: Any) -> int:
    return 0


# ---------------------------------------------------------------- the round


def rounds_of(page: Page) -> Callable[..., None]:
    """The compiled loop over rounds of a page: ``play_rounds`` in ``_build``."""
    functions = (
        page.start or _no_start,
        page.decide,
        page.noise_due or _no_noise_due,
        page.observe,
        page.published,
        page.believe or _no_belief,
        page.estimate,
        page.radius or _no_radius,
        page.unknown or _nothing_unknown,
        page.meet or _no_meeting,
    )
    for function in functions:
        compilable(function)
    return _build(
        SOURCES,
        _NETWORKS[page.network],
        len(page.averaged),
        page.announced is not None,
        page.believe is not None,
        page.noise_due is not None,
        *functions,
    )


@cache
def _build(
    sources: str,
    network: int,
    num_averaged: int,
    announces: bool,
    believes: bool,
    is_private: bool,
    start: Any,
    decide: Any,
    noise_due: Any,
    observe: Any,
    published: Any,
    believe: Any,
    estimate: Any,
    radius: Any,
    unknown: Any,
    meet: Any,
) -> Any:
    @compile_driver
    def play_rounds(
        first: int,
        last: int,
        seed: Any,
        trial: Any,
        population: Any,
        world: Any,
        links: Any,
        tape: Any,
        theta: Any,
        arm_means: Any,
        misses: Any,
        watches: bool,
    ) -> None:
        """Play rounds ``first`` to ``last`` of a trial; round 0 is the first pull of every arm.

        ``theta`` receives the final estimates; ``misses`` counts errors against ``arm_means`` larger than the radius.
        """
        sources  # noqa: B018  # pyright: ignore[reportUnusedExpression]  # part of the cache key
        agents, terms, seen, averages = population.agents, population.terms, population.seen, population.averages
        turns, streams = population.turns, population.streams
        num_agents, num_arms = len(agents), len(agents[0].tried)
        num_columns = num_averaged * num_arms
        edge_stream = stream(seed, trial, EDGES, 0, 0)
        if first == 0:
            _name_streams(seed, trial, streams)
            for i in range(num_agents):
                start(agents[i], terms[i])
        for t in range(first, last + 1):
            log_t = log(max(t, 1))
            now = Now(log_t, sqrt(log_t))
            for i in range(num_agents):
                me, fixed, mine, turn = agents[i], by_value(terms[i]), seen[i], turns[i]
                pulls = num_arms if t == 0 else 1  # Algorithm 1, line 1: at t = 0 every arm once
                if t > 0:
                    if announces:
                        hear_n_max(me.tried, seen, population.n_max, links, i)  # line 5
                    if not world.in_step:
                        pulls = 1 if uniform(draw(streams[i].arrivals, t)) < world.rates[i] else 0
                    turn.acts = pulls
                    turn.clock += pulls
                    if not world.in_step and pulls > 0:
                        log_t = log(turn.clock)
                        now = Now(log_t, sqrt(log_t))
                for k in range(pulls):
                    arm = np.uint64(k)
                    if t > 0:
                        draws = DecisionDraws(i, turn.clock, streams[i], tape)
                        arm = np.uint64(decide(me, fixed, mine, now, draws))  # lines 6-14
                        turn.arm = arm
                    if tape.on:
                        reward = tape.rewards[turn.clock, i, arm]
                    else:
                        reward = draw_reward(world, i, arm, draw(streams[i].rewards[arm], me.tried[arm]))
                    me.tried[arm] += 1
                    before = published(me, fixed, arm)
                    if is_private:
                        due = noise_due(me, fixed, arm)
                        noise = draw_noise(tape, streams[i], i, arm, fixed.noise_scale, due)
                        if believes:
                            turn.released = due
                        observe(me, fixed, arm, reward, noise)  # lines 15-16
                    else:
                        observe(me, fixed, arm, reward, 0.0)
                    if t == 0 or network == _CONSENSUS:
                        after = published(me, fixed, arm)
                        for c in range(num_averaged):
                            add_news(averages, i, c * num_arms + arm, after[c], before[c])
                    else:
                        for c in range(num_averaged):
                            turn.before[c] = before[c]
            if announces and t > 0:
                for i in range(num_agents):
                    mine = seen[i]
                    for k in range(num_arms):
                        mine.n_max[k] = population.n_max[i, k]
            if t > 0 and (network == _GOSSIP or network == _CONSENSUS):
                average_active_links(averages, num_columns, links, turns, tape, t, draw(edge_stream, t))  # 17-20
            if t > 0 and (network == _GOSSIP or network == _ALONE):
                for i in range(num_agents):
                    turn = turns[i]
                    if turn.acts > 0:
                        arm = turn.arm
                        after = published(agents[i], terms[i], arm)
                        for c in range(num_averaged):
                            if num_averaged == 1 or after[c] != turn.before[c] or (c == 0 and turn.released > 0):
                                add_news(averages, i, c * num_arms + arm, after[c], turn.before[c])  # 20, 22
                        if believes:
                            believe(agents[i], terms[i], seen[i], arm)
            if network == _POOLED:
                for i in range(num_agents):
                    for k in range(num_arms):
                        if (t == 0 and i == 0) or (t > 0 and turns[i].acts > 0 and turns[i].arm == k):
                            if t == 0 or population.pooled[k] < t:
                                population.pooled[k] = t
                                for c in range(num_averaged):
                                    total = 0.0
                                    for j in range(num_agents):
                                        total += published(agents[j], terms[j], k)[c]
                                    for j in range(num_agents):
                                        averages[j, c * num_arms + k] = total
                                for j in range(num_agents):
                                    believe(agents[j], terms[j], seen[j], k)
                    if t > 0:
                        turns[i].messages += num_agents - 1
            elif believes:
                for i in range(num_agents):
                    if turns[i].mixed > 0 or t == 0:
                        turns[i].mixed = 0
                        for k in range(num_arms):
                            believe(agents[i], terms[i], seen[i], k)
            if t > 0:
                sent = meet(agents, terms, seen, links.edges, links.order)
                if sent > 0:
                    for i in range(num_agents):
                        turns[i].messages += sent
            if watches and t > 0:
                for i in range(num_agents):
                    log_t = log(max(turns[i].clock + 1, 2))
                    now = Now(log_t, sqrt(log_t))
                    for k in range(num_arms):
                        error = abs(estimate(agents[i], terms[i], seen[i], k) - arm_means[k])
                        if not unknown(agents[i], k) and error > radius(agents[i], terms[i], seen[i], now, k):
                            misses[i] += 1
        for i in range(num_agents):
            for k in range(num_arms):
                theta[i, k] = estimate(agents[i], terms[i], seen[i], k)

    return play_rounds

