"""Reads a site's log: JSON lines, one per decision (docs/http.md, "The log"), each checked before any is used."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, cast

from fedbandit.checks import FileError, InvalidArgument, finite_number, printable, shortened, whole_number

__all__ = ["Log", "LogError", "LoggedDecision", "read_log"]

MOST_BYTES = 64 * 1024
"""Of one line."""

MOST_ARMS = 10_000


Context = tuple[tuple[str, str], ...]
"""What was known of a patient: factors and their levels, in the order of names."""


DETERMINISTIC = {
    "index": "by an index that does not draw",
    "subject": "of subjects who keep their arm",
    "one arm": "for requests that could have one arm",
}
"""Why an arm was certain, and in words."""


class LogError(FileError):
    """The log cannot be used; the message names the line and the field."""


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """One line of a log.

    * ``propensity``: None: not known
    * ``eligible``: the arms among which it was chosen; None: all
    * ``reward``: None: the log has none
    * ``rewarded``, ``counted``, ``cancelled``: as in the log
    * ``context``: factors and their levels, by name
    * ``deterministic``: why the arm was certain; None: it was drawn, or the log does not say
    """

    arm: int
    propensity: float | None
    reward: float | None
    eligible: tuple[int, ...] | None = None
    rewarded: bool = True
    counted: bool = True
    cancelled: bool = False
    context: Context = ()
    deterministic: str | None = None


@dataclass(frozen=True)
class Log:
    """The decisions of a log in the order in which they were made, and the names of the arms."""

    arms: tuple[str, ...]
    decisions: tuple[LoggedDecision, ...]

    @cached_property
    def factors(self) -> dict[str, tuple[str, ...]]:
        """The factors of all contexts, and their levels that have come."""
        found: dict[str, dict[str, None]] = {}
        for context in {it.context for it in self.decisions}:
            for name, level in context:
                found.setdefault(name, {})[level] = None
        return {name: tuple(sorted(found[name])) for name in sorted(found)}


def read_log(path: Path | str) -> Log:
    """A log, as ``GET /v1/log`` or ``Client.log`` gives it.

    Needed are ``propensity``, ``reward`` and ``arm``, a number from 0, or else ``name``; unknown fields are left out.
    """
    path = Path(path)
    names: dict[int, str] = {}
    numbers: dict[str, int] = {}
    rows: list[tuple[int, LoggedDecision]] = []
    try:
        for place, fields in _lines(path):
            try:
                arm = _arm(fields, names, numbers)
                at = whole_number("number", fields.get("number", len(rows)), 0, 2**62)
                rows.append((at, _decision(fields, arm)))
            except InvalidArgument as error:
                raise LogError(f"{path}: line {place}: {error}") from None
    except OSError as error:
        raise LogError(f"{path}: {error.strerror or error}") from None
    if not rows:
        raise LogError(f"{path}: no decisions are in it")
    rows.sort(key=lambda row: row[0])  # a value may depend on those before it, never on those after it
    most = max(max(names, default=0), *(max(it.eligible or (0,)) for _, it in rows))
    arms = tuple(names.get(k, str(k)) for k in range(most + 1))
    return Log(arms, tuple(it for _, it in rows))


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as file:
        for place, raw in enumerate(iter(lambda: file.readline(MOST_BYTES + 1), b""), 1):
            if len(raw) > MOST_BYTES:
                raise LogError(f"{path}: line {place} has more than {MOST_BYTES} bytes")
            if not raw.strip():
                continue
            try:
                found: object = json.loads(raw.decode(), parse_constant=_refuse)
            except (ValueError, RecursionError):
                found = None
            if not isinstance(found, dict):
                said = printable(raw.decode(errors="replace").strip())
                raise LogError(f"{path}: line {place} must be one JSON object, not {said}")
            yield place, cast("dict[str, Any]", found)


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def _arm(fields: Mapping[str, Any], names: dict[int, str], numbers: dict[str, int]) -> int:
    """The number of the arm; ``names`` and ``numbers`` learn it."""
    name = fields.get("name")
    if name is not None and not (isinstance(name, str) and name):
        raise InvalidArgument("name", name, "the name of an arm")
    if "arm" in fields:
        arm = whole_number("arm", fields["arm"], 0, MOST_ARMS - 1)
    elif name is None:
        raise InvalidArgument("arm", None, "the number of an arm, or name its name")
    else:
        arm = numbers.get(name, len(numbers))
    said = names.setdefault(arm, str(arm) if name is None else name)
    if name is not None and (said != name or numbers.setdefault(name, arm) != arm):
        other = f"arm {arm} is {said!r} in a line before, and {name!r} is arm {numbers.get(name, arm)}"
        raise InvalidArgument("name", name, "the same for the same arm", shortened(other, 200))
    return arm


def _decision(fields: Mapping[str, Any], arm: int) -> LoggedDecision:
    for name in ("propensity", "reward"):
        if name not in fields:
            raise InvalidArgument(name, None, "a number, or null where it is not known")
    propensity, reward, eligible = fields["propensity"], fields["reward"], fields.get("eligible")
    if propensity is not None and not 0.0 < finite_number("propensity", propensity) <= 1.0:
        hint = "The arm was given, so this cannot be the probability with which it was given."
        raise InvalidArgument("propensity", propensity, "a number above 0 and at most 1", hint)
    if reward is not None:
        reward = finite_number("reward", reward)
    if eligible is not None:
        found = cast("list[Any]", eligible)
        if not isinstance(eligible, list) or not found:
            raise InvalidArgument("eligible", found, "a list of arms' numbers, or null for all")
        eligible = tuple(sorted({whole_number(f"eligible[{i}]", k, 0, MOST_ARMS - 1) for i, k in enumerate(found)}))
        if arm not in eligible:
            raise InvalidArgument("eligible", list(eligible), f"a list with the arm that was given, {arm}")
    flags = {name: fields.get(name) for name in ("rewarded", "counted", "cancelled")}
    for name, flag in flags.items():
        if flag is not None and not isinstance(flag, bool):
            raise InvalidArgument(name, flag, "true or false")
    rewarded = reward is not None if flags["rewarded"] is None else bool(flags["rewarded"])
    counted = rewarded if flags["counted"] is None else bool(flags["counted"])
    context, why = _context(fields.get("context")), fields.get("deterministic")
    if why is not None and not (isinstance(why, str) and why in DETERMINISTIC):
        raise InvalidArgument("deterministic", why, f"{', '.join(DETERMINISTIC)}, or null where the arm was drawn")
    if why is not None and propensity != 1.0:
        raise InvalidArgument("deterministic", why, "null where propensity is not 1")
    asked = eligible, rewarded, counted, bool(flags["cancelled"]), context
    return LoggedDecision(arm, propensity, reward, *asked, why)


def _context(given: object) -> Context:
    found = cast("dict[str, object]", {} if given is None else given)
    if not isinstance(found, dict) or not all(isinstance(it, str) for it in found.values()):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument("context", found, "an object with a level of each factor, or null")
    return tuple(sorted((name, str(level)) for name, level in found.items()))
