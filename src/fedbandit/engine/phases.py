"""The kit of a compiled loop over rounds: a page's functions, and what else is fixed before it is compiled."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedbandit.engine.compiled import SOURCES, as_arm, by_value, compilable, compile_inner, row_like
from fedbandit.engine.late_rewards import add_late_news, first_due, next_due, note, put
from fedbandit.engine.links import LinkKind
from fedbandit.engine.network import add_news, hear_n_max, hear_present_links, hear_shown, pool, see_shown
from fedbandit.engine.sharing import arm_by_share, keep_fresh, narrow, unobserved_others, widen
from fedbandit.engine.streams import SimulatedDraws, code_of, draw, draw_noise, draw_of, uniform
from fedbandit.policies.protocol import Page, time_of
from fedbandit.rules.choose import fewest_pulls
from fedbandit.shares import Shares
from fedbandit.world.rewards import Family

__all__ = ["Kit", "Phases", "act_of", "kit_of", "news_of", "phases_of"]


class Kit(NamedTuple):
    """What a loop over rounds is made of: a page's functions, and what else is known before it is compiled.

    What is fixed here is known to the compiler: branches that a page never takes are left out. It is also the key of
    compiled code, so it must tell apart all that differs.
    """

    code: str  # digest of the sources, ours and the user's
    is_guarded: bool  # a user's page: check that its arms exist
    num_averaged: int
    network: str
    has_marks: bool
    announces: bool
    reweighs: bool
    believes: bool
    is_private: bool
    meets: bool
    watches: bool
    is_late: bool
    knows_unknown: bool
    has_shares: bool
    has_control: bool
    has_caught_up: bool  # whether a page counts decisions by the consistency rule
    draw_reward: Callable[..., Any]
    average_links: Callable[..., Any]
    mark_links: Callable[..., Any]
    start: Callable[..., Any]
    decide: Callable[..., Any]
    noise_due: Callable[..., Any]
    observe: Callable[..., Any]
    published: Callable[..., Any]
    reweigh: Callable[..., Any]
    believe: Callable[..., Any]
    estimate: Callable[..., Any]
    radius: Callable[..., Any]
    unknown: Callable[..., Any]
    meet: Callable[..., Any]
    announced: Callable[..., Any]


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


def kit_of(
    page: Page,
    family: Family,
    links: LinkKind,
    watches: bool,
    own_code: str = "",
    is_late: bool = False,
    shares: Shares | None = None,
) -> Kit:
    """The kit of a page, for a family of rewards and a kind of links.

    ``watches``: count how often an estimate lies further from the truth than its radius. ``own_code``: a digest of what
    the page reaches outside this package; whether its arms exist is then checked. ``is_late``: rewards may count later
    than in the round of their decision.
    """
    return Kit(
        code=SOURCES + own_code + code_of(family) + links.code,
        is_guarded=own_code != "",
        num_averaged=len(page.averaged),
        network=page.network,
        has_marks=links.mark is not None,
        announces=page.announced is not None,
        reweighs=page.reweigh is not None,
        believes=page.believe is not None,
        is_private=page.noise_due is not None,
        meets=page.meet is not None,
        watches=watches,
        is_late=is_late,
        knows_unknown=page.unknown is not None,
        has_shares=shares is not None,
        has_control=shares is not None and shares.control is not None,
        has_caught_up="caught_up" in page.knows,
        draw_reward=draw_of(family),
        average_links=links.average,
        mark_links=links.mark or _no_marks,
        start=page.start or _no_start,
        decide=page.decide,
        noise_due=page.noise_due or _no_noise_due,
        observe=page.observe,
        published=page.published,
        reweigh=page.reweigh or _no_reweighing,
        believe=page.believe or _no_belief,
        estimate=page.estimate,
        radius=page.radius or _no_radius,
        unknown=page.unknown or _nothing_unknown,
        meet=page.meet or _no_meeting,
        announced=page.announced or _nothing_announced,
    )


# ---------------------------------------------------------------- one agent acts in a round


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
        me, step, mine = population.agents[i], population.steps[i], population.streams[i]
        if tape.on:
            reward = tape.rewards[step.clock, i, arm]
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
                step.before[c] = before[c]

    @compile_inner
    def act(population: Any, world: Any, links: Any, tape: Any, t: int, now: Any, i: int) -> None:
        me, fixed, step = population.agents[i], by_value(population.terms[i]), population.steps[i]
        if t > 0:
            if hears:
                hear(population, fixed, links, t, i)
            if world.in_step:
                step.acts = 1
            else:
                step.acts = uniform(draw(population.streams[i].arrivals, np.uint64(t))) < world.rates[i]
            if step.acts > 0:
                step.clock += 1
                if not world.in_step:
                    now = time_of(step.clock)
                choose(population, tape, i, fixed, now)
                pull(population, world, tape, i, fixed, step.arm, t)
        else:
            num_arms = len(me.tried)
            for k in range(num_arms):  # Algorithm 1, line 1: at t = 0 every arm once
                arm = np.uint64(k)
                pull(population, world, tape, i, fixed, arm, t)
                if not is_late:
                    add_news(population.averages, i, arm, num_arms, published(me, fixed, arm), step.before)
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
            step, me = population.steps[i], population.agents[i]
            if step.acts > 0:
                after = published(me, fixed, step.arm)
                add_news(population.averages, i, step.arm, len(me.tried), after, step.before)

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
        me, step, waiting = population.agents[i], population.steps[i], population.waiting
        num_arms = len(me.tried)
        draws = SimulatedDraws(i, step.clock, step.arm, population.streams[i], tape)
        if has_control:
            arm = say_without_control(population, i, fixed, now, draws)
        elif waits and waiting.num_unobserved[i] > 0:
            # As a live site does: until each arm has a reward that counts, those without one in turn.
            arm = np.uint64(fewest_pulls(me.tried, waiting.unobserved[i]))
        else:
            arm = as_arm(decide(me, fixed, me, now, draws))
        step.arm = arm
        if is_guarded and arm >= np.uint64(num_arms):
            raise IndexError  # beyond its rows lies other agents' memory
        if has_shares:
            step.arm = arm_by_share(population.sharing, population.streams[i], tape, i, step.clock, num_arms, arm)

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
        me, step = population.agents[i], population.steps[i]
        if is_private:
            due = noise_due(me, fixed, arm)
            noise = draw_noise(tape, population.streams[i], i, arm, fixed.noise_scale, due)
            if believes:
                step.released = step.released + due if is_late else due
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


# ---------------------------------------------------------------- the phases of a round


compilable(time_of)


class Phases(NamedTuple):
    """Compiled functions, in the order of a round; ``i`` is one agent.

    * ``begin(population, i)``: before round 0
    * ``mark(population, links, t, bits)``: which links are there; n~ of all agents where that depends on it
    * ``act(population, world, links, tape, t, now, i)``
    * ``exchange(population, links, tape, t, bits)``
    * ``learn(population, t, i)``
    * ``gather(population, links)``: a page's own meeting of all agents
    * ``watch(population, arm_means, misses, i)``
    """

    begin: Any
    mark: Any
    act: Any
    exchange: Any
    learn: Any
    gather: Any
    watch: Any


# ---------------------------------------------------------------- the phases


def phases_of(kit: Kit, shows: bool = False, hearing: tuple[Any, Any] | None = None) -> Phases:
    """Compile the phases of a kit.

    ``shows``: what agents hear of each other lies apart from their records, in ``population.shown``. Then an agent may
    act as soon as it has learnt, before others have. ``hearing``: an engine's own way to hear n~ and to take it over.
    """
    hear, see = hearing or _hearing(kit, shows and not kit.has_marks)
    for function in kit:
        if callable(function):
            compilable(function)
    return Phases(
        begin=_begin(kit),
        mark=_mark(kit),
        act=act_of(kit, hear),
        exchange=_exchange(kit),
        learn=_learn(kit, see),
        gather=_gather(kit),
        watch=_watch(kit),
    )


def _begin(kit: Kit) -> Any:
    start, has_control = kit.start, kit.has_control

    @compile_inner
    def begin(population: Any, i: Any) -> None:
        start(population.agents[i], population.terms[i])
        if has_control:
            start(population.sharing.few[i], population.terms[i])
            keep_fresh(population.sharing, i)

    return begin


def _mark(kit: Kit) -> Any:
    mark_links, announced, announces = kit.mark_links, kit.announced, kit.announces

    @compile_inner
    def mark(population: Any, links: Any, t: int, bits: Any) -> None:
        mark_links(links, t, bits)
        if announces:
            hear_present_links(announced, population.agents, population.terms, population.n_max, links)

    return mark


def _hearing(kit: Kit, shows: bool) -> tuple[Any, Any]:
    """Algorithm 1, line 5: to hear n~ of the next round, and to take it over at the end of this one."""
    announced, grows = kit.announced, not kit.is_guarded  # a user's page may announce what falls again

    @compile_inner
    def hear_shown_rows(population: Any, fixed: Any, links: Any, t: int, i: int) -> None:
        hear_shown(announced, population.agents[i], fixed, population.shown, links, t, i, grows)

    @compile_inner
    def see_shown_row(population: Any, t: int, i: int) -> None:
        see_shown(population.agents[i], population.shown, t, i)

    @compile_inner
    def hear_records(population: Any, fixed: Any, links: Any, t: int, i: int) -> None:
        hear_n_max(announced, population.agents[i], fixed, population.agents, population.n_max, links, i)

    @compile_inner
    def see_row(population: Any, t: int, i: int) -> None:
        me = population.agents[i]
        known = row_like(me.n_max)
        for k in range(len(known)):
            known[k] = population.n_max[i, k]
        for k in range(len(known)):
            me.n_max[k] = known[k]

    return (hear_shown_rows, see_shown_row) if shows else (hear_records, see_row)


def _exchange(kit: Kit) -> Any:
    average_links, published, believe, num_averaged = kit.average_links, kit.published, kit.believe, kit.num_averaged
    averages, pools = kit.network in ("gossip", "consensus"), kit.network == "pooled"

    @compile_inner
    def exchange(population: Any, links: Any, tape: Any, t: int, bits: Any) -> None:
        """What happens between agents after the pulls of a round. At t = 0 averages are what one publishes itself."""
        if averages and t > 0:
            columns = num_averaged * len(population.agents[0].tried)
            average_links(population.averages, columns, links, population.steps, tape, t, bits)  # lines 17-20
        if pools:
            pool(published, believe, population, t)

    return exchange


def _reweigh(kit: Kit) -> Any:
    published, reweigh = kit.published, kit.reweigh

    @compile_inner
    def reweigh_myself(population: Any, i: int, fixed: Any, elapsed: float) -> None:
        """After a release: set the agent's weight anew, and tell what that changes of any arm."""
        me, before = population.agents[i], population.before[i]
        num_arms, columns = before.shape
        for k in range(num_arms):
            told = published(me, fixed, np.uint64(k))
            for c in range(columns):
                before[k, c] = told[c]
        reweigh(me, fixed, elapsed)
        for k in range(num_arms):
            add_news(population.averages, i, np.uint64(k), num_arms, published(me, fixed, np.uint64(k)), before[k])
        population.steps[i].mixed = 1  # every arm is to be believed anew

    return reweigh_myself


def _learn(kit: Kit, see: Any) -> Any:
    believe, announces, reweighs, is_private = kit.believe, kit.announces, kit.reweighs, kit.is_private
    believes, is_late, knows_unknown = kit.believes and kit.network != "pooled", kit.is_late, kit.knows_unknown
    news_last = kit.network in ("gossip", "alone")
    add_my_news, reweigh_myself = news_of(kit), _reweigh(kit)

    @compile_inner
    def learn(population: Any, t: int, i: int) -> None:
        me, fixed, step, waiting = (
            population.agents[i],
            by_value(population.terms[i]),
            population.steps[i],
            population.waiting,
        )
        num_arms = len(me.tried)
        if announces and t > 0:
            see(population, t, i)
        if news_last and t > 0:
            add_my_news(population, i, fixed)
        if reweighs and t > 0 and step.released > 0:
            reweigh_myself(population, i, fixed, float(t))
        if believes:
            if step.mixed > 0 or t == 0:
                for k in range(num_arms):
                    if not is_late or knows_unknown or waiting.unobserved[i, k] == 0:
                        believe(me, fixed, me, np.uint64(k))
            elif is_late:
                for k in range(num_arms):
                    if waiting.news[i, k] > 0:
                        believe(me, fixed, me, np.uint64(k))
            elif step.released > 0 or (step.acts > 0 and not is_private):
                believe(me, fixed, me, step.arm)
            step.mixed, step.released = 0, 0

    return learn


def _gather(kit: Kit) -> Any:
    meet = kit.meet

    @compile_inner
    def gather(population: Any, links: Any) -> None:
        sent = meet(population.agents, population.terms, population.agents, links.edges, links.present)
        for i in range(len(population.steps)):
            population.steps[i].messages += sent

    return gather


def _watch(kit: Kit) -> Any:
    estimate, radius, unknown, skips = kit.estimate, kit.radius, kit.unknown, kit.is_late and not kit.knows_unknown

    @compile_inner
    def watch(population: Any, arm_means: Any, misses: Any, i: int) -> None:
        """How many estimates lie further from the truth than the radius of the next decision.

        ``skips``: an arm without a reward that counts is unknown.
        """
        me, fixed = population.agents[i], population.terms[i]
        now = time_of(max(population.steps[i].clock + 1, 2))
        for k in range(len(arm_means)):
            error = abs(estimate(me, fixed, me, k) - arm_means[k])
            if skips and population.waiting.unobserved[i, k] > 0:
                continue
            if not unknown(me, k) and error > radius(me, fixed, me, now, k):
                misses[i] += 1

    return watch
