"""Keeps raw rewards and sums in rows that are overwritten in place, so that the file holds no old copy of them.

SQLite's ``secure_delete`` zeroes what is deleted. But when a page is split or merged, the rows that move leave copies
behind. So no row here ever moves or changes its size:

* ``waiting``: a reward that has been reported and not been played, and the number of its decision; zeros where a place
  is free. Places are used again, and added at the end only.
* ``kept``: the same, of rewards that a site keeps for its log until their decisions are forgotten.
* ``known``: what the page of the policy knows of an arm, with blanks up to a whole number of ``BLOCK`` bytes. Every
  arm has its row from the start. A row that needs more blocks moves: then the file is *stale*, and is rewritten as a
  whole when it is erased.
"""

import json
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from fedbandit.agent.disk.checksums import Checksums
from fedbandit.checks import InvalidArgument

__all__ = ["BLOCK", "KEPT_TABLE", "RAW_TABLES", "KnownRows", "RewardPlaces", "make_known"]

RAW_TABLES = """
CREATE TABLE waiting (place INTEGER PRIMARY KEY, content BLOB) STRICT;
CREATE TABLE known (arm INTEGER PRIMARY KEY, fields TEXT) STRICT;
"""

KEPT_TABLE = """
CREATE TABLE kept (place INTEGER PRIMARY KEY, content BLOB) STRICT;
"""

BLOCK = 1024
"""Bytes of JSON text by which a row of ``known`` grows; FedBatch's and FedUCB's need one."""

_ROW = struct.Struct("<qd")  # number of the decision, which is never 0, and its reward
_FREE = bytes(_ROW.size)


class RewardPlaces:
    """A table of rewards, by the id of the decision."""

    def __init__(self, file: sqlite3.Connection, sums: Checksums, table: Literal["waiting", "kept"]) -> None:
        """Read which places are taken."""
        self._file, self._sums, self._table = file, sums, table
        which = "rewarded AND NOT played" if table == "waiting" else "rewarded"
        self._read_ids = f"SELECT number, id FROM decision WHERE {which}"  # noqa: S608  # two constants
        self._read = f"SELECT place, content FROM {table} ORDER BY place"  # noqa: S608
        self._write_place = (
            f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT (place) DO UPDATE SET content = excluded.content"  # noqa: S608
        )
        self.read()

    def read(self) -> dict[str, float]:
        """The reward of each decision that has one here."""
        self._free: list[int] = []
        self._places: dict[str, int] = {}
        rewards: dict[str, float] = {}
        self._end = 0
        found = self._file.execute(self._read).fetchall()
        ids: dict[int, str] = dict(self._file.execute(self._read_ids)) if found else {}
        for place, content in found:
            self._end = place + 1
            if content == _FREE:
                self._free.append(place)
                continue
            number, reward = _ROW.unpack(content) if len(content) == _ROW.size else (0, 0.0)
            if number not in ids:
                what = "that waits" if self._table == "waiting" else "that has one"
                raise InvalidArgument(
                    f"{self._table}[{place}]", f"{len(content)} bytes", f"the reward of a decision {what}"
                )
            self._places[ids[number]], rewards[ids[number]] = place, reward
        return rewards

    def keep(self, decision_id: str, number: int, reward: float) -> None:
        """Write a reward to a free place."""
        if self._free:
            place = self._free.pop()
        else:
            place, self._end = self._end, self._end + 1
        self._places[decision_id] = place
        self._write(place, _ROW.pack(number, reward))

    def drop(self, decision_id: str) -> bool:
        """Overwrite a reward; whether it was there."""
        place = self._places.pop(decision_id, None)
        if place is None:
            return False
        self._write(place, _FREE)
        self._free.append(place)
        return True

    def _write(self, place: int, content: bytes) -> None:
        self._file.execute(self._write_place, (place, content))
        self._sums.put(self._table, place, repr((content,)))


class KnownRows:
    """The table ``known``: a row per arm, in place."""

    def __init__(self, file: sqlite3.Connection, sums: Checksums) -> None:
        """For an open file."""
        self._file, self._sums = file, sums
        self._sizes: dict[int, int] = dict(file.execute("SELECT arm, length(fields) FROM known"))

    def read(self) -> Iterator[tuple[int, Any]]:
        """The fields of each arm that has any."""
        for arm, fields in self._file.execute("SELECT arm, fields FROM known ORDER BY arm"):
            if fields.strip():
                yield arm, json.loads(fields)

    def clear(self) -> None:
        """Forget the fields of all arms."""
        for arm, size in self._sizes.items():
            self._file.execute("UPDATE known SET fields = ? WHERE arm = ?", (" " * size, arm))
            self._sums.put("known", arm, "")

    def write(self, arm: int, fields: Mapping[str, Any]) -> bool:
        """Replace the fields of an arm; whether its row has moved."""
        text = json.dumps(fields)
        self._sums.put("known", arm, text)
        size = self._sizes.get(arm, 0)
        if len(text) <= size:
            self._file.execute("UPDATE known SET fields = ? WHERE arm = ?", (text.ljust(size), arm))
            return False
        text = _padded(text)
        self._file.execute("INSERT OR REPLACE INTO known VALUES (?, ?)", (arm, text))
        self._sizes[arm] = len(text)
        return True


def make_known(file: sqlite3.Connection, arms: Iterable[int]) -> None:
    """A blank row of ``known`` for each arm, in order."""
    file.executemany("INSERT INTO known VALUES (?, ?)", ((arm, _padded("")) for arm in arms))


def _padded(text: str) -> str:
    return text.ljust(-(-max(len(text), 1) // BLOCK) * BLOCK)
