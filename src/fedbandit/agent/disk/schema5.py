"""Reads what schema 5 wrote, so that a damaged or old file of it is refused before it is migrated."""

import sqlite3
from struct import Struct

from fedbandit.agent.disk.rows import RAW_TABLES, RELEASED, TABLES, BadRows, Rows, as_made, checksum

__all__ = ["RowsOfSchema5"]

_DECISION = """
CREATE TABLE decision (
    id TEXT PRIMARY KEY, number INTEGER, arm INTEGER, at REAL, played INTEGER, late INTEGER, rewarded INTEGER,
    checksum INTEGER
) STRICT, WITHOUT ROWID;
"""

_TABLES = as_made(TABLES + _DECISION + RELEASED + RAW_TABLES)

_NUMBERS = Struct("<qqdqqq")


def _checksum_of_decision(name: str, number: int, arm: int, at: float, *flags: int) -> int:
    return checksum(_NUMBERS.pack(number, arm, at + 0.0, *flags) + name.encode())


class RowsOfSchema5(Rows):
    """For ``check`` alone: decisions had no propensity, key, subject or eligible arms, and no reward was kept."""

    small = ("link", "waiting")
    has_arm_changes = False
    decision = "id, number, arm, at, played, late, rewarded"
    checksum_of = staticmethod(_checksum_of_decision)

    def __init__(self, file: sqlite3.Connection) -> None:
        """Refuse other tables than schema 5 had."""
        found = file.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")
        if {" ".join(sql.split()) for (sql,) in found} != _TABLES:
            raise BadRows("it is damaged: its tables are not those of its schema")
        super().__init__(file)
