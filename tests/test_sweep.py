"""Resumable runs and sweeps, in real processes."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from fedbandit import InvalidArgument, simulate
from fedbandit.checks import FileError
from fedbandit.experiments import sweep
from fedbandit.experiments.experiment import ExperimentError, read_experiment, read_sweep
from fedbandit.experiments.sweep import run_all, sweep_table
from fedbandit.figures.sweep import sweep_figure
from fedbandit.simulation import parts as parts_of_runs

FILE = """
name = "a sweep"
graph = ["path", "complete"]
num_agents = [3, 5]
horizon = 400
trials = 6
[problem]
rewards = "bernoulli"
num_arms = 3
[[policies]]
kind = "gossip_ucb"
[[policies]]
kind = "fed_ucb"
epsilon = [0.5, 5.0]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(FILE)
    return path


def test_lists_make_every_combination(file):
    experiments = read_sweep(file)
    worlds = [(e.problem.graph.name, e.problem.num_agents) for e in experiments]
    assert worlds == [("path:3", 3), ("path:5", 5), ("complete:3", 3), ("complete:5", 5)]
    assert list(experiments[0].policies) == ["Gossip_UCB", "Fed_UCB, eps=0.5", "Fed_UCB, eps=5"]
    with pytest.raises(ExperimentError, match="asks for 4 experiments"):
        read_experiment(file)


class _PoolHere:
    """Runs nothing; keeps what was asked for, in order."""

    def __init__(self, *arguments, **options):
        self.asked = []
        _PoolHere.last = self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, function, *arguments):
        self.asked.append((function, arguments[-1]))
        done = Future()
        done.set_result(None)
        return done


def test_each_loop_is_compiled_once_and_the_largest_parts_start_first(file, tmp_path, monkeypatch):
    """Two workers would compile the same for seconds; a large part that starts last keeps one core busy alone."""
    monkeypatch.setattr(sweep, "ProcessPoolExecutor", _PoolHere)
    monkeypatch.setattr(sweep, "usable_cores", lambda: 2)
    parts = [part for e in read_sweep(file) for part in sweep._parts_of(e, tmp_path)]
    sweep.run_parts(parts, lambda done, total: None)
    asked = _PoolHere.last.asked
    compiled = [part for function, part in asked if function is sweep._compile]
    played = [part for function, part in asked if function is sweep._run_part]
    assert [list(part.call["policies"]) for part in compiled] == [["Gossip_UCB"], ["Fed_UCB, eps=0.5"]]
    assert asked[: len(compiled)] == [(sweep._compile, part) for part in compiled]
    assert sorted(part.path for part in played) == sorted(part.path for part in parts)
    assert [part.pulls for part in played] == sorted((part.pulls for part in parts), reverse=True)
    assert [part.pulls for part in parts] != [part.pulls for part in played], "nothing had to be put in order"


@pytest.mark.slow
def test_a_sweep_is_what_its_experiments_are(file, tmp_path):
    experiments = read_sweep(file)
    results = run_all(experiments, tmp_path / "runs")
    for e, result in zip(experiments, results, strict=True):
        xr.testing.assert_equal(simulate(e.problem, e.policies, e.horizon, e.trials, e.seed).dataset, result.dataset)
    table = sweep_table(experiments, results)
    assert table["regret"].dims == ("run", "policy", "trial")
    assert table["num_agents"].values.tolist() == [3, 5, 3, 5]
    assert table["epsilon"].values.tolist() == [np.inf, 0.5, 5.0]
    np.testing.assert_allclose(table["regret"][1, 2], results[1].regret[2, :, :, -1].mean("agent"))
    figure = sweep_figure(table)
    assert [axes.get_xlabel().split(" ")[0] for axes in figure.axes] == ["graph,", "number", "privacy"]
    means = table["regret"].mean("trial")
    drawn = {tuple(np.round(line.get_ydata(), 6)) for line in figure.axes[1].lines}
    assert tuple(np.round(means[[0, 1], 0].values, 6)) in drawn  # Gossip_UCB on paths of 3 and 5


@pytest.mark.slow
def test_finished_parts_are_not_run_again(file, tmp_path, monkeypatch):
    monkeypatch.setattr(parts_of_runs, "PULLS_PER_PART", 2000)  # several parts each
    experiments = read_sweep(file)[:1]
    whole = run_all(experiments, tmp_path / "whole")[0]

    parts = sweep._parts_of(experiments[0], tmp_path / "resumed")
    assert len(parts) > 2
    ran = []
    parts[0].path.parent.mkdir(parents=True)
    sweep.run_parts(parts[:2], lambda done, total: None)
    monkeypatch.setattr(
        sweep,
        "run_parts",
        lambda missing, progress, run=sweep.run_parts: (ran.extend(missing), run(missing, progress)),
    )
    resumed = run_all(experiments, tmp_path / "resumed")[0]
    assert [part.trials for part in ran] == [part.trials for part in parts[2:]]
    xr.testing.assert_identical(resumed.dataset, whole.dataset)
    assert [p.suffix for p in (tmp_path / "resumed").iterdir()] == [".nc"], "parts are left over"
    ran.clear()
    run_all(experiments, tmp_path / "resumed")
    assert ran == []


@pytest.mark.slow
def test_a_damaged_file_is_made_anew(file, tmp_path):
    experiments = read_sweep(file)[:1]
    whole = run_all(experiments, tmp_path / "runs")[0]
    (kept,) = (tmp_path / "runs").glob("*.nc")
    kept.write_bytes(kept.read_bytes()[:1000])
    part = sweep._parts_of(experiments[0], tmp_path / "runs")[0].path
    part.parent.mkdir()
    part.write_bytes(b"")
    xr.testing.assert_identical(run_all(experiments, tmp_path / "runs")[0].dataset, whole.dataset)


def test_the_same_experiment_twice(file, tmp_path):
    one = read_sweep(file)[0]
    first, second = run_all([one, one], tmp_path / "runs")
    xr.testing.assert_identical(first.dataset, second.dataset)


def test_two_commands_in_one_folder(file, tmp_path):
    with sweep._alone_in(tmp_path), pytest.raises(FileError, match="is in use by another run"):
        run_all(read_sweep(file), tmp_path)


def test_policies_that_differ_in_epsilon_are_a_family(file):
    file.write_text(
        FILE + '[[policies]]\nkind = "fed_ucb"\nlabel = "tuned"\nepsilon = [1.0, 2.0]\nnoise_constant = [1.0, 9.0]\n'
    )
    families = read_sweep(file)[0].families
    assert families["Fed_UCB, eps=5"] == families["Fed_UCB, eps=0.5"] == "Fed_UCB"
    assert families["tuned, eps=1, noise_constant=9.0"] == "tuned, noise_constant=9.0"
    assert len(families) == 7


def test_another_experiment_does_not_take_its_parts(file, tmp_path):
    one = read_sweep(file)[0]
    names = {sweep._parts_of(e, tmp_path)[0].path for e in (one, replace(one, seed=1), replace(one, horizon=401))}
    assert len(names) == 3


def test_a_bad_experiment_fails_before_anything_runs(file, tmp_path):
    bad = replace(read_sweep(file)[0], trials=0)
    with pytest.raises(InvalidArgument, match="trials must be"):
        run_all([bad], tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def children_of(pid):
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout.split("\n")[
        1:
    ]
    pairs = [tuple(map(int, line.split())) for line in listed if line.strip()]
    return [child for child, parent in pairs if parent == pid]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.slow
def test_kill_and_resume(file, tmp_path, how):
    """Stopped in the middle, the same command finishes with the same bits, and no process stays behind."""
    file.write_text(
        FILE.replace('["path", "complete"]', '"path"')
        .replace("[3, 5]", "5")
        .replace("horizon = 400", "horizon = 1e5")
        .replace("trials = 6", "trials = 60")
    )
    command = [Path(sys.executable).parent / "fedbandit", "run", file, "--quiet", "-o"]
    parts = tmp_path / "killed" / "fedbandit-runs" / "parts"
    process = subprocess.Popen(
        [*command, tmp_path / "killed"],
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job's children ignore Ctrl-C
    )
    deadline = time.monotonic() + 120
    while not list(parts.glob("*.nc")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    workers = children_of(process.pid)
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode == (-9 if how == signal.SIGKILL else 130)
    done = {path.name: path.read_bytes() for path in parts.glob("*.nc")}
    assert done
    assert not (tmp_path / "killed" / "result.nc").exists(), "it was not stopped in the middle"
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in workers)

    subprocess.run([*command, tmp_path / "killed"], check=True)
    subprocess.run([*command, tmp_path / "whole"], check=True)
    for name in ("result.nc", "regret.png", "experiment.toml"):
        first, second = (tmp_path / folder / name for folder in ("killed", "whole"))
        assert first.read_bytes() == second.read_bytes(), name
    assert not parts.exists()


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = (
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] if Path(f"/proc/{pid}").exists() else "X"
    )
    return state not in "ZX"


CASES = """
graph = "path:4"
horizon = 300
trials = 3
[problem]
rewards = "bernoulli"
num_arms = 3
redraw = true
same_means = [true, false]
[[policies]]
kind = "fed_batch"
epsilon = 1.0
[[policies]]
kind = "gse"
[[policies]]
kind = "central_ucb"
"""


@pytest.mark.slow
def test_means_drawn_anew_in_a_sweep_of_cases(tmp_path):
    """Trial r has the means of seed + r, alike for all agents in one case; a policy is a row of the figure."""
    path = tmp_path / "cases.toml"
    path.write_text(CASES)
    alike, own = read_sweep(path)
    assert len(alike.problems) == len(own.problems) == 3
    for case in (alike, own):
        assert not np.array_equal(case.problems[0].means, case.problems[1].means)
    assert (alike.problem.means == alike.problem.means[0]).all()
    assert not (own.problem.means == own.problem.means[0]).all()
    results = run_all([alike, own], tmp_path / "runs")
    for e, result in zip((alike, own), results, strict=True):
        xr.testing.assert_equal(simulate(e.problems, e.policies, e.horizon, 3).dataset, result.dataset)
        assert result.experiment["problem"]["means"] == [p.means.tolist() for p in e.problems]
    axes = sweep_figure(sweep_table([alike, own], results)).axes[0]
    assert {label.get_text() for label in axes.get_yticklabels()} == set(alike.policies)
    assert len(read_sweep(path, {"trials": 5})[0].problems) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("num_arms = 3", "means = [[0.1, 0.2], [0.1, 0.2], [0.1, 0.2], [0.3, 0.4]]"),
            "problem.redraw must be left out",
        ),
        (("redraw = true\n", "rates = [1, 2, 3, 4]\n"), "rates must be 4 numbers above 0 and at most 1"),
        (("redraw = true\n", "redraw = 3\n"), "problem.redraw must be a valid boolean"),
        (('kind = "gse"', 'kind = "gse"\npresent = 2'), "present must be a number above 0 and at most 1"),
    ],
)
def test_mistakes_in_a_file_of_cases(tmp_path, change, message):
    path = tmp_path / "cases.toml"
    path.write_text(CASES.replace(*change))
    with pytest.raises(ExperimentError, match=message):
        read_sweep(path)


# ---------------------------------------------------------------- strata


STRATA = """
graph = "path:4"
horizon = 200
trials = 2
[problem]
rewards = "bernoulli"
num_arms = 3
redraw = true
gossip = "releases"
strata = [2, 3]
interaction = [0.0, 0.2]
[[policies]]
kind = "fed_batch"
epsilon = 1.0
context = ["ignore", "strata"]
"""


def test_a_sweep_over_strata_and_interactions(tmp_path):
    """Whole numbers in a list are an experiment each; other numbers say how often each stratum comes."""
    path = tmp_path / "strata.toml"
    path.write_text(STRATA)
    found = read_sweep(path)
    swept = [(e.swept["problem.strata"], e.swept["problem.interaction"]) for e in found]
    assert swept == [(2, 0.0), (2, 0.2), (3, 0.0), (3, 0.2)]
    assert [e.problem.num_strata for e in found] == [2, 2, 3, 3]
    for e in found:
        means = e.problem.means
        assert (means == means[:, :1]).all() == (e.swept["problem.interaction"] == 0.0)
        assert list(e.policies) == ["FedBatch Thompson, eps=1", "FedBatch Thompson, strata, eps=1"]
    path.write_text(STRATA.replace("strata = [2, 3]", "strata = [0.9, 0.1]").replace("[0.0, 0.2]", "0.1"))
    (one,) = read_sweep(path)
    assert one.problem.strata.tolist() == [[0.9, 0.1]] * 4
    rows = "[[0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [1.0, 0.0]]"
    path.write_text(STRATA.replace("[2, 3]", rows).replace("[0.0, 0.2]", "0.1"))
    assert read_sweep(path)[0].problem.strata.tolist() == [[0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [1.0, 0.0]]


def test_means_by_stratum_in_a_file(tmp_path):
    path = tmp_path / "means.toml"
    means = [[[0.1, 0.9, 0.5], [0.8, 0.2, 0.5]]] * 4
    given = STRATA.replace("num_arms = 3\nredraw = true", f"num_arms = 3\nmeans = {means}")
    path.write_text(given.replace("strata = [2, 3]\ninteraction = [0.0, 0.2]\n", ""))
    assert read_sweep(path)[0].problem.means.tolist() == means
    assert read_sweep(path)[0].problem.num_strata == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("strata = [2, 3]", "strata = [0.9, 0.2]"), "strata must be a number of strata"),
        (("strata = [2, 3]", "strata = []"), "problem.strata must be at least one value"),
        (("strata = [2, 3]", "strata = [2, 2]"), "problem.strata must be different values"),
        (("strata = [2, 3]\n", ""), "interaction must be left out without strata"),
        (("interaction = [0.0, 0.2]", "interaction = -1"), "interaction must be a number above 0"),
        (("num_arms = 3\nredraw = true", "means = [[0.1, 0.2]]"), "problem.interaction must be left out unless"),
        (("interaction = [0.0, 0.2]", "means = [[[0.1], [0.2, 0.3]]]"), "problem.redraw must be left out"),
    ],
)
def test_mistakes_in_a_file_with_strata(tmp_path, change, message):
    path = tmp_path / "strata.toml"
    path.write_text(STRATA.replace(*change))
    with pytest.raises(ExperimentError, match=message):
        read_sweep(path)


@pytest.mark.slow
def test_a_sweep_with_strata_runs_from_the_command_line(tmp_path):
    path, out = tmp_path / "strata.toml", tmp_path / "out"
    path.write_text(STRATA)
    command = [sys.executable, "-m", "fedbandit", "run", str(path), "--output", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "interaction" in done.stdout
    assert (out / "sweep.nc").exists()
    assert (out / "sweep.png").exists()
