"""Tries a user's own functions before a simulation, and says in words what goes wrong in compiled code.

Of pages, draws of rewards and rules for links, a traceback of the compiler or a number at random would say nothing. A
draw is a pure function of 64 random bits and the mean, returns a finite number, and has that mean. A rule for links is
a pure function of round, edge and a draw in [0, 1), and returns whether the edge is present.
"""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import ceil, inf, isclose, isfinite, log, sqrt
from numbers import Real
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, shortened
from fedbandit.engine import streams
from fedbandit.engine.compiled import NOT_AN_ARM, compilable, compile_driver, compile_small
from fedbandit.policies.protocol import Page, Setting
from fedbandit.policies.registry import WrongPage, digest_of
from fedbandit.testing.dry_run import GOLDEN, dry_run
from fedbandit.world.problem import Problem
from fedbandit.world.rewards import Own

_jit: Any = njit
_compiled: dict[FunctionType, str] = {}
_MOST_ROUNDS_IN_PYTHON = 3000


def refuse_changed_code(functions: Mapping[FunctionType, str], fault: Callable[[str], InvalidArgument]) -> None:
    """Refuse functions whose code or constants have changed since this process compiled them: they would run as before.

    ``functions``: with a digest of each; ``fault`` makes the error of a sentence.
    """
    for function, digest in functions.items():
        if _compiled.setdefault(function, digest) != digest:
            raise fault(
                f"{function.__name__}, or a constant or function that it uses, has changed since it was compiled: "
                "constants are compiled in. Define the function anew, or start a new process"
            )


# ---------------------------------------------------------------- a page, while it plays


def in_words(
    kind: str, page: Page, setting: Setting, terms: Any, play_rounds: Callable[..., None]
) -> Callable[..., None]:
    """The same loop over rounds; what the compiler refuses and what stops compiled code are said in words."""

    def play(*arguments: Any) -> None:
        last, population = arguments[1], arguments[4]
        try:
            play_rounds(*arguments)
        except NumbaError as error:
            raise WrongPage(kind, _refused(page, error)) from None
        except (IndexError, ZeroDivisionError, ValueError, OverflowError) as error:
            raise _stopped(kind, page, setting, terms, population, error) from None
        columns = len(page.averaged) * setting.num_arms
        finite = np.isfinite(population.averages[:, :columns])
        if not finite.all():
            i, column = np.argwhere(~finite)[0].tolist()
            name, arm = page.averaged[int(column) // setting.num_arms], int(column) % setting.num_arms
            raise WrongPage(kind, f"published makes {name} of arm {arm} infinite or NaN (agent {i}, by round {last})")

    return play


def functions_in_words(functions: Mapping[str, FunctionType], play_rounds: Callable[..., None]) -> Callable[..., None]:
    """The same for a policy of this package and a user's draw or rule: ``functions``, by the argument's name."""

    def play(*arguments: Any) -> None:
        try:
            play_rounds(*arguments)
        except (IndexError, ZeroDivisionError, ValueError, OverflowError) as error:
            t = int(arguments[4].steps["clock"].max()) + 1  # links are found before the clocks move
            given = ", ".join(function.__qualname__ for function in functions.values())
            accepted = "a function that can be computed in every round"
            raise InvalidArgument(" or ".join(functions), given, accepted, f"{_words(error)} by round {t}.") from None

    return play


def _words(error: Exception) -> str:
    if isinstance(error, IndexError):
        return "An index lies beyond a row"
    return "Something is divided by zero" if isinstance(error, ZeroDivisionError) else f"A function fails ({error})"


def _stopped(kind: str, page: Page, setting: Setting, terms: Any, population: Any, error: Exception) -> WrongPage:
    """An error in compiled code does not tell its place: look at the arms, then play the page in plain Python."""
    steps = population.steps
    beyond = steps["arm"] >= setting.num_arms
    t = int(steps["clock"].max())
    if beyond.any():
        i = int(beyond.argmax())
        arm = steps["arm"][i].astype(np.int64)
        words = f"decide returns {arm}, not an arm from 0 to {setting.num_arms - 1} (round {t}, agent {i})"
        return WrongPage(kind, words)
    try:
        dry_run(kind, page, terms, setting, rounds=min(2 * t + 100, _MOST_ROUNDS_IN_PYTHON))
    except WrongPage as found:
        return found
    return WrongPage(
        kind,
        f"{_words(error)} in round {t}. It may be the page, a draw of rewards or a rule for links; for a page, "
        f"fedbandit.testing.check_policy(..., num_arms={setting.num_arms}, horizon={t + 1}) names the place",
    )


_ROWS = r"Record\((?:[^()]|\([^()]*\))*\)|unaligned array\([^)]*\)|nestedarray\([^)]*\)"
_TELLING = (
    NOT_AN_ARM,
    r"Unknown attribute|Cannot unify|Untyped|Use of unsupported|NameError|Unsupported|not supported|not defined",
    r"Function\(<built-in function|Invalid use of|No implementation of function|No match|cannot|can't|must be",
)


def _refused(page: Page, error: NumbaError) -> str:
    """What the compiler says of a page, in a line or two, and of which function."""
    text = re.sub(r"\x1b\[\d*m", "", str(error))
    part, place = "the page", ""
    for file, line in re.findall(r'File "([^"]+)", line (\d+)', text):
        for name, function in page._asdict().items():
            code = getattr(function, "__code__", None)
            if code is not None and Path(code.co_filename).name == Path(file).name:
                lines = [at for _, _, at in code.co_lines() if at]
                if min(lines) <= int(line) <= max(lines):
                    part, place = name, f" (line {line})"
    lines = [re.sub(_ROWS, "a row", line).strip() for line in text.splitlines()]
    found = [line for telling in _TELLING for line in lines if re.search(telling, line) and "Failed in" not in line]
    hint = ""
    if "getitem" in text or "setitem" in text:
        hint = (
            ". An index must be a whole number: arm is unsigned in compiled code, so write int(arm) before arithmetic"
        )
    words = (found or ["the compiler gives no reason"])[0].lstrip("> ").rstrip(". ")
    return f"{part} cannot be compiled: {words[:200]}{place}{hint}"


# ---------------------------------------------------------------- a user's function


class _Tried(NamedTuple):
    """A user's function, by the argument that it is given as, and its name in messages."""

    argument: str
    function: Any
    name: str

    def wrong(self, accepted: str, hint: str) -> InvalidArgument:
        return InvalidArgument(self.argument, self.name, accepted, f"It {hint}")

    def called(self, given: tuple[Any, ...], place: str, accepted: str, kinds: tuple[type, ...]) -> Any:
        """What it answers in plain Python."""
        try:
            with np.errstate(over="ignore"):  # arithmetic of bits wraps around
                answer: Any = self.function(*given)
        except Exception as error:
            reason = shortened(f"{type(error).__name__}: {error}", 200)
            raise self.wrong(accepted, f"raised {reason} {place}.") from None
        if not isinstance(answer, kinds):
            raise self.wrong(accepted, f"returned {shortened(repr(answer))} {place}.")
        return answer

    def compiled(self, run: Callable[[], Any], given: tuple[Any, ...], may_use: str) -> Any:
        """What ``run`` gives, the first call of compiled code that calls it; ``given``: arguments for it alone."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Numba's, about types: a difference that matters shows in the answers
                return run()
        except Exception as error:
            accepted = f"a function that Numba can compile: {may_use}, no lists, texts or other objects"
            said = _reason(lambda: compile_small(self.function)(*given), error)
            raise self.wrong(accepted, f"does not compile: {said}") from None


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


# ---------------------------------------------------------------- draws of rewards

_IN_PYTHON, _COMPILED = 1000, 2**20
"""Draws for each of the means tried: in plain Python, and compiled."""

_FALSE_ALARMS = 1e-6
"""The probability of refusing a draw that keeps its promises: that of one dry run, over all its tests."""

_NUM_MEANS = 3
_GROUPS = ceil(8.0 * log(2 * _NUM_MEANS / _FALSE_ALARMS))
"""Groups of draws. The median of their averages is further from the mean than twice the deviation of one average with
probability exp(-groups / 8): by Chebyshev an average is with probability 1/4 at most, and half of them must be."""

_STREAM = np.uint64(0x6A09E667F3BCC908)  # of the dry run alone; any number will do


@compile_small
def _bits(position: Any) -> Any:
    """The random bits of one draw of the dry run."""
    return streams.draw(_STREAM, np.uint64(position))


def try_functions(problems: Sequence[Problem]) -> None:
    """Refuse a rule for links that breaks its contract, and a draw that does at the lowest, middle or highest mean."""
    meets, family = problems[0].edges_per_round, problems[0].rewards
    if isinstance(meets, FunctionType):
        _try_links(meets, digest_of(meets))
    if isinstance(family, Own):
        means = np.unique(
            np.concatenate([period.means.ravel() for problem in problems for _, period in problem.periods])
        )
        chosen = sorted({float(means[0]), float(means[len(means) // 2]), float(means[-1])})
        _try_draw(family, streams.code_of(family), tuple(chosen))


@cache
def _try_draw(family: Own, code: str, means: tuple[float, ...]) -> None:
    """``code``: a digest of the draw, which may change under its name."""
    tried, draw = _Tried("draw", family.draw, family.name), family.draw
    in_python = [_in_python(family, tried, mean) for mean in means]
    compilable(draw)

    @compile_driver
    def fill(mean: float, rewards: Any) -> None:
        for e in range(len(rewards)):
            rewards[e] = 0.0 + draw(_bits(e), mean)

    may_use = "numbers, math and the functions of fedbandit.engine.streams"
    tried.compiled(lambda: fill(0.5, np.zeros(1)), (np.uint64(0), 0.5), may_use)
    for mean, expected in zip(means, in_python, strict=True):
        rewards = np.zeros(_COMPILED)
        fill(mean, rewards)
        _compare(tried, rewards[:_IN_PYTHON], expected, mean)
        _check_values(family, tried, rewards, mean)
        _check_moments(family, tried, rewards, mean)


def _in_python(family: Own, tried: _Tried, mean: float) -> list[float]:
    """The rewards of some bits; the same when asked a second time."""

    def one(e: int) -> float:
        word = np.uint64(_bits(e))
        place = f"(bits {int(word)}, mean {mean:g})"
        return float(tried.called((word, mean), place, "a function that returns a number", (Real, np.bool_)))

    rewards = [one(e) for e in range(_IN_PYTHON)]
    _check_values(family, tried, np.array(rewards), mean)
    for e, reward in enumerate(rewards):
        if one(e) != reward:
            raise tried.wrong(
                "a function of bits and mean alone: uniform(bits), standard_normal(bits), next_bits(bits)",
                f"returns different rewards for the same bits {_bits(e)} and mean {mean:g}.",
            )
    return rewards


def _check_values(family: Own, tried: _Tried, rewards: NDArray[np.float64], mean: float) -> None:
    low, high = family.reward_range if family.reward_range and family.bounded else (-inf, inf)
    bad = ~np.isfinite(rewards) | (rewards < low) | (rewards > high)
    if bad.any():
        position = int(bad.argmax())
        reward = float(rewards[position])
        accepted = f"in [{low:g}, {high:g}], as bounded=True says" if isfinite(reward) else "finite"
        raise tried.wrong(
            f"a function whose rewards are {accepted}",
            f"returned {reward:g} (bits {_bits(position)}, mean {mean:g}).",
        )


def _compare(tried: _Tried, rewards: NDArray[np.float64], expected: list[float], mean: float) -> None:
    """Numba's arithmetic differs from Python's for whole numbers of 64 bits; only rounding may differ here."""
    pairs = zip(rewards.tolist(), expected, strict=True)
    different = [(c, p) for c, p in pairs if not isclose(c, p, rel_tol=1e-9, abs_tol=1e-9)]
    if len(different) > _IN_PYTHON // 100:  # rounding may tip a comparison
        compiled, plain = different[0]
        raise tried.wrong(
            "a function that means the same in Python and compiled",
            f"returned {plain:g} in Python and {compiled:g} compiled (mean {mean:g}). Compiled code keeps the values "
            "that globals had when it was first compiled, and bits must meet only np.uint64 in arithmetic.",
        )


def _check_moments(family: Own, tried: _Tried, rewards: NDArray[np.float64], mean: float) -> None:
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
            f"{family.name} was tried with {len(rewards):,} draws.",
        )
    middle = float(np.median(grouped.mean(axis=1)))
    if abs(middle - mean) > 2.0 * sqrt(family.variance / size):
        raise tried.wrong(
            "a function whose rewards have the mean that it is given: regret is computed from it",
            f"has a mean of about {middle:.3g} where {mean:g} was asked for ({len(rewards):,} draws).",
        )


# ---------------------------------------------------------------- rules for links


@cache
def _try_links(meets: FunctionType, code: str) -> None:
    """``code``: a digest of the rule, which may change under its name."""
    tried = _Tried("edges_per_round", meets, meets.__qualname__)
    places = [(t, i, i + 1, (t * GOLDEN + i * 0.1) % 1.0) for t in range(1, 201) for i in range(3)]

    def in_python() -> list[bool]:
        accepted, kinds = "a function that tells True or False", (bool, int, float, np.bool_)
        return [bool(tried.called(place, f"in round {place[0]}", accepted, kinds)) for place in places]

    plain = in_python()
    if plain != in_python():
        raise tried.wrong("a function of t, i, j and u alone", "answers differently when asked again.")
    compilable(meets)

    @_jit(error_model="numpy")
    def answers(places: Any) -> Any:
        met = np.zeros(len(places), np.uint8)
        for e in range(len(places)):
            t, i, j = np.int64(places[e, 0]), np.int64(places[e, 1]), np.int64(places[e, 2])
            met[e] = 1 if meets(t, i, j, places[e, 3]) else 0
        return met

    answered = tried.compiled(lambda: answers(np.array(places)), (1, 0, 1, 0.5), "numbers and math")
    compiled = [bool(answer) for answer in answered]
    if compiled != plain:
        place = places[[c != p for c, p in zip(compiled, plain, strict=True)].index(True)]
        hint = f"differs for (t, i, j, u) = {place}. Compiled code keeps the values that globals had at first."
        raise tried.wrong("a function that means the same in Python and compiled", hint)
