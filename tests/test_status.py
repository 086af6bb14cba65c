"""``fedbandit status``: what it shows, where tokens come from, and its exit code."""

import contextlib
import itertools
import json
import os
import pty
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import floor

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fedbandit.agent.client import AgentError, Client
from fedbandit.agent.core.answer import Holdout
from fedbandit.agent.core.arms import ArmChange, ArmChanged, Arms
from fedbandit.agent.core.notices import Note, warnings_of_arms, warnings_of_holdout
from fedbandit.agent.core.release_guard import Doubt
from fedbandit.agent.http.snapshot import needs_a_person
from fedbandit.agent.http.state import SiteState
from fedbandit.agent.process.rights import ANYBODY, ROLES
from fedbandit.cli import app
from fedbandit.cli.status_view import AgentStatus, fitted, printed, view
from live import TERMS, bulletin_of, serving

TOKEN = "a-token-that-is-long-enough"  # noqa: S105


def status(*arguments):
    """Exit code and output, as in a pipe."""
    done = CliRunner().invoke(app, ["status", *map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A site that learns alone: nothing about it needs anybody, but a warning that stays: it has no certificates."""
    with serving(tmp_path_factory.mktemp("quiet"), neighbours=()) as served:
        for _ in range(30):
            decision = served.call(lambda driver: driver.decide())
            served.call(lambda driver, it=decision: driver.report(it.id, 0.25 * it.arm))
        yield served


@pytest.fixture(scope="module")
def state(quiet):
    """Its state, to be changed."""
    return json.loads(quiet.call(lambda driver: driver.state()).model_dump_json())


def test_what_is_shown(quiet, state):
    code, said = status(quiet.url)
    assert code == 0, said
    assert state["answer"]["words"] in said
    assert state["privacy"]["promise"] in said
    assert "needs a person" not in said
    assert "from the terms: INSECURE" in said
    assert "no neighbours: this site learns alone" in said
    assert "decisions: 30 handed out, 0 without a reward" in said
    for arm in state["arms"]:
        row = next(line for line in said.splitlines() if line.startswith(f"{arm['name']}  "))
        around = arm["interval"]
        assert f"{arm['estimate']:.3f} ({around['low']:.3f} to {around['high']:.3f})" in row
        assert f" {in_percent(arm['chance_best'])} " in row
        assert f"{arm['own_mean']:.3f}" in row
        assert ("none" if arm["behind"] == 0.0 else f"{100 * arm['behind']:.1f} (") in row
        assert row.split()[-2:] == [str(arm["pulls"]), str(arm["patients"])]


def in_percent(chance):
    return "> 99 %" if chance > 0.99 else "< 1 %" if chance < 0.01 else f"{floor(100 * chance)} %"


@pytest.mark.parametrize(
    ("chance", "shown"), [(0.996, "> 99 %"), (1.0, "> 99 %"), (0.0, "< 1 %"), (0.009, "< 1 %"), (0.5, "50 %")]
)
def test_chances_are_never_certain(state, chance, shown):
    arms = [{**arm, "chance_best": chance} for arm in state["arms"]]
    with answering({**state, "arms": arms, "answer": {**state["answer"], "chance": chance}}) as url:
        said = status(url)[1]
        assert f"({shown} sure)" in status(url, url)[1]
    assert said.count(f" {shown} ") >= len(arms)


def test_an_unreachable_neighbour_and_an_agent_that_does_not_serve(tmp_path):
    with serving(tmp_path) as served:
        code, said = status(served.url)
        assert code == 1
        assert "east is unreachable: no connection since this site has started" in said
        row = next(line for line in said.splitlines() if line.startswith("east  "))
        assert row.split()[1:3] == ["unreachable", "never"]
        served.driver.reason = "the disk is full"
        assert "it does not serve: the disk is full" in status(served.url)[1]
    code, said = status(served.url)
    assert code == 1
    assert said.count(f"no answer from {served.url}") == 1
    assert len(said.splitlines()) == 1


def test_a_row_for_each_of_several_agents_comes_first(quiet):
    code, said = status(quiet.url, "http://127.0.0.1:1")
    heading, _, first, second, *_ = said.splitlines()
    assert code == 1
    assert heading.startswith("agent ")
    assert first.split()[:2] == [quiet.url, "north"]
    assert first.endswith(" 0")
    assert second.startswith("http://127.0.0.1:1 ")
    assert "no answer" in second
    assert status(quiet.url, quiet.url)[0] == 0


# ---------------------------------------------------------------- what needs a person


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({}, 0),
        ({"warnings": ["from the terms"], "warnings_of_terms": ["from the terms"]}, 0),
        ({"warnings": ["from the terms", "other"], "warnings_of_terms": ["from the terms"]}, 1),
        ({"warnings": ["a note"], "notes": ["a note"]}, 0),
        ({"warnings": ["a note", "other"], "notes": ["a note"]}, 1),
        ({"held": "old"}, 1),
        ({"arms_waiting": 2}, 1),
    ],
)
def test_what_needs_a_person(state, changes, number):
    whole = {**state, "warnings": [], "warnings_of_terms": [], "needs_person": [], **changes}
    assert len(needs_a_person(SiteState.model_validate(whole))) == number


LINK = {
    **dict.fromkeys(("received", "sent", "failures", "refusals"), 0),
    **dict.fromkeys(("address", "linked_since", "last_heard")),
    **{"name": "east", "reachable": False, "last_error": "gone"},
}


@pytest.mark.parametrize("reachable", [True, False])
def test_a_neighbour_needs_a_person_unless_it_is_reachable(state, reachable):
    whole = {
        **state,
        "warnings": [],
        "needs_person": [],
        "neighbours": [{**LINK, "reachable": reachable}],
    }
    said = needs_a_person(SiteState.model_validate(whole))
    assert said == ([] if reachable else ["east is unreachable: gone"])


def test_a_suspended_arm_is_a_note_and_a_change_that_waits_needs_a_person(tmp_path):
    with serving(tmp_path, neighbours=()) as served:
        served.call(lambda driver: driver.change_arm("suspend", "glipizide", ANYBODY.deed("recalled")))
        note = "arms are stopped: glipizide: suspended by north; the others are given."
        code, said = status(served.url)
        assert code == 0, said
        assert f"note: {note}" in said
        assert "needs a person" not in said
        served.call(lambda driver: driver.change_arm("suspend", "metformin", ANYBODY.deed("recalled")))
        assert "; only none is given." in status(served.url)[1]
        found = served.call(lambda driver: driver.state())
        assert found.needs_person == []
        assert len(found.notes) == 1
        with urllib.request.urlopen(f"{served.url}/metrics") as answer:  # noqa: S310  # loopback
            metrics = answer.read().decode()
        assert 'fedbandit_warnings{kind="note"} 1.0' in metrics
        assert 'fedbandit_warnings{kind="other"} 0.0' in metrics
        served.call(lambda driver: driver.change_arm("suspend", "none", ANYBODY.deed("recalled")))
        code, said = status(served.url)
        assert code == 1
        assert "no arm is left to give" in said
    waiting = waiting_arms()
    assert all(not isinstance(it, Note) for it in warnings_of_arms(waiting, None))


def waiting_arms():
    """Another site has added an arm, and the operator has not accepted that."""
    change = ArmChange(1, "add", "insulin", "east", 0)
    return Arms.of(("a", "b"), {change.id: ArmChanged(change, 0)})


def test_a_site_with_few_patients_is_a_note():
    (said,) = warnings_of_holdout(("a", "b"), Holdout("clinic-7", 1, 12))
    assert isinstance(said, Note)
    assert said == (
        "clinic-7 has released 12 outcomes of b, which is the main reason why the answer is not surer. More patients "
        "there would help most."
    )


def test_a_copy_is_not_confirmed_while_another_process_is_linked(tmp_path):
    """Fails if the operator can confirm both: each would release the same rewards."""
    twin = "another process with the name north is linked, from 192.0.2.7, and answers"
    with serving(tmp_path, doubts=True) as served:
        presence = served.driver._presence
        presence.doubt, presence._is_fresh = Doubt("unconfirmed"), True
        assert "held: unconfirmed: nothing is released until all neighbours have answered" in status(served.url)[1]
        link = served.driver.links.statuses["east"]
        link.failed(f"it refuses: {twin}")
        code, said = status(served.url)
        assert code == 1
        told = "another process runs as this site: stop it first"
        assert f"held: unconfirmed: {told}, or this one. east is linked with it, and it answers" in said
        assert "'fedbandit confirm'" not in said
        with Client(served.url) as client:
            with pytest.raises(AgentError, match=told):
                client.confirm("the other is stopped")
            assert presence.doubt is not None
            link.failed("no answer")
            client.confirm("the other is stopped")
        assert presence.doubt is None
        assert "held: " not in status(served.url)[1]


def test_members_are_listed_with_what_is_odd(tmp_path):
    """Also which have not acknowledged a stop."""
    with serving(tmp_path, neighbours=()) as served:
        served.hear(bulletin_of("east"), bulletin_of("south"), bulletin_of("west"))
        for reward in (0.0, 1.0):
            served.hear(bulletin_of("south", reward=reward, number=2))
        served.call(lambda driver: driver.exclude("west", ANYBODY.deed("wrong")))
        served.call(lambda driver: driver.change_arm("suspend", "none", ANYBODY.deed("recalled")))
        _, said = status(served.url)
    rows = {line.split()[0]: line for line in said.splitlines() if " s ago " in line}
    assert rows["east"].split()[1] == "counts"
    assert rows["west"].split()[1] == "excluded"
    assert rows["west"].endswith("excluded: wrong")
    assert "two bulletins with one number" in rows["south"]
    assert "stop not acknowledged: none: east, south, west" in said


# ---------------------------------------------------------------- texts of others


@contextmanager
def answering(said):
    """A server that shows this state, or writes this text, or these parts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if isinstance(said, Iterator):
                self.send_response(200)
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.writelines(said)
                return
            body = (said if isinstance(said, str) else json.dumps(said)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_texts_of_others_are_neither_markup_nor_control_characters(state):
    name = "[red]x[/red] [/] :bomb: \x1b[2J\x07\r\n\u202e"
    arm = {**state["arms"][0], "name": name}
    link = {**LINK, "name": "[bold]east", "last_error": "\x1b]0;title\x07[link=http://evil]"}
    changed = {"arms": [arm], "neighbours": [link], "warnings": [], "name": name, "needs_person": ["\x9b31m"]}
    changed["needs_person"].append(f"east: {link['last_error']}")
    with answering({**state, **changed}) as url:
        code, said = status(url)
    assert code == 1
    assert "[red]x[/red] [/] :bomb: ?[2J????" in said
    assert "[bold]east" in said
    assert "[link=http://evil]" in said
    assert all(letter.isprintable() or letter == "\n" for letter in said)


def test_nothing_is_cut_off_in_a_pipe(state):
    names = [f"{'long ' * 11}{k:>5}" for k in range(3)]
    arms = [{**arm, "name": name} for arm, name in zip(state["arms"], names, strict=True)]
    warning = "word " * 300
    with answering({**state, "arms": arms, "needs_person": [warning]}) as url:
        _, said = status(url)
    lines = said.splitlines()
    assert all(any(line.startswith(name) for line in lines) for name in names)
    assert any(warning.strip() in line for line in lines)
    assert "\x1b" not in said
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    "hurt",
    [
        lambda state: {**state, "arms": [{**it, "chance_best": float("nan")} for it in state["arms"]]},
        lambda state: {**state, "arms": [{**it, "estimate": float("inf")} for it in state["arms"]]},
        lambda state: {**state, "name": 3},
        lambda _: [[]],
        lambda _: 100_000 * "[",
    ],
)
def test_one_bad_agent_does_not_hide_the_others(quiet, state, hurt):
    with answering(hurt(state)) as url:
        code, said = status(url, quiet.url)
    assert code == 1
    assert f"{url} does not answer like an agent" in said
    assert state["answer"]["words"] in said


def test_numbers_that_do_not_fit_together(state):
    arms = [
        {**it, "behind": None, "behind_interval": {"low": 0.1, "high": 1e308}, "own_mean": None} for it in state["arms"]
    ]
    said = json.dumps({**state, "arms": arms}).replace(f'"radius": {arms[0]["radius"]}', '"radius": 1e999', 1)
    with answering(said) as url:
        assert status(url)[0] == 0


def test_an_answer_without_end_is_not_read(quiet, state):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with answering(itertools.repeat(b" " * 1_000_000)) as url:
        code, said = status(url, quiet.url)
    assert code == 1
    assert f"{url} does not answer like an agent (more than 32 MB)" in said
    assert state["answer"]["words"] in said
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000


def test_many_arms_are_not_all_shown(state):
    arms = [{**state["arms"][0], "name": f"arm {k}"} for k in range(3000)]
    with answering({**state, "arms": arms}) as url:
        _, said = status(url)
    assert "... and 2,500 more" in said
    assert len(said.splitlines()) < 600


def test_a_narrow_terminal_wraps_no_number(state):
    it = AgentStatus("http://127.0.0.1:8400", SiteState.model_validate(state), [], 0.0)
    for width in (50, 60, 80, 100, 140):
        lines = list(printed(view([it, it], width), Console(width=width)))
        assert all(len(line) <= width for line in lines)
        assert any(line.endswith(("needs a person", "a person")) for line in lines), "no column is cut off"
        assert any(line.endswith("best" if width < 80 else "at all sites") for line in lines)
        for arm in state["arms"]:
            shown = f"{arm['estimate']:.3f} ({arm['interval']['low']:.3f} to {arm['interval']['high']:.3f})"
            assert any(shown in line for line in lines), lines
        assert any("this site alone" in line for line in lines) == (width >= 120)


def test_numbers_have_as_many_decimals_as_on_the_page(state):
    arm = {**state["arms"][0], "estimate": 0.0004, "interval": {"low": 0.0003, "high": 0.0005}}
    arm |= {"behind": 0.0002, "behind_interval": {"low": 0.0001, "high": 0.0003}}
    tiny = {**state, "arms": [arm], "federation": {**state["federation"], "low": 0.0, "high": 0.001}}
    tiny["answer"] = {**state["answer"], "leader": None}
    it = AgentStatus("http://127.0.0.1:8400", SiteState.model_validate(tiny), [], 0.0)
    (row,) = (line for line in printed(view([it], 140), Console(width=140)) if line.startswith(arm["name"]))
    assert "0.000400 (0.000300 to 0.000500)" in row
    assert "0.0200 (0.0100 to 0.0300)" in row


@pytest.mark.parametrize(("agents", "height"), [(1, 200), (1, 22), (14, 24), (60, 24)])
def test_what_needs_a_person_has_room_in_any_window(state, agents, height):
    """First the promises of privacy are left out, then all but a row for each agent and what needs a person."""
    whole = SiteState.model_validate({**state, "warnings": []})
    every = [
        AgentStatus(f"http://127.0.0.1:{k}", whole, ["its clock is wrong"] if k == agents - 1 else [], 0.0)
        for k in range(agents)
    ]
    console = Console(width=100, height=height)
    said = "\n".join(printed(fitted(every, console), console))
    seen = "\n".join(said.splitlines()[: height - 1])  # a window shows its first lines
    assert "its clock is wrong" in seen
    assert ("privacy: " in said) == (height == 200)
    assert ("estimate" in said) == (agents == 1)
    assert ("There is more: make the window taller" in seen) == (agents > 1)


def test_the_name_of_a_policy_keeps_its_capitals(state):
    named = {**state, "privacy": {**state["privacy"], "mechanism": "noise as mypkg:MyPolicy asks for it"}}
    it = AgentStatus("http://127.0.0.1:8400", SiteState.model_validate(named), [], 0.0)
    assert any("Noise as mypkg:MyPolicy asks" in line for line in printed(view([it], 200), Console(width=200)))


def test_privacy_is_said_once(quiet, state):
    assert status(quiet.url, quiet.url)[1].count(state["privacy"]["promise"]) == 1
    other = {**state, "name": "other", "privacy": {**state["privacy"], "promise": "None."}}
    with answering(other) as url:
        said = status(quiet.url, url)[1]
    assert "privacy of north: With epsilon" in said
    assert "privacy of other: None." in said


# ---------------------------------------------------------------- tokens and addresses


def test_tokens(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    with serving(tmp_path / "data", tokens={TOKEN: ROLES["viewer"]}, neighbours=()) as served:
        code, said = status(served.url)
        assert code == 1
        assert said == f"{served.url} refuses: it requires a token (--token-file)\n"
        assert status(served.url, "--token-file", path)[0] == 0
        site = tmp_path / "site.toml"
        site.write_text(
            f"""name = "north"
data = "data"
[federation]
name = "trial"
arms = {json.dumps(TERMS.arms)}
rewards = [0, 1]
policy = {{ epsilon = 1.0 }}
[listen]
http = "127.0.0.1:{served.port}"
[tokens]
application = "other"
viewer = "token"
"""
        )
        (tmp_path / "other").write_text("another-token-that-is-long")
        (tmp_path / "other").chmod(0o600)
        assert status("-c", site)[0] == 0
        empty = tmp_path / "empty"
        empty.touch(0o600)
        assert status(served.url, "--token-file", empty) == (2, f"error: {empty} holds no token\n")
        path.chmod(0o644)
        code, said = status(served.url, "--token-file", path)
        assert code == 2
        assert "chmod 600" in said


def test_without_an_address_the_site_of_this_folder_or_the_usual_port(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedbandit.cli.status.DEFAULT", "http://127.0.0.1:1")
    assert "no answer from http://127.0.0.1:1" in status()[1]
    (tmp_path / "site.toml").write_text("name = 3")
    code, said = status()
    assert code == 2
    assert "site.toml" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["127.0.0.1:8400"], "url"),
        (["http://127.0.0.1:99999"], "http://127.0.0.1:99999"),
        (["http://127.0.0.1:abc"], "http://127.0.0.1:abc"),
        (["http://[::1"], "http://[::1"),
        (["http://\u00e9.example"], "url"),
        ([f"http://{'a' * 300}"], "http://aaa"),
        (["http://"], "http://"),
        (["http://127.0.0.1:8400/?a=b"], "url"),
        (["http://127.0.0.1:8400", "-c", "site.toml"], "--config"),
        (["-c", "missing.toml"], "missing.toml"),
        (["http://127.0.0.1:8400", "--token-file", "missing"], "missing"),
        (["--wach"], "--wach"),
    ],
)
def test_wrong_usage(arguments, words):
    code, said = status(*arguments)
    assert code == 2
    assert words in said
    assert "Traceback" not in said


# ---------------------------------------------------------------- --watch

# With the handler of a terminal: what runs in the background of a shell ignores SIGINT, and so would this.
WATCHING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "import fedbandit.cli.status as s; s.EVERY = 0.2; from fedbandit.cli import main; main()"
)


def test_watch_shows_changes_until_it_is_interrupted(quiet):
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    watching = subprocess.Popen(
        [sys.executable, "-c", WATCHING, "status", "--watch", quiet.url], stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""

    def reads(word):
        nonlocal said
        until = time.monotonic() + 30
        while word not in said and time.monotonic() < until:
            time.sleep(0.05)
            try:
                said += os.read(ours, 65536)
            except BlockingIOError:
                continue
        return word in said

    try:
        assert reads(b"30 handed out"), said
        decision = quiet.call(lambda driver: driver.decide())
        assert reads(b"31 handed out"), said
        quiet.call(lambda driver: driver.cancel(decision.id))
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 0
        assert b"Traceback" not in said
    finally:
        watching.kill()
        watching.wait()
        os.close(ours)


def test_watch_in_a_pipe(quiet):
    watching = subprocess.Popen(
        [sys.executable, "-c", WATCHING, "status", "--watch", quiet.url, "http://127.0.0.1:1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    seen = 0
    for line in watching.stdout:
        seen += line.startswith("agent ")
        if seen == 2:
            break
    watching.send_signal(signal.SIGINT)
    rest, _ = watching.communicate(timeout=20)
    assert watching.returncode == 1
    assert "Traceback" not in rest
