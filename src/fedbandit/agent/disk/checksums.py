"""Adds up a checksum of every row of a file, so that a changed, lost or older row is noticed.

The sum of all is in the file: whatever part of it is damaged, or from another time, it no longer adds up. It guards
against accidents; who means to change the file can change the sum, too.
"""

from typing import Any
from zlib import crc32

__all__ = ["Checksums", "checksum"]

_LIMIT = 2**63  # SQLite's integers are signed


def checksum(row: bytes) -> int:
    """A number for a row: its values, which must be those that SQLite gives back, and its key.

    Squared: two rows that change alike change a plain CRC by the same bits, which could cancel in the sum.
    """
    return crc32(row) ** 2 % _LIMIT


class Checksums:
    """The sum over all rows, and the checksum of each row of the small tables, by table and key."""

    def __init__(self) -> None:
        """For a file without rows."""
        self._total = 0
        self._rows: dict[Any, int] = {}

    def put(self, table: str, key: Any, row: str) -> None:
        """A row of a small table holds this now."""
        where = table, key
        after = checksum(f"{table} {key} {row}".encode())
        self._total += after - self._rows.get(where, 0)
        self._rows[where] = after

    def drop(self, table: str) -> None:
        """A small table has no rows any more."""
        for where in [it for it in self._rows if it[0] == table]:
            self._total -= self._rows.pop(where)

    def change(self, before: int, after: int) -> None:
        """A row of a large table has another checksum now; 0 for a row that is not there."""
        self._total += after - before

    def total(self, *others: int) -> int:
        """The sum, with these numbers added."""
        return (self._total + sum(others)) % _LIMIT
