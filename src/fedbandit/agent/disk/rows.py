"""Writes a site's records as rows of an open file, reads them back, and keeps the checksum of all rows.

What changes in the row of the agent is held in memory, and written once in each transaction.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from math import nan
from struct import Struct
from typing import Any

from fedbandit.agent.core.arms import Arms
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import (
    ArmChanged,
    Decision,
    Forgotten,
    Kept,
    Known,
    Life,
    Link,
    Opened,
    Record,
    Released,
    Renewed,
    Stored,
    Times,
)
from fedbandit.agent.core.seals import as_text, from_text
from fedbandit.agent.disk.arm_rows import ArmRows
from fedbandit.agent.disk.checksums import Checksums, checksum
from fedbandit.agent.disk.raw_values import KnownRows, RewardPlaces
from fedbandit.agent.disk.tables import EVERY_TABLE

__all__ = ["AgentRow", "BadRows", "Rows", "check_pages", "check_tables", "insert_agent"]


class BadRows(ValueError):
    """Rows that cannot be read or written, and why."""


@dataclass(slots=True)
class AgentRow:
    """The row of the agent: first what never changes, then what does."""

    name: str
    federation: str
    terms: str
    born: int
    by_arrival: int
    key: bytes
    identity: bytes
    epoch: int
    decisions: int
    clock: float = 0.0
    late: int = 0
    since: float | None = None
    is_stale: int = 0
    commits: int = 0
    run: int = 0

    def fixed(self) -> int:
        """The checksum of what never changes."""
        row = self.name, self.federation, self.terms, self.born, self.by_arrival, self.key, self.identity
        return checksum(repr(row).encode())

    def changing(self) -> tuple[tuple[Any, ...], int]:
        """What does, and its checksum."""
        since = nan if self.since is None else self.since + 0.0
        numbers = self.epoch, self.decisions, self.clock + 0.0, self.late, since, self.is_stale, self.commits, self.run
        row = self.epoch, self.decisions, self.clock, self.late, self.since, self.is_stale, self.commits, self.run
        return row, checksum(_AGENT_NUMBERS.pack(*numbers))


def _as_json(numbers: Sequence[float]) -> str:
    """A list of finite numbers, as ``json.dumps`` writes it, which takes longer."""
    return f"[{', '.join(map(repr, numbers))}]"


_AGENT_NUMBERS = Struct("<qqdqdqqq")
_DECISION_NUMBERS = Struct("<qqdqqqqd")


def _checksum_of_decision(
    name: str,
    number: int,
    arm: int,
    at: float,
    played: int,
    late: int,
    rewarded: int,
    cancelled: int,
    propensity: float | None,
    *hashes: bytes,
) -> int:
    chance = nan if propensity is None else propensity + 0.0
    numbers = _DECISION_NUMBERS.pack(number, arm, at + 0.0, played, late, rewarded, cancelled, chance)
    return checksum(b"".join((numbers, name.encode(), *hashes)))  # SQLite has no -0.0


_AGENT = "name, federation, terms, born, by_arrival, key, identity"
_CHANGING = ("epoch", "decisions", "clock", "late", "since", "is_stale", "commits", "run")
_READ_AGENT = f"SELECT {_AGENT}, {', '.join(_CHANGING)}, checksum FROM agent"  # noqa: S608  # names of columns
_WRITE_AGENT = f"UPDATE agent SET {', '.join(f'{it} = ?' for it in _CHANGING)}, checksum = ?"  # noqa: S608

_DECISION = "id, number, arm, at, played, late, rewarded, cancelled, propensity, key, subject, eligible"
_READ_DECISIONS = f"SELECT {_DECISION} FROM decision ORDER BY number"  # noqa: S608
_ADD_DECISION = f"INSERT INTO decision VALUES (?{', ?' * 12}) ON CONFLICT (id) DO NOTHING"  # noqa: S608
_CHANGE_DECISION = (
    "UPDATE decision SET played = ?, late = ?, rewarded = ?, cancelled = ?, checksum = ? WHERE id = ? AND checksum = ?"
)
_CHECKSUM_OF = "SELECT checksum FROM decision WHERE id = ?"
_DROP_DECISION = "DELETE FROM decision WHERE id = ? RETURNING checksum"
_WRITE_LINK = (
    "INSERT INTO link VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (neighbour) DO UPDATE SET "
    "epoch = excluded.epoch, flow = excluded.flow, version = excluded.version, writer = excluded.writer, "
    "has_left = excluded.has_left, own_epoch = excluded.own_epoch, told = excluded.told"
)
_WRITE_RELEASED = (  # later pulls or nothing: an interval has one release, for ever
    "INSERT INTO released SELECT ?1, ?2, ?3 WHERE ?3 > coalesce("
    "(SELECT last FROM released WHERE arm = ?1 AND level = ?2), 0) "
    "ON CONFLICT (arm, level) DO UPDATE SET last = excluded.last"
)


class Rows:
    """The rows of a file that has all tables; ``agent`` is the row of the agent.

    ``small`` are tables whose checksums are in memory; ``decision`` the columns of a decision, and ``checksum_of`` the
    checksum of these.
    """

    small: Sequence[str] = ("link", "waiting", "kept")
    has_arm_changes = True
    decision = _DECISION
    checksum_of = staticmethod(_checksum_of_decision)

    def __init__(self, file: sqlite3.Connection) -> None:
        """Read the row of the agent. Before anything is written: ``check``, or ``seal`` if nothing has been yet."""
        self._file = file
        self._sums = Checksums()
        self.has_old_values = True  # a killed process may have left some in the log
        found = file.execute(_READ_AGENT).fetchall()
        if len(found) != 1:
            raise BadRows(f"it is damaged: {len(found)} rows in the table agent")
        *row, self._sum = found[0]
        self.agent = AgentRow(*row)
        self._fixed = self.agent.fixed()
        self._known = KnownRows(file, self._sums)
        self._waiting = RewardPlaces(file, self._sums, "waiting")
        self._kept = RewardPlaces(file, self._sums, "kept") if "kept" in self.small else None
        self._arms = ArmRows(file, self._sums) if self.has_arm_changes else None

    # ---------------------------------------------------------------- checksums

    def check(self) -> None:
        """Refuse rows that are not those of the last commit."""
        self._add_up()
        for *row, found in self._file.execute(f"SELECT {self.decision}, checksum FROM decision"):  # noqa: S608
            if self.checksum_of(*row) != found:
                raise BadRows("it is damaged: a row of the table decision has another checksum")
            self._sums.change(0, found)
        _, changing = self.agent.changing()
        if self._sums.total(self._fixed, changing) != self._sum:
            raise BadRows(
                "its rows are not those of the last commit: bytes were changed, or file and log are of different times"
            )

    def seal(self) -> None:
        """Write the checksums of rows that have none yet."""
        self._add_up()
        rows = self._file.execute(f"SELECT {_DECISION} FROM decision").fetchall()  # noqa: S608
        for row in rows:
            self._sums.change(0, found := _checksum_of_decision(*row))
            self._file.execute("UPDATE decision SET checksum = ? WHERE id = ?", (found, row[0]))
        self._write_agent()

    def _add_up(self) -> None:
        rows = self._file.execute
        for table in self.small:
            for key, *row in rows(f"SELECT * FROM {table}"):  # noqa: S608
                self._sums.put(table, key, repr(tuple(row)))
        for arm, fields in rows("SELECT arm, fields FROM known"):
            self._sums.put("known", arm, fields.rstrip(" "))
        for arm, level, last in rows("SELECT * FROM released"):
            self._sums.put("released", (arm, level), repr(last))
        if self._arms is not None:
            self._arms.add_up()

    def identify(self, identity: bytes) -> None:
        """Make it another file, whose commits are counted anew."""
        self._file.execute("UPDATE agent SET identity = ?", (identity,))
        self.agent.identity = identity
        self._fixed = self.agent.fixed()

    # ---------------------------------------------------------------- reading

    def load(self, terms: Federation) -> Stored:
        """What the records add up to."""
        rows, agent = self._file.execute, self.agent
        times = Times(agent.clock, agent.late, agent.since)
        stored = Stored(Life(agent.epoch, agent.decisions), agent.born, times, agent.by_arrival, agent.key, agent.run)
        waiting = self._waiting.read()
        for name, number, arm, at, played, late, rewarded, cancelled, *asked in rows(_READ_DECISIONS):
            flags = bool(played), bool(late), bool(rewarded), bool(cancelled)
            stored.decisions[name] = Decision(name, number, arm, at, waiting.get(name), *flags, *asked)
        stored.kept = {} if self._kept is None else self._kept.read()
        stored.apply(Known(arm, fields) for arm, fields in self._known.read())
        stored.apply(Released(*row) for row in rows("SELECT * FROM released"))
        for neighbour, epoch, flow, version, writer, left, own, told in rows("SELECT * FROM link ORDER BY rowid"):
            register = tuple(json.loads(flow)), (version, writer)
            stored.apply([Link(neighbour, epoch, register, bool(left), own, from_text(told))])
        if self._arms is not None:
            stored.apply(self._arms.read())
        num_arms = len(Arms.of(terms.arms, stored.arm_changes).names)
        terms.mechanism(num_arms=num_arms).restore(stored.known, stored.released)  # refuses what the page cannot know
        return stored

    # ---------------------------------------------------------------- writing

    def write(self, records: Sequence[Record]) -> None:
        """Write records in their order, in the transaction that is open, and count it."""
        for record in records:
            self._write(record)
        self.agent.commits += 1
        self._write_agent()

    def _write_agent(self) -> None:
        row, changing = self.agent.changing()
        self._file.execute(_WRITE_AGENT, (*row, self._sums.total(self._fixed, changing)))

    def _write(self, record: Record) -> None:
        match record:
            case Decision():
                self._write_decision(record)
            case Known(arm, fields):
                self.has_old_values = True
                if self._known.write(arm, fields):
                    self.agent.is_stale = 1
            case Life(epoch, decisions):
                self.agent.epoch, self.agent.decisions = epoch, decisions
            case Link(neighbour, epoch, (flow, (version, writer)), left, own_epoch, told):
                row = epoch, _as_json(flow), version, writer, int(left), own_epoch, as_text(told)
                self._file.execute(_WRITE_LINK, (neighbour, *row))
                self._sums.put("link", neighbour, repr(row))
            case Times(clock, late, since):
                self.agent.clock, self.agent.late, self.agent.since = clock, late, since
            case Released(arm, level, last):
                if self._file.execute(_WRITE_RELEASED, (arm, level, last)).rowcount != 1:
                    raise BadRows(f"pull {last} of arm {arm} has been released already at level {level}")
                self._sums.put("released", (arm, level), repr(last))
            case Opened(run):
                self.agent.run = run
            case ArmChanged() if self._arms is not None:
                self._arms.write(record)
            case ArmChanged():
                raise BadRows("its schema has no changes of the arms")
            case Renewed():
                self.has_old_values = True
                self._known.clear()
                self._file.execute("DELETE FROM released")
                self._sums.drop("released")
            case Kept(name, number, reward):
                self._drop_kept(name)
                if self._kept is not None and reward is not None:
                    self._kept.keep(name, number, reward)
            case Forgotten(name):
                self.has_old_values |= self._waiting.drop(name)
                self._drop_kept(name)
                for (before,) in self._file.execute(_DROP_DECISION, (name,)).fetchall():
                    self._sums.change(before, 0)

    def _write_decision(self, it: Decision) -> None:
        self.has_old_values |= self._waiting.drop(it.id)
        if it.reward is not None:
            self._waiting.keep(it.id, it.number, it.reward)
        row = it.id, it.number, it.arm, it.at
        asked = it.propensity, it.key, it.subject, it.eligible
        flags = played, late, rewarded, cancelled = int(it.played), int(it.late), int(it.rewarded), int(it.cancelled)
        after = _checksum_of_decision(*row, *flags, *asked)
        write, before = self._file.execute, 0
        if any(flags):  # nearly always a reward has come, or it has been played: what it was needs not be read
            was = (0, late, rewarded, cancelled) if played else (0, 0, 0, 0)
            before = _checksum_of_decision(*row, *was, *asked)
        if not before or write(_CHANGE_DECISION, (*flags, after, it.id, before)).rowcount != 1:
            before = 0
            if write(_ADD_DECISION, (*row, *flags, *asked, after)).rowcount != 1:
                (before,) = write(_CHECKSUM_OF, (it.id,)).fetchone()
                write(_CHANGE_DECISION, (*flags, after, it.id, before))
        self._sums.change(before, after)

    def _drop_kept(self, name: str) -> None:
        if self._kept is not None:
            self.has_old_values |= self._kept.drop(name)


def insert_agent(file: sqlite3.Connection, row: AgentRow) -> None:
    """Insert the row of an agent into a new file."""
    columns = f"{_AGENT}, {', '.join(_CHANGING)}"
    file.execute(f"INSERT INTO agent (one, {columns}) VALUES (1{', ?' * 15})", astuple(row))  # noqa: S608


def check_pages(file: sqlite3.Connection) -> None:
    """Refuse a malformed file, of any schema."""
    damage = [row[0] for row in file.execute("PRAGMA integrity_check(1)")]
    if damage != ["ok"]:
        raise BadRows(f"it is damaged: {' '.join(damage[0].split())}")


def check_tables(file: sqlite3.Connection) -> None:
    """Refuse a file with other tables than those of the present schema."""
    found = file.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")
    if {" ".join(sql.split()) for (sql,) in found} != EVERY_TABLE:
        raise BadRows("it is damaged: its tables are not those of its schema")
