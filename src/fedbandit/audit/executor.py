"""Plays a site through a script, as its process does, and notes everything that others can see of it.

The site is opened from what its disk holds and knows nothing of the script, so a broken one can stand in its place.
Nothing is told before it is on disk. What is due is settled before every event but a report, and at each look at the
clock; a release or a change of arms is published at once, decisions at the next look. After a start the release guard
waits for the members.

Beside what is seen, a run keeps what the proof needs and nobody sees: which reward each release holds, by the records
that the site wrote, and what each decision counts as (``Run.intervals``, ``Run.steps_of``).
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from fedbandit.agent.core.arms import ArmChange, ArmChanged, marked, receipts_of
from fedbandit.agent.core.board import Board, Version
from fedbandit.agent.core.bulletin import ArmEntry, Bulletin, EvaluationEntry, Signed
from fedbandit.agent.core.decisions import Expired, Retention, SiteDraws
from fedbandit.agent.core.evidence import evidence_of, reference_of
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import (
    DecisionRecord,
    EvaluationReleased,
    HistoryEntered,
    Record,
    Refused,
    Released,
    Renewed,
    Step,
    Stored,
)
from fedbandit.agent.core.release_guard import Presence
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.trail import UNSAID
from fedbandit.agent.http.metrics import Metrics
from fedbandit.agent.http.snapshot import arms_body, member_body, site_state
from fedbandit.audit import scripts as words
from fedbandit.audit.hidden_sums import HiddenSums
from fedbandit.audit.scripts import Event, Report, Script
from fedbandit.checks import InvalidArgument
from fedbandit.privacy.noise import GRID, NoiseSource, to_grid
from fedbandit.rules.evaluation_sums import PolicySums
from fedbandit.testing.memory_network import Crash, Crashed, MemoryJournal

VICTIM, EPOCH = "victim", 1

OpenSite = Callable[..., Site]
"""Called as ``Site`` is."""

_Result = TypeVar("_Result")

_Column = tuple[int, int | None]
"""Whose pulls are counted together: those of an arm, or of an arm in a stratum."""

Owner = tuple[str, int, int]
"""Whose reward a pull is: ``("decision", number, 0)`` or ``("history", arm, which of them)``."""


class Seen(NamedTuple):
    """Something that others can see of the site, and when."""

    at: float
    what: str
    content: object


class Sent(NamedTuple):
    """A bulletin of the site, and when it went out."""

    at: float
    bulletin: Bulletin


class _Answer(NamedTuple):
    number: int
    said: object


class Differs(BaseException):
    """This run shows something else than the one that is expected, from here on."""

    def __init__(self, here: Seen | None, there: Seen | None) -> None:
        """What it shows, and what was expected."""
        self.here, self.there = here, there
        super().__init__(here, there)


class _Died(Exception):
    """The process died at a write, and runs again."""


class Run:
    """A site with its disk, its process, and members that see all that it sends.

    * ``seen``: all that others can see, in order; ``sent``: its bulletins
    * ``counts``: how many rewards wait or came late, which reveal to readers of its state when rewards come, and must
      not reveal their values
    * ``decisions``: those that it has made, ``None`` for one that was refused
    * ``delivered``: of each decision when its first reward within the range reached the site
    * ``intervals``: of each draw of noise whose rewards it hides; ``draws``: for which epsilon it was asked
    """

    def __init__(
        self,
        script: Script,
        opened: OpenSite,
        noise: NoiseSource,
        looks: bool = True,
        expected: "Run | None" = None,
        changed: int = 0,
    ) -> None:
        """Start it on an empty disk.

        ``looks=False``: nobody looks at its state, which saves half of the time. With ``expected`` it stops with
        ``Differs`` as soon as it shows something else than that run, but for answers to the ``changed`` decision.
        """
        self._looks, self._expected, self.changed = looks, expected, changed
        self._to_show = () if expected is None else expected.shown_but_for(changed)
        self._script, self._open, self._noise = script, opened, noise
        self.now = self._ahead = 0.0
        self.seen: list[Seen] = []
        self.counts: list[Seen] = []
        self.sent: list[Sent] = []
        self.decisions: list[DecisionRecord | None] = []
        self.requested: list[tuple[int, int]] = []
        self.delivered: dict[int, float] = {}
        self.saw_cancel: dict[int, bool] = {}
        self.draws: list[float] = []
        self.intervals: dict[int, list[Owner]] = {}
        self.sums = HiddenSums(script.terms)
        self._counted: dict[int, int] = {}
        self._untold: set[int] = set()  # decisions whose first reward is on its way
        self._numbers: dict[str, int] = {}
        self._strata: dict[int | None, int | None] = {}  # of decisions
        self._is_open = False
        self._fresh = 0
        self._pulls: dict[_Column, list[Owner | None]] = {}
        self._waiting: list[deque[int]] = []
        self._released: dict[_Column, int] = {}
        self._marks: dict[tuple[int, int], int] = {}
        self._hidden: dict[
            int, list[tuple[int, int, int, int]]
        ] = {}  # of each draw: arms, levels, first and last pulls
        self._keys: set[str] = set()
        self._last: dict[str, object] = {}
        self._due: list[tuple[float, int, int, Report]] = []  # when, in which order, of which decision
        self._kept: list[tuple[int, Report]] = []
        self._reports = self._runs = self._incarnations = 0
        self._members = {name: _Member(name, script.terms) for name in script.members}
        self._linked = list(script.members)
        self._crash: Crash | None = None
        self._disk = self._empty_disk()
        self._copy = self._disk.copy()
        self._start(len(script.members))

    def play(self) -> None:
        """Run the script to its end."""
        script, looks = self._script, 0
        events = deque(enumerate(script.events))
        while True:
            times = (
                events[0][1].at if events else script.until,
                self._due[0][0] if self._due else script.until,
                script.phase + looks * script.pace,
            )
            now = min(times)
            if now >= script.until:
                break
            self.now = now
            if times[0] == now:
                self._happen(*events.popleft())
            elif times[1] == now:
                self._report()
            else:
                commits = self._disk.commits
                self._look_at_clock()
                looks += 1
                if self._disk.commits == commits:
                    continue
            self._watch()
        self.now = script.until
        self._view()
        if self._expected is not None and len(self._to_show) > len(self.seen):
            raise Differs(None, self._to_show[len(self.seen)])

    def shown_but_for(self, changed: int) -> tuple[Seen, ...]:
        """What is seen, but for the answers to reports of one decision."""
        return tuple(it for it in self.seen if not isinstance(it.content, _Answer) or it.content.number != changed)

    @property
    def clock(self) -> float:
        """What the process reads."""
        return max(self.now + self._ahead, 0.0)

    @property
    def _millis(self) -> int:
        return int(1000 * self.clock)

    # ---------------------------------------------------------------- what reaches the site

    def _happen(self, number: int, event: Event) -> None:
        match event:
            case words.Decide():
                self._decide(number, event)
            case words.Cancel(_, back):
                self._cancel(len(self.decisions) + 1 - back)
            case words.SendKept():
                self._send_kept()
            case words.Expire(_, keep, age):
                while (
                    found := self._asked("expired", lambda site: site.expire(self.clock - age, keep))
                ) and found.total:
                    pass
            case words.Say():
                self._say(event)
            case words.Exchange(_, member):
                self._exchange(member)
            case words.Claim(_, member):
                claim = {VICTIM: Version((self.site.incarnation, 10_000), b"x" * 16)}
                self._asked("claimed", lambda site: site.receive_have(member, claim))
            case words.ChangeArm(_, kind, arm, reason, levels):
                whom = dict(levels) or None
                self._asked("changed", lambda site: site.change_arm(kind, arm, self._millis, reason, whom))
            case words.AcceptArm(_, arm, retire):
                self._asked("accepted", lambda site: site.accept_arm(arm, retire))
            case words.AcceptFrom(_, whom):
                self._asked("accepts", lambda site: site.accept_from("anyone" if whom is None else frozenset(whom)))
            case words.Exclude(_, member, is_over):
                if is_over:
                    self._asked("included", lambda site: site.include(member))
                else:
                    self._asked("excluded", lambda site: site.exclude(member, self._millis, ""))
            case words.Refuse(_, members, is_revoked):
                if is_revoked:
                    self._asked("revoked", lambda site: site.revoke({_certificate_of(it) for it in members}))
                else:
                    self._asked("refuses", lambda site: site.refuse(members))
            case words.Link(_, count):
                self._linked = list(self._script.members[:count])
                self._asked("linked", lambda site: site.link(self._linked))
            case words.Restart(_, is_vouched, answered_by):
                self._start(answered_by, is_vouched)
            case words.DieAtNextWrite(_, crash):
                self._crash = crash
            case words.LoseDisk():
                self._disk = self._empty_disk()
                self._start(len(self._linked))
            case words.CopyDisk():
                self._copy = self._disk.copy()
            case words.PutBack():
                self._disk = self._copy.copy()
                self._start(len(self._linked))
            case words.Twin(_, member):
                self._twin(member)
            case words.Confirm():
                self._asked("confirmed", lambda site: site.confirm(self._next_run()))
            case words.Restore():
                incarnation, run = self._next_incarnation(), self._next_run()
                restored = self._asked("restored", lambda site: site.restore(incarnation, run))
                self.counts.append(Seen(self.now, "restored", restored))
            case words.Pause():
                self._asked("paused", lambda site: site.pause(self._next_run()))
            case words.Dismiss():
                self._asked("dismissed", lambda site: site.dismiss_claims())
            case words.Jump(_, by):
                self._ahead += by
            case words.SaveBoard():
                self._asked("saved", lambda site: site.board_rows(), settles=False)
            case words.View():
                self._view()

    def _decide(self, number: int, event: words.Decide) -> None:
        request, draws = event.request, event.draws
        num_arms = len(self.site.arms.names)
        if num_arms > len(draws[0].normals):  # arms were added
            more = (0.0,) * (num_arms - len(draws[0].normals))
            draws = tuple(type(it)((*it.normals, *more), it.u, it.share) for it in draws)
        made = self._asked("decisions", lambda site: site.decide(self.clock, draws, request))
        if made is not None and not (request.key in self._keys and self._is_known(made)):
            for position, decision in enumerate(made):
                self.decisions.append(decision)
                self.requested.append((number, position))
                self._numbers[decision.id] = len(self.decisions)
                self._strata[len(self.decisions)] = decision.stratum
                self.sums.made(len(self.decisions), decision)
                waiting, lost = self._waiting[decision.arm], _lost(decision)
                if lost in waiting:  # asked for again, by its key
                    waiting[waiting.index(lost)] = len(self.decisions)
                else:
                    waiting.append(len(self.decisions))
                for report in event.entries[position]:
                    self._reports += 1
                    heapq.heappush(self._due, (self.now + report.delay, self._reports, len(self.decisions), report))
        if request.key is not None and made:
            self._keys.add(request.key)
        for it in made or ():
            self._note("decision", (it.id, it.arm, it.at, it.propensity))

    def _is_known(self, made: Sequence[DecisionRecord]) -> bool:
        return all(it.id in self._numbers for it in made)

    def _cancel(self, number: int) -> None:
        decision = self.decisions[number - 1] if number > 0 else None
        if decision is None:
            return
        self.saw_cancel.setdefault(number, number in self.delivered)

        def cancelled(site: Site) -> Step[None]:
            step = site.cancel(decision.id, self.clock)
            for waiting in self._waiting:  # those behind it may count at once
                if number in waiting:
                    waiting.remove(number)
            return step

        try:
            self._insist(cancelled)
        except (Refused, InvalidArgument) as refusal:
            self._note("refusal", ("cancelled", number, type(refusal).__name__, str(refusal)))
            return
        self.sums.cancelled(number)
        self._note("cancelled", number)

    def _say(self, event: words.Say) -> None:
        member, terms = self._members[event.member], self._script.terms
        signed = member.bulletin(event, terms, self._millis)
        with suppress(InvalidArgument):
            member.board.merge(signed, self.clock)
        if event.member in self._linked:
            self._asked("merged", lambda site: site.merge(signed, event.member, self.clock))

    # ---------------------------------------------------------------- rewards

    def _report(self) -> None:
        """Report as an application does: again without an answer."""
        _, _, number, report = heapq.heappop(self._due)
        if report.in_bulk:
            self._kept.append((number, report))
            return
        decision = self.decisions[number - 1]
        assert decision is not None  # noqa: S101  # only those that were handed out are reported

        def told(site: Site) -> Step[bool]:
            self._deliver(number, report)  # each time
            return site.report(decision.id, report.value)

        try:
            counts = self._insist(told, False, report.crash)
        except (Refused, InvalidArgument) as refusal:
            self._answered(number, report, refusal)
        else:
            self._answered(number, report, counts)

    def _send_kept(self) -> None:
        kept, self._kept = self._kept, []
        if not kept:
            return
        rewards: list[tuple[str, float]] = []
        for number, report in kept:
            decision = self.decisions[number - 1]
            assert decision is not None  # noqa: S101  # only those that were handed out are reported
            self._deliver(number, report)
            rewards.append((decision.id, report.value))
        answers = self._insist(lambda site: site.report_all(rewards), settles=False)
        for (number, report), answer in zip(kept, answers, strict=True):
            self._answered(number, report, answer)

    def _deliver(self, number: int, report: Report) -> None:
        terms = self._script.terms
        if self._is_value(report):
            self.delivered.setdefault(number, self.now)
            if number not in self._counted and any(number in waiting for waiting in self._waiting):
                self._counted[number] = to_grid(
                    report.value, terms.low, terms.high
                )  # without a window it counts at once
                self._untold.add(number)

    def _is_value(self, report: Report) -> bool:
        return self._script.terms.low <= report.value <= self._script.terms.high

    def _answered(self, number: int, report: Report, answer: object) -> None:
        if self._is_value(report):
            if answer is not True and number in self._untold:
                self._counted.pop(number, None)
            self._untold.discard(number)
        if number != self.changed:
            shown = f"{type(answer).__name__}: {answer}" if isinstance(answer, Exception) else answer
            self._note("answer", _Answer(number, shown))

    def steps_of(self, owner: Owner) -> int:
        """What a pull counts as, in steps of the grid, as far as is known now: a reward, or the default."""
        terms = self._script.terms
        kind, number, position = owner
        if kind == "decision":
            return self._counted.get(number, to_grid(terms.missing_reward, terms.low, terms.high))
        history = self._script.history
        assert history is not None  # noqa: S101  # it has such an owner
        rewards = history.arms[terms.arms[number]].rewards
        each, more = divmod(history.in_steps(terms.arms[number], terms), rewards)
        return each + (position < more)

    # ---------------------------------------------------------------- the process

    def _look_at_clock(self) -> None:
        """Settle what is due, go on once all members have answered, and publish."""
        if self.site.waits == "for none":
            self._insist(lambda site: site.go_on())
        history = self._script.history
        if history is not None and self.site.lacks(history):
            self._insist(lambda site: site.enter_history(history, self.clock))
        self._insist(lambda site: Step(None))
        self._publish()

    def _empty_disk(self) -> MemoryJournal:
        incarnation = self._next_incarnation()
        disk = MemoryJournal(incarnation)
        disk.key = f"disk {incarnation}".encode()
        return disk

    def _next_incarnation(self) -> int:
        self._incarnations = max(self._incarnations + 1, EPOCH + self._millis)
        return self._incarnations

    def _next_run(self) -> int:
        self._runs += 1
        return self._runs

    def _start(self, answered_by: int, is_vouched: bool = False) -> None:
        """A process begins, and its links: both ends say what they have, and send what the other lacks."""
        stored = self._disk.load()
        presence = Presence(self._next_run(), is_vouched)
        keeps = self._script.keeps_rewards
        self._is_open = False
        self.site = self._open(VICTIM, self._script.terms, stored, self._draw, presence, keeps_rewards=keeps)
        self._is_open = True
        self._begin_again(stored)
        self._commit(lambda site: site.open())
        self._commit(lambda site: site.link(self._linked))
        for name in self._linked[:answered_by]:
            self._exchange(name)
        self._watch()

    def _exchange(self, name: str) -> None:
        if name not in self._linked:
            return
        board, have = self._members[name].board, self.site.have(name)
        self._note("Have", (name, _plain(have)))
        lacking = board.newer_than(have)
        self._note("asks", self._commit(lambda site: site.receive_have(name, dict(board.have()))))
        for signed in self.site.newer_than(board.have(), name):
            self._note("bulletin", signed.body)
            with suppress(InvalidArgument):
                board.merge(signed, self.clock)
        for signed in lacking:
            with suppress(InvalidArgument):
                self._commit(lambda site, signed=signed: site.merge(signed, name, self.clock))

    def _twin(self, member: str) -> None:
        """Another process speaks as this site; it draws no noise, since nothing is settled there."""
        disk = self._disk.copy()
        twin = self._open(VICTIM, self._script.terms, disk.load(), self._draw, Presence(self._next_run(), True))
        draws = SiteDraws((0.0,) * len(twin.arms.names), 0.5, None if self._script.terms.shares is None else 0.5)
        with suppress(Refused, InvalidArgument):
            twin.decide(self.clock, draws)
            signed = twin.publish(_signature_of(VICTIM), self.clock).result
            if signed is not None:
                self._members[member].board.merge(signed, self.clock)
                self._exchange(member)

    def _asked(self, what: str, event: Callable[[Site], Step[_Result]], settles: bool = True) -> _Result | None:
        """An event of which the answer can be seen; None: it was refused."""
        try:
            result = self._insist(event, settles)
        except (Refused, InvalidArgument) as refusal:
            self._note("refusal", (what, type(refusal).__name__, str(refusal)))
            return None
        if what not in ("decisions", "restored"):  # noted otherwise; how many rewards were dropped tells when they came
            # How many of the forgotten had no reward is in the log alone, which only the site's own people read.
            self._note(what, result.total if isinstance(result, Expired) else result)
        return result

    def _insist(
        self, event: Callable[[Site], Step[_Result]], settles: bool = True, crash: Crash | None = None
    ) -> _Result:
        """One event; again, if the process dies. ``crash``: at this write; else a public one dies as is due."""
        for _ in range(3):
            try:
                if settles:
                    while self.site.is_due(self.clock):
                        self._commit(lambda site: site.settle(self.clock), self._taken())
                    crash = self._taken()
                return self._commit(event, crash)
            except _Died:
                crash = None
        raise RuntimeError("the process died at each of three writes")

    def _taken(self) -> Crash | None:
        crash, self._crash = self._crash, None
        return crash

    def _commit(self, event: Callable[[Site], Step[_Result]], crash: Crash | None = None) -> _Result:
        self._fresh = len(self.draws)
        step = event(self.site)
        if crash is not None:
            if step.records:
                self._disk.crash_at_next_write = crash
            else:
                self._crash = crash
        commits, told = self._disk.commits, self.site.entries(step.records, UNSAID, self._millis)
        try:
            self._disk.commit([*step.records, *told])
        except Crashed as died:
            if self._disk.commits > commits:  # it is written, and nobody was told
                self._account(step.records)
            self._start(len(self._linked))
            raise _Died from died
        for it in told:
            self._note("trail", it)
        self._account(step.records)
        if any(isinstance(record, Released | EvaluationReleased | ArmChanged | Renewed) for record in step.records):
            self._publish()
        return step.result

    def _publish(self) -> None:
        if self.site.needs_guarding():
            self._commit(lambda site: site.guard(self._millis), self._taken())
        if not self.site.has_news(self.clock):
            return
        try:
            signed = self._commit(lambda site: site.publish(_signature_of(VICTIM), self.clock), self._taken())
        except _Died:
            return
        if signed is None:
            return
        self._note("bulletin", signed.body)
        witness = Board("", self._script.terms)
        witness.merge(signed, self.clock)
        held = witness.held(VICTIM)
        assert held is not None  # noqa: S101  # it was merged just now
        self.sent.append(Sent(self.now, held.bulletin))
        for name in self._linked:
            self._members[name].board.merge(signed, self.clock)

    # ---------------------------------------------------------------- whose rewards a release holds

    def _draw(self, epsilon: float, count: int) -> list[int]:
        first = len(self.draws)
        self.draws += [epsilon] * count
        self._hidden[first] = [*self._newly_marked()]
        noise = self._noise(epsilon, count)
        if self._expected is not None:
            return [z + self.shift(number) for number, z in enumerate(noise, first)]
        return noise

    def shift(self, number: int) -> int:
        """By how much a draw must differ from that of the expected run, for the same number to be released."""
        base = self._expected
        owners = [] if base is None else base.intervals.get(number, [])
        if base is None:
            return 0
        changed = "decision", self.changed, 0
        moved = base.sums.moved(number, self.changed, self.steps_of(changed), base.steps_of(changed))
        return moved + sum(
            base.steps_of(it) - self.steps_of(it) for it in owners if it[0] == "history" or it[1] == self.changed
        )

    def _newly_marked(self) -> Iterator[tuple[int, int, int, int]]:
        """What the site's ledger has entered since the draw before: arms, levels or strata, first and last pulls."""
        marks, terms = self.site.stored.released if self._is_open else {}, self._script.terms
        for (arm, level), last in marks.items():
            before = self._marks.get((arm, level), 0)
            if last > before:
                yield arm, level, before + 1 if terms.num_strata else _first_of(terms, level, last), last
        self._marks = dict(marks)

    def _begin_again(self, stored: Stored) -> None:
        """A site has been opened, or has begun a new incarnation: what it knows is what its file says."""
        self.sums.begin_again(stored, self._numbers)
        self._waiting = [deque[int]() for _ in self.site.arms.names]
        for it in stored.decisions.values():
            number = self._numbers.get(it.id, _lost(it))
            self._strata[number] = it.stratum
            if it.is_open:
                self._waiting[it.arm].append(number)
                if not it.rewarded:
                    self._counted.pop(number, None)
        self._fit()
        self._released, self._marks = self._released_now(), dict(self.site.stored.released)

    def _fit(self) -> None:
        """So many pulls of each column as the site has."""
        for column, count in self._counts().items():
            pulls = self._pulls.setdefault(column, [])
            del pulls[count:]
            pulls += [None] * (count - len(pulls))

    def _counts(self) -> dict[_Column, int]:
        return self._read("cells", self.site.rewards)

    def _released_now(self) -> dict[_Column, int]:
        return self._read("marks", self.site.released)

    def _read(self, name: str, of_arms: Sequence[int]) -> dict[_Column, int]:
        """A number for each arm, or each arm in a stratum, where the file has them."""
        strata = self._script.terms.num_strata
        if not strata:
            return {(arm, None): n for arm, n in enumerate(of_arms)}
        known = self.site.stored.known
        each = {arm: known[arm][name] if arm in known else [0] * strata for arm in range(len(of_arms))}
        return {(arm, s): each[arm][s] for arm in each for s in range(strata)}

    def _account(self, records: Sequence[Record]) -> None:
        """Which rewards were observed by an event, and which of them each draw hides."""
        if any(isinstance(it, Renewed) for it in records):
            self._begin_again(self.site.stored)
            return
        names, drawn = len(self.site.arms.names), range(self._fresh, len(self.draws))
        self._waiting += [deque[int]() for _ in range(names - len(self._waiting))]
        released = any(isinstance(it, Released) for it in records)
        history = (
            {it.arm: it.rewards for it in records if isinstance(it, HistoryEntered)} if drawn or not released else {}
        )
        if released and not drawn:  # taken back from an own bulletin: what is not released yet moves up
            for column, count in self._released_now().items():
                before = self._released.get(column, 0)
                if count != before:
                    self._pulls[column] = [*[None] * count, *self._pulls.get(column, [])[before:]]
        counts = self._counts()
        for column, count in counts.items():
            pulls = self._pulls.setdefault(column, [])
            del pulls[count:]
        for arm in range(names):
            self._observe(arm, history, counts)
        for number in drawn:
            owners = (
                owner
                for arm, level, first, last in self._hidden.get(number, [])
                for owner in self._pulls[arm, level if self._script.terms.num_strata else None][first - 1 : last]
            )
            self.intervals[number] = [it for it in owners if it is not None]
        self.sums.account(records, drawn)
        self._released = self._released_now()

    def _observe(self, arm: int, history: Mapping[int, int], counts: Mapping[_Column, int]) -> None:
        """The next rewards of an arm count, in the order of its decisions."""
        waiting, strata = self._waiting[arm], self._script.terms.num_strata
        lacking = {column: n - len(self._pulls[column]) for column, n in counts.items() if column[0] == arm}
        for position in range(sum(lacking.values())):
            number = None if arm in history or not waiting else waiting.popleft()
            column = (arm, self._strata.get(number) if strata else None) if number else None
            if column is None or not lacking.get(column):
                column = next(it for it, n in lacking.items() if n)
            owner = None if number is None or number < 0 else ("decision", number, 0)
            self._pulls[column].append(("history", arm, position) if arm in history else owner)
            lacking[column] -= 1

    # ---------------------------------------------------------------- what can be looked at

    def _watch(self) -> None:
        """Look at what can be seen at any time; it is noted when it changes."""
        if not self._looks:
            return
        for what, content in (("Have", _plain(self.site.have())), ("state", state_of(self.site))):
            if self._last.get(what) != content:
                self._last[what] = content
                self._note(what, content)
        counts = counts_of(self.site)
        if self._last.get("counts") != counts:
            self._last["counts"] = counts
            self.counts.append(Seen(self.now, "counts", counts))

    def _view(self) -> None:
        """All that the site shows over HTTP to those who look, but for how many rewards wait."""
        if not self._looks:
            return
        site, clock = self.site, self.clock
        nobody: dict[str, Any] = {}
        limits = Retention(10**6, 1e9)
        state = site_state(site, None, nobody, {}, 0.0, clock, limits, {}, site.warnings(), (0.0, 0.0))
        hidden: dict[str, Any] = dict.fromkeys(("pending", "waiting", "late", "missing", "out_of_range"), 0)
        state = state.model_copy(update={"decisions": state.decisions.model_copy(update=hidden)})
        metrics = Metrics().text(state, True).decode()
        shown: list[Any] = [
            state.model_dump_json(),
            [line for line in metrics.splitlines() if "process_" not in line and "_created" not in line],
            evidence_of(site, reference_of(site)),
            arms_body(site).model_dump_json(),
            [member_body(site, name).model_dump_json() for name in site.board.sites],
        ]
        self._note("view", tuple(map(repr, shown)))

    def _note(self, what: str, content: object) -> None:
        it = Seen(self.now, what, content)
        if self._expected is not None:
            place, expected = len(self.seen), self._to_show
            there = expected[place] if place < len(expected) else None
            if it != there:
                raise Differs(it, there)
        self.seen.append(it)


def _lost(decision: DecisionRecord) -> int:
    """Stands for a decision that the site has made and nobody knows, because the process died: it has its place."""
    return -decision.number


class _Member:
    """Another site: its board, and what it says."""

    def __init__(self, name: str, terms: Federation) -> None:
        self.name, self.board = name, Board(name, terms)
        self._incarnation, self._number = EPOCH, 0
        self._changes: list[ArmChange] = []

    def bulletin(self, event: words.Say, terms: Federation, millis: int) -> Signed:
        """Its next one."""
        self._number += 1 + event.skips
        if event.is_renewed:
            self._incarnation, self._number = self._incarnation + 1, 1
        for kind, arm, strata in event.changes:
            known = [change for name in self.board.sites for change in self._changes_of(name)]
            stops = [it.id for it in (*known, *self._changes) if it.is_stop and it.arm == arm]
            lifts = tuple(sorted(set(stops))) if kind == "resume" else ()
            with suppress(InvalidArgument):
                self._changes.append(
                    ArmChange(len(self._changes) + 1, kind, arm, self.name, millis, lifts, strata=strata)
                )
        own = receipts_of(theirs := self._changes_of(VICTIM))
        entries = tuple(ArmEntry(name, *it) for name, it in zip(terms.arms, event.arms, strict=True))
        bulletin = Bulletin(
            "0" * 64 if event.is_foreign else terms.digest(),
            self.name,
            self._incarnation,
            self._number,
            millis,
            decisions=sum(it.decisions for it in entries),
            arms=entries,
            evaluation=_evaluation_of(terms, event),
            changes=tuple(sorted(self._changes, key=lambda it: it.order)),
            receipts={VICTIM: own[-1]} if own else {},
            accepted={VICTIM: marked(theirs, {it.id for it in theirs})} if own else {},
        )
        body = bulletin.encode()
        return Signed(body, *_signature_of(self.name)(body))

    def _changes_of(self, site: str) -> tuple[ArmChange, ...]:
        held = self.board.held(site)
        return () if held is None else held.bulletin.changes


def _evaluation_of(terms: Federation, event: words.Say) -> EvaluationEntry:
    """What a member says of other policies: something else with each bulletin."""
    rows = 0 if terms.evaluation is None else terms.evaluation.num_rows
    said = PolicySums(10 + event.skips, 9.5, 11.25, float(len(event.changes)))
    return EvaluationEntry(min(rows, 1), (said,) * rows)


_FIRST: dict[str, dict[tuple[int, int], int]] = {}


def _first_of(terms: Federation, level: int, last: int) -> int:
    """The first pull of the interval of a level that ends here, as the policy defines intervals."""
    known = _FIRST.setdefault(terms.digest(), {})
    if (level, last) not in known:
        mechanism = terms.mechanism(lambda _, count: [0] * count)
        most = min(2 * last + 8, terms.max_pulls or 10**9)
        for interval in (mechanism.take(0, terms.low) for _ in range(max(most, last))):
            if interval is not None:
                known[interval.level, interval.last] = interval.first
    return known.get((level, last), last)


def _plain(have: Mapping[str, object]) -> object:
    return tuple(sorted(have.items()))


def _signature_of(name: str) -> Callable[[bytes], tuple[bytes, bytes]]:
    """Signs in a way that says nothing."""
    return lambda body: (blake2b(body, key=name.encode()).digest(), b"" if name == VICTIM else _certificate_of(name))


@cache
def _certificate_of(name: str) -> bytes:
    """One that nobody need verify: it can be revoked, and shown."""
    key, begins = Ed25519PrivateKey.generate(), datetime(2020, 1, 1, tzinfo=UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, begins, begins + timedelta(days=36_500))
    return builder.sign(key, None).public_bytes(Encoding.PEM)


def state_of(site: Site) -> tuple[object, ...]:
    """All that state and metrics are made from, and that viewers of them may see."""
    return (
        *(site.own_means, site.theta, site.radius, site.errors, site.belief, site.doubt),
        *(site.releases, site.released, site.rewards, site.tried, site.n_max, site.decided, site.remembered),
        *(site.incarnation, site.privacy(), site.clock, site.warnings(), site.per_day, site.arms.names, site.stopped),
    )


def counts_of(site: Site) -> tuple[object, ...]:
    """What tells when rewards were reported."""
    return site.pending, site.waiting, site.late, site.missing, site.reported


def known_noise(number: int) -> int:
    """Noise that is the same in every run: of either sign, up to the width of the range, no two alike."""
    return number * 40503 % (2 * GRID) - GRID + 7
