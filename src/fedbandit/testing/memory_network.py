"""Runs a federation in memory, in virtual time: real sites, simulated disks, and a network that fails on purpose.

Messages can be lost, repeated and delayed, the network partitioned, sites crashed, disks put back. The same seed and
the same calls give the same run. Public, for tests of anything that talks to a site: see docs/agent.md. Its noise is
fast and seeded: unfit for real data.
"""

import heapq
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Literal, TypeVar

from fedbandit.agent.core.arms import Accepts, ArmChange, ChangeKind
from fedbandit.agent.core.board import Have
from fedbandit.agent.core.bulletin import Place, Signed
from fedbandit.agent.core.decisions import ANY, Request, SiteDraws, draws_for
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.history import History
from fedbandit.agent.core.records import (
    EVALUATION,
    DecisionRecord,
    EvaluationReleased,
    Numbering,
    Record,
    Refused,
    Released,
    Renewed,
    Step,
    Stored,
)
from fedbandit.agent.core.release_guard import Mark, Presence, Restored
from fedbandit.agent.core.site import Sign, Site
from fedbandit.checks import InvalidArgument, instance, whole_number
from fedbandit.privacy.noise import GRID, NoiseSource

__all__ = [
    "Crash",
    "Crashed",
    "Down",
    "Faults",
    "MemoryJournal",
    "MemoryNetwork",
    "Message",
    "simulated_signature",
]


# ---------------------------------------------------------------- disks


class Crashed(RuntimeError):
    """The simulated process died at a write."""


Crash = Literal["before", "torn", "after"]


class MemoryJournal:
    """A disk in memory for simulated agents; it outlives them, and can be told to kill its agent at the next write.

    ``crash_at_next_write`` is where: *before* anything is written, in the middle (*torn*: the last transaction's
    checksum is wrong, and it is dropped when the disk is read, as SQLite does), or *after* it, before anybody is told.
    """

    def __init__(self, incarnation: int) -> None:
        """An empty disk, on which an incarnation begins. ``key`` should be another for each disk."""
        self._incarnation = whole_number("incarnation", incarnation, 1, 2**62)
        self.key = b""
        self._transactions: list[tuple[bool, tuple[Record, ...]]] = []
        self._marks: dict[tuple[int, int], int] = {}
        self.crash_at_next_write: Crash | None = None

    def load(self) -> Stored:
        """What the committed records add up to; a torn last transaction is dropped for good."""
        self._transactions = [(whole, records) for whole, records in self._transactions if whole]
        stored = Stored(Numbering(self._incarnation, 0), key=self.key)
        for _, records in self._transactions:
            stored.apply(records)
        return stored

    @property
    def commits(self) -> int:
        """How many transactions are on the disk."""
        return sum(whole for whole, _ in self._transactions)

    def copy(self) -> "MemoryJournal":
        """A snapshot of the disk."""
        other = type(self)(self._incarnation)
        other.key, other._marks = self.key, dict(self._marks)
        other._transactions = list(self._transactions)
        return other

    def commit(self, records: Sequence[Record]) -> None:
        """Write the records of one event, or die trying."""
        if not records:
            return
        crash, self.crash_at_next_write = self.crash_at_next_write, None
        if crash not in (None, "before", "torn", "after"):
            raise InvalidArgument("crash_at_next_write", crash, "before, torn or after")
        released = {(r.arm, r.level): r.last for r in records if isinstance(r, Released)}
        released |= {(EVALUATION, 0): it.last for it in records if isinstance(it, EvaluationReleased)}  # noqa: B035
        marks = {} if any(isinstance(record, Renewed) for record in records) else self._marks
        for place, last in released.items():
            if last <= marks.get(place, 0):  # as the table of a real disk refuses it
                raise InvalidArgument("released", last, f"beyond pull {marks[place]}, of arm and level {place}")
        if crash != "before":
            self._transactions.append((crash != "torn", tuple(records)))
        if crash in (None, "after"):
            self._marks = marks | released
        if crash is not None:
            raise Crashed("in the middle of a write" if crash == "torn" else f"{crash} a write")


# ---------------------------------------------------------------- links


@dataclass(frozen=True)
class Message:
    """What an agent has (``have``), or bulletins, on the way to a process of a neighbour."""

    sender: str
    receiver: str
    process: int
    have: Have | None = None
    bulletins: tuple[Signed, ...] = ()


def simulated_signature(name: str) -> Sign:
    """Signs as the agent of this name, with a code that only the simulation makes: a test cannot forge it."""

    def sign(body: bytes) -> tuple[bytes, bytes]:
        return blake2b(body, key=f"key of {name}".encode()[:64]).digest(), name.encode()

    return sign


_Result = TypeVar("_Result")


class Down(RuntimeError):
    """The agent that was asked is not running, or died before it could answer."""


FIRST = 1000
"""Incarnations count from here; those that begin with a clock that stands behind count from 1."""


@dataclass(frozen=True)
class Faults:
    """What happens to a message: lost or repeated with these probabilities, late by a uniform time in ``delay``.

    Messages with different delays overtake each other.
    """

    loss: float = 0.0
    duplication: float = 0.0
    delay: tuple[float, float] = (0.0, 0.0)


# ---------------------------------------------------------------- the network


class MemoryNetwork:
    """Agents and the links between them.

    * ``links``: pairs of names; every name is an agent, which starts at once on an empty disk
    * ``noise``: the source for releases; default: rounded Laplace noise from the seed
    * ``accepts``: whose changes of the arms each agent accepts; those that are not listed accept nobody's
    * ``histories``: what agents know from before, entered as soon as they may release
    * ``faults`` may be changed at any time; ``now`` is the virtual time
    * ``has_witnesses``: machines have a memory that outlives an agent, and no snapshot of its disk carries
    * ``spreads``: new bulletins go out at once, as over real links; otherwise only with an exchange
    """

    def __init__(
        self,
        terms: Federation,
        links: Iterable[tuple[str, str]],
        seed: int = 0,
        faults: Faults = Faults(),  # noqa: B008  # frozen
        noise: NoiseSource | None = None,
        has_witnesses: bool = False,
        spreads: bool = False,
    ) -> None:
        """Start all agents."""
        instance("terms", terms, Federation, "a Federation")
        self.terms, self.faults, self.now, self.spreads = terms, faults, 0.0, spreads
        self.links = list(links)
        self.refused: list[str] = []
        self._random = Random(seed)  # noqa: S311  # a simulation, from an explicit seed
        self._noise = noise or self._laplace
        self._disks: dict[str, MemoryJournal] = {}
        self._sites: dict[str, Site] = {}
        self._apart: frozenset[str] = frozenset()
        self._flying: list[tuple[float, int, Message]] = []
        self._verified: dict[bytes, tuple[str, Place] | None] = {}
        self.accepts: dict[str, Accepts] = {}
        self.histories: dict[str, History] = {}
        self._sent = self._behind = self._runs = 0
        self._incarnations = FIRST
        self._processes: dict[str, int] = {}
        self.has_witnesses = has_witnesses
        self._witnessed: dict[str, Mark] = {}
        self._neighbours: dict[str, list[str]] = {}
        for a, b in self.links:
            self._neighbours.setdefault(a, []).append(b)
            self._neighbours.setdefault(b, []).append(a)
        for name in self._neighbours:
            self.restart(name)

    def _laplace(self, epsilon: float, count: int) -> list[int]:
        scale, draw = GRID / epsilon, self._random.expovariate
        return [round(scale * (draw(1.0) - draw(1.0))) for _ in range(count)]

    # ---------------------------------------------------------------- what an application does

    @property
    def names(self) -> tuple[str, ...]:
        """All agents that have not left, running or not."""
        return tuple(self._disks)

    @property
    def running(self) -> tuple[str, ...]:
        """The agents that answer."""
        return tuple(self._sites)

    def site(self, name: str) -> Site:
        """A running agent's site, to look at."""
        if name not in self._sites:
            raise Down(f"{name} is not running")
        return self._sites[name]

    def decide(
        self, name: str, draws: SiteDraws | None = None, context: Mapping[str, str | None] | None = None
    ) -> DecisionRecord:
        """Ask an agent for an arm; ``draws`` come from the seed unless given. ``context``: of the patient."""
        drawn, request = draws or self._draws(name), ANY if context is None else Request(context=context)
        return self._do(name, lambda site: site.decide(self.now, drawn, request))

    def request(self, name: str, request: Request) -> tuple[DecisionRecord, ...]:
        """Ask an agent for the decisions of a request."""
        drawn = [self._draws(name) for _ in range(request.count)]
        return self._do(name, lambda site: site.decide(self.now, drawn, request))

    def _draws(self, name: str) -> SiteDraws:
        return draws_for(self.terms, self._random, len(self.site(name).arms.names))

    def cancel(self, name: str, decision_id: str) -> None:
        """Tell an agent that a decision was not used."""
        self._do(name, lambda site: site.cancel(decision_id, self.now))

    def report(self, name: str, decision_id: str, reward: float) -> bool:
        """Tell an agent a reward. It is acknowledged if this returns; False: it came too late.

        With a reward window nothing is published for it: others would see when it came.
        """
        counts = self._commit(name, self.site(name).report(decision_id, reward))
        if not self.terms.reward_window:
            with suppress(Down):
                self._publish(name)
        return counts

    def expire(self, name: str, before: float, keep: int = 10**9) -> int:
        """Let an agent forget old decisions, and all but the newest ``keep``."""
        forgotten = 0
        while some := self._do(name, lambda site: site.expire(before, keep)).total:
            forgotten += some
        return forgotten

    def _do(self, name: str, event: Callable[[Site], Step[_Result]]) -> _Result:
        """One event, after what is due: on disk before anything comes of it. Then what is new is published."""
        site = self.site(name)
        self._wait(name, site)
        while site.is_due(self.now):
            self._commit(name, site.settle(self.now))
        result = self._commit(name, event(site))
        with suppress(Down):  # the event is on disk
            self._wait(name, site)
            self._publish(name)
        return result

    def _wait(self, name: str, site: Site) -> None:
        """Let an agent go on once all neighbours have answered."""
        if site.waits == "for none":
            self._commit(name, site.go_on())
        if name in self.histories:
            self._commit(name, site.enter_history(self.histories[name], self.now))

    def _publish(self, name: str) -> None:
        site = self.site(name)
        self._commit(name, site.guard(int(1000 * self.now)))
        if site.has_news(self.now):
            signed = self._commit(name, site.publish(simulated_signature(name), self.now))
            if signed is not None and self.spreads:
                self._pass_on(name, (signed,))

    def _commit(self, name: str, step: Step[_Result]) -> _Result:
        try:
            self._disks[name].commit(step.records)
        except Crashed as crash:
            self.crash(name)
            raise Down(f"{name} died {crash}") from crash
        if self.has_witnesses:
            self._mark(name)
        return step.result

    def _mark(self, name: str) -> None:
        """Tell the witness of an agent's machine what is on its disk, before anybody else is told."""
        site, disk = self._sites[name], self._disks[name]
        if site.may_release:
            self._witnessed[name] = Mark(disk.key, site.stored.run, disk.commits)
        elif name in self._witnessed and self._witnessed[name].run == site.stored.run:
            del self._witnessed[name]

    # ---------------------------------------------------------------- what an operator does

    def change_arm(
        self, name: str, kind: ChangeKind, arm: str, reason: str = "", levels: Mapping[str, str] | None = None
    ) -> ArmChange:
        """Change an arm; with ``levels`` for patients with these alone."""
        return self._do(name, lambda site: site.change_arm(kind, arm, int(1000 * self.now), reason, levels))

    def accept_arm(self, name: str, arm: str) -> tuple[ArmChange, ...]:
        """Accept the changes of an arm that wait."""
        return self._do(name, lambda site: site.accept_arm(arm, retire=True))

    def exclude(self, name: str, member: str) -> None:
        """A member no longer counts at an agent."""
        self._do(name, lambda site: site.exclude(member, int(1000 * self.now)))

    def include(self, name: str, member: str) -> None:
        """It counts again."""
        self._do(name, lambda site: site.include(member))

    def confirm(self, name: str) -> None:
        """An agent's file is the latest."""
        self._do(name, lambda site: site.confirm(self._next_run()))

    def restore(self, name: str) -> Restored:
        """Let an agent begin a new incarnation with an old file."""
        self._incarnations += 1
        return self._do(name, lambda site: site.restore(self._incarnations, self._next_run()))

    def save_board(self, name: str) -> None:
        """An agent writes what has come of others, as it does every few seconds."""
        self._commit(name, self.site(name).board_rows())

    # ---------------------------------------------------------------- messages

    def exchange(self, name: str, neighbour: str) -> None:
        """Both ends say what they have, as when a link opens and now and then. ``run`` carries the messages."""
        for sender, receiver in ((name, neighbour), (neighbour, name)):
            if sender in self._sites:
                self._send(sender, receiver, dict(self._sites[sender].have()))

    def _send(self, sender: str, receiver: str, have: Have | None, bulletins: tuple[Signed, ...] = ()) -> None:
        self.send(Message(sender, receiver, self._processes.get(receiver, 0), have, bulletins))

    def _pass_on(self, name: str, bulletins: tuple[Signed, ...], source: str = "") -> None:
        for neighbour in self._neighbours[name]:
            if neighbour != source:
                self._send(name, neighbour, None, bulletins)

    def send(self, message: Message) -> None:
        """Put a message on its way, once, more often or not at all."""
        copies = 1 + (self._random.random() < self.faults.duplication)
        for _ in range(copies):
            if self._random.random() >= self.faults.loss:
                self._sent += 1
                heapq.heappush(self._flying, (self.now + self._random.uniform(*self.faults.delay), self._sent, message))

    def run(self, until: float | None = None) -> None:
        """Let time pass: deliver what arrives by ``until``, or until nothing is on its way."""
        while self._flying and (until is None or self._flying[0][0] <= until):
            arrives, _, message = heapq.heappop(self._flying)
            self.now = max(self.now, arrives)
            self._deliver(message)
        self.now = self.now if until is None else max(self.now, until)

    def _deliver(self, message: Message) -> None:
        """A connection ends with a process, and with a link."""
        sender, name = message.sender, message.receiver
        cut = (sender in self._apart) != (name in self._apart)
        if cut or name not in self._sites or self._processes[name] != message.process:
            return
        if sender not in self._neighbours[name]:
            self.refused.append(f"{sender} is no neighbour of {name}")
            return
        try:
            if message.have is not None:
                self._receive_have(name, sender, message.have)
            for signed in message.bulletins:
                self._receive(name, sender, signed)
        except Down:
            return

    def _receive_have(self, name: str, sender: str, have: Have) -> None:
        self._do(name, lambda site: site.receive_have(sender, have))
        missing = self.site(name).newer_than(have, sender)
        if missing:
            self._send(name, sender, None, tuple(missing))

    def _receive(self, name: str, sender: str, signed: Signed) -> None:
        verified = self._verify(signed)
        if verified is None:
            self.refused.append(f"a forged bulletin, from {sender}")
            return
        if self.site(name).board.knows(*verified, signed.digest):
            return
        try:
            merged = self._do(name, lambda site: site.merge(signed, sender, self.now))
        except (Refused, InvalidArgument) as refusal:
            self.refused.append(str(refusal))
            return
        if self.spreads and merged.outcome.kind in ("new", "conflict") and merged.site != name:
            self._pass_on(name, (signed,), sender)

    def _verify(self, signed: Signed) -> tuple[str, Place] | None:
        """Whose bulletin it is, and its place, if that site has signed it."""
        key = signed.digest + signed.signature
        if key not in self._verified:
            said = json.loads(signed.body)
            is_genuine = simulated_signature(said["site"])(signed.body) == (signed.signature, signed.signer)
            self._verified[key] = (said["site"], (said["incarnation"], said["number"])) if is_genuine else None
        return self._verified[key]

    # ---------------------------------------------------------------- faults

    def partition(self, *names: str) -> None:
        """Cut these agents off from all others, until ``heal``. What is on its way across is lost."""
        self._apart = frozenset(names)

    def heal(self) -> None:
        """End a partition."""
        self._apart = frozenset()

    def crash(self, name: str, at_next_write: Crash | None = None) -> None:
        """Kill an agent: now, or *before*, in the middle of (*torn*) or *after* the next time it writes."""
        if at_next_write is None:
            self._sites.pop(name, None)
            self._disks[name].crash_at_next_write = None
        else:
            self._disks[name].crash_at_next_write = at_next_write

    def lose_disk(self, name: str, clock_behind: bool = False) -> None:
        """Kill an agent and wipe its disk; with ``clock_behind`` its next incarnation seems an old one to others."""
        self.crash(name)
        self._disks[name] = self._new_disk(behind=clock_behind)

    def snapshot(self, name: str) -> MemoryJournal:
        """A copy of an agent's disk, as a backup would have it."""
        return self._disks[name].copy()

    def put_back(self, name: str, snapshot: MemoryJournal) -> None:
        """Kill an agent, and put a snapshot in the place of its disk. ``restart`` starts it."""
        self.crash(name)
        self._disks[name] = snapshot.copy()

    def reboot(self, name: str) -> None:
        """Restart an agent's machine, and the agent: its witness knows nothing any more."""
        self._witnessed.pop(name, None)
        self.restart(name)

    def restart(self, name: str) -> None:
        """Start an agent from its disk, or on an empty one if it has none; a running one is killed first."""
        if name not in self._disks:
            self._disks[name] = self._new_disk()
        self.crash(name)
        self._processes[name] = self._processes.get(name, 0) + 1
        site = self._sites[name] = self.open_site(name, self._disks[name])
        self._commit(name, site.open())
        self._commit(name, site.link(self._neighbours[name]))
        self._do(name, lambda site: site.accept_from(self.accepts.get(name, frozenset())))
        for neighbour in self._neighbours[name] if self.spreads else ():  # links open
            if neighbour in self._sites:
                self.exchange(name, neighbour)

    def open_site(self, name: str, disk: MemoryJournal) -> Site:
        """A site as its disk knows it. A test may plant another one here."""
        stored, mark = disk.load(), self._witnessed.get(name)
        is_vouched = mark is not None and mark.vouches_for(Mark(disk.key, stored.run, disk.commits))
        return Site(name, self.terms, stored, self._noise, Presence(self._next_run(), is_vouched))

    def new_disk(self, incarnation: int) -> MemoryJournal:
        """An empty disk. A test may plant another one here."""
        return MemoryJournal(incarnation)

    def _new_disk(self, behind: bool = False) -> MemoryJournal:
        self._incarnations, self._behind = self._incarnations + 1, self._behind + behind
        disk = self.new_disk(self._behind if behind else self._incarnations)
        disk.key = f"disk {self._incarnations}".encode()
        return disk

    def _next_run(self) -> int:
        self._runs += 1
        return self._runs

    # ---------------------------------------------------------------- who is there

    def leave(self, name: str) -> None:
        """An agent leaves for good: it is stopped, and its neighbours' links with it end (of those that run: now)."""
        self.crash(name)
        del self._disks[name]
        self.links = [link for link in self.links if name not in link]
        for neighbour in self._neighbours.pop(name):
            self._neighbours[neighbour].remove(name)
            self._relink(neighbour)

    def join(self, name: str, neighbours: Iterable[str]) -> None:
        """A new agent, or one that had left, begins on an empty disk with links to these neighbours."""
        if name in self._disks:
            raise InvalidArgument("name", name, "an agent that is not there yet")
        self._neighbours[name] = list(neighbours)
        self.links += [(name, neighbour) for neighbour in self._neighbours[name]]
        for neighbour in self._neighbours[name]:
            self._neighbours[neighbour].append(name)
        self.restart(name)
        for neighbour in self._neighbours[name]:
            self._relink(neighbour)

    def _relink(self, name: str) -> None:
        if name in self._sites:
            with suppress(Down):
                self._do(name, lambda site: site.link(self._neighbours[name]))

    # ---------------------------------------------------------------- what to check

    def differences(self) -> list[str]:
        """Whose boards differ from the first one's, and in what."""
        first, *others = [self.site(name) for name in self.names]
        have = dict(first.board.have())
        return [
            f"{site.name} and {first.name} differ in {name}"
            for site in others
            for name in sorted({*have, *site.board.have()})
            if have.get(name) != site.board.have().get(name)
        ]
