"""Stores a site's records in one SQLite file, one transaction per event.

``commit`` returns when the records are on disk (WAL, synchronous=FULL) and the file is still in its place: until then
nobody may be told. Refuses a file of another schema, federation or agent, one that another process holds, one that is
open to others, and one that is damaged or lacks commits (``state_files``, ``rows``): the
file stays as it is. ``erase`` removes what has been overwritten or deleted from the files.
"""

import fcntl
import json
import os
import sqlite3
import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from secrets import token_bytes
from struct import error as StructError  # noqa: N812  # a class

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Record, Stored
from fedbandit.agent.core.release_guard import Mark
from fedbandit.agent.core.trail import Entry, Filter, Head
from fedbandit.agent.disk.rows import SCHEMA, BadRows, Rows, check_pages, check_tables, entries_seen, make_file
from fedbandit.agent.disk.state_files import (
    IDENTITY_SIZE,
    INDEX,
    CommitCounter,
    JournalError,
    Place,
    beside,
    check_files,
    has_log,
    remove_leftovers,
    what_to_do,
    write_secret,
)
from fedbandit.checks import whole_number

# ---------------------------------------------------------------- a file before it is used


DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, StructError)
"""What rows of any content can raise."""

_ALL = Filter()

_LOCK = struct.Struct("hhqqi")  # struct flock, on Linux with 64 bits
_LOCKED_BYTES = (0x40000000, 512)
"""Which bytes SQLite locks, from its file format: pending, reserved and shared."""


def examined(path: Path, file: sqlite3.Connection, name: str, terms: Federation, counter: CommitCounter | None) -> Rows:
    """The rows of a whole file of this agent; changes nothing.

    ``counter``: None accepts a file that lacks commits.
    """
    try:
        check_pages(file)
    except BadRows as error:
        raise BadRows(f"{error}. {what_to_do(path, is_readable=False)}") from error
    (version,) = file.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA:
        raise JournalError(
            f"{path}: its schema is {version}, this version of the agent reads {SCHEMA} alone. The file stays as it "
            f"is: start the version that wrote it; or begin with nothing: move {path.parent} away, and start"
        )
    check_tables(file)
    try:
        rows = Rows(file)
        if counter is not None:
            counter.check(rows.agent.identity, rows.agent.commits)
        rows.check()
    except DAMAGE as error:
        damage = "" if isinstance(error, BadRows) else "it is damaged: "
        raise BadRows(f"{damage}{error}. {what_to_do(path, is_readable=False)}") from error
    check_owner(path, file, name, terms)
    return rows


def check_owner(path: Path, file: sqlite3.Connection, name: str, terms: Federation) -> None:
    """Refuse the file of another agent or federation."""
    its_name, its_digest, its_terms = file.execute("SELECT name, federation, terms FROM agent").fetchone()
    if its_name != name:
        raise JournalError(f"{path}: it belongs to the agent {its_name!r}, not to {name!r}")
    if its_digest != terms.digest():
        differ = "; ".join(terms.difference(json.loads(its_terms)))
        raise JournalError(
            f"the state file {path} belongs to a federation with other terms. {differ} ('there' is the file). "
            f"Put the terms back as they were; or, for a new federation, if nothing in the file is needed, begin with "
            f"nothing: move {path.parent} away, or let 'data' be an empty folder, and start"
        )


def look_at(path: Path, name: str, terms: Federation) -> Stored | None:
    """What a closed file holds; raises ``JournalError`` if an agent would refuse it.

    It leaves no trace on the disk: SQLite would else write the log of a killed process to the file, or make files
    beside it.

    None if that cannot be told before an agent opens it: a killed process has left a log.
    """
    check_files(path)
    counter = CommitCounter(path)
    if not path.exists():
        counter.check_new("it is missing")
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as file:
            if has_log(path):  # the file alone need not be whole; to whom it belongs was written once, at the start
                with suppress(sqlite3.Error):
                    check_owner(path, file, name, terms)
                return None
            return examined(path, file, name, terms, counter).load(terms)
    except (sqlite3.Error, *DAMAGE) as error:
        raise JournalError(f"{path}: {error}") from error


def entries_of(path: Path, wanted: Filter = _ALL) -> list[Entry]:
    """Entries of the audit trail in a closed file, whole or not; raises ``JournalError`` where none can be read."""
    try:
        with _read_only(path) as file:
            return entries_seen(file, wanted)
    except sqlite3.Error as error:
        raise JournalError(f"{path}: {error}") from error


def check_closed(path: Path, name: str, terms: Federation) -> None:
    """Refuse a closed file that an agent would refuse."""
    check_files(path)
    try:
        with _read_only(path) as file:
            examined(path, file, name, terms, CommitCounter(path))
    except (sqlite3.Error, *DAMAGE) as error:
        raise JournalError(f"{path}: {error}") from error


@contextmanager
def _read_only(path: Path) -> Generator[sqlite3.Connection]:
    """A closed file, with the log of a killed process if there is one. It leaves no trace."""
    index = beside(path, INDEX)
    had_index, how = index.exists(), "mode=ro" if has_log(path) else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=1.0)) as file:
            yield file
    finally:
        if not had_index:
            index.unlink(missing_ok=True)


def holder_of(path: Path) -> int | None:
    """The process that has the file open; None if there is none. Takes no lock."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, *_LOCKED_BYTES, 0)
        kind, _, _, _, process = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else process
    finally:
        os.close(file)


# ---------------------------------------------------------------- the journal


STATE_FILE = "state.sqlite"
"""Its name in a site's data folder."""

_PRAGMAS = (
    "locking_mode=EXCLUSIVE",
    "journal_mode=WAL",
    "synchronous=FULL",
    "secure_delete=ON",
    "temp_store=MEMORY",  # or a file that is rewritten would be copied to a temporary one
)


class SqliteJournal:
    """A journal in one file. ``incarnation``: of a new file; above any before, the time in ms."""

    def __init__(
        self, path: Path | str, name: str, terms: Federation, incarnation: int, accept_old: bool = False
    ) -> None:
        """Open the file, or make it; refuse one that is not this agent's, or not whole.

        ``accept_old`` takes a file that lacks commits or has no counter: for a restore. The first commit makes it
        another file, whose commits are counted anew; until then it stays refused without ``accept_old``.
        """
        self._path, self._terms = Path(path), terms
        self._place: Place | None = None
        self.tell: Callable[[Mark], None] | None = None
        """Whom to tell how far the file is, after each commit and before it returns."""
        self._is_accepted = accept_old
        incarnation = whole_number("incarnation", incarnation, 1, 2**62)
        check_files(self._path)
        self._counter = CommitCounter(self._path)
        if not self._path.exists():
            self._counter.check_new("it is missing")
            if self._counter.commits is None:
                self._counter.make(token_bytes(IDENTITY_SIZE), replace=False)  # first: a file without one is refused
            write_secret(self._path, make_file(name, terms, incarnation, self._counter.identity))
        try:
            if has_log(self._path):  # when a file is closed SQLite writes the log to it, of whatever time it is
                uri = f"{self._path.absolute().as_uri()}?mode=ro"
                with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as file:
                    self._examined(file, name, accept_old)
            # One thread at a time uses it (``durable_site``), not always the one that opened it.
            self._file = sqlite3.connect(self._path, isolation_level=None, timeout=1.0, check_same_thread=False)
            try:
                self._open(name, accept_old)
            except BaseException:
                self.close()
                raise
        except sqlite3.Error as error:
            held = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
            broken = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
            advice = f". {what_to_do(self._path, is_readable=False)}" if broken else ""
            raise self._refuse("another process holds it" if held else f"{error}{advice}") from error
        except DAMAGE as error:
            raise self._refuse(str(error)) from error

    def _refuse(self, reason: str) -> JournalError:
        return JournalError(f"{self._path}: {reason}")

    def _open(self, name: str, accept_old: bool) -> None:
        for pragma in _PRAGMAS:
            self._file.execute(f"PRAGMA {pragma}")
        self._file.execute("BEGIN IMMEDIATE")
        try:
            self._rows = self._examined(self._file, name, accept_old)
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")
        remove_leftovers(self._path)
        self._place = Place(self._path)
        if not self._is_accepted:
            self._counter.open()

    def _examined(self, file: sqlite3.Connection, name: str, accept_old: bool) -> Rows:
        return examined(self._path, file, name, self._terms, None if accept_old else self._counter)

    @property
    def mark(self) -> Mark:
        """How far the file is."""
        agent = self._rows.agent
        return Mark(agent.identity, agent.run, agent.commits)

    def load(self) -> Stored:
        """What the committed records add up to."""
        try:
            return self._rows.load(self._terms)
        except (sqlite3.Error, *DAMAGE) as error:
            raise self._refuse(str(error)) from error

    def commit(self, records: Sequence[Record]) -> None:
        """Write the records of one event, all or none; on disk, in a file of this name, when it returns."""
        if records:
            self._write(records)

    def _write(self, records: Sequence[Record]) -> None:
        try:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                if self._is_accepted:
                    self._identify()
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
            if self.tell is not None:
                self.tell(self.mark)
        except (sqlite3.Error, BadRows) as error:
            raise self._refuse(str(error)) from error
        except OSError as error:
            raise self._refuse(f"its counter of commits: {error.strerror}") from error

    @property
    def head(self) -> Head:
        """Of the audit trail."""
        return self._rows.trail.head

    def trail(self, wanted: Filter) -> list[Entry]:
        """Entries of the audit trail."""
        try:
            return self._rows.trail.some(wanted)
        except sqlite3.Error as error:
            raise self._refuse(str(error)) from error

    def rights(self) -> dict[tuple[str, str], Entry]:
        """What the audit trail knows last of everybody's rights, by kind and subject."""
        return self._rows.trail.rights()

    def _identify(self) -> None:
        """Make an old file that was accepted another one: first its counter, so that half of this stays refused."""
        self._counter.make(token_bytes(IDENTITY_SIZE), replace=True)
        self._counter.open()
        self._rows.identify(self._counter.identity)
        self._is_accepted = False

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
