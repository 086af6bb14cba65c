"""The arms of a site: names that people can tell apart, changes, and what the changes add up to.

A site adds, suspends, resumes or retires an arm, and says so in its bulletins, which repeat all changes that it has
made. So changes are a set that only grows, and whoever has a site's newest bulletin has all of its changes.

A stop counts at once, whoever made it. To add or resume an arm, or to retire it for good, counts once this site has
accepted it. A resume lifts the stops that it names and no others: one that was made without knowing of it stands. Its
own stops a site may take back everywhere, without anybody's consent: nobody needs to be asked twice. So two sites with
the same changes and the same acceptances agree, in whatever order they received them.

An arm may be suspended for the patients of some strata alone (``core.context``): it stays active for all others.
"""

import json
import re
import shlex
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Literal, NamedTuple, get_args
from unicodedata import category, decomposition, normalize
from unicodedata import name as unicode_name

from fedbandit.agent.core.context import Factors
from fedbandit.checks import MAX_STRATA, InvalidArgument, closest, listed, shortened, whole_number

# ---------------------------------------------------------------- names


MAX_ARM_NAME = 64
"""The most characters in the name of an arm."""

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Characters that count as printable and show nothing."""

_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""What fonts show nothing for: Unicode's Default_Ignorable_Code_Point, which Python does not know, and a blank."""

_SELECTOR = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Variation selectors, marks that choose how the character before them is drawn."""

_MARKS = 4
"""The most combining marks in a row: more than any script needs."""

_CYRILLIC = "АВЕЅІЈКМНОРСТУХԚԜаеѕіјорсухԛԝһԁӏ", "ABESIJKMHOPCTYXQWaesijopcyxqwhdl"
_GREEK = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧον", "ABEZHIKMNOPTYXov"
_AS_LATIN = str.maketrans(_CYRILLIC[0] + _GREEK[0], _CYRILLIC[1] + _GREEK[1])
"""Letters that most fonts draw like a Latin one."""

_PUNCTUATION = str.maketrans(
    "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2018\u2019\u02bc\u201c\u201d", "-------'''\"\""
)
"""Hyphens, dashes and quotation marks, which programs put in for those of the keyboard."""

_ANOTHER_LOOK = frozenset({"<super>", "<sub>", "<circle>", "<fraction>", "<square>"})
"""Forms of a character that people tell from it: 10² is not 102. Others are a matter of width and font."""

MOST_REMARKS = 5
"""So many remarks on names are made: somebody may add a hundred arms."""


def arm_name(name: object) -> str:
    """The name of an arm that can be added, or an error."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ARM_NAME or not name.isprintable() or name != name.strip():
        raise InvalidArgument("arm", name, f"a name of 1 to {MAX_ARM_NAME} printable characters")
    return name


def _can_be_read(name: str) -> bool:
    """Whether people see a name as it is: no character shows nothing, or moves others, and marks do not pile up."""
    marks = "".join("m" if category(letter).startswith("M") else "." for letter in name)
    is_seen = not set(name) & _BLANK and name.isprintable() and name.strip() != ""
    return is_seen and not marks.startswith("m") and "m" * (_MARKS + 1) not in marks


def _is_plain(name: str) -> bool:
    """Whether a name has no variation selector but of a symbol: those have a form as text and one as emoji."""
    found = (it.start() for it in _SELECTOR.finditer(name))
    return all(name[k] in "\ufe0e\ufe0f" and k > 0 and category(name[k - 1]).startswith("S") for k in found)


def new_arm_name(name: object) -> str:
    """The name of an arm that is to be added, in Unicode's normal form C; others have added whatever they liked."""
    found = normalize("NFC", arm_name(name))
    if not _can_be_read(found) or not _is_plain(found):
        raise InvalidArgument("arm", name, f"a name without invisible characters and at most {_MARKS} marks in a row")
    return found


def same_to_readers(names: Sequence[str]) -> tuple[int, int] | None:
    """The first two names that people take for one."""
    return next(_same(names), None)


def _same(names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Each name that people take for one before it: it differs in upper case, blanks, or characters that look alike."""
    seen: dict[tuple[int, str], int] = {}
    for k, it in enumerate(names):
        first = min([seen.setdefault(key, k) for key in enumerate(_as_read(it))])
        if first != k:
            yield first, k


def unclear_names(argument: str, names: Sequence[str]) -> Iterator[InvalidArgument]:
    """Names of a new federation that cannot be read. Its terms refuse equal ones.

    Similar ones are remarked on, not refused: the sites that share the terms cannot rename an arm, and may
    begin with an empty disk.
    """
    accepted = "a name that can be read: no invisible characters, few marks in a row"
    for k, it in enumerate(names):
        if not _can_be_read(it):
            yield InvalidArgument(f"{argument}[{k}]", it, accepted)


def _as_read(it: str) -> tuple[str, str]:
    """Two keys of a name; whoever has either in common looks the same.

    Capitals of a script look like others than its small letters do: so letters are translated after the case is
    folded, and before.
    """
    shown = _HIDDEN.sub("", normalize("NFC", it)).translate(_PUNCTUATION)
    forms = (c if decomposition(c).split(" ")[0] in _ANOTHER_LOOK else normalize("NFKC", c) for c in shown)
    text = " ".join(normalize("NFC", "".join(forms)).split())
    return text.casefold().translate(_AS_LATIN), text.translate(_AS_LATIN).casefold()


@lru_cache(8)
def remarks_on_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """What people may overlook in the names of the arms."""
    said = [
        f"people cannot tell the arms {shortened(names[first])!r} and {shortened(names[second])!r} apart."
        for first, second in _same(names)
    ]
    said += [
        f"the name of the arm {shortened(it)!a} holds characters that nobody sees: whoever types it leaves them out."
        for it in names
        if not _is_plain(it)
    ]
    said += [
        f"in the name of the arm {shortened(it)!r}, {letter!r} is the letter {unicode_name(letter).lower()} among "
        f"Latin ones, which it looks like: whoever types the name may get another."
        for it in names
        if (letter := _disguised(it)) is not None
    ]
    more = len(said) - MOST_REMARKS
    rest = [f"and {more} more remarks on the names of arms."] if more > 0 else []
    return (*said[:MOST_REMARKS], *rest)


def _disguised(it: str) -> str | None:
    """A letter that looks like a Latin one, and stands in a word with Latin ones."""
    words = "".join(letter if letter.isalpha() else " " for letter in it).split()
    for word in words:
        found = [letter for letter in word if ord(letter) in _AS_LATIN]
        if found and any(unicode_name(letter, "").startswith("LATIN") for letter in word):
            return found[0]
    return None


# ---------------------------------------------------------------- changes


ChangeKind = Literal["add", "suspend", "resume", "retire"]

Accepts = frozenset[str] | Literal["anyone"]
"""From whom a site accepts changes without asking its operator."""

MAX_CHANGES = 100
"""The most changes of one site."""

KEPT_FOR_STOPS = 25
"""Of these, so many are stops: a site that has changed much can still stop an arm."""

MAX_BYTES, BYTES_FOR_STOPS = 65_536, 16_384
"""The most that a site's changes take in its bulletin; so many of them are for stops alone."""

MAX_ADDED = 100
"""The most arms that are added to those of the terms: bulletins have an entry for each."""

MAX_LIFTED = 100
"""The most stops that one change lifts."""

MAX_REASON = 200
"""The most characters of a reason."""

MAX_VERSION, MAX_TIME, LONGEST = 2**40, 2**53 - 1, 1000
_ID, RECEIPT = 16, 8  # bytes of hashes


@dataclass(frozen=True)
class ArmChange:
    """One change.

    * ``version``: how many changes its site knew, this one counted: of one site's changes, the later has the higher
    * ``by``: the site that made it; ``at``: when, in milliseconds since 1970 by its clock
    * ``lifts``: the ids of the stops that a *resume* ends: those that its site knew. So nobody undoes a stop that he
      does not know
    * ``reason``: for people
    * ``strata``: for whose patients it suspends or resumes, by number; empty: for all. What a resume lifts, ``lifts``
      alone says
    """

    version: int
    kind: ChangeKind
    arm: str
    by: str
    at: int
    lifts: tuple[str, ...] = ()
    reason: str = ""
    strata: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no honest site says."""
        object.__setattr__(self, "version", whole_number("version", self.version, 1, MAX_VERSION))
        object.__setattr__(self, "at", whole_number("at", self.at, 0, MAX_TIME))
        if self.kind not in get_args(ChangeKind):
            raise InvalidArgument("change", self.kind, ", ".join(get_args(ChangeKind)))
        if self.kind == "add":
            arm_name(self.arm)
        for name, most in (("arm", LONGEST), ("by", LONGEST), ("reason", MAX_REASON)):
            value: object = getattr(self, name)
            if not isinstance(value, str) or len(value) > most or not value.isprintable():
                raise InvalidArgument(name, value, f"a text of at most {most} printable characters")
        if len(self.lifts) > (MAX_LIFTED if self.kind == "resume" else 0):
            raise InvalidArgument("lifts", f"{len(self.lifts)} stops", f"at most {MAX_LIFTED}, of a resume alone")
        if not all(is_hash(it, _ID) for it in self.lifts):
            raise InvalidArgument("lifts", self.lifts, "ids of changes")
        is_fine = all(type(s) is int and 0 <= s < MAX_STRATA for s in self.strata)
        if not is_fine or list(self.strata) != sorted(set(self.strata)):
            raise InvalidArgument(
                "strata", self.strata, f"different numbers from 0 to {MAX_STRATA - 1}, in their order"
            )
        if self.strata and self.kind not in ("suspend", "resume"):
            raise InvalidArgument("strata", self.strata, f"left out: to {self.kind} an arm is for all patients")

    @cached_property
    def content(self) -> str:
        """All of it, as it is stored."""
        strata = [list(self.strata)] if self.strata else []
        said = self.version, self.kind, self.arm, self.by, self.at, list(self.lifts), self.reason
        return json.dumps([*said, *strata])

    @cached_property
    def id(self) -> str:
        """A hash of the content: two changes with one id are the same change."""
        return blake2b(self.content.encode(), digest_size=_ID).hexdigest()

    @property
    def is_stop(self) -> bool:
        """Whether it takes an arm away: that needs nobody's consent."""
        return self.kind in ("suspend", "retire")

    @property
    def order(self) -> tuple[int, str, str]:
        """In which changes are shown."""
        return self.version, self.by, self.id

    def in_words(self, factors: Factors | None = None) -> str:
        """For the log."""
        reason = f": {self.reason}" if self.reason else ""
        whom = f" for {self.whom(factors)}" if self.strata else ""
        known = f"(version {self.version}, {self.id[:8]})"
        return f"{self.by} {_DONE[self.kind]} the arm {self.arm!r}{whom} {known}{reason}"

    def whom(self, factors: Factors | None) -> str:
        """For whose patients it is, in words; empty: for all."""
        if not self.strata:
            return ""
        is_known = factors is not None and self.strata[-1] < factors.num_strata
        return (
            factors.in_words(self.strata)
            if factors and is_known
            else f"strata {listed([str(s) for s in self.strata], MAX_STRATA)}"
        )


@dataclass(frozen=True)
class ArmChanged:
    """A change as a site stores it. ``accepted``: acceptance order; 0 if pending."""

    change: ArmChange
    accepted: int


class NothingWaits(InvalidArgument):
    """Refused: no change of the arm waits for consent."""

    def __init__(self, arm: str, waiting: Sequence[str]) -> None:
        """``waiting``: the arms of which some do."""
        names = ", ".join(map(repr, waiting))
        super().__init__(
            "arm", arm, f"an arm with changes that wait: {names or 'there is none'}", closest(arm, waiting)
        )
        others = f"; changes of {names} do" if waiting else ""
        self.args = (f"no change of the arm {shortened(repr(arm))} waits{others}. {self.hint}".rstrip(". "),)


_DONE: dict[ChangeKind, str] = {"add": "adds", "suspend": "suspends", "resume": "resumes", "retire": "retires"}


GUARDRAIL = "guardrail: "
"""How the reason of a stop begins that a guardrail of the terms has made, and no person."""


def takes_back(it: ArmChange, stop: ArmChange) -> bool:
    """Whether a site lifts a stop of its own, everywhere; a bulletin speaks for no other site.

    Not one of a guardrail: other sites' guardrails would stop the arm again at once, where its person has resumed it.
    """
    return resumes(it, stop) and it.by == stop.by and not stop.reason.startswith(GUARDRAIL)


def resumes(it: ArmChange, stop: ArmChange) -> bool:
    """Whether a change lifts a stop at the sites that accept it."""
    return it.kind == "resume" and it.arm == stop.arm and stop.id in it.lifts


def receipts_of(changes: Iterable[ArmChange]) -> list[str]:
    """What says that a site's changes are known, up to each: a hash of it and of all before it."""
    found, said = list[str](), ""
    for it in sorted(changes, key=lambda it: it.order):
        said = blake2b(f"{said}{it.id}".encode(), digest_size=RECEIPT).hexdigest()
        found.append(said)
    return found


def marked(changes: Iterable[ArmChange], marks: Container[str]) -> str:
    """Which of a site's changes have these ids, in hexadecimal digits: the oldest is the lowest bit; empty: none."""
    oldest_first = sorted(changes, key=lambda it: it.order)
    return f"{bits:x}" if (bits := sum(1 << k for k, it in enumerate(oldest_first) if it.id in marks)) else ""


def are_marks(text: object) -> bool:
    """Whether ``marked`` writes such a text, for at least one change."""
    if not isinstance(text, str) or not 0 < len(text) <= MAX_CHANGES // 4:
        return False
    return text[0] != "0" and not set(text) - set("0123456789abcdef")


def is_hash(text: object, size: int) -> bool:
    """Whether a text is a hash of so many bytes."""
    return isinstance(text, str) and len(text) == 2 * size and not set(text) - set("0123456789abcdef")


def change_from(content: str) -> ArmChange:
    """The change with this content, as it is stored."""
    try:
        version, kind, arm, by, at, lifts, reason, *strata = json.loads(content)
        (of,) = strata or ((),)
        return ArmChange(version, kind, arm, by, at, tuple(lifts), reason, tuple(of))
    except InvalidArgument:
        raise
    except (ValueError, TypeError, RecursionError):
        raise InvalidArgument("content", f"{len(content)} characters", "that of an arm change") from None


# ---------------------------------------------------------------- the list that changes add up to


ArmStatus = Literal["active", "suspended", "retired"]


class Verdict(NamedTuple):
    """The status of an arm, and the change that made it so; None: it has been so from the start."""

    status: ArmStatus
    by: ArmChange | None


@dataclass(frozen=True)
class Arms:
    """The arms of a site.

    * ``names``: those of the terms, then those that were added, in the order in which this site accepted them
    * ``num_initial``: how many are in the terms
    * ``stopped``: the numbers of those that are given to nobody
    * ``stopped_in``: of each stratum with stops of its own, the numbers of those that its patients do not get
    * ``changes``: all that this site knows, accepted or not
    """

    names: tuple[str, ...]
    num_initial: int
    stopped: frozenset[int]
    changes: Mapping[str, ArmChanged]
    stopped_in: Mapping[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])

    @classmethod
    def of(cls, initial: tuple[str, ...], changes: Mapping[str, ArmChanged]) -> "Arms":
        """The arms of the terms, and what became of them."""
        accepted = sorted((it for it in changes.values() if it.accepted), key=lambda it: it.accepted)
        added = dict.fromkeys(it.change.arm for it in accepted if it.change.kind == "add")
        names = (*initial, *(name for name in added if name not in initial))
        in_force = [it.change for it in _in_force(changes)]
        stopping = {it.arm for it in in_force if not it.strata}
        stopped = frozenset(k for k, name in enumerate(names) if name in stopping)
        parts = [(s, it.arm) for it in in_force for s in it.strata]
        here = {s: {arm for r, arm in parts if r == s} for s, _ in parts}
        stopped_in = {s: frozenset(k for k, name in enumerate(names) if name in arms) for s, arms in here.items()}
        return cls(names, len(initial), stopped, changes, stopped_in)

    def stopped_for(self, stratum: int | None) -> frozenset[int]:
        """The numbers of arms that a patient of this stratum does not get."""
        return self.stopped if stratum is None else self.stopped | self.stopped_in.get(stratum, frozenset())

    def stops_in_part(self, name: str) -> tuple[ArmChange, ...]:
        """The stops of an arm in force that are for the patients of some strata alone, oldest first."""
        found = (it.change for it in self._in_force if it.change.arm == name and it.change.strata)
        return tuple(sorted(found, key=lambda it: it.order))

    @cached_property
    def _in_force(self) -> list[ArmChanged]:
        return _in_force(self.changes)

    @property
    def added(self) -> tuple[str, ...]:
        """Names of those that are not in the terms."""
        return self.names[self.num_initial :]

    @cached_property
    def waiting(self) -> tuple[ArmChange, ...]:
        """Changes that wait for the operator: those that would change something here.

        Not an arm that is there already, nor a resume of which no stop is in force here. If a stop that it lifts is
        received later, it waits from then on.
        """
        stops = {(it.change.arm, it.change.id) for it in self._in_force}

        def is_idle(it: ArmChange) -> bool:
            if it.kind == "add":
                return it.arm in self.names
            return it.kind == "resume" and stops.isdisjoint((it.arm, name) for name in it.lifts)

        return tuple(it for it in self.unaccepted if not is_idle(it))

    @cached_property
    def unaccepted(self) -> tuple[ArmChange, ...]:
        """Changes that do not count here until they are accepted; a retirement only suspends until then.

        None of an arm that is retired here, which is final, and no retirement that a resume has lifted.
        """
        stops = {it.change.id for it in self._in_force}
        found = (it.change for it in self.changes.values() if not it.accepted and it.change.kind != "suspend")
        open_ = (it for it in found if it.kind != "retire" or it.id in stops)
        return tuple(sorted((it for it in open_ if self.standing(it.arm).status != "retired"), key=lambda it: it.order))

    def standing(self, name: str) -> Verdict:
        """The status of an arm, and why."""
        return self._verdicts.get(name, Verdict("active", None))

    def standing_in(self, name: str, stratum: int | None) -> Verdict:
        """The same for the patients of a stratum."""
        found = self.standing(name)
        if found.status == "active" and stratum is not None:
            stops = [it for it in self.stops_in_part(name) if stratum in it.strata]
            return Verdict("suspended", stops[-1]) if stops else found
        return found

    @cached_property
    def _verdicts(self) -> dict[str, Verdict]:
        """Of each arm that a change names: what the last one made of it that counts."""
        found: dict[str, Verdict] = {}
        counts = (it for it in self.changes.values() if it.accepted or self._has_taken_back(it.change))
        for it in sorted((it for it in counts if not it.change.strata), key=_order):
            found[it.change.arm] = Verdict("active", it.change)
        stops = sorted((it for it in self._in_force if not it.change.strata), key=_order)
        for it in sorted(stops, key=_is_final):
            found[it.change.arm] = Verdict("retired" if _is_final(it) else "suspended", it.change)
        return found

    def _has_taken_back(self, it: ArmChange) -> bool:
        """Whether it is a resume that lifts, unaccepted, a stop of its own site that is known here."""
        stops = (self.changes[name].change for name in it.lifts if name in self.changes)
        return any(takes_back(it, stop) for stop in stops)

    def taking_back(self, resume: ArmChange, own: str, at: int, most: int = MAX_BYTES) -> ArmChange | None:
        """How this site takes back those of its stops that another's resume lifts, once it has accepted that.

        Others, and whoever joins later, know the stop and not that its site agrees to its end: so it says so. None if
        there is no such stop, or no room.
        """
        made = self.made_by(own)
        ended = (it for it in made if it.is_stop and resumes(resume, it) and not _is_final(self.changes[it.id]))
        mine = [it for it in ended if not it.reason.startswith(GUARDRAIL)]
        lifts = tuple(it.id for it in mine if not any(takes_back(other, it) for other in made))
        if not lifts:
            return None
        reason = f"as {resume.by} has resumed it{': ' if resume.reason else ''}{resume.reason}"[:MAX_REASON]
        try:
            return self._made("resume", resume.arm, own, at, lifts, reason, most, resume.strata)
        except InvalidArgument:
            return None

    def made_by(self, site: str) -> tuple[ArmChange, ...]:
        """The changes of a site that are known here, oldest first."""
        return tuple(
            sorted((it.change for it in self.changes.values() if it.change.by == site), key=lambda it: it.order)
        )

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """How many changes of each site are known here."""
        return Counter(it.change.by for it in self.changes.values())

    # ---------------------------------------------------------------- new changes

    def next_change(
        self,
        kind: ChangeKind,
        name: str,
        by: str,
        at: int,
        reason: str = "",
        most: int = MAX_BYTES,
        strata: tuple[int, ...] = (),
    ) -> ArmChange:
        """The change that a site's operator asks for; refuses one that makes no sense, or for which is no room.

        ``most``: bytes of all changes of the site; ``strata``: for whose patients; empty: for all.
        """
        name = new_arm_name(name) if kind == "add" else name
        self._check(kind, name)
        lifts: tuple[str, ...] = ()
        if kind == "resume":
            of_arm = (it.change for it in self._in_force if it.change.arm == name)
            stops = [it for it in of_arm if not strata or (it.strata and set(it.strata) <= set(strata))]
            if not stops:
                hint = "A stop is lifted as a whole: say all strata that it is for, or none."
                raise InvalidArgument("stratum", list(strata), "strata for which the arm alone is suspended", hint)
            stops.sort(key=lambda it: (it.by != by, it.id))  # its own first: those it lifts everywhere
            lifts = tuple(it.id for it in stops[:MAX_LIFTED])
        return self._made(kind, name, by, at, lifts, reason, most, strata)

    def _made(
        self,
        kind: ChangeKind,
        name: str,
        by: str,
        at: int,
        lifts: tuple[str, ...],
        reason: str,
        most: int,
        strata: tuple[int, ...] = (),
    ) -> ArmChange:
        mine = self.made_by(by)
        version = max(len(self.changes), *(it.version for it in mine), 0) + 1
        change = ArmChange(version, kind, name, by, at, lifts, reason, strata)
        room, most = (0, most) if change.is_stop else (KEPT_FOR_STOPS, most - BYTES_FOR_STOPS)
        if MAX_CHANGES - len(mine) <= room or sum(len(it.content.encode()) for it in (*mine, change)) > most:
            raise InvalidArgument("change", kind, "left out: this site has made as many changes as others keep")
        return change

    def made_already(self, kind: ChangeKind, name: str, by: str, strata: tuple[int, ...] = ()) -> ArmChange | None:
        """The stop of this kind that a site has made already, and that is in force: a repetition changes nothing.

        Not one that somebody has resumed, accepted here or not: a repetition stops the arm at that site again.
        """
        if kind not in ("suspend", "retire"):
            return None
        asked = kind, name, strata
        same = (it.change for it in self._in_force if (it.change.kind, it.change.arm, it.change.strata) == asked)
        changes = [it.change for it in self.changes.values()]
        is_open = (it for it in same if kind == "retire" or not any(resumes(other, it) for other in changes))
        return next((it for it in is_open if it.by == by), None)

    def _check(self, kind: ChangeKind, name: str) -> None:
        if kind == "add":
            if (known := next((it for it in self.names if same_to_readers((it, name))), None)) is not None:
                hint = f"{known!r} is there already{'.' if known == name else ', and people cannot tell them apart.'}"
                raise InvalidArgument("arm", name, "the name of a new arm", hint)
            if len(self.added) >= MAX_ADDED:
                raise InvalidArgument("arm", name, f"left out: {MAX_ADDED} arms have been added, the most there can be")
            return
        known = self.names if kind == "resume" else dict.fromkeys((*self.names, *(it.arm for it in self.waiting)))
        if name not in known:
            waits = any(it.arm == name for it in self.waiting)
            hint = f"It waits to be added: fedbandit arm accept {shlex.quote(name)}" if waits else closest(name, known)
            raise InvalidArgument("arm", name, f"one of {', '.join(map(repr, known))}", hint)
        status = self.standing(name).status
        if status == "retired":
            raise InvalidArgument("arm", name, "one that is not retired: that is final")
        if kind == "resume" and status == "active" and not self.stops_in_part(name):
            raise InvalidArgument("arm", name, "a suspended one", f"{name!r} is active.")

    def new(self, changes: Iterable[ArmChange], own: str, accepts: Accepts) -> list[ArmChanged]:
        """The records of changes that this site does not know yet: at most so many of each site.

        None of an arm of which no terms and no addition are known: it is looked at again once there are.
        """
        room: dict[str, int] = {}
        found: dict[str, ArmChanged] = {}
        known = {*self.names, *(it.change.arm for it in self.changes.values() if it.change.kind == "add")}
        for change in changes:
            left = room.setdefault(change.by, MAX_CHANGES - self.counts.get(change.by, 0))
            if change.kind == "add":
                known.add(change.arm)
            if change.id in self.changes or change.id in found or left <= 0 or change.arm not in known:
                continue
            room[change.by] = left - 1
            found[change.id] = ArmChanged(change, 0)
        taken = {it.change.id: it for it in self.accepted_of([it.change for it in found.values()], own, accepts)}
        return [taken.get(name, it) for name, it in found.items()]

    def accepted_of(self, changes: Iterable[ArmChange], own: str, accepts: Accepts) -> list[ArmChanged]:
        """The records of those changes that this site accepts now: its own, and those of whom it trusts."""
        last = max((it.accepted for it in self.changes.values()), default=0)
        names, records = set(self.names), list[ArmChanged]()
        for change in sorted(changes, key=lambda it: it.order):
            if change.by != own and accepts != "anyone" and change.by not in accepts:
                continue
            if change.kind == "add" and change.arm not in names:
                if len(names) >= self.num_initial + MAX_ADDED:
                    continue  # it waits for ever: bulletins have no entry for it
                names.add(change.arm)
            last += 1
            records.append(ArmChanged(change, last))
        return records


def _order(it: ArmChanged) -> tuple[int, str, str]:
    return it.change.order


def _is_final(it: ArmChanged) -> bool:
    return it.change.kind == "retire" and it.accepted > 0


def _in_force(changes: Mapping[str, ArmChanged]) -> list[ArmChanged]:
    """Stops that no accepted resume has lifted, nor one of their own site; an accepted retirement is never lifted."""
    lifted = {
        (it.change.arm, name, by)
        for it in changes.values()
        if it.change.kind == "resume"
        for name in it.change.lifts
        for by in ((it.change.by, _ANYBODY) if it.accepted else (it.change.by,))
    }

    def is_lifted(it: ArmChange) -> bool:
        taken_back = (it.arm, it.id, it.by) in lifted and not it.reason.startswith(GUARDRAIL)
        return taken_back or (it.arm, it.id, _ANYBODY) in lifted

    return [it for it in changes.values() if it.change.is_stop and (_is_final(it) or not is_lifted(it.change))]


_ANYBODY = ""  # no site has this name


def in_words_of_stops(arms: Arms, which: Iterable[int], stratum: int | None = None) -> str:
    """Who has stopped these arms, for the patients of a stratum or for all: "a: suspended by north"."""
    found = ((arms.names[k], arms.standing_in(arms.names[k], stratum)) for k in sorted(which))
    return "; ".join(f"{name}: {status} by {change.by}" for name, (status, change) in found if change is not None)
