"""Delays of rewards, in rounds: how long after its decision the reward of an arm is there.

A delay of 0 is the paper's: the reward is there at the end of the round of its decision. Short texts name delays in
experiment files and results: ``fixed:100``, ``geometric:100``, ``by_outcome:fixed:0,geometric:300``.
``fedbandit.engine.late_rewards`` draws them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log1p
from typing import Any

from fedbandit.checks import InvalidArgument, closest, finite_number, instance, number_above, whole_number
from fedbandit.world.rewards import Family

__all__ = [
    "ByOutcome",
    "Delays",
    "Fixed",
    "Geometric",
    "GivenDelays",
    "by_outcome",
    "checked_lateness",
    "fixed",
    "geometric",
    "parse",
]

MAX_ROUNDS = 10**9
_SMALLEST_UNIFORM = 2.0**-53  # the step of the simulator's uniform draws


@dataclass(frozen=True)
class Fixed:
    """The same delay for every reward."""

    rounds: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", whole_number("rounds", self.rounds, 0, MAX_ROUNDS))

    def __str__(self) -> str:
        return f"fixed:{self.rounds}"

    @property
    def scale(self) -> float:
        """The logarithm of a uniform draw is multiplied by this: nothing is random."""
        return 0.0

    @property
    def longest(self) -> int:
        """No delay is longer."""
        return self.rounds


@dataclass(frozen=True)
class Geometric:
    """A random number d = 0, 1, 2, ... of rounds with probability p (1 - p)^d, where (1 - p) / p = ``mean``."""

    mean: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", number_above("mean", self.mean, 0.0))

    def __str__(self) -> str:
        return f"geometric:{self.mean:.17g}"

    @property
    def rounds(self) -> int:
        """The part that is not random."""
        return 0

    @property
    def scale(self) -> float:
        """1 / log(1 - p): times the logarithm of a uniform draw, rounded down, it is the delay."""
        return -1.0 / log1p(1.0 / self.mean)

    @property
    def longest(self) -> int:
        """No delay is longer, since uniform draws are whole steps: 37 means."""
        return int(log(_SMALLEST_UNIFORM) * self.scale) + 1


@dataclass(frozen=True)
class ByOutcome:
    """A delay for rewards in the lower half of their range, the middle among them, and one for those above."""

    low: Fixed | Geometric
    high: Fixed | Geometric

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            instance(name, getattr(self, name), (Fixed, Geometric), "a number of rounds, fixed(...) or geometric(...)")

    def __str__(self) -> str:
        return f"by_outcome:{self.low},{self.high}"

    @property
    def longest(self) -> int:
        """No delay is longer."""
        return max(self.low.longest, self.high.longest)


Delays = Fixed | Geometric | ByOutcome
GivenDelays = Delays | str | Sequence[Delays | str] | None
"""Delays of all agents, or of each: as objects, or as texts."""


def fixed(rounds: int) -> Fixed:
    """Every reward comes so many rounds after its decision."""
    return Fixed(rounds)


def geometric(mean: float) -> Geometric:
    """Geometric delays 0, 1, 2, ... with this mean: in every round a reward comes with the same probability."""
    return Geometric(mean)


def by_outcome(low: int | Fixed | Geometric, high: int | Fixed | Geometric) -> ByOutcome:
    """A delay for bad outcomes (rewards up to the middle of their range) and one for good outcomes.

    A number means ``fixed``. Good outcomes that take long: ``by_outcome(low=0, high=geometric(300))``.
    """
    low, high = (
        each if isinstance(each, (Fixed, Geometric)) else _fixed_at(name, each)
        for name, each in (("low", low), ("high", high))
    )
    return ByOutcome(low, high)


def _fixed_at(name: str, rounds: Any) -> Fixed:
    instance(name, rounds, (int, float), "a number of rounds, fixed(...) or geometric(...)")
    return Fixed(whole_number(name, rounds, 0, MAX_ROUNDS))


def parse(text: str) -> Delays:
    """Delays from a short text: ``fixed:100``, ``geometric:100`` or ``by_outcome:fixed:0,geometric:300``."""
    accepted = "fixed:ROUNDS, geometric:MEAN or by_outcome:LOW,HIGH"
    kind, _, rest = text.strip().partition(":")
    try:
        if kind == "fixed":
            return Fixed(whole_number("rounds", float(rest), 0, MAX_ROUNDS))
        if kind == "geometric":
            return Geometric(float(rest))
        if kind == "by_outcome" and rest.count(",") == 1:
            low, high = (parse(part) for part in rest.split(","))
            if not isinstance(low, ByOutcome) and not isinstance(high, ByOutcome):
                return ByOutcome(low, high)
    except ValueError:
        pass
    hint = closest(kind, ("fixed", "geometric", "by_outcome"))
    raise InvalidArgument("delays", text, accepted, hint if hint != f"Did you mean '{kind}'?" else "")


# ---------------------------------------------------------------- what a problem checks


def _of_agents(given: Any, num_agents: int, rewards: Family) -> tuple[Delays, ...] | None:
    """The delays of every agent; None: rewards come at once."""
    if given is None:
        return None
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != num_agents:  # pyright: ignore[reportUnknownArgumentType]
            raise InvalidArgument("delays", f"{len(given)} entries", f"one for all agents, or {num_agents} entries")  # pyright: ignore[reportUnknownArgumentType]
        several: list[Any] = list(given)  # pyright: ignore[reportUnknownArgumentType]
    else:
        several = [given] * num_agents
    found = tuple(parse(each) if isinstance(each, str) else each for each in several)
    for each in found:
        instance("delays", each, (Fixed, Geometric, ByOutcome), "fixed(...), geometric(...) or by_outcome(...)")
        if isinstance(each, ByOutcome) and rewards.reward_range is None:
            hint = "Declare a reward_range: outcomes above its middle are good ones."
            raise InvalidArgument("delays", str(each), "of rewards with a range", hint)
    return found


def checked_lateness(
    delays: Any, window: Any, default: Any, num_agents: int, rewards: Family
) -> tuple[tuple[Delays, ...] | None, int, float | None]:
    """Delays of every agent, the reward window in rounds, and what counts where no reward came within it."""
    rounds = whole_number("reward_window", window, 0, MAX_ROUNDS)
    found = _of_agents(delays, num_agents, rewards)
    if rounds == 0:
        if default is not None:
            raise InvalidArgument("default_reward", default, "left out without a reward_window: all rewards count")
        return found, rounds, None
    low, high = rewards.reward_range or (None, None)
    if default is None:
        return found, rounds, 0.0 if low is None else float(low)
    value = finite_number("default_reward", default)
    if low is not None and high is not None and not low <= value <= high:
        raise InvalidArgument("default_reward", value, f"a reward, from {low:g} to {high:g}")
    return found, rounds, value


def __dir__() -> list[str]:
    return __all__
