"""Writes a site's records as rows of an open file, reads them back, and keeps a checksum of all rows.

Every row of ``decision`` has its checksum in it, since there are too many to hold them in memory. ``agent`` has the sum
of the checksums of all rows, itself included: whatever part of the file is damaged, or from another time, it no longer
adds up. It guards against accidents; who means to change the file can change the sum, too.

Raw rewards and sums are in rows that are overwritten in place, so that the file holds no old copy of them. SQLite's
``secure_delete`` zeroes what is deleted. But when a page is split or merged, the rows that move leave copies behind. So
no row of these tables ever moves or changes its size:

* ``waiting``: a reward that has been reported and not been played, and the number of its decision; zeros where a place
  is free. Places are used again, and added at the end only.
* ``kept``: the same, of rewards that a site keeps for its log until their decisions are forgotten.
* ``known``: what the page of the policy knows of an arm, with blanks up to a whole number of ``BLOCK`` bytes. Every
  arm has its row from the start. A row that needs more blocks moves: then the file is *stale*, and is rewritten as a
  whole when it is erased.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from math import nan
from secrets import token_bytes
from struct import Struct
from typing import Any, Literal
from zlib import crc32

from fedbandit.agent.core import records as kinds
from fedbandit.agent.core.arms import ArmChanged, Arms, change_from
from fedbandit.agent.core.board import BoardRow, Kept
from fedbandit.agent.core.bulletin import Signed
from fedbandit.agent.core.decisions import KEY_SIZE
from fedbandit.agent.core.evaluator import Evaluator, no_noise
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.trail import (
    ABOUT_ARMS,
    BEGINNING,
    COLUMNS,
    UNSAID,
    Act,
    Entry,
    Filter,
    Head,
    chained,
    fault_of,
)
from fedbandit.checks import InvalidArgument
from fedbandit.policies.plain import NO_ARM

SCHEMA = 14
"""The version of the tables. A file of another one is refused."""

_TABLES = (
    """CREATE TABLE agent (
        one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT, federation TEXT, terms TEXT, key BLOB,
        identity BLOB, incarnation INTEGER, decisions INTEGER, clock REAL, late INTEGER, since REAL, is_stale INTEGER,
        commits INTEGER, run INTEGER, checksum INTEGER
    ) STRICT""",
    """CREATE TABLE board (
        site TEXT, digest BLOB, rank INTEGER, body BLOB, signature BLOB, signer BLOB, since REAL,
        PRIMARY KEY (site, digest)
    ) STRICT""",
    "CREATE TABLE own (is_doubtful INTEGER PRIMARY KEY, body BLOB, signature BLOB, signer BLOB, doubt TEXT) STRICT",
    "CREATE TABLE neighbour (name TEXT PRIMARY KEY, has_heard INTEGER) STRICT",
    "CREATE TABLE excluded (name TEXT PRIMARY KEY, at INTEGER, reason TEXT) STRICT",
    "CREATE TABLE history (arm INTEGER PRIMARY KEY, rewards INTEGER) STRICT",
    "CREATE TABLE overruled (arm TEXT PRIMARY KEY, deficit REAL) STRICT",
    # Without row ids a decision is in one tree, not in two.
    """CREATE TABLE decision (
        id TEXT PRIMARY KEY, number INTEGER, arm INTEGER, at REAL, played INTEGER, late INTEGER, rewarded INTEGER,
        cancelled INTEGER, propensity REAL, key BLOB, subject BLOB, eligible BLOB,
        stratum INTEGER, deterministic TEXT, checksum INTEGER
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE released (arm INTEGER, level INTEGER, last INTEGER, PRIMARY KEY (arm, level)) STRICT",
    "CREATE TABLE arm_change (id TEXT PRIMARY KEY, content TEXT, accepted INTEGER) STRICT",
    "CREATE TABLE waiting (place INTEGER PRIMARY KEY, content BLOB) STRICT",
    "CREATE TABLE kept (place INTEGER PRIMARY KEY, content BLOB) STRICT",
    "CREATE TABLE known (arm INTEGER PRIMARY KEY, fields TEXT) STRICT",
    """CREATE TABLE trail (
        number INTEGER PRIMARY KEY, at INTEGER, kind TEXT, what TEXT, subject TEXT, site TEXT, detail TEXT, who TEXT,
        how TEXT, reason TEXT, hash TEXT
    ) STRICT""",
    "CREATE TRIGGER trail_stays BEFORE UPDATE ON trail BEGIN SELECT RAISE(ABORT, 'the audit trail only grows'); END",
    "CREATE TRIGGER trail_grows BEFORE DELETE ON trail BEGIN SELECT RAISE(ABORT, 'the audit trail only grows'); END",
)


class BadRows(ValueError):
    """Rows that cannot be read or written, and why."""


# ---------------------------------------------------------------- checksums


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

    def remove(self, table: str, key: Any) -> None:
        """A row of a small table is not there any more."""
        self._total -= self._rows.pop((table, key), 0)

    def change(self, before: int, after: int) -> None:
        """A row of a large table has another checksum now; 0 for a row that is not there."""
        self._total += after - before

    def total(self, *others: int) -> int:
        """The sum, with these numbers added."""
        return (self._total + sum(others)) % _LIMIT


# ---------------------------------------------------------------- rewards and sums


BLOCK = 1024
"""Bytes of JSON text by which a row of ``known`` grows; FedBatch's and FedUCB's need one."""

_ROW = Struct("<qd")  # number of the decision, which is never 0, and its reward
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


def _padded(text: str) -> str:
    return text.ljust(-(-max(len(text), 1) // BLOCK) * BLOCK)


# ---------------------------------------------------------------- the board, and other small tables

_SMALL = ("own", "neighbour", "excluded", "overruled", "history")
"""Tables of few columns, the first of which is the key."""

_READ_BOARD = "SELECT site, digest, rank, body, signature, signer, since FROM board ORDER BY site, rank"
_WRITE_BULLETIN = (
    "INSERT INTO board VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (site, digest) DO UPDATE SET rank = excluded.rank, "
    "signature = excluded.signature, signer = excluded.signer, since = excluded.since"
)


class BoardRows:
    """The table of an open file: the bulletins that are kept of each site, in their order."""

    def __init__(self, file: sqlite3.Connection, sums: Checksums) -> None:
        """For an open file."""
        self._file, self._sums = file, sums
        self._kept: dict[str, dict[bytes, tuple[Any, ...]]] = {}  # without bodies: a digest tells which

    def add_up(self) -> None:
        """Add the checksums of all rows."""
        for site, digest, *row in self._file.execute(_READ_BOARD):
            self._note(site, digest, *row)

    def _note(self, site: str, digest: bytes, *row: Any) -> None:
        rank, _, *rest = row
        self._kept.setdefault(site, {})[digest] = rank, *rest
        self._sums.put("board", (site, digest), repr(row))

    def read(self) -> list[BoardRow]:
        """What is kept of each site."""
        found: dict[str, list[Kept]] = {}
        for site, digest, _, body, signature, signer, since in self._file.execute(_READ_BOARD):
            kept = Kept(Signed(body, signature, signer), since)
            if (said := kept.signed.digest) != digest:
                raise InvalidArgument(f"board[{site}]", digest.hex(), f"{said.hex()}, as its content says")
            found.setdefault(site, []).append(kept)
        return [BoardRow(site, tuple(kept)) for site, kept in found.items()]

    def write(self, record: BoardRow) -> None:
        """Replace what is kept of a site: only what has changed is written."""
        site, before = record.site, self._kept.get(record.site, {})
        after = {it.signed.digest: (rank, it) for rank, it in enumerate(record.kept)}
        for digest in [it for it in before if it not in after]:
            self._file.execute("DELETE FROM board WHERE site = ? AND digest = ?", (site, digest))
            self._sums.remove("board", (site, digest))
            del before[digest]
        for digest, (rank, (signed, since)) in after.items():
            rest = signed.signature, signed.signer, since + 0.0
            if before.get(digest) != (rank, *rest):
                row = rank, signed.body, *rest
                self._file.execute(_WRITE_BULLETIN, (site, digest, *row))
                self._note(site, digest, *row)


# ---------------------------------------------------------------- changes of the arms


_READ = "SELECT id, content, accepted FROM arm_change ORDER BY rowid"
_WRITE = (
    "INSERT INTO arm_change VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET accepted = excluded.accepted "
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
        for name, content, accepted in self._file.execute(_READ):
            change = change_from(content)
            if change.id != name:
                raise InvalidArgument("arm_change", name, f"{change.id}, as its content says")
            yield ArmChanged(change, accepted)

    def write(self, record: ArmChanged) -> None:
        """Add a change, or note that it was accepted."""
        change = record.change
        row = change.content, record.accepted
        if self._file.execute(_WRITE, (change.id, *row)).rowcount == 1:
            self._sums.put("arm_change", change.id, repr(row))


# ---------------------------------------------------------------- the audit trail


_ENTRY = ", ".join(COLUMNS)
_READ_TRAIL = f"SELECT {_ENTRY} FROM trail"  # noqa: S608  # names of columns
_ADD_ENTRY = f"INSERT INTO trail ({_ENTRY}) VALUES (?{', ?' * (len(COLUMNS) - 1)})"  # noqa: S608


class TrailRows:
    """The audit trail in an open file: rows are added, and none is ever changed or removed."""

    def __init__(self, file: sqlite3.Connection, sums: Checksums) -> None:
        """For an open file."""
        self._file, self._sums = file, sums
        self.head = BEGINNING

    def check(self) -> None:
        """Refuse a trail in which an entry is not as it was written; one that was cut has another head."""
        entries = list(self.all())
        if (fault := fault_of(entries)) is not None:
            raise BadRows(f"it is damaged: its audit trail: {fault}")
        self._note(Head(entries[-1].number, entries[-1].hash) if entries else BEGINNING)

    def add(self, it: Entry) -> None:
        """Add an entry: the next one."""
        if it.number != self.head.number + 1:
            raise BadRows(f"entry {it.number} of the audit trail does not follow entry {self.head.number}")
        self._file.execute(_ADD_ENTRY, astuple(it))
        self._note(Head(it.number, it.hash))

    def _note(self, head: Head) -> None:
        self.head = head
        self._sums.put("trail", "head", head.in_words())

    def all(self) -> Iterator[Entry]:
        """All entries."""
        return entries_in(self._file)

    def some(self, wanted: Filter) -> list[Entry]:
        """Those that somebody wants to see, as they are on disk now: not as they were read before."""
        self._file.execute("PRAGMA shrink_memory")
        return entries_seen(self._file, wanted)

    def rights(self) -> dict[tuple[str, str], Entry]:
        """The last entry about each subject of rights, and of members that the configuration refuses."""
        kinds_of = "kind = 'rights' OR (kind = 'member' AND what IN ('refuse', 'admit'))"
        found = self._file.execute(f"{_READ_TRAIL} WHERE {kinds_of} ORDER BY number")
        return {(it.kind, it.subject): it for it in (Entry(*row) for row in found)}


def entries_in(file: sqlite3.Connection) -> Iterator[Entry]:
    """All entries of the audit trail in a file, in their order, whether it is whole or not."""
    for row in file.execute(f"{_READ_TRAIL} ORDER BY number"):
        yield Entry(*row)


def entries_seen(file: sqlite3.Connection, wanted: Filter) -> list[Entry]:
    """The entries that somebody wants to see, oldest first."""
    tests: list[tuple[str, Any]] = [("number > ?", wanted.after)]
    for test, value in (
        ("at >= ?", wanted.since),
        ("at < ?", wanted.until),
        ("who = ?", wanted.person),
        ("kind = ?", wanted.kind),
        (f"kind IN ({', '.join(map(repr, ABOUT_ARMS))}) AND subject = ?", wanted.arm),
    ):
        if value is not None:
            tests.append((test, value))
    where = " AND ".join(test for test, _ in tests)
    order = "ORDER BY number DESC LIMIT ?" if wanted.last else "ORDER BY number LIMIT ?"
    most = min((it for it in (wanted.last, wanted.most) if it), default=-1)
    found = file.execute(f"{_READ_TRAIL} WHERE {where} {order}", [*(value for _, value in tests), most])
    entries = [Entry(*row) for row in found]
    return entries[::-1] if wanted.last else entries


# ---------------------------------------------------------------- records as rows


@dataclass(slots=True)
class AgentRow:
    """The row of the agent: first what never changes, then what does."""

    name: str
    federation: str
    terms: str
    key: bytes
    identity: bytes
    incarnation: int
    decisions: int
    clock: float = 0.0
    late: int = 0
    since: float | None = None
    is_stale: int = 0
    commits: int = 0
    run: int = 0

    def fixed(self) -> int:
        """The checksum of what never changes."""
        row = self.name, self.federation, self.terms, self.key, self.identity
        return checksum(repr(row).encode())

    def changing(self) -> tuple[tuple[Any, ...], int]:
        """What does, and its checksum."""
        since = nan if self.since is None else self.since + 0.0
        ends = self.is_stale, self.commits, self.run
        numbers = self.incarnation, self.decisions, self.clock + 0.0, self.late, since, *ends
        row = self.incarnation, self.decisions, self.clock, self.late, self.since, *ends
        return row, checksum(_AGENT_NUMBERS.pack(*numbers))


_AGENT_NUMBERS = Struct("<qqdqdqqq")
_DECISION_NUMBERS = Struct("<qqdqqqqdq")


def _checksum_of_decision(
    name: str,
    number: int,
    arm: int,
    at: float,
    played: int,
    late: int,
    rewarded: int,
    cancelled: int,
    propensity: float | None,
    key: bytes,
    subject: bytes,
    eligible: bytes,
    stratum: int | None,
    deterministic: str | None,
) -> int:
    chance, group = nan if propensity is None else propensity + 0.0, -1 if stratum is None else stratum
    numbers = _DECISION_NUMBERS.pack(number, arm, at + 0.0, played, late, rewarded, cancelled, chance, group)
    why = (deterministic or "").encode()
    return checksum(b"".join((numbers, name.encode(), key, subject, eligible, why)))  # SQLite has no -0.0


_AGENT = "name, federation, terms, key, identity"
_CHANGING = ("incarnation", "decisions", "clock", "late", "since", "is_stale", "commits", "run")
_READ_AGENT = f"SELECT {_AGENT}, {', '.join(_CHANGING)}, checksum FROM agent"  # noqa: S608  # names of columns
_WRITE_AGENT = f"UPDATE agent SET {', '.join(f'{it} = ?' for it in _CHANGING)}, checksum = ?"  # noqa: S608

_DECISION = (
    "id, number, arm, at, played, late, rewarded, cancelled, propensity, key, subject, eligible, stratum, deterministic"
)
_READ_DECISIONS = f"SELECT {_DECISION} FROM decision ORDER BY number"  # noqa: S608
_ADD_DECISION = f"INSERT INTO decision VALUES (?{', ?' * 14}) ON CONFLICT (id) DO NOTHING"  # noqa: S608
_CHANGE_DECISION = (
    "UPDATE decision SET played = ?, late = ?, rewarded = ?, cancelled = ?, checksum = ? WHERE id = ? AND checksum = ?"
)
_CHECKSUM_OF = "SELECT checksum FROM decision WHERE id = ?"
_DROP_DECISION = "DELETE FROM decision WHERE id = ? RETURNING checksum"
_WRITE_RELEASED = (  # later pulls or nothing: an interval has one release, for ever
    "INSERT INTO released SELECT ?1, ?2, ?3 WHERE ?3 > coalesce("
    "(SELECT last FROM released WHERE arm = ?1 AND level = ?2), 0) "
    "ON CONFLICT (arm, level) DO UPDATE SET last = excluded.last"
)


class Rows:
    """The rows of a file that has all tables; ``agent`` is the row of the agent."""

    def __init__(self, file: sqlite3.Connection) -> None:
        """Read the row of the agent. Before anything is written: ``check``, or ``seal`` if nothing has been yet."""
        self._file = file
        self._sums = Checksums()
        self.has_old_values = True  # a killed process may have left some in the log
        found = file.execute(_READ_AGENT).fetchall()
        if len(found) != 1:
            raise BadRows(f"it is damaged: {len(found)} rows in the table agent")
        *row, self._sum = found[0]
        self.agent = AgentRow(*row)
        self._fixed = self.agent.fixed()
        self._known = KnownRows(file, self._sums)
        self._waiting = RewardPlaces(file, self._sums, "waiting")
        self._kept = RewardPlaces(file, self._sums, "kept")
        self._arms = ArmRows(file, self._sums)
        self._board = BoardRows(file, self._sums)
        self.trail = TrailRows(file, self._sums)

    # ---------------------------------------------------------------- checksums

    def check(self) -> None:
        """Refuse rows that are not those of the last commit."""
        self._add_up()
        for *row, found in self._file.execute(f"SELECT {_DECISION}, checksum FROM decision"):  # noqa: S608
            if _checksum_of_decision(*row) != found:
                raise BadRows("it is damaged: a row of the table decision has another checksum")
            self._sums.change(0, found)
        _, changing = self.agent.changing()
        if self._sums.total(self._fixed, changing) != self._sum:
            raise BadRows(
                "its rows are not those of the last commit: bytes were changed, or file and log are of different times"
            )

    def seal(self) -> None:
        """Write the checksum of a new file."""
        self._add_up()
        self._write_agent()

    def _add_up(self) -> None:
        rows = self._file.execute
        for table in ("waiting", "kept", *_SMALL):
            for key, *row in rows(f"SELECT * FROM {table}"):  # noqa: S608
                self._sums.put(table, key, repr(tuple(row)))
        for arm, fields in rows("SELECT arm, fields FROM known"):
            self._sums.put("known", arm, fields.rstrip(" "))
        for arm, level, last in rows("SELECT * FROM released"):
            self._sums.put("released", (arm, level), repr(last))
        self._arms.add_up()
        self._board.add_up()
        self.trail.check()

    def identify(self, identity: bytes) -> None:
        """Make it another file, whose commits are counted anew."""
        self._file.execute("UPDATE agent SET identity = ?", (identity,))
        self.agent.identity = identity
        self._fixed = self.agent.fixed()

    # ---------------------------------------------------------------- reading

    def load(self, terms: Federation) -> kinds.Stored:
        """What the records add up to."""
        rows, agent = self._file.execute, self.agent
        times = kinds.SiteTimes(agent.clock, agent.late, agent.since)
        stored = kinds.Stored(kinds.Numbering(agent.incarnation, agent.decisions), times, agent.key, agent.run)
        waiting = self._waiting.read()
        for name, number, arm, at, played, late, rewarded, cancelled, *asked in rows(_READ_DECISIONS):
            flags = bool(played), bool(late), bool(rewarded), bool(cancelled)
            stored.decisions[name] = kinds.DecisionRecord(name, number, arm, at, waiting.get(name), *flags, *asked)
        stored.kept = self._kept.read()
        for arm, fields in self._known.read():
            stored.apply([kinds.Evaluating(fields) if arm == kinds.EVALUATION else kinds.Known(arm, fields)])
        for arm, level, last in rows("SELECT * FROM released"):
            is_evaluation = arm == kinds.EVALUATION
            stored.apply([kinds.EvaluationReleased(last) if is_evaluation else kinds.Released(arm, level, last)])
        stored.apply(kinds.Neighbour(name, bool(heard)) for name, heard in rows("SELECT * FROM neighbour"))
        stored.apply(kinds.Excluded(*row) for row in rows("SELECT * FROM excluded ORDER BY rowid"))
        stored.apply(kinds.HistoryEntered(*row) for row in rows("SELECT * FROM history"))
        stored.apply(kinds.Overruled(*row) for row in rows("SELECT * FROM overruled ORDER BY rowid"))
        for *signed, doubt in rows("SELECT body, signature, signer, doubt FROM own ORDER BY is_doubtful"):
            stored.apply([kinds.OwnBulletin(Signed(*signed), doubt)])
        stored.apply(self._board.read())
        stored.apply(self._arms.read())
        stored.trail = self.trail.head
        num_arms = len(Arms.of(terms.arms, stored.arm_changes).names)
        terms.mechanism(num_arms=num_arms).restore(stored.known, stored.released)  # refuses what the page cannot know
        if terms.evaluation is not None:
            Evaluator(terms, stored, no_noise)
        return stored

    # ---------------------------------------------------------------- writing

    def write(self, records: Sequence[kinds.Record]) -> None:
        """Write records in their order, in the transaction that is open, and count it."""
        for record in records:
            self._write(record)
        self.agent.commits += 1
        self._write_agent()

    def _write_agent(self) -> None:
        row, changing = self.agent.changing()
        self._file.execute(_WRITE_AGENT, (*row, self._sums.total(self._fixed, changing)))

    def _write(self, record: kinds.Record) -> None:
        match record:
            case kinds.DecisionRecord():
                self._write_decision(record)
            case kinds.Known(arm, fields):
                self.has_old_values = True
                if self._known.write(arm, fields):
                    self.agent.is_stale = 1
            case kinds.Evaluating(fields):
                self.has_old_values = True
                if self._known.write(kinds.EVALUATION, fields):
                    self.agent.is_stale = 1
            case kinds.Numbering(incarnation, decisions):
                self.agent.incarnation, self.agent.decisions = incarnation, decisions
            case BoardRow():
                self._board.write(record)
            case kinds.OwnBulletin(signed, doubt):
                self._drop("own", "is_doubtful", 1)
                self._put("own", int(doubt != ""), signed.body, signed.signature, signed.signer, doubt)
            case kinds.Neighbour(name, has_heard):
                self._put("neighbour", name, int(has_heard))
            case kinds.Unlinked(name):
                self._drop("neighbour", "name", name)
            case kinds.Excluded(name, at, reason):
                self._put("excluded", name, at, reason)
            case kinds.Included(name):
                self._drop("excluded", "name", name)
            case kinds.HistoryEntered(arm, rewards):
                self._put("history", arm, rewards)
            case kinds.Overruled(arm, deficit):
                self._put("overruled", arm, deficit)
            case kinds.SiteTimes(clock, late, since):
                self.agent.clock, self.agent.late, self.agent.since = clock, late, since
            case kinds.Released(arm, level, last):
                self._release(arm, level, last)
            case kinds.EvaluationReleased(last):
                self._release(kinds.EVALUATION, 0, last)
            case kinds.Opened(run):
                self.agent.run = run
            case ArmChanged():
                self._arms.write(record)
            case Entry():
                self.trail.add(record)
            case Act():
                pass  # its entry follows
            case kinds.Renewed():
                self._drop("own", "is_doubtful", 1)
                self.has_old_values = True
                self._known.clear()
                self._file.execute("DELETE FROM released")
                self._sums.drop("released")
            case kinds.Kept(name, number, reward):
                self.has_old_values |= self._kept.drop(name)
                if reward is not None:
                    self._kept.keep(name, number, reward)
            case kinds.Forgotten(name):
                self.has_old_values |= self._waiting.drop(name)
                self.has_old_values |= self._kept.drop(name)
                for (before,) in self._file.execute(_DROP_DECISION, (name,)).fetchall():
                    self._sums.change(before, 0)

    def _release(self, arm: int, level: int, last: int) -> None:
        if self._file.execute(_WRITE_RELEASED, (arm, level, last)).rowcount != 1:
            raise BadRows(f"pull {last} of arm {arm} has been released already at level {level}")
        self._sums.put("released", (arm, level), repr(last))

    def _put(self, table: str, key: str | bytes | int, *row: Any) -> None:
        self._file.execute(f"INSERT OR REPLACE INTO {table} VALUES (?{', ?' * len(row)})", (key, *row))  # noqa: S608
        self._sums.put(table, key, repr(row))

    def _drop(self, table: str, column: str, key: str | int) -> None:
        self._file.execute(f"DELETE FROM {table} WHERE {column} = ?", (key,))  # noqa: S608
        self._sums.remove(table, key)

    def _write_decision(self, it: kinds.DecisionRecord) -> None:
        self.has_old_values |= self._waiting.drop(it.id)
        if it.reward is not None:
            self._waiting.keep(it.id, it.number, it.reward)
        row = it.id, it.number, it.arm, it.at
        asked = it.propensity, it.key, it.subject, it.eligible, it.stratum, it.deterministic
        flags = played, late, rewarded, cancelled = int(it.played), int(it.late), int(it.rewarded), int(it.cancelled)
        after = _checksum_of_decision(*row, *flags, *asked)
        write, before = self._file.execute, 0
        if any(flags):  # nearly always a reward has come, or it has been played: what it was needs not be read
            was = (0, late, rewarded, cancelled) if played else (0, 0, 0, 0)
            before = _checksum_of_decision(*row, *was, *asked)
        if not before or write(_CHANGE_DECISION, (*flags, after, it.id, before)).rowcount != 1:
            before = 0
            if write(_ADD_DECISION, (*row, *flags, *asked, after)).rowcount != 1:
                (before,) = write(_CHECKSUM_OF, (it.id,)).fetchone()
                write(_CHANGE_DECISION, (*flags, after, it.id, before))
        self._sums.change(before, after)


def make_file(name: str, terms: Federation, incarnation: int, identity: bytes) -> bytes:
    """The content of a new state file, whose incarnation begins with this incarnation."""
    file = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for statement in _TABLES:
            file.execute(statement)
        first = NO_ARM if terms.evaluation is None else kinds.EVALUATION
        blank = ((arm, _padded("")) for arm in range(first, terms.num_arms))  # a row for each arm, in order
        file.executemany("INSERT INTO known VALUES (?, ?)", blank)
        shown = terms.digest(), json.dumps(terms.terms())
        row = AgentRow(name, *shown, token_bytes(KEY_SIZE), identity, incarnation, 0)
        columns = f"{_AGENT}, {', '.join(_CHANGING)}"
        file.execute(f"INSERT INTO agent (one, {columns}) VALUES (1{', ?' * 13})", astuple(row))  # noqa: S608
        begun = Act("terms", "begin", shown[0], detail=f"a new file, {token_bytes(16).hex()}")
        for it in chained(BEGINNING, [begun], UNSAID, incarnation):
            file.execute(_ADD_ENTRY, astuple(it))
        Rows(file).seal()
        file.execute(f"PRAGMA user_version = {SCHEMA}")
        content = bytearray(file.serialize())
    finally:
        file.close()
    content[18:20] = b"\x02\x02"  # read and written with a log from the first time on, never with a rollback journal
    return bytes(content)


def check_pages(file: sqlite3.Connection) -> None:
    """Refuse a malformed file, of any schema."""
    damage = [row[0] for row in file.execute("PRAGMA integrity_check(1)")]
    if damage != ["ok"]:
        raise BadRows(f"it is damaged: {' '.join(damage[0].split())}")


def check_tables(file: sqlite3.Connection) -> None:
    """Refuse a file with other tables than those of the present schema."""
    found = file.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")
    if {" ".join(sql.split()) for (sql,) in found} != {" ".join(it.split()) for it in _TABLES}:
        raise BadRows("it is damaged: its tables are not those of its schema")
