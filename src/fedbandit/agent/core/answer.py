"""Answers the question of a federation as far as it is known: which arm is best, how sure that is, what others cost.

It derives from the numbers of the index alone, which derive from releases. It is a belief about the mean over all
patients, or sites, and never about one patient. Formulas are in ``rules.belief`` and ``rules.propensity``.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import floor
from typing import NamedTuple

from fedbandit.checks import Counts, listed
from fedbandit.rules.belief import error_of_difference, expected_loss, is_sure
from fedbandit.rules.propensity import chances_of_highest

__all__ = ["Answer", "Belief", "answer_before_exchange", "answer_of", "over_whom"]

ENOUGH = 0.9
"""The weight below which the words say that an estimate rests on a part of the federation."""

_REMEMBERED = 8
"""Sets of beliefs: the state is read far more often than they change."""

_OF_ONE = " For one patient another arm may be better."


class Belief(NamedTuple):
    """What a site believes of its arms; rows have an entry for each.

    * ``active``: whether it is given now
    * ``theta``: the estimate; None while it is unknown
    * ``deviation``: the standard deviation of the estimate; None where it is unknown, or the policy has none
    * ``weights``: the share of the federation in the estimate
    * ``is_mixed``: whether what sites have released has spread; before that, nothing is settled
    * ``whose``: over whom the mean is taken, in words
    """

    names: Sequence[str]
    active: Sequence[bool]
    theta: Sequence[float | None]
    deviation: Sequence[float | None]
    weights: Sequence[float]
    is_mixed: bool
    whose: str


class Answer(NamedTuple):
    """Which arm is best so far.

    * ``leader``: the active arm with the highest estimate; None while nothing is known, or nothing is to be compared
    * ``chance``: that it is the best of the active ones; None where that is not known
    * ``expected_loss``: what giving it always costs per decision against the best arm, on average
    * ``chances``, ``behind``, ``behind_radius``: of each arm; None where unknown, or stopped
    """

    leader: int | None
    chance: float | None
    settled: bool
    expected_loss: float | None
    chances: tuple[float | None, ...]
    behind: tuple[float | None, ...]
    behind_radius: tuple[float | None, ...]
    words: str


def answer_before_exchange(num_arms: int) -> Answer:
    """The answer of a site that has neighbours, and has not averaged with any since it started."""
    nothing: tuple[float | None, ...] = (None,) * num_arms
    words = "No exchange since the start: which arm is best can be said after the first one."
    return Answer(None, None, False, None, nothing, nothing, nothing, words)


def answer_of(belief: Belief) -> Answer:
    """The answer, and a sentence or two for a physician."""
    num_arms = len(belief.names)
    nothing: tuple[float | None, ...] = (None,) * num_arms
    active = [k for k in range(num_arms) if belief.active[k]]
    known = {k: theta for k in active if (theta := belief.theta[k]) is not None}
    if len(active) < 2 or not known:
        leader = active[0] if len(active) == 1 else None
        words = _words_without_comparison(belief, active)
        return Answer(leader, None, False, None, nothing, nothing, nothing, words)
    leader = max(known, key=lambda k: (known[k], belief.deviation[k] or 0.0))  # of equals the likelier one
    behind = tuple(known[leader] - known[k] if k in known else None for k in range(num_arms))
    spreads = {k: spread for k in known if (spread := belief.deviation[k]) is not None}
    radii = tuple(_behind_radius(spreads, leader, k) for k in range(num_arms))
    if len(spreads) < len(active):  # an arm is unknown, or the policy says of none how far it may be off
        words = _words_without_chance(belief, known, active, leader)
        return Answer(leader, None, False, None, nothing, behind, radii, words)
    chances, loss = _beliefs(tuple(known.values()), tuple(spreads.values()), list(known).index(leader))
    by_arm = dict(zip(known, chances, strict=True))
    every = tuple(by_arm.get(k) for k in range(num_arms))
    is_settled = belief.is_mixed and is_sure(by_arm[leader])
    words = _words(belief, by_arm, leader, loss, is_settled)
    return Answer(leader, by_arm[leader], is_settled, loss, every, behind, radii, words)


@lru_cache(_REMEMBERED)
def _beliefs(means: tuple[float, ...], spreads: tuple[float, ...], leader: int) -> tuple[tuple[float, ...], float]:
    return tuple(chances_of_highest(means, spreads)), expected_loss(means, spreads, leader)


def _behind_radius(spreads: dict[int, float], leader: int, arm: int) -> float | None:
    if arm not in spreads or leader not in spreads:
        return None
    return 0.0 if arm == leader else error_of_difference(spreads[leader], spreads[arm])


# ---------------------------------------------------------------- words


def over_whom(num_agents: int, counted: Counts) -> str:
    """Over whom the mean is taken. People know how many sites there are: they notice one that invents some."""
    if num_agents == 1:
        return "at this site, the only one that takes part so far"
    return f"over all {num_agents} sites" if counted == "sites" else f"over all patients of {num_agents} sites"


def _words_without_comparison(belief: Belief, active: Sequence[int]) -> str:
    if not active:
        return "No arm is given now: all are stopped."
    if len(active) == 1:
        return f"Only {belief.names[active[0]]} is given now: there is nothing to compare it with."
    return "Nothing can be said yet: too few results have been released."


def _words_without_chance(belief: Belief, known: dict[int, float], active: Sequence[int], leader: int) -> str:
    name, unknown = belief.names[leader], [belief.names[k] for k in active if k not in known]
    if unknown:
        said = f"{name} has the highest average so far {belief.whose}, but too little is known of {listed(unknown, 3)}"
        return f"{said} to compare.{_part(belief, known)}"
    said = f"{name} has the highest average so far {belief.whose}. How sure that is, this policy does not say."
    return f"{said}{_part(belief, known)}"


def _words(belief: Belief, chances: dict[int, float], leader: int, loss: float, is_settled: bool) -> str:
    name, sure = belief.names[leader], _in_percent(chances[leader])
    if is_settled:
        said = f"{name} is best on average {belief.whose} ({sure} sure)."
    elif is_sure(chances[leader]):
        said = (
            f"{name} is best so far on average {belief.whose} ({sure} sure by what is known here), but this is not "
            "settled: as far as exchanges since the start tell, what sites have released has not spread yet."
        )
    else:
        second = max((k for k in chances if k != leader), key=lambda k: chances[k])
        said = (
            f"{name} is best so far on average {belief.whose}, but this is not settled ({sure} sure): "
            f"{belief.names[second]} may be better ({_in_percent(chances[second])}). By what is known now, always "
            f"giving {name} would lose {loss:.2g} per decision on average against the best arm."
        )
    return f"{said}{_OF_ONE}{_part(belief, chances)}"


def _part(belief: Belief, known: dict[int, float]) -> str:
    least = min(belief.weights[k] for k in known)
    if least >= ENOUGH:
        return ""
    share = max(0, floor(100.0 * least))
    return f" So far this rests on a part of the federation: about {share} % for the arm that fewest have released."


def _in_percent(chance: float) -> str:
    """A chance, rounded down: nobody is told more than is known."""
    if chance > 0.99:
        return "more than 99 %"
    return "less than 1 %" if chance < 0.01 else f"{floor(100.0 * chance)} %"
