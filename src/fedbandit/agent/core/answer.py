"""Answers the question of a federation as far as it is known: which arm is best, how sure that is, what others cost.

It derives from the numbers of the index alone, which derive from releases. It is a belief about the mean over all
patients, or sites, and never about one patient. Formulas are in ``rules.releases``, ``rules.belief`` and
``rules.propensity``.

Stopped arms are no candidates, and the words say so where one of them has a higher average than the leader.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor, inf
from typing import Any, NamedTuple

from fedbandit.agent.core.words import Words, plural
from fedbandit.checks import Counts, listed
from fedbandit.rules.batch import PRIOR_REWARDS
from fedbandit.rules.belief import error_of_difference, expected_loss, is_sure
from fedbandit.rules.propensity import chances_of_highest
from fedbandit.rules.sequences import NORMAL_95, SEQUENCE_ERROR, always_valid_radius, leads_for_good

__all__ = [
    "Answer",
    "Belief",
    "Holdout",
    "Interval",
    "Loss",
    "Standing",
    "answer_of",
    "holdout",
    "in_percent",
    "intervals_of",
    "losses_of",
    "over_whom",
]


# ---------------------------------------------------------------- who leaves it open


SETTLED = 2.0
"""Standard deviations by which the best arm must lead for the question to be settled."""


class Standing(NamedTuple):
    """What counts of a site: its weight, and of each arm the variance of its mean, 0 before its first release."""

    site: str
    weight: float
    variance: Sequence[float]
    released: Sequence[int]


@dataclass(frozen=True)
class Holdout:
    """A site without whose uncertainty the question between two arms would be settled."""

    site: str
    arm: int
    released: int


def holdout(standings: Sequence[Standing], theta: Sequence[float | None], terms: Any) -> Holdout | None:
    """The site that alone leaves the answer open, if there is one: ``terms`` are those of the page, like ``theta``.

    With all sites' variances the best arm leads by less than two standard deviations, without this site's by more.
    """
    known = [k for k, estimate in enumerate(theta) if estimate is not None]
    weight = sum(it.weight for it in standings)
    if len(known) < 2 or len(standings) < 2 or weight <= 0.0:
        return None
    best = max(known, key=lambda k: theta[k] or 0.0)
    found = [
        (part, Holdout(it.site, arm, it.released[arm]))
        for other in known
        if other != best
        for part, it, arm in _alone(standings, weight, best, other, (theta[best] or 0.0) - (theta[other] or 0.0), terms)
    ]
    return max(found, key=lambda entry: entry[0])[1] if found else None


def _alone(
    standings: Sequence[Standing], weight: float, best: int, other: int, lead: float, terms: Any
) -> Iterator[tuple[float, Standing, int]]:
    """Sites whose part of the variance of the lead keeps it open, with the arm of which they know less."""
    unseen = terms.most_variance / PRIOR_REWARDS
    parts = [[(it.weight / weight) ** 2 * (it.variance[k] or unseen) for k in (best, other)] for it in standings]
    total = sum(map(sum, parts))
    for it, (of_best, of_other) in zip(standings, parts, strict=True):
        rest = max(total - of_best - of_other, 0.0)
        if 0.0 < SETTLED**2 * rest <= lead**2 < SETTLED**2 * total:
            yield (of_best + of_other) / total, it, best if of_best >= of_other else other


# ---------------------------------------------------------------- the answer


ENOUGH = 0.9
"""The weight below which the words say that an estimate rests on a part of the federation."""

_REMEMBERED = 64
"""Sets of beliefs: the state is read far more often than they change."""


class Belief(NamedTuple):
    """What a site believes of its arms; rows have an entry for each.

    * ``status``: ``active``, ``suspended`` or ``retired``; only an active one is given now
    * ``theta``: the estimate; None while it is unknown
    * ``deviation``: the standard deviation of the estimate; None where it is unknown, or the policy has none
    * ``weights``: the share of the federation in the estimate
    * ``whose``: over whom the mean is taken, in words
    * ``rests_on``: the site without which another arm would lead (``Board.rests_on``): no site settles anything alone
    * ``low``, ``high``: the range of rewards; ``words``: in which people are told
    """

    names: Sequence[str]
    status: Sequence[str]
    theta: Sequence[float | None]
    deviation: Sequence[float | None]
    weights: Sequence[float]
    whose: str
    rests_on: str = ""
    low: float = 0.0
    high: float = 1.0
    words: Words = Words()

    @property
    def active(self) -> list[bool]:
        """Whether each arm is given now."""
        return [it == "active" for it in self.status]


class Answer(NamedTuple):
    """Which arm is best so far.

    * ``leader``: the active arm with the highest estimate; None while nothing is known, or nothing is to be compared
    * ``chance``: that it is the best of the active ones; None where that is not known
    * ``settled``: the chance is at least ``SURE``, no site alone makes it so, and the lead is larger than daily looks
      can produce (``rules.sequences``)
    * ``expected_loss``: what giving it always costs per decision against the best arm, on average
    * ``chances``: of each arm; None where unknown, or stopped
    """

    leader: int | None
    chance: float | None
    settled: bool
    expected_loss: float | None
    chances: tuple[float | None, ...]
    words: str


class Interval(NamedTuple):
    """From where to where a number may lie, in units of the reward."""

    low: float
    high: float


class Loss(NamedTuple):
    """What giving an arm instead of the leader costs per decision, on average, with intervals of 95 %.

    * ``interval``: holds at a time that was fixed beforehand; None where it is not known
    * ``always``: holds at all times at once (``rules.sequences``)
    """

    behind: float | None = None
    interval: Interval | None = None
    always: Interval | None = None


def intervals_of(
    mean: float | None, deviation: float | None, width: float, low: float = -inf, high: float = inf
) -> tuple[Interval | None, Interval | None]:
    """The usual interval of 95 % and the always-valid one, within what can be; None where there is no deviation."""
    if mean is None or deviation is None:
        return None, None
    always = always_valid_radius(deviation * deviation, width, SEQUENCE_ERROR) if deviation > 0.0 else 0.0
    found = [Interval(max(mean - r, low), min(mean + r, high)) for r in (NORMAL_95 * deviation, always)]
    return found[0], found[1]


def answer_of(belief: Belief) -> Answer:
    """The answer, and a sentence or two for a physician."""
    num_arms = len(belief.names)
    nothing: tuple[float | None, ...] = (None,) * num_arms
    active = [k for k, is_active in enumerate(belief.active) if is_active]
    known = {k: theta for k in active if (theta := belief.theta[k]) is not None}
    if len(active) < 2 or not known:
        leader = active[0] if len(active) == 1 else None
        words = _words_without_comparison(belief, active)
        return Answer(leader, None, False, None, nothing, words)
    leader = max(known, key=lambda k: (known[k], belief.deviation[k] or 0.0))  # of equals the likelier one
    spreads = {k: spread for k in known if (spread := belief.deviation[k]) is not None}
    if len(spreads) < len(active):  # an arm is unknown, or the policy says of none how far it may be off
        words = _words_without_chance(belief, known, active, leader)
        return Answer(leader, None, False, None, nothing, words)
    chances, loss = _beliefs(tuple(known.values()), tuple(spreads.values()), list(known).index(leader))
    by_arm = dict(zip(known, chances, strict=True))
    every = tuple(by_arm.get(k) for k in range(num_arms))
    is_settled = is_sure(by_arm[leader]) and not belief.rests_on and _leads_for_good(belief, known, spreads, leader)
    words = _words(belief, by_arm, leader, loss, is_settled)
    return Answer(leader, by_arm[leader], is_settled, loss, every, words)


def _leads_for_good(belief: Belief, known: dict[int, float], spreads: dict[int, float], leader: int) -> bool:
    width, rivals = belief.high - belief.low, max(len(belief.names) - 1, 1)  # stopped ones were looked at, too
    return all(
        leads_for_good(known[leader] - known[k], spreads[leader] ** 2 + spreads[k] ** 2, width, rivals)
        for k in known
        if k != leader
    )


@lru_cache(_REMEMBERED)
def _beliefs(means: tuple[float, ...], spreads: tuple[float, ...], leader: int) -> tuple[tuple[float, ...], float]:
    return tuple(chances_of_highest(means, spreads)), expected_loss(means, spreads, leader)


def losses_of(
    leader: int | None,
    theta: Sequence[float | None],
    errors: Sequence[float | None],
    stopped: Collection[int],
    width: float = 1.0,
) -> list[Loss]:
    """Of each arm, by the estimates beside which it is shown; nothing of stopped and unknown ones."""
    if leader is None or len(theta) - len(stopped) < 2 or (best := theta[leader]) is None:
        return [Loss() for _ in theta]
    return [
        Loss()
        if mean is None or k in stopped
        else Loss(best - mean, *_around(k == leader, best - mean, errors[leader], errors[k], width))
        for k, mean in enumerate(theta)
    ]


def _around(
    is_leader: bool, loss: float, spread: float | None, other: float | None, width: float
) -> tuple[Interval | None, Interval | None]:
    if spread is None or other is None:
        return None, None
    return intervals_of(loss, 0.0 if is_leader else error_of_difference(spread, other), width, -width, width)


# ---------------------------------------------------------------- words


def over_whom(num_agents: int, counted: Counts) -> str:
    """Over whom the mean is taken. People know how many sites there are: they notice one that invents some."""
    if num_agents == 1:
        return "at this site, the only one that takes part so far"
    return f"over all {num_agents} sites" if counted == "sites" else f"over all patients of {num_agents} sites"


def _words_without_comparison(belief: Belief, active: Sequence[int]) -> str:
    arm = belief.words.arm
    if not active:
        return f"No {arm} is given now: all are stopped."
    if len(active) == 1:
        only = active[0]
        said = f"Only {belief.names[only]} is given now: there is nothing to compare it with."
        return f"{said}{_ahead(belief, only)}"
    return "Nothing can be said yet: too few results have been released."


def _words_without_chance(belief: Belief, known: dict[int, float], active: Sequence[int], leader: int) -> str:
    unknown = [belief.names[k] for k in active if k not in known]
    said = f"{_leading(belief, leader)} has the highest average so far {belief.whose}"
    if unknown:
        said += f", but too little is known of {listed(unknown, 3)} to compare."
    else:
        said += ". How sure that is, this policy does not say."
    return f"{said}{_ahead(belief, leader)}{_part(belief, known)}"


def _words(belief: Belief, chances: dict[int, float], leader: int, loss: float, is_settled: bool) -> str:
    name, leads, sure = belief.names[leader], _leading(belief, leader), in_percent(chances[leader])
    ahead, arm = _ahead(belief, leader), belief.words.arm
    if is_settled:
        said = f"{leads} is best on average {belief.whose} ({sure} sure).{ahead}"
    elif is_sure(chances[leader]):
        why = "whoever looks again and again sees as much by chance now and then"
        if belief.rests_on:
            why = f"it rests on {belief.rests_on} alone, without which another {arm} might lead"
        said = (
            f"{leads} is best so far on average {belief.whose} ({sure} sure by what is known here), but this is not "
            f"settled: {why}.{ahead}"
        )
    else:
        second = max((k for k in chances if k != leader), key=lambda k: chances[k])
        fewer = belief.words.per_patients(-loss, belief.low, belief.high)
        said = (
            f"{leads} is best so far on average {belief.whose}, but this is not settled ({sure} sure): "
            f"{belief.names[second]} may be better ({in_percent(chances[second])}).{ahead} By what is known now, "
            f"always giving {name} would mean {fewer}, on average, than always giving the best {arm}"
            f"{' that is given' if ahead else ''}."
        )
    return f"{said} For one patient another {arm} may be better.{_part(belief, chances)}"


def _stopped_ahead(belief: Belief, leader: int) -> list[int]:
    """Stopped arms whose estimate is above the leader's, the highest first."""
    best = belief.theta[leader]
    if best is None:
        return []
    above = {k: mean for k, mean in enumerate(belief.theta) if mean is not None and mean > best}
    return sorted((k for k in above if belief.status[k] != "active"), key=lambda k: above[k], reverse=True)


def _leading(belief: Belief, leader: int) -> str:
    name = belief.names[leader]
    return f"Of the {plural(belief.words.arm)} that are given now, {name}" if _stopped_ahead(belief, leader) else name


def _ahead(belief: Belief, leader: int) -> str:
    """A sentence for each way in which arms with a higher average than the leader are stopped."""
    said, ahead = "", _stopped_ahead(belief, leader)
    for status in ("suspended", "retired"):
        names = [belief.names[k] for k in ahead if belief.status[k] == status]
        if names:
            is_one = len(names) == 1
            having, are = ("a higher average", "is") if is_one else ("higher averages", "are")
            said += f" {listed(names, 3)}, with {having}, {are} {status}."
    return said


def _part(belief: Belief, known: dict[int, float]) -> str:
    least = min(belief.weights[k] for k in known)
    if least >= ENOUGH:
        return ""
    share = max(0, floor(100.0 * least))
    arm = belief.words.arm
    return f" So far this rests on a part of the federation: about {share} % for the {arm} that fewest have released."


def in_percent(chance: float) -> str:
    """A chance, rounded down: nobody is told more than is known."""
    if chance > 0.99:
        return "more than 99 %"
    return "less than 1 %" if chance < 0.01 else f"{floor(100.0 * chance)} %"
