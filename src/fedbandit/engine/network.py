"""What agents hear of each other, in compiled code: n~, news of averages, and pooled sums.

The network owns the averages: a page never touches a neighbour. Formulas are in ``fedbandit.rules``.
"""

from typing import Any

import numpy as np

from fedbandit.engine.compiled import by_value, compilable, compile_inner, row_like
from fedbandit.rules.gossip import heard, with_news

for _rule in (heard, with_news):
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
