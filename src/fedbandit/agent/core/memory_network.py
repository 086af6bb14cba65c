"""Runs a federation in memory, in virtual time: real sites, simulated disks, and a network that fails on purpose.

Messages can be lost, repeated and delayed, the network partitioned, sites crashed. The same seed and the same calls
give the same run. Public, for tests of anything that talks to a site: see docs/agent.md. Its noise is fast and seeded:
unfit for real data.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from math import fsum
from random import Random
from typing import Literal, TypeVar

from fedbandit.agent.core.arms import Accepts, ArmChange, ChangeKind, Proof, Sign
from fedbandit.agent.core.decisions import Request, SiteDraws, draws_for
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.messages import Offer, Reply
from fedbandit.agent.core.records import DecisionRecord, Numbering, Record, Released, Renewed, Stored
from fedbandit.agent.core.release_guard import Mark, Presence, Restored
from fedbandit.agent.core.site import Refused, Site, Step
from fedbandit.checks import InvalidArgument, instance, whole_number
from fedbandit.privacy.noise import GRID, NoiseSource

__all__ = [
    "Crash",
    "Crashed",
    "Down",
    "Faults",
    "MemoryJournal",
    "MemoryNetwork",
    "SignedChanges",
    "disagreement",
    "imbalance",
    "is_signed",
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
        stored = Stored(Numbering(self._incarnation, 0), self._incarnation, key=self.key)
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


# ---------------------------------------------------------------- changes of the arms


@dataclass(frozen=True)
class SignedChanges:
    """All changes that an agent knows, on their way to a neighbour."""

    sender: str
    receiver: str
    changes: tuple[ArmChange, ...]


def simulated_signature(name: str) -> Sign:
    """Signs as the agent of this name, with a code that only the simulation makes: a test cannot forge it."""

    def sign(content: bytes) -> Proof:
        return name.encode(), blake2b(content, key=f"key of {name}".encode()[:64]).digest()

    return sign


def is_signed(change: ArmChange) -> bool:
    """Whether the site that a change names has signed it."""
    return compare_digest(simulated_signature(change.by)(change.content)[1], change.signature)


# ---------------------------------------------------------------- the network


_Result = TypeVar("_Result")


class Down(RuntimeError):
    """The agent that was asked is not running, or died before it could answer."""


@dataclass(frozen=True)
class Faults:
    """What happens to a message: lost or repeated with these probabilities, late by a uniform time in ``delay``.

    Messages with different delays overtake each other.
    """

    loss: float = 0.0
    duplication: float = 0.0
    delay: tuple[float, float] = (0.0, 0.0)


class MemoryNetwork:
    """Agents and the links between them.

    * ``links``: pairs of names; every name is an agent, which starts at once on an empty disk
    * ``noise``: the source for releases; default: rounded Laplace noise from the seed
    * ``accepts``: whose changes of the arms each agent accepts; those that are not listed accept nobody's
    * ``faults`` may be changed at any time; ``now`` is the virtual time
    * ``has_witnesses``: machines have a memory that outlives an agent, and no snapshot of its disk carries
    """

    def __init__(
        self,
        terms: Federation,
        links: Iterable[tuple[str, str]],
        seed: int = 0,
        faults: Faults = Faults(),  # noqa: B008  # frozen
        noise: NoiseSource | None = None,
        has_witnesses: bool = False,
    ) -> None:
        """Start all agents."""
        instance("terms", terms, Federation, "a Federation")
        self.terms, self.faults, self.now = terms, faults, 0.0
        self.links = list(links)
        self.refused: list[str] = []
        self.exchanges = 0
        self._random = Random(seed)  # noqa: S311  # a simulation, from an explicit seed
        self._noise = noise or self._laplace
        self._disks: dict[str, MemoryJournal] = {}
        self._sites: dict[str, Site] = {}
        self._left: set[str] = set()
        self._apart: frozenset[str] = frozenset()
        self._flying: list[tuple[float, int, Offer | Reply | SignedChanges]] = []
        self.accepts: dict[str, Accepts] = {}
        self._sent = 0
        self._incarnations = self._runs = 0
        self.has_witnesses = has_witnesses
        self._witnessed: dict[str, Mark] = {}
        for name in dict.fromkeys(name for link in self.links for name in link):
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

    def decide(self, name: str, draws: SiteDraws | None = None) -> DecisionRecord:
        """Ask an agent for an arm; ``draws`` come from the seed unless given."""
        drawn = draws or self._draws(name)
        return self._do(name, lambda site: site.decide(self.now, drawn))

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
        """Tell an agent a reward. It is acknowledged if this returns; False: it came too late."""
        return self._commit(name, self.site(name).report(decision_id, reward))

    def expire(self, name: str, before: float, keep: int = 10**9) -> int:
        """Let an agent forget old decisions, and all but the newest ``keep``."""
        forgotten = 0
        while some := self._do(name, lambda site: site.expire(before, keep)).total:
            forgotten += some
        return forgotten

    def _do(self, name: str, event: Callable[[Site], Step[_Result]]) -> _Result:
        """One event, after what is due: on disk before anything comes of it."""
        site = self.site(name)
        self._wait(name, site)
        while site.is_due(self.now):
            self._commit(name, site.settle(self.now))
        result = self._commit(name, event(site))
        self._wait(name, site)
        return result

    def _wait(self, name: str, site: Site) -> None:
        """Let an agent go on once all neighbours have answered."""
        if site.waits == "for none":
            self._commit(name, site.go_on())

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

    # ---------------------------------------------------------------- arms

    def change_arm(self, name: str, kind: ChangeKind, arm: str) -> ArmChange:
        """An agent's operator changes an arm; its neighbours receive that at once."""
        at, sign = int(1000 * self.now), simulated_signature(name)
        change = self._do(name, lambda site: site.change_arm(kind, arm, at, sign))
        self._send_arms(name, self.site(name).neighbours)
        return change

    def accept_arm(self, name: str, arm: str) -> tuple[ArmChange, ...]:
        """An agent's operator accepts the changes of an arm that wait."""
        return self._do(name, lambda site: site.accept_arm(arm, retire=True))

    def _send_arms(self, name: str, neighbours: Iterable[str]) -> None:
        known = tuple(it.change for it in self.site(name).arms.changes.values())
        for neighbour in neighbours:
            if known:
                self.send(SignedChanges(name, neighbour, known))

    def _receive_arms(self, sent: SignedChanges) -> None:
        genuine = [it for it in sent.changes if is_signed(it)]
        self.refused += [f"a forged change of {it.by}" for it in sent.changes if it not in genuine]
        name, accepts = sent.receiver, self.accepts.get(sent.receiver, frozenset())
        new = self._do(name, lambda site: site.receive_changes(genuine, accepts))
        if new:
            self._send_arms(name, [other for other in self.site(name).neighbours if other != sent.sender])
        if self.site(name).arms.changes.keys() - {it.id for it in sent.changes}:
            self._send_arms(name, [sent.sender])

    # ---------------------------------------------------------------- messages

    def exchange(self, name: str, neighbour: str) -> None:
        """Let an agent offer an exchange to a neighbour. ``run`` carries the messages."""
        self.exchanges += 1
        self.send(self._do(name, lambda site: site.offer(neighbour)))
        self._send_arms(name, [neighbour])  # a poll that a fault has ended begins again

    def send(self, message: Offer | Reply | SignedChanges) -> None:
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

    def _deliver(self, message: Offer | Reply | SignedChanges) -> None:
        cut = (message.sender in self._apart) != (message.receiver in self._apart)
        if cut or message.receiver not in self._sites:
            return
        try:
            if isinstance(message, Offer):
                self.send(self._do(message.receiver, lambda site: site.receive_offer(message)))
            elif isinstance(message, Reply):
                self._do(message.receiver, lambda site: site.receive_reply(message))
            elif message.sender in self.site(message.receiver).neighbours:
                self._receive_arms(message)
        except Down:
            return
        except (Refused, InvalidArgument) as refusal:
            self.refused.append(str(refusal))

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

    def confirm(self, name: str) -> None:
        """The operator says that an agent's file is the latest."""
        self._do(name, lambda site: site.confirm(self._next_run()))

    def restore(self, name: str) -> Restored:
        """The operator lets an agent begin a new incarnation with an old file."""
        self._incarnations += 1
        return self._do(name, lambda site: site.restore(self._incarnations, self._next_run()))

    def reboot(self, name: str) -> None:
        """Restart an agent's machine, and the agent: its witness knows nothing any more."""
        self._witnessed.pop(name, None)
        self.restart(name)

    def restart(self, name: str) -> None:
        """Start an agent from its disk, or on an empty one if it has none; a running one is killed first."""
        if name not in self._disks:
            self._disks[name] = self._new_disk()
        self.crash(name)
        self._sites[name] = self.open_site(name, self._disks[name])
        self._commit(name, self._sites[name].open())
        for neighbour in self._neighbours(name):
            self._do(name, lambda site, other=neighbour: site.join(other))
        for neighbour in sorted(self._left & {*self.site(name).neighbours}):
            self._do(name, lambda site, other=neighbour: site.leave(other))

    def open_site(self, name: str, disk: MemoryJournal) -> Site:
        """A site as its disk knows it. A test may plant another one here."""
        stored, mark = disk.load(), self._witnessed.get(name)
        is_vouched = mark is not None and mark.vouches_for(Mark(disk.key, stored.run, disk.commits))
        return Site(name, self.terms, stored, self._noise, Presence(self._next_run(), is_vouched))

    def new_disk(self, incarnation: int) -> MemoryJournal:
        """An empty disk. A test may plant another one here."""
        return MemoryJournal(incarnation)

    def _new_disk(self, behind: bool = False) -> MemoryJournal:
        self._incarnations += 1
        disk = self.new_disk(1 if behind else self._incarnations)
        disk.key = f"disk {self._incarnations}".encode()
        return disk

    def _next_run(self) -> int:
        self._runs += 1
        return self._runs

    def _neighbours(self, name: str) -> list[str]:
        return [b if a == name else a for a, b in self.links if name in (a, b)]

    # ---------------------------------------------------------------- who is there

    def leave(self, name: str) -> None:
        """An agent leaves for good: it is stopped, and its neighbours drop its flows (those that are down: later)."""
        neighbours = self._neighbours(name)
        self.crash(name)
        del self._disks[name]
        self._left.add(name)
        self.links = [link for link in self.links if name not in link]
        for neighbour in neighbours:
            if neighbour in self._sites and name in self._sites[neighbour].neighbours:
                with suppress(Down):
                    self._do(neighbour, lambda site: site.leave(name))

    def join(self, name: str, neighbours: Iterable[str]) -> None:
        """A new agent, or one that had left, begins on an empty disk with links to these neighbours."""
        if name in self._disks:
            raise InvalidArgument("name", name, "an agent that is not there yet")
        added = [(name, neighbour) for neighbour in neighbours]
        self.links += added
        self._left.discard(name)
        self.restart(name)
        for _, neighbour in added:
            if neighbour in self._sites:
                with suppress(Down):
                    self._do(neighbour, lambda site: site.join(name))

    # ---------------------------------------------------------------- what to check

    def imbalance(self) -> float:
        """``imbalance`` of all agents."""
        return imbalance([self.site(name) for name in self.names])

    def disagreement(self) -> float:
        """``disagreement`` of all agents."""
        return disagreement([self.site(name) for name in self.names])


def imbalance(sites: Sequence[Site]) -> float:
    """The largest difference, over arms and weights, between the sum of what all gossip and the sum of what all own."""
    columns: dict[tuple[str, bool], list[float]] = {}
    for site in sites:
        names = site.arms.names
        for c, (here, own) in enumerate(zip(site.gossiped, site.own, strict=True)):
            columns.setdefault((names[c % len(names)], c < len(names)), []).extend((here, -own))
    return max(abs(fsum(column)) for column in columns.values())


def disagreement(sites: Sequence[Site]) -> float:
    """The largest difference between what two sites gossip, over arms that all know."""
    rows = [_by_arm(site) for site in sites]
    shared = set(rows[0]).intersection(*rows)
    return max(max(column) - min(column) for name in shared for column in zip(*(it[name] for it in rows), strict=True))


def _by_arm(site: Site) -> dict[str, tuple[float, float]]:
    names, row = site.arms.names, site.gossiped
    return {name: (row[k], row[len(names) + k]) for k, name in enumerate(names)}
