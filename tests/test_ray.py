"""Runs on a real Ray cluster of two nodes on this machine: the same bits, whoever dies in the middle.

The quick run plays one simulation there; whatever else needs the cluster is slow.
"""

import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from contextlib import suppress
from pathlib import Path

import pytest
import xarray as xr
from typer.testing import CliRunner

from fedbandit import GossipUCB, InvalidArgument, Problem, simulate
from fedbandit.cli.commands import app
from fedbandit.experiments.experiment import read_sweep
from fedbandit.experiments.sweep import run_files
from fedbandit.simulation import cluster, parts
from fedbandit.simulation.cluster import ClusterError
from fedbandit.simulation.result import read_result
from fedbandit.world import graph

FILE = """
graph = ["path:3", "complete:3"]
horizon = {horizon}
trials = {trials}
checkpoints = 5
[problem]
num_arms = 3
[[policies]]
kind = "{kind}"
"""

SOON = {"health_check_period_ms": 500, "health_check_failure_threshold": 2, "health_check_initial_delay_ms": 500}


@pytest.fixture(scope="module")
def two_nodes():
    """A head and a second node, with a core each. This process is connected, so that tests share their workers."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster._QUIET.items():
            patch.setenv(name, value)
        import ray
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": SOON}
        made = Cluster(initialize_head=True, head_node_args=head)
        made.add_node(num_cpus=1)
        with cluster.connection(made.address):
            yield made
        made.shutdown()
        assert not ray.is_initialized()


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A sweep of two points, in parts of one trial each."""
    monkeypatch.setattr(parts, "PULLS_PER_PART", 1)
    path = tmp_path / "sweep.toml"
    path.write_text(FILE.format(horizon=500, trials=3, kind="gossip_ucb"))
    return path


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def tasks():
    """Process numbers of workers with a task of ours; this process has started their nodes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            pid = int(path.parent.name)
            if path.read_bytes().startswith(b"ray::_play") and parent(parent(pid)) == os.getpid():
                found.append(pid)
    return found


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def same(files, experiments):
    for path, e in zip(files, experiments, strict=True):
        here = simulate(e.played, e.policies, e.horizon, e.trials, e.seed, e.checkpoints)
        xr.testing.assert_identical(read_result(path).dataset, here.dataset)


# ---------------------------------------------------------------- the same bits


def test_simulate_gives_the_same_bits(two_nodes, monkeypatch):
    monkeypatch.setattr(parts, "PULLS_PER_PART", 4000)
    problems = [Problem.random(3, 3, graph.path(3), seed) for seed in range(5)]
    call = (problems, {"mine": GossipUCB()}, 600, range(1, 5), 7, [10, 600])
    seen = []
    there = simulate(*call, engine="ray", progress=lambda done, total: seen.append((done, total)))
    xr.testing.assert_identical(there.dataset, simulate(*call).dataset)
    assert seen[-1] == (4 * 600 * 3, 4 * 600 * 3)


@pytest.mark.slow
def test_own_code_runs_on_machines_that_do_not_have_it(two_nodes, file, tmp_path, monkeypatch):
    """The policy's module imports another; neither is on the path of a worker."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    own = "from shipped_helper import GossipUCB\n" + OWN
    (tmp_path / "shipped_policy.py").write_text(own)
    (tmp_path / "shipped_helper.py").write_text("from fedbandit import GossipUCB\n")
    file.write_text(FILE.format(horizon=200, trials=2, kind="shipped_policy:Mine").replace(', "complete:3"', ""))
    experiments = read_sweep(file)
    same(run_files(experiments, tmp_path / "runs", None, "ray"), experiments)


OWN = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Mine:
    def page(self):
        return GossipUCB().page()

    def terms(self, setting):
        return GossipUCB().terms(setting)
"""


# ---------------------------------------------------------------- what is refused


@pytest.mark.slow
def test_a_machine_with_another_version_is_refused(two_nodes, file, tmp_path, monkeypatch):
    other = cluster.facts() | {"numba": "0.1", "fedbandit's sources": "abc"}
    monkeypatch.setattr(cluster, "facts", lambda: other)
    words = (
        r"machine [\d.]+ would compute something else \(numba [\d.]+ there, 0.1 here; fedbandit's sources \w{16} there"
    )
    with pytest.raises(ClusterError, match=words):
        run_files(read_sweep(file), tmp_path / "runs", None, "ray")


@pytest.mark.slow
def test_an_error_in_a_task_is_told_in_its_own_words(two_nodes, file, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_code_of", lambda call: ["other"])
    with pytest.raises(ClusterError, match="a worker has loaded other code"):
        run_files(read_sweep(file), tmp_path / "runs", None, "ray")
    monkeypatch.undo()
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "only_here", types.ModuleType("only_here"))  # a library that no worker has
    (tmp_path / "needy_policy.py").write_text("import only_here\nfrom fedbandit import GossipUCB\n" + OWN)
    file.write_text(FILE.format(horizon=200, trials=2, kind="needy_policy:Mine").replace(', "complete:3"', ""))
    with pytest.raises(ClusterError, match=r"cannot load what it should run .No module named 'only_here'."):
        run_files(read_sweep(file), tmp_path / "runs", None, "ray")


@pytest.mark.slow
def test_a_second_address_is_refused(two_nodes, file, tmp_path):
    with pytest.raises(InvalidArgument, match=r"address must be left out where ray.init has been called"):
        run_files(read_sweep(file), tmp_path / "runs", None, "ray", two_nodes.address)


def test_where_no_ray_answers(monkeypatch):
    monkeypatch.setattr(cluster, "_PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(ClusterError, match=r"no Ray cluster answers at .*timed out"):
            cluster._find_ray_at("127.0.0.1", silent.getsockname()[1])
        free = silent.getsockname()[1]
    with pytest.raises(ClusterError, match=r"no Ray cluster answers at .*refused"):
        cluster._find_ray_at("127.0.0.1", free)
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as web:
        threading.Thread(target=web.handle_request).start()
        with pytest.raises(ClusterError, match="is not a Ray cluster"):
            cluster._find_ray_at("127.0.0.1", web.server_port)
    for wrong in ("6379", "ray://10.0.0.1:10001", "here:there", "auto", ":6379"):
        with pytest.raises(InvalidArgument, match="address must be HOST:PORT"):
            cluster._host_and_port(wrong, "address")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--address", "10.0.0.1:6379"], "--address must be left out unless --engine is ray"),
        (["--engine", "dask"], "--engine must be one of auto, cpu, cuda, ray, not 'dask'"),
        (["--engine", "ray", "--address", "nowhere"], "address must be HOST:PORT"),
    ],
)
def test_mistakes_on_the_command_line(file, tmp_path, options, words):
    ran = CliRunner().invoke(app, ["run", str(file), "-o", str(tmp_path / "out"), *options])
    assert (ran.exit_code, words in ran.stderr) == (2, True), ran.stderr


def test_threads_are_not_for_clusters():
    with pytest.raises(InvalidArgument, match="threads must be left out for engine 'ray'"):
        simulate(Problem.random(2, 2, graph.path(2), 0), GossipUCB(), 10, 1, engine="ray", threads=2)


# ---------------------------------------------------------------- who dies in the middle


@pytest.mark.slow
def test_stopped_by_hand(two_nodes, file, tmp_path):
    """Tasks tell how far they are before a part is finished; Ctrl-C ends them at once."""
    horizon = 100_000_000  # ten seconds or more
    file.write_text(FILE.format(horizon=horizon, trials=3, kind="gossip_ucb"))
    seen = []

    def stop(done, total):
        seen.append(done)
        if done > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_files(read_sweep(file), tmp_path / "runs", stop, "ray")
    assert 0 < seen[-1] < 2 * 3 * horizon
    assert until(lambda: not tasks(), 5)
    assert not list((tmp_path / "runs").rglob("*.nc*"))


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    """Four trials of half a second, and their result."""
    path = tmp_path_factory.mktemp("long") / "long.toml"
    path.write_text(FILE.format(horizon=5_000_000, trials=4, kind="gossip_ucb").replace(', "complete:3"', ""))
    (e,) = read_sweep(path)
    return e, simulate(e.played, e.policies, e.horizon, e.trials, e.seed, e.checkpoints).dataset


def run_and_kill(long_run, folder, kill):
    """Kill while both nodes play: all four tasks are submitted before the first report."""
    experiment, expected = long_run
    killed = []

    def report(done, total):
        if not killed and until(lambda: len(tasks()) == 2):
            killed.append(kill())

    (path,) = run_files([experiment], folder, report, "ray")
    assert killed
    xr.testing.assert_identical(read_result(path).dataset, expected)


@pytest.mark.slow
@pytest.mark.usefixtures("two_nodes", "file")
def test_a_worker_dies(long_run, tmp_path):
    run_and_kill(long_run, tmp_path, lambda: os.kill(tasks()[0], signal.SIGKILL))


@pytest.mark.slow
@pytest.mark.usefixtures("file")
def test_a_node_dies(two_nodes, long_run, tmp_path):
    """The second machine. Later tests have the first alone."""
    (second,) = two_nodes.worker_nodes
    run_and_kill(long_run, tmp_path, lambda: two_nodes.remove_node(second, allow_graceful=False))


@pytest.mark.slow
def test_a_part_that_always_dies_ends_the_run_which_resumes(two_nodes, file, tmp_path, monkeypatch):
    """Its finished parts are on disk; the same call does the others."""
    file.write_text(FILE.format(horizon=1_000_000, trials=4, kind="gossip_ucb").replace(', "complete:3"', ""))
    experiments, kept = read_sweep(file), tmp_path / "runs" / "parts"

    def kill(done, total):
        for pid in tasks() if list(kept.glob("*.nc")) else []:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(cluster, "MOST_DEATHS", 1)
    with pytest.raises(ClusterError, match=r"died 1 times .*run the command again to resume"):
        run_files(experiments, tmp_path / "runs", kill, "ray")
    before, seen = len(list(kept.glob("*.nc"))), []
    assert 0 < before < 4
    files = run_files(experiments, tmp_path / "runs", lambda *told: seen.append(told), "ray")
    assert seen[-1] == ((4 - before) * 3_000_000, (4 - before) * 3_000_000)
    same(files, experiments)


# ---------------------------------------------------------------- the command itself


@pytest.mark.slow
def test_the_command_prints_its_table_and_nothing_else(two_nodes, file, tmp_path):
    command = [Path(sys.executable).parent / "fedbandit", "run", file, "-o", tmp_path / "out", "--engine", "ray"]
    ran = subprocess.run([*command, "--address", two_nodes.address], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "ray" not in ran.stdout.lower().replace(str(tmp_path).lower(), "")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("experiment.toml", "fedbandit-runs", "sweep.nc", "sweep.png")
    ]


@pytest.mark.slow
def test_without_an_address_ray_starts_on_this_machine(file, tmp_path):
    command = [Path(sys.executable).parent / "fedbandit", "run", file, "-q", "--engine", "ray", "-o", tmp_path / "out"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    experiments = read_sweep(file)
    same(run_files(experiments, tmp_path / "out" / "fedbandit-runs"), experiments)


# ---------------------------------------------------------------- what travels


def test_own_modules_travel(tmp_path, monkeypatch):
    """To a process that has neither the folder nor its path; an edited module replaces the earlier one."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    package = tmp_path / "travelling"
    package.mkdir()
    (package / "__init__.py").write_text("from travelling.inner import Thing\n")
    (tmp_path / "fellow_traveller.py").write_text("said = 'first'\n")
    (package / "inner.py").write_text("from fellow_traveller import said\nclass Thing:\n    says = said\n")
    from travelling import Thing  # pyright: ignore

    first = cluster.packed("policies", {"one": Thing()})
    (package / "inner.py").write_text("class Thing:\n    says = 'second'\n")
    second = cluster.packed("policies", {"one": Thing()})
    code = (
        "import pathlib, sys\n"
        "from fedbandit.simulation.cluster import unpacked\n"
        "contents = [pathlib.Path(path).read_bytes() for path in sys.argv[1:]]\n"
        "print([unpacked(content)['one'].says for content in contents])\n"
    )
    (tmp_path / "1").write_bytes(first)
    (tmp_path / "2").write_bytes(second)
    command = [sys.executable, "-c", code, tmp_path / "1", tmp_path / "2", tmp_path / "1"]
    elsewhere = os.environ | {"TMPDIR": str(tmp_path)}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=elsewhere)
    assert told.stdout.strip() == "['first', 'second', 'first']"
    (home,) = tmp_path.glob("fedbandit-modules-*")
    assert home.stat().st_mode & 0o077 == 0
    home.chmod(0o777)
    refused = subprocess.run(command, capture_output=True, text=True, check=False, env=elsewhere)
    assert "belongs to somebody else" in refused.stderr


def test_what_cannot_travel_is_refused():
    with pytest.raises(InvalidArgument, match="policies must be made of what stands at the top level of a module"):
        cluster.packed("policies", lambda x: x)
    script = type("Script", (), {"__module__": "__main__"})
    sys.modules["__main__"].Script = script
    try:
        with pytest.raises(InvalidArgument, match="policies must be of a module, not of the script that runs"):
            cluster.packed("policies", script())
    finally:
        del sys.modules["__main__"].Script
