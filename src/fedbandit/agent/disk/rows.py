"""Writes a site's records as rows of an open file, reads them back, and keeps the checksum of all rows.

What changes in the row of the agent is held in memory, and written once in each transaction.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import (
    Decision,
    Forgotten,
    Heard,
    Known,
    Life,
    Link,
    Record,
    Released,
    Stored,
    Times,
)
from fedbandit.agent.disk.checksums import Checksums, checksum
from fedbandit.agent.disk.raw_values import KnownRows, WaitingRewards
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
    n_max: str = "[]"
    clock: float = 0.0
    late: int = 0
    since: float | None = None
    is_stale: int = 0
    commits: int = 0

    def fixed(self) -> int:
        """The checksum of what never changes."""
        row = self.name, self.federation, self.terms, self.born, self.by_arrival, self.key, self.identity
        return checksum("agent", *row)

    def changing(self) -> tuple[Any, ...]:
        """The values of what does, as SQLite gives them back."""
        return (
            self.epoch,
            self.decisions,
            self.n_max,
            _real(self.clock),
            self.late,
            None if self.since is None else _real(self.since),
            self.is_stale,
            self.commits,
        )


_AGENT = "name, federation, terms, born, by_arrival, key, identity"
_CHANGING = ("epoch", "decisions", "n_max", "clock", "late", "since", "is_stale", "commits")
_READ_AGENT = f"SELECT {_AGENT}, {', '.join(_CHANGING)}, checksum FROM agent"  # noqa: S608  # names of columns
_WRITE_AGENT = f"UPDATE agent SET {', '.join(f'{it} = ?' for it in _CHANGING)}, checksum = ?"  # noqa: S608

_DECISION = "id, number, arm, at, played, late, rewarded"
_READ_DECISIONS = f"SELECT {_DECISION} FROM decision ORDER BY number"  # noqa: S608
_WRITE_DECISION = (
    "INSERT INTO decision VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT (id) DO UPDATE SET "
    "played = excluded.played, late = excluded.late, rewarded = excluded.rewarded, "
    "checksum_before = checksum, checksum = excluded.checksum RETURNING checksum_before"
)
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
    """The rows of a file that has all tables; ``agent`` is the row of the agent."""

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
        self._waiting = WaitingRewards(file, self._sums)

    # ---------------------------------------------------------------- checksums

    def check(self) -> None:
        """Refuse rows that are not those of the last commit."""
        self._add_up()
        for *row, found in self._file.execute(f"SELECT {_DECISION}, checksum FROM decision"):  # noqa: S608
            if checksum("decision", *row) != found:
                raise BadRows("it is damaged: a row of the table decision has another checksum")
            self._sums.change(0, found)
        if self._sums.total(self._fixed, checksum(*self.agent.changing())) != self._sum:
            raise BadRows(
                "its rows are not those of the last commit: bytes were changed, or file and log are of different times"
            )

    def seal(self) -> None:
        """Write the checksums of rows that have none yet."""
        self._add_up()
        rows = self._file.execute(f"SELECT {_DECISION} FROM decision").fetchall()  # noqa: S608
        for row in rows:
            self._sums.change(0, found := checksum("decision", *row))
            self._file.execute("UPDATE decision SET checksum = ? WHERE id = ?", (found, row[0]))
        self._write_agent()

    def _add_up(self) -> None:
        rows = self._file.execute
        for table in ("link", "waiting"):
            for key, *values in rows(f"SELECT * FROM {table}"):  # noqa: S608
                self._sums.put(table, key, *values)
        for arm, fields in rows("SELECT arm, fields FROM known"):
            self._sums.put("known", arm, fields.rstrip(" "))
        for arm, level, last in rows("SELECT * FROM released"):
            self._sums.put("released", (arm, level), last)

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
        stored = Stored(Life(agent.epoch, agent.decisions), agent.born, times, agent.by_arrival, agent.key)
        stored.apply([Heard(tuple(json.loads(agent.n_max)))])
        waiting = self._waiting.read()
        for name, number, arm, at, *flags in rows(_READ_DECISIONS):
            stored.apply([Decision(name, number, arm, at, waiting.get(name), *map(bool, flags))])
        stored.apply(Known(arm, fields) for arm, fields in self._known.read())
        stored.apply(Released(*row) for row in rows("SELECT * FROM released"))
        for neighbour, epoch, flow, version, writer, left, _, _ in rows("SELECT * FROM link ORDER BY rowid"):
            stored.apply([Link(neighbour, epoch, (tuple(json.loads(flow)), (version, writer)), bool(left))])
        terms.mechanism().restore(stored.known, stored.released)  # refuses what the page cannot know
        return stored

    # ---------------------------------------------------------------- writing

    def write(self, records: Sequence[Record]) -> None:
        """Write records in their order, in the transaction that is open, and count it."""
        for record in records:
            self._write(record)
        self.agent.commits += 1
        self._write_agent()

    def _write_agent(self) -> None:
        row = self.agent.changing()
        self._file.execute(_WRITE_AGENT, (*row, self._sums.total(self._fixed, checksum(*row))))

    def _write(self, record: Record) -> None:
        match record:
            case Life(epoch, decisions):
                self.agent.epoch, self.agent.decisions = epoch, decisions
            case Times(clock, late, since):
                self.agent.clock, self.agent.late, self.agent.since = clock, late, since
            case Heard(n_max):
                self.agent.n_max = json.dumps(n_max)
            case Known(arm, fields):
                self.has_old_values = True
                if self._known.write(arm, fields):
                    self.agent.is_stale = 1
            case Decision():
                self._write_decision(record)
            case Forgotten(name):
                self.has_old_values |= self._waiting.drop(name)
                for (found,) in self._file.execute("DELETE FROM decision WHERE id = ? RETURNING checksum", (name,)):
                    self._sums.change(found, 0)
            case Released(arm, level, last):
                if self._file.execute(_WRITE_RELEASED, (arm, level, last)).rowcount != 1:
                    raise BadRows(f"pull {last} of arm {arm} has been released already at level {level}")
                self._sums.put("released", (arm, level), last)
            case Link(neighbour, epoch, (flow, (version, writer)), left):
                row = epoch, json.dumps(flow), version, writer, int(left), 0, ""
                self._file.execute(_WRITE_LINK, (neighbour, *row))
                self._sums.put("link", neighbour, *row)

    def _write_decision(self, it: Decision) -> None:
        self.has_old_values |= self._waiting.drop(it.id)
        if it.reward is not None:
            self._waiting.keep(it.id, it.number, it.reward)
        row = it.id, it.number, it.arm, _real(it.at), int(it.played), int(it.late), int(it.rewarded)
        after = checksum("decision", *row)
        ((before,),) = self._file.execute(_WRITE_DECISION, (*row, after)).fetchall()
        self._sums.change(before, after)


def _real(value: float) -> float:
    return float(value) + 0.0  # SQLite keeps neither whole numbers nor the sign of zero


def insert_agent(file: sqlite3.Connection, row: AgentRow) -> None:
    """Insert the row of an agent into a new file."""
    columns = f"{_AGENT}, {', '.join(_CHANGING)}"
    file.execute(f"INSERT INTO agent (one, {columns}) VALUES (1{', ?' * 15})", astuple(row))  # noqa: S608


def check_pages(file: sqlite3.Connection) -> None:
    """Refuse a malformed file, of any schema."""
    damage = [row[0] for row in file.execute("PRAGMA integrity_check(1)")]
    if damage != ["ok"]:
        raise BadRows(f"it is damaged: {damage[0]}")


def check_tables(file: sqlite3.Connection) -> None:
    """Refuse a file with other tables than those of this schema."""
    found = {" ".join(sql.split()) for (sql,) in file.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
    if found != EVERY_TABLE:
        raise BadRows("it is damaged: its tables are not those of its schema")
