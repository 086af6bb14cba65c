"""How likely a page's ``decide`` gives an arm in a state in which it draws: for propensities at a live site.

Formulas are in ``rules.propensity``. None of it is compiled.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fedbandit.policies.protocol import Now
from fedbandit.rules.choose import count_lagging
from fedbandit.rules.propensity import chance_of_lagging, chances_of_highest

__all__ = ["drawn_chance", "highest_chance", "lagging_chance"]

_REMEMBERED = 64
"""Sets of beliefs, of requests for different arms among others: decisions come far more often than beliefs change."""


@lru_cache(_REMEMBERED)
def _chances(means: tuple[float, ...], spreads: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(chances_of_highest(means, spreads))


def highest_chance(means: Sequence[float], spreads: Sequence[float], arm: int) -> float:
    """The chance that the arm has the highest of the draws mean + spread z (within 0.01)."""
    return _chances(tuple(means), tuple(spreads))[arm]


def lagging_chance(me: Any, terms: Any, seen: Any, now: Now, arm: int) -> float:
    """Of a page that draws among lagging arms only (Algorithm 1, line 13)."""
    return chance_of_lagging(me.tried, seen.n_max, terms.num_agents, arm)


def drawn_chance(me: Any, terms: Any, seen: Any, now: Now, arm: int) -> float:
    """Of FedBatch: among lagging arms, if there are any; else by Thompson's draws around theta."""
    if count_lagging(me.tried, seen.n_max, terms.num_agents) > 0:
        return lagging_chance(me, terms, seen, now, arm)
    return highest_chance(me.theta, me.spread, arm)
