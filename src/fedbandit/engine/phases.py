"""The phases of a round in compiled code, for what is fixed before it is compiled: a ``Specialisation``.

Engines arrange them in loops, threads and memory (``fedbandit.policies.order``). Phases state the order of events and
no formula: formulas are in the rules and pages.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedbandit.engine.compiled import as_arm, by_value, compilable, compile_inner, row_like
from fedbandit.engine.features import count_loss, put_features, see_features, set_mean, take_features
from fedbandit.engine.late_rewards import add_late_news, first_due, next_due, note, place_of, put
from fedbandit.engine.links import LinkKind
from fedbandit.engine.network import (
    add_news,
    copy_record,
    hear_n_max,
    hear_present_links,
    hear_shown,
    pass_on_by,
    pool,
    pool_records,
    publish,
    see_mean,
    see_shown,
)
from fedbandit.engine.streams import NOISES, SimulatedDraws, draw, draw_noise, draw_of, uniform
from fedbandit.policies.order import Phases
from fedbandit.policies.protocol import Context, Page, time_of
from fedbandit.policies.protocol import uniform as pick
from fedbandit.rules.choose import BY_INDEX, CONTROL, given_by_share
from fedbandit.rules.urn import any_drawn
from fedbandit.shares import Shares
from fedbandit.world.rewards import Family


@dataclass(frozen=True)
class Specialisation:
    """What a loop over rounds is compiled for: a page, and what else is known before.

    Branches that are never taken are left out. It tells loops apart, so it holds all that differs.
    """

    page: Page = field(hash=False)  # it has a dict
    links: LinkKind
    draw_reward: Callable[..., Any]
    own_code: str  # a digest of what the page reaches outside this package
    watches: bool  # count how often an estimate lies further from the truth than its radius
    is_late: bool  # rewards may count later than in the round of their decision
    has_shares: bool
    has_control: bool
    has_releases: bool = False  # links pass on what each agent has published, and average nothing
    has_strata: bool = False  # decisions have strata, whether or not the page takes them
    has_features: bool = False  # decisions have features, whether or not the page takes them

    @property
    def is_guarded(self) -> bool:
        """A user's page: whether its arms exist is checked."""
        return self.own_code != ""

    @property
    def hears(self) -> bool:
        """Whether agents receive n~ when they act; where links are marked, they have it by then."""
        return self.page.announced is not None and self.links.mark is None

    @property
    def waits(self) -> bool:
        """Whether an arm is unknown until a reward of it counts; other pages say themselves what is unknown."""
        return self.is_late and self.page.unknown is None

    @property
    def functions(self) -> list[Callable[..., Any]]:
        """What it has of functions that are compiled: the page's, and those for rewards and links."""
        page = self.page
        parts = (page.start, page.decide, page.noise_due, page.observe, published_by(page), page.reweigh, page.believe)
        shown = (page.estimate, page.radius, page.unknown, page.meet, page.announced, page.combine, page.receive)
        found = (*parts, *shown, self.draw_reward, self.links.average, self.links.mark)
        return [function for function in found if function is not None]


def specialise(
    page: Page,
    family: Family,
    links: LinkKind,
    watches: bool,
    own_code: str = "",
    is_late: bool = False,
    shares: Shares | None = None,
    has_releases: bool = False,
    has_strata: bool = False,
    has_features: bool = False,
) -> Specialisation:
    """For a page, a family of rewards and a kind of links."""
    has_control = shares is not None and shares.control is not None
    return Specialisation(
        page,
        links,
        draw_of(family),
        own_code,
        watches,
        is_late,
        shares is not None,
        has_control,
        has_releases,
        has_strata,
        has_features,
    )


def phases_of(spec: Specialisation, is_apart: bool = False, hearing: tuple[Any, Any] | None = None) -> Phases:
    """Compile the phases of a specialisation.

    ``is_apart``: what agents receive of each other lies apart from their records, in ``population.shown``. Then an
    agent may act as soon as it has learnt, before others have. ``hearing``: an engine's own way to receive n~ and to
    take it over.
    """
    hear, see = hearing or _hearing(spec, is_apart and spec.links.mark is None)
    for function in spec.functions:
        compilable(function)
    page = spec.page
    return Phases(
        begin=_begin(spec),
        act=_act(spec, hear),
        learn=(
            _learn_from_records(spec)
            if page.records
            else _learn_from_releases(spec, see)
            if spec.has_releases
            else _learn(spec, see)
        ),
        exchange=_exchange(spec) if page.network in ("gossip", "consensus", "pooled") else None,
        mark=None if spec.links.mark is None else _mark(spec),
        gather=None if page.meet is None else _gather(page.meet),
        watch=_watch(spec) if spec.watches and page.radius is not None else None,
    )


def _publish_nothing(me: Any, terms: Any, arm: Any) -> tuple[float]:
    """For a page that has records."""
    return (0.0,)


def published_by(page: Page) -> Any:
    """What the page publishes of an arm, where links gossip averages."""
    return page.published or _publish_nothing


def _believe_nothing(me: Any, terms: Any, seen: Any, arm: Any) -> None:
    """For a page that derives nothing from the averages."""


def _nothing_unknown(me: Any, arm: Any) -> bool:
    """For a page that has all estimates from the start."""
    return False


for _function in (time_of, any_drawn, given_by_share, _believe_nothing, _nothing_unknown, _publish_nothing):
    compilable(_function)


def _begin(spec: Specialisation) -> Any:
    start: Any = spec.page.start
    starts, has_control = start is not None, spec.has_control

    @compile_inner
    def begin(population: Any, i: Any) -> None:
        if starts:
            start(population.agents[i], population.terms[i])
        if has_control:
            if starts:
                start(population.sharing.few[i], population.terms[i])
            keep_fresh(population.sharing, i)

    return begin


def _mark(spec: Specialisation) -> Any:
    mark_links: Any = spec.links.mark
    announced, announces = spec.page.announced, spec.page.announced is not None

    @compile_inner
    def mark(population: Any, links: Any, t: int, edges: Any) -> None:
        mark_links(links, t, draw(edges, np.uint64(t)))
        if announces:
            hear_present_links(announced, population.agents, population.terms, population.n_max, links)

    return mark


def _hearing(spec: Specialisation, shows: bool) -> tuple[Any, Any]:
    """Algorithm 1, line 5: to hear n~ of the next round, and to take it over at the end of this one."""
    announced, grows = spec.page.announced, not spec.is_guarded  # a user's page may announce what falls again

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


def _exchange(spec: Specialisation) -> Any:
    """What happens between agents after the pulls of a round. At t = 0 averages are what one publishes itself."""
    average_links, num_averaged = spec.links.average, len(spec.page.averaged)
    published, believe = published_by(spec.page), spec.page.believe or _believe_nothing

    @compile_inner
    def exchange_averages(population: Any, links: Any, tape: Any, t: int, edges: Any) -> None:
        if t > 0:
            columns, bits = num_averaged * len(population.agents[0].tried), draw(edges, np.uint64(t))
            average_links(population.averages, columns, links, population.steps, tape, t, bits)  # lines 17-20

    pass_on = pass_on_by(spec.links)
    compilable(pass_on)

    @compile_inner
    def exchange_releases(population: Any, links: Any, tape: Any, t: int, edges: Any) -> None:
        if t > 0:
            pass_on(population, links, tape, t, draw(edges, np.uint64(t)))

    @compile_inner
    def exchange_sums(population: Any, links: Any, tape: Any, t: int, edges: Any) -> None:
        pool(published, believe, population, t)

    @compile_inner
    def exchange_sums_of_records(population: Any, links: Any, tape: Any, t: int, edges: Any) -> None:
        pool_records(population, t)

    if spec.page.records and spec.page.network == "pooled":
        return exchange_sums_of_records
    if spec.has_releases:
        return exchange_releases
    return exchange_sums if spec.page.network == "pooled" else exchange_averages


def _reweigh(spec: Specialisation) -> Any:
    page: Any = spec.page
    published, reweigh = published_by(page), page.reweigh

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


def _learn(spec: Specialisation, see: Any) -> Any:
    page: Any = spec.page
    believe, is_late, waits = page.believe, spec.is_late, spec.waits
    announces, reweighs, is_private = page.announced is not None, page.reweigh is not None, page.noise_due is not None
    believes = page.believe is not None and page.network != "pooled"
    news_last = page.network in ("gossip", "alone")
    add_my_news, reweigh_myself = _news_of(spec), _reweigh(spec)

    @compile_inner
    def learn(population: Any, t: int, i: int) -> None:
        me, fixed = population.agents[i], by_value(population.terms[i])
        step, waiting, num_arms = population.steps[i], population.waiting, len(me.tried)
        if announces and t > 0:
            see(population, t, i)
        if news_last and t > 0:
            add_my_news(population, i, fixed)
        if reweighs and t > 0 and step.released > 0:
            reweigh_myself(population, i, fixed, float(t))
        if believes:
            if step.mixed > 0 or t == 0:
                for k in range(num_arms):
                    if not waits or waiting.unobserved[i, k] == 0:
                        believe(me, fixed, me, np.uint64(k))
            elif is_late:
                for k in range(num_arms):
                    if waiting.news[i, k] > 0:
                        believe(me, fixed, me, np.uint64(k))
            elif step.released > 0 or (step.acts > 0 and not is_private):
                believe(me, fixed, me, step.arm)
            step.mixed, step.released = 0, 0

    return learn


def _publish(spec: Specialisation) -> Any:
    published, is_late = published_by(spec.page), spec.is_late

    @compile_inner
    def publish_mine(population: Any, i: int, fixed: Any, all_arms: bool) -> bool:
        """Publish what this round's rewards have changed, or all; whether there is a new version of it."""
        me, step, releases, waiting = population.agents[i], population.steps[i], population.releases, population.waiting
        has_changed, is_first = False, releases.versions[i, i] == 0
        for k in range(len(me.tried)):
            has_news = waiting.news[i, k] > 0 if is_late else step.acts > 0 and step.arm == np.uint64(k)
            if all_arms or has_news:
                values = published(me, fixed, np.uint64(k))
                has_changed |= publish(releases, i, k * len(values), values) or is_first
        if has_changed:
            releases.versions[i, i] += 1
        return has_changed

    return publish_mine


def _see_releases(spec: Specialisation) -> Any:
    page: Any = spec.page
    combine, combines = page.combine, page.combine is not None
    columns, num_averaged = len(page.published_names), len(page.averaged)

    @compile_inner
    def see_arm(population: Any, i: int, fixed: Any, k: int) -> None:
        """Compute anew what an agent sees of an arm."""
        releases, averages, num_arms = population.releases, population.averages, len(population.agents[0].tried)
        first = k * columns
        if combines:
            rows = releases.rows[i, :, first : first + columns]
            seen = combine(fixed, rows, releases.versions[i])
            for c in range(num_averaged):
                averages[i, c * num_arms + k] = seen[c]
        else:
            mean = population.steps[i].before  # scratch
            see_mean(releases, i, first, mean)
            for c in range(num_averaged):
                averages[i, c * num_arms + k] = mean[c]

    return see_arm


def _learn_from_releases(spec: Specialisation, see: Any) -> Any:
    """As ``_learn``: links have acted, then the agent publishes; it sees what both have changed."""
    page: Any = spec.page
    believe, reweigh, is_late, waits = page.believe or _believe_nothing, page.reweigh, spec.is_late, spec.waits
    announces, reweighs, is_private = page.announced is not None, page.reweigh is not None, page.noise_due is not None
    publish_mine, see_arm = _publish(spec), _see_releases(spec)

    @compile_inner
    def publish_and_see(population: Any, t: int, i: int) -> None:
        me, fixed = population.agents[i], by_value(population.terms[i])
        step, waiting = population.steps[i], population.waiting
        if announces and t > 0:
            see(population, t, i)
        if reweighs and t > 0 and step.released > 0:
            reweigh(me, fixed, float(t))
            publish_mine(population, i, fixed, True)
            step.mixed = 1  # every arm is to be seen anew
        else:
            publish_mine(population, i, fixed, t == 0 and not is_late)
        is_new = step.mixed > 0 or t == 0
        for k in range(len(me.tried)):
            arm = np.uint64(k)
            has_news = waiting.news[i, k] > 0 if is_late else step.acts > 0 and step.arm == arm
            if is_new or has_news:
                see_arm(population, i, fixed, k)
            if is_new:
                if not waits or waiting.unobserved[i, k] == 0:
                    believe(me, fixed, me, arm)
            elif has_news and (is_late or step.released > 0 or not is_private):
                believe(me, fixed, me, arm)
        step.mixed, step.released = 0, 0

    return publish_and_see


def _learn_from_records(spec: Specialisation) -> Any:
    """As ``_learn_from_releases``, with records: the agent copies its own to its board, and receives all of them."""
    page: Any = spec.page
    receive, is_late, is_private = page.receive, spec.is_late, page.noise_due is not None
    spreads, is_pooled = spec.has_releases, page.network == "pooled"
    reweigh, reweighs = page.reweigh, page.reweigh is not None
    all_at_once = is_private and page.context == "features"  # a release may be of every arm
    is_one = page.one_record

    @compile_inner
    def publish_and_receive(population: Any, t: int, i: int) -> None:
        me, fixed = population.agents[i], by_value(population.terms[i])
        step, waiting, releases = population.steps[i], population.waiting, population.releases
        board = 0 if is_pooled else i
        mine = i if spreads else 0
        has_changed, length = is_pooled or t == 0 or step.mixed > 0, population.records.length
        is_reweighed = False
        if reweighs and t > 0 and step.released > 0:
            reweigh(me, fixed, float(t))
            is_reweighed = True
        for k in range(len(me.tried)):
            has_news = waiting.news[i, k] > 0 if is_late else step.acts > 0 and step.arm == np.uint64(k)
            if is_one:
                has_news = k == 0 and step.acts > 0
            is_released = step.released > 0 if is_private else has_news
            if not is_pooled and (t == 0 or (is_released and (has_news or all_at_once)) or is_reweighed):
                copy_record(population, i, releases.rows[board, mine], k)
                has_changed = True
        if has_changed:
            if not is_pooled:
                releases.versions[board, mine] += 1
            for k in range(1 if is_one else len(me.tried)):
                rows = releases.rows[board, :, k * length : (k + 1) * length]
                receive(me, fixed, np.uint64(k), rows, releases.versions[board])
        step.mixed, step.released = 0, 0

    return publish_and_receive


def _gather(meet: Any) -> Any:
    @compile_inner
    def gather(population: Any, links: Any) -> None:
        sent = meet(population.agents, population.terms, population.agents, links.edges, links.present)
        for i in range(len(population.steps)):
            population.steps[i].messages += sent

    return gather


def _watch(spec: Specialisation) -> Any:
    page: Any = spec.page
    estimate, radius, unknown, waits = page.estimate, page.radius, page.unknown or _nothing_unknown, spec.waits

    @compile_inner
    def watch(population: Any, arm_means: Any, misses: Any, i: int) -> None:
        """How many estimates lie further from the truth than the radius of the next decision."""
        me, fixed = population.agents[i], population.terms[i]
        now = time_of(max(population.steps[i].clock + 1, 2))
        for k in range(len(arm_means)):
            error = abs(estimate(me, fixed, me, k) - arm_means[k])
            if waits and population.waiting.unobserved[i, k] > 0:
                continue
            if not unknown(me, k) and error > radius(me, fixed, me, now, k):
                misses[i] += 1

    return watch


# ---------------------------------------------------------------- one agent acts


def _act(spec: Specialisation, hear: Any) -> Any:
    """One agent receives n~, decides, draws its reward, observes it, and publishes what that has changed."""
    draw_reward, published, num_averaged = spec.draw_reward, published_by(spec.page), len(spec.page.published_names)
    hears, is_late, news_first = spec.hears, spec.is_late, spec.page.network == "consensus"
    has_averages = not (spec.has_releases or spec.page.records)
    has_strata, has_features = spec.has_strata, spec.has_features
    counts_cells = "tried_in" in spec.page.knows
    choose, take, add_my_news = _decide(spec), _observe(spec), _news_of(spec)
    count_late_rewards = _count_late_rewards(spec, take)

    @compile_inner
    def pull(population: Any, world: Any, tape: Any, i: int, fixed: Any, arm: Any, t: int) -> None:
        me, step, mine = population.agents[i], population.steps[i], population.streams[i]
        if tape.on:
            reward = tape.rewards[step.clock, i, arm]
        else:
            bits = draw(mine.rewards[arm], np.uint64(me.tried[arm]))
            if has_strata:
                reward = draw_reward(world.rewards, bits, world.means, i, cell_of(population, i, arm))
            elif has_features:
                set_mean(population.contexts, world, i, arm)
                reward = draw_reward(world.rewards, bits, population.contexts.mean, i, arm)
            else:
                reward = draw_reward(world.rewards, bits, world.means, i, arm)
        me.tried[arm] += 1
        stratum = np.int64(0)
        if has_strata:
            stratum = population.contexts.stratum[i]
            count_cell(population, i, arm, t)
        if counts_cells:
            me.tried_in[arm][stratum] += 1
        if has_features and t > 0:
            count_loss(population.contexts, world, i, arm)
        if is_late:
            if has_strata:
                population.contexts.waiting[i, place_of(population.waiting, arm, t) - 1] = stratum
            if has_features:
                put_features(population.contexts, i, place_of(population.waiting, arm, t) - 1)
            put(population.waiting, world.lateness, mine, i, arm, me.tried[arm] - 1, t, reward)
        else:
            before = published(me, fixed, arm)
            take(population, tape, i, fixed, arm, reward, stratum)
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
                if has_strata:
                    see_stratum(population, world, tape, i, len(me.tried) - 1 + step.clock)
                if has_features:
                    see_features(population.contexts, world, tape, i, len(me.tried) - 1 + step.clock)
                choose(population, tape, i, fixed, now)
                pull(population, world, tape, i, fixed, step.arm, t)
        else:
            num_arms = len(me.tried)
            for k in range(num_arms):  # Algorithm 1, line 1: at t = 0 every arm once
                arm = np.uint64(k)
                if has_strata:
                    see_stratum(population, world, tape, i, k)
                if has_features:
                    see_features(population.contexts, world, tape, i, k)
                pull(population, world, tape, i, fixed, arm, t)
                if has_averages and not is_late:
                    add_news(population.averages, i, arm, num_arms, published(me, fixed, arm), step.before)
        if is_late:
            count_late_rewards(population, tape, i, fixed, t)
        if (has_averages and is_late and t == 0) or (news_first and t > 0):
            add_my_news(population, i, fixed)

    return act


def _news_of(spec: Specialisation) -> Any:
    """Compile ``add_my_news(population, i, fixed)``."""
    published, is_late = published_by(spec.page), spec.is_late

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


# ---------------------------------------------------------------- strata


@compile_inner
def see_stratum(population: Any, world: Any, tape: Any, i: int, number: Any) -> None:
    """Draw the stratum of an agent's decision; the first pulls have the numbers of their arms."""
    contexts = population.contexts
    if tape.on:
        contexts.stratum[i] = tape.strata[number, i]
        return
    u, s = uniform(draw(contexts.names[i], np.uint64(number))), 0
    while s < world.strata.shape[1] - 1 and u >= world.strata[i, s]:
        s += 1
    contexts.stratum[i] = s


@compile_inner
def cell_of(population: Any, i: int, arm: Any) -> Any:
    """The number of an agent's stratum and an arm."""
    return np.uint64(population.contexts.stratum[i]) * np.uint64(len(population.agents[i].tried)) + arm


@compile_inner
def count_cell(population: Any, i: int, arm: Any, t: int) -> None:
    """Count a decision of its cell."""
    cell = cell_of(population, i, arm)
    population.contexts.pulls[i, cell] += 1
    if t == 0:
        population.contexts.first[i, cell] += 1


# ---------------------------------------------------------------- what an agent decides and observes


def _decide(spec: Specialisation) -> Any:
    decide, believe, is_guarded = spec.page.decide, spec.page.believe or _believe_nothing, spec.is_guarded
    waits, has_shares, has_control = spec.waits, spec.has_shares, spec.has_control
    ask = _asking(decide, spec)

    @compile_inner
    def say_without_control(population: Any, i: int, fixed: Any, now: Any, draws: Any) -> Any:
        """The index's arm in a world without the control arm."""
        sharing = population.sharing
        narrow(sharing, i)
        few = sharing.few[i]
        position = np.uint64(0)
        if waits and unobserved_others(sharing, i, population.waiting.unobserved[i]) > 0:
            position = np.uint64(any_drawn(few.tried, sharing.unobserved[i], pick(draws)))
        elif len(few.tried) > 1:
            for k in range(len(few.tried)):
                believe(few, fixed, few, np.uint64(k))
            position = as_arm(ask(population, i, few, fixed, now, draws))
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
            # As a live site does: until each arm has a reward that counts.
            arm = np.uint64(any_drawn(me.tried, waiting.unobserved[i], pick(draws)))
        else:
            arm = as_arm(ask(population, i, me, fixed, now, draws))
        step.arm = arm
        if is_guarded and arm >= np.uint64(num_arms):
            raise IndexError  # beyond its rows lies other agents' memory
        if has_shares:
            step.arm = arm_by_share(population.sharing, population.streams[i], tape, i, step.clock, num_arms, arm)

    return choose


def _context_of(spec: Specialisation) -> Any:
    """Compile ``context_of(population, i, stratum)``: what the page is told of the decision in hand."""

    @compile_inner
    def of_stratum(population: Any, i: int, stratum: Any) -> Any:
        return Context(stratum, ())

    @compile_inner
    def of_features(population: Any, i: int, stratum: Any) -> Any:
        return Context(stratum, population.contexts.x[i])

    return of_features if spec.page.context == "features" else of_stratum


def _asking(decide: Any, spec: Specialisation) -> Any:
    """Compile ``ask(population, i, me, fixed, now, draws)``: the page decides, with the context if it takes that."""
    has_strata, context_of = spec.has_strata, _context_of(spec)

    @compile_inner
    def ask(population: Any, i: int, me: Any, fixed: Any, now: Any, draws: Any) -> Any:
        return decide(me, fixed, me, now, draws)

    @compile_inner
    def ask_with_context(population: Any, i: int, me: Any, fixed: Any, now: Any, draws: Any) -> Any:
        stratum: Any = np.int64(0)
        if has_strata:
            stratum = population.contexts.stratum[i]
        return decide(me, fixed, me, now, draws, context_of(population, i, stratum))

    return ask if spec.page.context is None else ask_with_context


def _observe(spec: Specialisation) -> Any:
    page: Any = spec.page
    noise_due, observe, is_late = page.noise_due, page.observe, spec.is_late
    is_private, believes = noise_due is not None, page.believe is not None
    if page.context == "features":
        return _observe_features(spec)
    if page.context is not None:
        return _observe_in_context(spec)

    @compile_inner
    def take(population: Any, tape: Any, i: int, fixed: Any, arm: Any, reward: Any, stratum: Any) -> None:
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


def _observe_in_context(spec: Specialisation) -> Any:
    """As ``_observe``; a private page may release several sums at once, each with a noise of its own."""
    page: Any = spec.page
    noise_due, observe, is_late = page.noise_due, page.observe, spec.is_late
    is_private, context_of = noise_due is not None, _context_of(spec)

    @compile_inner
    def take(population: Any, tape: Any, i: int, fixed: Any, arm: Any, reward: Any, stratum: Any) -> None:
        me, step, context = population.agents[i], population.steps[i], context_of(population, i, stratum)
        if is_private:
            due = noise_due(me, fixed, arm, context)
            if due > 0:
                num_arms = len(me.tried)
                for s in range(len(me.due)):
                    cell = np.uint64(s) * np.uint64(num_arms) + arm
                    me.noise[s] = draw_noise(tape, population.streams[i], i, cell, fixed.noise_scale, me.due[s])
            step.released = step.released + due if is_late else due
            observe(me, fixed, arm, reward, me.noise, context)
        else:
            observe(me, fixed, arm, reward, 0.0, context)

    return take


def _observe_features(spec: Specialisation) -> Any:
    """The same for a page that takes features: what it releases is a row of sums, each with a noise of its own."""
    page: Any = spec.page
    noise_due, observe, is_late = page.noise_due, page.observe, spec.is_late
    is_private, context_of = noise_due is not None, _context_of(spec)
    draw_noises = NOISES[page.noise]

    @compile_inner
    def take(population: Any, tape: Any, i: int, fixed: Any, arm: Any, reward: Any, stratum: Any) -> None:
        me, step, context = population.agents[i], population.steps[i], context_of(population, i, stratum)
        if is_private:
            due = noise_due(me, fixed, arm, context)
            if due > 0:
                draw_noises(population, tape, i, arm, np.uint64(due), fixed.noise_scale)
            step.released = step.released + due if is_late else due
            observe(me, fixed, arm, reward, me.noise, context)
        else:
            observe(me, fixed, arm, reward, 0.0, context)

    return take


def _count_late_rewards(spec: Specialisation, take: Any) -> Any:
    published, has_strata, has_features = published_by(spec.page), spec.has_strata, spec.has_features

    @compile_inner
    def count_late_rewards(population: Any, tape: Any, i: int, fixed: Any, t: int) -> None:
        """Rewards that have waited until this round."""
        waiting = population.waiting
        place = first_due(waiting, i, t)
        while place > 0:
            arm, reward = np.uint64(waiting.arm[i, place - 1]), waiting.reward[i, place - 1]
            note(waiting, i, arm, published(population.agents[i], fixed, arm))
            stratum = np.int64(0)
            if has_strata:
                stratum = np.int64(population.contexts.waiting[i, place - 1])
            if has_features:
                take_features(population.contexts, i, place - 1)
            take(population, tape, i, fixed, arm, reward, stratum)
            place = next_due(waiting, i, place)

    return count_late_rewards


# ---------------------------------------------------------------- shares of arms

# The index never chooses the control arm: the page is asked in a world without it. What an agent knows there is a
# record with one arm less, filled as ``policies.plain.narrowed`` fills lists: kept fields are copied, byte by byte, and
# transient ones derived anew.


@compile_inner
def keep_fresh(sharing: Any, i: int) -> None:
    """Remember an agent's record as it is, after the page's ``start``."""
    for b in range(sharing.fresh.shape[1]):
        sharing.fresh[i, b] = sharing.few_bytes[i, b]


@compile_inner
def narrow(sharing: Any, i: int) -> None:
    """Fill an agent's record without the control arm; what is transient stays as before the first round."""
    for b in range(sharing.fresh.shape[1]):
        sharing.few_bytes[i, b] = sharing.fresh[i, b]
    for c in range(len(sharing.places)):
        sharing.few_bytes[i, sharing.places[c, 0]] = sharing.all_bytes[i, sharing.places[c, 1]]


@compile_inner
def widen(sharing: Any, i: int) -> None:
    """Put back what a decision may have changed."""
    for c in range(len(sharing.places)):
        sharing.all_bytes[i, sharing.places[c, 1]] = sharing.few_bytes[i, sharing.places[c, 0]]


@compile_inner
def unobserved_others(sharing: Any, i: int, unobserved: Any) -> int:
    """Fill in whether no reward has counted of the arms but the control arm; of how many."""
    count = 0
    for k in range(sharing.unobserved.shape[1]):
        sharing.unobserved[i, k] = unobserved[k + int(k >= sharing.control)]
        count += sharing.unobserved[i, k]
    return count


@compile_inner
def arm_by_share(sharing: Any, streams: Any, tape: Any, i: int, clock: Any, num_arms: int, said: Any) -> Any:
    """The arm of a decision for which the index has ``said`` one."""
    u = tape.shares[clock - 1, i] if tape.on else uniform(draw(streams.shares, np.uint64(clock)))
    others = num_arms - 1 if sharing.control >= 0 else num_arms
    given = given_by_share(u, sharing.control_share, sharing.least_share, others)
    if given == CONTROL:
        return np.uint64(sharing.control)
    if given == BY_INDEX:
        return said
    return np.uint64(given + int(0 <= sharing.control <= given))
