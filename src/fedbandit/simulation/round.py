"""Plays one round of all agents in compiled code: decide, draw, observe, then the network.

``rounds_of`` builds the loop for a page. It states the order of events and no formula: formulas are in the rules and
pages. It closes over plain functions, because only then does Numba's disk cache work across processes.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fedbandit.policies.protocol import Page, time_of
from fedbandit.rewards import Family
from fedbandit.rules.choose import fewest_pulls
from fedbandit.shares import Shares
from fedbandit.simulation.compiled import SOURCES, as_arm, by_value, compilable, compile_driver, compile_inner
from fedbandit.simulation.draws import DecisionDraws, draw_noise, name_streams
from fedbandit.simulation.late_rewards import LATE_NETWORKS, add_late_news, first_due, next_due, note, put
from fedbandit.simulation.links import LinkKind
from fedbandit.simulation.network import NETWORKS, add_news, hear_n_max, hear_present_links
from fedbandit.simulation.rewards import code_of, draw_of
from fedbandit.simulation.sharing import arm_by_share, keep_fresh, narrow, unobserved_others, widen
from fedbandit.simulation.streams import EDGES, draw, stream, uniform

__all__ = ["rounds_of"]

compilable(time_of)
compilable(fewest_pulls)


# ---------------------------------------------------------------- functions that a page may leave out


def _no_start(me: Any, terms: Any) -> None:
    """Zeros will do."""


def _no_noise_due(me: Any, terms: Any, arm: Any) -> int:
    return 0


def _no_belief(me: Any, terms: Any, seen: Any, arm: Any) -> None:
    """Nothing is derived from the averages."""


def _no_reweighing(me: Any, terms: Any, elapsed: Any) -> None:
    """The agent's weight is fixed."""


def _nothing_unknown(me: Any, arm: Any) -> bool:
    return False


def _no_radius(me: Any, terms: Any, seen: Any, now: Any, arm: Any) -> float:
    return np.inf


def _nothing_announced(me: Any, terms: Any, arm: Any) -> int:
    return 0


def _no_marks(links: Any, t: Any, bits: Any) -> None:
    """Which links are present does not matter to n~."""


def _no_meeting(agents: Any, terms: Any, seen: Any, edges: Any, present: Any) -> int:
    return 0


# ---------------------------------------------------------------- parts of a round


@compile_inner
def _count_misses(
    estimate: Any, radius: Any, unknown: Any, population: Any, skips: bool, arm_means: Any, misses: Any
) -> None:
    """How many estimates lie further from the truth than the radius of the next decision.

    ``skips``: an arm without a reward that counts is unknown.
    """
    agents, terms, turns, unobserved = (
        population.agents,
        population.terms,
        population.turns,
        population.waiting.unobserved,
    )
    for i in range(len(agents)):
        me, fixed = agents[i], terms[i]
        now = time_of(max(turns[i].clock + 1, 2))
        for k in range(len(arm_means)):
            error = abs(estimate(me, fixed, me, k) - arm_means[k])
            if skips and unobserved[i, k] > 0:
                continue
            if not unknown(me, k) and error > radius(me, fixed, me, now, k):
                misses[i] += 1


@compile_inner
def _reweigh(published: Any, reweigh: Any, population: Any, i: int, fixed: Any, elapsed: float) -> None:
    """After a release: set the agent's weight anew, and tell what that changes of any arm."""
    me, before = population.agents[i], population.before
    num_arms, columns = len(me.tried), before.shape[1]
    for k in range(num_arms):
        told = published(me, fixed, np.uint64(k))
        for c in range(columns):
            before[k, c] = told[c]
    reweigh(me, fixed, elapsed)
    for k in range(num_arms):
        add_news(population.averages, i, np.uint64(k), num_arms, published(me, fixed, np.uint64(k)), before[k])
    population.turns[i].mixed = 1  # every arm is to be believed anew


@compile_inner
def _say_without_control(
    decide: Any, believe: Any, waits: bool, population: Any, i: int, fixed: Any, now: Any, draws: Any
) -> Any:
    """The index's arm in a world without the control arm. ``waits``: arms without a reward that counts come first."""
    sharing = population.sharing
    narrow(sharing, i)
    few = sharing.few[i]
    position = np.uint64(0)
    if waits and unobserved_others(sharing, population.waiting.unobserved[i]) > 0:
        position = np.uint64(fewest_pulls(few.tried, sharing.unobserved))
    elif len(few.tried) > 1:
        for k in range(len(few.tried)):
            believe(few, fixed, few, np.uint64(k))
        position = as_arm(decide(few, fixed, few, now, draws))
        widen(sharing, i)
    return position + np.uint64(position >= np.uint64(sharing.control))


# ---------------------------------------------------------------- the round


def rounds_of(
    page: Page,
    family: Family,
    links: LinkKind,
    watches: bool,
    own_code: str = "",
    is_late: bool = False,
    shares: Shares | None = None,
) -> Callable[..., None]:
    """The compiled loop over rounds of a page, for a family of rewards and a kind of links.

    ``watches``: count how often an estimate lies further from the truth than its radius. ``own_code``: a digest of what
    the page reaches outside this package; whether its arms exist is then checked. ``is_late``: rewards may count later
    than in the round of their decision.
    """
    functions = (
        draw_of(family),
        (LATE_NETWORKS if is_late else NETWORKS)[page.network],
        links.average,
        links.mark or _no_marks,
        page.start or _no_start,
        page.decide,
        page.noise_due or _no_noise_due,
        page.observe,
        page.published,
        page.reweigh or _no_reweighing,
        page.believe or _no_belief,
        page.estimate,
        page.radius or _no_radius,
        page.unknown or _nothing_unknown,
        page.meet or _no_meeting,
        page.announced or _nothing_announced,
    )
    return _build(
        SOURCES + own_code + code_of(family) + links.code,
        own_code != "",
        len(page.averaged),
        page.network == "pooled",
        links.mark is not None,
        page.announced is not None,
        page.reweigh is not None,
        page.believe is not None,
        page.noise_due is not None,
        page.meet is not None,
        watches,
        is_late,
        page.unknown is not None,
        shares is not None,
        shares is not None and shares.control is not None,
        *functions,
    )


@cache
def _build(
    sources: str,
    is_guarded: bool,
    num_averaged: int,
    is_pooled: bool,
    has_marks: bool,
    announces: bool,
    reweighs: bool,
    believes: bool,
    is_private: bool,
    meets: bool,
    watches: bool,
    is_late: bool,
    knows_unknown: bool,
    has_shares: bool,
    has_control: bool,
    draw_reward: Any,
    exchange: Any,
    average_links: Any,
    mark_links: Any,
    start: Any,
    decide: Any,
    noise_due: Any,
    observe: Any,
    published: Any,
    reweigh: Any,
    believe: Any,
    estimate: Any,
    radius: Any,
    unknown: Any,
    meet: Any,
    announced: Any,
) -> Any:
    """Compile the loop. What is fixed here is known to the compiler: branches that a page never takes are left out."""
    for function in (draw_reward, exchange, average_links, mark_links, start, decide, noise_due, observe):
        compilable(function)
    for function in (published, reweigh, believe, estimate, radius, unknown, meet, announced):
        compilable(function)

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
    ) -> None:
        """Play rounds ``first`` to ``last`` of a trial; round 0 is the first pull of every arm.

        ``theta`` receives the final estimates; ``misses`` counts errors against ``arm_means`` larger than the radius.
        """
        sources  # noqa: B018  # pyright: ignore[reportUnusedExpression]  # a part of the cache's key
        agents, terms, averages = population.agents, population.terms, population.averages
        turns, streams, waiting = population.turns, population.streams, population.waiting
        sharing = population.sharing
        num_agents, num_arms = len(agents), len(agents[0].tried)
        edge_stream = stream(seed, trial, EDGES, np.uint64(0), np.uint64(0))
        if first == 0:
            name_streams(seed, trial, streams)
            for i in range(num_agents):
                start(agents[i], terms[i])
                if has_control:
                    start(sharing.few[i], terms[i])
            if has_control:
                keep_fresh(sharing)
        for t in range(first, last + 1):
            now, bits = time_of(t), draw(edge_stream, np.uint64(t))
            if t > 0:
                if has_marks:
                    mark_links(links, t, bits)
                    if announces:
                        hear_present_links(announced, agents, terms, population.n_max, links)
                for i in range(num_agents):
                    me, fixed, turn = agents[i], by_value(terms[i]), turns[i]
                    if announces and not has_marks:
                        hear_n_max(announced, me, fixed, agents, population.n_max, links, i)  # line 5
                    if world.in_step:
                        turn.acts = 1
                    else:
                        turn.acts = uniform(draw(streams[i].arrivals, np.uint64(t))) < world.rates[i]
                    if turn.acts > 0:
                        turn.clock += 1
                        if not world.in_step:
                            now = time_of(turn.clock)
                        draws = DecisionDraws(i, turn.clock, streams[i], tape)
                        if has_control:
                            turn.arm = _say_without_control(
                                decide, believe, is_late and not knows_unknown, population, i, fixed, now, draws
                            )
                            if is_guarded and turn.arm >= np.uint64(num_arms):
                                raise IndexError
                        elif is_late and not knows_unknown and waiting.num_unobserved[i] > 0:
                            # As a live site does: until each arm has a reward that counts, those without one in turn.
                            turn.arm = np.uint64(fewest_pulls(me.tried, waiting.unobserved[i]))
                        elif is_guarded:
                            turn.arm = as_arm(decide(me, fixed, me, now, draws))
                            if turn.arm >= np.uint64(num_arms):
                                raise IndexError  # beyond its rows lies other agents' memory
                        else:
                            turn.arm = np.uint64(decide(me, fixed, me, now, draws))  # lines 6-14
                        if has_shares:
                            turn.arm = arm_by_share(sharing, streams[i], tape, i, turn.clock, num_arms, turn.arm)
            for i in range(num_agents):
                me, fixed, turn = agents[i], by_value(terms[i]), turns[i]
                for k in range(turn.acts if t > 0 else num_arms):  # Algorithm 1, line 1: at t = 0 every arm once
                    arm = turn.arm if t > 0 else np.uint64(k)
                    if tape.on:
                        reward = tape.rewards[turn.clock, i, arm]
                    else:
                        reward_bits = draw(streams[i].rewards[arm], np.uint64(me.tried[arm]))
                        reward = draw_reward(world.rewards, reward_bits, world.means, i, arm)
                    me.tried[arm] += 1
                    if is_late:
                        put(waiting, world.lateness, streams[i], i, arm, me.tried[arm] - 1, t, reward)
                        continue
                    before = published(me, fixed, arm)
                    if is_private:
                        due = noise_due(me, fixed, arm)
                        noise = draw_noise(tape, streams[i], i, arm, fixed.noise_scale, due)
                        if believes:
                            turn.released = due
                        observe(me, fixed, arm, reward, noise)  # lines 15-16
                    else:
                        observe(me, fixed, arm, reward, 0.0)
                    for c in range(num_averaged):
                        turn.before[c] = before[c]
                    if t == 0:
                        add_news(averages, i, arm, num_arms, published(me, fixed, arm), turn.before)
                if is_late:
                    place = first_due(waiting, i, t)
                    while place > 0:
                        arm, reward = np.uint64(waiting.arm[i, place - 1]), waiting.reward[i, place - 1]
                        note(waiting, i, arm, published(me, fixed, arm))
                        if is_private:
                            due = noise_due(me, fixed, arm)
                            noise = draw_noise(tape, streams[i], i, arm, fixed.noise_scale, due)
                            if believes:
                                turn.released += due
                            observe(me, fixed, arm, reward, noise)
                        else:
                            observe(me, fixed, arm, reward, 0.0)
                        place = next_due(waiting, i, place)
            if is_late and t == 0:
                add_late_news(published, population)
            if announces and t > 0:
                for i in range(num_agents):
                    me = agents[i]
                    for k in range(num_arms):
                        me.n_max[k] = population.n_max[i, k]
            if is_pooled or t > 0:
                columns = num_averaged * num_arms
                exchange(published, believe, average_links, population, columns, links, tape, t, bits)
            if reweighs and t > 0:
                for i in range(num_agents):
                    if turns[i].released > 0:
                        _reweigh(published, reweigh, population, i, by_value(terms[i]), float(t))
            if believes and not is_pooled:
                for i in range(num_agents):
                    me, turn = agents[i], turns[i]
                    if turn.mixed > 0 or t == 0:
                        for k in range(num_arms):
                            if not is_late or knows_unknown or waiting.unobserved[i, k] == 0:
                                believe(me, by_value(terms[i]), me, np.uint64(k))
                    elif is_late:
                        for k in range(num_arms):
                            if waiting.news[i, k] > 0:
                                believe(me, by_value(terms[i]), me, np.uint64(k))
                    elif turn.released > 0 or (turn.acts > 0 and not is_private):
                        believe(me, by_value(terms[i]), me, turn.arm)
                    turn.mixed, turn.released = 0, 0
            if meets and t > 0:
                sent = meet(agents, terms, agents, links.edges, links.present)
                for i in range(num_agents):
                    turns[i].messages += sent
            if watches and t > 0:
                skips = is_late and not knows_unknown
                _count_misses(estimate, radius, unknown, population, skips, arm_means, misses)
        for i in range(num_agents):
            for k in range(num_arms):
                theta[i, k] = estimate(agents[i], terms[i], agents[i], k)

    return play_rounds
