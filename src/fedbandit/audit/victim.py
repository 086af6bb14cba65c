"""Plays one site through a scenario, as its process does, and notes everything that others can see of it.

The site is opened from what its disk holds and knows nothing of the scenario, so a broken one can stand in its place.
Nothing is told before it is on disk. What is due is settled before every event but a report, and at each look at the
clock; a release or a change of arms is published at once, decisions at the next look. After a start the release guard
waits for all members.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple, TypeVar

from fedbandit.agent.core.arms import ArmChanged
from fedbandit.agent.core.board import Board
from fedbandit.agent.core.bulletin import ArmEntry, Bulletin, Signed
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import DecisionRecord, Refused, Released, Renewed, Step, Stored
from fedbandit.agent.core.release_guard import Presence
from fedbandit.agent.core.site import Site
from fedbandit.audit.scenarios import (
    Cancel,
    ChangeArm,
    Decide,
    DieAtNextWrite,
    Event,
    Exclude,
    Expire,
    LoseDisk,
    PutBack,
    Restart,
    Say,
    Scenario,
)
from fedbandit.checks import InvalidArgument
from fedbandit.privacy.noise import NoiseSource
from fedbandit.testing.memory_network import Crashed, MemoryJournal

VICTIM, EPOCH = "victim", 1

OpenSite = Callable[[str, Federation, Stored, NoiseSource, Presence], Site]

_Result = TypeVar("_Result")


class Seen(NamedTuple):
    """Something that others can see of the site, and when.

    ``what``: a decision, a bulletin, a refusal, what it has of others, its state; or counts of rewards that wait, which
    reveal to readers of its state when rewards come, and must not reveal their values.
    """

    at: float
    what: str
    content: object


class Sent(NamedTuple):
    """A bulletin of the site, and when it went out."""

    at: float
    bulletin: Bulletin


class _Died(Exception):
    """The process died at a write, and runs again."""


def open_site(name: str, terms: Federation, stored: Stored, noise: NoiseSource, presence: Presence) -> Site:
    """The site that ships."""
    return Site(name, terms, stored, noise, presence)


class Victim:
    """A site with its disk, its process, and members that see all that it sends.

    * ``seen``: all that others can see, in order; ``sent``: its bulletins
    * ``decisions``: those that it has made, ``None`` for one that was refused; ``slots``: their incarnation and
      arm, and which of the arm's decisions there they were
    * ``steps``: after each event, the incarnation, and how many rewards of each arm the page has observed
    """

    def __init__(self, scenario: Scenario, opened: OpenSite, noise: NoiseSource, looks: bool = True) -> None:
        """Start it on an empty disk. ``looks=False``: nobody looks at its state, which saves half of the time."""
        self._looks = looks
        self._scenario, self._open, self._noise = scenario, opened, noise
        self.now = 0.0
        self.seen: list[Seen] = []
        self.sent: list[Sent] = []
        self.decisions: list[DecisionRecord | None] = []
        self.slots: list[tuple[int, int, int] | None] = []
        self._keys: set[str] = set()
        self.steps: list[tuple[int, tuple[int, ...]]] = []
        self._last: dict[str, object] = {}
        self._due: list[tuple[float, int, int, float]] = []  # reports: when, in which order, of what, the value
        self._reports = self._runs = self._incarnations = 0
        self._members = {name: Board(name, scenario.terms) for name in scenario.members}
        self._numbers = dict.fromkeys(scenario.members, 0)
        self._copies: dict[float, MemoryJournal] = {}
        self._disk = self._empty_disk()
        self._start()

    def play(self) -> None:
        """Run the scenario to its end."""
        pace, looks = self._scenario.pace, 1
        events = [*self._scenario.events]
        copied = sorted({it.since for it in events if isinstance(it, PutBack)}, reverse=True)
        while True:
            times = (
                events[0].at if events else self._scenario.until,
                self._due[0][0] if self._due else self._scenario.until,
                looks * pace,
            )
            now = min(times)
            if copied and copied[-1] <= now:
                self._copies[copied[-1]] = self._disk.copy()
                copied.pop()
            if now >= self._scenario.until:
                return
            self.now = now
            if times[0] == now:
                self._happen(events.pop(0))
            elif times[1] == now:
                self._report()
            else:
                self._look_at_clock()
                looks += 1
            self._watch()

    # ---------------------------------------------------------------- what reaches the site

    def _happen(self, event: Event) -> None:
        match event:
            case Decide(_, draws, request):
                made = self._asked("decisions", lambda site: site.decide(self.now, draws, request))
                if request.key not in self._keys:
                    self._handed_out(made or (None,) * request.count)
                self._keys |= set() if request.key is None else {request.key}
                for decision in made or ():
                    self._note("decision", (decision.id, decision.arm, decision.at, decision.propensity))
            case Cancel(_, number):
                decision = self.decisions[number - 1]
                if decision is not None:
                    self._asked("cancelled", lambda site: site.cancel(decision.id, self.now))
            case Expire(_, keep):
                while (found := self._asked("expired", lambda site: site.expire(0.0, keep))) and found.total:
                    pass
            case Say(_, member, arms):
                signed = self._bulletin_of(member, arms)
                self._members[member].merge(signed, self.now)
                self._asked("merged", lambda site: site.merge(signed, member, self.now))
            case ChangeArm(_, kind, arm, reason):
                at = int(1000 * self.now)
                self._asked("changed", lambda site: site.change_arm(kind, arm, at, reason))
            case Exclude(_, member, is_over):
                if is_over:
                    self._asked("included", lambda site: site.include(member))
                else:
                    self._asked("excluded", lambda site: site.exclude(member, int(1000 * self.now), ""))
            case Restart(_, is_vouched):
                self._start(is_vouched)
            case DieAtNextWrite(_, crash):
                self._disk.crash_at_next_write = crash
            case LoseDisk():
                self._disk = self._empty_disk()
                self._start()
            case PutBack(_, since):
                self._disk = self._copies[since].copy()
                self._start()

    def _handed_out(self, made: Sequence[DecisionRecord | None]) -> None:
        arms = [-1 if it is None else it.arm for it in made]
        for position, decision in enumerate(made):
            entry = self._scenario.entries[len(self.decisions)]
            self.decisions.append(decision)
            if decision is None:
                self.slots.append(None)
                continue
            behind = arms[position + 1 :].count(decision.arm)
            self.slots.append((self.site.incarnation, decision.arm, self.site.tried[decision.arm] - behind))
            for value, delay in entry:
                self._reports += 1
                heapq.heappush(self._due, (self.now + delay, self._reports, len(self.decisions) - 1, value))

    def _report(self) -> None:
        """Report as an application does: again without an answer, and never after a refusal."""
        rewards: list[tuple[str, float]] = []
        while self._due and self._due[0][0] == self.now and (not rewards or self._scenario.in_bulk):
            _, _, number, value = heapq.heappop(self._due)
            decision = self.decisions[number]
            assert decision is not None  # noqa: S101  # only those that were handed out are reported
            rewards.append((decision.id, value))
        with suppress(Refused, InvalidArgument):
            if len(rewards) > 1:
                self._insist(lambda site: site.report_all(rewards), settles=False)
            else:
                self._insist(lambda site: site.report(*rewards[0]), settles=False)

    def _look_at_clock(self) -> None:
        """Settle what is due, go on once all members have answered, and publish."""
        if self.site.waits == "for none":
            self._insist(lambda site: site.go_on())
        elif self.site.doubt is not None and self.site.doubt.why == "old":
            self._insist(lambda site: site.restore(self._next_incarnation(), self._next_run()))
        self._insist(lambda site: Step(None))
        self._publish()

    # ---------------------------------------------------------------- the process

    def _empty_disk(self) -> MemoryJournal:
        return MemoryJournal(self._next_incarnation())

    def _next_incarnation(self) -> int:
        self._incarnations = max(self._incarnations + 1, EPOCH + int(1000 * self.now))
        return self._incarnations

    def _next_run(self) -> int:
        self._runs += 1
        return self._runs

    def _start(self, is_vouched: bool = False) -> None:
        """A process begins, and its links: both ends say what they have, and send what the other lacks."""
        stored = self._disk.load()
        presence = Presence(self._next_run(), is_vouched)
        self.site = self._open(VICTIM, self._scenario.terms, stored, self._noise, presence)
        self._commit(lambda site: site.open())
        self._commit(lambda site: site.link(self._scenario.members))
        for name, board in self._members.items():
            lacking = board.newer_than(self.site.have())
            self._commit(lambda site, name=name, board=board: site.receive_have(name, dict(board.have())))
            for signed in lacking:
                self._commit(lambda site, name=name, signed=signed: site.merge(signed, name, self.now))
        self._watch()

    def _asked(self, what: str, event: Callable[[Site], Step[_Result]]) -> _Result | None:
        """An event of which the answer can be seen; None: it was refused."""
        try:
            return self._insist(event)
        except (Refused, InvalidArgument) as refusal:
            self._note("refusal", (what, type(refusal).__name__, str(refusal)))
            return None

    def _insist(self, event: Callable[[Site], Step[_Result]], settles: bool = True) -> _Result:
        try:
            return self._do(event, settles)
        except _Died:
            return self._do(event, settles)

    def _do(self, event: Callable[[Site], Step[_Result]], settles: bool) -> _Result:
        """One event, after what is due, unless it is a report."""
        while settles and self.site.is_due(self.now):
            self._commit(lambda site: site.settle(self.now))
        return self._commit(event)

    def _commit(self, event: Callable[[Site], Step[_Result]]) -> _Result:
        step = event(self.site)
        try:
            self._disk.commit(step.records)
        except Crashed as crash:
            self._start()
            raise _Died from crash
        self.steps.append((self.site.incarnation, tuple(self.site.rewards)))
        if any(isinstance(record, Released | ArmChanged | Renewed) for record in step.records):
            self._publish()
        return step.result

    # ---------------------------------------------------------------- what leaves it

    def _publish(self) -> None:
        if not self.site.has_news(self.now):
            return
        signed = self._insist(lambda site: site.publish(_signature_of(VICTIM), self.now))
        if signed is None:
            return
        self._note("bulletin", signed.body)
        for board in self._members.values():
            board.merge(signed, self.now)
        held = next(iter(self._members.values())).held(VICTIM)
        assert held is not None  # noqa: S101  # it was merged just now
        self.sent.append(Sent(self.now, held.bulletin))

    def _bulletin_of(self, member: str, arms: tuple[tuple[tuple[float, ...], int, int, int], ...]) -> Signed:
        self._numbers[member] += 1
        terms = self._scenario.terms
        entries = tuple(ArmEntry(name, *it) for name, it in zip(terms.arms, arms, strict=True))
        bulletin = Bulletin(
            terms.digest(),
            member,
            EPOCH,
            self._numbers[member],
            int(1000 * self.now),
            decisions=sum(it.decisions for it in entries),
            arms=entries,
        )
        body = bulletin.encode()
        return Signed(body, *_signature_of(member)(body))

    def _watch(self) -> None:
        """Look at what can be seen at any time; it is noted when it changes."""
        if not self._looks:
            return
        for what, content in (
            ("Have", _plain(self.site.have())),
            ("state", state_of(self.site)),
            ("counts", counts_of(self.site)),
        ):
            if self._last.get(what) != content:
                self._last[what] = content
                self._note(what, content)

    def _note(self, what: str, content: object) -> None:
        self.seen.append(Seen(self.now, what, content))


def _plain(have: Mapping[str, object]) -> object:
    return tuple(sorted(have.items()))


def _signature_of(name: str) -> Callable[[bytes], tuple[bytes, bytes]]:
    """Signs in a way that says nothing."""
    return lambda body: (blake2b(body, key=name.encode()).digest(), b"")


def state_of(site: Site) -> tuple[object, ...]:
    """All that state and metrics are made from, and that viewers of them may see."""
    return (
        *(site.own_means, site.theta, site.radius, site.errors, site.belief, site.doubt),
        *(site.releases, site.released, site.rewards, site.tried, site.n_max, site.decided, site.remembered),
        *(site.incarnation, site.privacy()),
    )


def counts_of(site: Site) -> tuple[object, ...]:
    """What tells when rewards were reported."""
    return site.pending, site.waiting, site.late, site.clock, site.warnings()
