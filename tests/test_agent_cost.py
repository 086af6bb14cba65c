"""The benchmark that compares what an agent costs in two versions: its table, what it refuses, that it runs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import agent_cost  # noqa: E402

PROGRAM = [sys.executable, ROOT / "benchmarks" / "agent_cost.py"]


def measured(factor):
    version = agent_cost.Version("x", ROOT)
    for turn in range(5):
        version.note(**dict.fromkeys(agent_cost.MEASURES, factor * (1.0 + turn)))
    return version


def test_the_table_aligns_and_a_planted_slowdown_is_in_it():
    head, *rows = agent_cost.table(measured(1.0), measured(1.2), 20_000).splitlines()
    assert len(rows) == len(agent_cost.MEASURES)
    assert {len(line) for line in rows} == {len(head)}
    for row in rows:
        assert row.split()[-4:] == ["1.200", "1.200", "1.200", "5"]
    assert "after 20,000 decisions" in "".join(rows)


def test_versions_take_turns_and_each_goes_first_as_often():
    assert list(agent_cost.turns(["a", "b"], 4)) == [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]]


@pytest.mark.parametrize(("against", "said"), [("no-such-revision", "neither a folder nor"), ("tests", "would run")])
def test_a_revision_that_does_not_exist_and_a_folder_without_the_package_are_refused(against, said):
    ran = subprocess.run([*PROGRAM, "--against", against], cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, said in ran.stderr, "Traceback" in ran.stderr) == (1, True, False), ran.stderr


@pytest.mark.slow
def test_the_benchmark_runs_against_its_own_checkout():
    ran = subprocess.run([*PROGRAM, "--quick", "--against", ROOT], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for words, _, _ in agent_cost.MEASURES.values():
        assert words.partition("{")[0] in ran.stdout
