"""How the numbers moved is on disk: it survives restarts, kills and damage, stays small, and never stops an agent."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedbandit.agent.disk.history_file import HISTORY_FILE, HistoryFile
from fedbandit.agent.http.past import LEAST, MOST_VALUES, History, Past, Whose, points_in
from fedbandit.agent.http.state import HistoryPoint
from fedbandit.agent.process import runtime
from live import serving
from processes import ask, wait_until

ME = Whose("north", "digest", ("a", "b"))
NOBODY = SimpleNamespace(point=lambda it: None)


def point(at, k=0, arms=2):
    numbers = {name: [0.1 * k] * arms for name in ("estimates", "lows", "highs", "own_means")}
    return HistoryPoint(at=at, **numbers, pulls=[k] * arms, decisions=k, rewards=k)


def past_with(folder, count, begin=0):
    past = Past(0.0, NOBODY, HistoryFile(folder / HISTORY_FILE))
    past.load(ME, 1e9)
    for k in range(begin, begin + count):
        past.note(point(10.0 * k, k), k)
    return past


def test_points_come_back(tmp_path):
    past = past_with(tmp_path, 20)
    past.save(ME, past.points)
    assert past_with(tmp_path, 0).points == past.points
    again = past_with(tmp_path, 5, 20)
    again.save(ME, again.points)
    assert past_with(tmp_path, 0).points == again.points
    assert len(again.points) == 25


def test_only_what_is_new_is_written(tmp_path):
    """Fails if each save writes the whole file, or one without news writes at all."""
    past, file = past_with(tmp_path, 100), tmp_path / HISTORY_FILE
    past.save(ME, past.points)
    before, seen = file.read_bytes(), file.stat()
    past.save(ME, past.points)
    assert file.stat().st_mtime_ns == seen.st_mtime_ns
    past.note(point(5_000.0, 3), 3)
    past.save(ME, past.points)
    assert file.stat().st_ino == seen.st_ino, "the same file"
    assert file.read_bytes().startswith(before)
    assert len(file.read_bytes()) < 1.03 * len(before)


def test_the_file_stays_small(tmp_path):
    """A year of saves: never more lines than a few times the points, of which there are 500 at most."""
    past, file, most = past_with(tmp_path, 0), tmp_path / HISTORY_FILE, 0
    for k in range(3_000):
        past.note(point(10_000.0 * k, k), k)
        if k % 10 == 0:
            past.save(ME, past.points)
            most = max(most, len(file.read_bytes().splitlines()))
    past.save(ME, past.points)
    assert most <= 2 * 500 + LEAST + 2
    assert past_with(tmp_path, 0).points[0] == point(0.0), "it begins where it began"
    assert past_with(tmp_path, 0).points[-1] == past.points[-1]


def test_of_many_arms_there_are_fewer_points():
    history = History()
    for k in range(600):
        history.add(point(10.0 * k, k, arms=300))
    assert len(history.points) == MOST_VALUES // 300


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_line_that_was_cut_off_costs_that_line_alone(tmp_path, cut):
    past, file = past_with(tmp_path, 10), tmp_path / HISTORY_FILE
    past.save(ME, past.points)
    file.write_bytes(file.read_bytes()[:-cut])
    again = past_with(tmp_path, 3, 10)
    assert again.points[:9] == past.points[:9]
    again.save(ME, again.points)
    assert past_with(tmp_path, 0).points == again.points


def test_a_damaged_line_is_left_out(tmp_path):
    past, file = past_with(tmp_path, 10), tmp_path / HISTORY_FILE
    past.save(ME, past.points)
    lines = file.read_bytes().split(b"\n")
    lines[4] = lines[4].replace(b'"decisions":3', b'"decisions":9')
    file.write_bytes(b"\n".join(lines))
    assert past_with(tmp_path, 0).points == [it for it in past.points if it.decisions != 3]


@pytest.mark.parametrize(
    "other",
    [Whose("east", "digest", ("a", "b")), Whose("north", "other", ("a", "b")), Whose("north", "digest", ("b",))],
)
def test_the_history_of_another_is_not_ones_own(tmp_path, other):
    past = past_with(tmp_path, 10)
    past.save(ME, past.points)
    assert points_in(HistoryFile(tmp_path / HISTORY_FILE), other) == []
    assert len(points_in(HistoryFile(tmp_path / HISTORY_FILE), ME)) == 10


def test_an_arm_that_was_added_keeps_the_history(tmp_path):
    past, more = past_with(tmp_path, 10), Whose("north", "digest", ("a", "b", "c"))
    past.save(ME, past.points)
    assert len(points_in(HistoryFile(tmp_path / HISTORY_FILE), more)) == 10
    past.note(point(1e4, 1, arms=3), 1)
    past.save(more, past.points)
    assert points_in(HistoryFile(tmp_path / HISTORY_FILE), more) == past.points
    assert points_in(HistoryFile(tmp_path / HISTORY_FILE), ME) == [], "which has no third arm"


def test_points_of_a_clock_that_was_wrong_are_left_out(tmp_path):
    past = past_with(tmp_path, 10)
    past.save(ME, past.points)
    again = Past(0.0, NOBODY, HistoryFile(tmp_path / HISTORY_FILE))
    again.load(ME, 45.0)
    assert [it.at for it in again.points] == [0.0, 10.0, 20.0, 30.0, 40.0]


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "noise", "empty"])
def test_no_file_stops_an_agent(tmp_path, caplog, kind):
    """Whatever is in its place: it starts, writes nothing through a link, and goes on without a history."""
    path, target = tmp_path / HISTORY_FILE, tmp_path / "mine.txt"
    target.write_text("mine")
    {
        "link": lambda: path.symlink_to(target),
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "noise": lambda: path.write_bytes(os.urandom(1000)),
        "empty": path.touch,
    }[kind]()
    tmp_path.chmod(0o700)
    with serving(tmp_path) as agent:
        _, decision = ask(f"{agent.url}/v1/decisions", "POST")
        ask(f"{agent.url}/v1/decisions/{decision['id']}/reward", "PUT", {"value": 1.0})
        wait_until(lambda: ask(f"{agent.url}/v1/history")[1]["points"])
    assert target.read_text() == "mine"
    assert path.is_file() != (kind == "folder")


def test_a_restart_and_a_kill_keep_the_chart(tmp_path, monkeypatch):
    """A stop writes all of it; a kill loses what came since the last write."""
    monkeypatch.setattr(runtime, "HISTORY_EVERY", 0.2)

    def give(agent):
        _, decision = ask(f"{agent.url}/v1/decisions", "POST")
        ask(f"{agent.url}/v1/decisions/{decision['id']}/reward", "PUT", {"value": 1.0})

    def points(agent):
        return ask(f"{agent.url}/v1/history")[1]["points"]

    with serving(tmp_path) as agent:
        give(agent)
        wait_until(lambda: points(agent))
        first = points(agent)
    with serving(tmp_path) as agent:
        assert points(agent)[: len(first)] == first, "after a stop"
        time.sleep(2.0)
        give(agent)

        def written():
            return len((tmp_path / HISTORY_FILE).read_bytes().splitlines()) - 1

        wait_until(lambda: written() > len(first))
        agent.call(lambda driver: setattr(driver._past, "_file", None))  # a kill: nothing is written any more
        second = points(agent)[: written()]
    with serving(tmp_path) as agent:
        assert points(agent)[: len(second)] == second
    assert (tmp_path / HISTORY_FILE).stat().st_mode & 0o777 == 0o600


def test_a_full_disk_loses_no_point(tmp_path, monkeypatch):
    """A write that fails is tried again, as a whole."""
    past = past_with(tmp_path, 10)
    past.save(ME, past.points)

    def full(*_):
        raise OSError(28, "No space left on device")

    past.note(point(500.0, 77), 0)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        past.save(ME, past.points)
    monkeypatch.undo()
    past.save(ME, past.points)
    assert past_with(tmp_path, 0).points == past.points


def test_nothing_is_made_where_the_data_folder_is_gone(tmp_path):
    past = past_with(tmp_path / "data", 10)
    with pytest.raises(OSError, match="gone"):
        past.save(ME, past.points)
    assert not (tmp_path / "data").exists()


def test_what_is_on_disk_is_what_viewers_see(tmp_path):
    """No raw reward: the lines are points of ``GET /v1/history``."""
    with serving(tmp_path) as agent:
        _, decision = ask(f"{agent.url}/v1/decisions", "POST")
        ask(f"{agent.url}/v1/decisions/{decision['id']}/reward", "PUT", {"value": 0.7431629})
        wait_until(lambda: any(it["rewards"] for it in ask(f"{agent.url}/v1/history")[1]["points"]))
        seen = ask(f"{agent.url}/v1/history")[1]["points"]
        agent.call(lambda driver: driver._past.save(driver._whose, driver._past.points))
        kept = [json.loads(line[9:]) for line in (tmp_path / HISTORY_FILE).read_text().splitlines()[1:]]
        assert kept == seen
    assert b"7431629" not in (tmp_path / HISTORY_FILE).read_bytes()


def test_no_save_leaves_a_file_open(tmp_path):
    """A descriptor each minute would be an agent's end."""
    past, opened = past_with(tmp_path, 3), Path("/proc/self/fd")
    before = len([*opened.iterdir()])
    for k in range(50):
        past.note(point(1_000.0 * (k + 1), k), k)
        past.save(ME, past.points)
        past_with(tmp_path, 0)
    assert len([*opened.iterdir()]) == before
