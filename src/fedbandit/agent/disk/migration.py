"""Makes state files, and migrates those of the schemas 2, 3, 4 and 5.

No noise is drawn and nothing is lost: releases, sums and noise are those of the file. ``SqliteJournal`` holds the
transaction in which a file is migrated.
"""

import json
import sqlite3
from secrets import token_bytes
from typing import Any

from fedbandit.agent.core.decisions import KEY_SIZE
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.messages import MAX_COUNT
from fedbandit.agent.core.records import Known, Life, Record, Released, Stored
from fedbandit.agent.disk.rows import (
    ARM_CHANGES,
    DECISION,
    KEPT_TABLE,
    RAW_TABLES,
    RELEASED,
    SCHEMA,
    TABLES,
    AgentRow,
    BadRows,
    Rows,
    insert_agent,
    make_known,
    statements,
)
from fedbandit.checks import InvalidArgument, whole_number
from fedbandit.policies import FedBatch, FedUCB, GossipUCB, fed_batch
from fedbandit.policies.fed_batch import add_release
from fedbandit.policies.plain import NO_ARM
from fedbandit.privacy.mechanism import Mechanism
from fedbandit.privacy.noise import to_steps
from fedbandit.rules.mean import last_end, trailing_zeros

__all__ = ["OLD_TABLES", "make_file", "migrate", "records_of_schema_2"]

OLD_TABLES = ("batch", "release", "arm_sum", "arm_tree")
"""What schema 3 no longer has."""

_RENAMED = ("agent", "link", "decision")

_AGENT = """
INSERT INTO agent (one, name, federation, terms, born, by_arrival, epoch, decisions, clock, late, since, key)
    SELECT one, name, federation, terms, born, {by_arrival}, epoch, decisions, {times}, {key} FROM old_agent
"""

_DECISIONS = """
INSERT INTO decision SELECT id, number, arm, at, {flags}, 0, NULL, x'', x'', x'', 0 FROM old_decision
"""

_LINKS = "INSERT INTO link SELECT neighbour, epoch, flow, version, writer, has_left, 0, '' FROM old_link ORDER BY rowid"

_FROM_SCHEMA_3 = (
    # Rewards counted as they came. Later ones of a decision of that time do so still: its slot was given to others.
    _AGENT.format(by_arrival="decisions", times="0.0, 0, NULL", key="NULL"),
    # They keep their ids, for their applications know no others. Their rewards have been played, and are dropped.
    _DECISIONS.format(flags="reward IS NOT NULL, 0, reward IS NOT NULL"),
    _LINKS,
)

_FROM_SCHEMA_4 = (
    _AGENT.format(by_arrival="by_arrival", times="clock, late, since", key="key"),
    _DECISIONS.format(flags="played, late, rewarded"),
    _LINKS,
)


def migrate(file: sqlite3.Connection, version: int, terms: Federation, identity: bytes) -> None:
    """To the present schema, in the transaction that is open: after a crash the old file is still there.

    Raises ``BadRows`` if an old file makes no sense.
    """
    if version == 5:
        _migrate_5(file)
        return
    records: list[Record] = []
    if version == 2:
        records = _checked_records_of_schema_2(file, terms)
        _make(file, RELEASED)
    elif version == 3:
        rows = file.execute("SELECT arm, fields FROM known").fetchall()
        records = [Known(arm, json.loads(fields)) for arm, fields in rows]
        file.execute("DROP TABLE known")
    for table in _RENAMED:
        file.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    _make(file, TABLES + DECISION + KEPT_TABLE + ARM_CHANGES)
    for statement in _FROM_SCHEMA_4 if version == 4 else _FROM_SCHEMA_3:
        file.execute(statement)
    for table in _RENAMED:
        file.execute(f"DROP TABLE old_{table}")
    if version < 4:
        _make_raw(file, terms)
        file.execute("UPDATE agent SET key = ?", (token_bytes(KEY_SIZE),))
    file.execute("UPDATE agent SET identity = ?, is_stale = 1, commits = 0, run = 0, checksum = 0", (identity,))
    _finish(file, records)


def _migrate_5(file: sqlite3.Connection) -> None:
    """Decisions get columns; identity and number of commits stay: its neighbours know it, and its counter."""
    file.execute("ALTER TABLE decision RENAME TO old_decision")
    _make(file, DECISION + KEPT_TABLE + ARM_CHANGES)
    file.execute(_DECISIONS.format(flags="played, late, rewarded"))
    file.execute("DROP TABLE old_decision")
    _finish(file, [])


def make_file(name: str, terms: Federation, epoch: int, identity: bytes) -> bytes:
    """The content of a new state file, whose life begins with this epoch."""
    file = sqlite3.connect(":memory:", isolation_level=None)
    try:
        _make(file, TABLES + DECISION + RELEASED + KEPT_TABLE + ARM_CHANGES)
        _make_raw(file, terms)
        shown = terms.digest(), json.dumps(terms.terms())
        insert_agent(file, AgentRow(name, *shown, epoch, 0, token_bytes(KEY_SIZE), identity, epoch, 0))
        _finish(file, [])
        content = bytearray(file.serialize())
    finally:
        file.close()
    content[18:20] = b"\x02\x02"  # read and written with a log from the first time on, never with a rollback journal
    return bytes(content)


def _make(file: sqlite3.Connection, tables: str) -> None:
    for statement in statements(tables):
        file.execute(statement)


def _make_raw(file: sqlite3.Connection, terms: Federation) -> None:
    _make(file, RAW_TABLES)
    make_known(file, range(NO_ARM, terms.num_arms))


def _finish(file: sqlite3.Connection, records: list[Record]) -> None:
    rows = Rows(file)
    rows.seal()
    if records:
        rows.write(records)
    file.execute(f"PRAGMA user_version = {SCHEMA}")


def _checked_records_of_schema_2(file: sqlite3.Connection, terms: Federation) -> list[Record]:
    try:
        records = records_of_schema_2(file, terms)
        migrated = Stored(Life(1, 0), 1)
        migrated.apply(records)
        terms.mechanism().restore(migrated.known, migrated.released)  # while the old tables are still there
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise BadRows(f"its schema is 2, and it cannot be migrated: {error}") from error
    for table in OLD_TABLES:
        file.execute(f"DROP TABLE {table}")
    return records


def records_of_schema_2(file: sqlite3.Connection, terms: Federation) -> list[Record]:
    """What the site knows and has released, by the page of its policy."""
    own = terms.mechanism()
    match terms.policy:
        case FedBatch():
            released = _from_batches(file, terms, own)
        case FedUCB():
            released = _from_trees(file, terms, own)
        case GossipUCB():
            released = _from_sums(file, terms, own)
        case _:
            raise InvalidArgument("schema", 2, "3 for an own policy: there were none before")
    arms = [k for k in range(terms.num_arms) if own.me.n[k] > 0]
    return [*(Known(k, own.kept(k)) for k in arms), *released]


def _check_arm(arm: int, terms: Federation) -> None:
    whole_number("arm", arm, 0, terms.num_arms - 1)  # a negative one would count from the end


def _from_batches(file: sqlite3.Connection, terms: Federation, own: Mechanism) -> list[Released]:
    """Every release again, in its order: its value tells the noisy sum, a whole number of steps."""
    me = own.me
    last_of: dict[int, int] = {}
    rows = file.execute("SELECT arm, first, last, value, size FROM release ORDER BY arm, first")
    for arm, first, last, value, size in rows:
        _check_arm(arm, terms)
        if first != me.released[arm] + 1 or last < first or size != last - first + 1:
            raise InvalidArgument(f"releases of arm {arm}", (first, last, size), "one after the other, without gaps")
        me.n[arm] = last_of[arm] = last
        add_release(me, own.terms, arm, round(to_steps(value, terms.low, terms.high) * size), 0)
        fed_batch.keep_safe_radius(me, own.terms, arm, size)
    for arm, count, total in file.execute("SELECT arm, count, total FROM batch"):
        _check_arm(arm, terms)
        me.n[arm] += count
        me.total[arm] = total
    return [Released(arm, 0, last) for arm, last in last_of.items()]


def _from_sums(file: sqlite3.Connection, terms: Federation, own: Mechanism) -> list[Released]:
    """The sum of all rewards. The page computes the rest when the last of them is played again, as 0."""
    for arm, count, total in file.execute("SELECT arm, count, total FROM arm_sum"):
        _check_arm(arm, terms)
        if whole_number("count", count, 0, MAX_COUNT) == 0:
            continue
        own.me.n[arm] = count - 1
        own.me.total[arm] = to_steps(total, terms.low, terms.high, count)
        own.page.observe(own.me, own.terms, arm, 0.0, 0.0)
    return []


def _from_trees(file: sqlite3.Connection, terms: Federation, own: Mechanism) -> list[Released]:
    """Raw sums of intervals, noisy sums of prefixes: their differences are the noise that the page keeps."""
    released: list[Released] = []
    for arm, pulls, sums, slots in file.execute("SELECT arm, pulls, sums, slots FROM arm_tree"):
        _check_arm(arm, terms)
        if whole_number("pulls", pulls, 0, MAX_COUNT) == 0:
            continue
        _play_tree(terms, own, arm, pulls, json.loads(sums), json.loads(slots))
        ends = [(level, last_end(pulls, level)) for level in range(pulls.bit_length())]
        released += [Released(arm, level, end) for level, end in ends if end > 0]
    return released


def _play_tree(terms: Federation, own: Mechanism, arm: int, pulls: int, sums: list[int], slots: list[float]) -> None:
    """All that the page keeps of the tree; its last pull is played again, as 0 with the noise of its interval."""
    me: Any = own.me

    def raw(end: int) -> int:  # of pulls 1 to ``end``: a sum for each of its bits
        return sum(sums[level] for level in range(end.bit_length()) if end >> level & 1)

    def noise(end: int) -> int:
        if end == 0:
            return 0
        return round(to_steps(slots[trailing_zeros(end)], terms.low, terms.high, end)) - raw(end)

    before = pulls & (pulls - 1)
    end = before
    while end > 0:
        me.slots[arm][trailing_zeros(end)] = noise(end)
        end &= end - 1
    me.n[arm], me.total[arm] = pulls - 1, raw(pulls)
    own.page.observe(me, own.terms, arm, 0, noise(pulls) - noise(before))
