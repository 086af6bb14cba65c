"""What agents hear of each other, in compiled code: n~, news of averages, and pooled sums.

The network owns the averages: a page never touches a neighbour. Formulas are in ``fedbandit.rules``.
"""

from typing import Any

import numpy as np

from fedbandit.rules.gossip import heard, with_news
from fedbandit.simulation.compiled import by_value, compilable, compile_inner, row_like

__all__ = ["add_news", "hear_n_max", "hear_present_links", "pool"]

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
    agents, turns = population.agents, population.turns
    num_agents, num_arms = len(agents), len(agents[0].tried)
    for position in range(num_arms if t == 0 else num_agents):
        turn = turns[position if t > 0 else 0]
        arm = turn.arm if t > 0 else np.uint64(position)
        if t == 0 or (turn.acts > 0 and population.pooled[arm] < t):  # an arm that several pulled: once
            population.pooled[arm] = t
            _pool_arm(published, believe, population, num_arms, arm)
        if t > 0:
            turn.messages += num_agents - 1


@compile_inner
def _pool_arm(published: Any, believe: Any, population: Any, num_arms: int, arm: Any) -> None:
    agents, terms, averages = population.agents, population.terms, population.averages
    totals = population.turns[0].before  # scratch
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
