"""How much less a site knows than its index takes for granted, where others have released less than it has.

The index takes every site for one that knows as much as this one: more pulls here would not make another site's mean
more certain. What people are told must count what the others do not know.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import Any, NamedTuple

from fedbandit.agent.core.believed_sites import at_most, believed
from fedbandit.agent.core.standings import Standing, schedule_of, variance_of_released
from fedbandit.rules import belief
from fedbandit.rules.batch import PRIOR_REWARDS

__all__ = ["Estimates", "errors_of", "variance_of_mean", "variance_of_own_mean", "widening"]


class Estimates(NamedTuple):
    """What a site knows at one time; rows have an entry for each arm that there was then.

    * ``theta``: the estimates; None while one is unknown
    * ``deviation``: the standard deviation of the index; None where it is unknown, or the policy has none
    * ``weights``: the share of the federation in each estimate
    * ``is_mixed``: whether what sites had released had spread
    * ``own``: what this site had released
    * ``num_agents``: N, as heard
    """

    theta: tuple[float | None, ...]
    deviation: tuple[float | None, ...]
    weights: tuple[float, ...]
    is_mixed: bool
    own: Standing
    num_agents: int

    def grown(self, num_arms: int) -> "Estimates":
        """The same with arms that were added since: of them nothing is known."""
        more = num_arms - len(self.theta)
        if more == 0:
            return self
        unknown = (None,) * more
        return self._replace(
            theta=self.theta + unknown,
            deviation=self.deviation + unknown,
            weights=self.weights + (0.0,) * more,
            own=replace(self.own, released=self.own.released + (0,) * more),
        )


def errors_of(
    it: Estimates, standings: Sequence[Standing], terms: Any, step: float, most_sites: int | None = None
) -> tuple[float | None, ...]:
    """The typical error of each estimate: the deviation of the index, and more where other sites know less.

    ``terms`` are those of the page, ``step`` one of its units as a reward. ``most_sites``: more are not believed
    (``believed_sites``).
    """
    more = sqrt(it.num_agents / at_most(it.num_agents, most_sites))
    errors: list[float | None] = []
    for k, deviation in enumerate(it.deviation):
        if deviation is None:
            errors.append(None)
            continue
        counted = _believed(standings, k, terms, most_sites)
        if it.own.released[k] * it.own.weight == 0 and any(other.weight > 0.0 for other in counted[1:]):
            # The index has it from the others (``policies.joining``): there is no own deviation to widen.
            errors.append(max(deviation, step * sqrt(variance_of_mean(counted, k, terms))))
        else:
            errors.append(deviation * more * widening(counted, k, terms))
    return tuple(errors)


def variance_of_mean(standings: Sequence[Standing], arm: int, terms: Any) -> float:
    """Of the mean over all sites, sum_j w_j^2 V_j / (sum_j w_j)^2, from what they have released."""
    weight = sum(it.weight for it in standings)
    return sum((it.weight / weight) ** 2 * variance_of_own_mean(it.released[arm], terms) for it in standings)


def variance_of_own_mean(released: int, terms: Any) -> float:
    """Of a site's own mean after so many rewards, in the units of the page; ``terms`` are those of the page."""
    if released == 0:
        return terms.most_variance / PRIOR_REWARDS
    return variance_of_released(released, *schedule_of(terms))


def _believed(standings: Sequence[Standing], arm: int, terms: Any, most_sites: int | None) -> Sequence[Standing]:
    if most_sites is None:
        return standings
    own, *others = standings
    there = [own, *(it for it in others if it.weight > 0.0)]
    parts = [(it.weight, it.weight * it.weight * variance_of_own_mean(it.released[arm], terms)) for it in there]
    return [own, *believed(there[1:], parts[1:], most_sites, parts[0])]


def widening(standings: Sequence[Standing], arm: int, terms: Any) -> float:
    """``rules.belief.widening``, from what sites have released; the first standing is this site's."""
    own, weight = standings[0], sum(it.weight for it in standings)
    if weight <= 0.0:
        return 1.0
    # Policies.fed_batch, ``believe``: where patients count, the own share stands for the sum of squares.
    taken = own.weight / weight if terms.by_rate else sum((it.weight / weight) ** 2 for it in standings)
    own_variance = variance_of_own_mean(own.released[arm], terms)
    return belief.widening(own_variance, taken, variance_of_mean(standings, arm, terms))
