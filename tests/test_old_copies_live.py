"""Old and copied data folders of real agents: put back, started beside the original, restored, confirmed."""

import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from fedbandit.agent.core.memory_network import imbalance
from fedbandit.local.processes import _free_ports
from processes import (
    ask,
    assert_mistake,
    come_through,
    command,
    decide_and_reward,
    edit,
    read,
    running,
    state,
    wait_until,
)

LINKS = [("a", "b"), ("b", "c")]


@pytest.fixture
def federation(tmp_path):
    with running(tmp_path, LINKS[:1]) as federation:
        for name in federation.names:
            decide_and_reward(federation, name, 30)
        come_through(federation, "a", "b", 3)
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
    come_through(federation, "a", "b", 3)
    wait_until(lambda: held(federation, "a") is None)
    decide_and_reward(federation, "a", 100)
    come_through(federation, "a", "b", 3)
    federation.stop("a")
    put_back(federation, "a", tmp_path / "backup")
    restart(federation, "a")
    wait_until(lambda: held(federation, "a") == "old")
    return federation


@pytest.mark.slow
def test_a_backup_that_is_put_back_releases_nothing_until_it_is_restored(put_back_at_a):
    """It hands out decisions and takes rewards; a new incarnation keeps them, and drops what may have been released."""
    federation = put_back_at_a
    before = releases(federation, "a")
    known = decide_and_reward(federation, "a", 60)
    assert releases(federation, "a") == before
    assert any("this data folder is old" in said for said in state(federation, "a")["warnings"])
    assert_mistake(command("confirm", "-c", federation.config("a")), "the file is old", "fedbandit restore")
    code, output = command("restore", "-c", federation.config("a"))
    assert code == 0, output
    assert f"{len(known)} decisions that only this process knows stay" in output
    assert held(federation, "a") is None
    wait_until(lambda: releases(federation, "a") > before)
    assert_mistake(command("restore", "-c", federation.config("a")), "the file is current")
    come_through(federation, "a", "b", 5)
    federation.stop_all()
    assert imbalance(read(federation, "a", "b")) <= 1e-9


@pytest.mark.slow
def test_files_that_the_agent_refuses_are_restored_while_it_is_stopped(federation):
    """An older main file beside the counter of a newer one. One that the agent opens is for the agent to judge."""
    federation.stop("a")
    assert_mistake(command("restore", "-c", federation.config("a")), "is whole", "start it", "held")
    (folder_of(federation, "a") / "state.sqlite-commits").unlink()
    federation.start("a")
    wait_until(lambda: not federation.is_running("a"), 30)
    assert "fedbandit restore" in federation.last_words("a")
    code, output = command("restore", "-c", federation.config("a"))
    assert code == 0, output
    assert "0 decisions that only this process knows stay" in output
    restart(federation, "a")
    wait_until(lambda: held(federation, "a") is None)
    before = releases(federation, "a")
    decide_and_reward(federation, "a", 100)
    assert releases(federation, "a") > before


@contextmanager
def twin(federation, name, folder):
    """A second process of a site, with a copy of its folder, on other ports."""
    shutil.copytree(federation.folder / name, folder, copy_function=shutil.copy2)
    (folder / "data").chmod(0o700)
    http, gossip = _free_ports(2)
    edit(
        folder / "site.toml",
        (rf"127\.0\.0\.1:{federation.http_ports[name]}", f"127.0.0.1:{http}"),
        (rf"127\.0\.0\.1:{federation.gossip_ports[name]}", f"127.0.0.1:{gossip}"),
    )
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


@pytest.mark.slow
def test_two_processes_of_one_folder_both_stop_until_the_operator_says_which_one_lives(federation):
    federation.stop("a")
    copy = federation.folder / "a twin"
    with twin(federation, "a", copy) as other:  # copied while the agent is stopped, as an image would be
        restart(federation, "a")
        wait_until(
            lambda: held(federation, "a") in ("split-brain", "old") and held_at(other) in ("split-brain", "old"), 30
        )
        wait_until(lambda: any("two processes speak as a" in said for said in state(federation, "b")["warnings"]))
        before = releases(federation, "a")
        decide_and_reward(federation, "a", 60)
        assert releases(federation, "a") == before
    why = held(federation, "a")
    code, output = command("confirm" if why == "split-brain" else "restore", "-c", federation.config("a"))
    assert code == 0, output
    wait_until(lambda: releases(federation, "a") > before)
    come_through(federation, "a", "b", 5)
    assert held(federation, "a") is None
    wait_until(lambda: not any("two processes" in said for said in state(federation, "b")["warnings"]))


@pytest.mark.slow
def test_a_site_with_nobody_to_ask_waits_for_its_operator(tmp_path):
    with running(tmp_path, LINKS, num_agents=3) as federation:
        decide_and_reward(federation, "a", 30)
        come_through(federation, "a", "b", 3)
        for name in ("a", "b"):
            federation.kill(name)
        restart(federation, "a")
        before = releases(federation, "a")
        decide_and_reward(federation, "a", 60)
        assert (held(federation, "a"), releases(federation, "a")) == ("unconfirmed", before)
        assert any("fedbandit confirm" in said for said in state(federation, "a")["warnings"])
        code, output = command("confirm", "-c", federation.config("a"))
        assert (code, output.startswith("a: confirmed")) == (0, True)
        wait_until(lambda: releases(federation, "a") > before)


@pytest.mark.slow
def test_confirm_needs_a_running_agent(tmp_path):
    with running(tmp_path, LINKS, "b", num_agents=3) as federation:
        assert_mistake(
            command("confirm", "-c", federation.config("a")), "no answer from", "Start a's agent, then confirm"
        )


@pytest.mark.slow
def test_a_twin_with_other_terms_is_not_called_a_lost_disk(federation):
    """It is refused for its terms, and the life of the real one goes on."""
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
