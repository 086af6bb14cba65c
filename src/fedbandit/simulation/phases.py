"""The phases of a round, for one agent or for all: what engines arrange in loops, threads and memory.

A round is: links are marked; every agent acts (hears n~, decides, draws its reward, observes); links exchange; every
agent learns (adds its news, believes). In ``act`` and ``learn`` an agent writes nothing that another one reads in the
same phase, so agents may take their turns in any order, or at once. Phases state the order of events and no formula:
formulas are in the rules and pages.
"""

from typing import Any, NamedTuple

import numpy as np

from fedbandit.policies.protocol import time_of
from fedbandit.simulation.acting import act_of, news_of
from fedbandit.simulation.compiled import by_value, compilable, compile_inner, row_like
from fedbandit.simulation.kit import Kit
from fedbandit.simulation.network import add_news, hear_n_max, hear_present_links, hear_shown, pool, see_shown
from fedbandit.simulation.sharing import keep_fresh

__all__ = ["Phases", "phases_of"]

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
            average_links(population.averages, columns, links, population.turns, tape, t, bits)  # lines 17-20
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
        population.turns[i].mixed = 1  # every arm is to be believed anew

    return reweigh_myself


def _learn(kit: Kit, see: Any) -> Any:
    believe, announces, reweighs, is_private = kit.believe, kit.announces, kit.reweighs, kit.is_private
    believes, is_late, knows_unknown = kit.believes and kit.network != "pooled", kit.is_late, kit.knows_unknown
    news_last = kit.network in ("gossip", "alone")
    add_my_news, reweigh_myself = news_of(kit), _reweigh(kit)

    @compile_inner
    def learn(population: Any, t: int, i: int) -> None:
        me, fixed, turn, waiting = (
            population.agents[i],
            by_value(population.terms[i]),
            population.turns[i],
            population.waiting,
        )
        num_arms = len(me.tried)
        if announces and t > 0:
            see(population, t, i)
        if news_last and t > 0:
            add_my_news(population, i, fixed)
        if reweighs and t > 0 and turn.released > 0:
            reweigh_myself(population, i, fixed, float(t))
        if believes:
            if turn.mixed > 0 or t == 0:
                for k in range(num_arms):
                    if not is_late or knows_unknown or waiting.unobserved[i, k] == 0:
                        believe(me, fixed, me, np.uint64(k))
            elif is_late:
                for k in range(num_arms):
                    if waiting.news[i, k] > 0:
                        believe(me, fixed, me, np.uint64(k))
            elif turn.released > 0 or (turn.acts > 0 and not is_private):
                believe(me, fixed, me, turn.arm)
            turn.mixed, turn.released = 0, 0

    return learn


def _gather(kit: Kit) -> Any:
    meet = kit.meet

    @compile_inner
    def gather(population: Any, links: Any) -> None:
        sent = meet(population.agents, population.terms, population.agents, links.edges, links.present)
        for i in range(len(population.turns)):
            population.turns[i].messages += sent

    return gather


def _watch(kit: Kit) -> Any:
    estimate, radius, unknown, skips = kit.estimate, kit.radius, kit.unknown, kit.is_late and not kit.knows_unknown

    @compile_inner
    def watch(population: Any, arm_means: Any, misses: Any, i: int) -> None:
        """How many estimates lie further from the truth than the radius of the next decision.

        ``skips``: an arm without a reward that counts is unknown.
        """
        me, fixed = population.agents[i], population.terms[i]
        now = time_of(max(population.turns[i].clock + 1, 2))
        for k in range(len(arm_means)):
            error = abs(estimate(me, fixed, me, k) - arm_means[k])
            if skips and population.waiting.unobserved[i, k] > 0:
                continue
            if not unknown(me, k) and error > radius(me, fixed, me, now, k):
                misses[i] += 1

    return watch
