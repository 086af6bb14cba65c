"""A neighbour that floods a real agent with bulletins, forged or not, does not slow decisions by more than twice."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedbandit.local.processes import LocalFederation
from processes import ask, state, terms

COUNT = 150


@pytest.fixture(scope="module")
def north(tmp_path_factory):
    federation = LocalFederation(tmp_path_factory.mktemp("sites"), terms(), [("east", "north")])
    federation.start("north")
    try:
        federation.wait_ready("north")
        yield federation
    finally:
        federation.stop_all()


def p95(federation):
    """The 95th percentile of the seconds that a decision takes."""
    took = []
    for _ in range(COUNT):
        begun = time.perf_counter()
        assert ask(f"{federation.url('north')}/v1/decisions", "POST", {})[0] == 201
        took.append(time.perf_counter() - begun)
    return sorted(took)[int(0.95 * COUNT)]


def with_flood(federation, kind):
    """``p95`` while somebody floods north; ``nobody``: while a process only makes this machine as busy."""
    program = [sys.executable, str(Path(__file__).with_name("flood.py"))]
    arguments = [str(federation.gossip_ports["north"]), str(federation.config("north")), kind]
    with subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE) as flood:
        try:
            assert flood.stdout.readline()
            time.sleep(1.0)
            took = p95(federation)
            assert flood.poll() is None
            return took
        finally:
            flood.kill()


@pytest.mark.parametrize("kind", ["slow", "forged", "new", "same"])
def test_decisions_under_a_flood(north, kind):
    """In turns, the best of up to eight each: other work on this machine slows both."""
    quiet, flooded = [], []
    for _ in range(8):
        quiet.append(with_flood(north, "nobody"))
        flooded.append(with_flood(north, kind))
        if min(flooded) <= 2.0 * min(quiet):
            break
    refused = state(north, "north")["refused"]
    print(kind, f"p95 quiet {1e3 * min(quiet):.1f} ms, under the flood {1e3 * min(flooded):.1f} ms", refused)  # noqa: T201
    if kind in ("slow", "forged"):
        assert refused["forged bulletin"] >= 1
        assert refused["paused"] >= 1
    assert min(flooded) <= 2.0 * min(quiet)
