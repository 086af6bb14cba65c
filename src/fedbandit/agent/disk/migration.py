"""Converts the tables of schema 2 to today's records, and adds the columns that schema 3 lacks.

Nothing is drawn and nothing is lost: releases, sums and noise are those of the file. ``SqliteJournal`` writes the
records and drops the old tables in one transaction.
"""

import json
import sqlite3
from typing import Any

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.messages import MAX_COUNT
from fedbandit.agent.core.records import Known, Record, Released
from fedbandit.checks import InvalidArgument, whole_number
from fedbandit.policies import FedBatch, FedUCB, GossipUCB
from fedbandit.policies.fed_batch import add_release, keep_safe_radius
from fedbandit.privacy.mechanism import Mechanism
from fedbandit.privacy.noise import to_steps
from fedbandit.rules.mean import last_end, trailing_zeros

__all__ = ["DECISIONS_OF_SCHEMA_3", "OLD_TABLES", "SLOTS_FROM_SCHEMA_3", "records_of_schema_2"]

OLD_TABLES = ("batch", "release", "arm_sum", "arm_tree")
"""What schema 3 no longer has."""

SLOTS_FROM_SCHEMA_3 = """
ALTER TABLE agent ADD COLUMN clock REAL;
ALTER TABLE agent ADD COLUMN late INTEGER;
ALTER TABLE agent ADD COLUMN by_arrival INTEGER;
ALTER TABLE agent ADD COLUMN since REAL;
ALTER TABLE agent ADD COLUMN key BLOB;
ALTER TABLE agent ADD COLUMN is_stale INTEGER;
UPDATE agent SET clock = 0.0, late = 0, by_arrival = decisions;
ALTER TABLE decision RENAME TO old_decision;
"""
"""Rewards counted as they came. Later ones of a decision of that time do so still: its slot was given to others."""

DECISIONS_OF_SCHEMA_3 = """
INSERT INTO decision SELECT id, number, arm, at, reward IS NOT NULL, 0, reward IS NOT NULL FROM old_decision
    ORDER BY number;
DROP TABLE old_decision;
"""
"""They keep their ids, for their applications know no others. Their rewards have been played, and are dropped."""


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
        keep_safe_radius(me, own.terms, arm, size)
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
