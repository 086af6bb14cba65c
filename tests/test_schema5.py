"""State files of schema 5 are migrated: their sites show what they showed, and a damaged or older one is refused.

``golden/schema5/make.py`` tells how the files were made, ``expected.json`` what their sites showed.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fedbandit import FedBatch, FedUCB
from fedbandit.agent.core.decisions import Request
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.site import DecisionDraws, Site
from fedbandit.agent.disk import journal as journal_module
from fedbandit.agent.disk.journal import SCHEMA, JournalError, SqliteJournal

FOLDER = Path(__file__).parent / "golden" / "schema5"
WRITTEN = json.loads((FOLDER / "expected.json").read_text())
ARMS = ("red", "green")
TERMS = {
    "plain": Federation("batch", 3, ARMS, 0.0, 1.0, FedBatch(1.0, first_batch=3)),
    "window": Federation("window", 3, ARMS, 0.0, 1.0, FedBatch(1.0, first_batch=3), reward_window=12.0),
    "tree": Federation("tree", 3, ARMS, -1.0, 1.0, FedUCB(2.0, horizon=100)),
}


@pytest.fixture(params=WRITTEN)
def name(request):
    return request.param


@pytest.fixture
def path(name, tmp_path):
    for file in (f"{name}.db", f"{name}.db-commits"):
        shutil.copy(FOLDER / file, tmp_path)
        (tmp_path / file).chmod(0o600)
    return tmp_path / f"{name}.db"


def opened(path, **options):
    return SqliteJournal(path, "a", TERMS[path.stem], 1, **options)


def site_of(path, journal):
    return Site("a", TERMS[path.stem], journal.load(), lambda epsilon, count: [0] * count)


def test_a_migrated_site_shows_what_it_showed_and_goes_on(name, path):
    written = WRITTEN[name]
    with closing(opened(path)) as journal:
        site = site_of(path, journal)
        assert TERMS[name].digest() == written["digest"]
        for key in ("tried", "rewards", "releases", "own"):
            assert list(getattr(site, key)) == written[key], key
        assert [site.pending, site.waiting, site.late] == [written[key] for key in ("pending", "waiting", "late")]
        rows = [
            [it.id, it.number, it.arm, it.at, it.reward, it.played, it.late, it.rewarded]
            for it in site.stored.decisions.values()
        ]
        assert rows == written["remembered"]
        assert journal._file.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
        assert not journal.was_migrated, "neighbours have its seals: it must be confirmed as ever"
        pending = next(it for it in site.stored.decisions.values() if it.is_open and not it.rewarded)
        journal.commit(site.cancel(pending.id, pending.at).records)
        step = site.decide(2e9, [DecisionDraws((0.0, 0.0), 0.5)], Request(key="k", subject="s", eligible=(1,)))
        journal.commit(step.records)
        assert journal.load() == site.stored
    with closing(opened(path)) as journal:
        again = site_of(path, journal)
        assert (again.tried, again.rewards, again.own) == (site.tried, site.rewards, site.own)


def test_the_counter_stays_that_of_the_file(path):
    """So a file that is put back from before the migration is noticed as any other that is old."""
    old = path.read_bytes()
    with closing(opened(path)) as journal:
        site = site_of(path, journal)
        journal.commit(site.decide(2e9, DecisionDraws((0.0, 0.0), 0.5)).records)
    path.write_bytes(old)
    with pytest.raises(JournalError, match="1 commits that were acknowledged are missing"):
        opened(path)
    with closing(opened(path, accept_old=True)) as journal:
        journal.commit(site_of(path, journal).decide(2e9, DecisionDraws((0.0, 0.0), 0.5)).records)
    opened(path).close()


def test_a_crash_in_the_middle_of_the_migration_leaves_the_file_as_it_was(path, monkeypatch):
    before = path.read_bytes()

    def fails(*_):
        raise OSError("the process died")

    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "check_tables", fails)
        with pytest.raises(OSError, match="died"):
            opened(path)
    assert path.read_bytes() == before
    opened(path).close()


@pytest.mark.parametrize("change", ["UPDATE decision SET arm = 1 - arm WHERE number = 20", "DELETE FROM known"])
def test_a_damaged_file_is_refused_and_not_migrated(path, change):
    file = sqlite3.connect(path)
    file.execute(change)
    file.commit()
    file.close()
    with pytest.raises(JournalError, match=r"damaged|not those of the last commit"):
        opened(path)
    file = sqlite3.connect(path)
    assert file.execute("PRAGMA user_version").fetchone() == (5,)
    file.close()


def test_without_its_counter_a_file_is_refused(path):
    path.with_name(f"{path.name}-commits").unlink()
    with pytest.raises(JournalError, match="is missing: nothing tells whether the file lacks commits"):
        opened(path)
