"""State files of schema 3 are migrated: their sites show what they showed, and their old decisions count as they come.

``golden/schema3/make.py`` tells how the files were made, ``expected.json`` what their sites showed.
"""

import json
import sqlite3
from pathlib import Path

import pytest

from fedbandit import FedBatch, FedUCB, GossipUCB
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.site import DecisionDraws, Site
from fedbandit.agent.disk.journal import SCHEMA, SqliteJournal
from test_schema2 import copy_of

FOLDER = Path(__file__).parent / "golden" / "schema3"
WRITTEN = json.loads((FOLDER / "expected.json").read_text())
TERMS = {
    "fed_batch": Federation("batch", 3, ("red", "green"), 0.0, 1.0, FedBatch(1.0, first_batch=3), counts="sites"),
    "fed_ucb": Federation("tree", 3, ("red", "green"), -1.0, 1.0, FedUCB(2.0, horizon=100)),
    "gossip_ucb": Federation("exact", 3, ("red", "green"), 0.0, 5.0, GossipUCB()),
}
NEVER = 10**9


@pytest.fixture(params=WRITTEN)
def name(request):
    return request.param


@pytest.fixture
def journal(name, tmp_path):
    made = SqliteJournal(copy_of(name, tmp_path, FOLDER), "a", TERMS[name], 1)
    yield made
    made.close()


def opened(name, journal):
    return Site("a", TERMS[name], journal.load(), lambda epsilon, count: [0] * count)


def test_the_terms_of_a_federation_without_a_window_are_what_they_were(name):
    assert TERMS[name].digest() == WRITTEN[name]["digest"]


def test_a_migrated_site_shows_what_it_showed(name, journal):
    site, written = opened(name, journal), WRITTEN[name]
    for key in ("tried", "rewards", "releases", "own"):
        assert list(getattr(site, key)) == written[key], key
    rows = [[it.id, it.arm, it.at, it.rewarded] for it in site.stored.decisions.values()]
    assert rows == [[*known, reward is not None] for *known, reward in written["remembered"]]
    assert (site.pending, site.waiting, site.late) == (len(written["pending"]), 0, 0)
    assert journal._file.execute("PRAGMA user_version").fetchone() == (SCHEMA,)


def test_old_decisions_count_as_they_come_and_hold_up_no_new_ones(name, journal):
    site, written = opened(name, journal), WRITTEN[name]
    draws = DecisionDraws((0.0, 0.0), 0.5)
    before = sum(site.rewards)
    for at in range(10):
        step = site.decide(2e9 + at, draws)
        journal.commit(step.records)
        journal.commit(site.report(step.result.id, 0.5).records)
    assert sum(site.rewards) == before + 10
    last = written["pending"][-1]
    journal.commit(site.report(last, 0.5).records)
    assert sum(site.rewards) == before + 11
    assert site.report(last, 0.5).records == (), "idempotent, as ever"
    tried = sum(site.tried)
    journal.commit(site.expire(1.9e9, NEVER).records)
    assert sum(site.tried) == tried - len(written["pending"]) + 1, "as it was: they do not count"
    assert sum(site.rewards) == before + 11
    assert journal.load() == site.stored
    assert opened(name, journal).tried == site.tried


def test_the_files_are_as_they_were_written():
    for file in FOLDER.glob("*.db"):
        raw = sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)
        assert raw.execute("PRAGMA user_version").fetchone() == (3,)
        raw.close()
