"""Says whether a state file is whole, up to date, and this agent's, without changing it.

``look_at`` does so for a file that nobody has open, and leaves no trace on the disk: SQLite would else write the log
of a killed process to the file, or make files beside it.
"""

import fcntl
import json
import os
import sqlite3
import struct
from contextlib import closing, suppress
from pathlib import Path
from struct import error as StructError  # noqa: N812  # a class

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Stored
from fedbandit.agent.disk.commit_counter import CommitCounter
from fedbandit.agent.disk.rows import BadRows, Rows, check_pages, check_tables
from fedbandit.agent.disk.schema5 import RowsOfSchema5
from fedbandit.agent.disk.state_files import JournalError, check_files, has_log, what_to_do
from fedbandit.agent.disk.tables import MIGRATED, SCHEMA

__all__ = ["DAMAGE", "examined", "holder_of", "look_at"]

DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, StructError)
"""What rows of any content can raise."""

_LOCK = struct.Struct("hhqqi")  # struct flock, on Linux with 64 bits
_LOCKED_BYTES = (0x40000000, 512)
"""Which bytes SQLite locks, from its file format: pending, reserved and shared."""


def examined(
    path: Path, file: sqlite3.Connection, name: str, terms: Federation, counter: CommitCounter | None
) -> Rows | int:
    """The rows of a whole file of this agent, or the schema of one that must be migrated; changes nothing.

    ``counter``: None accepts a file that lacks commits.
    """
    try:
        check_pages(file)
    except BadRows as error:
        raise BadRows(f"{error}. {what_to_do(path, is_readable=False)}") from error
    (version,) = file.execute("PRAGMA user_version").fetchone()
    if version in MIGRATED and version < 5:
        check_owner(path, file, name, terms)
        if counter is not None:
            counter.check_new(f"its schema is {version}")
        return version
    if version not in (5, SCHEMA):
        raise JournalError(
            f"{path}: its schema is {version}, this version of the agent reads {SCHEMA} and migrates "
            f"{', '.join(map(str, MIGRATED[:-1]))} and {MIGRATED[-1]}"
        )
    if version == SCHEMA:
        check_tables(file)
    try:
        rows = RowsOfSchema5(file) if version == 5 else Rows(file)
        if counter is not None:
            counter.check(rows.agent.identity, rows.agent.commits)
        rows.check()
    except DAMAGE as error:
        damage = "" if isinstance(error, BadRows) else "it is damaged: "
        raise BadRows(f"{damage}{error}. {what_to_do(path, is_readable=False)}") from error
    check_owner(path, file, name, terms)
    return version if version == 5 else rows


def check_owner(path: Path, file: sqlite3.Connection, name: str, terms: Federation) -> None:
    """Refuse the file of another agent or federation."""
    its_name, its_digest, its_terms = file.execute("SELECT name, federation, terms FROM agent").fetchone()
    if its_name != name:
        raise JournalError(f"{path}: it belongs to the agent {its_name!r}, not to {name!r}")
    if its_digest != terms.digest():
        differ = "; ".join(terms.difference(json.loads(its_terms)))
        older = terms.counted == "patients" and "counts" not in json.loads(its_terms)
        hint = '. If the federation counts sites, [federation] needs counts = "sites"' if older else ""
        raise JournalError(
            f"the state file {path} belongs to a federation with other terms. {differ} ('there' is the file){hint}. "
            f"Put the terms back as they were; or, for a new federation, if nothing in the file is needed, begin with "
            f"nothing: move {path.parent} away, or let 'data' be an empty folder, and start"
        )


def look_at(path: Path, name: str, terms: Federation) -> Stored | None:
    """What a closed file holds; raises ``JournalError`` if an agent would refuse it.

    None if that cannot be told before an agent opens it: it must be migrated, or a killed process has left a log.
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
            found = examined(path, file, name, terms, counter)
            return found.load(terms) if isinstance(found, Rows) else None
    except (sqlite3.Error, *DAMAGE) as error:
        raise JournalError(f"{path}: {error}") from error


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
