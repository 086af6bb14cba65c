"""What can happen to a live site in one run: the words of a script, and a Hypothesis strategy that draws any of it.

A script has two parts, as the privacy proof has. **Events** are public: requests for arms, bulletins of members, the
operator, the clock, crashes. **Entries** are protected: all that the application reports of one decision, and when, and
what a site knows from before the federation. A *pair* is two scripts that differ in one entry, in any way.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeVar

from hypothesis import strategies as st

from fedbandit.agent.core.arms import ChangeKind
from fedbandit.agent.core.context import Factor, Factors
from fedbandit.agent.core.decisions import Request, SiteDraws
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.guardrails import Guardrails
from fedbandit.agent.core.history import History, PastRewards
from fedbandit.checks import Counts
from fedbandit.policies import FedBatch, FedUCB
from fedbandit.policies.protocol import Index
from fedbandit.privacy.noise import GRID
from fedbandit.shares import Shares
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
    "scripts_on",
    "terms_of",
]

DAY = 86400.0
VICTIM = "victim"

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


def _without_crashes(entry: Entry) -> Entry:
    return tuple(it._replace(crash=None) for it in entry)


def once(value: float, delay: float = 0.0) -> Entry:
    """One report."""
    return (Report(value, delay),)


# ---------------------------------------------------------------- what is public


@dataclass(frozen=True)
class Decide:
    """The application asks for arms; ``entries`` is what it will report of each decision that it gets."""

    at: float
    request: Request
    draws: tuple[SiteDraws, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Cancel:
    """It says that a decision was not used; ``back``: counted back from the last one, which is 1."""

    at: float
    back: int


@dataclass(frozen=True)
class SendKept:
    """It sends all rewards that it has kept, in one call."""

    at: float


@dataclass(frozen=True)
class Expire:
    """The site forgets all but so many decisions, and those of so many seconds ago."""

    at: float
    keep: int
    age: float


@dataclass(frozen=True)
class Say:
    """A member publishes a bulletin, true or not.

    * ``arms``: of each arm a row, releases, rewards, decisions and how many are of before
    * ``skips``: how many numbers it leaves out; ``is_renewed``: it begins a new incarnation
    * ``changes``: kinds and arms of changes that it makes
    """

    at: float
    member: str
    arms: tuple[tuple[tuple[float, ...], int, int, int, int], ...]
    skips: int = 0
    is_renewed: bool = False
    is_foreign: bool = False
    changes: tuple[tuple[ChangeKind, str], ...] = ()


@dataclass(frozen=True)
class Exchange:
    """A link with a member opens: both ends say what they have, and send what the other lacks."""

    at: float
    member: str


@dataclass(frozen=True)
class Claim:
    """A member claims to have a bulletin of the site that nobody has made."""

    at: float
    member: str


@dataclass(frozen=True)
class ChangeArm:
    """The operator changes an arm."""

    at: float
    kind: ChangeKind
    arm: str
    reason: str = ""


@dataclass(frozen=True)
class AcceptArm:
    """The operator accepts what others have changed."""

    at: float
    arm: str
    retire: bool


@dataclass(frozen=True)
class AcceptFrom:
    """The configuration trusts these members, or anyone, to change arms."""

    at: float
    whom: tuple[str, ...] | None


@dataclass(frozen=True)
class Exclude:
    """The operator no longer counts a member, or counts it again."""

    at: float
    member: str
    is_over: bool = False


@dataclass(frozen=True)
class Refuse:
    """The configuration refuses these members from now on; ``is_revoked``: their certificates are revoked."""

    at: float
    members: tuple[str, ...]
    is_revoked: bool = False


@dataclass(frozen=True)
class Link:
    """The site has links with so many members from now on."""

    at: float
    count: int


@dataclass(frozen=True)
class Restart:
    """The process is killed and started again.

    ``is_vouched``: a witness knows its file as the latest; ``answered_by``: so many members answer at once.
    """

    at: float
    is_vouched: bool = False
    answered_by: int = 3


@dataclass(frozen=True)
class DieAtNextWrite:
    """The process dies at its next write that is public, and is started again."""

    at: float
    crash: Crash


@dataclass(frozen=True)
class LoseDisk:
    """The disk is lost; the process starts on an empty one."""

    at: float


@dataclass(frozen=True)
class CopyDisk:
    """Somebody copies the disk."""

    at: float


@dataclass(frozen=True)
class PutBack:
    """The disk is put back to what the last copy holds, and the process started."""

    at: float


@dataclass(frozen=True)
class Twin:
    """Somebody starts another process with a copy of the disk: it makes a decision, and tells a member."""

    at: float
    member: str


@dataclass(frozen=True)
class Confirm:
    """The operator says that the file is the latest."""

    at: float


@dataclass(frozen=True)
class Restore:
    """The operator begins a new incarnation with the file."""

    at: float


@dataclass(frozen=True)
class Pause:
    """The process has stood still."""

    at: float


@dataclass(frozen=True)
class Dismiss:
    """What members claim to have, and have not shown, is not believed."""

    at: float


@dataclass(frozen=True)
class Jump:
    """The clock jumps, forwards or back."""

    at: float
    by: float


@dataclass(frozen=True)
class SaveBoard:
    """The site writes what has come of others."""

    at: float


@dataclass(frozen=True)
class View:
    """Somebody looks at all that the site shows: state, metrics, evidence, arms, members."""

    at: float


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
        return self.changed(replace(change, entry=_without_crashes(it.entries[change.position])))

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


# ---------------------------------------------------------------- any script
# Hypothesis draws bytes, which cost little and shrink well: a script is read from them, and 0 is the simplest choice.

MEMBERS = ("east", "north", "west")
MOST_EVENTS, PART = 64, 8
MOST_CHANGES = 4
ENDS = 64  # of 256 values lie at an end of the range
_HEAD, _STEP, _CHANGE = 24, 20, 12  # bytes of terms and habits, of an event, of a change

_T = TypeVar("_T")


class _Bytes:
    """Choices, read from bytes."""

    def __init__(self, drawn: bytes) -> None:
        self._drawn, self._place = drawn, 0

    def number(self, most: int = 255) -> int:
        """A whole number from 0."""
        value = self._drawn[self._place] if self._place < len(self._drawn) else 0
        self._place += 1
        return value % (most + 1)

    def pick(self, *options: _T) -> _T:
        """One of them."""
        return options[self.number(len(options) - 1)]

    def chance(self, of: int) -> bool:
        """True once in so many times."""
        return self.number(of - 1) == of - 1


def scripts_on(terms: Callable[[bytes], Federation]) -> st.SearchStrategy[Drawn]:
    """Any script, with other entries for some of its decisions; ``terms`` reads those of the federation from bytes."""
    head, step, change = (st.binary(min_size=size, max_size=size) for size in (_HEAD, _STEP, _CHANGE))
    part = st.lists(step, min_size=1, max_size=PART)  # lists of Hypothesis are short: about 20 events in all
    steps = st.lists(part, min_size=1, max_size=MOST_EVENTS // PART)
    changes = st.lists(change, min_size=1, max_size=MOST_CHANGES)
    return st.builds(lambda *drawn: _drawn(terms, *drawn), head, head, steps, changes)


def terms_of(policy: str, epsilon: float) -> Callable[[bytes], Federation]:
    """Any terms of a federation with this policy."""
    return lambda drawn: _terms(policy, epsilon, _Bytes(drawn))


def _terms(policy: str, epsilon: float, read: _Bytes) -> Federation:
    arms = tuple("abcdefg"[: read.pick(2, 3, 4, 7)])
    low = read.pick(0.0, -1.0, 5.0, 0.1)
    high = low + read.pick(1.0, 4.0, 0.3)
    window = read.pick(1.0, 1.0, DAY) * read.pick(2.7, 0.0, 0.85, 4.0, 0.0)
    default = read.pick(None, high, low + 0.31 * (high - low))
    shares = None
    if read.chance(4):
        control = read.pick(None, "b")
        shares = Shares(control, 0.3 if control else 0.0, read.pick(0.05, 0.01))
    factors = Factors((Factor("age", ("old", "young")),)) if read.chance(3) else None
    common: dict[str, Any] = {
        "reward_window": window,
        "default_reward": default,
        "shares": shares,
        "context": factors,
    }
    if policy == "fed_ucb":
        horizon, most = read.pick(7, 3, 10, 14), read.pick(100, 3)
        return Federation("audit", arms, low, high, FedUCB(epsilon, horizon=horizon), max_agents=most, **common)
    index: Index = read.pick("thompson", "ucb", "kl")
    if index == "kl" and (low, high) != (0.0, 1.0):
        index = "thompson"
    is_proved = index == "ucb" and not window and not shares and read.chance(2)  # a default would move the mean
    radius: Literal["calibrated", "proved"] = "proved" if is_proved else "calibrated"
    size, growth = read.pick(2, 1, 3), read.pick(1.5, 1.1, 2.0, None)
    counts: Counts = "sites" if is_proved else read.pick("sites", "patients")
    if counts == "patients":
        common |= {"largest_share": read.pick(0.5, 0.9), "max_decisions_per_day": read.pick(None, 100.0)}
    sigma = None if is_proved else read.pick(None, None, 0.2)
    if read.chance(3) and sigma is None:
        common["guardrails"] = Guardrails("a", read.pick(0.0, 0.1) * (high - low))
    chosen = FedBatch(
        epsilon,
        index=index,
        radius=radius,
        first_batch=size,
        growth=growth,
        sigma=None if radius == "proved" else sigma,
    )
    return Federation("audit", arms, low, high, chosen, counts=counts, max_agents=read.pick(100, 3, 1), **common)


@dataclass(frozen=True)
class _World:
    """What a script is made of.

    * ``unit``: seconds, by which times are measured
    * ``focus``: the arm that comes most; ``others``: what happens beside requests, so that it happens often
    * ``is_kept``: the application mostly sends rewards in bulk; ``keys``, ``subjects``: those that it uses
    """

    terms: Federation
    unit: float
    members: tuple[str, ...]
    focus: int
    others: tuple[Callable[["_World", _Bytes], Event], ...]
    is_kept: bool
    keys: tuple[str | None, ...]
    subjects: tuple[str | None, ...]

    @property
    def window(self) -> float:
        return self.terms.reward_window

    @property
    def width(self) -> float:
        return self.terms.high - self.terms.low

    @property
    def batch(self) -> int:
        return self.terms.first_batch

    def arm(self, read: _Bytes) -> str:
        """One of the terms, or a new one."""
        return read.pick(*self.terms.arms, "new", "newer")

    def member(self, read: _Bytes) -> str:
        return read.pick(*self.members)


def _drawn(
    terms_from: Callable[[bytes], Federation],
    head: bytes,
    habits: bytes,
    parts: list[list[bytes]],
    changes: list[bytes],
) -> Drawn:
    terms, read = terms_from(head), _Bytes(habits)
    members = MEMBERS[: read.pick(1, 2, 3)]
    unit = DAY if terms.reward_window > 1000.0 else 1.0
    phase, keeps = unit * read.pick(1.0, 0.4, 0.15), read.chance(2)
    focus, is_kept = read.number(terms.num_arms - 1), read.chance(4)
    keys = read.pick((None,), (None, None, "k", "l"))
    subjects = read.pick((None,), (None, None, "s", "t"))
    others = tuple(read.pick(*_OTHERS) for _ in range(read.pick(4, 2, 6, 9)))
    others += 3 * (_send_kept,) if is_kept else ()
    others += 2 * (_cancel,) if read.chance(2) else ()
    world = _World(terms, unit, members, focus, others, is_kept, keys, subjects)
    history = _history(terms, read) if read.chance(4) else None
    events: list[Event] = []
    at = 0.0
    for it in chain.from_iterable(parts):
        step = _Bytes(it)
        at += _gap(world, step)
        event = _decide(world, step) if step.number(9) < 6 else step.pick(*world.others)(world, step)
        if isinstance(event, Cancel) and events:  # mostly before the reward
            at = min(at, events[-1].at + 0.05 * unit)
        events.append(replace(event, at=at))
    if not any(isinstance(it, Decide) for it in events):
        events.insert(0, _decide(world, _Bytes(b"")))
    rest = terms.reward_window + 2.5 * unit
    script = Script(terms, tuple(events), rest, unit, phase, members, history, keeps)
    chosen = tuple(_change(world, script, _Bytes(it)) for it in changes)
    for it in chosen:  # a crash at a report shows that there was one: that is said in docs/privacy.md
        script = script if it.history is not None else script.without_crashes(it)
    return Drawn(script, chosen)


def _gap(world: _World, read: _Bytes) -> float:
    """Mostly a short one; any real number, and now and then exactly at a look at the clock or the end of a window."""
    kind, size = read.number(7), read.number()
    if kind < 5:
        return world.unit * (0.5, 0.25, 1.0, 0.0, 1.5)[kind]
    if kind == 5:
        return world.unit * size * 0.0117
    return (world.window + 0.3 * world.unit * (kind - 6)) if world.window else world.unit * size * 0.003


def _decide(world: _World, read: _Bytes) -> Decide:
    num_arms, batch = world.terms.num_arms, world.batch
    count = read.pick(1, 1, 1, 2, 3, batch, 2 * batch + 1, 1)
    kind, arm = read.number(9), read.number(num_arms - 1)
    eligible = None
    if kind < 6:
        eligible = (world.focus,)
    elif kind == 6:
        eligible = (arm,)
    elif kind == 7:
        eligible = tuple({world.focus, arm})
    exclude = (arm,) if kind == 8 else ()
    key, subject = read.pick(*world.keys), read.pick(*world.subjects)
    size = read.pick(0.0, 1.5, -1.5, 0.3)
    draws = tuple(_draws(world.terms, size, k) for k in range(count))
    entries = [_entry(world, read) for _ in range(min(count, 3))]
    values = (world.terms.low + world.width * (k * 0.381966 % 1.0) for k in range(3, count))
    entries += [(Report(value, in_bulk=world.is_kept),) for value in values]
    factors, level = world.terms.context, read.number()
    context = None if factors is None else {it.name: it.levels[level % len(it.levels)] for it in factors.factors}
    return Decide(0.0, Request(eligible, key, subject, count, exclude, context), draws, tuple(entries))


def _draws(terms: Federation, size: float, k: int) -> SiteDraws:
    """Small ones, so that estimates decide."""
    normals = tuple(size * (1.0 - 2.0 * ((arm + k) * 0.618034 % 1.0)) for arm in range(terms.num_arms))
    return SiteDraws(normals, 0.37 * k % 1.0, None if terms.shares is None else 0.61 * k % 1.0)


def _value(world: _World, read: _Bytes) -> float:
    """Any value within the range, its ends among them."""
    share = read.number()
    if share < ENDS:
        return (world.terms.high, world.terms.low)[share % 2]
    return min(world.terms.low + world.width * share / 255.0, world.terms.high)


def _wild(world: _World, read: _Bytes) -> float:
    """A value out of range."""
    terms, width = world.terms, world.width
    return read.pick(terms.high + 3.0 * width, terms.low - 2.0 * width, terms.high + 1e-9 * width)


def _entry(world: _World, read: _Bytes) -> Entry:
    """What is reported of one decision: mostly one reward, at once or later; none, several, out of range."""
    kind, value, late = read.number(15), _value(world, read), read.number()
    shares = (0.1, 0.0, 0.5, 0.999, 1.0, 1.2, 0.8)
    whole = world.window or 2.0 * world.unit
    delay = whole * (shares[late % 8] if late % 8 < 7 else 1.5 * late / 255.0)
    is_kept = world.is_kept != (kind == 4)
    delay *= 0.2 if is_kept else 1.0  # it waits for the call besides
    if kind == 1:
        return ()
    if kind == 2:
        return Report(value, delay), Report(world.terms.low, delay + 0.4 * world.unit)
    if kind == 3:
        return Report(world.terms.high + 3.0 * world.width, delay), Report(value, delay + 0.1 * world.unit)
    crash: Crash | None = (None, None, None, "before", "torn", "after")[kind - 10] if kind >= 10 else None
    return (Report(value, delay, is_kept, crash),)


# ---------------------------------------------------------------- what happens beside requests


def _cancel(_: _World, read: _Bytes) -> Event:
    return Cancel(0.0, read.pick(1, 2, 3, 1, 4, 6, 9))


def _send_kept(_: _World, read: _Bytes) -> Event:
    return SendKept(0.0)


_OTHERS: tuple[Callable[[_World, _Bytes], Event], ...] = (
    _cancel,
    _send_kept,
    lambda _, read: Restart(0.0, read.chance(2), read.pick(3, 1, 0)),
    lambda world, read: _say(world, read),
    lambda world, read: Expire(0.0, read.number(6), read.pick(1e12, 0.0, 1.0, 3.3) * world.unit),
    lambda _, read: DieAtNextWrite(0.0, read.pick("before", "torn", "after")),
    lambda world, read: ChangeArm(
        0.0, read.pick("suspend", "resume", "add", "retire"), world.arm(read), read.pick("", "a rash")
    ),
    lambda world, read: Jump(0.0, read.pick(0.4, 30.0, -30.0, 3.0, -0.4, 1e5) * world.unit),
    lambda world, read: Exclude(0.0, world.member(read), read.chance(2)),
    lambda world, read: Exchange(0.0, world.member(read)),
    lambda _, read: LoseDisk(0.0),
    lambda _, read: CopyDisk(0.0),
    lambda _, read: PutBack(0.0),
    lambda world, read: Twin(0.0, world.member(read)),
    lambda _, read: Restore(0.0),
    lambda _, read: Confirm(0.0),
    lambda _, read: Pause(0.0),
    lambda world, read: Claim(0.0, world.member(read)),
    lambda _, read: Dismiss(0.0),
    lambda world, read: AcceptArm(0.0, world.arm(read), read.chance(2)),
    lambda world, read: AcceptFrom(0.0, read.pick(None, (), (world.member(read),))),
    lambda world, read: Refuse(0.0, read.pick((), (world.member(read),)), read.chance(2)),
    lambda _, read: Link(0.0, read.number(3)),
    lambda _, read: SaveBoard(0.0),
    lambda _, read: View(0.0),
)


def _say(world: _World, read: _Bytes) -> Say:
    """An honest bulletin, or a lie."""
    columns = len(world.terms.page.published_names)
    arms: list[tuple[tuple[float, ...], int, int, int, int]] = []
    value, many, is_past = read.pick(0.5, 1.0, 0.0, -40.0, 1e12), read.pick(10, 1, 100_000), read.chance(4)
    second = read.pick(1.0, 0.0, GRID * 1.0)
    for arm in range(world.terms.num_arms):
        releases = read.number(3)
        row = (GRID * (value if arm == 0 else 0.3), second, 1.0, 1.0)[:columns]
        count = releases * many
        arms.append((row, releases, count, count, count if is_past else 0))
    kinds: tuple[ChangeKind, ...] = ("suspend", "resume", "add", "retire")
    changes = tuple[tuple[ChangeKind, str], ...](
        (read.pick(*kinds), world.arm(read)) for _ in range(read.pick(0, 0, 1, 2))
    )
    return Say(0.0, world.member(read), tuple(arms), read.pick(0, 0, 2), read.chance(8), read.chance(8), changes)


def _history(terms: Federation, read: _Bytes) -> History:
    count = 1 + read.number(4)
    count = count if terms.max_pulls is None else min(count, terms.max_pulls - 1)
    names, share = terms.arms[: read.pick(1, 2)], read.number() / 255.0
    total = min(count * (terms.low + (terms.high - terms.low) * share), count * terms.high)
    return History(read.pick(100.0, 3.0), dict.fromkeys(names, PastRewards(count, max(total, count * terms.low))))


# ---------------------------------------------------------------- any change


def _change(world: _World, script: Script, read: _Bytes) -> Change:
    """Another entry for any decision, often one that is cancelled or reported in bulk; or another history."""
    asked = [(k, it) for k, it in enumerate(script.events) if isinstance(it, Decide)]
    delicate = _delicate(script)
    of_history, of_delicate, chosen, position = read.chance(4), read.chance(2), read.number(), read.number()
    if script.history is not None and of_history:
        return Change(history=_other_history(world, script.history, read))
    event, it = asked[chosen % len(asked)]
    position %= len(it.entries)
    if delicate and of_delicate:
        some = delicate[chosen % len(delicate)]
        event, position, it = some[chosen // len(delicate) % len(some)]
    return Change(event, position, _other_entry(world, it.entries[position], read))


def _delicate(script: Script) -> list[list[tuple[int, int, Decide]]]:
    """The decisions that are cancelled, if no request is refused, and those that are reported in bulk."""
    places: list[tuple[int, int, Decide]] = []
    cancelled: list[tuple[int, int, Decide]] = []
    for number, it in enumerate(script.events):
        if isinstance(it, Decide):
            places += [(number, position, it) for position in range(len(it.entries))]
        elif isinstance(it, Cancel) and it.back <= len(places):
            cancelled.append(places[-it.back])
    in_bulk = [place for place in places if any(report.in_bulk for report in place[2].entries[place[1]])]
    return [some for some in (cancelled, in_bulk) if some]


def _other_history(world: _World, history: History, read: _Bytes) -> History:
    """One reward of one arm was another."""
    name = read.pick(*sorted(history.arms))
    it, low, high = history.arms[name], world.terms.low, world.terms.high
    moved = it.sum + world.width * read.pick(1.0, -1.0, 0.37, -0.005)
    total = min(max(moved, it.rewards * low), it.rewards * high)
    return History(history.days, {**history.arms, name: PastRewards(it.rewards, total)})


def _other_entry(world: _World, before: Entry, read: _Bytes) -> Entry:
    """Without a window one with other values at the same times, or repeated, or out of range besides.

    The promise assumes there that the time of a report does not depend on the reward.
    """
    kind = read.number(7)
    if world.window and kind >= 4:
        return _without_crashes(_entry(world, read))
    terms = world.terms
    found = [it._replace(value=_value(world, read)) if terms.low <= it.value <= terms.high else it for it in before]
    has_value = any(terms.low <= it.value <= terms.high for it in before)
    if kind == 2:  # a value out of range is refused
        first = before[0] if before else Report(0.0)
        found.insert(0, first._replace(value=_wild(world, read), crash=None))
    if kind == 3 and has_value:  # a second one is ignored
        last = found[-1]
        found.append(Report(_value(world, read), last.delay + 0.2 * world.unit, last.in_bulk))
    return _without_crashes(tuple(found))
