"""What can happen to a live site in one run: the words of a script.

A script has two parts, as the privacy proof has. **Events** are public: requests for arms, bulletins of members, the
operator, the clock, crashes. **Entries** are protected: all that the application reports of one decision, and when, and
what a site knows from before the federation. A *pair* is two scripts that differ in one entry, in any way.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from fedbandit.agent.core.arms import ChangeKind
from fedbandit.agent.core.decisions import Request, SiteDraws
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.history import History
from fedbandit.testing.memory_network import Crash

__all__ = [
    "EVENTS",
    "Change",
    "Drawn",
    "Event",
    "Pair",
    "Report",
    "Script",
    "entry_in_words",
    "once",
    "without_crashes",
]

# ---------------------------------------------------------------- what is protected


class Report(NamedTuple):
    """A value that the application reports, so many seconds after the decision.

    * ``in_bulk``: it is kept until the application sends all that it has kept, in one call
    * ``crash``: the process dies at the write, and the application reports again
    """

    value: float
    delay: float = 0.0
    in_bulk: bool = False
    crash: Crash | None = None


Entry = tuple[Report, ...]
"""All that is reported of one decision, in order of time; nothing, if it is empty."""


def without_crashes(entry: Entry) -> Entry:
    """The same, where the process does not die."""
    return tuple(it._replace(crash=None) for it in entry)


def once(value: float, delay: float = 0.0) -> Entry:
    """One report."""
    return (Report(value, delay),)


# ---------------------------------------------------------------- what is public


@dataclass(frozen=True)
class Happening:
    """Something that happens so many seconds after the start."""

    at: float


@dataclass(frozen=True)
class Decide(Happening):
    """The application asks for arms; ``entries`` is what it will report of each decision that it gets."""

    request: Request
    draws: tuple[SiteDraws, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Cancel(Happening):
    """It says that a decision was not used; ``back``: counted back from the last one, which is 1."""

    back: int


class SendKept(Happening):
    """It sends all rewards that it has kept, in one call."""


@dataclass(frozen=True)
class Expire(Happening):
    """The site forgets all but so many decisions, and those of so many seconds ago."""

    keep: int
    age: float


@dataclass(frozen=True)
class Say(Happening):
    """A member publishes a bulletin, true or not.

    * ``arms``: of each arm a row, releases, rewards, decisions and how many are of before
    * ``skips``: how many numbers it leaves out; ``is_renewed``: it begins a new incarnation
    * ``changes``: kinds and arms of changes that it makes, and the strata for which
    """

    member: str
    arms: tuple[tuple[tuple[float, ...], int, int, int, int], ...]
    skips: int = 0
    is_renewed: bool = False
    is_foreign: bool = False
    changes: tuple[tuple[ChangeKind, str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True)
class Exchange(Happening):
    """A link with a member opens: both ends say what they have, and send what the other lacks."""

    member: str


@dataclass(frozen=True)
class Claim(Happening):
    """A member claims to have a bulletin of the site that nobody has made."""

    member: str


@dataclass(frozen=True)
class ChangeArm(Happening):
    """The operator changes an arm; ``levels``: for patients with these levels of some factors."""

    kind: ChangeKind
    arm: str
    reason: str = ""
    levels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class AcceptArm(Happening):
    """The operator accepts what others have changed."""

    arm: str
    retire: bool


@dataclass(frozen=True)
class AcceptFrom(Happening):
    """The configuration trusts these members, or anyone, to change arms."""

    whom: tuple[str, ...] | None


@dataclass(frozen=True)
class Exclude(Happening):
    """The operator no longer counts a member, or counts it again."""

    member: str
    is_over: bool = False


@dataclass(frozen=True)
class Refuse(Happening):
    """The configuration refuses these members from now on; ``is_revoked``: their certificates are revoked."""

    members: tuple[str, ...]
    is_revoked: bool = False


@dataclass(frozen=True)
class Link(Happening):
    """The site has links with so many members from now on."""

    count: int


@dataclass(frozen=True)
class Restart(Happening):
    """The process is killed and started again.

    ``is_vouched``: a witness knows its file as the latest; ``answered_by``: so many members answer at once.
    """

    is_vouched: bool = False
    answered_by: int = 3


@dataclass(frozen=True)
class DieAtNextWrite(Happening):
    """The process dies at its next write that is public, and is started again."""

    crash: Crash


class LoseDisk(Happening):
    """The disk is lost; the process starts on an empty one."""


class CopyDisk(Happening):
    """Somebody copies the disk."""


class PutBack(Happening):
    """The disk is put back to what the last copy holds, and the process started."""


@dataclass(frozen=True)
class Twin(Happening):
    """Somebody starts another process with a copy of the disk: it makes a decision, and tells a member."""

    member: str


class Confirm(Happening):
    """The operator says that the file is the latest."""


class Restore(Happening):
    """The operator begins a new incarnation with the file."""


class Pause(Happening):
    """The process has stood still."""


class Dismiss(Happening):
    """What members claim to have, and have not shown, is not believed."""


@dataclass(frozen=True)
class Jump(Happening):
    """The clock jumps, forwards or back."""

    by: float


class SaveBoard(Happening):
    """The site writes what has come of others."""


class View(Happening):
    """Somebody looks at all that the site shows: state, metrics, evidence, arms, members."""


Event = (
    Decide
    | Cancel
    | SendKept
    | Expire
    | Say
    | Exchange
    | Claim
    | ChangeArm
    | AcceptArm
    | AcceptFrom
    | Exclude
    | Refuse
    | Link
    | Restart
    | DieAtNextWrite
    | LoseDisk
    | CopyDisk
    | PutBack
    | Twin
    | Confirm
    | Restore
    | Pause
    | Dismiss
    | Jump
    | SaveBoard
    | View
)

EVENTS: tuple[type, ...] = Event.__args__
"""Their kinds."""


@dataclass(frozen=True)
class Script:
    """A run of one site.

    * ``events``: in order of time
    * ``rest``: for how many seconds it goes on after the last event
    * ``pace``: seconds between two looks of the process at its clock, from ``phase`` on
    * ``members``: the other sites; each has a link
    * ``history``: what the site knows from before the federation
    * ``keeps_rewards``: for its log
    """

    terms: Federation
    events: tuple[Event, ...]
    rest: float
    pace: float = 1.0
    phase: float = 1.0
    members: tuple[str, ...] = ("member",)
    history: History | None = None
    keeps_rewards: bool = False

    @property
    def until(self) -> float:
        """The length of the run."""
        return (self.events[-1].at if self.events else 0.0) + self.rest

    def changed(self, change: "Change") -> "Script":
        """The same with another entry."""
        if change.history is not None:
            return replace(self, history=change.history)
        it = self.events[change.event]
        assert isinstance(it, Decide)  # noqa: S101  # a change names a request
        entries = (*it.entries[: change.position], change.entry, *it.entries[change.position + 1 :])
        return replace(
            self,
            events=(*self.events[: change.event], replace(it, entries=entries), *self.events[change.event + 1 :]),
        )

    def without(self, first: int, last: int) -> "Script":
        """The same without some of its events."""
        return replace(self, events=(*self.events[:first], *self.events[last:]))

    def without_crashes(self, change: "Change") -> "Script":
        """The same, where no process dies at a report of the decision that changes."""
        it = self.events[change.event]
        assert isinstance(it, Decide)  # noqa: S101  # a change names a request
        return self.changed(replace(change, entry=without_crashes(it.entries[change.position])))

    @property
    def size(self) -> int:
        """How much happens in it, for the choice of the shortest."""
        return sum(
            1 + (it.request.count + sum(map(len, it.entries)) if isinstance(it, Decide) else 0) for it in self.events
        )

    def in_words(self) -> Iterator[str]:
        """What happens, a line for each event."""
        for it in self.events:
            yield f"{it.at:7.6g} s: {_said(it)}"


@dataclass(frozen=True)
class Change:
    """Another entry for one decision of a request, or another history."""

    event: int = 0
    position: int = 0
    entry: Entry = ()
    history: History | None = None


class Pair(NamedTuple):
    """A script, and what is changed in it."""

    script: Script
    change: Change


class Drawn(NamedTuple):
    """A script, and several changes, each of which makes a pair."""

    script: Script
    changes: tuple[Change, ...]


# ---------------------------------------------------------------- in words


def entry_in_words(entry: Entry) -> str:
    """What is reported of a decision."""
    return ", then ".join(map(_report_in_words, entry)) or "no reward"


def _report_in_words(it: Report) -> str:
    said = f"{it.value:.6g}" + (f" after {it.delay:.4g} s" if it.delay else "")
    return said + (" in bulk" if it.in_bulk else "") + (f" with a crash {it.crash} the write" if it.crash else "")


def _said(it: Event) -> str:
    if isinstance(it, Decide):
        request = it.request
        asked = [f"{request.count} arms" if request.count > 1 else "an arm"]
        asked += [] if request.key is None else [f"key {request.key!r}"]
        asked += [] if request.subject is None else [f"subject {request.subject!r}"]
        asked += [] if request.eligible is None else [f"among {list(request.eligible)}"]
        asked += [f"without {list(request.exclude)}"] if request.exclude else []
        asked += [] if request.context is None else [f"for {dict(request.context)}"]
        return f"asks for {', '.join(asked)}; reports {'; '.join(map(entry_in_words, it.entries))}"
    shown = [
        f"{part.name}={value!r}"
        for part in fields(it)
        if part.name != "at" and (value := getattr(it, part.name)) != part.default
    ]
    return f"{type(it).__name__}({', '.join(shown)})"
