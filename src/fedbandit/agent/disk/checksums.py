"""Adds up a checksum of every row of a file, so that a changed, lost or older row is noticed.

The sum of all is in the file: whatever part of it is damaged, or from another time, it no longer adds up. It guards
against accidents; who means to change the file can change the sum, too.
"""

from hashlib import blake2b
from typing import Any

__all__ = ["Checksums", "checksum"]

_SIZE = 8
_LIMIT = 2**63  # SQLite's integers are signed


def checksum(*row: Any) -> int:
    """A number for a row: its table and its values, which must be those that SQLite gives back."""
    return int.from_bytes(blake2b(repr(row).encode(), digest_size=_SIZE).digest(), "little") % _LIMIT


class Checksums:
    """The sum over all rows, and the checksum of each row of the small tables, by table and key."""

    def __init__(self) -> None:
        """For a file without rows."""
        self._total = 0
        self._rows: dict[Any, int] = {}

    def put(self, table: str, key: Any, *values: Any) -> None:
        """A row of a small table has these values now."""
        after = checksum(table, key, *values)
        row = table, key
        self._total += after - self._rows.get(row, 0)
        self._rows[row] = after

    def change(self, before: int, after: int) -> None:
        """A row of a large table has another checksum now; 0 for a row that is not there."""
        self._total += after - before

    def total(self, *others: int) -> int:
        """The sum, with these numbers added."""
        return (self._total + sum(others)) % _LIMIT
