"""Agents as processes: what they refuse to start with, how they stop, and how their neighbours change."""

import re
import resource
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from processes import (
    are_level,
    ask,
    assert_mistake,
    board,
    come_through,
    command,
    decide_and_reward,
    edit,
    lines,
    linked,
    measured,
    neighbour,
    read,
    running,
    settle,
    spawn,
    state,
    told,
    wait_until,
)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A site that ran once, with its configuration."""
    with running(tmp_path_factory.mktemp("stopped"), [("east", "north")], "north") as federation:
        pass
    return federation


class TestWhatIsRefusedAtTheStart:
    def test_the_files(self, stopped):
        """Exit code 2, and words. ``test_check.py`` and ``test_damaged_files.py`` have every cause."""
        config, folder = stopped.config("north"), stopped.folder / "north"
        text, data = config.read_text(), stopped.state_file("north")

        def attempt(case, *changes):
            path = folder / f"{case}.toml"
            # All start at once: none may find the port of another in use.
            path.write_text(re.sub(r"(http|gossip) = \"[^\"]*\"", r'\1 = "127.0.0.1:0"', text))
            edit(path, *changes)
            return spawn("agent", "-c", path)

        key = r"key = \"[^\"]*\""
        (folder / "open.key").write_bytes((stopped.folder / "certs" / "north.key").read_bytes())
        (folder / "open.key").chmod(0o644)
        (folder / "file").write_text("")
        (folder / "garbage").mkdir(mode=0o700)
        (folder / "garbage" / data.name).write_bytes(b"this is not a database at all, but long enough" * 100)
        (folder / "garbage" / data.name).chmod(0o600)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            cases = {
                "terms": (
                    attempt("terms", (r"epsilon = 1\.0", "epsilon = 2.0")),
                    "policy.epsilon: 2.0 here, 1.0 there",
                ),
                "garbage": (attempt("garbage", (r'data = "data"', 'data = "garbage"')), "not a database"),
                "data": (attempt("data", (r'data = "data"', 'data = "file"')), "file", "exists"),
                "key": (attempt("key", (key, 'key = "open.key"')), "tls.key", "open to others", "chmod 600"),
                "gossip": (
                    attempt("gossip", (r"gossip = \"[^\"]*\"", f'gossip = "127.0.0.1:{port}"')),
                    f"cannot listen for neighbours on 127.0.0.1:{port}",
                ),
            }
            with ExitStack() as under_way:
                for process, *_ in cases.values():
                    under_way.enter_context(process)
                    under_way.callback(process.kill)
                for case, (process, *words) in cases.items():
                    code, output = told(process)
                    # The log may come first.
                    assert_mistake((code, "\n".join(output.splitlines()[-2:])), *words)
                    assert "Traceback" not in output, case

    @pytest.mark.parametrize("door", [pytest.param("gossip", marks=pytest.mark.slow), "http"])
    def test_a_first_start_whose_port_is_in_use_leaves_nothing(self, stopped, door):
        """Fails if a new incarnation begins before the ports are bound: corrected terms would be refused afterwards."""
        text, folder = stopped.config("north").read_text(), stopped.folder / "north" / f"first-{door}"
        with socket.create_server(("127.0.0.1", 0)) as taken:
            used = f"127.0.0.1:{taken.getsockname()[1]}"
            text = re.sub(r"(http|gossip) = \"[^\"]*\"", r'\1 = "127.0.0.1:0"', text)
            path = stopped.folder / "north" / f"first-{door}.toml"
            text = text.replace(f'{door} = "127.0.0.1:0"', f'{door} = "{used}"')
            path.write_text(text.replace('data = "data"', f'data = "{folder.name}"'))
            code, output = command("agent", "-c", path)
        assert_mistake((code, output), "cannot listen for", f"{used}: Address already in use")
        assert "new incarnation" not in output
        assert not folder.exists()

    @pytest.mark.slow
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


class TestTerms:
    @pytest.mark.slow
    def test_sites_with_other_terms_have_no_link_and_say_why(self, tmp_path):
        def differ(federation):
            edit(federation.config("east"), (r"epsilon = 1\.0", "epsilon = 2.0"))

        with running(tmp_path, [("north", "east")], prepare=differ) as federation:
            for name, other, here, there in (("north", "east", "1.0", "2.0"), ("east", "north", "2.0", "1.0")):
                expected = f"policy.epsilon: {here} here, {there} there"
                wait_until(lambda a=name, b=other, e=expected: e in (neighbour(federation, a, b)["last_error"] or ""))
            time.sleep(2.0)
            for name, other, here, there in (("north", "east", "1.0", "2.0"), ("east", "north", "2.0", "1.0")):
                expected = f"policy.epsilon: {here} here, {there} there"
                assert expected in neighbour(federation, name, other)["last_error"], "not only for a moment"
                assert not linked(federation, name, other)
                assert list(board(federation, name)) in ([], [name])
                said = lines(federation, name, expected)
                assert 1 <= len(said) <= 2, said
                assert len(federation.log(name).read_text().splitlines()) < 15, "attempts go on, the log does not"
            assert state(federation, "east")["refused"]["other terms"] >= 2


class TestStopping:
    def test_sigterm(self, tmp_path):
        """A request under way comes to its end; the file is whole, and has what was sent."""
        with running(tmp_path, [("north", "east")]) as federation:
            decide_and_reward(federation, "north", 60)
            come_through(federation, "north", "east")
            settle(federation, "north", "east")
            _, decision = ask(f"{federation.url('north')}/v1/decisions", "POST")
            with socket.create_connection(("127.0.0.1", federation.http_ports["north"])) as request:
                head = f"PUT /v1/decisions/{decision['id']}/reward HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                head += "Content-Type: application/json\r\nContent-Length: 13\r\nExpect: 100-continue\r\n\r\n"
                request.sendall(head.encode())
                assert request.recv(1000).startswith(b"HTTP/1.1 100"), "it reads the request"
                begun = time.monotonic()
                federation.signal("north", signal.SIGTERM)
                time.sleep(0.4)
                assert federation.is_running("north")
                request.sendall(b'{"value": 1 }')
                assert request.recv(1000).startswith(b"HTTP/1.1 204")
            assert federation.stop("north") == 0
            took = time.monotonic() - begun
            measured(f"stopped after {took:.2f} s")
            assert lines(federation, "north", "stopped")
            assert not list(federation.state_file("north").parent.glob("*-wal"))
            assert federation.stop("east") == 0
            north, east = read(federation, "north", "east")
            assert decision["id"] in north.stored.decisions
            assert north.stored.decisions[decision["id"]].rewarded
            own, there = north.board.held("north"), east.board.held("north")
            assert own.place >= there.place > (own.place[0], 1), "what was sent is in the file"
            assert north.board.held("east").signed == east.board.held("east").signed

    @pytest.mark.slow
    def test_a_neighbour_that_does_not_answer_does_not_hold_it_up(self, tmp_path):
        with running(tmp_path, [("north", "east")]) as federation:
            come_through(federation, "north", "east")
            federation.signal("east", signal.SIGSTOP)
            time.sleep(0.2)
            begun = time.monotonic()
            assert federation.stop("north") == 0
            assert time.monotonic() - begun < 3.5

    def test_sigkill_and_back(self, tmp_path):
        with running(tmp_path, [("north", "east")]) as federation:
            known = decide_and_reward(federation, "east", 40)
            come_through(federation, "north", "east")
            before = state(federation, "east")
            federation.kill("east")
            wait_until(lambda: not neighbour(federation, "north", "east")["reachable"])
            time.sleep(1.5)
            federation.start("east")
            federation.wait_ready("east")
            took = come_through(federation, "north", "east")
            measured(f"boards are level {took:.2f} s after the restarted agent is ready")
            after = state(federation, "east")
            assert after["incarnation"] == before["incarnation"]
            assert after["decisions"] == before["decisions"]
            counted = ("name", "own_mean", "pulls", "rewards", "releases")
            assert [[arm[it] for it in counted] for arm in after["arms"]] == [
                [arm[it] for it in counted] for arm in before["arms"]
            ]
            settle(federation, "north", "east")
            federation.stop_all()
            sites = read(federation, "north", "east")
            assert {d.id for d in sites[1].stored.decisions.values() if d.rewarded} == set(known)
            assert sites[0].board.stored() == sites[1].board.stored() or sites[0].have() == sites[1].have()
            assert sites[0].theta == sites[1].theta, "bit for bit"


class TestTheNeighbourList:
    @pytest.mark.slow
    def test_it_is_read_again(self, tmp_path):
        links = [("north", "east"), ("south", "north")]
        with running(tmp_path, links, num_agents=3) as federation:
            come_through(federation, "north", "east")
            come_through(federation, "south", "north")
            config = federation.config("north")
            whole = config.read_text()

            config.write_text(whole.replace("[[neighbours]]", "[[neighbors]]"))
            wait_until(lambda: lines(federation, "north", "ERROR", "not applied", "Did you mean 'neighbours'?"))
            come_through(federation, "north", "east")

            config.unlink()
            wait_until(lambda: lines(federation, "north", "ERROR", "not applied", "no such file"))

            edit_text = re.sub(r"\[\[neighbours\]\]\nname = \"south\"\n", "", whole).replace('"data"', '"elsewhere"')
            config.write_text(edit_text)
            wait_until(lambda: lines(federation, "north", "south: no longer a neighbour"))
            wait_until(
                lambda: "is no neighbour of north" in (neighbour(federation, "south", "north")["last_error"] or "")
            )
            assert neighbour(federation, "north", "south") is None
            assert lines(federation, "north", "restart to apply", "data")
            come_through(federation, "north", "east")
            assert not linked(federation, "south", "north")

            config.write_text(whole)
            wait_until(lambda: neighbour(federation, "north", "south") is not None)
            come_through(federation, "south", "north")
            assert len(lines(federation, "north", "not applied")) <= 3
            federation.stop_all()
            assert read(federation, "north")[0].neighbours == ("east", "south")

    @pytest.mark.slow
    def test_hanging_up_and_dialling_again_leaves_nothing_behind(self, tmp_path):
        with running(tmp_path, [("north", "east")]) as federation:
            come_through(federation, "north", "east")
            config, process = federation.config("north"), federation.process("north")
            whole = config.read_text()
            alone = whole.partition("[[neighbours]]")[0]

            def again(count):
                for _ in range(count):
                    config.write_text(alone)
                    wait_until(lambda: neighbour(federation, "north", "east") is None)
                    config.write_text(whole)
                    wait_until(lambda: neighbour(federation, "north", "east") is not None)
                come_through(federation, "north", "east")
                return descriptors()

            def descriptors():
                return len(list(Path(f"/proc/{process}/fd").iterdir()))

            first = again(2)
            again(6)
            # On a busy machine the last connections take a while to end; what is left behind stays.
            wait_until(lambda: descriptors() <= first + 2, within=90.0)


def test_it_takes_the_descriptors_that_it_may_have(tmp_path):
    """A caller who opens a few hundred connections and says nothing must not keep others out."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))  # what the process begins with
    try:
        with running(tmp_path, [("east", "north")], "north") as federation:
            assert resource.prlimit(federation.process("north"), resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


WHY = "--reason", "its data are wrong"


class TestMembers:
    def test_excluded_and_included_while_agents_run_and_while_they_are_stopped(self, tmp_path):
        """It counts nowhere where it is excluded; what it says is passed on all the same."""
        links = [("a", "b"), ("b", "c")]
        with running(tmp_path, links, num_agents=3) as federation:
            for name in federation.names:
                decide_and_reward(federation, name, 60)  # each releases at least one arm
            wait_until(lambda: are_level(federation, "a", "b", "c"))
            assert_mistake(command("exclude", "nobody", *WHY, "-c", federation.config("b")), "name must be one of a, c")
            code, output = command("exclude", "c", *WHY, "-c", federation.config("b"))
            assert code == 0, output
            assert "c no longer counts at this site" in output
            assert command("exclude", "c", *WHY, "-c", federation.config("b"))[0] == 0, "twice is as good as once"

            def counted(name):
                return [it["name"] for it in state(federation, name)["members"] if it["counts"]]

            assert [counted(name) for name in "abc"] == [["a", "b", "c"], ["a", "b"], ["a", "b", "c"]]
            decide_and_reward(federation, "c", 8)
            wait_until(lambda: are_level(federation, "a", "b", "c"))
            federation.stop("b")
            for arguments in (("include", "c"), ("exclude", "a", *WHY)):
                code, output = command(*arguments, "-c", federation.config("b"))
                assert code == 0, output
            federation.start("b")
            federation.wait_ready("b")
            assert counted("b") == ["b", "c"]
            estimates = [[arm["estimate"] for arm in state(federation, name)["arms"]] for name in "abc"]
            assert estimates[0] == estimates[2] != estimates[1]

    def test_a_refused_member_has_no_link_and_no_weight(self, tmp_path):
        with running(tmp_path, [("a", "b"), ("b", "c")], num_agents=3) as federation:
            for name in federation.names:
                decide_and_reward(federation, name, 20)
            wait_until(lambda: are_level(federation, "a", "b", "c"))
            config = federation.config("b")
            whole = config.read_text()
            config.write_text(
                re.sub(r"\[\[neighbours\]\]\nname = \"c\"[^\[]*", "", whole) + '[members]\nrefuse = ["c"]\n'
            )
            wait_until(lambda: lines(federation, "b", "applied [members]"))
            (it,) = (it for it in state(federation, "b")["members"] if it["name"] == "c")
            assert (it["counts"], it["refused"]) == (False, True)
            before = board(federation, "b")["c"]
            decide_and_reward(federation, "c", 20)
            wait_until(lambda: not linked(federation, "c", "b"))
            time.sleep(1.5)
            assert board(federation, "b")["c"] == board(federation, "a")["c"] == before, "nor passed on"

    def test_the_agent_of_another_site_is_not_told(self, tmp_path):
        with running(tmp_path, [("north", "east")], "north") as federation:
            edit(federation.config("east"), (r"http = \"[^\"]*\"", f'http = "{federation.url("north")[7:]}"'))
            assert_mistake(command("exclude", "north", *WHY, "-c", federation.config("east")), "listen.http", "'north'")
