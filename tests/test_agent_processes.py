"""Agents as processes: what they refuse to start with, how they stop, and what they live through."""

import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedbandit.agent.local import LocalFederation
from processes import (
    ask,
    assert_mistake,
    command,
    decide_and_reward,
    dump,
    edit,
    exchanges,
    imbalance,
    lines,
    neighbour,
    read,
    spawn,
    state,
    terms,
    told,
    wait_until,
)

pytestmark = pytest.mark.xdist_group("processes")


@contextmanager
def running(folder, links, *names, rate=50.0, num_agents=2, prepare=None):
    """A federation with some of its sites running: all, if none are named."""
    federation = LocalFederation(folder, terms(num_agents), links, rate)
    if prepare is not None:
        prepare(federation)
    try:
        for name in names or federation.names:
            federation.start(name)
        for name in names or federation.names:
            federation.wait_ready(name)
        yield federation
    finally:
        federation.stop_all()


def come_through(federation, name, other, more=1, within=10.0):
    """Wait for some more exchanges; how long that took."""
    before = exchanges(federation, name, other)
    return wait_until(lambda: exchanges(federation, name, other) >= before + more, within)


class TestWhatIsRefusedAtTheStart:
    @pytest.fixture
    def stopped(self, tmp_path):
        """A site that ran once, with its configuration."""
        with running(tmp_path, [("east", "north")], "north") as federation:
            pass
        return federation

    def test_the_files(self, stopped, tmp_path):
        """The state of another, or nothing that can be written: exit code 2, and words."""
        config, folder = stopped.config("north"), stopped.folder / "north"
        text, data = config.read_text(), stopped.state_file("north")

        def attempt(case, *changes):
            path = folder / f"{case}.toml"
            path.write_text(text)
            edit(path, *changes)
            return spawn("agent", "-c", path)

        taken = socket.create_server(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        (folder / "old").mkdir()
        shutil.copy(data, folder / "old")
        file = sqlite3.connect(folder / "old" / data.name)
        file.execute("PRAGMA user_version = 1")
        file.close()
        (folder / "garbage").mkdir()
        (folder / "garbage" / data.name).write_bytes(b"this is not a database at all, but long enough" * 100)
        (folder / "file").write_text("")
        (folder / "open.key").write_bytes((stopped.folder / "certs" / "north.key").read_bytes())
        (folder / "open.key").chmod(0o644)
        key = r"key = \"[^\"]*\""
        # As another site, which has a certificate of its own: the state is still north's.
        other = (r"\Aname = \"north\"", 'name = "east"'), (r"certs/north\.crt", "certs/east.crt")
        other = *other, (r"certs/north\.key", "certs/east.key"), (r"\[\[neighbours\]\].*", "")
        try:
            cases = {
                "terms": (
                    attempt("terms", (r"epsilon = 1\.0", "epsilon = 2.0")),
                    "policy.epsilon: 2.0 here, 1.0 there",
                ),
                "name": (attempt("name", *other), "belongs to the agent 'north', not to 'east'"),
                "schema": (attempt("schema", (r'data = "data"', 'data = "old"')), "its schema is 1"),
                "garbage": (attempt("garbage", (r'data = "data"', 'data = "garbage"')), "not a database"),
                "data": (attempt("data", (r'data = "data"', 'data = "file"')), "file", "exists"),
                "data2": (attempt("data2", (r'data = "data"', 'data = "/proc/no/data"')), "/proc/no"),
                "key": (attempt("key", (key, 'key = "open.key"')), "tls.key", "open to others", "chmod 600"),
                "key2": (attempt("key2", (key, 'key = "../north"')), "tls.key", "Is a directory"),
                "gossip": (
                    attempt("gossip", (r"gossip = \"[^\"]*\"", f'gossip = "127.0.0.1:{port}"')),
                    f"cannot listen for neighbours on 127.0.0.1:{port}",
                ),
                "http": (
                    attempt("http", (r"http = \"[^\"]*\"", f'http = "127.0.0.1:{port}"')),
                    f"cannot listen for the application on 127.0.0.1:{port}: Address already in use",
                ),
            }
            for case, (process, *words) in cases.items():
                code, output = told(process)
                # The log may come first.
                assert_mistake((code, "\n".join(output.splitlines()[-2:])), *words)
                assert "Traceback" not in output, case
        finally:
            taken.close()

    def test_a_file_that_another_process_holds(self, stopped):
        stopped.start("north")
        stopped.wait_ready("north")
        try:
            path = stopped.folder / "north" / "second.toml"
            path.write_text(
                re.sub(r"(http|gossip) = \"[^\"]*\"", r'\1 = "127.0.0.1:0"', stopped.config("north").read_text())
            )
            path.write_text(path.read_text().replace('gossip = "127.0.0.1:0"', 'gossip = "127.0.0.2:0"'))
            assert_mistake(command("agent", "-c", path), "state.sqlite", "another process")
            assert stopped.is_ready("north")
        finally:
            stopped.stop_all()

    @pytest.mark.parametrize("module", ["grpc", "fastapi", "httpx", "cryptography", "prometheus_client", "httptools"])
    def test_without_the_extra(self, stopped, module):
        hidden = f"import sys; sys.modules[{module!r}] = None"
        outcome = told(spawn("agent", "-c", stopped.config("north"), before=hidden))
        assert_mistake((outcome[0], outcome[1].splitlines()[-1]), module, "pip install 'fedbandit[agent]'")


class TestTerms:
    def test_sites_with_other_terms_do_not_exchange_and_say_why(self, tmp_path):
        def differ(federation):
            edit(federation.config("east"), (r"epsilon = 1\.0", "epsilon = 2.0"))

        with running(tmp_path, [("north", "east")], prepare=differ) as federation:
            for name, other, here, there in (("north", "east", "1.0", "2.0"), ("east", "north", "2.0", "1.0")):
                expected = f"policy.epsilon: {here} here, {there} there"
                wait_until(lambda a=name, b=other, e=expected: e in (neighbour(federation, a, b)["last_error"] or ""))
            time.sleep(3.0)
            for name, other, here, there in (("north", "east", "1.0", "2.0"), ("east", "north", "2.0", "1.0")):
                expected = f"policy.epsilon: {here} here, {there} there"
                assert expected in neighbour(federation, name, other)["last_error"], "not only for a moment"
                assert exchanges(federation, name, other) == 0
                said = lines(federation, name, expected)
                assert 1 <= len(said) <= 2, said
                assert len(federation.log(name).read_text().splitlines()) < 15, "attempts go on, the log does not"
            assert state(federation, "east")["refused"]["other terms"] >= 3


class TestStopping:
    def test_sigterm(self, tmp_path):
        """An exchange under way and a request under way come to their end; the file is whole."""
        with running(tmp_path, [("north", "east")], rate=200.0) as federation:
            decide_and_reward(federation, "north", 60)
            come_through(federation, "north", "east", 5)
            _, decision = ask(f"{federation.url('north')}/v1/decisions", "POST")
            federation.signal("east", signal.SIGSTOP)
            time.sleep(0.2)  # by now an exchange of north waits for its answer
            with socket.create_connection(("127.0.0.1", federation.http_ports["north"])) as request:
                head = f"PUT /v1/decisions/{decision['id']}/reward HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                request.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 13\r\n\r\n".encode())
                time.sleep(0.1)
                begun = time.monotonic()
                federation.signal("north", signal.SIGTERM)
                time.sleep(0.4)
                assert federation.is_running("north")
                request.sendall(b'{"value": 1.}'.replace(b"1.}", b"1 }"))
                assert request.recv(1000).startswith(b"HTTP/1.1 204")
            federation.signal("east", signal.SIGCONT)
            assert federation.stop("north") == 0
            took = time.monotonic() - begun
            print(f"stopped after {took:.2f} s")
            assert took < 3.0
            assert lines(federation, "north", "stopped")
            assert not list(federation.state_file("north").parent.glob("*-wal"))
            assert federation.stop("east") == 0
            north, east = read(federation, "north", "east")
            assert decision["id"] in north._stored.decisions
            assert north._stored.decisions[decision["id"]].reward == 1.0
            assert north.links[0].register[1] == east.links[0].register[1], "the exchange was not cut"
            assert imbalance([north, east]) < 1e-12

    def test_a_neighbour_that_does_not_answer_does_not_hold_it_up(self, tmp_path):
        with running(tmp_path, [("north", "east")], rate=200.0) as federation:
            come_through(federation, "north", "east")
            federation.signal("east", signal.SIGSTOP)
            time.sleep(0.2)
            begun = time.monotonic()
            assert federation.stop("north") == 0
            assert time.monotonic() - begun < 3.5

    def test_sigkill_and_back(self, tmp_path):
        with running(tmp_path, [("north", "east")], rate=20.0) as federation:
            known = decide_and_reward(federation, "east", 40)
            come_through(federation, "north", "east", 3)
            before = state(federation, "east")
            federation.kill("east")
            wait_until(lambda: not neighbour(federation, "north", "east")["reachable"])
            time.sleep(2.0)  # long enough for gRPC to take its longest pause
            federation.start("east")
            federation.wait_ready("east")
            took = come_through(federation, "north", "east")
            print(f"exchanges come through {took:.2f} s after the restarted agent is ready")
            assert took < 5.0
            after = state(federation, "east")
            assert after["epoch"] == before["epoch"]
            assert after["decisions"] == before["decisions"]
            counted = ("name", "own_mean", "pulls", "rewards", "releases")
            assert [[arm[it] for it in counted] for arm in after["arms"]] == [
                [arm[it] for it in counted] for arm in before["arms"]
            ]
            federation.stop_all()
            sites = read(federation, "north", "east")
            assert {d.id: d.reward for d in sites[1]._stored.decisions.values()} == known
            assert imbalance(sites) < 1e-12


class TestTheNeighbourList:
    def test_it_is_read_again(self, tmp_path):
        links = [("north", "east"), ("south", "north")]
        with running(tmp_path, links, num_agents=3) as federation:
            come_through(federation, "north", "east")
            come_through(federation, "south", "north")
            config = federation.config("north")
            whole = config.read_text()

            config.write_text(whole.replace("[[neighbours]]", "[[neighbors]]"))
            wait_until(lambda: lines(federation, "north", "ERROR", "not taken over", "Did you mean 'neighbours'?"))
            come_through(federation, "north", "east")

            config.unlink()
            wait_until(lambda: lines(federation, "north", "ERROR", "not taken over", "no such file"))

            edit_text = re.sub(r"\[\[neighbours\]\]\nname = \"south\"\n", "", whole).replace('"data"', '"elsewhere"')
            config.write_text(edit_text)
            wait_until(lambda: lines(federation, "north", "south: no longer a neighbour"))
            wait_until(
                lambda: "is no neighbour of north" in (neighbour(federation, "south", "north")["last_error"] or "")
            )
            refused = exchanges(federation, "south", "north")
            assert neighbour(federation, "north", "south") is None
            assert lines(federation, "north", "needs a restart", "data")
            come_through(federation, "north", "east")
            assert exchanges(federation, "south", "north") == refused

            config.write_text(whole)
            wait_until(lambda: neighbour(federation, "north", "south") is not None)
            come_through(federation, "south", "north")
            assert len(lines(federation, "north", "not taken over")) <= 3
            federation.stop_all()
            time.sleep(0)
            assert all(len(site.links) == 1 for site in read(federation, "east", "south"))

    def test_hanging_up_and_dialling_again_leaves_nothing_behind(self, tmp_path):
        with running(tmp_path, [("north", "east")]) as federation:
            come_through(federation, "north", "east")
            url, process = f"{federation.url('north')}/v1/neighbours/east", federation.process("north")

            def again(count):
                for _ in range(count):
                    assert ask(url, "DELETE")[0] == 204
                    assert ask(url, "PUT")[0] == 204
                come_through(federation, "north", "east", 2)
                return len(os.listdir(f"/proc/{process}/fd"))

            first, last = again(10), again(60)
            assert last <= first + 4, f"{first} descriptors, then {last}"


class TestLeaving:
    def test_those_who_remain_converge_to_their_mean(self, tmp_path):
        links = [("a", "b"), ("b", "c"), ("a", "c")]
        with running(tmp_path, links, num_agents=3) as federation:
            for name in federation.names:
                decide_and_reward(federation, name, 80)
            come_through(federation, "b", "c", 5)
            code, output = command("leave", "nobody", "-c", federation.config("a"))
            assert_mistake((code, output), "nobody is no neighbour of a")

            federation.stop("c")
            federation.stop("b")
            outcomes = [spawn("leave", "c", "-c", federation.config(name)) for name in ("a", "b")]
            for outcome in outcomes:
                code, output = told(outcome)
                assert code == 0, output
                assert "c has left" in output
            assert_mistake(command("leave", "c", "-c", federation.config("b")), "c has left b")
            assert_mistake(command("rejoin", "nobody", "-c", federation.config("b")), "nobody is not among")
            assert neighbour(federation, "a", "c")["left"]

            federation.start("b")
            federation.start("c")  # it has not heard that it has left, and is not heard
            federation.wait_ready("b")
            federation.wait_ready("c")
            come_through(federation, "a", "b", 30)
            wait_until(lambda: neighbour(federation, "c", "a") is not None)
            assert exchanges(federation, "c", "a") == exchanges(federation, "c", "b") == 0
            assert exchanges(federation, "a", "c") == 0
            for name in ("a", "b"):
                federation.stop(name)
            remaining = read(federation, "a", "b")
            assert imbalance(remaining) <= 1e-9
            for column, values in enumerate(zip(*(site.gossiped for site in remaining), strict=True)):
                mean = sum(site.own[column] for site in remaining) / 2
                assert all(abs(value - mean) < 1e-6 for value in values), "the mean of those who remain"

            for name in ("a", "b"):
                federation.start(name)
                federation.wait_ready(name)
            backs = [spawn("rejoin", "c", "-c", federation.config(name)) for name in ("a", "b")]
            assert [told(back)[0] for back in backs] == [0, 0]
            # At c nobody had left; it takes the empty links of the others for what they are.
            come_through(federation, "b", "c", 30, within=20.0)
            come_through(federation, "a", "c", 30, within=20.0)
            for name in federation.names:
                federation.stop(name)
            assert imbalance(read(federation, *federation.names)) <= 1e-9

    def test_the_agent_of_another_site_is_not_told(self, tmp_path):
        with running(tmp_path, [("north", "east")], "north") as federation:
            edit(federation.config("east"), (r"http = \"[^\"]*\"", f'http = "{federation.url("north")[7:]}"'))
            assert_mistake(command("leave", "north", "-c", federation.config("east")), "listen.http", "'north'")


class TestDisks:
    @pytest.fixture
    def small_disk(self, tmp_path):
        folder = tmp_path / "small"
        folder.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", folder], capture_output=True)
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
            fill(small_disk / "fill")
            refused = None
            for _ in range(500):  # what is left of the file's last page may still take a few
                status, content = ask(f"{url}/v1/decisions", "POST")
                if status != 201:
                    refused = status, content
                    break
            assert refused is not None, "the disk was not full"
            assert refused[0] == 503
            assert "disk is full" in refused[1]["error"]["message"]
            fill(small_disk / "fill more")
            status, content = ask(f"{url}/v1/decisions/{waiting['id']}/reward", "PUT", {"value": 1.0})
            assert status == 503, content
            wait_until(lambda: ask(f"{url}/readyz")[0] == 503)
            assert "disk is full" in ask(f"{url}/readyz")[1]["error"]["message"]
            time.sleep(2.5)
            assert ask(f"{url}/readyz")[0] == 503, "and it stays so"
            assert str(small_disk) not in str(ask(f"{url}/readyz")[1])
            assert ask(f"{url}/healthz")[0] == 200
            assert len(lines(federation, "north", "ERROR")) <= 3, "the log does not repeat it"

            for name in ("fill", "fill more"):
                (small_disk / name).unlink()
            took = wait_until(lambda: ask(f"{url}/readyz")[0] == 200)
            print(f"ready {took:.2f} s after there was room")
            assert ask(f"{url}/v1/decisions/{waiting['id']}/reward", "PUT", {"value": 1.0})[0] == 204
            known |= decide_and_reward(federation, "north", 5) | {waiting["id"]: 1.0}
            for decision_id, value in known.items():  # the same again is fine; another would be a conflict
                assert ask(f"{url}/v1/decisions/{decision_id}/reward", "PUT", {"value": value})[0] == 204
            federation.stop("north")

    def test_a_lost_disk(self, tmp_path):
        with running(tmp_path, [("north", "east")]) as federation:
            for name in federation.names:
                decide_and_reward(federation, name, 80)
            come_through(federation, "north", "east", 5)
            before = state(federation, "east")
            federation.stop("east")
            shutil.rmtree(federation.state_file("east").parent)
            begun = len(lines(federation, "east", "a new life begins, with fresh batches"))
            federation.start("east")
            federation.wait_ready("east")
            assert len(lines(federation, "east", "a new life begins, with fresh batches")) == begun + 1
            come_through(federation, "north", "east", 5)
            after = state(federation, "east")
            assert after["epoch"] > before["epoch"]
            assert after["decisions"]["handed_out"] == 0
            assert max(arm["weight"] for arm in after["arms"]) > 0.1, "the neighbour has brought the link back"
            decide_and_reward(federation, "east", 40)
            come_through(federation, "north", "east", 10)
            federation.stop_all()
            assert imbalance(read(federation, "north", "east")) <= 1e-9

    def test_a_file_that_is_deleted_under_a_running_agent(self, tmp_path):
        """What would be lost is not taken."""
        with running(tmp_path, [("east", "north")], "north") as federation:
            url = federation.url("north")
            decide_and_reward(federation, "north", 3)
            for path in federation.state_file("north").parent.iterdir():
                path.unlink()
            wait_until(lambda: ask(f"{url}/readyz")[0] == 503)
            status, content = ask(f"{url}/v1/decisions", "POST")
            assert status == 503
            assert "the file is gone" in content["error"]["message"]
            federation.stop("north")
            federation.start("north")
            federation.wait_ready("north")
            assert len(lines(federation, "north", "a new life begins")) == 2

    def test_others_cannot_read_the_state(self, tmp_path):
        with running(tmp_path, [("east", "north")], "north") as federation:
            for path in federation.state_file("north").parent.iterdir():
                assert path.stat().st_mode & 0o077 == 0, path


def fill(path):
    """Take all that is left of a disk."""
    with path.open("wb", buffering=0) as file:
        for size in (4096, 512, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


class TestServing:
    def test_decisions_while_neighbours_are_dead_or_stopped(self, tmp_path):
        links = [("north", "east"), ("north", "south")]
        with running(tmp_path, links, num_agents=3) as federation:
            come_through(federation, "north", "east")
            federation.signal("east", signal.SIGSTOP)
            federation.kill("south")
            took = []
            until = time.monotonic() + 3.0
            while time.monotonic() < until:
                begun = time.perf_counter()
                assert ask(f"{federation.url('north')}/v1/decisions", "POST")[0] == 201
                took.append(time.perf_counter() - begun)
            p99 = sorted(took)[int(0.99 * len(took))]
            print(f"{len(took)} decisions, p99 {1000 * p99:.1f} ms")
            assert p99 < 0.1
            assert not any(it["reachable"] for it in state(federation, "north")["neighbours"])

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

    def test_it_is_light(self, tmp_path):
        """Also after noise was drawn: nothing of the simulator is loaded."""
        with running(tmp_path, [("north", "east")]) as federation:
            decide_and_reward(federation, "north", 100)
            come_through(federation, "north", "east")
            assert state(federation, "north")["privacy"]["releases"] > 0
            process = Path(f"/proc/{federation.process('north')}")
            maps = (process / "maps").read_text()
            assert "grpc" in maps, "the list is not empty"
            for heavy in ("numpy", "numba", "llvmlite", "xarray", "matplotlib", "networkx", "pandas", "scipy", "h5py"):
                assert heavy not in maps, heavy
            (rss,) = re.findall(r"VmRSS:\s+(\d+) kB", (process / "status").read_text())
            print(f"resident memory: {int(rss) / 1024:.0f} MB")
