"""Evaluation of policies on logs: against Open Bandit Pipeline and Vowpal Wabbit, coverage, what is refused in words.

Statistical tests have fixed seeds. An interval of 95 % that keeps its level misses at most 89 of 1,000 truths, but for
one of ten million other seeds.
"""

import json
import math
import subprocess
import sys
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from fedbandit import FedBatch, InvalidArgument, Shares
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.process.terms_file import FederationSection, read_terms
from fedbandit.cli import app
from fedbandit.evaluation import Log, LogError, LoggedDecision, by_stratum, evaluate, read_log, target
from fedbandit.evaluation.estimates import usable
from fedbandit.evaluation.exports import bandit_feedback, vowpal_wabbit, write_vowpal_wabbit
from fedbandit.evaluation.target import TargetError
from fedbandit.rules import off_policy
from fedbandit.testing.memory_network import MemoryNetwork

GOLDEN = Path(__file__).parent / "golden"
DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(GOLDEN))

import off_policy as golden  # noqa: E402  # tests/golden/off_policy.py

ESTIMATES = ("ips", "snips", "dr")
MOST_MISSED = 89


def invoke(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def written(folder, *lines):
    file = folder / "log.jsonl"
    file.write_text("".join(it if isinstance(it, str) else json.dumps(it) + "\n" for it in lines))
    return file


def line(arm=0, propensity=0.5, reward=1.0, **more):
    return {"arm": arm, "name": "abc"[arm], "propensity": propensity, "reward": reward, **more}


# ---------------------------------------------------------------- beside Open Bandit Pipeline and Vowpal Wabbit


def ours_on_open_data(found, name):
    part = {field: found[f"{name} {field}"] for field in ("action", "position", "reward", "pscore")}
    policy, guesses = found[f"{name} policy"], found[f"{name} guesses"]
    weights = list(policy[part["action"], part["position"]] / part["pscore"])
    rewards = part["reward"].astype(float).tolist()
    of_arm = guesses[part["action"], part["position"]].tolist()
    of_policy = (policy * guesses).sum(axis=0)[part["position"]].tolist()
    return {
        "ips": off_policy.mean(off_policy.weighted(weights, rewards)),
        "snips": off_policy.self_normalised(weights, rewards),
        "dr": off_policy.mean(off_policy.advantages(weights, rewards, of_arm, of_policy)),
    }


def assert_as_pipeline_on_its_own_data(file, rows):
    with np.load(file) as found:
        names = sorted({name.rpartition(" ")[0] for name in found.files})
        assert len(names) == 6
        for name in names:
            assert len(found[f"{name} reward"]) == rows
            said = {it: float(found[f"{name} {it}"]) for it in ESTIMATES}
            assert ours_on_open_data(found, name) == pytest.approx(said, rel=1e-9, abs=1e-12), name
            assert said["dr"] > 0.0


def test_the_estimates_are_those_of_open_bandit_pipeline_on_its_data():
    assert_as_pipeline_on_its_own_data(golden.OPEN_DATA, golden.ROWS)


@pytest.mark.parametrize("policy", golden.POLICIES)
def test_the_estimates_are_those_of_open_bandit_pipeline_on_our_log(policy):
    found = evaluate(read_log(golden.SITE_LOG), policy)
    said = json.loads(golden.SITE_ESTIMATES.read_text())[policy]
    assert {it: found[it].value for it in ESTIMATES} == pytest.approx(said, rel=1e-9)


@pytest.mark.slow
def test_the_real_pipeline_agrees_on_all_of_its_data_and_reads_our_file(tmp_path):
    """In an environment of its own, from the index: the first run takes two minutes and 530 MB."""
    golden.peer("data", str(tmp_path / "all.npz"), "0")
    assert_as_pipeline_on_its_own_data(tmp_path / "all.npz", 10_000)
    assert golden.estimates_of_pipeline(golden.SITE_LOG) == json.loads(golden.SITE_ESTIMATES.read_text())


@pytest.mark.slow
def test_the_real_vowpal_wabbit_reads_our_file(tmp_path):
    log = read_log(golden.SITE_LOG)
    used = usable(log, target("uniform", log.arms))
    write_vowpal_wabbit(tmp_path / "log.vw", used)
    read = json.loads(golden.peer("labels", str(tmp_path / "log.vw"), "3"))
    for labels, arm, reward, propensity, eligible in zip(
        read, used.arms, used.rewards, used.propensities, used.eligible, strict=True
    ):
        assert labels[0] == pytest.approx([arm + 1, -reward, propensity], rel=1e-6), "it keeps 32 bits"
        assert sorted(it[0] - 1 for it in labels) == list(eligible or [arm])


@pytest.mark.slow
def test_the_real_vowpal_wabbit_says_what_ips_says(tmp_path):
    """Its own inverse propensity scoring of each arm, on the lines that we write; it keeps 32 bits."""
    log = read_log(golden.SITE_LOG)
    used = usable(log, target("uniform", log.arms))
    write_vowpal_wabbit(tmp_path / "log.vw", used)
    given = [[1.0 / p * (arm == k) for arm, p in zip(used.arms, used.propensities, strict=True)] for k in range(3)]
    ours = [off_policy.mean(off_policy.weighted(weights, used.rewards)) for weights in given]
    assert json.loads(golden.peer("values", str(tmp_path / "log.vw"), "3")) == pytest.approx(ours, rel=1e-5)
    for arm in ("metformin", "insulin"):  # eligible in every decision
        assert evaluate(log, f"always {arm}")["ips"].value == pytest.approx(ours[log.arms.index(arm)], rel=1e-12)


def test_the_file_for_vowpal_wabbit():
    decisions = (LoggedDecision(1, 0.25, 1.0), LoggedDecision(0, 0.5, 0.0, eligible=(0, 2)))
    log = Log(("a", "b", "c"), decisions)
    assert vowpal_wabbit(usable(log, target("uniform", log.arms))) == "2:-1.0:0.25 |\n1:0.0:0.5 3 |\n"


def test_the_file_for_open_bandit_pipeline():
    log = read_log(golden.SITE_LOG)
    found = bandit_feedback(log, target("uniform", log.arms))
    assert (found["n_rounds"], found["n_actions"], found["context"].shape) == (600, 3, (600, 3))
    assert found["action_dist"].sum(axis=1) == pytest.approx(1.0)
    assert found["context"].sum(axis=1).tolist().count(2.0) == 60, "every tenth may not have glipizide"
    assert ((found["action_dist"][:, :, 0] > 0.0) == (found["context"] > 0.0)).all()


# ---------------------------------------------------------------- intervals


def adaptive_logs(number, rounds, floor, means, seed):
    """Logs of a policy that learns: the best mean so far gets all but the floors of the others."""
    draws, arms = np.random.default_rng(seed), len(means)
    each, total, count = np.arange(number), np.full((number, arms), 0.5), np.ones((number, arms))
    columns = []
    for _ in range(rounds):
        chances = np.full((number, arms), floor)
        chances[each, np.argmax(total / count, axis=1)] += 1.0 - arms * floor
        arm = (draws.random(number)[:, None] >= np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)
        reward = (draws.random(number) < np.array(means)[arm]).astype(float)
        total[each, arm] += reward
        count[each, arm] += 1.0
        columns.append(np.stack([arm, chances[each, arm], reward]))
    for of_log in np.stack(columns).transpose(2, 0, 1):
        yield Log(("a", "b", "c"), tuple(LoggedDecision(int(k), float(p), float(r)) for k, p, r in of_log))


def missed_by(logs, truths, **options):
    missed, summed, count = dict.fromkeys(ESTIMATES, 0), {}, 0
    for count, log in enumerate(logs, 1):  # noqa: B007
        for policy, truth in truths.items():
            found = evaluate(log, policy, **options)
            for it in found.estimates:
                missed[it.name] += not it.low <= truth <= it.high
                summed.setdefault((policy, it.name), []).append(it.value)
    return {name: most / len(truths) for name, most in missed.items()}, summed, count


def test_intervals_cover_the_truth_and_estimates_have_no_bias():
    """On 1,000 logs of a policy that learns from them."""
    truths = {"always b": 0.7, "uniform": 0.5}
    logs = adaptive_logs(1000, 160, 0.15, (0.5, 0.7, 0.3), seed=11)
    missed, values, count = missed_by(logs, truths)
    assert stats.binom.sf(MOST_MISSED, 1000, 0.05) < 1e-7
    assert count == 1000
    assert max(missed.values()) <= MOST_MISSED, missed
    assert missed["ips"] <= 50, "this one holds at every sample size"
    for (policy, name), found in values.items():
        if name != "snips":  # 5.5 standard errors: one of ten million
            assert abs(np.mean(found) - truths[policy]) < 5.5 * np.std(found) / math.sqrt(count), (policy, name)


@pytest.mark.slow
def test_intervals_cover_the_truth_on_logs_of_real_sites():
    def logs():
        terms = Federation("t", ("a", "b", "c"), 0, 1, FedBatch(1.0, first_batch=20), shares=Shares(least_share=0.1))
        for seed in range(1000):
            network, rows = MemoryNetwork(terms, [("x", "y")], seed=seed), []
            outcomes = Random(seed)  # noqa: S311
            for _ in range(250):
                made = network.decide("x")
                reward = float(outcomes.random() < (0.5, 0.7, 0.3)[made.arm])
                network.report("x", made.id, reward)
                rows.append(LoggedDecision(made.arm, made.propensity, reward))
            yield Log(terms.arms, tuple(rows))

    missed, _, _ = missed_by(logs(), {"always b": 0.7, "always c": 0.3, "uniform": 0.5})
    assert max(missed.values()) <= MOST_MISSED, missed


def test_the_lower_bound_holds_at_any_size_and_for_heavy_weights():
    """Of 2,000 logs of ten decisions with weights up to 50 it fails in at most 5 %: more than 160, one in 10^8."""
    draws = np.random.default_rng(3)
    values = np.where(draws.random((2000, 10)) < 0.02, 50.0, 0.0) * (draws.random((2000, 10)) < 0.8)
    fails = sum(off_policy.least_mean(row.tolist(), 0.05) > 0.8 for row in values)
    assert fails <= 160
    assert off_policy.least_mean([0.5] * 2000, 0.05) > 0.45, "and it is not empty"


@pytest.mark.parametrize("degrees", [3.0, 5.0, 20.0, 1e6])
def test_students_quantile(degrees):
    z = stats.norm.ppf(0.975)
    assert off_policy.student_quantile(z, degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=2e-3)


def test_students_interval_is_that_of_a_mean():
    """Of what was logged, and of a policy that is the log's own."""
    rewards = [0.0, 1.0, 1.0, 0.25, 0.5, 0.75, 0.0, 1.0]
    log = Log(("a", "b"), tuple(LoggedDecision(k % 2, 0.5, reward) for k, reward in enumerate(rewards)))
    found = evaluate(log, "uniform")
    expected = stats.ttest_1samp(rewards, 0.0).confidence_interval(0.95)
    for it in (found.logged, found["snips"]):
        assert (it.low, it.high) == pytest.approx((expected.low, expected.high), rel=1e-3), it.name


def test_rewards_of_another_range_only_move_the_estimates():
    log = read_log(golden.SITE_LOG)
    moved = Log(log.arms, tuple(LoggedDecision(it.arm, it.propensity, 10.0 * it.reward - 4.0, it.eligible)
                                for it in log.decisions))  # fmt: skip
    one, other = evaluate(log, "uniform"), evaluate(moved, "uniform", reward_range=(-4.0, 6.0))
    for name in ("snips", "dr"):
        for field in ("value", "low", "high"):
            assert getattr(other[name], field) == pytest.approx(10.0 * getattr(one[name], field) - 4.0), name
    assert other["ips"].low == pytest.approx(10.0 * one["ips"].low - 4.0), "ips moves with the mean weight"
    with pytest.raises(InvalidArgument, match=r"reward must be from 0 to 1, not -4.0. Say which range"):
        evaluate(moved, "uniform")


# ---------------------------------------------------------------- which decisions are used


def test_a_policy_among_the_eligible_arms():
    policy = target("uniform", ("a", "b", "c"))
    assert policy.among((0, 2)) == (0.5, 0.0, 0.5)
    assert target("always b", ("a", "b", "c")).among((0, 2)) is None


def by_age(tmp_path, text):
    path = tmp_path / "by_age.toml"
    path.write_text(text)
    return str(path)


BY_AGE = """
[shares]
a = 1
[[strata]]
context = { age = "old", renal = "bad" }
shares = { b = 0.5, c = 0.5 }
[[strata]]
context = { age = "old" }
shares = { b = 1 }
"""
FACTORS = {"age": ("old", "young"), "renal": ("bad", "good")}


def test_a_policy_by_context(tmp_path):
    """The first entry that fits counts, and ``shares`` where none does."""
    policy = target(by_age(tmp_path, BY_AGE), ("a", "b", "c"), FACTORS)
    old, bad = ("age", "old"), ("renal", "bad")
    assert policy.among(None, (("age", "young"), bad)) == policy.among(None) == (1.0, 0.0, 0.0)
    assert policy.among(None, (old, ("renal", "good"))) == policy.among(None, (old,)) == (0.0, 1.0, 0.0)
    assert policy.among((0, 2), (old, bad)) == (0.0, 0.0, 1.0)
    assert policy.among((0, 2), (old,)) is None
    assert policy.given == (0, 1, 2)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('age = "old" ', 'aged = "old" '), r"strata\[1\].context.aged must be one of the log's: age, renal"),
        (
            ('age = "old" ', 'age = "olde" '),
            r"strata\[1\].context.age must be a level that some decision has: old, young",
        ),
        (('{ age = "old" }', "{}"), r"strata\[1\].context must be one factor or more"),
        (("b = 1", "b = 0.9"), r"strata\[1\].shares must be numbers that sum to 1"),
        (("b = 1", "d = 1"), r"strata\[1\].shares must be an arm"),
    ],
)
def test_a_policy_by_context_that_cannot_be_is_refused(tmp_path, change, says):
    with pytest.raises(TargetError, match=says):
        target(by_age(tmp_path, BY_AGE.replace(*change)), ("a", "b", "c"), FACTORS)


def test_a_log_with_contexts_tells_what_each_stratum_would_have_gained(tmp_path):
    """Half of 2,000 uniform decisions are old: b is right for 0.9 of them, a for the others. (5 sd.)"""
    draw = Random(5)  # noqa: S311
    rows = []
    for _ in range(2000):
        old, arm = draw.random() < 0.5, draw.randrange(2)
        context = {"age": "old" if old else "young"}
        rows.append(line(arm, 0.5, float(draw.random() < (0.9 if arm == old else 0.2)), context=context))
    log = read_log(written(tmp_path, *rows))
    assert log.factors == {"age": ("old", "young")}
    text = '[shares]\na = 1\n[[strata]]\ncontext = {age = "old"}\nshares = {b = 1}\n'
    text = text.replace("a =", f"{log.arms[0]!r} =", 1).replace("{b =", f"{{{log.arms[1]!r} =")
    right = evaluate(log, by_age(tmp_path, text))
    for name in ("ips", "snips", "dr"):
        assert abs(right[name].value - 0.9) < 5 * 0.9 / 1000**0.5, name
        assert right[name].low < 0.9 < right[name].high
    strata = by_stratum(log, by_age(tmp_path, text))
    assert list(strata) == [(("age", "old"),), (("age", "young"),)]
    for it in strata.values():
        assert it["dr"].low < 0.9 < it["dr"].high
    file = tmp_path / "log.jsonl"
    said = invoke(file, "--policy", "uniform").stdout
    assert said.count("age old") == said.count("age young") == 1, "each stratum by itself, once for the policy"
    right_dr, without = right["dr"], evaluate(Log(log.arms, tuple(replace(it, context=()) for it in log.decisions)),
                                              target("uniform", log.arms))["dr"]  # fmt: skip
    both = evaluate(log, "uniform")["dr"]
    assert both.high - both.low < 0.98 * (without.high - without.low), "what is expected in a stratum is nearer"
    assert right_dr.low < 0.9 < right_dr.high
    blind = evaluate(log, f"always {log.arms[0]}")
    assert abs(blind["snips"].value - 0.55) < 5 * 0.5 / 1000**0.5
    used = usable(log, target("uniform", log.arms))
    assert vowpal_wabbit(used).splitlines()[0].endswith(f"| age={rows[0]['context']['age']}")


def test_a_stratum_of_which_nothing_can_be_told_is_left_out():
    old, young = (("age", "old"),), (("age", "young"),)
    rows = [LoggedDecision(k % 2, 0.5, 1.0, context=old) for k in range(60)]
    rows += [LoggedDecision(k % 2, 1.0, 1.0, context=young) for k in range(60)]
    log = Log(("a", "b"), tuple(rows))
    assert list(by_stratum(log, "uniform")) == [old]
    with pytest.raises(InvalidArgument, match=r"reward must be from 0 to 0.5"):
        by_stratum(log, "uniform", reward_range=(0.0, 0.5))


@pytest.mark.parametrize("context", ["old", ["old"], {"age": 70}])
def test_a_context_that_is_none_is_refused(tmp_path, context):
    with pytest.raises(LogError, match="line 1: context must be an object with a level of each factor, or null"):
        read_log(written(tmp_path, line(0, 0.5, 1.0, context=context)))


def test_what_is_left_out_is_counted_and_said(tmp_path):
    rows = [line(k % 2, 0.5, float(k % 3 == 0)) for k in range(200)]
    rows += [line(0, 1.0, 1.0)] * 20  # certain
    rows += [line(0, 1.0, 1.0, deterministic="index")] * 12
    rows += [line(0, 1.0, 1.0, deterministic="subject")] * 8
    rows += [line(0, 0.5, None, rewarded=False, counted=True)] * 30
    rows += [line(0, 0.5, None, rewarded=False, counted=False)] * 20  # waits
    rows += [line(1, 0.5, None, rewarded=False, cancelled=True)] * 10
    rows += [line(0, None, 1.0)] * 5
    rows += [line(1, 1.0, 1.0, eligible=[1])] * 4
    log = read_log(written(tmp_path, *rows))
    found = evaluate(log, "always b")
    assert found.decisions == 204, "where one arm was possible, it was no choice"
    assert found.left_out == {"were certain": 40, "have no reward": 50, "were cancelled": 10,
                              "have no known propensity": 5}  # fmt: skip
    said = " ".join(found.warnings)
    assert (
        "40 decisions were certain (propensity 1, 12 by an index that does not draw, 8 of subjects who keep their arm)"
    ) in said
    assert "least_share" in said
    assert "50 decisions have no reward" in said
    with_default = evaluate(log, "always b", default_reward=0.0)
    assert with_default.decisions == 234, "those that counted, and not those that wait"
    assert evaluate(log, "always a").left_out["could have had no arm of the policy"] == 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"p": 1.0, "deterministic": "ucb"}, "line 1: deterministic must be index, subject, one arm, or null where"),
        ({"p": 1.0, "deterministic": 1}, "line 1: deterministic must be index, subject, one arm, or null where"),
        ({"p": 0.5, "deterministic": "index"}, "line 1: deterministic must be null where propensity is not 1"),
    ],
)
def test_a_wrong_reason_is_refused(tmp_path, fields, message):
    fields = dict(fields)
    with pytest.raises(LogError, match=message):
        read_log(written(tmp_path, line(0, fields.pop("p"), 1.0, **fields)))


def test_a_log_without_choices_is_refused_with_the_reason(tmp_path):
    certain = written(tmp_path, *[line(k % 2, 1.0) for k in range(10)])
    with pytest.raises(InvalidArgument, match=r"10 decisions were certain.*set a least_share in the terms"):
        evaluate(read_log(certain), "always a")
    erased = written(tmp_path, *[line(k % 2, 0.5, None, rewarded=True) for k in range(10)])
    with pytest.raises(InvalidArgument, match=r"a reward that the log does not hold.*keep_rewards = true"):
        evaluate(read_log(erased), "always a")
    only_a = written(tmp_path, *[line(0, 0.5, 1.0) for _ in range(9)], line(1, 1.0))
    with pytest.raises(InvalidArgument, match="policy must be one that gives arms that the log has given"):
        evaluate(read_log(only_a), "always b")


def test_arms_that_had_no_chance_are_noticed(tmp_path):
    """The log never gives c, whose propensity was 0: weights cannot average 1."""
    rows = [line(k % 2, 0.5, 1.0) for k in range(400)]
    log = read_log(written(tmp_path, *rows, line(2, 0.001, 1.0)))
    honest, said = evaluate(log, "always a").warnings, evaluate(log, "uniform").warnings
    assert not any("average" in it for it in honest)
    rare = evaluate(Log(("a", "b", "c"), log.decisions[:-1]), "uniform").warnings
    assert any("weights average 0.667 instead of 1" in it for it in rare)
    assert any("only the interval of ips" in it for it in said)


def test_the_order_is_that_of_the_decisions_not_of_the_lines(tmp_path):
    rows = [line(k % 2, 0.5 + 0.001 * k, float(k % 3 == 0), number=k + 1) for k in range(60)]
    one = evaluate(read_log(written(tmp_path, *rows)), "uniform")
    assert evaluate(read_log(written(tmp_path, *reversed(rows))), "uniform") == one


# ---------------------------------------------------------------- files and commands


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{}\n", "line 1: arm must be the number of an arm, or name its name, not None"),
        ("[1]\n", "line 1 must be one JSON object, not [1]"),
        ('{"arm": 0', "line 1 must be one JSON object"),
        ('{"arm":0,"propensity":NaN,"reward":1}\n', "line 1 must be one JSON object"),
        (line(0, 0.0), "propensity must be a number above 0 and at most 1, not 0.0. The arm was given"),
        (line(0, 1.5), "propensity must be a number above 0 and at most 1"),
        (line(0, 0.5, "good"), "reward must be a finite number, not 'good'"),
        (line(0, 0.5, 1.0, eligible=[]), "eligible must be a list of arms' numbers"),
        (line(0, 0.5, 1.0, eligible=[1, 2]), "eligible must be a list with the arm that was given, 0"),
        (line(0, 0.5, 1.0, cancelled="no"), "cancelled must be true or false"),
        ({"arm": 0, "name": "a", "reward": 1.0}, "propensity must be a number, or null"),
        (json.dumps(line(0)) + "\n" + json.dumps(line(1) | {"name": "a"}) + "\n", "line 2: name must be the same"),
        ("", "no decisions are in it"),
        (" " * 70_000 + "\n", "line 1 has more than 65536 bytes"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, given, said):
    file = written(tmp_path, given)
    with pytest.raises(LogError) as caught:
        read_log(file)
    assert said in str(caught.value)
    ran = invoke(file, "--policy", "uniform")
    assert (ran.exit_code, ran.stdout) == (2, "")


def test_names_alone_suffice_and_unknown_fields_do_not_matter(tmp_path):
    rows = [{"name": name, "propensity": 0.5, "reward": 1, "stratum": {"age": 3}} for name in ("b", "a", "b")]
    assert read_log(written(tmp_path, *rows)).arms == ("b", "a")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("always insuline", "--policy must be an arm: metformin, insulin, glipizide, not 'insuline'. Did you mean"),
        ("unifrom", "--policy must be 'always ARM', 'uniform', or a TOML file with [shares], not 'unifrom'. Did you"),
        ("shares.toml", "shares must be numbers that sum to 1, not '0.7 in all'"),
        ("wrong.toml", "shares must be an arm: metformin, insulin, glipizide, not 'x'"),
        ("other.toml", "unknown key 'share'. Did you mean 'shares'?"),
    ],
)
def test_a_wrong_policy_is_refused_in_words(tmp_path, monkeypatch, policy, said):
    monkeypatch.chdir(tmp_path)
    Path("shares.toml").write_text("[shares]\ninsulin = 0.7\n")
    Path("wrong.toml").write_text("[shares]\nx = 1\n")
    Path("other.toml").write_text("[share]\ninsulin = 1\n[shares]\n")
    ran = invoke(golden.SITE_LOG, "--policy", policy)
    assert ran.exit_code == 2
    assert said in " ".join(ran.output.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--level", "1"], "--level must be"),
        (["--low", "1"], "--low and --high must be two numbers, the lower one first"),
        (["--obp", "x.npz", "--policy", "always insulin"], "--obp must be left out with several policies"),
        (["--vw", "no/such/folder/x"], "No such file"),
    ],
)
def test_a_wrong_option_is_refused_in_words(tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    ran = invoke(golden.SITE_LOG, "--policy", "uniform", *options)
    assert ran.exit_code == 2
    assert said in ran.output


def test_a_file_of_shares(tmp_path):
    file = tmp_path / "two thirds.toml"
    file.write_text("[shares]\ninsulin = 0.75\nmetformin = 0.25\n")
    log = read_log(golden.SITE_LOG)
    policy = target(str(file), log.arms)
    assert (policy.name, policy.shares) == ("two thirds", (0.25, 0.75, 0.0))
    parts = [evaluate(log, it)["ips"].value for it in ("always metformin", "always insulin")]
    assert evaluate(log, policy)["ips"].value == pytest.approx(0.25 * parts[0] + 0.75 * parts[1])


def test_it_runs_at_a_site_without_numpy():
    code = (
        "import sys\n"
        f"sys.argv = ['fedbandit', 'evaluate', {str(golden.SITE_LOG)!r}, '--policy', 'uniform']\n"
        "from fedbandit.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    assert not {'numpy', 'numba'} & set(sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "doubly robust (dr)" in ran.stdout


@pytest.mark.docs
def test_the_page_runs_as_printed(tmp_path, monkeypatch, capsys):
    """Its commands, its file and its output, with the log of the tests."""
    from test_docs import of

    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.jsonl").write_text(golden.SITE_LOG.read_text())
    block, by_age, of_terms = of("toml", *({it.page for it in of("toml")} - {"evaluate.md"}))
    section = {"name": "t", "arms": ["insulin", "metformin"], "rewards": [0.0, 1.0], "policy": {"epsilon": 1.0}}
    section |= tomllib.loads(of_terms.text)["federation"]
    found, mistakes = read_terms(FederationSection(**section), "", tmp_path)
    assert not mistakes
    assert [it.name for it in found.evaluation.policies] == ["always insulin", "by age"]
    (tmp_path / "by_age.toml").write_text(by_age.text)
    assert target("by_age.toml", ("insulin", "metformin"), {"age": ("over 65",)}).given == (0, 1)
    (tmp_path / "mixed.toml").write_text(block.text)
    outputs = [it.text for it in of("text", *({it.page for it in of("text")} - {"evaluate.md"}))]
    plain = partial(map, str.rstrip)
    ran = invoke("log.jsonl", "--policy", "always insulin", "--policy", "mixed.toml")
    assert [*plain(ran.output.strip().splitlines())] == [*plain(outputs[0].strip().splitlines())]
    (example,) = of("python", *({it.page for it in of("python")} - {"evaluate.md"}))
    exec(compile(example.text, "evaluate.md", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out.strip() == outputs[1].strip()
