"""One agent acts in a round: it hears n~, decides, draws its reward, observes it, and tells what that has changed.

A phase of ``fedbandit.simulation.phases``, compiled for a kit: the order of events, and no formula.
"""

from typing import Any

import numpy as np

from fedbandit.policies.protocol import time_of
from fedbandit.rules.choose import fewest_pulls
from fedbandit.simulation.compiled import as_arm, by_value, compilable, compile_inner
from fedbandit.simulation.draws import DecisionDraws, draw_noise
from fedbandit.simulation.kit import Kit
from fedbandit.simulation.late_rewards import add_late_news, first_due, next_due, note, put
from fedbandit.simulation.network import add_news
from fedbandit.simulation.sharing import arm_by_share, narrow, unobserved_others, widen
from fedbandit.simulation.streams import draw, uniform

__all__ = ["act_of", "news_of"]

compilable(time_of)
compilable(fewest_pulls)


def act_of(kit: Kit, hear: Any) -> Any:
    """Compile ``act(population, world, links, tape, t, now, i)``; ``hear`` is the engine's way to hear n~."""
    draw_reward, published = kit.draw_reward, kit.published
    hears, is_late, num_averaged = kit.announces and not kit.has_marks, kit.is_late, kit.num_averaged
    news_first = kit.network == "consensus"
    choose, take, add_my_news = _decide(kit), _observe(kit), news_of(kit)
    count_late_rewards = _count_late_rewards(kit, take)

    @compile_inner
    def pull(population: Any, world: Any, tape: Any, i: int, fixed: Any, arm: Any, t: int) -> None:
        me, turn, mine = population.agents[i], population.turns[i], population.streams[i]
        if tape.on:
            reward = tape.rewards[turn.clock, i, arm]
        else:
            bits = draw(mine.rewards[arm], np.uint64(me.tried[arm]))
            reward = draw_reward(world.rewards, bits, world.means, i, arm)
        me.tried[arm] += 1
        if is_late:
            put(population.waiting, world.lateness, mine, i, arm, me.tried[arm] - 1, t, reward)
        else:
            before = published(me, fixed, arm)
            take(population, tape, i, fixed, arm, reward)
            for c in range(num_averaged):
                turn.before[c] = before[c]

    @compile_inner
    def act(population: Any, world: Any, links: Any, tape: Any, t: int, now: Any, i: int) -> None:
        me, fixed, turn = population.agents[i], by_value(population.terms[i]), population.turns[i]
        if t > 0:
            if hears:
                hear(population, fixed, links, t, i)
            if world.in_step:
                turn.acts = 1
            else:
                turn.acts = uniform(draw(population.streams[i].arrivals, np.uint64(t))) < world.rates[i]
            if turn.acts > 0:
                turn.clock += 1
                if not world.in_step:
                    now = time_of(turn.clock)
                choose(population, tape, i, fixed, now)
                pull(population, world, tape, i, fixed, turn.arm, t)
        else:
            num_arms = len(me.tried)
            for k in range(num_arms):  # Algorithm 1, line 1: at t = 0 every arm once
                arm = np.uint64(k)
                pull(population, world, tape, i, fixed, arm, t)
                if not is_late:
                    add_news(population.averages, i, arm, num_arms, published(me, fixed, arm), turn.before)
        if is_late:
            count_late_rewards(population, tape, i, fixed, t)
        if (is_late and t == 0) or (news_first and t > 0):
            add_my_news(population, i, fixed)

    return act


def news_of(kit: Kit) -> Any:
    """Compile ``add_my_news(population, i, fixed)``."""
    published, is_late = kit.published, kit.is_late

    @compile_inner
    def add_my_news(population: Any, i: int, fixed: Any) -> None:
        """Algorithm 1, lines 20 and 22: what an agent's observations of this round changed in what it publishes."""
        if is_late:
            add_late_news(published, population, i, fixed)
        else:
            turn, me = population.turns[i], population.agents[i]
            if turn.acts > 0:
                after = published(me, fixed, turn.arm)
                add_news(population.averages, i, turn.arm, len(me.tried), after, turn.before)

    return add_my_news


def _decide(kit: Kit) -> Any:
    decide, believe, is_guarded = kit.decide, kit.believe, kit.is_guarded
    waits, has_shares, has_control = kit.is_late and not kit.knows_unknown, kit.has_shares, kit.has_control

    @compile_inner
    def say_without_control(population: Any, i: int, fixed: Any, now: Any, draws: Any) -> Any:
        """The index's arm in a world without the control arm."""
        sharing = population.sharing
        narrow(sharing, i)
        few = sharing.few[i]
        position = np.uint64(0)
        if waits and unobserved_others(sharing, i, population.waiting.unobserved[i]) > 0:
            position = np.uint64(fewest_pulls(few.tried, sharing.unobserved[i]))
        elif len(few.tried) > 1:
            for k in range(len(few.tried)):
                believe(few, fixed, few, np.uint64(k))
            position = as_arm(decide(few, fixed, few, now, draws))
            widen(sharing, i)
        return position + np.uint64(position >= np.uint64(sharing.control))

    @compile_inner
    def choose(population: Any, tape: Any, i: int, fixed: Any, now: Any) -> None:
        """Algorithm 1, lines 6-14: the arm of this round."""
        me, turn, waiting = population.agents[i], population.turns[i], population.waiting
        num_arms = len(me.tried)
        draws = DecisionDraws(i, turn.clock, turn.arm, population.streams[i], tape)
        if has_control:
            arm = say_without_control(population, i, fixed, now, draws)
        elif waits and waiting.num_unobserved[i] > 0:
            # As a live site does: until each arm has a reward that counts, those without one in turn.
            arm = np.uint64(fewest_pulls(me.tried, waiting.unobserved[i]))
        else:
            arm = as_arm(decide(me, fixed, me, now, draws))
        turn.arm = arm
        if is_guarded and arm >= np.uint64(num_arms):
            raise IndexError  # beyond its rows lies other agents' memory
        if has_shares:
            turn.arm = arm_by_share(population.sharing, population.streams[i], tape, i, turn.clock, num_arms, arm)

    return choose


def _observe(kit: Kit) -> Any:
    noise_due, observe, is_private, believes, is_late = (
        kit.noise_due,
        kit.observe,
        kit.is_private,
        kit.believes,
        kit.is_late,
    )

    @compile_inner
    def take(population: Any, tape: Any, i: int, fixed: Any, arm: Any, reward: Any) -> None:
        """Algorithm 1, lines 15-16: a reward counts, with the noise of the interval that it completes."""
        me, turn = population.agents[i], population.turns[i]
        if is_private:
            due = noise_due(me, fixed, arm)
            noise = draw_noise(tape, population.streams[i], i, arm, fixed.noise_scale, due)
            if believes:
                turn.released = turn.released + due if is_late else due
            observe(me, fixed, arm, reward, noise)
        else:
            observe(me, fixed, arm, reward, 0.0)

    return take


def _count_late_rewards(kit: Kit, take: Any) -> Any:
    published = kit.published

    @compile_inner
    def count_late_rewards(population: Any, tape: Any, i: int, fixed: Any, t: int) -> None:
        """Rewards that have waited until this round."""
        waiting = population.waiting
        place = first_due(waiting, i, t)
        while place > 0:
            arm, reward = np.uint64(waiting.arm[i, place - 1]), waiting.reward[i, place - 1]
            note(waiting, i, arm, published(population.agents[i], fixed, arm))
            take(population, tape, i, fixed, arm, reward)
            place = next_due(waiting, i, place)

    return count_late_rewards
