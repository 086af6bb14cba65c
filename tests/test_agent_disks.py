"""Agents as processes: full and lost disks, and what is served meanwhile."""

import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fedbandit.agent.process.runtime import LONGEST_PAUSE
from processes import (
    ask,
    come_through,
    command,
    decide_and_reward,
    dump,
    edit,
    lines,
    measured,
    read,
    running,
    settle,
    state,
    wait_until,
)


def fill(path):
    """Take all that is left of a disk."""
    with path.open("ab", buffering=0) as file:
        for size in (65_536, 4096, 512, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))


class TestDisks:
    @pytest.fixture
    def small_disk(self, tmp_path):
        folder = tmp_path / "small"
        folder.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", folder], capture_output=True
        )
        if mounted.returncode:
            pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
        yield folder
        subprocess.run(["umount", "-l", folder], check=True)

    def test_a_full_disk(self, tmp_path, small_disk):
        """Refused with the reason, nothing acknowledged is lost, and it goes on by itself when there is room."""

        def small(federation):
            edit(federation.config("north"), (r'data = "data"', f'data = "{small_disk}"'))

        with running(tmp_path / "sites", [("east", "north")], "north", prepare=small) as federation:
            url = federation.url("north")
            known = decide_and_reward(federation, "north", 20)
            _, waiting = ask(f"{url}/v1/decisions", "POST")
            refused = 0
            while refused < 5:  # SQLite finds some room, in its log, the first times
                fill(small_disk / "fill")
                status, content = ask(f"{url}/v1/decisions", "POST")
                if status != 201:
                    assert status == 503
                    assert "disk is full" in content["error"]["message"]
                    refused += 1
            status, content = ask(f"{url}/v1/decisions/{waiting['id']}/reward", "PUT", {"value": 1.0})
            assert status == 503, content
            wait_until(lambda: ask(f"{url}/readyz")[0] == 503)
            assert "disk is full" in ask(f"{url}/readyz")[1]["error"]["message"]
            time.sleep(LONGEST_PAUSE + 1.0)
            assert ask(f"{url}/readyz")[0] == 503, "and it stays so"
            assert str(small_disk) not in str(ask(f"{url}/readyz")[1])
            assert ask(f"{url}/healthz")[0] == 200
            assert len(lines(federation, "north", "ERROR")) <= 3, "the log does not repeat it"

            (small_disk / "fill").unlink()
            took = wait_until(lambda: ask(f"{url}/readyz")[0] == 200)
            measured(f"ready {took:.2f} s after there was room")
            assert state(federation, "north")["held"] is None, "it has not stood still: nobody need confirm its folder"
            assert ask(f"{url}/v1/decisions/{waiting['id']}/reward", "PUT", {"value": 1.0})[0] == 204
            known |= decide_and_reward(federation, "north", 5) | {waiting["id"]: 1.0}
            for decision_id, value in known.items():  # the same again is fine; another would be a conflict
                assert ask(f"{url}/v1/decisions/{decision_id}/reward", "PUT", {"value": value})[0] == 204
            federation.stop("north")

    @pytest.mark.slow
    def test_a_lost_disk(self, tmp_path):
        with running(tmp_path, [("north", "east")]) as federation:
            for name in federation.names:
                decide_and_reward(federation, name, 80)
            come_through(federation, "north", "east")
            before = state(federation, "east")
            federation.stop("east")
            shutil.rmtree(federation.state_file("east").parent)
            begun = len(lines(federation, "east", "a new incarnation begins, with fresh batches"))
            federation.start("east")
            federation.wait_ready("east")
            assert len(lines(federation, "east", "a new incarnation begins, with fresh batches")) == begun + 1
            come_through(federation, "north", "east")
            after = state(federation, "east")
            assert after["incarnation"] > before["incarnation"]
            assert after["decisions"]["handed_out"] == 0
            kept = "own_mean", "releases", "estimate"
            assert [[arm[it] for it in kept] for arm in after["arms"]] == [
                [arm[it] for it in kept] for arm in before["arms"]
            ], "the neighbour has brought back what it had released"
            decide_and_reward(federation, "east", 80)
            come_through(federation, "north", "east")
            assert sum(arm["releases"] for arm in state(federation, "east")["arms"]) > sum(
                arm["releases"] for arm in before["arms"]
            )
            assert not [it for name in federation.names for it in state(federation, name)["warnings"] if "twice" in it]
            settle(federation, "north", "east")
            federation.stop_all()
            north, east = read(federation, "north", "east")
            assert north.theta == east.theta

    def test_a_file_that_is_deleted_under_a_running_agent(self, tmp_path):
        """What would be lost is not taken, from the first moment on."""
        with running(tmp_path, [("east", "north")], "north") as federation:
            url = federation.url("north")
            decide_and_reward(federation, "north", 3)
            _, waiting = ask(f"{url}/v1/decisions", "POST")
            shutil.rmtree(federation.state_file("north").parent)
            status, _ = ask(f"{url}/v1/decisions/{waiting['id']}/reward", "PUT", {"value": 1.0})
            assert status == 503, "no second has passed"
            status, content = ask(f"{url}/v1/decisions", "POST")
            assert status == 503
            assert "the file is gone" in content["error"]["message"]
            assert ask(f"{url}/readyz")[0] == 503
            federation.stop("north")
            federation.start("north")
            federation.wait_ready("north")
            assert len(lines(federation, "north", "a new incarnation begins")) == 2

    @pytest.mark.slow
    def test_a_file_that_is_replaced_under_a_running_agent(self, tmp_path):
        """A file of the same name is not the one that is written: a second agent by mistake makes such a file."""
        with running(tmp_path, [("east", "north")], "north") as federation:
            url, file = federation.url("north"), federation.state_file("north")
            decide_and_reward(federation, "north", 3)
            copy = file.with_name("copy")
            copy.write_bytes(file.read_bytes())
            copy.replace(file)
            status, content = ask(f"{url}/v1/decisions", "POST")
            assert status == 503
            assert "another file is in its place" in content["error"]["message"]

    @pytest.mark.slow
    def test_half_a_log_after_a_kill(self, tmp_path):
        """The agent does not begin with the half of its rewards, but says what is missing and what to do."""
        with running(tmp_path, [("east", "north")], "north") as federation:
            file = federation.state_file("north")
            log = file.with_name("state.sqlite-wal")
            while True:
                known = decide_and_reward(federation, "north", 20)
                federation.kill("north")
                if log.stat().st_size > 20_000:  # or it was emptied a moment before
                    break
                federation.start("north")
                federation.wait_ready("north")
            whole = log.read_bytes()
            with log.open("r+b") as cut:
                cut.truncate(len(whole) // 2)
            for _ in range(2):
                code, output = command("agent", "-c", federation.config("north"))
                assert code == 2, output
                words = " ".join(output.split())
                assert "commits that were acknowledged are missing" in words
                assert "Put back all files" in words
                assert "Traceback" not in output
            assert log.read_bytes() == whole[: len(whole) // 2], "it is as it was"
            log.write_bytes(whole)
            federation.start("north")
            federation.wait_ready("north")
            for decision_id, value in known.items():
                answer = ask(f"{federation.url('north')}/v1/decisions/{decision_id}/reward", "PUT", {"value": value})
                assert answer[0] == 204
            federation.stop("north")
            stored = read(federation, "north")[0].stored.decisions
            assert all(stored[decision_id].rewarded for decision_id in known)

    @pytest.mark.slow
    def test_a_folder_that_others_can_open(self, tmp_path):
        with running(tmp_path, [("east", "north")], "north") as federation:
            folder = federation.state_file("north").parent
            assert folder.stat().st_mode & 0o777 == 0o700
            federation.stop("north")
            folder.chmod(0o755)
            code, output = command("agent", "-c", federation.config("north"))
            assert code == 2
            assert f"chmod 700 {folder}" in output.replace("\n", "")

    @pytest.mark.slow
    def test_others_cannot_read_the_state(self, tmp_path):
        with running(tmp_path, [("east", "north")], "north") as federation:
            for path in federation.state_file("north").parent.iterdir():
                assert path.stat().st_mode & 0o077 == 0, path


class TestServing:
    @pytest.mark.slow
    def test_decisions_while_neighbours_are_dead_or_stopped(self, tmp_path):
        links = [("north", "east"), ("north", "south")]
        with running(tmp_path, links, num_agents=3) as federation:
            come_through(federation, "north", "east")
            federation.signal("east", signal.SIGSTOP)
            federation.kill("south")
            took = []
            until = time.monotonic() + 2.0
            while time.monotonic() < until:
                begun = time.perf_counter()
                assert ask(f"{federation.url('north')}/v1/decisions", "POST")[0] == 201
                took.append(time.perf_counter() - begun)
            p99 = sorted(took)[int(0.99 * len(took))]
            measured(f"{len(took)} decisions, p99 {1000 * p99:.1f} ms")
            assert p99 < 0.1
            all_gone = lambda: not any(it["reachable"] for it in state(federation, "north")["neighbours"])  # noqa: E731
            wait_until(all_gone, within=30.0)  # a connection that says nothing is given up after 20 s

    @pytest.mark.slow
    def test_old_decisions_are_forgotten(self, tmp_path):
        def few(federation):
            config = federation.config("north")
            config.write_text(config.read_text() + "\n[decisions]\nkeep = 50\n")

        with running(tmp_path, [("east", "north")], "north", prepare=few) as federation:
            url = federation.url("north")
            ids = [ask(f"{url}/v1/decisions", "POST")[1]["id"] for _ in range(200)]
            wait_until(lambda: state(federation, "north")["decisions"]["remembered"] <= 50, within=4.0)
            shown = state(federation, "north")["decisions"]
            assert (shown["handed_out"], shown["pending"], shown["remembered"]) == (200, 50, 50)
            status, content = ask(f"{url}/v1/decisions/{ids[149]}/reward", "PUT", {"value": 1.0})
            assert (status, content["error"]["code"]) == (404, "unknown_decision")
            assert ask(f"{url}/v1/decisions/{ids[150]}/reward", "PUT", {"value": 1.0})[0] == 204
            assert sum('INSERT INTO "decision"' in line for line in dump(federation.state_file("north"))) == 50

    @pytest.mark.slow
    def test_it_is_light(self, tmp_path):
        """Also after noise was drawn: nothing of the simulator is loaded."""
        with running(tmp_path, [("north", "east")]) as federation:
            decide_and_reward(federation, "north", 100)
            come_through(federation, "north", "east")
            assert state(federation, "north")["privacy"]["releases"] > 0
            process = Path(f"/proc/{federation.process('north')}")
            maps = (process / "maps").read_text()
            assert "websockets" in maps, "the list is not empty"
            for heavy in ("numpy", "numba", "llvmlite", "xarray", "matplotlib", "networkx", "pandas", "scipy", "h5py"):
                assert heavy not in maps, heavy
            (rss,) = re.findall(r"VmRSS:\s+(\d+) kB", (process / "status").read_text())
            measured(f"resident memory: {int(rss) / 1024:.0f} MB")
