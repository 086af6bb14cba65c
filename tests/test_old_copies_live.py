"""Old and copied data folders of real agents: put back, started beside the original, restored, confirmed."""

import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from fedbandit import Client
from fedbandit.agent.core.records import Numbering, Stored
from fedbandit.agent.core.release_guard import Presence
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.witness import memory_folder
from fedbandit.cli import app
from fedbandit.local.processes import LocalFederation, _free_ports
from live import TERMS, serving
from processes import (
    ask,
    assert_mistake,
    board,
    come_through,
    command,
    decide_and_reward,
    edit,
    linked,
    read,
    running,
    settle,
    state,
    wait_until,
)

LINKS = [("a", "b"), ("b", "c")]


@pytest.fixture
def federation(tmp_path):
    with running(tmp_path, LINKS[:1]) as federation:
        for name in federation.names:
            decide_and_reward(federation, name, 30)
        come_through(federation, "a", "b")
        yield federation


def releases(federation, name):
    return state(federation, name)["privacy"]["releases"]


def held(federation, name):
    return state(federation, name)["held"]


def folder_of(federation, name):
    return federation.state_file(name).parent


def copied(federation, name, to):
    """A copy of the data folder of a stopped agent."""
    shutil.copytree(folder_of(federation, name), to, copy_function=shutil.copy2)
    to.chmod(0o700)


def put_back(federation, name, copy):
    shutil.rmtree(folder_of(federation, name))
    shutil.copytree(copy, folder_of(federation, name), copy_function=shutil.copy2)
    folder_of(federation, name).chmod(0o700)


def restart(federation, name):
    federation.start(name)
    federation.wait_ready(name)


@pytest.fixture
def put_back_at_a(federation, tmp_path):
    """A backup of a, from before releases that b knows of, has been put back and started."""
    federation.stop("a")
    copied(federation, "a", tmp_path / "backup")
    restart(federation, "a")
    come_through(federation, "a", "b")
    wait_until(lambda: held(federation, "a") is None)
    decide_and_reward(federation, "a", 100)
    come_through(federation, "a", "b")
    federation.stop("a")
    put_back(federation, "a", tmp_path / "backup")
    restart(federation, "a")
    wait_until(lambda: held(federation, "a") == "old")
    return federation


WHY = "--reason", "this is the backup"


class Operator:
    """Runs commands for the agent north, which is served in this process; its neighbour east is in memory."""

    def __init__(self, folder):
        self.data = folder / "north"
        self.data.mkdir(mode=0o700)
        self._config = LocalFederation(folder / "files", TERMS, [("north", "east")]).config("north")
        edit(self._config, (r'data = "data"', f'data = "{self.data}"'))
        self._east = Site("east", TERMS, Stored(Numbering(7, 0)), lambda _, count: [0] * count, Presence(7))

    @contextmanager
    def serving(self):
        with serving(self.data, doubts=True) as agent, Client(agent.url) as client:
            edit(self._config, (r'http = "[^"]*"', f'http = "127.0.0.1:{agent.port}"'))
            yield agent, client

    def run(self, name):
        ran = CliRunner().invoke(app, [name, *WHY, "-c", str(self._config)])
        return ran.exit_code, ran.output

    def exchange(self, agent):
        """What a link brings, both ways."""
        agent.call(lambda driver: driver._publish())
        there, here = dict(self._east.have()), agent.call(lambda driver: driver.site.shown(lambda it: dict(it.have())))
        agent.call(lambda driver: driver.site.do(lambda site: site.receive_have("east", there)))
        self._east.receive_have("north", here)
        for it in self._east.newer_than(here):
            agent.call(lambda driver, it=it: driver.site.do(lambda site: site.merge(it, "east", time.time())))
        for it in agent.call(lambda driver: driver.site.shown(lambda site: site.newer_than(there))):
            self._east.merge(it, "north", time.time())


def learn(client, count):
    client.rewards((decision, 0.5) for decision in client.decide_many(count))


def test_the_commands_of_an_operator_with_an_old_folder(tmp_path):
    """``confirm`` and ``restore``, at an agent that runs and at one that does not. The tests below are of processes."""
    operator = Operator(tmp_path)
    assert_mistake(operator.run("confirm"), "no answer from", "Start north's agent, then confirm")
    assert_mistake(operator.run("restore"), "north has no state yet")
    with operator.serving() as (agent, client):
        learn(client, 30)
        operator.exchange(agent)
    backup = shutil.copytree(operator.data, tmp_path / "backup", copy_function=shutil.copy2)
    assert_mistake(operator.run("restore"), "is whole", "start it", "held")

    with operator.serving() as (agent, client):  # nobody has been asked yet
        before = client.state().privacy.releases
        learn(client, 60)
        assert (client.state().held, client.state().privacy.releases) == ("unconfirmed", before)
        code, said = operator.run("confirm")
        assert (code, said.startswith("north: confirmed")) == (0, True), said
        assert client.state().held is None
        client.decide()  # what waited counts before it
        assert client.state().privacy.releases > before
        operator.exchange(agent)

    shutil.rmtree(operator.data)
    shutil.copytree(backup, operator.data, copy_function=shutil.copy2)
    with operator.serving() as (agent, client):  # east has heard of releases that this file does not know
        operator.exchange(agent)
        assert client.state().held == "old"
        learn(client, 25)
        assert client.state().privacy.releases == before
        assert_mistake(operator.run("confirm"), "the file is old", "fedbandit restore")
        code, said = operator.run("restore")
        assert code == 0, said
        assert "a new incarnation has begun" in said
        assert "25 decisions that only this process knows stay" in said
        assert client.state().held is None
        client.decide()  # what waited counts before it
        assert client.state().privacy.releases > before
        assert_mistake(operator.run("restore"), "the file is current")

    (operator.data / "state.sqlite-commits").unlink()
    code, said = operator.run("restore")
    assert code == 0, said
    assert "0 decisions that only this process knows stay" in said


@pytest.mark.slow
def test_a_backup_that_is_put_back_releases_nothing_until_it_is_restored(put_back_at_a):
    """It hands out decisions and takes rewards; a new incarnation keeps them, and drops what may have been released."""
    federation = put_back_at_a
    before = releases(federation, "a")
    known = decide_and_reward(federation, "a", 60)
    assert releases(federation, "a") == before
    assert any("this data folder is old" in said for said in state(federation, "a")["warnings"])
    assert_mistake(
        command("confirm", *WHY, "-c", federation.config("a")),
        "the file is old",
        "fedbandit restore",
    )
    code, output = command("restore", *WHY, "-c", federation.config("a"))
    assert code == 0, output
    assert f"{len(known)} decisions that only this process knows stay" in output
    assert held(federation, "a") is None
    wait_until(lambda: releases(federation, "a") > before)
    assert_mistake(command("restore", *WHY, "-c", federation.config("a")), "the file is current")
    settle(federation, "a", "b")
    federation.stop_all()
    a, b = read(federation, "a", "b")
    assert a.theta == b.theta
    assert not a.board.drawn_twice
    assert not b.board.drawn_twice


@pytest.mark.slow
def test_files_that_the_agent_refuses_are_restored_while_it_is_stopped(federation):
    """An older main file beside the counter of a newer one. One that the agent opens is for the agent to judge."""
    federation.stop("a")
    assert_mistake(
        command("restore", *WHY, "-c", federation.config("a")),
        "is whole",
        "start it",
        "held",
    )
    (folder_of(federation, "a") / "state.sqlite-commits").unlink()
    federation.start("a")
    wait_until(lambda: not federation.is_running("a"), 30)
    assert "fedbandit restore" in federation.last_words("a")
    code, output = command("restore", *WHY, "-c", federation.config("a"))
    assert code == 0, output
    assert "0 decisions that only this process knows stay" in output
    restart(federation, "a")
    assert held(federation, "a") == "unconfirmed", "the witness knows nothing of this file"
    wait_until(lambda: held(federation, "a") is None, 40)
    before = releases(federation, "a")
    decide_and_reward(federation, "a", 100)
    assert releases(federation, "a") > before


@contextmanager
def twin(federation, name, folder, before=lambda: None):
    """A second process of a site, with a copy of its folder, on other ports. ``before`` it starts something happens."""
    shutil.copytree(federation.folder / name, folder, copy_function=shutil.copy2)
    (folder / "data").chmod(0o700)
    http, gossip = _free_ports(2)
    edit(
        folder / "site.toml",
        (rf"127\.0\.0\.1:{federation.http_ports[name]}", f"127.0.0.1:{http}"),
        (rf"127\.0\.0\.1:{federation.gossip_ports[name]}", f"127.0.0.1:{gossip}"),
    )
    before()
    process = subprocess.Popen([sys.executable, "-m", "fedbandit", "agent", "--config", folder / "site.toml"])
    try:
        yield f"http://127.0.0.1:{http}"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def held_at(url):
    try:
        return ask(f"{url}/v1/state")[1]["held"]
    except OSError:
        return "not there yet"


def give(url, count):
    """Decisions with rewards, whatever the agent holds."""
    for _ in range(count):
        decision = ask(f"{url}/v1/decisions", "POST")[1]
        assert ask(f"{url}/v1/decisions/{decision['id']}/reward", "PUT", {"value": 1.0})[0] == 204


@pytest.mark.slow
@pytest.mark.parametrize("has_witness", [True, False])
def test_a_copy_beside_the_original_releases_nothing(federation, has_witness):
    """Whichever of the two is linked first goes on; the other one is refused by name, and never confirmed."""
    federation.stop("a")
    if not has_witness:
        forget_witness(federation, "a")
    with twin(federation, "a", federation.folder / "a twin") as other:  # copied while it is stopped, as an image is
        restart(federation, "a")
        wait_until(lambda: held_at(other) != "not there yet")
        before = ask(f"{other}/v1/state")[1]["privacy"]["releases"]
        wait_until(lambda: held(federation, "a") is None or held_at(other) is None, 40)
        for url in (other, federation.url("a")):
            give(url, 60)
        time.sleep(2.0)
        seen = [ask(f"{url}/v1/state")[1] for url in (other, federation.url("a"))]
        assert sorted(it["privacy"]["releases"] > before for it in seen) == [False, True]
        assert sorted(it["held"] is None for it in seen) == [False, True]
        assert any("two processes have the name a" in it for it in state(federation, "b")["warnings"])
        assert not [it for it in state(federation, "b")["members"] if it["conflict"]]


@pytest.mark.slow
def test_two_processes_that_both_went_on_both_stop_and_the_operator_says_which_one_lives(federation):
    """The runbook: a copy was confirmed by mistake; two bulletins with one number prove it. Stop one, confirm one."""
    federation.stop("a")
    number = board(federation, "b")["a"][1] + 1

    def original():
        restart(federation, "a")
        wait_until(lambda: linked(federation, "b", "a"))  # else b might be linked with the copy

    with twin(federation, "a", federation.folder / "a twin", original) as other:
        wait_until(lambda: held_at(other) == "unconfirmed")
        assert ask(f"{other}/v1/confirm", "POST", {"reason": "the other is stopped"})[0] == 204
        wait_until(
            lambda: any(it["name"] == "a" and it["number"] >= number for it in ask(f"{other}/v1/state")[1]["members"])
        )
        give(federation.url("a"), 1)
        wait_until(lambda: board(federation, "b")["a"][1] >= number)
        federation.kill("a")  # now the other one is linked
        wait_until(lambda: held_at(other) in ("split-brain", "old"), 90)  # it was refused: it dials again later
        wait_until(lambda: [it["name"] for it in state(federation, "b")["members"] if it["conflict"]] == ["a"])
        before = ask(f"{other}/v1/state")[1]["privacy"]["releases"]
        give(other, 60)
        assert ask(f"{other}/v1/state")[1]["privacy"]["releases"] == before
        assert state(federation, "b")["needs_person"]
    restart(federation, "a")
    wait_until(lambda: held(federation, "a") == "split-brain", 40)
    before = releases(federation, "a")
    give(federation.url("a"), 60)
    assert releases(federation, "a") == before
    code, output = command("confirm", *WHY, "-c", federation.config("a"))
    assert code == 0, output
    give(federation.url("a"), 20)
    wait_until(lambda: releases(federation, "a") > before)
    wait_until(lambda: not [it for it in state(federation, "b")["members"] if it["conflict"]])
    come_through(federation, "a", "b")
    assert held(federation, "a") is None


def forget_witness(federation, name):
    """What a reboot does."""
    identity = federation.state_file(name).with_name("state.sqlite-commits").read_bytes()[8:24]
    (memory_folder(None) / f"fedbandit-{identity.hex()}").unlink()


@pytest.mark.slow
def test_an_agent_that_was_killed_releases_at_once_and_one_whose_folder_was_put_back_waits(tmp_path):
    """In the same seconds, with nobody to ask: only the witness tells one from the other."""
    with running(tmp_path, LINKS, num_agents=3) as federation:
        decide_and_reward(federation, "a", 30)
        come_through(federation, "a", "b")
        federation.kill("b")
        federation.kill("a")
        copied(federation, "a", tmp_path / "snapshot")
        restart(federation, "a")
        before = releases(federation, "a")
        decide_and_reward(federation, "a", 60)
        assert held(federation, "a") is None
        assert releases(federation, "a") > before
        federation.kill("a")
        put_back(federation, "a", tmp_path / "snapshot")
        restart(federation, "a")
        before = releases(federation, "a")
        decide_and_reward(federation, "a", 60)
        assert (held(federation, "a"), releases(federation, "a")) == ("unconfirmed", before)
        assert state(federation, "a")["waits_for"] == ["b"]


@pytest.mark.slow
def test_a_site_with_nobody_to_ask_waits_for_its_operator(tmp_path):
    with running(tmp_path, LINKS, num_agents=3) as federation:
        decide_and_reward(federation, "a", 30)
        come_through(federation, "a", "b")
        for name in ("a", "b"):
            federation.kill(name)
        forget_witness(federation, "a")
        restart(federation, "a")
        before = releases(federation, "a")
        decide_and_reward(federation, "a", 60)
        assert (held(federation, "a"), releases(federation, "a")) == ("unconfirmed", before)
        assert any("fedbandit confirm" in said for said in state(federation, "a")["warnings"])
        code, output = command("confirm", *WHY, "-c", federation.config("a"))
        assert (code, output.startswith("a: confirmed")) == (0, True)
        wait_until(lambda: releases(federation, "a") > before)


@pytest.mark.slow
def test_confirm_needs_a_running_agent(tmp_path):
    with running(tmp_path, LINKS, "b", num_agents=3) as federation:
        assert_mistake(
            command("confirm", *WHY, "-c", federation.config("a")),
            "no answer from",
            "Start a's agent, then confirm",
        )


@pytest.mark.slow
def test_a_twin_with_other_terms_is_not_called_a_lost_disk(federation):
    """It is refused for its terms."""
    federation.stop("b")
    copy = federation.folder / "b twin"
    shutil.copytree(federation.folder / "b", copy, ignore=shutil.ignore_patterns("data"))
    (http,) = _free_ports(1)
    edit(
        copy / "site.toml",
        (rf"127\.0\.0\.1:{federation.http_ports['b']}", f"127.0.0.1:{http}"),
        ("max_agents = 2", "max_agents = 3"),
    )
    process = subprocess.Popen([sys.executable, "-m", "fedbandit", "agent", "--config", copy / "site.toml"])
    try:
        log = federation.log("a")
        wait_until(lambda: "the federation differs at b" in log.read_text(), 30)
        assert "disk was lost" not in log.read_text()
    finally:
        process.kill()
        process.wait()
