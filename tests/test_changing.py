"""Means and links that change over time, links by a rule of one's own, and federations of one and two.

Can it fail? Bugs that were planted, and what noticed:

| bug | noticed by |
|---|---|
| regret counts all pulls with the gaps of the last means | ``test_regret_is_counted_against_the_best_arm...`` |
| a change takes effect one round late | the same |
| n~ spreads over all edges of a contact list | ``test_counts_spread_over_the_links_that_exist_only`` |
| a schedule's second graph is never used | ``test_a_schedule_uses_the_links_of_each_period`` |
"""

import random
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedbandit import (
    GSE,
    CoopUCB2,
    DistUCB,
    Fed1UCB,
    FedBatch,
    FedUCB,
    GossipUCB,
    InvalidArgument,
    LocalUCB,
    Problem,
    load,
    simulate,
)
from fedbandit.engine.layout import new_population, no_tape, world_of
from fedbandit.experiments.experiment import read_experiment
from fedbandit.simulation.run import check_call, compiled_policy
from fedbandit.world import graph

MEANS = np.array([[0.1, 0.9], [0.2, 0.7], [0.3, 0.8], [0.0, 0.6]])
SWAPPED = MEANS[:, ::-1]
MET = []


def meets_every_tenth_round(t, i, j, u):
    return t % 10 == 0


def meets_by_chance(t, i, j, u):
    return u < 0.3


UNTIL = 1000


def meets_until(t, i, j, u):
    return t <= UNTIL


TABLE = tuple(range(300))


def reads_a_table(t, i, j, u):
    return TABLE[t] >= 0


def divides_late(t, i, j, u):
    return 1.0 / (300 - t) > u


def never_meets(t, i, j, u):
    return False


def same(one, other):
    return all(np.array_equal(one.dataset[name], other.dataset[name]) for name in ("regret", "pulls", "messages"))


# ---------------------------------------------------------------- means


@pytest.mark.slow
def test_regret_is_counted_against_the_best_arm_of_the_moment():
    problem = Problem.changing([(0, MEANS), (100, SWAPPED), (160, MEANS)], "path:4", "bernoulli")
    result = simulate(problem, [GossipUCB(), LocalUCB()], 300, trials=3, checkpoints=list(range(1, 301)))
    pulled = result.pulls.diff("time", label="upper").transpose("policy", "trial", "agent", "time", "arm").values
    gap = (MEANS[:, 1] - MEANS[:, 0]).mean()
    bad_arm = np.array([1 if 100 <= t < 160 else 0 for t in range(2, 301)])
    lost = np.take_along_axis(pulled, bad_arm[None, None, None, :, None], axis=-1)[..., 0] * gap
    grown = result.regret.diff("time").transpose("policy", "trial", "agent", "time").values
    np.testing.assert_allclose(grown, lost, atol=1e-12)
    best = pulled.sum(-1) - lost / gap
    np.testing.assert_allclose(result.dataset["best_pulls"].diff("time").transpose(*result.regret.dims).values, best)
    assert (result.summary()["best_arm_share"] <= 1).all()


def test_rewards_follow_the_means_of_the_moment():
    certain = [(0, [[0.0, 1.0, 0.0]] * 3), (50, [[1.0, 0.0, 0.0]] * 3)]
    problem = Problem.changing(certain, "path:3", "bernoulli")
    result = simulate(problem, LocalUCB(), 400, trials=1, checkpoints=[49, 50, 400])
    constant = simulate(
        Problem.bernoulli(certain[0][1], "path:3"), LocalUCB(), 400, trials=1, checkpoints=[49, 50, 400]
    )
    first = {"time": 0}
    assert np.array_equal(result.pulls.isel(first), constant.pulls.isel(first)), "no change before its round"
    assert not np.array_equal(result.pulls.isel(time=-1), constant.pulls.isel(time=-1))


@pytest.mark.slow
def test_a_change_to_the_same_means_changes_nothing():
    with_change = Problem.changing([(0, MEANS), (77, MEANS)], "path:4", "bernoulli")
    without = Problem.bernoulli(MEANS, "path:4")
    policies = [GossipUCB(), FedBatch(1.0)]
    one, other = (simulate(p, policies, 300, trials=4, checkpoints=30) for p in (with_change, without))
    assert np.array_equal(one.pulls, other.pulls)
    np.testing.assert_allclose(one.regret, other.regret, atol=1e-12)


def test_a_drift_moves_means_evenly_in_steps():
    problem = Problem.drifting(MEANS, SWAPPED, "path:4", (100, 200), "bernoulli", steps=4)
    assert [start for start, _ in problem.periods] == [0, 125, 150, 175, 200]
    np.testing.assert_allclose(problem.periods[2][1].means, (MEANS + SWAPPED) / 2)
    np.testing.assert_allclose(problem.periods[-1][1].means, SWAPPED)
    every_round = Problem.drifting(MEANS, SWAPPED, "path:4", (0, 3), "bernoulli")
    assert [start for start, _ in every_round.periods] == [0, 1, 2, 3], "never more steps than rounds"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Problem.changing([], "path:4"), "changes must be a list of"),
        (lambda: Problem.changing([(5, MEANS)], "path:4"), r"changes\[0\], first round must be 0, not 5"),
        (lambda: Problem.changing([(0, MEANS), (0, MEANS)], "path:4"), r"changes\[1\], first round .* from 1"),
        (lambda: Problem.changing([(0, MEANS), (5, MEANS[:2])], "path:4"), r"changes\[1\], means .* shape \(4, 2\)"),
        (lambda: Problem.changing([(0, MEANS), (5, MEANS + 1)], "path:4", "bernoulli"), r"changes\[1\]\.means"),
        (lambda: Problem.changing([(0, MEANS), 5], "path:4"), "changes must be a list of"),
        (lambda: Problem.changing([(0, MEANS)], "path:4", "gausian"), "rewards must be one of"),
        (lambda: Problem.drifting(MEANS, MEANS[:2], "path:4", (0, 5)), "final_means must be of the means' shape"),
        (lambda: Problem.drifting(MEANS, MEANS, "path:4", (5, 5)), r"rounds\[1\] must be a whole number from 6"),
    ],
)
def test_bad_changes(build, message):
    with pytest.raises(InvalidArgument, match=message):
        build()


# ---------------------------------------------------------------- links


@pytest.mark.slow
def test_a_schedule_of_one_graph_is_that_graph():
    scheduled = Problem.bernoulli(MEANS, graph.schedule([(0, graph.path(4)), (50, "path:4")]))
    plain = Problem.bernoulli(MEANS, "path:4")
    policies = [GossipUCB(), DistUCB()]
    assert same(*(simulate(p, policies, 200, trials=3, checkpoints=20) for p in (scheduled, plain)))


@pytest.mark.slow
def test_a_schedule_uses_the_links_of_each_period():
    nights = graph.schedule([(0, []), (100, "complete:4"), (150, []), (200, [(0, 1)])])
    problem = Problem.bernoulli(MEANS, nights)
    times = [99, 149, 199, 300]
    result = simulate(problem, [GossipUCB(), FedBatch(1.0)], 300, trials=2, checkpoints=times)
    sent = result.messages.isel(policy=0, trial=0).transpose("time", "agent").values
    assert (sent[0] == 0).all(), "nobody sends while there are no links"
    assert (sent[1].sum(), sent[2].sum()) == (100, 100), "one edge per round, two ends"
    assert (sent[3] - sent[2]).tolist() == [101, 101, 0, 0], "only the one edge that is left"


def test_a_contact_list_is_when_agents_meet():
    met = [(1, 0, 1), (1, 1, 2), (1, 3, 2), (7, 0, 3)]
    result = simulate(
        Problem.bernoulli(MEANS, graph.contacts([*met, (10, 0, 1)])),
        GossipUCB(),
        10,
        trials=1,
        checkpoints=[1, 6, 7, 10],
    )
    sent = result.messages.isel(policy=0, trial=0).transpose("time", "agent").values
    assert sent.tolist() == [[1, 2, 2, 1], [1, 2, 2, 1], [2, 2, 2, 2], [3, 3, 2, 2]]


@pytest.mark.slow
def test_contacts_are_the_same_as_a_rule_that_says_so():
    listed = [(t, i, i + 1) for t in range(10, 301, 10) for i in range(3)]
    by_list = Problem.bernoulli(MEANS, graph.contacts(listed))
    by_rule = Problem.bernoulli(MEANS, "path:4", edges_per_round=meets_every_tenth_round)
    policies = [GossipUCB(), FedBatch(1.0)]
    assert same(*(simulate(p, policies, 300, trials=3, checkpoints=30) for p in (by_list, by_rule)))


def test_a_rule_draws_afresh_for_each_edge_and_round():
    """With probability .3 each: 3 edges, 3,000 rounds: 5,400 messages; 6 deviations of 61 fail once in 1e9."""
    problem = Problem.bernoulli(MEANS, "path:4", edges_per_round=meets_by_chance)
    result = simulate(problem, GossipUCB(), 3000, trials=2, checkpoints=[3000])
    per_trial = result.messages.isel(time=0, policy=0).sum("agent").values
    assert (abs(per_trial - 2 * 3 * 3000 * 0.3) < 2 * 6 * np.sqrt(3 * 3000 * 0.3 * 0.7)).all()
    assert len(set(per_trial)) == 2, "trials differ"


def test_without_links_nobody_learns_from_anybody():
    problem = Problem.bernoulli(MEANS, "path:4", edges_per_round=never_meets)
    result = simulate(problem, GossipUCB(), 100, trials=1)
    assert (result.messages == 0).all()


@pytest.mark.slow
def test_results_do_not_depend_on_threads():
    problem = Problem.changing(
        [(0, MEANS), (120, SWAPPED)], graph.schedule([(0, "path:4"), (99, "star:4")]), "bernoulli"
    )
    one, four = (simulate(problem, FedBatch(1.0), 300, trials=6, threads=n) for n in (1, 4))
    assert same(one, four)
    parts = [simulate(problem, FedBatch(1.0), 300, trials=r) for r in (range(2), range(2, 6))]
    assert np.array_equal(one.regret, np.concatenate([p.regret for p in parts], axis=1))


def test_counts_spread_over_the_links_that_exist_only():
    """n~ of an agent that meets nobody stays its own count (Algorithm 1, line 5)."""
    contacts = graph.contacts([(t, 0, 1) for t in range(1, 51)] + [(60, 1, 2), (60, 2, 3)])
    problem = replace(Problem.bernoulli(MEANS, contacts), rates=np.array([1.0, 0.05, 0.05, 1.0]))
    page, terms, ((_, links),), play_rounds, *_ = compiled_policy(GossipUCB(), problem, 50)
    population, theta = new_population(page, terms, 2), np.zeros((4, 2))
    world, zero = world_of(problem), np.uint64(0)
    play_rounds(0, 50, zero, zero, population, world, links, no_tape(), theta, problem.arm_means, np.zeros(4))
    n_max, own = population.agents["n_max"], population.agents["tried"]
    assert n_max[1].max() > own[1].max() + 5, "agent 1 has heard of the busy agent 0"
    assert (n_max[2] <= own[2]).all(), "agent 2 has met nobody"


def test_a_saved_result_tells_the_links_and_the_changes(tmp_path):
    problem = Problem.changing([(0, MEANS), (5, SWAPPED)], graph.schedule([(0, "path:4"), (5, [])]), "bernoulli")
    kept = load(simulate(problem, LocalUCB(), 10, trials=1).save(tmp_path / "a.nc")).experiment
    assert kept["problem"]["changes"] == [[5, SWAPPED.tolist()]]
    assert kept["graph"]["periods"][1] == [5, []]
    assert kept["graph"]["name"] == "schedule of path:4, 0 edges"
    by_rule = Problem.bernoulli(MEANS, "path:4", edges_per_round=never_meets)
    kept = simulate(by_rule, GossipUCB(), 10, trials=1).experiment["problem"]["edges_per_round"]
    assert kept["rule"] == f"{__name__}:never_meets"
    assert len(kept["code"]) == 64


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: graph.schedule([]), "periods must be a list"),
        (lambda: graph.schedule([(5, "path:3")]), r"periods\[0\], first round must be a whole number from 0 to 0"),
        (lambda: graph.schedule([(0, "path:3"), (0, "ring:3")]), r"periods\[1\], first round .* from 1"),
        (lambda: graph.schedule([(0, "path:3"), (9, "path:4")]), r"graphs of \[3, 4\] agents"),
        (
            lambda: graph.schedule([(0, [(0, 1)]), (9, [(2, 3)])]),
            "agent 2 is cut off.*count together, and agents are numbered from 0",
        ),
        (lambda: graph.schedule([(0, "path:3"), (9, [(0, 5)])]), "pairs of agents from 0 to 2"),
        (lambda: graph.schedule([(0, "path:3"), (9, [(0, 1), (1, 0)])]), "no parallel edges"),
        (lambda: graph.schedule([(0, "path:3"), 7]), r"periods\[1\] must be a first round and a graph"),
        (lambda: graph.contacts([]), "contacts must be at least one contact"),
        (lambda: graph.contacts([(0, 0, 1)]), r"contacts\[0\], time must be a whole number from 1"),
        (lambda: graph.contacts([(1, 0, 0)]), r"contacts\[0\] must be two different agents"),
        (lambda: graph.contacts([(1, 0)]), r"contacts\[0\] must be a time and two agents"),
        (lambda: graph.contacts([(1, 0, 1), (2, 2, 3)]), "agent 2 is cut off"),
        (lambda: graph.contacts("nowhere.csv"), "contacts must be a readable CSV file"),
        (lambda: Problem.bernoulli(MEANS, graph.contacts([(1, 0, 1)])), "means must be one row for each"),
        (lambda: Problem.bernoulli(MEANS, "path:4", edges_per_round=lambda t: True), "a function of t, i, j and u"),
        (lambda: Problem.bernoulli(MEANS, "path:4", edges_per_round=print), "edges_per_round must be 'one'"),
        (
            lambda: Problem.bernoulli(
                MEANS, graph.contacts([(1, 0, 1), (1, 1, 2), (1, 2, 3)]), edges_per_round="matching"
            ),
            "edges_per_round must be left out",
        ),
    ],
)
def test_bad_links(build, message):
    with pytest.raises(InvalidArgument, match=message):
        build()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,a,b\n1,0,x\n", r"line 2, b must be a whole number, not 'x'"),
        ("time,a\n1,0\n", r"line 1 must be the columns time, a and b, not 'time,a'. There is no column b"),
        ("time,a,b\n1,0\n", "line 2 must be 3 columns, as the first, not '2 columns'"),
        ("time,a,b\n-1,0,1\n", "line 2, time must be a whole number from 1"),
    ],
)
def test_a_bad_contact_file_names_line_and_column(tmp_path, text, message):
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(InvalidArgument, match=message):
        graph.contacts(tmp_path / "c.csv")


def test_contacts_come_in_a_data_frame_too():
    triples = [(1, 0, 1), (2, 1, 2), (2, 0, 1)]
    met, same = (
        graph.contacts(pd.DataFrame(triples, columns=["time", "a", "b"]).assign(note="x")),
        graph.contacts(triples),
    )
    assert (met.times.tolist(), met.edge_numbers.tolist()) == (same.times.tolist(), same.edge_numbers.tolist())
    assert met.union == same.union
    with pytest.raises(InvalidArgument, match="contacts, row 0, a must be a whole number, not 'x'"):
        graph.contacts(pd.DataFrame({"time": [1], "a": ["x"], "b": [2]}))


def throws_dice(t, i, j, u):
    return random.random() < 0.5  # noqa: S311


def keeps_a_list(t, i, j, u):
    MET.append(t)
    return True


def divides_by_zero(t, i, j, u):
    return 1 / (t - t) > u


def makes_a_text(t, i, j, u):
    return f"{t}" == "3"


def says_yes(t, i, j, u):
    return "yes"


def forgets_to_return(t, i, j, u):
    u < 0.5  # noqa: B015


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (throws_dice, "a function of t, i, j and u alone.* It answers differently when asked again"),
        (keeps_a_list, "that Numba can compile: numbers and math, no lists"),
        (divides_by_zero, "It raised ZeroDivisionError: division by zero in round 1"),
        (makes_a_text, "It does not compile: it allocates memory"),
        (says_yes, "tells True or False, not 'says_yes'. It returned 'yes'"),
        (forgets_to_return, "It returned None"),
    ],
)
def test_what_a_rule_does_wrong_is_said_in_words(rule, message):
    with pytest.raises(InvalidArgument, match=f"edges_per_round must be .*{message}"):
        simulate(Problem.bernoulli(MEANS, "path:4", edges_per_round=rule), GossipUCB(), 5, trials=1)


@pytest.mark.slow
def test_a_rule_that_fails_late_stops_the_run():
    """After 200 rounds, where no dry run has been."""
    for rule, words in ((reads_a_table, "An index lies beyond a row"), (divides_late, "Something is divided by zero")):
        problem = Problem.bernoulli(MEANS, "path:4", edges_per_round=rule)
        with pytest.raises(InvalidArgument, match=rf"edges_per_round must be .*{rule.__name__}.*{words} by round 300"):
            simulate(problem, GossipUCB(), 500, trials=1)


@pytest.mark.slow
def test_a_constant_of_a_rule_that_changes_is_refused(monkeypatch):
    problem = Problem.bernoulli(MEANS, "path:4", edges_per_round=meets_until)
    simulate(problem, GossipUCB(), 10, trials=1)
    monkeypatch.setattr(sys.modules[__name__], "UNTIL", 500)  # the dry run sees 200 rounds
    with pytest.raises(InvalidArgument, match=r"edges_per_round must be a function that stays as it is.* has changed"):
        simulate(problem, GossipUCB(), 10, trials=1)


@pytest.mark.slow
def test_an_edited_rule_is_never_run_stale(tmp_path):
    """Another process finds the compiled code on disk; the rule has changed in between."""
    script = """
import my_rule
from fedbandit import GossipUCB, Problem, simulate
problem = Problem.bernoulli([[0.1, 0.9]] * 3, "path:3", edges_per_round=my_rule.meets)
print(int(simulate(problem, GossipUCB(), 12, trials=1).messages.isel(time=-1).sum()))
"""
    sent = []
    for every in (3, 4):
        (tmp_path / "my_rule.py").write_text(f"EVERY = {every}\n\ndef meets(t, i, j, u):\n    return t % EVERY == 0\n")
        command = [sys.executable, "-B", "-c", script]
        told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        sent.append(int(told.stdout))
    assert sent == [16, 12], "two edges have two ends each, in 4 rounds and in 3"


def test_a_policy_with_links_of_its_own_refuses_a_contact_list():
    contacts = graph.contacts([(1, 0, 1), (1, 1, 2), (1, 2, 3)])
    with pytest.raises(InvalidArgument, match="policy must be one that takes the problem's links"):
        simulate(Problem.bernoulli(MEANS, contacts), DistUCB(), 1, trials=1)


def test_a_contact_list_that_ends_early_is_said():
    contacts = graph.contacts([(1, 0, 1), (1, 1, 2), (1, 2, 3)])
    with pytest.warns(UserWarning, match="last contact is in round 1 of 20: nobody gossips after it"):
        simulate(Problem.bernoulli(MEANS, contacts), GossipUCB(), 20, trials=1)


def test_many_agents_with_one_edge_per_round_are_told_of_matchings():
    means = np.full((21, 3), 0.5)
    with pytest.warns(UserWarning, match='21 agents, one edge per round: .* edges_per_round="matching"') as told:
        check_call(Problem.bernoulli(means, "path:21"), [GossipUCB(), FedBatch(1.0)], 5, 1, 0, 5)
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_call(Problem.bernoulli(means, "path:21"), LocalUCB(), 5, 1, 0, 5)
        check_call(Problem.bernoulli(means, "path:21", edges_per_round=0.5), GossipUCB(), 5, 1, 0, 5)


# ---------------------------------------------------------------- files


def test_an_experiment_file_has_schedules_contacts_changes_and_rules(tmp_path):
    (tmp_path / "met.csv").write_text("time,a,b\n1,0,1\n3,1,2\n")
    (tmp_path / "my_links.py").write_text("def meets(t, i, j, u):\n    return t % 2 == 0\n")
    head = 'horizon = 20\n[[policies]]\nkind = "gossip_ucb"\n'
    problem = '[problem]\nrewards = "bernoulli"\nmeans = [[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]]\n'

    def read(name, *parts):
        (tmp_path / name).write_text("".join(parts))
        return read_experiment(tmp_path / name).problem

    scheduled = read("a.toml", head, problem, '[graph]\nschedule = [[0, "path:3"], [10, [[0, 2]]]]\n')
    assert scheduled.over_time.periods[1] == (10, ((0, 2),))
    assert read("b.toml", head, problem, '[graph]\ncontacts = "met.csv"\n').over_time.times.tolist() == [1, 3]
    change = "[[problem.changes]]\nfirst_round = 7\nmeans = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]]\n"
    changed = read("c.toml", 'graph = "path:3"\n', head, problem, change)
    assert changed.periods[1][0] == 7
    ruled = read("d.toml", 'graph = "path:3"\n', head, problem, 'edges_per_round = "my_links:meets"\n')
    assert (ruled.edges_per_round(1, 0, 1, 0.5), ruled.edges_per_round(2, 0, 1, 0.5)) == (False, True)


@pytest.mark.docs
def test_the_page_on_changing_worlds_runs_as_printed(capsys):
    page = (Path(__file__).parents[1] / "docs" / "changing-worlds.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    space = {"__name__": "example"}
    for block in blocks:
        exec(compile(block, "docs/changing-worlds.md", "exec"), space)  # noqa: S102
    assert len(blocks) == 4
    assert "best_arm_share" in capsys.readouterr().out


# ---------------------------------------------------------------- one and two agents


@pytest.mark.slow
def test_two_agents_are_a_federation():
    problem = Problem.bernoulli(MEANS[:2], "path:2")
    policies = [GossipUCB(), FedUCB(1.0), FedBatch(1.0), LocalUCB(), DistUCB(), CoopUCB2(), Fed1UCB(), GSE()]
    result = simulate(problem, policies, 500, trials=2, checkpoints=5)
    assert np.isfinite(result.regret).all()
    assert float(result.regret.sel(policy="FedBatch Thompson, eps=1").isel(time=-1).mean()) < 100
    assert graph.ring(2).edges == graph.path(2).edges


@pytest.mark.slow
def test_one_agent_plays_what_needs_nobody():
    problem = Problem.bernoulli(MEANS[:1], "path:1")
    result = simulate(problem, [LocalUCB(), FedBatch(1.0)], 500, trials=2, checkpoints=5)
    assert (result.messages == 0).all()
    assert float(result.regret.isel(time=-1).mean()) < 100


@pytest.mark.parametrize("policy", [GossipUCB(), FedUCB(1.0), DistUCB(), CoopUCB2(), Fed1UCB(), GSE()])
def test_one_agent_is_refused_where_neighbours_are_needed(policy):
    with pytest.raises(InvalidArgument, match=r"num_agents must be at least 2 for .* which learns from neighbours"):
        simulate(Problem.bernoulli(MEANS[:1], "complete:1"), policy, 5, trials=1)
