"""Keeps changes of the arms in the table ``arm_change``: rows are added, and change only when they are accepted."""

import sqlite3
from collections.abc import Iterator

from fedbandit.agent.core.arm_changes import change_from
from fedbandit.agent.core.records import ArmChanged
from fedbandit.agent.disk.checksums import Checksums
from fedbandit.checks import InvalidArgument

__all__ = ["ArmRows"]

_READ = "SELECT id, content, certificates, signature, accepted FROM arm_change ORDER BY rowid"
_WRITE = (
    "INSERT INTO arm_change VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET accepted = excluded.accepted "
    "WHERE excluded.accepted >= accepted"  # what was accepted stays so, or its arm would get another number
)


class ArmRows:
    """The table of an open file."""

    def __init__(self, file: sqlite3.Connection, sums: Checksums) -> None:
        """For an open file."""
        self._file, self._sums = file, sums

    def add_up(self) -> None:
        """Add the checksums of all rows."""
        for name, *row in self._file.execute(_READ):
            self._sums.put("arm_change", name, repr(tuple(row)))

    def read(self) -> Iterator[ArmChanged]:
        """All changes."""
        for name, content, certificates, signature, accepted in self._file.execute(_READ):
            change = change_from(content.encode(), certificates, signature)
            if change.id != name:
                raise InvalidArgument("arm_change", name, f"{change.id}, as its content says")
            yield ArmChanged(change, accepted)

    def write(self, record: ArmChanged) -> None:
        """Add a change, or note that it was accepted."""
        change = record.change
        row = change.content.decode(), change.certificates, change.signature, record.accepted
        if self._file.execute(_WRITE, (change.id, *row)).rowcount == 1:
            self._sums.put("arm_change", change.id, repr(row))
