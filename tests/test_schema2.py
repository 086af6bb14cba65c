"""State files of schema 2 are migrated: their sites show what they showed, and go on as they would have.

``golden/schema2/make.py`` tells how the files were made, ``expected.json`` what their sites showed and did next when
the agent that wrote them had read them again.
"""

import json
import shutil
import sqlite3
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.site import DecisionDraws, Site
from fedbandit.agent.disk import journal as journal_module
from fedbandit.agent.disk import migration as migration_module
from fedbandit.agent.disk.journal import SCHEMA, JournalError, SqliteJournal
from fedbandit.agent.disk.migration import OLD_TABLES
from fedbandit.agent.disk.rows import RELEASED, TABLES
from fedbandit.policies.registry import policy_from

FOLDER = Path(__file__).parent / "golden" / "schema2"
WRITTEN = json.loads((FOLDER / "expected.json").read_text())
NAME = "a"


def terms_of(name):
    given = WRITTEN[name]["terms"]
    policy = {key: value for key, value in given["policy"].items() if value is not None}
    return Federation(**{**given, "policy": policy_from("policy", policy), "counts": "sites"})


def copy_of(name, folder, golden=FOLDER):
    """A copy as an agent keeps its file; without the counter of a file that was there before."""
    (folder / f"{name}.db-commits").unlink(missing_ok=True)
    path = Path(shutil.copy(golden / f"{name}.db", folder))
    path.chmod(0o600)
    return path


def opened(path, name):
    return SqliteJournal(path, NAME, terms_of(name), epoch=1)


def loaded(path, name):
    journal = opened(path, name)
    try:
        return journal.load()
    finally:
        journal.close()


def fixed_noise(numbers):
    """A source that gives these numbers, one after the other, and begins anew after the last."""
    given = cycle(numbers)
    return lambda epsilon, count: [next(given) for _ in range(count)]


def shown(site, stored):
    """All that can be seen of a site; ``stored`` is what it was made of."""
    return {
        "name": site.name,
        "epoch": site.epoch,
        "born": stored.born,
        "theta": site.theta,
        "radius": site.radius,
        "rewards": site.rewards,
        "tried": site.tried,
        "own": site.own,
        "gossiped": site.gossiped,
        "estimates": [
            {"x_mean": mean, "released": released, "releases": releases}
            for mean, released, releases in zip(site.own_means, site.released, site.releases, strict=True)
        ],
        "pending": site.pending,
        "pending_ids": [decision.id for decision in stored.decisions.values() if not decision.rewarded],
        "remembered": site.remembered,
        "decided": site.decided,
        "releases": site.privacy().releases,
        "links": [
            {
                "neighbour": link.neighbour,
                "epoch": link.epoch,
                "flow": link.register[0],
                "version": link.register[1][0],
                "writer": link.register[1][1],
                "left": link.left,
            }
            for link in site.links
        ],
    }


def carried_on(site, given, commit=lambda records: None):
    """What a site does with the inputs: each decision has its reward at once."""
    arms = []
    for drawn, reward in zip(given["draws"], given["rewards"], strict=True):
        step = site.decide(given["at"], DecisionDraws(tuple(drawn["normals"]), drawn["u"]))
        commit(step.records)
        commit(site.report(step.result.id, reward).records)
        arms.append(step.result.arm)
    return {"arms": arms, "theta": site.theta, "gossiped": site.gossiped, "own": site.own, "rewards": site.rewards}


def same(found, written, tolerance):
    """Equal; floats, where both have one, up to the tolerance."""
    if isinstance(written, dict):
        return found.keys() == written.keys() and all(same(found[key], written[key], tolerance) for key in written)
    if isinstance(written, list):
        return len(found) == len(written) and all(same(x, y, tolerance) for x, y in zip(found, written, strict=True))
    if isinstance(written, float):
        return isinstance(found, float) and abs(found - written) <= tolerance
    return found == written


def test_every_file_is_described():
    assert {path.stem for path in FOLDER.glob("*.db")} == WRITTEN.keys()
    assert not [*FOLDER.glob("*.db-*")]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_migrated_site_shows_what_it_showed_and_goes_on_as_it_would_have(name, tmp_path):
    """Numbers to 1e-9 of the range; counts, arms and ids exactly; and the file keeps up with it."""
    written, terms, path = WRITTEN[name], terms_of(name), copy_of(name, tmp_path)
    assert terms.terms() == written["terms"]
    journal = opened(path, name)
    stored = journal.load()
    site = Site(NAME, terms, stored, fixed_noise(written["inputs"]["noise"]))
    assert site.stored == stored
    tolerance = 1e-9 * (terms.high - terms.low)
    for key, value in shown(site, stored).items():
        assert same(json.loads(json.dumps(value)), written["now"][key], tolerance), key
    if terms.catches_up:  # n~ is no longer in the file: neighbours tell it again
        site._standings.hear("there", (), 1, tuple(written["now"]["n_max"]))
    for key, value in carried_on(site, written["inputs"], journal.commit).items():
        assert same(json.loads(json.dumps(value)), written["next"][key], tolerance), key
    assert journal.load() == site.stored
    journal.close()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_is_migrated_once(name, tmp_path):
    """The second start finds the present schema and none of the old tables; nothing else has changed."""
    path = copy_of(name, tmp_path)
    first = loaded(path, name)
    raw = sqlite3.connect(path)
    tables = {row[0] for row in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    (version,) = raw.execute("PRAGMA user_version").fetchone()
    raw.close()
    assert version == SCHEMA == 6
    assert tables == {"agent", "decision", "link", "waiting", "kept", "known", "released", "arm_change"}
    assert loaded(path, name) == first


def test_what_was_released_before_is_not_drawn_again(tmp_path):
    """The marks of a migrated tree are those of its pulls: no level can go back."""
    stored = loaded(copy_of("fed_ucb", tmp_path), "fed_ucb")
    for (arm, level), last in stored.released.items():
        pulls = stored.known[arm]["n"]
        assert last == max(end for end in range(1, pulls + 1) if end % 2 ** (level + 1) == 2**level)
    stored = loaded(copy_of("fed_batch", tmp_path), "fed_batch")
    assert stored.released == {(arm, 0): fields["released"] for arm, fields in stored.known.items()}


@pytest.mark.parametrize("name", WRITTEN)
def test_sums_and_noise_of_a_migrated_file_are_whole_numbers(name, tmp_path):
    if name == "gossip_ucb":
        pytest.skip("it is not private: its sums are not rounded")
    for fields in loaded(copy_of(name, tmp_path), name).known.values():
        assert type(fields["total"]) is int
        assert all(type(slot) is int for slot in fields.get("slots", []))


class TestACrash:
    """In the middle of the migration: the old file is still there, and the next start migrates it."""

    @staticmethod
    def dump(path):
        raw = sqlite3.connect(path)
        lines, version = list(raw.iterdump()), raw.execute("PRAGMA user_version").fetchone()
        raw.close()
        return lines, version

    @pytest.mark.parametrize("name", WRITTEN)
    @pytest.mark.parametrize("broken", ["_make", "_make_raw", "_finish"])
    def test_that_raises(self, name, broken, tmp_path, monkeypatch):
        path = copy_of(name, tmp_path)
        before = self.dump(path)
        with monkeypatch.context() as patch:

            def fails(*_):
                raise KeyboardInterrupt

            patch.setattr(migration_module, broken, fails)
            with pytest.raises(KeyboardInterrupt):
                opened(path, name)
        assert self.dump(path) == before
        assert loaded(path, name).known

    def test_that_kills_the_process(self, tmp_path, monkeypatch):
        """What a killed process leaves is the file and its log as they are before the commit."""
        path, left = copy_of("fed_batch", tmp_path), tmp_path / "left"
        before = self.dump(path)

        def copied(*arguments):
            migrate(*arguments)
            left.mkdir(mode=0o700)
            for file in tmp_path.glob("fed_batch.db*"):
                shutil.copy(file, left)

        migrate = migration_module.migrate
        with monkeypatch.context() as patch:
            patch.setattr(journal_module, "migrate", copied)
            opened(path, "fed_batch").close()
        assert self.dump(left / "fed_batch.db") == before
        again = loaded(left / "fed_batch.db", "fed_batch")
        assert replace(again, key=b"") == replace(loaded(path, "fed_batch"), key=b""), "keys are drawn"


def test_other_schemas_are_refused_with_words(tmp_path):
    for version in (1, 7):
        path = copy_of("fed_batch", tmp_path)
        raw = sqlite3.connect(path)
        raw.execute(f"PRAGMA user_version = {version}")
        raw.close()
        with pytest.raises(
            JournalError, match=f"schema is {version}, this version .* reads 6 and migrates 2, 3, 4 and 5"
        ):
            opened(path, "fed_batch")


def test_an_old_file_of_another_site_is_refused_and_not_migrated(tmp_path):
    path = copy_of("fed_batch", tmp_path)
    with pytest.raises(JournalError, match="belongs to the agent 'a'"):
        SqliteJournal(path, "b", terms_of("fed_batch"), 1)
    with pytest.raises(JournalError, match="other terms"):
        opened(path, "fed_batch_wide")
    assert TestACrash.dump(path)[1] == (2,)


def test_an_old_file_that_makes_no_sense_is_refused_with_words(tmp_path):
    path = copy_of("fed_ucb", tmp_path)
    raw = sqlite3.connect(path)
    raw.execute("UPDATE arm_tree SET slots = '[]'")
    raw.commit()
    raw.close()
    with pytest.raises(JournalError, match="schema is 2, and it cannot be migrated"):
        opened(path, "fed_ucb")
    assert TestACrash.dump(path)[1] == (2,)


def test_the_old_tables_are_those_of_schema_2():
    raw = sqlite3.connect(f"file:{FOLDER / 'fed_batch.db'}?mode=ro", uri=True)
    tables = {row[0] for row in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    raw.close()
    assert set(OLD_TABLES) < tables
    assert not any(f"TABLE {table} " in TABLES + RELEASED for table in OLD_TABLES)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("fed_batch", "INSERT INTO batch VALUES (-1, 3, 100)"),
        ("fed_batch", "UPDATE batch SET total = NULL"),
        ("fed_batch", "UPDATE batch SET count = -50"),
        ("fed_batch", "UPDATE batch SET count = 100000"),
        ("fed_batch", "DELETE FROM release WHERE rowid = 1"),
        ("fed_batch", "UPDATE release SET last = last + 1000"),
        ("fed_batch", "UPDATE release SET size = 0"),
        ("fed_batch", "UPDATE release SET value = 1e306"),
        ("gossip_ucb", "UPDATE arm_sum SET arm = -1 WHERE arm = 1"),
        ("fed_ucb", "UPDATE arm_tree SET pulls = -3"),
        ("fed_ucb", "UPDATE arm_tree SET arm = -arm - 1"),
    ],
)
def test_a_damaged_file_is_refused_and_stays_as_it_was(name, damage, tmp_path):
    """The old tables go only once the new rows have been read: nothing is lost to a migration that cannot be done."""
    path = copy_of(name, tmp_path)
    with sqlite3.connect(path) as file:
        file.execute(damage)
        before = list(file.iterdump())
    file.close()
    with pytest.raises(JournalError, match="its schema is 2, and it cannot be migrated"):
        opened(path, name)
    after = sqlite3.connect(path)
    assert list(after.iterdump()) == before
    assert after.execute("PRAGMA user_version").fetchone() == (2,)
    after.close()
