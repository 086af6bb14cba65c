"""All that one site has told its federation, as one numbered JSON text; the site signs its exact bytes.

A bulletin says what its site has released of each arm, how many decisions it has made, which changes of arms it has
made, and which of others' changes it knows and has accepted. The next one replaces it as a whole.

There is one text for each bulletin: ``decode`` refuses any other, so what two sites read in the same bytes is the same.
It comes from strangers with a certificate. Whatever they sign, ``decode`` takes bounded time and memory and raises
nothing but ``InvalidArgument``, which names the field.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, NoReturn, cast

from fedbandit.agent.core.arms import (
    BYTES_FOR_STOPS,
    MAX_ADDED,
    MAX_ARM_NAME,
    MAX_BYTES,
    MAX_CHANGES,
    RECEIPT,
    ArmChange,
    are_marks,
    is_hash,
    receipts_of,
)
from fedbandit.checks import LARGEST_FLOAT, InvalidArgument, whole_number
from fedbandit.rules.evaluation_sums import PolicySums
from fedbandit.strict_json import MAX_DEPTH, TooDeep, check_depth

Place = tuple[int, int]
"""The incarnation of a site and the number of its bulletin in that, from 1: the newest place wins."""

NOWHERE: Place = (0, 0)
"""Before every bulletin."""

MAX_BODY, LARGE_BODY = 136 * 1024, 1544 * 1024
"""The most bytes of a bulletin; the second where arms have long rows, one number for each pair of strata."""

LONG_ROW = 7
"""Numbers."""

MAX_NAME = 253
"""The most characters of a site's name: those of a DNS name."""

MAX_TEXT = 64
"""The most characters of a hash, and of a software's name."""

MAX_ARM = 1000
"""The most characters of an arm's name; arms that are added have shorter ones."""

MAX_COUNT = 10**12
"""The most decisions, rewards and releases."""

MAX_HISTORY = 10**6
"""The most rewards of an arm from before the federation."""

MOST_ROWS = 17
"""Of policies that are evaluated, with that as given."""

MAX_TIME = 2**53 - 1
"""The largest time in milliseconds, incarnation and number: a whole number that every reader of JSON reads right."""

CENTURY = 36525 * 24 * 3600 * 1000
"""100 years in milliseconds, the unit of incarnations: so wrong a clock may be that stands at 1970."""

MAX_RUN = 2**63 - 1

_FORMAT = 1
_NAMES = "fedbandit", "federation", "site", "incarnation", "number", "at", "run", "opened", "answers", "decisions"
_FIELDS = (*_NAMES, "arms", "evaluation", "changes", "receipts", "accepted", "software")


@dataclass(frozen=True, slots=True)
class ArmEntry:
    """What a site has released of one arm.

    * ``row``: the page's published numbers, in steps of the grid
    * ``releases``: how often it has released; ``rewards``: how many rewards they hold
    * ``decisions``: how often it has given the arm
    * ``history``: how many of these, and of their rewards, are of before the federation (``core.history``)
    * ``cells``: the decisions by stratum; empty where the policy is told of none
    * ``alone``: by stratum what was released of it alone: mean in steps, and sums of 1/v and of 1/(v^2 m)
    """

    name: str
    row: tuple[float, ...]
    releases: int
    rewards: int
    decisions: int
    history: int = 0
    cells: tuple[int, ...] = ()
    alone: tuple[tuple[float, float, float], ...] = ()

    @property
    def patients(self) -> int:
        """Decisions since the federation began."""
        return max(self.decisions - self.history, 0)


@dataclass(frozen=True, slots=True)
class EvaluationEntry:
    """What a site has released of the policies that the terms evaluate (``core.evaluation``).

    ``rows``: the policy as given, then those of the terms; gains have noise. Empty: the terms evaluate none.
    """

    releases: int = 0
    rows: tuple[PolicySums, ...] = ()


NO_EVALUATION = EvaluationEntry()


@dataclass(frozen=True)
class Bulletin:
    """One bulletin.

    * ``federation``: the hash of the terms
    * ``incarnation``: milliseconds since 1970 when the site's folder was made or restored; ``number``: from 1 in it
    * ``at``: when it was made by the site's clock in milliseconds, for people
    * ``run``: the process that made it; 0 in simulations
    * ``opened``: the newest own place in the file when that process opened it; ``NOWHERE``: there was none
    * ``answers``: the operator answers for all conflicts up to this place
    * ``changes``: the site's own changes of arms, oldest first: the next bulletin repeats them and may add others
    * ``receipts``: which changes of each other site are known here (``arms.receipts_of``). A number would not do: a
      site that has lost its file makes others with the same numbers
    * ``accepted``: which of these have its site's consent (``arms.marked``), so that a site that joins sees who gave it
    """

    federation: str
    site: str
    incarnation: int
    number: int
    at: int
    run: int = 0
    opened: Place = NOWHERE
    answers: Place = NOWHERE
    decisions: int = 0
    arms: tuple[ArmEntry, ...] = ()
    evaluation: EvaluationEntry = NO_EVALUATION
    changes: tuple[ArmChange, ...] = ()
    receipts: Mapping[str, str] = field(default_factory=dict[str, str])
    accepted: Mapping[str, str] = field(default_factory=dict[str, str])
    software: str = ""

    @property
    def place(self) -> Place:
        """The newest place wins."""
        return self.incarnation, self.number

    @cached_property
    def releases(self) -> Mapping[str, int]:
        """How often something was released of each arm, by name; under "" of other policies."""
        return {"": self.evaluation.releases, **{it.name: it.releases for it in self.arms}}

    @cached_property
    def by_arm(self) -> Mapping[str, ArmEntry]:
        """The entries by name."""
        return {it.name: it for it in self.arms}

    def changes_of(self, receipt: str) -> tuple[ArmChange, ...]:
        """Those of its changes that another site knows, which says this; none if it knows others."""
        return self._by_receipt.get(receipt, ())

    @cached_property
    def _by_receipt(self) -> Mapping[str, tuple[ArmChange, ...]]:
        changes = tuple(sorted(self.changes, key=lambda it: it.order))
        return {said: changes[: k + 1] for k, said in enumerate(receipts_of(changes))}

    def encode(self) -> bytes:
        """The body that is signed; refuses one that is too long: too many changes with long reasons, or receipts."""
        values = (
            _FORMAT,
            self.federation,
            self.site,
            self.incarnation,
            self.number,
            self.at,
            self.run,
            self.opened,
            self.answers,
            self.decisions,
            [_as_list(it) for it in self.arms],
            [self.evaluation.releases, self.evaluation.rows],
            [_change_as_list(it) for it in self.changes],
            {name: self.receipts[name] for name in sorted(self.receipts)},
            {name: self.accepted[name] for name in sorted(self.accepted)},
            self.software,
        )
        try:
            body = _encode(dict(zip(_FIELDS, values, strict=True))).encode()
        except (ValueError, RecursionError):  # NaN, or half a character
            raise InvalidArgument(
                "bulletin", f"that of {self.site!r}", "one of finite numbers and whole letters"
            ) from None
        most = most_bytes(max((len(it.row) for it in self.arms), default=0))
        if len(body) > most:
            raise InvalidArgument("bulletin", f"{len(body)} bytes", f"at most {most} bytes long")
        return body


def _as_list(it: ArmEntry) -> tuple[object, ...]:
    counts = it.releases, it.rewards, it.decisions, it.history
    return (it.name, it.row, *counts, it.cells, it.alone) if it.cells else (it.name, it.row, *counts)


def _change_as_list(it: ArmChange) -> tuple[object, ...]:
    said = it.version, it.kind, it.arm, it.at, it.lifts, it.reason
    return (*said, it.strata) if it.strata else said


def most_bytes(num_columns: int) -> int:
    """Of a bulletin whose rows have so many numbers."""
    return MAX_BODY if num_columns < LONG_ROW else LARGE_BODY


def room_for_changes(names: Sequence[str], num_columns: int, num_strata: int = 0) -> int:
    """The bytes that a site's changes may have in its bulletin, beside the fullest entries of these arms and of others.

    Refuses arms that leave too few: a bulletin that is too long is never sent, and nobody would learn of a stop.
    """
    for k, name in enumerate(names):
        if not 0 < len(name) <= MAX_ARM or any("\ud800" <= letter <= "\udfff" for letter in name):
            raise InvalidArgument(f"arms[{k}]", name, f"a name of 1 to {MAX_ARM} characters")
    counts = (3 + num_strata) * (len(str(MAX_COUNT)) + 1) + len(str(MAX_HISTORY))
    alone = num_strata * (3 * _LONGEST_NUMBER + 6)
    entry = _LONGEST_NUMBER * num_columns + counts + alone + (16 if num_strata else 9)
    left = most_bytes(num_columns) - _REST - MAX_ADDED * (entry + 4 * MAX_ARM_NAME) - 2 * BYTES_FOR_STOPS
    size = sum(entry + len(_encode(name).encode()) for name in names)
    if size > left:
        accepted = f"fewer, or with shorter names: {size} bytes in a bulletin are more than {left}"
        raise InvalidArgument("arms", f"{len(names)} arms", accepted)
    return min(left - size + 2 * BYTES_FOR_STOPS, MAX_BYTES)


_LONGEST_NUMBER, _REST = 25, 16_384  # bytes: of a float; of receipts, consents and all else

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Signed:
    """The bytes of a bulletin, signed. ``signer``: the certificates of the signer's key; empty without TLS."""

    body: bytes
    signature: bytes
    signer: bytes
    digest: bytes = field(init=False, compare=False, repr=False)
    """Of the body alone: two genuine signatures of one body differ."""

    def __post_init__(self) -> None:
        """Hash the body once."""
        object.__setattr__(self, "digest", sha256(self.body).digest()[:16])


# ---------------------------------------------------------------- what strangers send


def decode(body: bytes, num_columns: int, num_strata: int = 0) -> Bulletin:
    """The bulletin of these bytes; ``num_columns``: how many numbers a row has, for so many strata."""
    if len(body) > (most := most_bytes(num_columns)):
        raise InvalidArgument("bulletin", f"{len(body)} bytes", f"at most {most} bytes")
    try:
        check_depth(body)
        read: object = json.loads(body.decode(), parse_constant=_refuse_constant)
    except InvalidArgument:
        raise
    except TooDeep:
        raise InvalidArgument("bulletin", f"{len(body)} bytes", f"JSON, at most {MAX_DEPTH} levels deep") from None
    except ValueError:
        raise InvalidArgument("bulletin", f"{len(body)} bytes", "JSON") from None
    it = cast(dict[str, Any], read)
    if type(read) is not dict or tuple(it) != _FIELDS:
        raise InvalidArgument("bulletin", f"{len(body)} bytes", f"an object with the fields {', '.join(_FIELDS)}")
    if it["fedbandit"] != _FORMAT:
        raise InvalidArgument("fedbandit", it["fedbandit"], f"{_FORMAT}, the version of the format")
    site = site_name("site", it["site"])
    place = _whole("incarnation", it["incarnation"], MAX_TIME, 1), _whole("number", it["number"], MAX_TIME, 1)
    answers = _place("answers", it["answers"])
    if answers >= place:
        raise InvalidArgument("answers", answers, f"a place before this bulletin's, {place}")
    bulletin = Bulletin(
        federation=_text("federation", it["federation"], MAX_TEXT),
        site=site,
        incarnation=place[0],
        number=place[1],
        at=_whole("at", it["at"], MAX_TIME),
        run=_whole("run", it["run"], MAX_RUN),
        opened=_place("opened", it["opened"]),
        answers=answers,
        decisions=_whole("decisions", it["decisions"], MAX_COUNT),
        arms=_entries(it["arms"], num_columns, num_strata),
        evaluation=_evaluation(it["evaluation"]),
        changes=_changes(it["changes"], site),
        receipts=(receipts := _receipts(it["receipts"], site)),
        accepted=_accepted(it["accepted"], receipts),
        software=_text("software", it["software"], MAX_TEXT),
    )
    if bulletin.encode() != body:
        raise InvalidArgument("bulletin", f"{len(body)} bytes", "written as a site writes it, in one way only")
    return bulletin


def site_name(argument: str, name: object) -> str:
    """A name that a site may have."""
    if not _text(argument, name, MAX_NAME):
        raise InvalidArgument(argument, name, "a name")
    return cast(str, name)


def _refuse_constant(text: str) -> NoReturn:
    raise InvalidArgument("bulletin", text, "one of finite numbers")


def _whole(argument: str, value: object, most: int, least: int = 0) -> int:
    if type(value) is not int:
        raise InvalidArgument(argument, value, f"a whole number from {least} to {most}")
    return value if least <= value <= most else whole_number(argument, value, least, most)


def _text(argument: str, value: object, most: int) -> str:
    if type(value) is not str or len(value) > most or not value.isprintable():
        raise InvalidArgument(argument, value, f"a text of at most {most} printable characters")
    return value


def _list(argument: str, value: object, length: int | None = None) -> list[Any]:
    found = cast(list[Any], value)
    if type(value) is not list or (length is not None and len(found) != length):
        raise InvalidArgument(argument, found, "a list" if length is None else f"a list of {length}")
    return found


def _place(argument: str, value: object) -> Place:
    incarnation, number = _list(argument, value, 2)
    return _whole(argument, incarnation, MAX_TIME), _whole(argument, number, MAX_TIME)


_COUNTS = ("releases", MAX_COUNT), ("rewards", MAX_COUNT), ("decisions", MAX_COUNT), ("history", MAX_HISTORY)


def _entries(value: object, num_columns: int, num_strata: int) -> tuple[ArmEntry, ...]:
    entries: list[ArmEntry] = []
    for k, entry in enumerate(_list("arms", value)):
        name, row, releases, rewards, decisions, history, *more = _list(f"arms[{k}]", entry, 8 if num_strata else 6)
        if type(name) is not str or not 0 < len(name) <= MAX_ARM:
            raise InvalidArgument(f"arms[{k}].name", name, f"a name of at most {MAX_ARM} characters")
        for x in _list(f"arms[{k}].row", row, num_columns):
            if type(x) is not float or not -LARGEST_FLOAT <= x <= LARGEST_FLOAT:  # no name is made for nothing
                _finite(f"arms[{k}].row", x)
        for n, (what, most) in zip((releases, rewards, decisions, history), _COUNTS, strict=True):
            if type(n) is not int or not 0 <= n <= most:  # hardly ever: no name is made for nothing
                _whole(f"arms[{k}].{what}", n, most)
        cells, alone = _of_strata(f"arms[{k}]", more, num_strata) if more else ((), ())
        entries.append(ArmEntry(name, tuple(row), releases, rewards, decisions, history, cells, alone))
    if len({it.name for it in entries}) < len(entries):
        raise InvalidArgument("arms", f"{len(entries)} entries", "entries of different arms")
    return tuple(entries)


def _of_strata(
    argument: str, said: Sequence[object], num_strata: int
) -> tuple[tuple[int, ...], tuple[tuple[float, float, float], ...]]:
    cells = [_whole(f"{argument}.cells", n, MAX_COUNT) for n in _list(f"{argument}.cells", said[0], num_strata)]
    alone: list[tuple[float, float, float]] = []
    for s, of_stratum in enumerate(_list(f"{argument}.alone", said[1], num_strata)):
        mean, precision, square = (
            _finite(f"{argument}.alone[{s}]", x) for x in _list(f"{argument}.alone[{s}]", of_stratum, 3)
        )
        alone.append((mean, precision, square))
    return tuple(cells), tuple(alone)


def _finite(argument: str, value: object) -> float:
    if type(value) is not float or not -LARGEST_FLOAT <= value <= LARGEST_FLOAT:
        raise InvalidArgument(argument, value, "a finite number with a point")
    return value


def _evaluation(value: object) -> EvaluationEntry:
    releases, given = _list("evaluation", value, 2)
    rows: list[PolicySums] = []
    for k, row in enumerate(_list("evaluation", given)):
        decisions, *sums = _list(f"evaluation[{k}]", row, 4)
        _whole(f"evaluation[{k}].decisions", decisions, MAX_COUNT)
        for x in sums:
            if type(x) is not float or not -LARGEST_FLOAT <= x <= LARGEST_FLOAT:
                raise InvalidArgument(f"evaluation[{k}]", x, "a finite number with a point")
        rows.append(PolicySums(decisions, *sums))
    if len(rows) > MOST_ROWS:
        raise InvalidArgument("evaluation", f"{len(rows)} rows", f"at most {MOST_ROWS}")
    return EvaluationEntry(_whole("evaluation.releases", releases, MAX_COUNT), tuple(rows))


def _changes(value: object, site: str) -> tuple[ArmChange, ...]:
    found = _list("changes", value)
    if len(found) > MAX_CHANGES:
        raise InvalidArgument("changes", f"{len(found)} changes", f"at most {MAX_CHANGES}")
    changes: list[ArmChange] = []
    for k, change in enumerate(found):
        said = _list(f"changes[{k}]", change)
        if len(said) not in (6, 7):
            raise InvalidArgument(f"changes[{k}]", change, "a list of 6, or of 7 with strata")
        version, kind, arm, at, lifts, reason, *strata = said
        lifts = tuple(_list(f"changes[{k}].lifts", lifts))
        of = tuple(_list(f"changes[{k}].strata", strata[0])) if strata else ()
        try:
            changes.append(ArmChange(version, kind, arm, site, at, lifts, reason, of))
        except InvalidArgument as error:
            raise error.at(f"changes[{k}]") from None
        except TypeError:  # a list where a text belongs: it has no hash
            raise InvalidArgument(f"changes[{k}]", change, "an arm change") from None
    return tuple(changes)


def _receipts(value: object, site: str) -> dict[str, str]:
    if type(value) is not dict:
        raise InvalidArgument("receipts", value, "an object of names and hashes")
    receipts = cast(dict[str, Any], value)
    for name, said in receipts.items():
        site_name("receipts", name)
        if not is_hash(said, RECEIPT):
            raise InvalidArgument(f"receipts.{name}", said, f"a hash of {RECEIPT} bytes")
    if site in receipts:
        raise InvalidArgument("receipts", site, "names of other sites")
    return receipts


def _accepted(value: object, receipts: Mapping[str, str]) -> dict[str, str]:
    if type(value) is not dict:
        raise InvalidArgument("accepted", value, "an object of names and hexadecimal digits")
    accepted = cast(dict[str, Any], value)
    for name, marks in accepted.items():
        if name not in receipts:
            raise InvalidArgument("accepted", name, "names in the receipts")
        if not are_marks(marks):
            raise InvalidArgument(f"accepted.{name}", marks, f"up to {MAX_CHANGES // 4} hexadecimal digits, no 0 first")
    return accepted
