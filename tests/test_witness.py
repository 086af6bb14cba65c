"""The witness of a state file, in memory: it knows the latest file, and none that was put back or copied."""

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import pytest

from fedbandit.agent.core.records import Numbering, Opened
from fedbandit.agent.core.release_guard import Mark
from fedbandit.agent.disk import witness as module
from fedbandit.agent.disk.journal import SqliteJournal
from fedbandit.agent.disk.witness import LASTS, Witness, memory_folder
from fedbandit.agent.process.rights import ANYBODY
from fedbandit.agent.process.runtime import Agent
from live import NEIGHBOURS, TERMS, Driver

MEMORY = Path("/dev/shm")  # noqa: S108
HERE = Mark(b"i" * 16, 7, 100)

pytestmark = pytest.mark.skipif(memory_folder(MEMORY) is None, reason="no memory file system here")


@pytest.fixture
def memory(tmp_path):
    folder = MEMORY / f"test-{os.getpid()}-{tmp_path.name}"
    folder.mkdir()
    yield folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


@pytest.fixture
def file(tmp_path):
    (tmp_path / "state.sqlite").write_text("anything")
    return tmp_path / "state.sqlite"


@pytest.fixture
def told(memory, file):
    """One that was told, by a process that is gone."""
    witness = Witness(memory, file)
    witness.write(HERE)
    witness.close()
    return Witness(memory, file)


def of(memory):
    (found,) = memory.iterdir()
    return found


def test_it_knows_the_file_that_it_was_told_of(told):
    assert told.vouches_for(HERE)


def test_a_file_that_is_ahead_lacks_nothing_that_was_sent(told):
    """Its process was killed after a commit, before it could tell anybody."""
    assert told.vouches_for(replace(HERE, commits=101))


@pytest.mark.parametrize(
    "file_as_it_is",
    [replace(HERE, commits=99), replace(HERE, run=8), replace(HERE, run=8, commits=500), replace(HERE, run=6)],
    ids=["put back", "opened by another", "and that one has written since", "from before the process"],
)
def test_it_does_not_know_a_file_of_another_time(told, file_as_it_is):
    assert not told.vouches_for(file_as_it_is)


def test_it_does_not_know_another_file(told):
    assert not told.vouches_for(replace(HERE, identity=b"j" * 16))


def test_it_does_not_know_a_copy_in_another_place(told, memory, file):
    """The original may run beside it."""
    beside = file.with_name("copy")
    copyfile(file, beside)
    assert not Witness(memory, beside).vouches_for(HERE)
    file.rename(file.with_name("moved"))
    beside.rename(file)
    assert not Witness(memory, file).vouches_for(HERE)


def test_it_does_not_count_in_another_boot(told, memory, file, tmp_path, monkeypatch):
    """If a memory file system outlives a boot, whatever that is."""
    (tmp_path / "boot").write_text("0f0e0d0c-1111-2222-3333-444444444444\n")
    monkeypatch.setattr(module, "_BOOT", tmp_path / "boot")
    assert not Witness(memory, file).vouches_for(HERE)


@pytest.mark.parametrize("clock", [0, 1])
def test_it_counts_for_a_while_only(told, clock, monkeypatch):
    """In a longer absence a copy may have been started elsewhere. Either clock may tell."""
    now = module._clocks()
    for later, counts in ((LASTS - 5.0, True), (LASTS + 5.0, False)):
        moved = [*now]
        moved[clock] += later
        monkeypatch.setattr(module, "_clocks", lambda moved=moved: tuple(moved))
        assert told.vouches_for(HERE) == counts


def test_a_process_that_lives_keeps_it(memory, file, monkeypatch):
    now = module._clocks()
    witness = Witness(memory, file)
    witness.write(HERE)
    monkeypatch.setattr(module, "_clocks", lambda: (now[0] + 1e6, now[1] + 1e6))
    assert not witness.vouches_for(HERE)
    witness.touch()
    assert witness.vouches_for(HERE)
    witness.close()


def test_only_its_owner_may_read_it_and_what_others_could_have_written_is_not_believed(told, memory):
    path = of(memory)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o666)
    assert not told.vouches_for(HERE)
    path.chmod(0o600)
    assert told.vouches_for(HERE)
    content = path.read_bytes()
    for wrong in (content[:-1], content + b"x", b"", content[:40] + bytes([content[40] ^ 1]) + content[41:]):
        path.write_bytes(wrong)
        assert not told.vouches_for(HERE)
    path.write_bytes(content)
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))
    assert not told.vouches_for(HERE)


def test_a_process_that_may_not_release_leaves_none_of_its_own(told, memory, file):
    told.forget()
    assert Witness(memory, file).vouches_for(HERE), "that of another process is not its to remove"
    told.write(replace(HERE, run=8))
    told.forget()
    assert not [*memory.iterdir()]


def test_what_cannot_be_written_is_removed(memory, file, monkeypatch):
    """Or it would say less than what is sent."""
    witness = Witness(memory, file)
    witness.write(HERE)

    def full(*_):
        raise OSError("no space")

    monkeypatch.setattr(os, "pwrite", full)
    witness.write(replace(HERE, commits=101))
    assert not [*memory.iterdir()]


def test_a_folder_on_a_disk_is_no_memory(tmp_path, file, monkeypatch):
    assert memory_folder(MEMORY) == MEMORY
    assert memory_folder(tmp_path / "missing") is None
    mounts = "1 0 0:5 / / rw - ext4 /dev/root rw\n"
    monkeypatch.setattr(module, "_MOUNTS", tmp_path / "mounts")
    (tmp_path / "mounts").write_text(mounts)
    assert memory_folder(MEMORY) is None
    without = Witness(None, file)
    without.write(HERE)
    without.touch()
    without.forget()
    assert not without.vouches_for(HERE)


def test_the_own_folder_of_a_user_comes_first(memory, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(memory))
    assert memory_folder(None) == memory
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(memory / "missing"))
    assert memory_folder(None) == MEMORY


def test_what_no_longer_counts_is_swept_away(told, memory, file, monkeypatch):
    now = module._clocks()
    monkeypatch.setattr(module, "_clocks", lambda: (now[0] + 2 * LASTS, now[1] + 2 * LASTS))
    (memory / "fedbandit-others").write_text("what is not ours stays")
    other = Witness(memory, file)
    other.write(replace(HERE, identity=b"k" * 16))
    other.close()
    assert {path.name for path in memory.iterdir()} == {"fedbandit-others", f"fedbandit-{(b'k' * 16).hex()}"}


def test_the_loop_never_makes_it_say_less_than_the_thread_of_the_disk_has_said(memory, file):
    witness, stop = Witness(memory, file), threading.Event()

    def touch():
        while not stop.is_set():
            witness.touch()

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        for commits in range(2000):
            witness.write(replace(HERE, commits=commits))
            assert module._read(of(memory)).mark.commits == commits
    finally:
        stop.set()
        thread.join()
        witness.close()


def test_a_journal_tells_when_a_commit_is_on_disk_and_before_anybody_else_knows(tmp_path):
    tmp_path.chmod(0o700)
    path = tmp_path / "state.sqlite"
    journal = SqliteJournal(path, "north", TERMS, 1)
    seen = []

    def tell(mark):
        with_log = copied(tmp_path, tmp_path / f"at {mark.commits}")
        other = SqliteJournal(with_log, "north", TERMS, 1)
        seen.append((mark, other.mark))
        other.close()

    journal.tell = tell
    journal.commit([Opened(5)])
    journal.commit([])
    journal.commit([Numbering(1, 0)])
    assert [mark.commits for mark, _ in seen] == [1, 2]
    assert all(mark == there for mark, there in seen), "all of it is in the files"
    assert {mark.run for mark, _ in seen} == {5}
    assert seen[-1][0].vouches_for(journal.mark)
    journal.close()


def copied(folder, to):
    to.mkdir(mode=0o700)
    for path in folder.glob("state.sqlite*"):
        copyfile(path, to / path.name)
        (to / path.name).chmod(0o600)
    return to / "state.sqlite"


# ---------------------------------------------------------------- agents


class Told(Driver):
    """A driver whose file has a witness."""

    _open_journal = Agent._open_journal


async def started(folder, memory):
    agent = Told(folder, doubts=True, witness=memory)
    await agent.site.do(lambda site: site.open())
    await agent.links.use(agent.config.neighbours)
    return agent


async def learn(agent, count=30):
    for _ in range(count):
        await agent.report((await agent.decide()).id, 0.5)


def played(story):
    asyncio.run(story())


def test_an_agent_that_starts_again_goes_on_at_once(tmp_path, memory):
    tmp_path.chmod(0o700)

    async def story():
        for _ in range(3):
            agent = await started(tmp_path, memory)
            site = agent.site.in_memory
            assert (site.doubt, len(site.neighbours)) == (None, 2)
            before = sum(site.releases)
            await learn(agent)
            assert sum(site.releases) > before
            await agent.stop()

    played(story)


def test_an_agent_whose_files_were_put_back_waits(tmp_path, memory):
    data = tmp_path / "data"
    data.mkdir(mode=0o700)

    async def story():
        agent = await started(data, memory)
        await learn(agent)
        await agent.stop()
        copied(data, tmp_path / "snapshot")
        agent = await started(data, memory)
        await learn(agent)
        await agent.stop()
        for path in (tmp_path / "snapshot").iterdir():
            (data / path.name).write_bytes(path.read_bytes())  # in place: the same inodes
        agent = await started(data, memory)
        site = agent.site.in_memory
        before = sum(site.releases)
        await learn(agent)
        assert (site.doubt.why, site.waits_for, sum(site.releases)) == ("unconfirmed", NEIGHBOURS, before)
        assert "It waits for east, south." in site.warnings()[0]
        await agent.stop()

    played(story)


def test_a_process_in_doubt_tells_no_witness(tmp_path, memory):
    tmp_path.chmod(0o700)

    async def story():
        agent = await started(tmp_path, memory)
        await learn(agent)
        assert [*memory.iterdir()]
        agent.site.in_memory.pause(10**9)
        await agent.decide()
        assert not [*memory.iterdir()]
        await agent.stop()
        agent = await started(tmp_path, memory)
        assert agent.site.in_memory.doubt.why == "unconfirmed"
        await learn(agent, 1)
        assert not [*memory.iterdir()]
        await agent.confirm(ANYBODY.deed("the other is stopped"))
        await agent.decide()
        assert [*memory.iterdir()]
        await agent.stop()

    played(story)
