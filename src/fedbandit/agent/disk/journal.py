"""Stores a site's records in one SQLite file, one transaction per event.

``commit`` returns when the records are on disk (WAL, synchronous=FULL): until then nobody may be told. Refuses a file
of another schema, federation or agent, and one that another process holds. A file of schema 2 or 3 is migrated when it
is opened.
"""

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
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
from fedbandit.agent.disk.migration import OLD_TABLES, SLOTS_FROM_SCHEMA_3, records_of_schema_2
from fedbandit.checks import whole_number

__all__ = ["SCHEMA", "JournalError", "SqliteJournal"]

SCHEMA = 4
"""The version of the tables."""

_TABLES = """
CREATE TABLE agent (
    one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT, federation TEXT, terms TEXT, born INTEGER, epoch INTEGER,
    decisions INTEGER, n_max TEXT, clock REAL, late INTEGER, by_arrival INTEGER, since REAL
) STRICT;
CREATE TABLE decision (
    id TEXT PRIMARY KEY, epoch INTEGER, number INTEGER, arm INTEGER, at REAL, reward REAL, played INTEGER, late INTEGER
) STRICT;
CREATE TABLE link (
    neighbour TEXT PRIMARY KEY, epoch INTEGER, flow TEXT, version INTEGER, writer TEXT, has_left INTEGER
) STRICT;
"""

_POLICY_TABLES = """
CREATE TABLE known (arm INTEGER PRIMARY KEY, fields TEXT) STRICT;
CREATE TABLE released (arm INTEGER, level INTEGER, last INTEGER, PRIMARY KEY (arm, level)) STRICT;
"""


class JournalError(RuntimeError):
    """The file cannot be used or written, and why."""


class SqliteJournal:
    """A journal in one file. A new file begins a life, whose ``epoch`` should be above any before: the time in ms."""

    def __init__(self, path: Path | str, name: str, terms: Federation, epoch: int) -> None:
        """Open the file, or make it; refuse one that is not this agent's."""
        self._path, self._terms = Path(path), terms
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
        except BaseException:
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
            self._make(_TABLES)
            self._make(_POLICY_TABLES)
            self._file.execute(
                "INSERT INTO agent VALUES (1, ?, ?, ?, ?, ?, 0, '[]', 0.0, 0, 0, NULL)",
                (name, terms.digest(), json.dumps(terms.terms()), epoch, epoch),
            )
            self._file.execute(f"PRAGMA user_version = {SCHEMA}")
            return
        if version not in (2, 3, SCHEMA):
            raise self._refuse(
                f"its schema is {version}, this version of the agent reads {SCHEMA} and migrates 2 and 3"
            )
        its_name, its_digest, its_terms = self._file.execute("SELECT name, federation, terms FROM agent").fetchone()
        if its_name != name:
            raise self._refuse(f"it belongs to the agent {its_name!r}, not to {name!r}")
        if its_digest != terms.digest():
            differ = "; ".join(terms.difference(json.loads(its_terms)))
            raise self._refuse(f"it belongs to a federation with other terms ('there' is the file). {differ}")
        if version == 2:
            self._migrate(terms)
        if version < SCHEMA:
            self._make(SLOTS_FROM_SCHEMA_3)
            self._file.execute(f"PRAGMA user_version = {SCHEMA}")

    def _make(self, tables: str) -> None:
        for statement in tables.split(";\n"):
            self._file.execute(statement)

    def _migrate(self, terms: Federation) -> None:
        """From schema 2 to 3, in the transaction that is open: after a crash the old file is still there."""
        try:
            records = records_of_schema_2(self._file, terms)
            migrated = Stored(Life(1, 0), 1)
            migrated.apply(records)
            terms.mechanism().restore(migrated.known, migrated.released)  # while the old tables are still there
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            raise self._refuse(f"its schema is 2, and it cannot be migrated: {error}") from error
        for table in OLD_TABLES:
            self._file.execute(f"DROP TABLE {table}")
        self._make(_POLICY_TABLES)
        self._write(records)

    def load(self) -> Stored:
        """What the committed records add up to."""
        rows = self._file.execute
        try:
            agent = "SELECT epoch, decisions, born, n_max, clock, late, by_arrival, since FROM agent"
            epoch, decisions, born, n_max, clock, late, by_arrival, since = rows(agent).fetchone()
            stored = Stored(Life(epoch, decisions), born, Times(clock, late, since), by_arrival)
            stored.apply([Heard(tuple(json.loads(n_max)))])
            table = "SELECT epoch, number, arm, at, reward, played, late FROM decision ORDER BY number"
            for epoch, number, arm, at, reward, played, late in rows(table):
                stored.apply([Decision(epoch, number, arm, at, reward, bool(played), bool(late))])
            stored.apply(Known(arm, json.loads(fields)) for arm, fields in rows("SELECT * FROM known"))
            stored.apply(Released(*row) for row in rows("SELECT * FROM released"))
            for neighbour, epoch, flow, version, writer, left in rows("SELECT * FROM link ORDER BY rowid"):
                stored.apply([Link(neighbour, epoch, (tuple(json.loads(flow)), (version, writer)), bool(left))])
            self._terms.mechanism().restore(stored.known, stored.released)  # refuses what the page cannot know
        except (sqlite3.Error, ValueError, TypeError, AttributeError) as error:
            raise self._refuse(str(error)) from error
        return stored

    def commit(self, records: Sequence[Record]) -> None:
        """Write the records of one event, all or none; on disk when it returns."""
        if not records:
            return
        try:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                self._write(records)
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._refuse(str(error)) from error

    def _write(self, records: Sequence[Record]) -> None:
        for record in records:
            written = self._file.execute(*_statement(record)).rowcount
            if isinstance(record, Released) and written != 1:
                raise self._refuse(
                    f"pull {record.last} of arm {record.arm} has been released already at level {record.level}"
                )

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _statement(record: Record) -> tuple[str, tuple[Any, ...]]:
    match record:
        case Life(epoch, decisions):
            return "UPDATE agent SET epoch = ?, decisions = ?", (epoch, decisions)
        case Times(clock, late, since):
            return "UPDATE agent SET clock = ?, late = ?, since = ?", (clock, late, since)
        case Decision(epoch, number, arm, at, reward, played, late):
            return (
                "INSERT INTO decision VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
                "reward = excluded.reward, played = excluded.played, late = excluded.late",
                (record.id, epoch, number, arm, at, reward, int(played), int(late)),
            )
        case Forgotten(name):
            return "DELETE FROM decision WHERE id = ?", (name,)
        case Known(arm, fields):
            return "INSERT OR REPLACE INTO known VALUES (?, ?)", (arm, json.dumps(fields))
        case Released(arm, level, last):  # later pulls or nothing: an interval has one release, for ever
            return (
                "INSERT INTO released SELECT ?1, ?2, ?3 WHERE ?3 > coalesce("
                "(SELECT last FROM released WHERE arm = ?1 AND level = ?2), 0) "
                "ON CONFLICT (arm, level) DO UPDATE SET last = excluded.last",
                (arm, level, last),
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
