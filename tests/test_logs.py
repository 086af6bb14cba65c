"""The log of an agent: JSON lines, levels, and what it says of a configuration that changes; a site that departs."""

import json
import logging
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedbandit.agent.core.notices import Note
from fedbandit.agent.process.config import read_config
from fedbandit.agent.process.logs import RestartLog, WarningLog, _JsonLines
from fedbandit.local.processes import LocalFederation
from processes import spawn, terms, told, wait_until

TOKEN = "a-token-that-nobody-may-see"  # noqa: S105


@pytest.fixture(scope="module")
def north(tmp_path_factory):
    """North, whose neighbour east does not run, logs JSON at the level debug."""
    federation = LocalFederation(tmp_path_factory.mktemp("log"), terms(), [("north", "east"), ("north", "south")])
    config, token = federation.config("north"), federation.folder / "north" / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    config.write_text(config.read_text().replace("[listen]", '[listen]\ntoken_file = "token"'))
    try:
        federation.start("north", "--log-format", "json", "--log-level", "debug")
        federation.wait_ready("north", within=120.0)
        yield federation
    finally:
        federation.stop_all()


def lines(federation):
    """What north has logged; every line must be JSON."""
    return [json.loads(line) for line in federation.log("north").read_text().splitlines(keepends=True) if "\n" in line]


def says(federation, words):
    return [it for it in lines(federation) if words in it["message"]]


def wait_for(condition):
    """As long as a busy machine may need."""
    wait_until(condition, within=60.0)


def test_every_line_is_json(north):
    wait_for(lambda: says(north, "east: no link"))
    for line in lines(north):
        assert set(line) - {"exception"} == {"ts", "level", "logger", "message"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["ts"])
        assert line["level"] in ("debug", "info", "warning", "error")
    (ready,) = says(north, "ready: http://")
    assert (ready["level"], ready["logger"]) == ("info", "fedbandit.agent")
    assert says(north, "east: no link")[0]["level"] == "warning"
    (began,) = says(north, "no state yet")
    assert began["level"] == "info"
    assert {line["logger"].partition(".")[0] for line in lines(north)} == {"fedbandit"}, "libraries are quiet"


def test_a_changed_federation_that_is_put_back(north):
    config = north.config("north")
    text = config.read_text()
    config.write_text(text.replace("epsilon = 1.0", "epsilon = 2.0"))
    wait_for(lambda: says(north, "the [federation] section has changed"))
    config.write_text(text)
    wait_for(lambda: says(north, "the [federation] section is again the one that this agent runs with"))
    config.write_text("name = 3")
    wait_for(lambda: says(north, "the changed configuration was not applied"))
    config.write_text(text)
    wait_for(lambda: says(north, "site.toml is in order again"))


def test_members_to_refuse_are_applied_at_once(north):
    config = north.config("north")
    text = config.read_text()
    config.write_text(text + '[members]\nrefuse = ["west"]\n')
    wait_for(lambda: says(north, "applied [members] in site.toml: refused: west"))
    config.write_text(text)
    wait_for(lambda: says(north, "applied [members] in site.toml: refused: nobody"))


def test_no_token_is_logged(north):
    assert TOKEN not in north.log("north").read_text()


def test_the_last_words_of_an_agent_that_cannot_start_are_a_line_too(north):
    """Its port is in use, or its file is wrong."""
    wrong = north.folder / "wrong.toml"
    wrong.write_text("name = 3")
    other = [
        spawn("agent", "-c", wrong, "--log-format", "json"),
        spawn("agent", "-c", north.config("north"), "--log-format", "json", "--log-level", "error"),
    ]
    code, said = told(other[0], within=180)
    assert code == 2
    assert "name" in json.loads(said.splitlines()[-1])["message"]
    code, said = told(other[1], within=180)
    (line,) = map(json.loads, said.splitlines())
    assert (code, line["level"]) == (2, "error")
    assert "another process holds it" in line["message"]


@pytest.mark.parametrize("option", [("--log-format", "xml"), ("--log-level", "loud")])
def test_values_that_there_are_not(option):
    code, said = told(spawn("agent", *option), within=180)
    assert code == 2
    assert option[0] in said
    assert "Traceback" not in said


def test_a_message_of_several_lines_and_an_exception_are_one_line():
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "a\nb \u2028 %s", ("c\r",), sys.exc_info())
    line = _JsonLines().format(record)
    assert line.isascii()
    assert len(line.splitlines()) == 1
    said = json.loads(line)
    assert said["message"] == "a\nb \u2028 c\r"
    assert said["exception"].startswith("Traceback")
    assert said["exception"].endswith("ValueError: first\nsecond")


def test_what_a_changed_file_needs_a_restart_for(tmp_path, caplog):
    federation = LocalFederation(tmp_path, terms(), [("north", "east")])
    running = read_config(federation.config("north"))
    caplog.set_level(logging.INFO)
    log = RestartLog(logging.getLogger("test"))
    for found, expected in (
        (replace(running, keep=5), ["restart to apply: keep"]),
        (replace(running, keep=5, data=Path("x")), ["restart to apply: data, keep"]),
        (replace(running, keep=5, terms=terms(epsilon=3.0)), ["section has changed", "restart to apply: keep"]),
        (replace(running, keep=5), ["is again the one", "restart to apply: keep"]),
        (running, ["nothing needs a restart any more"]),
        (running, []),
    ):
        caplog.clear()
        log.notice(running, found)
        assert len(caplog.messages) == len(expected), caplog.messages
        assert all(words in said for words, said in zip(expected, caplog.messages, strict=True)), caplog.messages


def test_a_warning_is_logged_in_full_when_it_begins_and_in_short_when_it_ends(caplog):
    caplog.set_level(logging.INFO)
    log = WarningLog(logging.getLogger("test"))
    long = "nothing is released until a neighbour has confirmed " * 3
    log.notice([long, Note("an arm is suspended")])
    log.notice(())
    assert [(it.levelname, it.message) for it in caplog.records] == [
        ("WARNING", long),
        ("INFO", "an arm is suspended"),
        ("INFO", f"no longer: {long}"),
        ("INFO", "no longer: an arm is suspended"),
    ]


def test_a_warning_ends_once_when_all_of_it_is_over_and_not_when_its_words_change(caplog):
    caplog.set_level(logging.INFO)
    log = WarningLog(logging.getLogger("test"))
    first, second = "nothing is released until all have answered. It waits for east, west.", "arms are stopped: a"
    log.notice([first, second])
    log.notice([first.replace("east, ", ""), f"{second}, b"])
    assert len(caplog.messages) == 4
    log.notice(())
    assert caplog.messages[4:] == [
        "no longer: nothing is released until all have answered",
        "no longer: arms are stopped",
    ]


def test_warnings_that_differ_in_a_name_are_two_and_those_that_differ_in_a_number_are_one(caplog):
    caplog.set_level(logging.INFO)
    log = WarningLog(logging.getLogger("test"), ("arm 1", "arm 2"))
    words = "{} tells of 12.5 % of arm {}"
    log.notice([words.format("site-1", 1), words.format("site-2", 1), words.format("site-2", 2)])
    assert len(caplog.messages) == 3
    log.notice([it.message.replace("12.5 %", "13 %") for it in caplog.records][1:])
    assert caplog.messages[3:] == [f"no longer: {words.format('site-1', 1)}"]


@pytest.mark.parametrize("name", ["websockets", "websockets.client", "asyncio", "uvicorn.error"])
def test_libraries_do_not_log_details(name):
    program = (
        "import logging, sys; from fedbandit.agent.process.logs import begin_log; begin_log('text', 'debug'); "
        f"sys.exit(logging.getLogger({name!r}).isEnabledFor(logging.INFO))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
