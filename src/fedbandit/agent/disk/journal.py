"""Stores a site's records in one SQLite file, one transaction per event.

``commit`` returns when the records are on disk (WAL, synchronous=FULL): until then nobody may be told. Refuses a file
of another schema, federation or agent, and one that another process holds. A file of schema 2 or 3 is migrated when it
is opened. ``erase`` removes what has been overwritten or deleted from the files; ``raw_values`` says how.
"""

import json
import secrets
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbandit.agent.core.decision_ids import KEY_SIZE
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import (
    Decision,
    Forgotten,
    Known,
    Life,
    Link,
    Record,
    Released,
    Stored,
    Times,
)
from fedbandit.agent.disk.migration import DECISIONS_OF_SCHEMA_3, OLD_TABLES, SLOTS_FROM_SCHEMA_3, records_of_schema_2
from fedbandit.agent.disk.raw_values import RAW_TABLES, KnownRows, WaitingRewards
from fedbandit.checks import InvalidArgument, whole_number
from fedbandit.policies.plain import NO_ARM

__all__ = ["SCHEMA", "JournalError", "SqliteJournal"]

SCHEMA = 4
"""The version of the tables."""

_TABLES = """
CREATE TABLE agent (
    one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT, federation TEXT, terms TEXT, born INTEGER, epoch INTEGER,
    decisions INTEGER, n_max TEXT, clock REAL, late INTEGER, by_arrival INTEGER, since REAL, key BLOB, is_stale INTEGER
) STRICT;
CREATE TABLE link (
    neighbour TEXT PRIMARY KEY, epoch INTEGER, flow TEXT, version INTEGER, writer TEXT, has_left INTEGER
) STRICT;
"""

_DECISIONS = """
CREATE TABLE decision (
    id TEXT PRIMARY KEY, number INTEGER, arm INTEGER, at REAL, played INTEGER, late INTEGER, rewarded INTEGER
) STRICT;
"""

_RELEASED = """
CREATE TABLE released (arm INTEGER, level INTEGER, last INTEGER, PRIMARY KEY (arm, level)) STRICT;
"""

_PRAGMAS = (
    "locking_mode=EXCLUSIVE",
    "journal_mode=WAL",
    "synchronous=FULL",
    "secure_delete=ON",
    "temp_store=MEMORY",  # or a file that is rewritten would be copied to a temporary one
)


class JournalError(RuntimeError):
    """The file cannot be used or written, and why."""


class SqliteJournal:
    """A journal in one file. A new file begins a life, whose ``epoch`` should be above any before: the time in ms."""

    def __init__(self, path: Path | str, name: str, terms: Federation, epoch: int) -> None:
        """Open the file, or make it; refuse one that is not this agent's."""
        self._path, self._terms = Path(path), terms
        self._has_old_values = True  # a killed process may have left some in the log
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
        except InvalidArgument as error:
            self._file.close()
            raise self._refuse(str(error)) from error
        except BaseException:
            self._file.close()
            raise

    def _refuse(self, reason: str) -> JournalError:
        return JournalError(f"{self._path}: {reason}")

    def _open(self, name: str, terms: Federation, epoch: int) -> None:
        self._known = KnownRows(self._file)
        for pragma in _PRAGMAS:
            self._file.execute(f"PRAGMA {pragma}")
        self._file.execute("BEGIN IMMEDIATE")
        try:
            self._check_or_make(name, terms, epoch)
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")
        self._waiting = WaitingRewards(self._file)

    def _check_or_make(self, name: str, terms: Federation, epoch: int) -> None:
        (version,) = self._file.execute("PRAGMA user_version").fetchone()
        (tables,) = self._file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if version == 0 and tables == 0:
            self._make(_TABLES)
            self._make(_DECISIONS)
            self._make(_RELEASED)
            self._make_raw()
            self._file.execute(
                "INSERT INTO agent VALUES (1, ?, ?, ?, ?, ?, 0, '[]', 0.0, 0, 0, NULL, ?, 0)",
                (name, terms.digest(), json.dumps(terms.terms()), epoch, epoch, secrets.token_bytes(KEY_SIZE)),
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
            older = terms.counted == "patients" and "counts" not in json.loads(its_terms)
            hint = '. If the federation counts sites, [federation] needs counts = "sites"' if older else ""
            raise self._refuse(f"it belongs to a federation with other terms ('there' is the file). {differ}{hint}")
        if version < SCHEMA:
            self._migrate(version, terms)
            self._file.execute(f"PRAGMA user_version = {SCHEMA}")

    def _make(self, tables: str) -> None:
        for statement in tables.split(";\n"):
            self._file.execute(statement)

    def _make_raw(self) -> None:
        self._make(RAW_TABLES)
        self._known.make(range(NO_ARM, self._terms.num_arms))

    def _migrate(self, version: int, terms: Federation) -> None:
        """To this schema, in the transaction that is open: after a crash the old file is still there."""
        if version == 2:
            records = self._from_schema_2(terms)
            self._make(_RELEASED)
        else:
            rows = self._file.execute("SELECT arm, fields FROM known").fetchall()
            records = [Known(arm, json.loads(fields)) for arm, fields in rows]
            self._file.execute("DROP TABLE known")
        self._make(SLOTS_FROM_SCHEMA_3)
        self._make(_DECISIONS)
        self._make(DECISIONS_OF_SCHEMA_3)
        self._make_raw()
        self._file.execute("UPDATE agent SET key = ?, is_stale = 1", (secrets.token_bytes(KEY_SIZE),))
        self._write(records)

    def _from_schema_2(self, terms: Federation) -> list[Record]:
        try:
            records = records_of_schema_2(self._file, terms)
            migrated = Stored(Life(1, 0), 1)
            migrated.apply(records)
            terms.mechanism().restore(migrated.known, migrated.released)  # while the old tables are still there
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            raise self._refuse(f"its schema is 2, and it cannot be migrated: {error}") from error
        for table in OLD_TABLES:
            self._file.execute(f"DROP TABLE {table}")
        return records

    def load(self) -> Stored:
        """What the committed records add up to."""
        rows = self._file.execute
        try:
            agent = "SELECT epoch, decisions, born, clock, late, by_arrival, since, key FROM agent"
            epoch, decisions, born, clock, late, by_arrival, since, key = rows(agent).fetchone()
            stored = Stored(Life(epoch, decisions), born, Times(clock, late, since), by_arrival, key)
            waiting = self._waiting.read()
            table = "SELECT id, number, arm, at, played, late, rewarded FROM decision ORDER BY number"
            for name, number, arm, at, *flags in rows(table):
                stored.apply([Decision(name, number, arm, at, waiting.get(name), *map(bool, flags))])
            stored.apply(Known(arm, fields) for arm, fields in self._known.read())
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
                self._waiting.read()
                raise
        except sqlite3.Error as error:
            raise self._refuse(str(error)) from error

    def _write(self, records: Sequence[Record]) -> None:
        for record in records:
            match record:
                case Known(arm, fields):
                    self._has_old_values = True
                    if self._known.write(arm, fields):
                        self._file.execute("UPDATE agent SET is_stale = 1")
                    continue
                case Decision(id=name, number=number, reward=reward):
                    self._has_old_values |= self._waiting.drop(name)
                    if reward is not None:
                        self._waiting.keep(name, number, reward)
                case Forgotten(name):
                    self._has_old_values |= self._waiting.drop(name)
                case _:
                    pass
            written = self._file.execute(*_statement(record)).rowcount
            if isinstance(record, Released) and written != 1:
                raise self._refuse(
                    f"pull {record.last} of arm {record.arm} has been released already at level {record.level}"
                )

    def erase(self) -> None:
        """Remove from the files what has been overwritten or deleted; nothing else changes.

        The log has old copies of pages: it is emptied. A stale file is written anew.
        """
        if not self._has_old_values:
            return
        try:
            if self._file.execute("SELECT is_stale FROM agent").fetchone() != (0,):
                self._file.execute("VACUUM")
                self._file.execute("UPDATE agent SET is_stale = 0")
            self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            raise self._refuse(str(error)) from error
        self._has_old_values = False

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


_Row = Life | Times | Decision | Forgotten | Released | Link  # all but what a page knows


def _statement(record: _Row) -> tuple[str, tuple[Any, ...]]:
    match record:
        case Life(epoch, decisions):
            return "UPDATE agent SET epoch = ?, decisions = ?", (epoch, decisions)
        case Times(clock, late, since):
            return "UPDATE agent SET clock = ?, late = ?, since = ?", (clock, late, since)
        case Decision(name, number, arm, at, _, played, late, rewarded):
            return (
                "INSERT INTO decision VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
                "played = excluded.played, late = excluded.late, rewarded = excluded.rewarded",
                (name, number, arm, at, int(played), int(late), int(rewarded)),
            )
        case Forgotten(name):
            return "DELETE FROM decision WHERE id = ?", (name,)
        case Released(arm, level, last):  # later pulls or nothing: an interval has one release, for ever
            return (
                "INSERT INTO released SELECT ?1, ?2, ?3 WHERE ?3 > coalesce("
                "(SELECT last FROM released WHERE arm = ?1 AND level = ?2), 0) "
                "ON CONFLICT (arm, level) DO UPDATE SET last = excluded.last",
                (arm, level, last),
            )
        case Link(neighbour, epoch, (flow, (version, writer)), left):
            return (
                "INSERT INTO link VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (neighbour) DO UPDATE SET "
                "epoch = excluded.epoch, flow = excluded.flow, version = excluded.version, writer = excluded.writer, "
                "has_left = excluded.has_left",
                (neighbour, epoch, json.dumps(flow), version, writer, int(left)),
            )
