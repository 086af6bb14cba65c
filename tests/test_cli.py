"""The command line as a person uses it, in a process of its own where exit codes matter."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedbandit.cli import app
from fedbandit.experiments.experiment import ExperimentError, read_experiment

GOOD = """
name = "small"
graph = "path:4"
horizon = 1e3
trials = 3
seed = 5

[problem]
rewards = "bernoulli"
num_arms = 3
seed = 2

[[policies]]
kind = "gossip_ucb"

[[policies]]
kind = "fed_ucb"
epsilon = 2.0

[[policies]]
kind = "central_ucb"
label = "the ceiling"
"""


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(GOOD)
    return path


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_run_show_plot(good, tmp_path):
    folder = tmp_path / "new" / "result"  # folders for output are made, those of a file are not
    ran = invoke("run", good, "-o", folder)
    assert ran.exit_code == 0, ran.output
    assert "the ceiling" in ran.output
    assert {p.name for p in folder.iterdir()} == {"result.nc", "regret.png", "experiment.toml"}
    assert (folder / "experiment.toml").read_text() == GOOD

    shown = invoke("show", folder)
    assert shown.exit_code == 0
    assert "Fed_UCB, eps=2" in shown.output
    assert shown.output.splitlines()[0] == ran.output.splitlines()[0], "the name of the experiment"
    assert "path:4, bernoulli rewards, horizon 1000, trials 0 to 2, seed 5" in shown.output

    drawn = invoke("plot", folder, "--band", "quantiles", "--scale", "log", "-o", tmp_path / "figure.pdf")
    assert drawn.exit_code == 0
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")


def test_a_sweep_can_be_run_shown_and_plotted(good, tmp_path):
    good.write_text(
        GOOD.replace('graph = "path:4"', 'graph = ["path", "star"]\nnum_agents = 4').replace(
            "epsilon = 2.0", "epsilon = [1.0, 8.0]"
        )
    )
    folder = tmp_path / "sweep"
    ran = invoke("run", good, "-o", folder)
    assert ran.exit_code == 0, ran.output
    assert {"sweep.nc", "sweep.png", "experiment.toml"} <= {p.name for p in folder.iterdir()}
    shown = invoke("show", folder).output
    assert shown.strip() in ran.output
    assert re.search(r"policy\s+graph=path, num_agents=4\s+graph=star|policy\s+graph=path\s+graph=star", shown)
    assert re.search(r"the ceiling\s+[\d,]+ ± \d+\s+[\d,]+ ± \d+", shown), "more policies than runs: a row per policy"
    assert invoke("plot", folder, "-o", tmp_path / "again.svg").exit_code == 0


@pytest.mark.slow
def test_options_replace_the_file(good, tmp_path):
    assert (
        invoke("run", good, "-o", tmp_path / "r", "--trials", 2, "--horizon", "500", "--seed", 9, "--quiet").output
        == ""
    )
    shown = invoke("show", tmp_path / "r").output
    assert "horizon 500, trials 0 to 1, seed 9" in shown


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("horizon", "horizonn", "unknown key 'horizonn'. Did you mean 'horizon'?"),
        ("num_arms", "num_amrs", "unknown key 'problem.num_amrs'. Did you mean 'num_arms'?"),
        ("horizon = 1e3", "", "'horizon' is missing"),
        ("epsilon = 2.0", "epsilon = -2.0", "policies[1].epsilon must be a number above 0 (inf allowed), not -2.0"),
        ("epsilon = 2.0", "", "policies[1] (fed_ucb) must be given epsilon"),
        ("epsilon =", "epsilom =", "Did you mean 'epsilon'?"),
        ('"gossip_ucb"', '"gosip_ucb"', "Did you mean 'gossip_ucb'?"),
        ('"path:4"', '"pathh:4"', "Did you mean 'path'?"),
        ('"bernoulli"', '"poisson"', "problem.rewards must be one of gaussian, bernoulli,"),
        ("horizon = 1e3", "horizon = 1e12", "horizon must be a whole number from 1 to 1000000000"),
        ("horizon = 1e3", "horizon = 0", "horizon must be a whole number from 1"),
        ("trials = 3", "trials = 0", "trials must be a whole number from 1"),
        ("trials = 3", 'trials = "three"', "trials must be a valid integer, not 'three'"),
        ("trials = 3", 'trials = "3"', "trials must be a valid integer, not '3'"),
        ("trials = 3", "trials = true", "trials must be a valid integer, not True"),
        ("horizon = 1e3", "horizon = true", "horizon must be a valid number, not True"),
        ("num_arms = 3", 'means = [[0.1, "x"]]', "problem.means[0][1] must be a valid number, not 'x'"),
        ('"path:4"', "{ edgess = [[0, 1]] }", "unknown key 'graph.edgess'. Did you mean 'edges'?"),
        ('kind = "central_ucb"', 'kind = "central_ucb"\nindex = [["ucb"]]', "policies[2].index must be one value"),
        ("epsilon = 2.0", 'epsilon = 2.0\npaper = "no"', "policies[1].paper must be true or false, not 'no'"),
        ('kind = "central_ucb"', "kind = {}", "policies[2].kind must be one of"),
        ('"the ceiling"', "7", "policies[2].label must be a text"),
        ("num_arms = 3", "num_arms = 3\nmeans = []", "problem.means must be a matrix"),
        ("num_arms = 3", "means = [[0.1, 0.2], [0.3]]", "means must be a matrix"),
        ("num_arms = 3", "num_arms = 3\nweights = []", "weights must be 4 numbers"),
        ('"path:4"', "[]", "graph must be at least one value"),
        ("epsilon = 2.0", "epsilon = []", "policies[1].epsilon must be at least one value"),
        ('"path:4"', '"path:4"\nnum_agents = 4', "graph must be a bare name like 'path' where num_agents is given"),
        ("seed = 5", "seed = 5\n[broken", "Expected ']'"),
        ("num_arms = 3", "means = [[0.1, nan]]", "means[0, 1] must be finite"),
        (
            "[[policies]]",
            "[policies]",
            "line 16 has another 'policies'. Where there may be several, all of them begin",
        ),
        ("seed = 2", "seed = 2\n[problem]", "small.toml: line 12 has another 'problem'"),
        ("num_arms = 3", "num_arms = 3\n[problem.changes]", "write [[problem.changes]], with two brackets"),
        ("[problem]", "[[problem]]", "there is one 'problem': write [problem], with one bracket, and only once"),
        ("num_arms = 3", "num_arms = 3\nsigma = 2.0", "problem.sigma must be left out unless problem.rewards is"),
    ],
)
def test_a_mistake_in_the_file_is_named(good, tmp_path, before, after, message):
    good.write_text(GOOD.replace(before, after, 1))
    ran = invoke("run", good, "-o", tmp_path / "out")
    assert ran.exit_code == 2
    assert message in ran.output
    assert not (tmp_path / "out").exists(), "something was half-written"


def test_one_policy_with_one_bracket(good):
    good.write_text(GOOD[: GOOD.index("[[policies]]")] + '[policies]\nkind = "gossip_ucb"\n')
    with pytest.raises(ExperimentError, match=r"\[policies\] stands for one of several: write \[\[policies\]\]"):
        read_experiment(good)


def test_all_mistakes_at_once(good):
    good.write_text(GOOD.replace("horizon", "horizonn").replace("trials", "trails"))
    with pytest.raises(ExperimentError) as error:
        read_experiment(good)
    assert str(error.value).count("\n") == 2


def test_a_graph_by_its_edges(good):
    good.write_text(GOOD.replace('graph = "path:4"', "graph = { edges = [[0, 1], [1, 2], [2, 3], [3, 0]] }"))
    assert read_experiment(good).problem.graph.diameter == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "missing.toml"], "no such file"),
        (["show", "missing"], "FOLDER must be a folder that exists, not 'missing'"),
        (["plot", "missing"], "FOLDER must be"),
        (["show", "/"], "FOLDER must be a folder with a result.nc that 'fedbandit run' wrote"),
        (["plot", "/", "-o", "figure.jpeg"], "--output must be a file that ends in"),
        (["graph", "path:0"], "num_agents must be a whole number from 1"),
        (["theory", "--graph", "path:10", "--arms", "1", "--horizon", "1e6"], "--arms must be"),
        (["theory", "--graph", "path:10", "--arms", "10", "--horizon", "0"], "--horizon must be"),
        (["theory", "--graph", "path:10", "--arms", "10", "--horizon", "1e6", "--epsilon", "-1"], "epsilon must be"),
        (["theory", "--graph", "path:10", "--arms", "10", "--horizon", "1e6", "--epsilon", "0"], "epsilon must be"),
        (["graph", "path:1000001"], "num_agents must be a whole number from 1 to 1000000"),
        (["demo", "-o", "/dev/null/x"], "error: --output must be a folder that this user can write to"),
        (["reproduce", "2a", "-o", "/dev/null"], "error: --output must be a folder that this user can write to"),
        (["plot", "/", "-o", "nowhere/figure.png"], "error: --output must be a file in a folder that exists"),
        (["theory", "--graph", "path:10", "--arms", "10", "--horizon", "1e6", "--gap", "2"], "--gap must be"),
    ],
)
def test_bad_arguments_exit_with_2(arguments, message):
    ran = invoke(*arguments)
    assert ran.exit_code == 2
    assert message in ran.output


@pytest.mark.parametrize("arguments", [["show", "FOLDER"], ["graph", "path:4"], ["--help"], ["openapi"], ["run", "-h"]])
def test_a_reader_that_goes_away(good, tmp_path, arguments):
    """As ``| head`` does: nothing on standard error, and the code that a shell shows for SIGPIPE."""
    if "FOLDER" in arguments:
        assert invoke("run", good, "-o", tmp_path / "out", "-q").exit_code == 0
        arguments = ["show", str(tmp_path / "out")]
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "fedbandit", *arguments]
    try:
        ran = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)
    assert (ran.stderr, ran.returncode) == ("", 141)


def test_other_ends_keep_their_code(tmp_path):
    with Path(os.devnull).open("w") as nowhere:
        for arguments, code in ((["graph", "path:4"], 0), (["show", str(tmp_path / "missing")], 2)):
            command = [sys.executable, "-m", "fedbandit", *arguments]
            assert subprocess.run(command, stdout=nowhere, stderr=nowhere, check=False).returncode == code


def test_graph():
    output = invoke("graph", "path:10").output
    assert re.search(r"lambda_2\s+0\.99456", output)
    assert re.search(r"diameter\s+9", output)


def test_theory():
    output = invoke("theory", "--graph", "path:10", "--arms", 10, "--horizon", "1e6", "--epsilon", 1).output
    assert re.search(r"p_1 at n = T / M \(Lemma 6\)\s+0\.0002", output)
    assert re.search(r"until C~ falls to 1\s+1,04\d,\d{3}", output)
    assert re.search(r"Theorem 2\)\s+[\d,]+  vacuous: above gap \* T = 100,000", output)
    assert "Theorem 1 says nothing about Gossip_UCB within" in " ".join(output.split())


@pytest.mark.parametrize(
    "extreme", [["--arms", 100, "--horizon", 50, "--epsilon", 1], ["--arms", 2, "--horizon", 2, "--epsilon", 1e-9]]
)
def test_theory_at_the_edges(extreme):
    assert invoke("theory", "--graph", "path:10", *extreme).exit_code == 0


@pytest.mark.slow
def test_only_our_own_files_are_removed(good, tmp_path):
    mine = tmp_path / "out" / "fedbandit-runs" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("keep")
    assert invoke("run", good, "-o", tmp_path / "out", "-q").exit_code == 0
    assert [path.name for path in mine.parent.iterdir()] == ["mine.txt"]


def test_the_version():
    ran = invoke("--version")
    assert (ran.exit_code, ran.output) == (0, f"fedbandit {version('fedbandit')}\n")


def test_help_is_fast_because_nothing_heavy_is_imported():
    code = "import sys, fedbandit.cli; print(*sorted({'numpy', 'numba', 'matplotlib', 'xarray'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_the_installed_command(good, tmp_path):
    command = Path(sys.executable).parent / "fedbandit"
    good.write_text(GOOD.replace("trials = 3", "trials = -3"))
    ran = subprocess.run([command, "run", good], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.strip() == "error: trials must be a whole number from 1 to 1000000, not -3"
    assert ran.stdout == ""
