"""Stores a site's records in one SQLite file, one transaction per event.

``commit`` returns when the records are on disk (WAL, synchronous=FULL) and the file is still in its place: until then
nobody may be told. Refuses a file of another schema, federation or agent, one that another process holds, one that is
open to others, and one that is damaged or lacks commits (``state_files``, ``checksums``, ``commit_counter``). A file of
schema 2, 3 or 4 is migrated when it is opened. ``erase`` removes what has been overwritten or deleted from the files;
``raw_values`` says how.
"""

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from secrets import token_bytes
from struct import error as StructError  # noqa: N812  # a class

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Record, Stored
from fedbandit.agent.disk.commit_counter import IDENTITY_SIZE, CommitCounter
from fedbandit.agent.disk.migration import make_file, migrate
from fedbandit.agent.disk.rows import BadRows, Rows, check_pages, check_tables
from fedbandit.agent.disk.state_files import (
    JournalError,
    Place,
    check_files,
    remove_leftovers,
    what_to_do,
    write_secret,
)
from fedbandit.agent.disk.tables import MIGRATED, SCHEMA
from fedbandit.checks import InvalidArgument, whole_number

__all__ = ["SCHEMA", "JournalError", "SqliteJournal"]

_PRAGMAS = (
    "locking_mode=EXCLUSIVE",
    "journal_mode=WAL",
    "synchronous=FULL",
    "secure_delete=ON",
    "temp_store=MEMORY",  # or a file that is rewritten would be copied to a temporary one
)

_DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, StructError)
"""What rows of any content can raise."""


class SqliteJournal:
    """A journal in one file. A new file begins a life, whose ``epoch`` should be above any before: the time in ms."""

    def __init__(self, path: Path | str, name: str, terms: Federation, epoch: int, accept_old: bool = False) -> None:
        """Open the file, or make it; refuse one that is not this agent's, or not whole.

        ``accept_old`` takes a file that lacks commits or has no counter, and counts anew: for a restore.
        """
        self._path, self._terms = Path(path), terms
        self._place: Place | None = None
        epoch = whole_number("epoch", epoch, 1, 2**62)
        check_files(self._path)
        self._counter = CommitCounter(self._path)
        if not self._path.exists():
            self._counter.check_new("it is missing")
            if self._counter.commits is None:
                self._counter.make(token_bytes(IDENTITY_SIZE), replace=False)  # first: a file without one is refused
            write_secret(self._path, make_file(name, terms, epoch, self._counter.identity))
        try:
            self._file = sqlite3.connect(self._path, isolation_level=None, timeout=1.0)
        except sqlite3.Error as error:
            raise self._refuse(str(error)) from error
        try:
            self._open(name, terms, accept_old)
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error):
                held = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
                raise self._refuse("another process holds it" if held else str(error)) from error
            if isinstance(error, _DAMAGE):
                raise self._refuse(str(error)) from error
            raise

    def _refuse(self, reason: str) -> JournalError:
        return JournalError(f"{self._path}: {reason}")

    def _open(self, name: str, terms: Federation, accept_old: bool) -> None:
        for pragma in _PRAGMAS:
            self._file.execute(f"PRAGMA {pragma}")
        self._file.execute("BEGIN IMMEDIATE")
        try:
            check_pages(self._file)
            (version,) = self._file.execute("PRAGMA user_version").fetchone()
            if version in MIGRATED:
                self._check_owner(name, terms)
                if not accept_old:
                    self._counter.check_new(f"its schema is {version}")
                self._counter.make(token_bytes(IDENTITY_SIZE), replace=True)
                migrate(self._file, version, terms, self._counter.identity)
            elif version != SCHEMA:
                raise self._refuse(
                    f"its schema is {version}, this version of the agent reads {SCHEMA} and migrates "
                    f"{', '.join(map(str, MIGRATED[:-1]))} and {MIGRATED[-1]}"
                )
            check_tables(self._file)
            self._rows = Rows(self._file)
            self._check_whole(accept_old)
            self._check_owner(name, terms)
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")
        remove_leftovers(self._path)
        self._place = Place(self._path)
        self._counter.open()

    def _check_owner(self, name: str, terms: Federation) -> None:
        its_name, its_digest, its_terms = self._file.execute("SELECT name, federation, terms FROM agent").fetchone()
        if its_name != name:
            raise self._refuse(f"it belongs to the agent {its_name!r}, not to {name!r}")
        if its_digest != terms.digest():
            differ = "; ".join(terms.difference(json.loads(its_terms)))
            older = terms.counted == "patients" and "counts" not in json.loads(its_terms)
            hint = '. If the federation counts sites, [federation] needs counts = "sites"' if older else ""
            raise self._refuse(f"it belongs to a federation with other terms ('there' is the file). {differ}{hint}")

    def _check_whole(self, accept_old: bool) -> None:
        """The rows are those of the last commit, and that is the last one which was counted."""
        if not accept_old:
            self._counter.check(self._rows.agent.identity, self._rows.agent.commits)
        try:
            self._rows.check()
        except _DAMAGE as error:
            raise BadRows(f"{error}. {what_to_do(self._path)}") from error
        if accept_old:
            self._counter.make(token_bytes(IDENTITY_SIZE), replace=True)
            self._rows.identify(self._counter.identity)
            self._rows.write([])

    def load(self) -> Stored:
        """What the committed records add up to."""
        try:
            return self._rows.load(self._terms)
        except (sqlite3.Error, *_DAMAGE) as error:
            raise self._refuse(str(error)) from error

    def commit(self, records: Sequence[Record]) -> None:
        """Write the records of one event, all or none; on disk, in a file of this name, when it returns."""
        if records:
            self._write(records)

    def _write(self, records: Sequence[Record]) -> None:
        try:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                self._rows.write(records)
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                self._read_again()
                raise
            if self._place is not None:
                self._place.check()
            self._counter.count(self._rows.agent.commits)
        except (sqlite3.Error, BadRows) as error:
            raise self._refuse(str(error)) from error
        except OSError as error:
            raise self._refuse(f"its counter of commits: {error.strerror}") from error

    def _read_again(self) -> None:
        """Nothing of the transaction has happened."""
        self._rows = Rows(self._file)
        self._rows.check()

    def erase(self) -> None:
        """Remove from the files what has been overwritten or deleted; nothing else changes.

        The log has old copies of pages: it is emptied. A stale file is written anew.
        """
        if not self._rows.has_old_values:
            return
        try:
            if self._rows.agent.is_stale:
                self._file.execute("VACUUM")
                self._rows.agent.is_stale = 0
                self._write([])
            self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            raise self._refuse(str(error)) from error
        self._rows.has_old_values = False

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
        self._counter.close()
        if self._place is not None:
            self._place.close()
            self._place = None
