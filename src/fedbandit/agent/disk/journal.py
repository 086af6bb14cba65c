"""Stores a site's records in one SQLite file, one transaction per event.

``commit`` returns when the records are on disk (WAL, synchronous=FULL): until then nobody may be told. Refuses a file
of another schema, federation or agent, and one that another process holds.
"""

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import (
    ArmSum,
    ArmTree,
    Batch,
    Decision,
    Forgotten,
    Heard,
    Life,
    Link,
    Record,
    Release,
    Stored,
)
from fedbandit.checks import whole_number

__all__ = ["SCHEMA", "JournalError", "SqliteJournal"]

SCHEMA = 2
"""The version of the tables."""

_TABLES = """
CREATE TABLE agent (
    one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT, federation TEXT, terms TEXT, born INTEGER, epoch INTEGER,
    decisions INTEGER, n_max TEXT
) STRICT;
CREATE TABLE decision (id TEXT PRIMARY KEY, epoch INTEGER, number INTEGER, arm INTEGER, at REAL, reward REAL) STRICT;
CREATE TABLE batch (arm INTEGER PRIMARY KEY, count INTEGER, total INTEGER) STRICT;
CREATE TABLE release (
    arm INTEGER, first INTEGER, last INTEGER, value REAL, size INTEGER, PRIMARY KEY (arm, first)
) STRICT;
CREATE TABLE arm_sum (arm INTEGER PRIMARY KEY, count INTEGER, total REAL) STRICT;
CREATE TABLE arm_tree (arm INTEGER PRIMARY KEY, pulls INTEGER, sums TEXT, slots TEXT) STRICT;
CREATE TABLE link (
    neighbour TEXT PRIMARY KEY, epoch INTEGER, flow TEXT, version INTEGER, writer TEXT, has_left INTEGER
) STRICT;
"""


class JournalError(RuntimeError):
    """The file cannot be used or written, and why."""


class SqliteJournal:
    """A journal in one file. A new file begins a life, whose ``epoch`` should be above any before: the time in ms."""

    def __init__(self, path: Path | str, name: str, terms: Federation, epoch: int) -> None:
        """Open the file, or make it; refuse one that is not this agent's."""
        self._path = Path(path)
        epoch = whole_number("epoch", epoch, 1, 2**62)
        try:
            self._file = sqlite3.connect(self._path, isolation_level=None, timeout=1.0)
        except sqlite3.Error as error:
            raise self._refuse(str(error)) from error
        try:
            self._open(name, terms, epoch)
        except sqlite3.Error as error:
            self._file.close()
            held = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
            raise self._refuse("another process holds it" if held else str(error)) from error
        except JournalError:
            self._file.close()
            raise

    def _refuse(self, reason: str) -> JournalError:
        return JournalError(f"{self._path}: {reason}")

    def _open(self, name: str, terms: Federation, epoch: int) -> None:
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
            self._file.execute(f"PRAGMA {pragma}")
        self._file.execute("BEGIN IMMEDIATE")
        try:
            self._check_or_make(name, terms, epoch)
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    def _check_or_make(self, name: str, terms: Federation, epoch: int) -> None:
        (version,) = self._file.execute("PRAGMA user_version").fetchone()
        (tables,) = self._file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if version == 0 and tables == 0:
            for statement in _TABLES.split(";\n"):
                self._file.execute(statement)
            self._file.execute(
                "INSERT INTO agent VALUES (1, ?, ?, ?, ?, ?, 0, '[]')",
                (name, terms.digest(), json.dumps(terms.terms()), epoch, epoch),
            )
            self._file.execute(f"PRAGMA user_version = {SCHEMA}")
            return
        if version != SCHEMA:
            raise self._refuse(f"its schema is {version}, this version of the agent reads {SCHEMA}")
        its_name, its_digest, its_terms = self._file.execute("SELECT name, federation, terms FROM agent").fetchone()
        if its_name != name:
            raise self._refuse(f"it belongs to the agent {its_name!r}, not to {name!r}")
        if its_digest != terms.digest():
            differ = "; ".join(terms.difference(json.loads(its_terms)))
            raise self._refuse(f"it belongs to a federation with other terms ('there' is the file). {differ}")

    def load(self) -> Stored:
        """What the committed records add up to."""
        rows = self._file.execute
        try:
            epoch, decisions, born, n_max = rows("SELECT epoch, decisions, born, n_max FROM agent").fetchone()
            stored = Stored(Life(epoch, decisions), born)
            stored.apply([Heard(tuple(json.loads(n_max)))])
            for row in rows("SELECT epoch, number, arm, at, reward FROM decision ORDER BY number"):
                stored.apply([Decision(*row)])
            stored.apply(Batch(*row) for row in rows("SELECT * FROM batch"))
            stored.apply(Release(*row) for row in rows("SELECT * FROM release ORDER BY rowid"))
            stored.apply(ArmSum(*row) for row in rows("SELECT * FROM arm_sum"))
            for arm, pulls, sums, slots in rows("SELECT * FROM arm_tree"):
                stored.apply([ArmTree(arm, pulls, tuple(json.loads(sums)), tuple(json.loads(slots)))])
            for neighbour, epoch, flow, version, writer, left in rows("SELECT * FROM link ORDER BY rowid"):
                stored.apply([Link(neighbour, epoch, (tuple(json.loads(flow)), (version, writer)), bool(left))])
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise self._refuse(str(error)) from error
        return stored

    def commit(self, records: Sequence[Record]) -> None:
        """Write the records of one event, all or none; on disk when it returns."""
        if not records:
            return
        try:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                for record in records:
                    written = self._file.execute(*_statement(record)).rowcount
                    if isinstance(record, ArmTree) and written != 1:
                        raise self._refuse(f"pull {record.pulls} of arm {record.arm} is not the next one of its tree")
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._refuse(str(error)) from error

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _statement(record: Record) -> tuple[str, tuple[Any, ...]]:
    match record:
        case Life(epoch, decisions):
            return "UPDATE agent SET epoch = ?, decisions = ?", (epoch, decisions)
        case Decision(epoch, number, arm, at, reward):
            return (
                "INSERT INTO decision VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET reward = excluded.reward",
                (record.id, epoch, number, arm, at, reward),
            )
        case Forgotten(name):
            return "DELETE FROM decision WHERE id = ?", (name,)
        case Batch(arm, count, total):
            return "INSERT OR REPLACE INTO batch VALUES (?, ?, ?)", (arm, count, total)
        case Release(arm, first, last, value, size):  # no "OR REPLACE": an interval has one release, for ever
            return "INSERT INTO release VALUES (?, ?, ?, ?, ?)", (arm, first, last, value, size)
        case ArmSum(arm, count, total):
            return "INSERT OR REPLACE INTO arm_sum VALUES (?, ?, ?)", (arm, count, total)
        case ArmTree(arm, pulls, sums, slots):  # the next pull or nothing: an interval has one release, for ever
            return (
                "INSERT INTO arm_tree SELECT ?1, ?2, ?3, ?4 WHERE ?2 = 1 + coalesce("
                "(SELECT pulls FROM arm_tree WHERE arm = ?1), 0) ON CONFLICT (arm) DO UPDATE SET "
                "pulls = excluded.pulls, sums = excluded.sums, slots = excluded.slots",
                (arm, pulls, json.dumps(sums), json.dumps(slots)),
            )
        case Heard(n_max):
            return "UPDATE agent SET n_max = ?", (json.dumps(n_max),)
        case Link(neighbour, epoch, (flow, (version, writer)), left):
            return (
                "INSERT INTO link VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (neighbour) DO UPDATE SET "
                "epoch = excluded.epoch, flow = excluded.flow, version = excluded.version, writer = excluded.writer, "
                "has_left = excluded.has_left",
                (neighbour, epoch, json.dumps(flow), version, writer, int(left)),
            )
