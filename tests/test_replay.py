"""Replay of logged data: a policy that follows the log gets its trace, another is told where it leaves the log."""

import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from fedbandit import CentralUCB, FedBatch, GossipUCB, InvalidArgument, LocalUCB, NotLogged, Problem, Tape, replay
from fedbandit.engine.layout import setting_of
from fedbandit.simulation import replay as replay_module
from fedbandit.simulation.run import compiled_policy
from fedbandit.world import graph
from plain_engine import PlainEngine

WORLD = graph.path(4)
TAPE = Tape.random(WORLD, 3, 150, seed=5, means=[[0.0, 1.0, 0.5]] * 4, reward_range=(-3.0, 4.0))
POLICIES = [GossipUCB(), FedBatch(1.0, first_batch=4), LocalUCB(), CentralUCB()]


def without_the_rest(tape, arms):
    """The tape of someone who logged only the rewards of these arms."""
    kept = np.full(tape.rewards.shape, np.nan)
    kept[0] = tape.rewards[0]
    times, agents = np.indices(arms.shape)
    kept[times + 1, agents, arms] = tape.rewards[times + 1, agents, arms]
    return replace(tape, rewards=kept)


def assert_same_traces(one, other, rounds=None):
    for field in fields(one):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if rounds is not None:
            theirs = theirs[: rounds + {"arms": 0, "n_max": 2}.get(field.name, 1)]
        np.testing.assert_array_equal(ours, theirs, err_msg=field.name, strict=True)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)
def test_a_policy_that_follows_the_log_needs_nothing_else(policy):
    whole = replay(TAPE, policy)
    assert len(np.unique(whole.arms)) == 3
    assert_same_traces(replay(without_the_rest(TAPE, whole.arms), policy), whole)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.label)
@pytest.mark.parametrize(("time", "agents"), [(1, (2,)), (70, (3,)), (150, (1, 2))])
def test_where_it_leaves_the_log(policy, time, agents):
    """The first agent of the first such round is named; the trace is that of the rounds before, and nothing more."""
    whole = replay(TAPE, policy)
    logged = without_the_rest(TAPE, whole.arms)
    holes = logged.rewards.copy()
    for i in agents:
        arm = whole.arms[time - 1, i]
        holes[time, i] = [np.nan if k == arm else 7.0 for k in range(3)]
        holes[time + 1 :, 0] = np.nan  # later holes are not reached
    with pytest.raises(NotLogged) as caught:
        replay(replace(logged, rewards=holes), policy)
    error, arm = caught.value, int(whole.arms[time - 1, agents[0]])
    others = [k for k in range(3) if k != arm]
    assert (error.time, error.agent, error.arm, error.logged) == (time, agents[0], arm, others)
    assert f"round {time}: agent {agents[0]} chose arm {arm}, whose reward was not logged" in str(error)
    assert f"(logged there: {others[0]}, {others[1]})" in str(error)
    assert_same_traces(error.trace, whole, time - 1)
    assert not any(np.isnan(getattr(error.trace, field.name)).any() for field in fields(error.trace))


def test_a_round_of_which_nothing_was_logged():
    rewards = TAPE.rewards.copy()
    rewards[2, 1] = np.nan
    with pytest.raises(NotLogged, match=r"round 2: agent 1 chose arm \d.*\(logged there: none\)"):
        replay(replace(TAPE, rewards=rewards), GossipUCB())


def test_no_agent_ever_holds_a_nan(monkeypatch):
    """Not even in the round that ends the replay: what compiled code does with one nobody has checked."""
    rewards, rounds = TAPE.rewards.copy(), []
    rewards[3, 2] = np.nan

    def watched(*arguments, **options):
        plan = compiled_policy(*arguments, **options)

        def play_rounds(first, last, seed, trial, population, *rest):
            plan.play_rounds(first, last, seed, trial, population, *rest)
            rounds.append(first)
            for name in ("theta", "x_mean"):
                assert np.isfinite(population.agents[name]).all(), name

        return plan._replace(play_rounds=play_rounds)

    monkeypatch.setattr(replay_module, "compiled_policy", watched)
    with pytest.raises(NotLogged):
        replay(replace(TAPE, rewards=rewards), GossipUCB())
    assert rounds == [0, 1, 2, 3]


def test_the_first_pulls_must_all_be_there():
    rewards = TAPE.rewards.copy()
    rewards[0, 2, 1] = np.nan
    with pytest.raises(InvalidArgument, match=r"rewards\[0, 2, 1\] must be a number.*every agent pulls every arm once"):
        replace(TAPE, rewards=rewards)
    rewards[0, 2, 1] = np.inf
    with pytest.raises(InvalidArgument, match="rewards must be 3 dimensions of finite numbers"):
        replace(TAPE, rewards=rewards)


# ---------------------------------------------------------------- logs


def log_of(tape, arms):
    first = [(0, i, k, tape.rewards[0, i, k]) for i in range(4) for k in range(3)]
    later = [(t + 1, i, k, tape.rewards[t + 1, i, k]) for (t, i), k in np.ndenumerate(arms)]
    return np.array(first + later)


def test_a_log_is_a_tape():
    """In any order of its rows, with the other parts of a tape as given."""
    arms = replay(TAPE, GossipUCB()).arms
    log = np.random.default_rng(0).permutation(log_of(TAPE, arms))
    tape = Tape.logged(WORLD, log, edges=TAPE.edges, picks=TAPE.picks, reward_range=(-3.0, 4.0))
    np.testing.assert_array_equal(tape.rewards, without_the_rest(TAPE, arms).rewards)
    assert_same_traces(replay(tape, GossipUCB()), replay(TAPE, GossipUCB()))
    assert (tape.reward_range, tape.noise) == ((-3.0, 4.0), None)
    assert not Tape.logged(WORLD, log, edges=TAPE.edges).picks.any()


@pytest.mark.parametrize(
    ("row", "changed", "message"),
    [
        (20, (1.5, 0, 0, 1), r"log\[20, 0\] must be a whole number from 0 on, not 1.5"),
        (20, (1, 0, -1, 1), r"log\[20, 2\] must be a whole number from 0 on, not -1"),
        (20, (1, 4, 0, 1), r"log\[20, 1\] must be one of the graph's 4 agents, 0 to 3, not 4"),
        (20, (1, 0, 0, np.nan), "log must be 2 dimensions of finite numbers"),
        (20, (0, 1, 1, 9), r"log\[20\] must be the only row of its time, agent and arm, not \[0.0, 1.0, 1.0, 9.0\]"),
        (4, (9, 1, 1, 9), r"rewards\[0, 1, 1\] must be a number"),
    ],
)
def test_bad_rows_are_named(row, changed, message):
    log = log_of(TAPE, replay(TAPE, GossipUCB()).arms)
    log[row] = changed
    log = log[[*range(row + 1), *(r for r in range(row + 1, len(log)) if tuple(log[r, :3]) != tuple(log[row, :3]))]]
    with pytest.raises(InvalidArgument, match=message):
        Tape.logged(WORLD, log, edges=TAPE.edges)


@pytest.mark.parametrize("log", [[], [[0, 0, 0]], [0, 0, 0, 0.5], "log.csv"])
def test_a_log_has_rows_of_four(log):
    with pytest.raises(InvalidArgument, match="log must be"):
        Tape.logged(WORLD, log, edges=TAPE.edges)


# ---------------------------------------------------------------- what agents know of the rewards


def terms_on(policy, **known):
    """A policy's terms in a Gaussian world with this sigma, or with what else is known."""
    sigma = known.pop("sigma", 1.0)
    problem = Problem.gaussian(np.zeros((4, 3)), WORLD, sigma, TAPE.reward_range)
    return [policy.terms(setting_of(problem, 150, i)._replace(**known)) for i in range(4)]


@pytest.mark.parametrize("policy", [GossipUCB(), FedBatch(1.0, first_batch=4)], ids=lambda policy: policy.label)
@pytest.mark.parametrize(
    ("tape", "known"),
    [
        (TAPE, {}),
        (replace(TAPE, sigma=0.25), {"sigma": 0.25}),
        (
            replace(TAPE, rewards=np.clip(TAPE.rewards, -3.0, 4.0), bounded=True),
            {"bounded": True, "scale": 7.0, "reward_variance": 12.25},  # 7^2 / 4
        ),
    ],
    ids=["unit Gaussian", "sigma", "bounded"],
)
def test_agents_know_what_the_tape_says(policy, tape, known):
    """The same arms as in plain Python with these terms, which are not those of the other tapes."""
    plain = PlainEngine(tape, policy.page(), terms_on(policy, **known))
    trace = replay(tape, policy)
    for t, shown in enumerate(plain.rounds()):
        if t > 0:
            assert shown.arms == trace.arms[t - 1].tolist(), t
    if known:
        assert (trace.arms != replay(replace(tape, sigma=1.0, bounded=False), policy).arms).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sigma": 0.0}, "sigma must be a number above 0"),
        ({"bounded": 1}, "bounded must be true or false"),
        ({"bounded": True, "reward_range": None}, "reward_range must be given with bounded=True"),
        (
            {"bounded": True, "reward_range": (-100.0, 2.0)},
            r"rewards\[\d+, \d, \d\] must be from -100 to 2 \(bounded\)",
        ),
    ],
)
def test_bad_tapes(changes, message):
    with pytest.raises(InvalidArgument, match=message):
        replace(TAPE, **changes)


# ---------------------------------------------------------------- the document


@pytest.mark.docs
def test_the_document_runs_and_prints_what_it_says(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[1] / "docs" / "replay.md").read_text()
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "docs/replay.md", "exec"), names)  # noqa: S102
    (shown,) = re.findall(r"```text\n(round .*?)```", page, re.DOTALL)
    assert shown in capsys.readouterr().out
    for field in fields(Tape):
        assert f"| `{field.name}" in page, f"{field.name} is not explained"
