"""The tables of a state file.

Every row of ``decision`` has its checksum in it, since there are too many to hold them in memory. ``agent`` has the
sum of the checksums of all rows, itself included. Without row ids a decision is in one tree, not in two.
"""

from fedbandit.agent.disk.raw_values import KEPT_TABLE, RAW_TABLES

__all__ = [
    "ARM_CHANGES",
    "DECISION",
    "EVERY_TABLE",
    "MIGRATED",
    "RELEASED",
    "SCHEMA",
    "TABLES",
    "as_made",
    "statements",
]

SCHEMA = 6
"""The version of the tables."""

MIGRATED = (2, 3, 4, 5)
"""Versions that are migrated when a file is opened."""

TABLES = """
CREATE TABLE agent (
    one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT, federation TEXT, terms TEXT, born INTEGER, by_arrival INTEGER,
    key BLOB, identity BLOB, epoch INTEGER, decisions INTEGER, clock REAL, late INTEGER, since REAL,
    is_stale INTEGER, commits INTEGER, run INTEGER, checksum INTEGER
) STRICT;
CREATE TABLE link (
    neighbour TEXT PRIMARY KEY, epoch INTEGER, flow TEXT, version INTEGER, writer TEXT, has_left INTEGER,
    own_epoch INTEGER, told TEXT
) STRICT;
"""

DECISION = """
CREATE TABLE decision (
    id TEXT PRIMARY KEY, number INTEGER, arm INTEGER, at REAL, played INTEGER, late INTEGER, rewarded INTEGER,
    cancelled INTEGER, propensity REAL, key BLOB, subject BLOB, eligible BLOB, checksum INTEGER
) STRICT, WITHOUT ROWID;
"""

RELEASED = """
CREATE TABLE released (arm INTEGER, level INTEGER, last INTEGER, PRIMARY KEY (arm, level)) STRICT;
"""

ARM_CHANGES = """
CREATE TABLE arm_change (
    id TEXT PRIMARY KEY, content TEXT, certificates BLOB, signature BLOB, accepted INTEGER
) STRICT;
"""
"""Since schema 6."""


def statements(tables: str) -> list[str]:
    """One statement for each table."""
    return [found for statement in tables.split(";\n") if (found := statement.strip())]


def as_made(tables: str) -> set[str]:
    """Statements as SQLite keeps them, with single blanks."""
    return {" ".join(it.split()) for it in statements(tables)}


EVERY_TABLE = as_made(TABLES + DECISION + RELEASED + RAW_TABLES + KEPT_TABLE + ARM_CHANGES)
"""The statements that made a file."""
