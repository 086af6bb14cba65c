"""What a site knows of its arms from before the federation: counts and sums of rewards, which enter once (privacy.md).

A site's history is in its own configuration. Each arm's rewards are played as if each had been their mean, so they fill
batches like any others, and are released with the same noise. The state file and the site's bulletins say how many were
entered: a file that was lost, or put back, never enters them again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from fedbandit.agent.core.bulletin import MAX_HISTORY
from fedbandit.agent.core.federation import DAY, Federation
from fedbandit.agent.core.notices import Note
from fedbandit.checks import InvalidArgument, closest, finite_number, whole_number
from fedbandit.privacy.noise import GRID

__all__ = ["History", "PastRewards", "check_history", "notes_of_history"]

MOST_DAYS = 36_525.0
"""A century."""


class PastRewards(NamedTuple):
    """How many rewards of an arm there were, and their sum."""

    rewards: int
    sum: float


@dataclass(frozen=True)
class History:
    """Rewards of some arms, and over how many days they came, all together."""

    days: float
    arms: Mapping[str, PastRewards]

    def __post_init__(self) -> None:
        """Check what can be checked without the terms."""
        days = finite_number("days", self.days)
        if not 0.0 < days <= MOST_DAYS:
            raise InvalidArgument("days", days, f"above 0, and at most {MOST_DAYS:g}")
        object.__setattr__(self, "days", days)
        if not self.arms:
            raise InvalidArgument("arms", {}, "one arm or more, such as insulin = { rewards = 120, sum = 83 }")
        checked: dict[str, PastRewards] = {}
        for name, (rewards, total) in self.arms.items():
            rewards = whole_number(f"arms.{name}.rewards", rewards, 1, MAX_HISTORY)
            checked[name] = PastRewards(rewards, finite_number(f"arms.{name}.sum", total))
        object.__setattr__(self, "arms", MappingProxyType(checked))

    @property
    def seconds(self) -> float:
        """The time over which the rewards came."""
        return self.days * DAY

    def in_steps(self, name: str, terms: Federation) -> int:
        """The sum of an arm's rewards in whole steps above the lowest reward.

        Exact up to one rounding of all of it: another reward moves it by at most ``GRID``.
        """
        rewards, total = self.arms[name]
        low, high = Fraction(terms.low), Fraction(terms.high)
        steps = round((Fraction(total) - rewards * low) / (high - low) * GRID)
        return min(max(steps, 0), rewards * GRID)


def notes_of_history(history: History | None, names: Sequence[str], entered: Sequence[int]) -> Iterator[Note]:
    """What of a configuration has not been entered, and where another number was."""
    for name, (rewards, _) in () if history is None else history.arms.items():
        known = entered[names.index(name)] if name in names else 0
        if known == 0:
            yield Note(f"the history of {name} waits until all neighbours have said whether it was entered before.")
        elif known != rewards:
            yield Note(
                f"{known} rewards of {name} were entered as its history: that they are {rewards} now is ignored."
            )


def check_history(history: History, terms: Federation) -> None:
    """Refuse arms that the terms do not have, sums that rewards cannot have, and more than a tree takes."""
    if terms.num_strata:
        hint = "What was before the federation has no context."
        raise InvalidArgument("arms", [*history.arms], 'left out where policy.context is "strata"', hint)
    for name, (rewards, total) in history.arms.items():
        if name not in terms.arms:
            raise InvalidArgument("arms", name, f"one of the arms: {', '.join(terms.arms)}", closest(name, terms.arms))
        if not rewards * terms.low <= total <= rewards * terms.high:
            accepted = f"from {rewards * terms.low:g} to {rewards * terms.high:g}, that of {rewards} rewards"
            raise InvalidArgument(f"arms.{name}.sum", total, accepted)
        if terms.max_pulls is not None and rewards >= terms.max_pulls:
            accepted = f"below {terms.max_pulls}, the rewards for which policy.horizon pays"
            raise InvalidArgument(f"arms.{name}.rewards", rewards, accepted)
