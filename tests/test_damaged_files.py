"""A damaged, cut, old or foreign state file is refused with words: never another site in silence."""

import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fedbandit.agent.core.board import BoardRow, Kept
from fedbandit.agent.core.bulletin import Signed
from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.agent.core.records import DecisionRecord, Forgotten, Numbering, Released, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk import secret_files, state_files
from fedbandit.agent.disk.journal import SCHEMA, JournalError, SqliteJournal, look_at
from live import TERMS

WINDOW = replace(TERMS, reward_window=50.0)
DRAWS = SiteDraws((0.3, -0.2, 0.1), 0.0)
FRAME, HEADER = 4096 + 24, 32


def opened(path, **more):
    return SqliteJournal(path, "here", WINDOW, 1, **more)


def play(journal, rounds, start=0):
    """Decisions, rewards that count and rewards that wait, releases, bulletins: rows in every table."""
    site = Site("here", WINDOW, journal.load(), lambda epsilon, count: [0] * count)
    if start == 0:
        journal.commit(site.link(["there", "third"]).records)
        for name in ("there", "third"):
            journal.commit(site.merge(bulletin_of(name), name, 1e9).records)
        journal.commit(site.exclude("third", 1, "wrong").records)
    for i in range(start, start + rounds):
        now = 5.0 * i
        while site.is_due(now):
            journal.commit(site.settle(now).records)
        decision = site.decide(now, DRAWS)
        journal.commit(decision.records)
        journal.commit(site.report(decision.result.id, i % 3 / 2.0).records)
        journal.commit(site.publish(unsigned, 1e9 + now).records)
    if start == 0:
        journal.commit(site.change_arm("suspend", TERMS.arms[2], 1, "recalled").records)
    journal.commit(site.board_rows().records)


def unsigned(_):
    return b"signature", b"signer"


def bulletin_of(name):
    """The first bulletin of another site."""
    other = Site(name, WINDOW, Stored(Numbering(1, 0)))
    return other.publish(unsigned, 1e9).result


def rewarded(path):
    with closing(opened(path)) as journal:
        return sum(it.rewarded for it in journal.load().decisions.values())


@pytest.fixture
def path(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    return tmp_path / "data" / "state.sqlite"


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The folder of an agent that has stopped, and what its file holds."""
    folder = tmp_path_factory.mktemp("played")
    with closing(opened(folder / "state.sqlite")) as journal:
        play(journal, 40)
        return folder, journal.load()


@pytest.fixture
def stored(played, path):
    """What the file holds: that of an agent that has stopped."""
    shutil.copytree(played[0], path.parent, dirs_exist_ok=True)
    return played[1]


def copied(path, folder):
    """The files of a process as they are at this moment: what it leaves if it is killed."""
    shutil.copytree(path.parent, folder)
    return folder / path.name


def beside(path, suffix):
    return path.with_name(path.name + suffix)


# ---------------------------------------------------------------- commits that are missing


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The files of a process that was killed after 12 acknowledged rewards, most of them in its log."""
    path = tmp_path_factory.mktemp("running") / "state.sqlite"
    with closing(opened(path)) as journal:
        play(journal, 4)
        journal.erase()
        play(journal, 8, start=4)
        return copied(path, tmp_path_factory.mktemp("killed") / "data")


class TestTheLog:
    def test_a_whole_one_is_read(self, killed, tmp_path):
        assert rewarded(copied(killed, tmp_path / "whole")) == 12

    def test_a_cut_one_is_refused_wherever_it_is_cut(self, killed, tmp_path):
        """In its header, in and between frames: it has all that was acknowledged, or the agent says what is missing."""
        log = beside(killed, "-wal").read_bytes()
        frames = (len(log) - HEADER) // FRAME
        assert len(log) == HEADER + frames * FRAME
        assert frames > 20
        cuts = {0, 1, HEADER - 1, HEADER}
        for number in {0, 1, frames // 2, frames - 3, frames - 2, frames - 1}:
            begin = HEADER + number * FRAME
            cuts |= {begin, begin + 1, begin + 23, begin + 24, begin + 25, begin + FRAME // 2, begin + FRAME - 1}
        for length in sorted(cuts):
            cut = copied(killed, tmp_path / f"cut-{length}")
            with beside(cut, "-wal").open("r+b") as file:
                file.truncate(length)
            with pytest.raises(JournalError, match=r"\d+ commits that were acknowledged are missing: it has"):
                opened(cut)

    def test_a_missing_one_is_refused(self, killed, tmp_path):
        killed = copied(killed, tmp_path / "missing")
        beside(killed, "-wal").unlink()
        for _ in range(2):  # and again: nothing was made of it
            with pytest.raises(JournalError, match=r"The log .* was removed or cut, or an older copy"):
                opened(killed)

    def test_a_flipped_byte_in_it_is_refused(self, killed, tmp_path):
        log, random = beside(killed, "-wal").read_bytes(), Random(1)  # noqa: S311
        for place in [0, 9, 17, 25, *random.sample(range(HEADER, len(log)), 30)]:
            changed = bytearray(log)
            changed[place] ^= 1 << random.randrange(8)
            flipped = copied(killed, tmp_path / f"flipped-{place}")
            beside(flipped, "-wal").write_bytes(changed)
            try:
                assert rewarded(flipped) == 12
            except JournalError as error:
                assert "commits that were acknowledged are missing" in str(error)  # noqa: PT017

    def test_one_of_another_time_is_refused(self, path, tmp_path):
        """Beside a later file it takes pages back; beside an earlier one it mixes pages of two times."""
        with closing(opened(path)) as journal:
            play(journal, 4)
            first = copied(path, tmp_path / "first")
            journal.erase()
            second = copied(path, tmp_path / "second")
            play(journal, 30, start=4)
            journal.erase()
            play(journal, 1, start=34)
            third = copied(path, tmp_path / "third")
        for file, log in ((second, first), (third, first), (second, third)):
            mixed = copied(third, tmp_path / f"{file.parent.name}-{log.parent.name}")
            shutil.copy(file, mixed)
            shutil.copy(beside(log, "-wal"), beside(mixed, "-wal"))
            with pytest.raises(JournalError, match=r"missing|not those of the last commit|damaged|malformed"):
                opened(mixed)

    def test_an_older_copy_beside_the_counter_is_refused(self, path, stored, tmp_path):
        older = copied(path, tmp_path / "older")
        with closing(opened(path)) as journal:
            play(journal, 2, start=40)
        shutil.copy(older, path)
        with pytest.raises(JournalError, match="an older copy was put in place"):
            opened(path)

    def test_a_refusal_leaves_the_files_as_they_are(self, path, tmp_path):
        """An old log beside a later file would be written to it, when SQLite closes it."""
        with closing(opened(path)) as journal:
            play(journal, 4)
            first = copied(path, tmp_path / "first")
            journal.erase()
            play(journal, 10, start=4)
        later = [file.read_bytes() for file in (path, beside(path, "-commits"))]
        shutil.copy(beside(first, "-wal"), path.parent)
        for _ in range(2):
            with pytest.raises(JournalError, match=r"missing|not those of the last commit|damaged|malformed"):
                opened(path)
        assert [file.read_bytes() for file in (path, beside(path, "-commits"))] == later
        assert beside(path, "-wal").read_bytes() == beside(first, "-wal").read_bytes()
        beside(path, "-wal").unlink()
        assert rewarded(path) == 14


class TestTheCounter:
    def test_it_may_be_behind(self, path, stored):
        """A process that is killed after a commit has not counted it; after a power cut it may be far behind."""
        before = beside(path, "-commits").read_bytes()
        with closing(opened(path)) as journal:
            play(journal, 3, start=40)
            now = journal.load()
        beside(path, "-commits").write_bytes(before)
        with closing(opened(path)) as journal:
            assert journal.load() == now
            journal.commit([Numbering(1, 43)])
        assert beside(path, "-commits").read_bytes() != before

    def test_it_is_not_ahead_when_a_commit_fails(self, path, stored):
        with closing(opened(path)) as journal:
            for _ in range(3):
                with pytest.raises(JournalError, match="has been released already"):
                    journal.commit([DecisionRecord("9", 9, 0, 0.0), Released(0, 0, 1)])
            assert journal.load() == stored
        with closing(opened(path)) as journal:
            assert journal.load() == stored

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda file: file.unlink(), "state.sqlite-commits is missing: nothing tells"),
            (lambda file: file.write_bytes(b""), "state.sqlite-commits is damaged"),
            (lambda file: file.write_bytes(file.read_bytes()[:-1]), "state.sqlite-commits is damaged"),
        ],
    )
    def test_without_it_a_file_is_refused(self, path, stored, change, words):
        change(beside(path, "-commits"))
        with pytest.raises(JournalError, match=words):
            opened(path)
        opened(path, accept_old=True).close()
        with pytest.raises(JournalError, match=words):  # a restore that was interrupted has changed nothing
            opened(path)
        with closing(opened(path, accept_old=True)) as journal:
            assert journal.load() == stored
            journal.commit([stored.numbering])
        with closing(opened(path)) as journal:
            assert journal.load() == stored

    def test_every_flipped_byte_of_it_is_noticed(self, path, stored):
        content = beside(path, "-commits").read_bytes()
        for place in range(len(content)):
            changed = bytearray(content)
            changed[place] ^= 4
            beside(path, "-commits").write_bytes(changed)
            with pytest.raises(JournalError, match="is damaged"):
                opened(path)

    def test_that_of_another_file_is_refused(self, path, stored, tmp_path):
        (tmp_path / "other").mkdir(mode=0o700)
        opened(tmp_path / "other" / "state.sqlite").close()
        shutil.copy(tmp_path / "other" / "state.sqlite-commits", path.parent)
        with pytest.raises(JournalError, match="commits is that of another file"):
            opened(path)

    def test_an_old_file_that_was_accepted_cannot_be_exchanged_for_the_lost_one(self, path, stored, tmp_path):
        older = copied(path, tmp_path / "older")
        with closing(opened(path)) as journal:
            play(journal, 2, start=40)
        with closing(opened(older, accept_old=True)) as journal:
            journal.commit([stored.numbering])
        shutil.copy(path, older)
        with pytest.raises(JournalError, match="another file"):
            opened(older)


# ---------------------------------------------------------------- another schema


@pytest.mark.parametrize("version", [2, 5, SCHEMA - 1, SCHEMA + 1])
def test_a_file_of_another_schema_is_refused_in_words_and_stays_as_it_is(path, stored, version):
    """Whoever looks at it, or means to restore it: it is for the version of the agent that wrote it."""
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version = {version}")
    before = {it.name: it.read_bytes() for it in path.parent.iterdir()}
    words = rf"its schema is {version}, this version of the agent reads {SCHEMA} alone"
    for open_it in (opened, lambda it: opened(it, accept_old=True), lambda it: look_at(it, "here", WINDOW)):
        with pytest.raises(JournalError, match=words):
            open_it(path)
        assert {it.name: it.read_bytes() for it in path.parent.iterdir()} == before


# ---------------------------------------------------------------- bytes and rows that have changed


def test_a_flipped_byte_changes_nothing_or_is_refused(path, stored, tmp_path):
    """The header, bytes in use all over the file, and some at random: never another site, never a bare error."""
    content, random = path.read_bytes(), Random(2)  # noqa: S311
    used = [place for place, byte in enumerate(content) if byte not in b"\0 "]
    places = {*range(100), *used[:: len(used) // 250], *random.sample(range(len(content)), 100)}
    counter = beside(path, "-commits").read_bytes()
    refused = 0
    for place in sorted(places):
        changed = bytearray(content)
        changed[place] ^= 1 << random.randrange(8)
        path.write_bytes(changed)
        try:
            with closing(opened(path)) as journal:
                assert journal.load() == stored, place
        except JournalError:
            refused += 1
        for file in path.parent.iterdir():
            file.unlink()
        path.touch(0o600)
        beside(path, "-commits").touch(0o600)
        beside(path, "-commits").write_bytes(counter)
    assert refused > 250


EDITS = [
    "UPDATE agent SET key = NULL",
    "UPDATE agent SET key = x'00'",
    "UPDATE agent SET clock = clock + 1",
    "UPDATE agent SET since = NULL",
    "UPDATE agent SET incarnation = incarnation + 1",
    "UPDATE agent SET decisions = decisions - 1",
    "UPDATE agent SET is_stale = 1 - is_stale",
    "UPDATE agent SET checksum = checksum + 1",
    "DELETE FROM agent",
    "UPDATE waiting SET content = x'00'",
    "UPDATE waiting SET content = NULL",
    "UPDATE waiting SET content = zeroblob(16)",
    "UPDATE waiting SET place = place + 100",
    "DELETE FROM waiting WHERE place = 0",
    "UPDATE known SET fields = '{' WHERE arm = 0",
    "UPDATE known SET fields = '' WHERE arm = 0",
    "UPDATE known SET fields = replace(fields, '\"n\": ', '\"n\": 1') WHERE arm = 0",
    "UPDATE known SET arm = 17 WHERE arm = 0",
    "DELETE FROM known WHERE arm = -1",
    "DELETE FROM known WHERE arm = 0",
    "UPDATE released SET last = last + 1",
    "DELETE FROM released WHERE arm = 0",
    "UPDATE neighbour SET has_heard = 1 - has_heard WHERE name = 'there'",
    "DELETE FROM neighbour WHERE name = 'there'",
    "INSERT INTO neighbour VALUES ('more', 1)",
    "UPDATE excluded SET reason = 'right'",
    "DELETE FROM excluded",
    "UPDATE board SET since = since + 1 WHERE site = 'there'",
    "UPDATE board SET body = CAST(replace(CAST(body AS TEXT), '\"at\":', '\"at\":1') AS BLOB) WHERE site = 'there'",
    "UPDATE board SET signature = x'00' WHERE site = 'third'",
    "UPDATE board SET signer = x'' WHERE site = 'third'",
    "UPDATE board SET digest = x'00' WHERE site = 'there'",
    "UPDATE board SET site = 'other' WHERE site = 'there'",
    "DELETE FROM board WHERE site = 'there'",
    "DELETE FROM board",
    "UPDATE own SET body = (SELECT body FROM board WHERE site = 'there')",
    "UPDATE own SET signature = x'00'",
    "DELETE FROM own",
    "UPDATE arm_change SET accepted = 0",
    "UPDATE arm_change SET content = replace(content, 'recalled', 'replaced')",
    "DELETE FROM arm_change",
    "UPDATE decision SET rewarded = 0 WHERE number = 5",
    "UPDATE decision SET played = 1 - played WHERE number = 39",
    "UPDATE decision SET arm = arm + 1 WHERE number = 5",
    "UPDATE decision SET at = at + 1 WHERE number = 5",
    "UPDATE decision SET number = number + 1000",
    "UPDATE decision SET checksum = 0 WHERE number = 5",
    "DELETE FROM decision WHERE number = 5",
    "UPDATE decision SET id = 'another' WHERE number = 5",
    "DROP TABLE released",
    "CREATE INDEX more ON board (since)",
    "PRAGMA user_version = 4",
    "PRAGMA user_version = 3",
    "PRAGMA user_version = 2",
]


def test_a_board_comes_back_in_its_order(path):
    """Of each site, also if only the order changes, or one of its bulletins goes."""
    first, second, third = (
        Kept(Signed(bulletin_of("there").body + b" " * k, b"signature", b"signer"), float(k)) for k in range(3)
    )
    with closing(opened(path)) as journal:
        for kept in ((first, second), (second, first, third), (third, second)):
            journal.commit([BoardRow("there", kept)])
            assert journal.load().board == {"there": BoardRow("there", kept)}
    with closing(opened(path)) as journal:
        assert journal.load().board == {"there": BoardRow("there", (third, second))}


@pytest.mark.parametrize("edit", EDITS)
def test_rows_changed_by_hand_are_refused_with_words(path, stored, edit):
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        before = list(file.iterdump())
        file.execute(edit)
        assert edit.startswith("PRAGMA") or list(file.iterdump()) != before, "the edit does something"
    with pytest.raises(JournalError) as refused:
        opened(path)
    assert str(refused.value).startswith(f"{path}: ")


def test_nothing_is_refused_for_whole_numbers_or_a_negative_zero(path):
    """SQLite gives back other numbers than it was given: they are the same."""
    with closing(opened(path)) as journal:
        journal.commit([DecisionRecord("a", 1, 0, -0.0), DecisionRecord("b", 2, 0, 7), Numbering(3, 2)])
        journal.commit([DecisionRecord("b", 2, 0, 7, 1, rewarded=True)])
    with closing(opened(path)) as journal:
        assert journal.load().decisions["b"] == DecisionRecord("b", 2, 0, 7.0, 1.0, rewarded=True)


# ---------------------------------------------------------------- files that are none, or others'


@pytest.mark.parametrize("suffix", ["", "-wal", "-commits"])
class TestAFile:
    @pytest.fixture
    def file(self, killed, tmp_path, suffix):
        """One of the files of a process that was killed."""
        return beside(copied(killed, tmp_path / "mine"), suffix)

    def refused(self, file, words):
        with pytest.raises(JournalError, match=words):
            opened(file.with_name("state.sqlite"))

    def test_behind_a_symbolic_link_is_refused(self, file):
        file.rename(file.with_name("elsewhere"))
        file.symlink_to("elsewhere")
        self.refused(file, f"{file.name}: it must be a plain file, and is a symbolic link")

    def test_of_another_kind_is_refused(self, file):
        file.unlink()
        os.mkfifo(file, 0o600)
        self.refused(file, f"{file.name}: it must be a plain file, and is of another kind")

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660, 0o644, 0o666])
    def test_that_others_can_open_is_refused(self, file, mode):
        file.chmod(mode)
        self.refused(file, f"has mode {mode:04o}, open to others than its owner, .*: chmod 600 .*{file.name}$")
        file.chmod(0o600)
        opened(file.with_name("state.sqlite")).close()

    def test_of_another_user_is_refused(self, file, monkeypatch):
        user = os.geteuid()
        real = Path.lstat

        def owned(path):
            found = real(path)
            return os.stat_result((*found[:4], user + 1, *found[5:])) if path == file else found

        monkeypatch.setattr(Path, "lstat", owned)
        self.refused(file, f"belongs to the user {user + 1}, and this process runs as {user}")

    def test_of_0_bytes_is_refused(self, file):
        os.truncate(file, 0)
        self.refused(file, "it is empty: 0 bytes|commits that were acknowledged are missing|is damaged")
        self.refused(file, "it is empty: 0 bytes|commits that were acknowledged are missing|is damaged")

    def test_that_is_missing_is_refused(self, file):
        file.unlink()
        self.refused(file, r"it is missing, but its log|commits that were acknowledged are missing|commits is missing")


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o710])
def test_a_folder_that_others_can_open_is_refused(path, stored, mode):
    path.parent.chmod(mode)
    with pytest.raises(JournalError, match=f"has mode {mode:04o}, open to others .*: chmod 700 .*data$"):
        opened(path)


def test_a_file_with_a_second_name_is_refused(path, stored, tmp_path):
    (tmp_path / "second").hardlink_to(path)
    with pytest.raises(JournalError, match="it has a second name"):
        opened(path)


def test_a_counter_without_its_file_is_refused(path, stored):
    path.unlink()
    with pytest.raises(JournalError, match=r"it is missing, but state.sqlite-commits has counted \d+ commits"):
        opened(path)


# ---------------------------------------------------------------- a new file


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(1, 7))
def test_a_crash_while_a_file_is_made_needs_no_human(path, monkeypatch, step, after):
    """Before and after every step that shows in the folder: a file is not there, or complete."""
    steps = []

    def crashing(real):
        def crashes(*arguments):
            steps.append(real)
            if len(steps) == step and not after:
                raise KeyboardInterrupt
            result = real(*arguments)
            if len(steps) == step and after:
                raise KeyboardInterrupt
            return result

        return crashes

    with monkeypatch.context() as patch:
        patch.setattr(secret_files, "_written_beside", crashing(secret_files._written_beside))
        patch.setattr(Path, "hardlink_to", crashing(Path.hardlink_to))
        patch.setattr(secret_files, "_remove", lambda paths: None)  # nobody cleans up after a crash
        patch.setattr(secret_files, "_sync", crashing(secret_files._sync))
        with pytest.raises(KeyboardInterrupt):
            opened(path)
    assert len(steps) == step
    with closing(opened(path)) as journal:
        play(journal, 5)
    assert rewarded(path) == 5
    assert not [*path.parent.glob(".new-*")]


def test_a_new_file_is_its_owners_alone(path):
    before = os.umask(0)
    try:
        with closing(opened(path)) as journal:
            play(journal, 2)
            found = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert found == dict.fromkeys(("state.sqlite", "state.sqlite-wal", "state.sqlite-commits"), 0o600)


# ---------------------------------------------------------------- a file that goes while it is open


def removed(path):
    shutil.rmtree(path.parent)


def replaced(path):
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def moved(path):
    path.rename(path.with_name("old"))


@pytest.mark.parametrize("is_recent", [False, True])
@pytest.mark.parametrize(
    ("happens", "words"),
    [
        (removed, "the file is gone"),
        (replaced, "another file is in its place"),
        (moved, "the file is gone"),
        (lambda path: path.unlink(), "the file is gone"),
        (lambda path: path.parent.rename(path.parent.with_name("old")), "the file is gone"),
        (lambda path: beside(path, "-wal").unlink(), "the file's log was removed"),
        (lambda path: replaced(beside(path, "-wal")), "the file's log was removed or replaced"),
    ],
)
def test_nothing_is_acknowledged_once_the_file_is_gone(path, monkeypatch, happens, words, is_recent):
    if not is_recent:
        monkeypatch.setattr(state_files, "_RECENT", 0)
    with closing(opened(path)) as journal:
        play(journal, 3)
        if not is_recent:
            time.sleep(0.05)  # two ticks of the kernel's clock
            journal.commit([Numbering(1, 3)])
        happens(path)
        with pytest.raises(JournalError, match=words):
            journal.commit([DecisionRecord("lost", 4, 0, 0.0)])


def test_a_log_that_was_removed_loses_nothing(path):
    """SQLite still has it: it goes to the file when that is closed, and the site goes on."""
    with closing(opened(path)) as journal:
        play(journal, 10)
        beside(path, "-wal").unlink()
        with pytest.raises(JournalError, match="log"):
            journal.commit([Numbering(1, 10)])
    assert rewarded(path) == 10


def test_a_decision_may_change_in_any_order_and_the_sum_fits(path):
    """The usual changes are written without reading the row first; the others must not be taken for them."""
    flags = [tuple(bool(bits >> k & 1) for k in range(3)) for bits in range(8)]
    orders = [(first, second, third) for first in flags for second in flags for third in flags]
    with closing(opened(path)) as journal:
        for number, order in enumerate(orders, 1):
            journal.commit([DecisionRecord(f"{number}-x", number, 0, 1.5, None, *each) for each in order])
    with closing(opened(path)) as journal:
        found = [(it.played, it.late, it.rewarded) for it in journal.load().decisions.values()]
        journal.commit([Forgotten(f"{number}-x") for number in range(1, len(orders) + 1)])
    assert found == [third for _, _, third in orders]
    with closing(opened(path)) as journal:
        assert journal.load().decisions == {}
