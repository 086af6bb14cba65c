"""Plays own pages in compiled code, and says in words what goes wrong there: never a traceback of the compiler."""

import re
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, cast

import numpy as np
from numba import njit
from numba import typeof as _typeof  # pyright: ignore[reportUnknownVariableType]
from numba.core.errors import NumbaError

from fedbandit.checks import InvalidArgument
from fedbandit.engine.compiled import NOT_AN_ARM, as_arm, by_value, compilable
from fedbandit.engine.streams import SimulatedDraws
from fedbandit.policies.protocol import Page, Setting, time_of
from fedbandit.policies.registry import WrongPage
from fedbandit.testing.dry_run import dry_run
from fedbandit.testing.page_code import ARGUMENTS

__all__ = ["functions_in_words", "in_words", "refuse_changed_code"]

_jit: Any = njit
_type_of = cast(Any, _typeof)
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


def in_words(
    kind: str, page: Page, setting: Setting, terms: Any, play_rounds: Callable[..., None]
) -> Callable[..., None]:
    """The same loop over rounds; what the compiler refuses and what stops compiled code are said in words."""

    def play(*arguments: Any) -> None:
        last, population = arguments[1], arguments[4]
        try:
            play_rounds(*arguments)
        except NumbaError as error:
            raise _refused(kind, page, population, arguments[7], error) from None
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
            named = " or ".join(functions)
            given = ", ".join(function.__qualname__ for function in functions.values())
            accepted = "a function that can be computed in every round"
            raise InvalidArgument(named, given, accepted, f"{_words(error)} by round {t}.") from None

    return play


def _words(error: Exception) -> str:
    if isinstance(error, IndexError):
        return "An index lies beyond a row"
    return "Something is divided by zero" if isinstance(error, ZeroDivisionError) else f"A function fails ({error})"


def _stopped(kind: str, page: Page, setting: Setting, terms: Any, population: Any, error: Exception) -> InvalidArgument:
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


def _refused(kind: str, page: Page, population: Any, tape: Any, error: NumbaError) -> WrongPage:
    """Compile the functions one by one to find the one that fails."""
    for name in ARGUMENTS:
        function = getattr(page, name)
        if function is None or name in ("interval", "meet", "chance", "combine"):
            continue
        compilable(function)
        probe = _jit(_nrt=False, error_model="numpy")(_PROBES[name](function))
        try:
            probe.compile((_type_of(population), _type_of(tape)))
        except NumbaError as its_own:
            return WrongPage(kind, f"{name} cannot be compiled: {_essence(its_own)}")
    return WrongPage(kind, f"the page cannot be compiled: {_essence(error)}")


_ROWS = r"Record\((?:[^()]|\([^()]*\))*\)|unaligned array\([^)]*\)|nestedarray\([^)]*\)"
_TELLING = (
    NOT_AN_ARM,
    r"Unknown attribute|Cannot unify|Untyped|Use of unsupported|NameError|Unsupported|not supported|not defined",
    r"Function\(<built-in function|Invalid use of|No implementation of function|No match|cannot|can't|must be",
)


def _essence(error: NumbaError) -> str:
    """One or two lines of the compiler's message."""
    text = re.sub(r"\x1b\[\d*m", "", str(error))
    lines = [re.sub(_ROWS, "a row", line).strip() for line in text.splitlines()]
    found = [line for telling in _TELLING for line in lines if re.search(telling, line) and "Failed in" not in line]
    rest = [line for line in lines if line and not line.startswith(("Failed in", "During", "<source", "File"))]
    place = re.findall(r"line (\d+):", text)
    hint = ""
    if "getitem" in text or "setitem" in text or "static_getitem" in text:
        hint = (
            ". An index must be a whole number: arm is unsigned in compiled code, so write int(arm) before arithmetic"
        )
    words = (found or rest or ["the compiler gives no reason"])[0].lstrip("> ").rstrip(". ")
    return words[:200] + (f" (line {place[-1]})" if place else "") + hint


def _with_draws(decide: Any) -> Any:
    def probe(population: Any, tape: Any) -> None:
        me, fixed = population.agents[0], by_value(population.terms[0])
        draws = SimulatedDraws(0, population.steps[0].clock, population.steps[0].arm, population.streams[0], tape)
        as_arm(decide(me, fixed, me, time_of(1), draws))

    return probe


def _of_arm(function: Any) -> Any:
    def probe(population: Any, tape: Any) -> None:
        function(population.agents[0], by_value(population.terms[0]), np.uint64(0))

    return probe


def _of_reward(observe: Any) -> Any:
    def probe(population: Any, tape: Any) -> None:
        observe(population.agents[0], by_value(population.terms[0]), np.uint64(0), 1.0, 0.0)

    return probe


def _of_seen(function: Any) -> Any:
    def probe(population: Any, tape: Any) -> None:
        me = population.agents[0]
        function(me, by_value(population.terms[0]), me, np.uint64(0))

    return probe


def _of_time(function: Any) -> Any:
    def probe(population: Any, tape: Any) -> None:
        me = population.agents[0]
        function(me, by_value(population.terms[0]), me, time_of(1), np.uint64(0))

    return probe


def _of_start(start: Any) -> Any:
    def probe(population: Any, tape: Any) -> None:
        start(population.agents[0], population.terms[0])

    return probe


def _of_elapsed(reweigh: Any) -> Any:
    def probe(population: Any, tape: Any) -> None:
        reweigh(population.agents[0], by_value(population.terms[0]), 1.0)

    return probe


def _of_unknown(unknown: Any) -> Any:
    def probe(population: Any, tape: Any) -> None:
        unknown(population.agents[0], np.uint64(0))

    return probe


_PROBES: dict[str, Callable[[Any], Any]] = {
    "start": _of_start,
    "decide": _with_draws,
    "noise_due": _of_arm,
    "observe": _of_reward,
    "published": _of_arm,
    "announced": _of_arm,
    "reweigh": _of_elapsed,
    "believe": _of_seen,
    "estimate": _of_seen,
    "radius": _of_time,
    "margin": _of_time,
    "unknown": _of_unknown,
}
