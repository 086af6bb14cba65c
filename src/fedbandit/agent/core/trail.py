"""Who did what, and why: the deed of a person, its reason, and the audit trail, a chain of entries that only grows.

The hash of an entry is SHA-256 of the hash before it and of its own content. So whoever knows one hash knows all
entries up to it: none of them can be changed, removed, added or moved, and the hash stay. The first entry has random
digits: nobody who is told a hash can guess what it stands for.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import Literal, NamedTuple, get_args

from fedbandit.agent.core.arms import MAX_REASON, ChangeKind
from fedbandit.checks import InvalidArgument, closest

__all__ = [
    "BEGINNING",
    "COLUMNS",
    "FILTERS",
    "KINDS",
    "MOST_SHOWN",
    "REASON",
    "UNSAID",
    "Act",
    "Deed",
    "Entry",
    "Filter",
    "Head",
    "Kind",
    "chained",
    "checked_reason",
    "fault_of",
    "filter_from",
    "head_from",
    "history_of",
    "needs_reason",
    "time_from",
]

# ---------------------------------------------------------------- who, and why

REASON = f"a text of 1 to {MAX_REASON} printable characters that says why"
"""What is accepted for a reason."""


def needs_reason(kind: ChangeKind) -> bool:
    """Whether a change of an arm needs a reason: each does that concerns patients who are treated already."""
    return kind != "add"


def checked_reason(value: object, required: bool = True) -> str:
    """A reason without blanks around it, or an error."""
    text = value.strip() if isinstance(value, str) else None
    if text is None or len(text) > MAX_REASON or not text.isprintable() or (required and not text):
        accepted = REASON if required else f"{REASON}, or left out"
        raise InvalidArgument("reason", value, accepted)
    return text


@dataclass(frozen=True)
class Deed:
    """What somebody asks for.

    * ``who``: the person's name, or that of a role; empty: not known
    * ``how``: how that is known, in words
    * ``reason``: why
    """

    who: str
    how: str
    reason: str = ""

    def in_words(self) -> str:
        """For the log."""
        return f"by {self.who or self.how}{f': {self.reason}' if self.reason else ''}"


UNSAID = Deed("", "")
"""Of what nobody has asked for: the agent does it by itself."""


# ---------------------------------------------------------------- what was done

Kind = Literal["arm", "member", "terms", "rights", "release", "history", "restore", "confirm", "start", "stop", "login"]

KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Act:
    """What was done, whoever did it.

    * ``what``: a verb: "suspend"
    * ``subject``: to what: the name of an arm, a member, or of whoever has rights
    * ``site``: whose change of an arm it is
    * ``detail``: the id of a change, and for whose patients it is; the number of a release; the rights
    * ``reason``: that of another site's people
    """

    kind: Kind
    what: str
    subject: str = ""
    site: str = ""
    detail: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the trail. ``number`` counts from 1; ``at``: milliseconds since 1970; the rest is of act and deed.

    ``hash``: in hexadecimal digits.
    """

    number: int
    at: int
    kind: Kind
    what: str
    subject: str
    site: str
    detail: str
    who: str
    how: str
    reason: str
    hash: str

    def hash_after(self, previous: str) -> str:
        """What its hash must be after an entry with this one."""
        content = [getattr(self, name) for name in CONTENT]
        return sha256(bytes.fromhex(previous) + json.dumps(content).encode()).hexdigest()


COLUMNS = tuple(it.name for it in fields(Entry))
"""The names of its fields."""

CONTENT = COLUMNS[:-1]
"""What is hashed, in this order, as a JSON array in ASCII with a blank after each comma."""


class Head(NamedTuple):
    """How many entries a trail has, and the hash of the last."""

    number: int
    hash: str

    def in_words(self) -> str:
        """To be written down elsewhere, and read by ``head_from``."""
        return f"{self.number}:{self.hash}"


BEGINNING = Head(0, "0" * 64)
"""Of a trail without entries."""


def head_from(text: str) -> Head:
    """The head that somebody has written down."""
    number, _, digits = text.strip().partition(":")
    is_hash = len(digits) == len(BEGINNING.hash) and not set(digits) - set("0123456789abcdef")
    if not (number.isascii() and number.isdigit() and len(number) < 16 and is_hash):
        raise InvalidArgument("head", text, "NUMBER:HASH, as 'fedbandit audit-log --verify' prints it")
    return Head(int(number), digits)


def chained(head: Head, acts: Iterable[Act], deed: Deed, at: int) -> list[Entry]:
    """The entries of some acts, after the last one."""
    found: list[Entry] = []
    for it in acts:
        said = it.kind, it.what, it.subject, it.site, it.detail, deed.who, deed.how, deed.reason or it.reason
        entry = Entry(head.number + 1, at, *said, "")
        head = Head(entry.number, entry.hash_after(head.hash))
        found.append(Entry(head.number, at, *said, head.hash))
    return found


def fault_of(entries: Iterable[Entry], heads: Iterable[Head] = ()) -> str | None:
    """What is wrong with a whole trail, from its first entry on; None: nothing.

    ``heads``: what is known of it from elsewhere.
    """
    known: dict[int, set[Head]] = {}
    for head in heads:
        if head.number:
            known.setdefault(head.number, set()).add(head)
    last = BEGINNING
    for it in entries:
        if it.number != last.number + 1:
            return f"entry {last.number + 1} is missing: entry {it.number} stands in its place"
        if it.hash != it.hash_after(last.hash):
            return f"entry {it.number} is not as it was written, or what stands before it is not"
        last = Head(it.number, it.hash)
        for other in known.pop(last.number, ()):
            if other != last:
                return f"entry {it.number} is another one than was written: its hash was {other.hash}"
    if known:
        return f"entries are missing at the end: there are {last.number}, and there were {max(known)}"
    return None


# ---------------------------------------------------------------- what somebody wants to see


@dataclass(frozen=True)
class Filter:
    """Which entries are shown; empty fields let all pass.

    * ``since``, ``until``: milliseconds since 1970, the second excluded
    * ``after``: those with a larger number; ``last``: so many of the newest, 0: all
    * ``most``: so many at once, 0: all
    """

    since: int | None = None
    until: int | None = None
    person: str | None = None
    kind: Kind | None = None
    arm: str | None = None
    after: int = 0
    last: int = 0
    most: int = 0


ABOUT_ARMS: tuple[Kind, ...] = ("arm", "release", "history")
"""Kinds whose subject is an arm."""


def history_of(entries: Iterable[Entry]) -> list[tuple[Entry, Entry | None]]:
    """Each change of an arm that is told of, and its acceptance at this site, if there was one."""
    changes: dict[str, tuple[Entry, Entry | None]] = {}
    for it in entries:
        if it.kind != "arm":
            continue
        name, _ = change_of(it)
        if it.what == "accept":
            made, _ = changes.get(name, (it, None))
            changes[name] = made, it
        else:
            changes[name] = it, None
    return list(changes.values())


def change_of(it: Entry) -> tuple[str, str]:
    """The id of the change of an arm of which an entry tells, and for whose patients it is: "for over 65", or empty."""
    name, _, whom = it.detail.partition(" ")
    return name, whom


MOST_SHOWN = 1000
"""So many entries are in one answer."""

FILTERS = ("since", "until", "person", "kind", "arm", "after", "last")
"""The fields of a filter, as texts."""


def filter_from(said: Mapping[str, str]) -> Filter:
    """What somebody wants to see, in words."""
    kind = said.get("kind")
    if kind is not None and kind not in KINDS:
        raise InvalidArgument("kind", kind, f"one of {', '.join(KINDS)}", closest(kind, KINDS))
    since, until = ((None if name not in said else time_from(name, said[name])) for name in ("since", "until"))
    after, last = (_number(name, said.get(name, "0")) for name in ("after", "last"))
    return Filter(since, until, said.get("person"), kind, said.get("arm"), after, last)


def _number(argument: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidArgument(argument, text, "a whole number")
    return int(text)


def time_from(argument: str, text: str) -> int:
    """A time in milliseconds since 1970, in UTC unless it says otherwise; as ``until`` a date is all of that day."""
    try:
        if len(text) == len("2026-01-31"):
            day = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
            found = day + timedelta(days=1) if argument == "until" else day
        else:
            read = datetime.fromisoformat(text)
            found = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
        return round(1000 * found.timestamp())
    except (ValueError, OverflowError):
        accepted = "a date such as 2026-01-31, or a time such as 2026-01-31T14:00Z"
        raise InvalidArgument(argument, text, accepted) from None
