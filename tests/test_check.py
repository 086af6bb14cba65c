"""``fedbandit agent --check``: every failure from its real cause, and nothing changes."""

import asyncio
import gc
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import STATE_FILE, JournalError, SqliteJournal
from fedbandit.agent.disk.witness import memory_folder
from fedbandit.agent.gossip.tls import in_words
from fedbandit.agent.process import check as checking
from fedbandit.agent.process.certificates import init, issue
from fedbandit.agent.process.check import check
from fedbandit.agent.process.config import read_config
from fedbandit.agent.process.runtime import Agent
from fedbandit.cli import app
from fedbandit.local.processes import LocalFederation
from live import bulletin_of
from processes import ask, assert_mistake, spawn, terms, told

DAY = timedelta(days=1)


def right_now():
    """The machine's time: never that of an import, which may be long before a test's certificates."""
    return datetime.now(UTC)


@pytest.fixture
def site(tmp_path):
    """The files of north, whose neighbour east does not run."""
    federation = LocalFederation(tmp_path / "all", terms(), [("north", "east")])
    return SimpleNamespace(
        path=federation.config("north"), certs=tmp_path / "all" / "certs", data=tmp_path / "all" / "north" / "data"
    )


def edit(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def found(path, now=None):
    """What is found, by what it is about."""
    return {it.about: it for it in asyncio.run(check(read_config(path), False, now or right_now()))}


def assert_found(path, about, level, *words, now=None):
    it = found(path, now)[about]
    assert it.level == level, it
    for word in words:
        assert word in it.words, it


def make_state(site, name="north", its_terms=None, decided_at=None):
    """A state file of a site that has decided once."""
    site.data.mkdir(mode=0o700, exist_ok=True)
    journal = SqliteJournal(site.data / STATE_FILE, name, its_terms or terms(), incarnation=1)
    if decided_at is not None:
        its_site = Site(name, terms(), journal.load())
        draws = SiteDraws((0.0, 0.0), 0.5)
        journal.commit(its_site.decide(decided_at, [draws]).records)
    journal.close()


def test_a_site_that_would_start_and_whose_neighbour_does_not_answer(site):
    seen = found(site.path)
    assert {about: it.level for about, it in seen.items()} == {
        "configuration": "ok",
        "tls.certificate": "ok",
        "tokens": "ok",
        "data": "ok",
        "witness": "ok",
        "listen.http": "ok",
        "listen.gossip": "ok",
        "neighbour east": "error",
        "their clocks": "unknown",
    }
    assert "nothing listens there" in seen["neighbour east"].words
    assert "a new incarnation would begin" in seen["data"].words


def test_a_neighbour_that_is_refused_is_named_and_names_that_nobody_bears_are(site):
    """A mistyped name refuses nobody, and accepts from nobody."""
    with site.path.open("a") as file:
        file.write('[members]\nrefuse = ["east", "eats"]\n[arms]\naccept = ["sout"]\n')
    seen = found(site.path)
    assert (seen["neighbour east"].level, seen["neighbour east"].words) == (
        "warning",
        "members.refuse names it: no link",
    )
    assert seen["members.refuse"].level == seen["arms.accept"].level == "warning"
    assert seen["members.refuse"].words.startswith("no site 'eats' is known here")
    assert seen["members.refuse"].words.endswith("Did you mean 'east'?")
    assert "'sout'" in seen["arms.accept"].words
    make_state(site)
    journal = SqliteJournal(site.data / STATE_FILE, "north", terms(), incarnation=1)
    its_site = Site("north", terms(), journal.load())
    its_site.merge(bulletin_of("sout", terms()), "east", 1.0)
    journal.commit(its_site.board_rows().records)
    journal.close()
    assert "arms.accept" not in found(site.path)


# ---------------------------------------------------------------- certificates


def other_name(site):
    edit(site.path, "north.crt", "east.crt")


def other_key(site):
    edit(site.path, "north.key", "east.key")


def open_key(site):
    (site.certs / "north.key").chmod(0o644)


def no_key(site):
    (site.certs / "north.key").unlink()


def no_pem(site):
    (site.certs / "north.crt").write_text("hello")


def other_ca(site):
    init(site.certs / "other", "other", 90, right_now())
    edit(site.path, "../certs/ca.crt", "../certs/other/ca.crt")


@pytest.mark.parametrize(
    ("hurt", "about", "words"),
    [
        (other_name, "tls.certificate", "is for DNS:east; it must be for DNS:north alone"),
        (other_key, "tls.key", "does not belong to"),
        (open_key, "tls.key", "chmod 600"),
        (no_key, "tls.key", "no such file"),
        (no_pem, "tls.certificate", "holds no certificate"),
        (other_ca, "tls.ca", "did not sign"),
    ],
)
def test_certificates_that_do_not_fit(site, hurt, about, words):
    hurt(site)
    assert_found(site.path, about, "error", words)
    assert_found(site.path, "neighbour east", "unknown", "not tried")


def test_dates_of_certificates(site):
    assert_found(site.path, "tls.certificate", "error", "has expired", now=right_now() + 100 * DAY)
    assert_found(site.path, "tls.certificate", "error", "not valid yet", "clock right", now=right_now() - DAY)
    assert_found(site.path, "tls.certificate", "warning", "expires in 10 days", now=right_now() + 80 * DAY)
    assert_found(site.path, "tls.ca", "warning", "the CA expires in 10 days", now=right_now() + 80 * DAY)


# ---------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    ("contents", "mode", "words"),
    [
        ((None, "b" * 20), 0o600, "no such file"),
        (("a" * 20, "b" * 20), 0o644, "chmod 600"),
        (("a" * 3, "b" * 20), 0o600, "16"),
        (("a" * 20, "a" * 20), 0o600, "token of another: each needs its own"),
    ],
)
def test_tokens_that_cannot_be_used(site, contents, mode, words):
    with site.path.open("a") as file:
        file.write('\n[tokens]\napplication = "app"\nviewer = "view"\n')
    for name, content in zip(("app", "view"), contents, strict=True):
        if content is not None:
            (site.path.parent / name).write_text(content)
            (site.path.parent / name).chmod(mode)
    wrong = [it for it in found(site.path).values() if it.level == "error" and "token" in it.about]
    assert wrong
    assert all(words in it.words for it in wrong), wrong
    assert all(content not in it.words for it in wrong for content in contents if content)


def test_a_name_that_is_not_what_it_seems(site):
    edit(site.path, '"B"', '"Tim\u043elol"')
    assert_found(site.path, "arms", "warning", "cyrillic small letter o", "among Latin ones")
    edit(site.path, '"Tim\u043elol"', '"a"')  # beside "A"
    assert_found(site.path, "arms", "warning", "cannot tell the arms 'A' and 'a' apart")


# ---------------------------------------------------------------- the data folder and the clock


def test_a_state_that_can_be_used_is_looked_at_and_left_alone(site):
    make_state(site, decided_at=right_now().timestamp())
    before = snapshot(site.path.parent)
    assert_found(site.path, "data", "ok", "1 decisions")
    assert_found(site.path, "clock", "ok")
    assert snapshot(site.path.parent) == before


def test_a_clock_behind_the_last_time_of_the_state(site):
    make_state(site, decided_at=right_now().timestamp() + 7200.0)
    assert_found(site.path, "clock", "warning", "2.0 hours behind")


def not_a_folder(site):
    site.data.write_text("")


def of_another_site(site):
    make_state(site, "east")


def of_another_federation(site):
    make_state(site, its_terms=terms(epsilon=2.0))


def open_folder(site):
    make_state(site)
    site.data.chmod(0o755)


def damaged(site):
    make_state(site)
    content = bytearray((site.data / STATE_FILE).read_bytes())
    content[4096:4200] = b"\xff" * 104
    (site.data / STATE_FILE).write_bytes(content)


def empty(site):
    make_state(site)
    (site.data / STATE_FILE).write_bytes(b"")


def without_counter(site):
    make_state(site)
    (site.data / f"{STATE_FILE}-commits").unlink()


@pytest.mark.parametrize(
    ("hurt", "words"),
    [
        (not_a_folder, "is not a folder in which this user can write"),
        (of_another_site, "belongs to the agent 'east'"),
        (of_another_federation, "policy.epsilon: 1.0 here, 2.0 there"),
        (open_folder, "chmod 700"),
        (damaged, STATE_FILE),
        (empty, "0 bytes"),
        (without_counter, "-commits is missing"),
    ],
)
def test_data_folders_that_cannot_be_used(site, hurt, words):
    hurt(site)
    before = snapshot(site.path.parent)
    assert_found(site.path, "data", "error", words)
    assert snapshot(site.path.parent) == before


HOLDS = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from processes import terms
from fedbandit.agent.disk.journal import SqliteJournal
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.decisions import SiteDraws
journal = SqliteJournal(Path({path!r}), "north", terms(), incarnation=1)
site = Site("north", terms(), journal.load())
journal.commit(site.decide({at}, [SiteDraws((0.0, 0.0), 0.5)]).records)
print("open", flush=True)
time.sleep(60)
"""


def test_a_state_that_another_process_has_open_and_one_that_was_killed(site):
    site.data.mkdir(mode=0o700)
    program = HOLDS.format(
        tests=str(Path(__file__).parent), path=str(site.data / STATE_FILE), at=right_now().timestamp()
    )
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "open\n"
        assert_found(site.path, "data", "error", f"process {holder.pid} has it open")
    finally:
        holder.kill()
        holder.communicate()
    before = snapshot(site.path.parent)
    assert f"{STATE_FILE}-wal" in {path.name for path in before}
    assert_found(site.path, "data", "unknown", "A killed process has left its log")
    assert snapshot(site.path.parent) == before
    edit(site.path, 'name = "north"', 'name = "west"')
    assert_found(site.path, "data", "error", "belongs to the agent 'north'")


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user needs root")
def test_a_folder_in_which_this_user_cannot_write(site, tmp_path):
    """As another user: root writes everywhere."""
    program = (
        f"import os, sys; from fedbandit.agent.process.check import _data; from types import SimpleNamespace as N;"
        f"from pathlib import Path; os.setuid(65534); print(list(_data(N(data=Path({str(tmp_path)!r}) / 'x'), 0.0)))"
    )
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder.name.startswith(("test_", "popen-", "pytest-")):
            folder.chmod(0o755)
    for mode in (0o755, 0o700):  # one into which this user cannot even look
        tmp_path.chmod(mode)
        said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        assert "level='error'" in said
        assert "is not a folder in which this user can write" in said


def test_a_full_disk(site, monkeypatch):
    monkeypatch.setattr(checking, "FREE_SPACE", 1 << 62)
    assert_found(site.path, "data", "error", "the disk is full")


def test_a_folder_that_is_not_on_a_disk(site):
    """It has no free space, but is not full: nothing can be stored in it."""
    config = replace(read_config(site.path), data=Path("/proc/x"))
    _, (found,) = checking._data(config, 0.0)
    assert (found.level, found.about) == ("error", "data")
    assert found.words in (
        "/proc is not on a disk: no files can be stored in it",
        "/proc is not a folder in which this user can write",  # unless this is root
    )
    with pytest.raises(JournalError, match=r"^/proc/x: the data folder cannot be created: "):
        Agent(config, None)


def snapshot(folder):
    """All files: what they hold, when they were written, and their modes."""
    return {
        path: (it.st_mode, it.st_mtime_ns, it.st_ctime_ns, path.read_bytes() if path.is_file() else None)
        for path in sorted(folder.rglob("*"))
        for it in [path.stat()]
    }


# ---------------------------------------------------------------- ports


def test_ports_that_cannot_be_listened_on(site):
    config = read_config(site.path)
    with socket.create_server(("127.0.0.1", config.http.port)), socket.create_server(("127.0.0.1", config.gossip.port)):
        assert_found(site.path, "listen.http", "error", "in use by another process")
        assert_found(site.path, "listen.gossip", "error", "in use by another process")
    assert_found(site.path, "listen.http", "ok", "is free")
    edit(site.path, f"127.0.0.1:{config.gossip.port}", "192.0.2.1:8500")
    assert_found(site.path, "listen.gossip", "error", "no address of this machine")
    edit(site.path, "192.0.2.1:8500", "nowhere.invalid:8500")
    assert_found(site.path, "listen.gossip", "error", "the name has no address")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may listen on every port")
def test_a_port_that_needs_a_privilege(site):
    edit(site.path, f"127.0.0.1:{read_config(site.path).http.port}", "127.0.0.1:81")
    assert_found(site.path, "listen.http", "error", "need a privilege")


# ---------------------------------------------------------------- neighbours


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """North's neighbours east and south run; north does not."""
    federation = LocalFederation(tmp_path_factory.mktemp("running"), terms(3), [("north", "east"), ("north", "south")])
    try:
        for name in ("east", "south"):
            federation.start(name)
        for name in ("east", "south"):
            federation.wait_ready(name, within=120.0)
        yield federation
    finally:
        federation.stop_all()


@pytest.fixture
def north(running, tmp_path):
    """A configuration of north of its own."""
    path = tmp_path / "site.toml"
    path.write_text(running.config("north").read_text().replace('"../certs/', f'"{running.folder}/certs/'))
    return path


def test_neighbours_that_know_this_site(running, north):
    before = snapshot(running.folder)
    for name in ("east", "south"):
        assert_found(north, f"neighbour {name}", "ok", f"certificate is {name}'s", "knows this site", "same terms")
    after = snapshot(running.folder)
    assert [path for path in before if path.suffix != ".log" and "data" not in path.parts] == [
        path for path in after if path.suffix != ".log" and "data" not in path.parts
    ]


def test_a_neighbour_under_a_name_without_an_address(running, north):
    edit(north, f"127.0.0.1:{running.gossip_ports['east']}", f"nowhere.invalid:{running.gossip_ports['east']}")
    assert_found(north, "neighbour east", "error", "the name has no address")


def test_another_neighbour_at_its_address(running, north):
    edit(north, f"127.0.0.1:{running.gossip_ports['east']}", f"127.0.0.1:{running.gossip_ports['south']}")
    assert_found(north, "neighbour east", "error", "another site answers at this address (", "unrecognized name)")


def test_a_neighbour_of_which_this_site_is_none(running, north):
    if not (running.folder / "certs" / "stranger.crt").exists():
        issue(running.folder / "certs", "stranger", 30, right_now())
    edit(north, 'name = "north"', 'name = "stranger"')
    edit(north, "north.crt", "stranger.crt")
    edit(north, "north.key", "stranger.key")
    assert_found(north, "neighbour east", "error", "refuses this site", "stranger is no neighbour of east")


def test_a_neighbour_with_other_terms(running, north):
    edit(north, "epsilon = 1.0", "epsilon = 2.0")
    assert_found(north, "neighbour east", "error", "policy.epsilon: 2.0 here, 1.0 there")
    (link,) = ask(f"{running.url('east')}/v1/state")[1]["neighbours"]
    assert "north follows other terms of the federation than east" in link["last_error"]


def test_a_reward_window_has_its_unit_and_neighbours_are_counted(site):
    ours = replace(terms(), reward_window=35 * 24 * 3600.0)
    assert ours.difference(terms().terms()) == ["reward_window: 3024000 seconds (35 days) here, 0 seconds there"]
    for odd in (10**400, float("nan"), -1.0, "x", True):  # another site may say anything
        assert ours.difference({**ours.terms(), "reward_window": odd})
    assert_found(site.path, "configuration", "ok", "2 arms, 1 neighbour, ")


def test_a_neighbour_with_another_ca(running, north, tmp_path):
    init(tmp_path / "other", "other", 90, right_now())
    issue(tmp_path / "other", "north", 90, right_now())
    edit(north, f"{running.folder}/certs/", f"{tmp_path}/other/")
    assert_found(north, "neighbour east", "error", "certificate is not accepted: another CA has signed it (")
    # Ours is of another CA, theirs is accepted: what the other end says of it.
    (tmp_path / "other" / "ca.crt").write_bytes(
        (tmp_path / "other" / "ca.crt").read_bytes() + (running.folder / "certs" / "ca.crt").read_bytes()
    )
    assert_found(north, "neighbour east", "error", "it does not accept this site's certificate")


def test_dates_of_a_neighbours_certificate_make_one_look_at_the_clock():
    """Fails if a certificate that seems to have expired does not say that this machine's clock may be wrong."""
    for code, word, said in ((9, "is not valid yet", "not yet"), (10, "has expired", "expired"), (99, "odd", "odd")):
        error = ssl.SSLCertVerificationError()
        error.verify_code, error.verify_message = code, said
        clock = f"it {word}, or this machine's clock is wrong ({said})"
        assert in_words(error) == (said if code == 99 else clock)


def test_something_else_listens(running, north, monkeypatch):
    monkeypatch.setattr(checking, "PATIENCE", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as web:
        edit(north, f"127.0.0.1:{running.gossip_ports['east']}", f"127.0.0.1:{silent.getsockname()[1]}")
        edit(north, f"127.0.0.1:{running.gossip_ports['south']}", f"127.0.0.1:{web.getsockname()[1]}")

        def answer():
            caller, _ = web.accept()
            with caller:
                caller.recv(100)
                caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        seen = found(north)
    assert "firewall" in seen["neighbour east"].words
    assert seen["neighbour east"].level == "error"
    words = "the other end does not speak TLS (wrong version number): is it the port for neighbours"
    assert words in seen["neighbour south"].words
    assert seen["neighbour south"].level == "error"


def test_a_check_leaves_no_connection_and_disturbs_no_link(running, north):
    before = [ask(f"{running.url(name)}/v1/state")[1]["neighbours"] for name in ("east", "south")]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            assert found(north)["neighbour east"].level == "ok"
        gc.collect()
    assert [str(it.message) for it in seen] == []
    after = [ask(f"{running.url(name)}/v1/state")[1]["neighbours"] for name in ("east", "south")]
    assert [it["reachable"] for (it,) in after] == [it["reachable"] for (it,) in before] == [False, False]


def test_a_neighbour_through_a_proxy_that_is_not_there(running, north):
    edit(north, 'name = "east"', 'name = "east"\nproxy = "http://127.0.0.1:1"')
    assert_found(north, "neighbour east", "error", "the proxy 127.0.0.1:1 cannot be reached", "Connection refused")


# ---------------------------------------------------------------- the command


WITH_A_FILE = [
    ("agent",),
    ("arm", "suspend", "metformin", "--reason", "recalled"),
    ("exclude", "east", "--reason", "its data are wrong"),
    ("confirm", "--reason", "the other machine is off"),
]


@pytest.mark.parametrize("arguments", WITH_A_FILE)
def test_without_a_file_in_this_folder_commands_name_the_option(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "numpy", sys.modules.get("numpy"))  # the agent does without
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "site.toml: no such file in this folder: use -c FILE" in done.output


def test_whether_a_restart_can_go_on_at_once(site, monkeypatch):
    if memory_folder(None) is not None:
        assert_found(site.path, "witness", "ok", "in memory: after a quick restart releases go on at once")
    monkeypatch.setattr("fedbandit.agent.disk.witness._MOUNTS", site.path.with_name("missing"))
    assert_found(site.path, "witness", "ok", "there is no memory file system", "until all neighbours have answered")
    edit(site.path, 'data = "data"', 'data = "data"\nwitness = "elsewhere"')
    assert_found(site.path, "witness", "warning", "elsewhere is not a folder in memory (tmpfs)")


def test_exit_codes(running, north, tmp_path):
    alone, wrong = tmp_path / "alone.toml", tmp_path / "wrong.toml"
    alone.write_text(north.read_text().replace(f"127.0.0.1:{running.gossip_ports['east']}", "127.0.0.1:1"))
    wrong.write_text(north.read_text().replace("epsilon = 1.0", "epsilon = -1.0"))
    code, said = told(spawn("agent", "--check", "-c", north), within=90)
    assert code == 0, said
    assert re.search(r"^ok +neighbour east ", said, re.MULTILINE)
    assert re.search(r"^not checked +their clocks ", said, re.MULTILINE)
    assert said.endswith("ready to start\n")
    assert not (north.parent / "data").exists()
    under_way = [spawn("agent", "--check", "-c", path) for path in (alone, wrong)]  # together: the ports are free now
    code, said = told(under_way[0], within=90)
    assert code == 1
    assert re.search(r"^error +neighbour east .*Connection refused", said, re.MULTILINE)
    assert said.endswith("1 of 10 checks failed\n")
    assert_mistake(told(under_way[1], within=90), "federation.policy.epsilon")
