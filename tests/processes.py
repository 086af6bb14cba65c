"""What tests of real agents share: commands, waiting, and looking into the file of an agent that runs."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from fedbandit import FedBatch
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import SqliteJournal
from fedbandit.local.processes import LocalFederation

MEANS = (0.2, 0.8)


def terms(num_agents=2, **policy):
    return Federation("trial", ("A", "B"), 0.0, 1.0, FedBatch(**({"epsilon": 1.0} | policy)), max_agents=num_agents)


def spawn(*arguments, before=""):
    """A ``fedbandit`` command under way; ``before`` is Python that runs first."""
    program = f"{before}\nfrom fedbandit.cli import main\nmain()"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def told(process, within=30):
    """Exit code and output of a command."""
    output, _ = process.communicate(timeout=within)
    return process.returncode, output


def command(*arguments):
    return told(spawn(*arguments))


def assert_mistake(outcome, *words):
    """A plain message and exit code 2."""
    code, output = outcome
    assert code == 2, output
    assert "Traceback" not in output
    assert output.count("error:") == 1, output
    for word in words:
        assert word in output, f"{word!r} is not in: {output}"


def wait_until(condition, within=30.0, every=0.02):
    """Wait for a condition; how many seconds that took."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + within, f"not within {within} s"
        time.sleep(every)
    return time.monotonic() - begun


def ask(url, method="GET", body=None):
    """Status and content of a request: no client in between that tries again."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310  # loopback
    try:
        with urllib.request.urlopen(request, timeout=5.0) as answer:  # noqa: S310
            status, content = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            status, content = error.code, error.read()
    return status, json.loads(content) if content else None


def state(federation, name):
    return ask(f"{federation.url(name)}/v1/state")[1]


def neighbour(federation, name, other):
    return next((it for it in state(federation, name)["neighbours"] if it["name"] == other), None)


def linked(federation, name, other):
    """Whether a site has a connection with a neighbour."""
    return neighbour(federation, name, other)["reachable"]


def board(federation, name):
    """The place of the newest bulletin of each site, as a site knows it."""
    return {it["name"]: (it["incarnation"], it["number"]) for it in state(federation, name)["members"]}


def are_level(federation, *names):
    """Whether these sites know the same bulletins, those of all of them among these."""
    first, *others = (board(federation, name) for name in names)
    return set(names) <= set(first) and all(it == first for it in others)


def decide_and_reward(federation, name, count):
    """Decisions with rewards; the ids and values that were acknowledged."""
    known = {}
    for i in range(count):
        status, decision = ask(f"{federation.url(name)}/v1/decisions", "POST")
        assert status == 201, decision
        value = float((i * 0.6180339887) % 1.0 < MEANS[decision["arm"]])
        status, content = ask(f"{federation.url(name)}/v1/decisions/{decision['id']}/reward", "PUT", {"value": value})
        assert status == 204, content
        known[decision["id"]] = value
    return known


def look(state_file, question):
    """Ask the file of an agent, also of one that runs, as long as it writes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        for path in Path(state_file).parent.glob(f"{Path(state_file).name}*"):
            shutil.copy(path, folder)
        file = sqlite3.connect(Path(folder) / Path(state_file).name)
        try:
            return question(file)
        finally:
            file.close()


def dump(state_file):
    """All that is in the file of an agent."""
    return look(state_file, lambda file: list(file.iterdump()))


def read(federation, *names):
    """The sites that the files of stopped agents add up to."""
    sites = []
    for name in names:
        journal = SqliteJournal(federation.state_file(name), name, federation.terms, 1)
        sites.append(Site(name, federation.terms, journal.load()))
        journal.close()
    return sites


def edit(path, *changes):
    """Change text in a file; a pattern that is not there is a mistake of the test."""
    text = path.read_text()
    for pattern, new in changes:
        text, count = re.subn(pattern, new, text, flags=re.DOTALL)
        assert count == 1, (pattern, count)
    path.write_text(text)


def lines(federation, name, *words):
    """The lines of a site's log with all of these words."""
    return [line for line in federation.log(name).read_text().splitlines() if all(word in line for word in words)]


@contextmanager
def running(folder, links, *names, num_agents=2, prepare=None):
    """A federation with some of its sites running: all, if none are named."""
    federation = LocalFederation(folder, terms(num_agents), links)
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


def come_through(federation, name, other, within=30.0):
    """Wait until two neighbours are linked and know the same bulletins; how long that took."""

    def are_one():
        return (
            linked(federation, name, other) and linked(federation, other, name) and are_level(federation, name, other)
        )

    return wait_until(are_one, within)


def settle(federation, *names):
    """Wait until these sites know the same bulletins, and no other has followed: each writes one in a second."""
    seen, since = None, time.monotonic()

    def is_settled():
        nonlocal seen, since
        now = [board(federation, name) for name in names]
        if now != seen:
            seen, since = now, time.monotonic()
        return all(it == now[0] for it in now) and time.monotonic() - since > 1.5

    wait_until(is_settled)


def measured(text):
    """Show a number where it is asked for: pytest -rP."""
    sys.stdout.write(f"{text}\n")
