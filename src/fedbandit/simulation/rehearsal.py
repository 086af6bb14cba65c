"""Rehearses a user's own functions before a simulation, and says in words what breaks their contract.

A draw of rewards is a pure function of 64 random bits and the mean, returns a finite number, and has that mean. A rule
for links is a pure function of round, edge and a draw in [0, 1), and returns whether the edge is present.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from math import ceil, inf, isclose, isfinite, log, sqrt
from numbers import Real
from types import FunctionType
from typing import Any, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, shortened
from fedbandit.engine import streams
from fedbandit.engine.compiled import compilable, compile_driver, compile_small
from fedbandit.engine.streams import code_of
from fedbandit.policies.own_code import digest_of
from fedbandit.testing.dry_run import GOLDEN
from fedbandit.world.problem import Problem
from fedbandit.world.rewards import Own

_IN_PYTHON, _COMPILED = 1000, 2**20
"""Draws for each of the means tried: in plain Python, and compiled."""

_FALSE_ALARMS = 1e-6
"""The probability of refusing a draw that keeps its promises: that of one rehearsal, over all its tests."""

_jit: Any = njit
_NUM_MEANS = 3
_GROUPS = ceil(8.0 * log(2 * _NUM_MEANS / _FALSE_ALARMS))
"""Groups of draws. The median of their averages is further from the mean than twice the deviation of one average with
probability exp(-groups / 8): by Chebyshev an average is with probability 1/4 at most, and half of them must be."""


_STREAM = np.uint64(0x6A09E667F3BCC908)  # of the rehearsal alone; any number will do


@compile_small
def _bits(position: Any) -> Any:
    """The random bits of one draw of the rehearsal."""
    return streams.draw(_STREAM, np.uint64(position))


def rehearse(problems: Sequence[Problem]) -> None:
    """Refuse a rule for links that breaks its contract, and a draw that does at the lowest, middle or highest mean."""
    meets, family = problems[0].edges_per_round, problems[0].rewards
    if isinstance(meets, FunctionType):
        _rehearse_links(meets, digest_of(meets))
    if isinstance(family, Own):
        means = np.unique(
            np.concatenate([period.means.ravel() for problem in problems for _, period in problem.periods])
        )
        chosen = sorted({float(means[0]), float(means[len(means) // 2]), float(means[-1])})
        _rehearse(family, code_of(family), tuple(chosen))


@cache
def _rehearse(family: Own, code: str, means: tuple[float, ...]) -> None:
    in_python = [_in_python(family, mean) for mean in means]
    fill = _compiled(family, code)
    for mean, expected in zip(means, in_python, strict=True):
        rewards = np.zeros(_COMPILED)
        fill(mean, rewards)
        _compare(family, rewards[:_IN_PYTHON], expected, mean)
        _check_values(family, rewards, mean)
        _check_moments(family, rewards, mean)


def _refusal(family: Own, accepted: str, hint: str) -> InvalidArgument:
    return InvalidArgument("draw", family.name, accepted, f"It {hint}")


# ---------------------------------------------------------------- in plain Python


def _in_python(family: Own, mean: float) -> list[float]:
    """The rewards of some bits; the same when asked a second time."""
    rewards = [_one(family, np.uint64(_bits(e)), mean) for e in range(_IN_PYTHON)]
    _check_values(family, np.array(rewards), mean)
    for e, reward in enumerate(rewards):
        if _one(family, np.uint64(_bits(e)), mean) != reward:
            raise _refusal(
                family,
                "a function of bits and mean alone: uniform(bits), standard_normal(bits), next_bits(bits)",
                f"returns different rewards for the same bits {_bits(e)} and mean {mean:g}.",
            )
    return rewards


def _one(family: Own, word: Any, mean: float) -> float:
    accepted = "a function that returns a number"
    try:
        with np.errstate(over="ignore"):  # arithmetic of bits wraps around
            reward: Any = family.draw(word, mean)
    except Exception as error:
        reason = shortened(f"{type(error).__name__}: {error}", 200)
        raise _refusal(family, accepted, f"raised {reason} (bits {int(word)}, mean {mean:g}).") from None
    if isinstance(reward, (Real, np.bool_)):
        return float(cast("float", reward))
    raise _refusal(family, accepted, f"returned {shortened(repr(reward))} (bits {int(word)}, mean {mean:g}).")


def _check_values(family: Own, rewards: NDArray[np.float64], mean: float) -> None:
    low, high = family.reward_range if family.reward_range and family.bounded else (-inf, inf)
    bad = ~np.isfinite(rewards) | (rewards < low) | (rewards > high)
    if bad.any():
        position = int(bad.argmax())
        reward = float(rewards[position])
        accepted = f"in [{low:g}, {high:g}], as bounded=True says" if isfinite(reward) else "finite"
        raise _refusal(
            family,
            f"a function whose rewards are {accepted}",
            f"returned {reward:g} (bits {_bits(position)}, mean {mean:g}).",
        )


# ---------------------------------------------------------------- compiled


def _compiled(family: Own, code: str) -> Callable[..., None]:
    """A loop over the draw, compiled as in a simulation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Numba's, about types: a difference that matters shows in the rewards
        try:
            fill = _loop(code, family.draw)
            fill(0.5, np.zeros(1))
        except Exception as error:
            raise _refusal(
                family,
                "a function that Numba can compile: numbers, math and the functions of fedbandit.engine.streams, "
                "no lists, texts or other objects",
                f"does not compile: {_reason(lambda: compile_small(family.draw)(np.uint64(0), 0.5), error)}",
            ) from None
    return fill


@cache
def _loop(code: str, draw: Any) -> Callable[..., None]:
    compilable(draw)

    @compile_driver
    def fill(mean: float, rewards: Any) -> None:
        for e in range(len(rewards)):
            rewards[e] = 0.0 + draw(_bits(e), mean)

    return fill


def _reason(call: Callable[[], Any], error: Exception) -> str:
    """What Numba says of the function by itself, in one line: of a call of it, it says much more."""
    try:
        call()
    except Exception as own:
        error = own
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    if "NRT" in str(error):
        return "it allocates memory, for a list or an array."
    plain = [line for line in said if not line.startswith(("Failed in", "File ", "During:"))]
    return shortened((plain or said or [type(error).__name__])[0], 200)


def _compare(family: Own, rewards: NDArray[np.float64], expected: list[float], mean: float) -> None:
    """Numba's arithmetic differs from Python's for whole numbers of 64 bits; only rounding may differ here."""
    pairs = zip(rewards.tolist(), expected, strict=True)
    different = [(c, p) for c, p in pairs if not isclose(c, p, rel_tol=1e-9, abs_tol=1e-9)]
    if len(different) > _IN_PYTHON // 100:  # rounding may tip a comparison
        compiled, plain = different[0]
        raise _refusal(
            family,
            "a function that means the same in Python and compiled",
            f"returned {plain:g} in Python and {compiled:g} compiled (mean {mean:g}). Compiled code keeps the values "
            "that globals had when it was first compiled, and bits must meet only np.uint64 in arithmetic.",
        )


def _check_moments(family: Own, rewards: NDArray[np.float64], mean: float) -> None:
    """Compare averages with what was declared; with infinite variance nothing can be said."""
    if family.variance == inf:
        return
    size = len(rewards) // _GROUPS
    grouped = rewards[: size * _GROUPS].reshape(_GROUPS, size)
    squares = float(np.median(((grouped - mean) ** 2).mean(axis=1)))
    if squares > 4.0 * family.variance:  # Markov: an average of squares exceeds it with probability 1/4 at most
        raise InvalidArgument(
            "variance",
            family.variance,
            f"at least the variance of one reward around its mean, about {squares:.3g} at mean {mean:g}",
            f"{family.name} was rehearsed with {len(rewards):,} draws.",
        )
    middle = float(np.median(grouped.mean(axis=1)))
    if abs(middle - mean) > 2.0 * sqrt(family.variance / size):
        raise _refusal(
            family,
            "a function whose rewards have the mean that it is given: regret is computed from it",
            f"has a mean of about {middle:.3g} where {mean:g} was asked for ({len(rewards):,} draws).",
        )


# ---------------------------------------------------------------- links


@cache
def _rehearse_links(meets: FunctionType, code: str) -> None:
    places = [(t, i, i + 1, (t * GOLDEN + i * 0.1) % 1.0) for t in range(1, 201) for i in range(3)]
    plain = [_met(meets, *place) for place in places]
    if plain != [_met(meets, *place) for place in places]:
        raise _refused_rule(meets, "a function of t, i, j and u alone", "answers differently when asked again.")
    compilable(meets)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = [bool(answer) for answer in _all_met(meets)(np.array(places))]
    except Exception as error:
        said = _reason(lambda: compile_small(meets)(1, 0, 1, 0.5), error)
        accepted = "a function that Numba can compile: numbers and math, no lists, texts or other objects"
        raise _refused_rule(meets, accepted, f"does not compile: {said}") from None
    if compiled != plain:
        place = places[[c != p for c, p in zip(compiled, plain, strict=True)].index(True)]
        hint = f"differs for (t, i, j, u) = {place}. Compiled code keeps the values that globals had at first."
        raise _refused_rule(meets, "a function that means the same in Python and compiled", hint)


def _all_met(meets: Any) -> Callable[..., Any]:
    def answers(places: Any) -> Any:
        met = np.zeros(len(places), np.uint8)
        for e in range(len(places)):
            met[e] = (
                1 if meets(np.int64(places[e, 0]), np.int64(places[e, 1]), np.int64(places[e, 2]), places[e, 3]) else 0
            )
        return met

    return _jit(error_model="numpy")(answers)


def _met(meets: Any, t: int, i: int, j: int, u: float) -> bool:
    try:
        answer: Any = meets(t, i, j, u)
    except Exception as error:
        reason = shortened(f"{type(error).__name__}: {error}", 200)
        raise _refused_rule(meets, "a function that tells True or False", f"raised {reason} in round {t}.") from None
    if not isinstance(answer, (bool, int, float, np.bool_)):
        raise _refused_rule(meets, "a function that tells True or False", f"returned {shortened(repr(answer))}.")
    return bool(cast(Any, answer))


def _refused_rule(meets: FunctionType, accepted: str, hint: str) -> InvalidArgument:
    return InvalidArgument("edges_per_round", meets.__qualname__, accepted, f"It {hint}")
