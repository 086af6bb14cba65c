"""A disk in memory that can fail in the middle of a write, and the interface it shares with the real one."""

from collections.abc import Sequence
from typing import Literal, Protocol

from fedbandit.agent.core.records import Life, Record, Released, Renewed, Stored
from fedbandit.checks import InvalidArgument, whole_number

__all__ = ["Crash", "Crashed", "Journal", "MemoryJournal"]


class Journal(Protocol):
    """What an agent needs of a disk."""

    def load(self) -> Stored:
        """What the committed records add up to."""
        ...

    def commit(self, records: Sequence[Record]) -> None:
        """Write the records of one event, all or none; on disk when it returns."""
        ...


class Crashed(RuntimeError):
    """The simulated process died at a write."""


Crash = Literal["before", "torn", "after"]


class MemoryJournal:
    """A disk in memory for simulated agents; it outlives them, and can be told to kill its agent at the next write.

    ``crash_at_next_write`` is where: *before* anything is written, in the middle (*torn*: the last transaction's
    checksum is wrong, and it is dropped when the disk is read, as SQLite does), or *after* it, before anybody is told.
    """

    def __init__(self, epoch: int) -> None:
        """An empty disk, on which a life begins. ``key`` should be another for each disk."""
        self._epoch = whole_number("epoch", epoch, 1, 2**62)
        self.key = b""
        self._transactions: list[tuple[bool, tuple[Record, ...]]] = []
        self._marks: dict[tuple[int, int], int] = {}
        self.crash_at_next_write: Crash | None = None

    def load(self) -> Stored:
        """What the committed records add up to; a torn last transaction is dropped for good."""
        self._transactions = [(whole, records) for whole, records in self._transactions if whole]
        stored = Stored(Life(self._epoch, 0), self._epoch, key=self.key)
        for _, records in self._transactions:
            stored.apply(records)
        return stored

    def copy(self) -> "MemoryJournal":
        """A snapshot of the disk."""
        other = type(self)(self._epoch)
        other.key, other._marks = self.key, dict(self._marks)
        other._transactions = list(self._transactions)
        return other

    def commit(self, records: Sequence[Record]) -> None:
        """Write the records of one event, or die trying."""
        if not records:
            return
        crash, self.crash_at_next_write = self.crash_at_next_write, None
        if crash not in (None, "before", "torn", "after"):
            raise InvalidArgument("crash_at_next_write", crash, "before, torn or after")
        released = {(r.arm, r.level): r.last for r in records if isinstance(r, Released)}
        marks = {} if any(isinstance(record, Renewed) for record in records) else self._marks
        for place, last in released.items():
            if last <= marks.get(place, 0):  # as the table of a real disk refuses it
                raise InvalidArgument("released", last, f"beyond pull {marks[place]}, of arm and level {place}")
        if crash != "before":
            self._transactions.append((crash != "torn", tuple(records)))
        if crash in (None, "after"):
            self._marks = marks | released
        if crash is not None:
            raise Crashed("in the middle of a write" if crash == "torn" else f"{crash} a write")
