"""The GPU engine where there is no GPU: its kernels in plain Python, its books, and what it says.

``simulated_gpu.py`` plays the real kernels thread by thread; ``cuda_simulator.py`` has the simulations. A process of
its own plays them, with the CPU engine beside it: Numba is told before it is imported to compile nothing. Some are
played by the compiled CPU engine, too; the others cost seconds of compilation each.
"""

import json
import os
import re
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import fedbandit
from cuda_simulator import CASES, WRONG, call_of, numbers_of
from fedbandit import GossipUCB, InvalidArgument, Problem, simulate
from fedbandit.cli import app
from fedbandit.engine.accounting import Reading, RegretAccounting, Truth, new_record, segments_of, spread_of, statistics
from fedbandit.engine.cuda import blocks
from fedbandit.engine.cuda import engine as gpu
from fedbandit.engine.cuda.warp import MANY_REGISTERS, MANY_WARPS, Room, _three_records, fits_in_a_warp
from fedbandit.engine.layout import new_population
from fedbandit.policies import POLICIES
from fedbandit.simulation import run
from fedbandit.simulation.run import check_call
from fedbandit.world import graph

HERE = Path(__file__).parent
COMPILED = ("Gossip_UCB", "a control arm")
PROBLEM = Problem.random(3, 3, "path:3", seed=4, rewards="bernoulli")


# ---------------------------------------------------------------- the kernels, in plain Python


@pytest.fixture(scope="module")
def played(request):
    """What both engines tell of the cases that tests ask for."""
    here = [item for item in request.session.items if item.path == Path(__file__)]
    tests = [item for item in here if "played" in getattr(item, "fixturenames", ())]
    names = {item.callspec.params["name"] if hasattr(item, "callspec") else None for item in tests}
    path = os.pathsep.join([str(Path(fedbandit.__file__).parents[1]), str(HERE), os.environ.get("PYTHONPATH", "")])
    plain = {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path}
    command = [sys.executable, HERE / "cuda_simulator.py", *([] if None in names else sorted(names))]
    ran = subprocess.run(command, env={**os.environ, **plain}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout)


@pytest.mark.parametrize("name", CASES)
def test_the_kernels_play_as_the_cpu_engine_does(name, played):
    """Bit for bit: in plain Python both have the same logarithms."""
    on_gpu, on_cpu = played[name]
    assert {"pulls", "messages", "lagging", "regret"} <= on_gpu.keys() == on_cpu.keys()
    for variable, numbers in on_cpu.items():
        np.testing.assert_array_equal(on_gpu[variable], numbers, err_msg=variable)


@pytest.mark.parametrize("name", [n if n in COMPILED else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_the_kernels_play_as_the_compiled_cpu_engine_does(name, played):
    arguments, options = call_of(CASES[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = numbers_of(simulate(*arguments, **options))
    for variable, numbers in compiled.items():
        close = {"rtol": 1e-12, "atol": 1e-12} if variable.startswith("theta_error") else {"rtol": 1e-14}
        np.testing.assert_allclose(played[name][0][variable], numbers, **close, err_msg=variable)


def test_the_cases_reach_what_they_are_for(played):
    """Agents lag behind, so n~ matters; estimates miss; links carry messages."""
    consistent = ("kernels of five rounds", "means that change", "all links", "aggregates")
    for variable, names in {
        "lagging": (*consistent, "a graph that changes", "contacts", "a grid"),
        "misses": consistent,
        "messages": ("several warps and blocks", "a matching", "Central UCB", "a grid that matches"),
    }.items():
        for name in names:
            assert np.max(played[name][0][variable]) > 0, (variable, name)


@pytest.mark.parametrize("name", WRONG)
def test_a_page_that_fails_on_the_gpu_is_refused_in_words(name, played):
    """There an error ends a thread, and nobody is told."""
    fault = "published makes an average infinite or NaN" if "infinite" in name else "a function of its page fails"
    kind = "Infinite" if "infinite" in name else "Beyond"
    assert played[name] == f'own_on_gpu:{kind}: {fault}. The GPU does not tell where: engine="cpu" does'


# ---------------------------------------------------------------- without a GPU, or without numba-cuda


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(gpu._cuda, "is_available", lambda: False)


def test_without_a_gpu_one_sentence_says_so(no_gpu):
    words = r"^engine must be 'cpu' or 'auto' on this machine, not 'cuda'\. No NVIDIA GPU .* was found\.$"
    with pytest.raises(InvalidArgument, match=words) as told:
        simulate(PROBLEM, GossipUCB(), 10, 1, engine="cuda")
    assert told.value.argument == "engine"


def test_without_numba_cuda_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(run, "missing", lambda extra: ("numba_cuda",) if extra == "cuda" else ())
    with pytest.raises(InvalidArgument, match=re.escape("pip install 'fedbandit[cuda]'")):
        simulate(PROBLEM, GossipUCB(), 10, 1, engine="cuda")
    assert run.chosen_engine("auto") == "cpu"


def test_auto_plays_on_the_cpu_where_there_is_no_gpu(no_gpu):
    arguments, options = call_of(CASES["Gossip_UCB"])
    results = [simulate(*arguments, **options, engine=engine) for engine in ("auto", "cpu")]
    assert results[0].dataset.drop_attrs().identical(results[1].dataset.drop_attrs())


def test_auto_plays_on_a_gpu(monkeypatch):
    monkeypatch.setattr(gpu._cuda, "is_available", lambda: True)
    assert run.chosen_engine("auto") == run.chosen_engine("cuda") == "cuda"


def test_an_unknown_engine_is_refused_with_the_known_ones():
    with pytest.raises(InvalidArgument, match=r"^engine must be one of auto, cpu, cuda, ray, not 'gpu'$"):
        simulate(PROBLEM, GossipUCB(), 10, 1, engine="gpu")


def test_the_command_says_the_same(no_gpu, tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(
        'name = "small"\ngraph = "path:3"\nhorizon = 10\ntrials = 1\n[problem]\nrewards = "bernoulli"\nnum_arms = 2\n'
        '[[policies]]\nkind = "gossip_ucb"\n'
    )
    ran = CliRunner().invoke(app, ["run", str(file), "--engine", "cuda", "--output", str(tmp_path / "out")])
    assert ran.exit_code == 2
    assert "No NVIDIA GPU" in ran.output
    assert "Traceback" not in ran.output


# ---------------------------------------------------------------- segments and regret accounting

STARTS = st.lists(st.integers(1, 60), unique=True, max_size=4).map(lambda starts: [0, *sorted(starts)])


@given(st.lists(st.integers(1, 50), unique=True, min_size=1).map(sorted), STARTS, STARTS, st.integers(1, 60))
def test_segments_cover_a_run_and_end_where_something_is_read_or_changes(times, truth_starts, link_starts, most):
    stages, rows = segments_of(times, truth_starts, link_starts, most)
    played = [t for stage in stages for t in range(stage.first, stage.last + 1)]
    assert played == list(range(times[-1] + 1))  # each round once
    for stage in stages:
        assert stage.last - stage.first < most
        for t in (stage.first, stage.last):
            assert stage.truth == sum(start <= t for start in truth_starts) - 1
            assert stage.links == sum(start <= t for start in link_starts) - 1
    for before, after in pairwise(stages):  # no stage ends without need
        is_cut = before.last in times or after.first in {*truth_starts, *link_starts}
        assert is_cut or before.last - before.first + 1 == most
    # A row of readings for each time that is read, and for each end of means.
    ends = dict.fromkeys(times, True) | {
        start - 1: start - 1 in times for start in truth_starts[1:] if start <= times[-1]
    }
    last_of_row = {stage.row: stage for stage in stages}
    told = [(last_of_row[row].last, end.is_checkpoint) for row, end in enumerate(rows)]
    assert told == sorted(ends.items())
    for row, end in enumerate(rows):
        last = last_of_row[row]
        assert (end.truth, end.ends_truth) == (last.truth, last.last + 1 in truth_starts)
        assert times[end.checkpoint] == min(time for time in times if time >= last.last)
    assert [stage.is_fresh for stage in stages] == [
        place == 0 or stages[place - 1].row != stage.row for place, stage in enumerate(stages)
    ]


@pytest.mark.parametrize("keep", ["agents", "aggregates"])
@pytest.mark.parametrize("num_problems", [1, 3])
def test_regret_is_the_sums_written_out(keep, num_problems):
    """Made-up readings: regret and best pulls count each pull against the means of its own round."""
    rng = np.random.default_rng(6)
    trials, num_agents, num_arms, times, starts = 3, 2, 3, [2, 5, 6, 9], [0, 4, 7]
    truths = []
    for _ in range(num_problems):
        means = rng.random((len(starts), num_arms))
        gaps = means.max(axis=1, keepdims=True) - means
        truths.append([Truth(start, None, gaps[p], means[p]) for p, start in enumerate(starts)])
    arms = rng.integers(num_arms, size=(trials, num_agents, times[-1]))  # of rounds 1, 2, ...
    _, rows = segments_of(times, starts, [0], 2)
    lasts = sorted({*times, *(start - 1 for start in starts[1:])})
    told = []
    for last in lasts:
        tried = 1 + np.stack([(arms[..., :last] == k).sum(axis=-1) for k in range(num_arms)], axis=-1)
        theta, misses = rng.random((trials, num_agents, num_arms)), rng.integers(5, size=(trials, num_agents)) + 0.0
        messages, caught_up = (rng.integers(9, size=(trials, num_agents)) for _ in range(2))
        told.append(
            Reading(tried.astype(np.int32), theta, messages, np.full((trials, num_agents), last), caught_up, misses)
        )
    record = new_record(trials, num_agents, len(times), num_arms, keep)
    accounting = RegretAccounting(record, truths, keep, num_agents)
    for reading, end in zip(told, rows, strict=True):
        accounting.enter(reading, end)

    expected = new_record(trials, num_agents, len(times), num_arms)
    for r in range(trials):
        periods = truths[r if num_problems > 1 else 0]
        for c, time in enumerate(times):
            reading, since = told[lasts.index(time)], times[c - 1] if c > 0 and keep == "agents" else -1
            truth_at = [periods[sum(start <= t for start in starts) - 1] for t in range(times[-1] + 1)]
            for i in range(num_agents):
                pulls = [(arms[r, i, t - 1], truth_at[t]) for t in range(1, time + 1)]
                expected.pulls[r, i, c] = reading.tried[r, i]
                expected.regret[r, i, c] = sum(truth.gaps[arm] for arm, truth in pulls)
                expected.best_pulls[r, i, c] = sum(truth.gaps[arm] == 0.0 for arm, truth in pulls)
                expected.theta_error[r, i, c] = np.mean(np.abs(reading.theta[r, i] - truth_at[time].arm_means))
                expected.messages[r, i, c] = reading.messages[r, i]
                expected.lagging[r, i, c] = reading.caught_up[r, i] / time
                expected.misses[r, i, c] = sum(
                    row.misses[r, i] for row, last in zip(told, lasts, strict=True) if since < last <= time
                )
    for name in set(expected._fields) - {"disagreement"}:
        numbers = getattr(expected, name)
        if keep == "aggregates":
            numbers = np.stack([statistics(each) for each in numbers])
        np.testing.assert_allclose(getattr(record, name), numbers, rtol=1e-12, atol=1e-12, err_msg=name)
    if keep == "aggregates":
        spreads = [[spread_of(told[lasts.index(time)].theta[r]) for time in times] for r in range(trials)]
        np.testing.assert_array_equal(record.disagreement, spreads)


# ---------------------------------------------------------------- memory


def policy_of(kind):
    needs = {"fed_ucb": (1.0,), "fed_batch": (1.0,), "adap_ucb": (1.0,)}
    return POLICIES[kind](*needs.get(kind, ()))


def compiled_policy(policy, problem=PROBLEM, horizon=100, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (plan,) = check_call(problem, policy, horizon, 1, 0, 5, **options).compiled
    return plan


@pytest.mark.parametrize("num_arms", [2, 3, 10, 40])
@pytest.mark.parametrize("kind", [kind for kind in POLICIES if "lin" not in kind and kind != "oful"])  # features: CPU
def test_every_number_of_an_agent_lies_in_one_place(kind, num_arms):
    problem = Problem.random(3, num_arms, "path:3", seed=4, rewards="bernoulli")
    plan = compiled_policy(policy_of(kind), problem)
    whole = new_population(plan.page, plan.terms, num_arms).agents.dtype
    least = sum(whole[name].itemsize for name in (*plan.page.averaged, "tried"))
    for room in (MANY_WARPS, MANY_REGISTERS, Room(1_000, None)):
        near, own, far = _three_records(plan.page, whole, room.near_bytes)
        names = [name for part in (near, own, far) for name in part.names if name not in ("odd", "nothing")]
        assert sorted(names) == sorted(set(whole.names) - {"padding"})
        for part in (near, own, far):
            for name in part.names:
                assert name in ("odd", "nothing") or part[name] == whole[name]
        assert near.names[: len(plan.page.averaged)] == plan.page.averaged  # as_rows finds the averages first
        assert near.itemsize % 16 == 8
        used = sum(near[name].itemsize for name in near.names if name != "odd")
        assert used <= max(room.near_bytes, least)
        assert near.itemsize <= used + 16  # whole words, and an odd number of them


def test_who_needs_everybody_does_not_play_in_a_warp():
    def fits(policy, *size, problem=PROBLEM, **options):
        return fits_in_a_warp(compiled_policy(policy, problem, **options), *(size or problem.means.shape))

    for kind in ("gossip_ucb", "fed_ucb", "fed_batch", "local_ucb"):
        assert fits(policy_of(kind)), kind
    for kind in ("central_ucb", "dist_ucb", "coop_ucb2", "fed1_ucb", "gse"):
        assert not fits(policy_of(kind)), kind
    assert fits(GossipUCB(), 32, 3)
    assert not fits(GossipUCB(), 33, 3)
    assert not fits(GossipUCB(), 32, 1_000)  # shared memory
    for options in ({"edges_per_round": "matching"}, {"edges_per_round": "all"}, {"edges_per_round": 0.5}):
        assert not fits(GossipUCB(), problem=Problem.bernoulli(PROBLEM.means, "path:3", **options)), options
    for options in ({"delays": "fixed:3"}, {"reward_window": 3}):
        assert not fits(GossipUCB(), problem=Problem.bernoulli(PROBLEM.means, "path:3", **options)), options
    assert not fits(GossipUCB(), shares=fedbandit.Shares(None, 0.0, 0.1))
    contacts = graph.contacts([(1, 0, 1), (2, 1, 2)], 3)
    assert not fits(GossipUCB(), problem=Problem.bernoulli(PROBLEM.means, contacts))


def test_a_trial_that_the_gpu_has_no_memory_for_is_refused(monkeypatch):
    memory = SimpleNamespace(get_memory_info=lambda: SimpleNamespace(free=2_000))
    monkeypatch.setattr(gpu._cuda, "current_context", lambda: memory)
    with pytest.raises(InvalidArgument, match=r"problem must be smaller, not '3 agents'.*GiB on the GPU"):
        gpu._trials_at_once(compiled_policy(GossipUCB()), 3, 3, 5, 10)
    memory.get_memory_info = lambda: SimpleNamespace(free=20_000)
    few = gpu._trials_at_once(compiled_policy(GossipUCB()), 3, 3, 5, 10_000)
    memory.get_memory_info = lambda: SimpleNamespace(free=200_000)
    assert 1 <= few < gpu._trials_at_once(compiled_policy(GossipUCB()), 3, 3, 5, 10_000) < 10_000


def test_an_own_page_does_not_play_on_a_grid():
    """If it failed there, the others of its grid might wait for ever."""
    plan = SimpleNamespace(specialisation=SimpleNamespace(is_guarded=True))
    with pytest.raises(InvalidArgument, match="engine must be 'cpu' for a policy of one's own with 4,096 agents"):
        blocks.open_launcher(plan, 4096, 3, True, range(1), 0, None, None)
