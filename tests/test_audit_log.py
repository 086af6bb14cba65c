"""``fedbandit audit-log`` on real agents: what it shows, exports and verifies; kill -9 at any time loses nothing."""

import csv
import json
import random
import shutil
import sqlite3
import threading
import time

import httpx
import pytest
from typer.testing import CliRunner

from fedbandit.agent.client import AgentError, Client
from fedbandit.agent.core.trail import fault_of
from fedbandit.agent.disk.journal import SqliteJournal, entries_of
from fedbandit.cli import app
from fedbandit.local.processes import LocalFederation
from processes import command, terms, wait_until

WHY = "two patients had rashes"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """Two sites, after some deeds; both run."""
    with LocalFederation(tmp_path_factory.mktemp("trail"), terms(), [("a", "b")]) as it:
        with Client(it.url("a"), timeout=5.0, deadline=20.0) as client:
            wait_until(lambda: any(n.reachable for n in client.state().neighbours), 30.0)
            client.change_arm("suspend", "A", WHY)
            client.change_arm("resume", "A", "it was a washing powder")
            client.change_arm("add", "=C", "")
            wait_until(lambda: any(m.name == "b" for m in client.state().members), 30.0)
            client.exclude("b", "lies")
            client.include("b", "does not lie")
        yield it


def show(federation, *options, name="a"):
    ran = CliRunner().invoke(app, ["audit-log", "-c", str(federation.config(name)), *map(str, options)])
    return ran.exit_code, ran.output


def test_it_shows_and_filters(federation):
    code, text = show(federation)
    assert code == 0, text
    lines = text.splitlines()
    assert [line.strip().partition(" ")[0] for line in lines[2:]] == [str(k + 1) for k in range(len(lines) - 2)]
    for words in (
        "begin",
        "start (fedbandit ",
        "grant rights of anybody",
        "link member b",
        "suspend arm A",
        WHY,
        "lies",
    ):
        assert words in text, f"{words} is not in {text}"
    assert "no token" in text

    def numbers(*options):
        code, text = show(federation, "--format", "jsonl", *options)
        assert code == 0, text
        return [json.loads(line)["number"] for line in text.splitlines()]

    everything = numbers()
    assert everything == list(range(1, len(everything) + 1))
    assert len(numbers("--arm", "A")) == len(numbers("--kind", "arm")) - 1 == 2
    assert numbers("--last", "2") == everything[-2:]
    assert numbers("--until", "2020-01-01") == [] == numbers("--since", "2120-01-01") == numbers("--person", "nobody")
    assert numbers("--since", "2020-01-01", "--kind", "member", "--last", "1") == everything[-1:]


def test_the_other_site_tells_what_came_to_it(federation):
    wait_until(lambda: "=C" in show(federation, "--kind", "arm", name="b")[1], 30.0)
    _, text = show(federation, "--kind", "arm", "--format", "jsonl", name="b")
    found = [json.loads(line) for line in text.splitlines()]
    assert [(it["what"], it["subject"], it["site"], it["who"]) for it in found] == [
        ("suspend", "A", "a", ""),
        ("resume", "A", "a", ""),
        ("add", "=C", "a", ""),
    ]
    assert found[0]["reason"] == WHY


def test_the_history_of_the_arms(federation):
    """Who, when, why, which site, accepted here by whom."""
    with Client(federation.url("b"), timeout=5.0, deadline=20.0) as client:
        wait_until(lambda: any(it.arm == "=C" for it in client.arms().waiting), 30.0)
        history = ["arm", "list", "--history", "-c", str(federation.config("b"))]
        before = CliRunner().invoke(app, history).output
        client.accept_arm("=C", reason="the board has agreed")
    after = CliRunner().invoke(app, history).output

    def cells(text, change):
        line = next(line for line in text.splitlines() if change in line)
        return [it.strip() for it in line.split("  ") if it.strip()][2:]

    assert cells(before, "add =C") == ["a", "waits"], before
    accepted = cells(after, "add =C")
    assert (accepted[0], accepted[1].startswith("no token, 20")) == ("a", True), after
    assert cells(after, "suspend A") == ["a", WHY], after
    assert "it was a washing powder" in after


def test_mistakes_are_told(federation, tmp_path):
    for options, words in (
        (["--kind", "arms"], "kind"),
        (["--since", "yesterday"], "since"),
        (["--verify", "--kind", "arm"], "--kind"),
        (["--verify", "--head", "12"], "head"),
        (["--head", f"1:{'0' * 64}"], "--head"),
        (["--verify", "--file", tmp_path / "none"], "none"),
    ):
        code, text = show(federation, *options)
        assert (code, words in text, "Traceback" in text) == (2, True, False), text
    (tmp_path / "there").touch()
    assert show(federation, "-o", tmp_path / "there")[0] == 2


def test_over_http(federation):
    url = f"{federation.url('a')}/v1/audit-log"
    body = httpx.get(url, trust_env=False).json()
    assert body["number"] == len(body["entries"]) == body["entries"][-1]["number"]
    assert body["hash"] == body["entries"][-1]["hash"]
    assert httpx.get(url, params={"after": body["number"]}, trust_env=False).json()["entries"] == []
    for wrong in ({"kind": "x"}, {"since": "x"}, {"last": "-1"}, {"after": "9" * 20}, {"to": "1"}):
        answer = httpx.get(url, params=wrong, trust_env=False)
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, next(iter(wrong)))


def test_exports_are_verified_too(federation, tmp_path):
    file, table = tmp_path / "trail.jsonl", tmp_path / "trail.csv"
    assert (
        show(federation, "--format", "jsonl", "-o", file)[0] == show(federation, "--format", "csv", "-o", table)[0] == 0
    )
    with table.open(newline="") as rows:
        cells = list(csv.DictReader(rows))
    assert [it["subject"] for it in cells if it["what"] == "add"] == ["'=C"], "no formula"
    code, text = show(federation, "--verify", "--file", file)
    assert code == 0, text
    head = text.rpartition(" ")[2].strip()
    assert show(federation, "--verify", "--head", head)[0] == 0, "of the site itself"
    lines = file.read_text().splitlines(keepends=True)
    for wrong in (
        [*lines[:2], lines[2].replace('"at": 1', '"at": 2'), *lines[3:]],
        [*lines[:2], *lines[3:]],
        [*lines[:2], lines[3], lines[2], *lines[4:]],
        [*lines[:-1], lines[-1][:-20]],
        lines[:-1],
        [],
    ):
        file.write_text("".join(wrong))
        code, text = show(federation, "--verify", "--file", file, "--head", head)
        assert (code, "NOT AS IT WAS WRITTEN" in text) == (1, True), text


# ---------------------------------------------------------------- a file that somebody has changed


@pytest.fixture(scope="module")
def stopped(federation, tmp_path_factory):
    """The folder of a site as a clean stop has left it, and as a kill has."""
    with LocalFederation(tmp_path_factory.mktemp("stopped"), terms(), [("a", "b")]) as it:
        with Client(it.url("a"), timeout=5.0, deadline=20.0) as client:
            client.change_arm("suspend", "A", WHY)
            client.change_arm("suspend", "B", WHY)
        it.kill("a")
        shutil.copytree(it.folder / "a" / "data", it.folder / "killed")
        it.start("a")
        it.wait_ready("a")
        it.stop("a")
        shutil.copytree(it.folder / "a" / "data", it.folder / "clean")
        yield it


def with_data(federation, kind):
    data = federation.folder / "a" / "data"
    shutil.rmtree(data)
    shutil.copytree(federation.folder / kind, data)
    return federation.state_file("a")


@pytest.mark.parametrize("kind", ["killed", "clean"])
def test_a_stopped_site_is_shown_and_verified(stopped, kind):
    path = with_data(stopped, kind)
    before = {it.name: it.read_bytes() for it in path.parent.iterdir()}
    code, text = command("audit-log", "--verify", "-c", stopped.config("a"))
    assert code == 0, text
    _, text = show(stopped)
    assert "suspend arm A" in text
    assert (" stop " in text) == (kind == "clean")
    assert {it.name: it.read_bytes() for it in path.parent.iterdir()} == before, "it leaves no trace"


def edited(path, *statements):
    file = sqlite3.connect(path, isolation_level=None)
    triggers = dict(file.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"))
    for name in triggers:
        file.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        file.execute(statement)
    for sql in triggers.values():
        file.execute(sql)
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.close()


def flipped(path):
    content = bytearray(path.read_bytes())
    content[content.index(f"no token{WHY}".encode()) + 12] ^= 1  # the columns how and reason
    path.write_bytes(content)


HURTS = {
    "one flipped byte": flipped,
    "a changed entry": lambda it: edited(it, "UPDATE trail SET who = 'nobody' WHERE number = 3"),
    "a removed entry": lambda it: edited(it, "DELETE FROM trail WHERE number = 3"),
    "reordered entries": lambda it: edited(
        it,
        "UPDATE trail SET number = -number WHERE number IN (3, 4)",
        "UPDATE trail SET number = 7 + number WHERE number < 0",
    ),
    "a cut end": lambda it: edited(it, "DELETE FROM trail WHERE number > 4"),
    "a truncated file": lambda it: it.write_bytes(it.read_bytes()[:-4096]),
    "half a file": lambda it: it.write_bytes(it.read_bytes()[: it.stat().st_size // 2]),
    "an empty file": lambda it: it.write_bytes(b""),
}


@pytest.mark.parametrize("hurt", HURTS)
def test_what_was_changed_is_found(stopped, hurt):
    HURTS[hurt](with_data(stopped, "clean"))
    code, text = show(stopped, "--verify")
    assert (code, "NOT AS IT WAS WRITTEN" in text, "Traceback" in text) == (1, True, False), text


def test_a_cut_log_is_found(stopped):
    """A killed process has left a log; its last commits hold the last entries."""
    path = with_data(stopped, "killed")
    log = path.with_name(f"{path.name}-wal")
    log.write_bytes(log.read_bytes()[: -log.stat().st_size // 3])
    code, text = show(stopped, "--verify")
    assert (code, "NOT AS IT WAS WRITTEN" in text) == (1, True), text


def test_what_changes_under_a_running_agent_is_found(stopped):
    path = with_data(stopped, "clean")
    stopped.start("a")
    stopped.wait_ready("a")
    try:
        assert show(stopped, "--verify")[0] == 0
        flipped(path)
        code, text = show(stopped, "--verify")
        assert (code, "NOT AS IT WAS WRITTEN" in text) == (1, True), text
    finally:
        stopped.kill("a")


# ---------------------------------------------------------------- kill -9


@pytest.mark.slow
def test_kills_lose_no_acknowledged_change_and_tell_of_none_that_was_not_made(tmp_path):
    """A process is killed at random times while people suspend, resume and exclude; then its file is read."""
    draw = random.Random(7)  # noqa: S311
    acknowledged, stop = [], threading.Event()

    def people(url):
        k, is_sure = 0, False
        with Client(url, timeout=1.0, deadline=1.5, retries=0) as client:
            while not stop.is_set():
                k, reason = k + 1, f"reason {k}"
                try:
                    if not is_sure:
                        client.include("b")
                    elif k % 3 == 0 and k < 150:
                        made = client.change_arm("suspend" if k % 2 else "resume", "A", reason)
                        acknowledged.extend([made.reason] if made.reason == reason else [])
                    else:
                        client.exclude("b", f"lies {reason}")
                        acknowledged.append(f"lies {reason}")
                        client.include("b", f"does not {reason}")
                        acknowledged.append(f"does not {reason}")
                    is_sure = True
                except AgentError:  # whether it was done is not known
                    is_sure = False
                time.sleep(0.005)

    with LocalFederation(tmp_path, terms(), [("a", "b")]) as federation:
        with Client(federation.url("a"), timeout=5.0) as client:
            wait_until(lambda: any(m.name == "b" for m in client.state().members), 30.0)
        worker = threading.Thread(target=people, args=(federation.url("a"),))
        worker.start()
        try:
            for _ in range(4):
                time.sleep(draw.uniform(0.05, 0.4))
                federation.kill("a")
                federation.start("a")
                federation.wait_ready("a")
        finally:
            stop.set()
            worker.join()
        federation.kill("a")
        path = federation.state_file("a")
        entries = entries_of(path)
        assert fault_of(entries) is None
        journal = SqliteJournal(path, "a", federation.terms, 1)
        stored = journal.load()
        journal.close()
    assert len(acknowledged) >= 20
    reasons = {it.reason for it in entries}
    assert [it for it in acknowledged if it not in reasons] == []
    told = {it.detail for it in entries if it.kind == "arm"}
    assert told == set(stored.arm_changes), "each change has its entry, and each entry its change"
    excluded = [it.what for it in entries if it.kind == "member" and it.what in ("exclude", "include")]
    assert excluded == ["exclude", "include"] * (len(excluded) // 2) + ["exclude"] * len(stored.excluded)
    assert [it.what for it in entries if it.kind in ("start", "stop")] == ["start"] * 5
