"""The tables of a state file.

Every row of ``decision`` has its checksum in it, since there are too many to hold them in memory. ``agent`` has the
sum of the checksums of all rows, itself included. Without row ids a decision is in one tree, not in two.
"""

from fedbandit.agent.disk.raw_values import RAW_TABLES

__all__ = ["EVERY_TABLE", "MIGRATED", "RELEASED", "SCHEMA", "TABLES", "statements"]

SCHEMA = 5
"""The version of the tables."""

MIGRATED = (2, 3, 4)
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
CREATE TABLE decision (
    id TEXT PRIMARY KEY, number INTEGER, arm INTEGER, at REAL, played INTEGER, late INTEGER, rewarded INTEGER,
    checksum INTEGER
) STRICT, WITHOUT ROWID;
"""

RELEASED = """
CREATE TABLE released (arm INTEGER, level INTEGER, last INTEGER, PRIMARY KEY (arm, level)) STRICT;
"""


def statements(tables: str) -> list[str]:
    """One statement for each table."""
    return [found for statement in tables.split(";\n") if (found := statement.strip())]


EVERY_TABLE = {" ".join(it.split()) for it in statements(TABLES + RELEASED + RAW_TABLES)}
"""The statements that made a file, with single blanks."""
