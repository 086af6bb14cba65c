"""What users install: the lock agrees with pyproject.toml and constraints.txt, and an audit notices bad versions."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import lock  # noqa: E402

LOCK = (ROOT / "requirements.lock").read_text()
ENTRY = re.compile(r"([a-z0-9-]+)==([a-z0-9.]+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def needed(requirements, python, machine):
    """The names of packages that these requirements install, by what the installed packages say of themselves."""
    there = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": machine,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    waiting, done = [Requirement(text) for text in requirements], set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) not in done:
                done.add((name, extra))
                further = [Requirement(text) for text in requires(name) or ()]
                waiting += [it for it in further if it.marker is None or it.marker.evaluate({**there, "extra": extra})]
    return {name for name, _ in done}


def disagreements(text):
    """What is wrong with a lock: each item one sentence."""
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    entries = ENTRY.findall(body)
    locked = {name: version for name, version, _ in entries}
    expected = set().union(*(needed(lock.roots(), *target) for target in lock.TARGETS))
    return [
        *([] if ENTRY.sub("", body) == "" else ["it has more than names, versions and hashes"]),
        *([] if len(locked) == len(entries) else ["a package is in it twice"]),
        *(f"{name} is missing" for name in sorted(expected - set(locked))),
        *(f"nobody needs {name}" for name in sorted(set(locked) - expected)),
        *(f"{name} is {version}" for name, version in locked.items() if pins.get(name) != version),
    ]


def test_the_lock_has_every_package_of_an_agent_at_the_pinned_version_and_no_other():
    assert disagreements(LOCK) == []
    assert not re.search(r"://|index|@", LOCK)


def entry_of(name):
    return next(match[0] for match in ENTRY.finditer(LOCK) if match[1] == name)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (entry_of("websockets"), "", "websockets is missing"),
        (entry_of("hatchling"), "", "hatchling is missing"),
        ("fastapi==", "fastapi==0.0.", "fastapi is 0.0"),
        (entry_of("h11"), entry_of("h11").replace("h11", "pytest"), "nobody needs pytest"),
        (entry_of("h11"), entry_of("h11").split(" ")[0] + "\n", "more than names"),
        (entry_of("h11"), "--index-url x\n" + entry_of("h11"), "more than names"),
        (entry_of("h11"), 2 * entry_of("h11"), "twice"),
    ],
    ids=["missing", "no build backend", "version", "superfluous", "no hash", "option", "twice"],
)
def test_a_planted_disagreement_of_the_lock_is_noticed(old, new, said):
    assert old in LOCK
    assert any(said in it for it in disagreements(LOCK.replace(old, new)))


# ---------------------------------------------------------------- the audit, against a database on loopback


@contextmanager
def database(answer):
    """A database like OSV's: ``answer`` turns a package's name into status and body."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self):
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, body = answer(query["package"]["name"])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def audit(url, tmp_path, patience=60):
    """Exit code and output; no other database can be reached."""
    pinned = tmp_path / "pinned.txt"
    pinned.write_text("h11==0.16.0\nanyio==4.16.0\n")
    nowhere = {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "no_proxy": "127.0.0.1"}
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "audit_dependencies.py", pinned],
        env={**os.environ, **nowhere, "PIP_AUDIT_OSV_URL": url, "AUDIT_PATIENCE": str(patience)},
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in ran.stderr
    return ran.returncode, ran.stdout + ran.stderr


def vulnerable(name):
    package = {"name": "h11", "ecosystem": "PyPI"}
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99.1"}]}]
    known = {
        "id": "PLANTED-1",
        "aliases": ["CVE-0000-1"],
        "summary": "It leaks.",
        "affected": [{"package": package, "ranges": ranges}],
    }
    return 200, json.dumps({"vulns": [known]} if name == "h11" else {}).encode()


def test_a_planted_advisory_fails_the_audit_and_is_named(tmp_path):
    with database(vulnerable) as url:
        code, said = audit(url, tmp_path)
    assert code == 1, said
    assert "VULNERABLE: h11 0.16.0: CVE-0000-1, PLANTED-1 (fixed in 99.1): It leaks." in said


def test_an_audit_without_advisories_passes_and_says_how_many_packages_it_asked_about(tmp_path):
    with database(lambda name: (200, b"{}")) as url:
        assert audit(url, tmp_path) == (0, "audit of dependencies: 0 vulnerabilities in 2 packages, says OSV\n")


@pytest.mark.parametrize(
    "answer", [(503, b""), *(pytest.param(it, marks=pytest.mark.slow) for it in ((404, b""), (200, b"<html>")))]
)
def test_a_database_that_does_not_answer_skips_the_audit_and_the_reason_is_said(tmp_path, answer):
    with database(lambda name: answer) as url:
        code, said = audit(url, tmp_path)
    assert code == 0, said
    assert re.search("OSV gives no answer: .*(Error|Client)", said)
    assert re.search("the package index gives no answer: .*Error", said)
    assert "SKIPPED" in said


@pytest.mark.slow
def test_a_database_that_cannot_be_reached_or_is_silent_skips_the_audit_in_bounded_time(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        begun = time.monotonic()
        code, said = audit(url, tmp_path, patience=4)
        assert (code, "not within 4 s" in said, "SKIPPED" in said) == (0, True, True), said
        assert time.monotonic() < begun + 30
    code, said = audit(url, tmp_path)
    assert (code, "Connection refused" in said, "SKIPPED" in said) == (0, True, True), said


def test_an_accepted_advisory_passes_under_any_of_its_names_and_is_still_shown(capsys):
    import audit_dependencies

    found = [audit_dependencies.Advisory("h11", "0.16.0", ("PLANTED-1", "CVE-0000-1"), (), "It leaks.")]
    accepted = {"CVE-0000-1": "we do not call it", "CVE-0000-2": "nor that"}
    assert audit_dependencies.verdict(found, accepted, "OSV", 2) == 0
    said = capsys.readouterr().out
    assert "accepted, we do not call it: h11 0.16.0: PLANTED-1, CVE-0000-1 (no fixed version)" in said
    assert "no longer found: CVE-0000-2" in said
    assert audit_dependencies.verdict(found, {}, "OSV", 2) == 1


def test_packages_that_were_not_looked_up_are_no_good_news():
    import audit_dependencies

    skipped = {"name": "h11", "skip_reason": "not found: h11"}
    bad = {
        "name": "anyio",
        "version": "1",
        "vulns": [{"id": "PLANTED-1", "aliases": [], "fix_versions": [], "description": ""}],
    }
    with pytest.raises(audit_dependencies.NoAnswer, match="1 of 2 packages: not found: h11"):
        audit_dependencies.advisories_in({"dependencies": [skipped, {**bad, "vulns": []}]})
    assert len(audit_dependencies.advisories_in({"dependencies": [skipped, bad]})) == 1
