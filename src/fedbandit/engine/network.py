"""What agents hear of each other, in compiled code: n~, news of averages, pooled sums, and releases.

The network owns the averages: a page never touches a neighbour. Formulas are in ``fedbandit.rules``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedbandit.engine.compiled import by_value, compilable, compile_inner, compile_rare, row_like
from fedbandit.engine.links import (
    LinkKind,
    average_links_by_chance,
    average_matching,
    average_one_link,
    average_present_links,
    mark_by_chance,
)
from fedbandit.engine.streams import whole_below
from fedbandit.rules.gossip import heard, with_news
from fedbandit.rules.releases import is_newer, mean_of_heard, take_newer

for _rule in (heard, with_news, is_newer, mean_of_heard, take_newer):
    compilable(_rule)


# ---------------------------------------------------------------- n~, which spreads by maximum


@compile_inner
def hear_n_max(announced: Any, me: Any, terms: Any, seen: Any, n_max: Any, links: Any, i: int) -> None:
    """Algorithm 1, line 5: n~(t+1) from the agent's own count before this round's pull and its neighbours' n~(t)."""
    first, last = links.first_neighbour[i], links.first_neighbour[i + 1] - 1
    # Two neighbours at a time: half the passes over the arms.
    one, other = seen[links.neighbours[first]].n_max, seen[links.neighbours[min(first + 1, last)]].n_max
    most = row_like(one)
    for k in range(len(one)):
        most[k] = heard(heard(announced(me, terms, k), one[k]), other[k])
    for e in range(first + 2, last + 1, 2):
        one, other = seen[links.neighbours[e]].n_max, seen[links.neighbours[min(e + 1, last)]].n_max
        for k in range(len(one)):
            most[k] = heard(heard(most[k], one[k]), other[k])
    for k in range(len(most)):
        n_max[i, k] = most[k]


@compile_inner
def hear_shown(announced: Any, me: Any, terms: Any, shown: Any, links: Any, t: int, i: int, grows: bool) -> None:
    """The same from what agents show apart from their records: n~(t) in one half of ``shown``, n~(t+1) in the other.

    Where nothing that it hears has changed since the last round, only the agent's own counts can have
    (``grows``: they never fall).
    """
    rows, stirred = shown.rows[t % 2], shown.stirred[t % 2]
    first, last = links.first_neighbour[i], links.first_neighbour[i + 1]
    news = stirred[i]
    for e in range(first, last):
        news |= stirred[links.neighbours[e]]
    most = row_like(me.n_max)
    if news > 0 or not grows:
        for k in range(len(most)):
            most[k] = announced(me, terms, k)
        for e in range(first, last):
            there = links.neighbours[e]
            for k in range(len(most)):
                most[k] = heard(most[k], rows[there, k])
    else:
        for k in range(len(most)):
            most[k] = heard(announced(me, terms, k), rows[i, k])
    changed = np.int32(0)
    for k in range(len(most)):
        changed |= most[k] ^ rows[i, k]
    next_rows, next_stirred = shown.rows[(t + 1) % 2], shown.stirred[(t + 1) % 2]
    for k in range(len(most)):
        next_rows[i, k] = most[k]
    next_stirred[i] = changed != 0


@compile_inner
def see_shown(me: Any, shown: Any, t: int, i: int) -> None:
    """Take over what was heard in this round, if it is new."""
    if shown.stirred[(t + 1) % 2, i] > 0:
        known, rows = row_like(me.n_max), shown.rows[(t + 1) % 2]
        for k in range(len(known)):
            known[k] = rows[i, k]
        for k in range(len(known)):
            me.n_max[k] = known[k]


@compile_inner
def hear_present_links(announced: Any, agents: Any, terms: Any, n_max: Any, links: Any) -> None:
    """Line 5 where links come and go: n~(t+1) from the agent's own count, its own n~(t), and those of its contacts."""
    num_arms = n_max.shape[1]
    for i in range(len(agents)):
        for k in range(num_arms):
            n_max[i, k] = heard(announced(agents[i], terms[i], k), agents[i].n_max[k])
    for e in range(len(links.present)):
        if links.present[e]:
            i, j = links.edges[e, 0], links.edges[e, 1]
            for k in range(num_arms):
                n_max[i, k] = heard(n_max[i, k], agents[j].n_max[k])
                n_max[j, k] = heard(n_max[j, k], agents[i].n_max[k])


# ---------------------------------------------------------------- averages


@compile_inner
def add_news(averages: Any, i: int, first_column: Any, num_arms: int, after: Any, before: Any) -> None:
    """Algorithm 1, lines 20 and 22: what this round's pull changed in what the agent publishes."""
    for c in range(len(after)):
        column = first_column + c * num_arms
        averages[i, column] = with_news(averages[i, column], after[c], before[c])


@compile_inner
def pool(published: Any, believe: Any, population: Any, t: int) -> None:
    """Everyone sees the sum of what all publish of the arms pulled in this round, and believes it."""
    agents, steps = population.agents, population.steps
    num_agents, num_arms = len(agents), len(agents[0].tried)
    for position in range(num_arms if t == 0 else num_agents):
        step = steps[position if t > 0 else 0]
        arm = step.arm if t > 0 else np.uint64(position)
        if t == 0 or (step.acts > 0 and population.pooled[arm] < t):  # an arm that several pulled: once
            population.pooled[arm] = t
            _pool_arm(published, believe, population, num_arms, arm)
        if t > 0:
            step.messages += num_agents - 1


@compile_inner
def _pool_arm(published: Any, believe: Any, population: Any, num_arms: int, arm: Any) -> None:
    agents, terms, averages = population.agents, population.terms, population.averages
    totals = population.steps[0].before  # scratch
    for c in range(len(totals)):
        totals[c] = 0.0
    for j in range(len(agents)):
        part = published(agents[j], by_value(terms[j]), arm)
        for c in range(len(totals)):
            totals[c] += part[c]
    for j in range(len(agents)):
        for c in range(len(totals)):
            averages[j, c * num_arms + arm] = totals[c]
        believe(agents[j], by_value(terms[j]), agents[j], arm)


# ---------------------------------------------------------------- releases, where these spread instead of averages


@compile_inner
def publish(releases: Any, i: int, first: Any, values: Any) -> bool:
    """Enter what an agent publishes of an arm, from the column ``first`` on, in its own row; whether it has changed."""
    row, has_changed = releases.rows[i, i], False
    for c in range(len(values)):
        if row[first + c] != values[c]:
            row[first + c] = values[c]
            has_changed = True
    return has_changed


@compile_inner
def see_mean(releases: Any, i: int, first: Any, seen: Any) -> None:
    """Fill in what an agent sees of an arm, whose columns begin at ``first``."""
    rows = releases.rows[i, :, first : first + len(seen)]
    mean_of_heard(rows, releases.versions[i], releases.shares, seen)


# Links act on what was known before the round, and those of one round at once: nothing makes two hops in it.


@compile_inner
def _exchange_ends(releases: Any, steps: Any, i: Any, j: Any) -> None:
    """Both ends of a link take over what is newer at the other: no other link touches them in this round."""
    rows, versions = releases.rows, releases.versions
    steps[i].messages += 1
    steps[j].messages += 1
    if take_newer(versions[i], rows[i], versions[j], rows[j]):
        steps[i].mixed = 1
    if take_newer(versions[j], rows[j], versions[i], rows[i]):
        steps[j].mixed = 1


def _pass_on_one_link(population: Any, links: Any, tape: Any, t: int, bits: Any) -> None:
    """Over one random edge."""
    edges = links.edges
    if tape.on:
        _exchange_ends(
            population.releases, population.steps, np.uint32(tape.edges[t - 1, 0]), np.uint32(tape.edges[t - 1, 1])
        )
    elif len(edges) > 0:
        e = whole_below(bits, len(edges))
        _exchange_ends(population.releases, population.steps, edges[e, 0], edges[e, 1])


@compile_rare
def _exchange_pairs(releases: Any, links: Any, steps: Any) -> None:
    choice, is_free = links.matching.choice, links.matching.is_free
    for i in range(len(choice)):
        if is_free[i] == 0 and i < choice[i]:
            j = choice[i]
            steps[i].messages -= 1  # counted when the pair was found
            steps[j].messages -= 1
            steps[i].mixed = 0
            steps[j].mixed = 0
            _exchange_ends(releases, steps, np.uint32(i), j)


def _pass_on_matching(population: Any, links: Any, tape: Any, t: int, bits: Any) -> None:
    """Over a random maximal matching: of averages without columns only the pairs are found."""
    average_matching(population.averages, 0, links, population.steps, tape, t, bits)
    _exchange_pairs(population.releases, links, population.steps)


@compile_rare
def _exchange_present(releases: Any, links: Any, steps: Any) -> None:
    """All present links at once: whose row travels is found from versions that do not change meanwhile."""
    (rows, versions, _, sources, newest, taken), edges = releases, links.edges
    for e in range(len(links.present)):
        if links.present[e]:
            steps[edges[e, 0]].messages += 1
            steps[edges[e, 1]].messages += 1
    for origin in range(len(versions)):
        for i in range(len(versions)):
            sources[i], newest[i] = i, versions[i, origin]
        for e in range(len(links.present)):
            if links.present[e]:
                i, j = edges[e, 0], edges[e, 1]
                if is_newer(versions[j, origin], newest[i]):
                    sources[i], newest[i] = j, versions[j, origin]
                if is_newer(versions[i, origin], newest[j]):
                    sources[j], newest[j] = i, versions[i, origin]
        for i in range(len(versions)):
            if sources[i] != i:
                for c in range(taken.shape[1]):
                    taken[i, c] = rows[sources[i], origin, c]
        for i in range(len(versions)):
            if sources[i] != i:
                for c in range(taken.shape[1]):
                    rows[i, origin, c] = taken[i, c]
                versions[i, origin] = newest[i]
                steps[i].mixed = 1


def _pass_on_present_links(population: Any, links: Any, tape: Any, t: int, bits: Any) -> None:
    """Over all present edges."""
    _exchange_present(population.releases, links, population.steps)


def _pass_on_links_by_chance(population: Any, links: Any, tape: Any, t: int, bits: Any) -> None:
    """Every edge is present with some probability."""
    mark_by_chance(links, t, bits)
    _exchange_present(population.releases, links, population.steps)


_BY_AVERAGE: dict[Callable[..., None], Callable[..., None]] = {
    average_one_link: _pass_on_one_link,
    average_matching: _pass_on_matching,
    average_links_by_chance: _pass_on_links_by_chance,
    average_present_links: _pass_on_present_links,
}


def pass_on_by(kind: LinkKind) -> Callable[..., None]:
    """``pass_on(population, links, tape, t, bits)``: releases instead of averages over links of a kind."""
    return _BY_AVERAGE[kind.average]


# ---------------------------------------------------------------- records, which a page keeps in rows of its own


@compile_inner
def copy_record(population: Any, i: int, row: Any, k: int) -> None:
    """Copy an agent's record of an arm to its row."""
    places, to = population.records.places, k * population.records.length
    for p in range(len(places)):
        size = places[p, 1]
        start = places[p, 0] + k * size
        for c in range(size):
            row[to + c] = population.averages[i, start + c]
        to += size


@compile_inner
def pool_records(population: Any, t: int) -> None:
    """The sums of all records of the arms pulled in this round."""
    agents, steps = population.agents, population.steps
    num_agents, num_arms = len(agents), len(agents[0].tried)
    population.releases.versions[0, 0] = 1
    released = 0
    for i in range(num_agents):
        released = max(released, steps[i].released)
    if released > 0:  # of all arms at once
        for k in range(num_arms):
            population.pooled[k] = t
            _add_records(population, k)
    for position in range(num_arms if t == 0 else num_agents):
        step = steps[position if t > 0 else 0]
        arm = np.int64(step.arm) if t > 0 else position
        if population.records.is_one:
            arm = 0
        if t == 0 or (step.acts > 0 and population.pooled[arm] < t):  # an arm that several pulled: once
            population.pooled[arm] = t
            _add_records(population, arm)
        if t > 0:
            step.messages += num_agents - 1


@compile_inner
def _add_records(population: Any, k: Any) -> None:
    places, length, row = population.records.places, population.records.length, population.releases.rows[0, 0]
    for c in range(length):
        row[k * length + c] = 0.0
    for i in range(len(population.agents)):
        to = k * length
        for p in range(len(places)):
            size = places[p, 1]
            start = places[p, 0] + k * size
            for c in range(size):
                row[to + c] += population.averages[i, start + c]
            to += size
