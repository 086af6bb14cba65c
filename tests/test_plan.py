"""Plans: worlds, curves against a direct simulation, bounds of theory, words, the command.

Statistical tests have fixed seeds; each stated limit is more than 5.5 standard errors, a false alarm in less than one
of 10^7 other seeds.
"""

import itertools
import pickle
import re
import sys
from math import comb, inf, log, nan, sqrt
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from typer.testing import CliRunner

import fedbandit
from fedbandit import CentralUCB, FedBatch, InvalidArgument
from fedbandit.cli.commands import app
from fedbandit.engine import cpu
from fedbandit.engine.accounting import new_record
from fedbandit.engine.layout import settings_of
from fedbandit.planning import forecast, trials
from fedbandit.planning.forecast import Forecast, about, duration, percent
from fedbandit.planning.question import CERTAINTY, Question, means_of_trials, problems
from fedbandit.planning.trials import Curve, TrialRunner, crossing, deviations, share_of, sure_of
from fedbandit.policies.plain import new_me
from fedbandit.policies.protocol import time_of
from fedbandit.rules import batch
from fedbandit.rules.belief import SURE, is_sure
from fedbandit.rules.propensity import MOST_ERROR, chances_of_highest
from fedbandit.rules.releases import random_effects
from fedbandit.simulation.run import check_call, truths_of

DOCS = Path(__file__).parents[1] / "docs"
CENTRAL = CentralUCB(index="thompson")


def question(sites=3, arms=2, gap=0.3, epsilon=3.0, patients=None, bias=None, seed=0, graph="ring", **other):
    return Question.checked(sites, arms, gap, epsilon, 10, graph, patients, bias, seed, **other)


def player(asked, policy=None, alone=False):
    way = "alone" if alone else "pooled" if policy is CENTRAL else "together"
    return TrialRunner(asked, way, policy or FedBatch(asked.epsilon), lambda run, done, total: None)


@pytest.fixture
def coarse(monkeypatch):
    """A third of the recorded times, which take most of the time of short runs."""
    monkeypatch.setattr(trials, "_STEP", 0.3)


# ---------------------------------------------------------------- the world


def test_biases_are_evenly_spread_and_sum_to_zero():
    asked = question(sites=5, arms=3, gap=0.2, bias=0.1)
    means = means_of_trials(asked, 20)
    np.testing.assert_allclose(means.mean(axis=1), [[0.4, 0.4, 0.6]] * 20)
    bias = np.sort(means - means.mean(axis=1, keepdims=True), axis=1)
    np.testing.assert_allclose(bias, np.broadcast_to(np.linspace(-0.1, 0.1, 5)[:, None], bias.shape), atol=1e-12)
    assert len({world.tobytes() for world in means}) == 20
    np.testing.assert_array_equal(means_of_trials(asked, 7), means[:7])
    assert not np.array_equal(means_of_trials(question(sites=5, arms=3, gap=0.2, bias=0.1, seed=1), 20), means)


def test_rates_are_those_of_the_question():
    """The others' rate is given, the best arm has the gap more; biases fit between 0 and 1 also there."""
    asked = question(sites=5, arms=3, gap=0.1, rate=0.05, bias=0.02)
    np.testing.assert_allclose(means_of_trials(asked, 9).mean(axis=1), [[0.05, 0.05, 0.15]] * 9)
    assert question(gap=0.1, rate=0.05).bias == pytest.approx(0.04)
    assert question(gap=0.1, rate=0.45).bias == question(gap=0.1).bias == 0.1
    with pytest.raises(InvalidArgument, match=r"bias must be a number from 0 to 0.04 with this gap and rate"):
        question(gap=0.1, rate=0.05, bias=0.05)


def test_rare_successes_need_fewer_patients():
    """Rewards vary less: a randomised trial by hand, normal means with variances p (1 - p)."""
    asked = question(sites=2, arms=2, gap=0.1, rate=0.02, bias=0)
    needed = forecast.patients_of_equal_arms(asked)
    by_hand = NormalDist().inv_cdf(CERTAINTY) ** 2 * (0.12 * 0.88 + 0.02 * 0.98) / 0.1**2  # per arm, of all sites
    assert needed == pytest.approx(by_hand, rel=1e-3)
    assert needed < 0.5 * forecast.patients_of_equal_arms(question(sites=2, arms=2, gap=0.1, bias=0))
    assert forecast.fewest_patients(asked) < forecast.fewest_patients(question(sites=2, arms=2, gap=0.1, bias=0))


def test_late_rewards_are_waited_for(coarse):
    """Until the window has passed once nobody knows anything; every way waits. Ten patients per day, four days.

    Beside it a window of one patient, which compiles nothing of its own.
    """
    asked, earlier, at_once = (question(sites=4, gap=0.4, epsilon=inf, reward_window=days) for days in (4, 0.1, 0))
    assert (asked.waiting, earlier.waiting, at_once.waiting) == (40, 1, 0)
    for way in ("together", "pooled", "alone"):
        late = TrialRunner(asked, way, FedBatch(inf), lambda *_: None).play(200, 60)
        soon = TrialRunner(earlier, way, FedBatch(inf), lambda *_: None).play(200, 60)
        assert late.leads.at(35) < 0.7 < late.leads.at(late.last)
        assert soon.leads.at(35) > late.leads.at(35)
        assert late.patients[-1] == pytest.approx(202, abs=2)
        assert 0 < late.worse_at(150) < 150
        assert 30 <= late.successes_at(150) <= 70
    assert forecast.fewest_patients(asked) == pytest.approx(forecast.fewest_patients(at_once) + 40)


def test_sites_that_wait_are_sure_earlier_since_they_compare_more(coarse):
    """Until rewards count, arms are given alike: many patients get the worse one, and it is known well.

    Without a window Thompson sampling leaves it early. Of 400 trials, 82 % of the sites are sure then, +- 2 %.
    """
    at_once, late = (
        TrialRunner(
            question(sites=4, gap=0.15, epsilon=inf, bias=0.0, reward_window=days),
            "together",
            FedBatch(inf),
            lambda *_: None,
        ).play(600, 400)
        for days in (0, 20)
    )
    assert late.found > 200 > 100 > at_once.found  # ten patients per day
    assert late.worse_at(500) > 90 > 40 > at_once.worse_at(500)
    assert late.sure.at(150) < 0.01 < at_once.sure.at(150)
    assert late.sure.at(500) > at_once.sure.at(500) + 0.03


def test_pooled_late_rewards_go_to_one_agent_with_the_patients_of_all():
    asked = question(sites=4, reward_window=4)
    means = means_of_trials(asked, 3)
    for world, problem in zip(means, problems(asked, means, "pooled"), strict=True):
        np.testing.assert_allclose(problem.means, world.mean(axis=0, keepdims=True))
        assert (problem.reward_window, problem.num_agents) == (161, 1)
    assert {problem.reward_window for problem in problems(asked, means, "together")} == {41}
    assert {problem.reward_window for problem in problems(question(), means[:, :3], "together")} == {0}


def test_a_quick_answer_has_a_quarter_of_the_trials(quick):
    usual, sooner = (fedbandit.plan(4, 2, 0.3, 2.0, quick=is_quick) for is_quick in (False, True))
    for curve, fewer in zip(usual.ways.values(), sooner.ways.values(), strict=True):
        assert fewer.trials <= curve.trials / 4 + 1
    asked = question(sites=12, arms=4, gap=0.05, epsilon=1.0)
    seconds = [forecast.expected_seconds(asked, is_quick, cores) for is_quick, cores in ((0, 1), (0, 2), (1, 2))]
    assert seconds == sorted(seconds, reverse=True)
    assert forecast.expected_seconds(question(sites=50, arms=9, gap=0.01, epsilon=0.1), False, 2) > 3 * seconds[1]


def test_each_trial_has_its_own_problem_and_sites_alone_take_turns():
    asked = question(sites=3)
    means = means_of_trials(asked, 5)
    for trial, problem in enumerate(problems(asked, means, "together")):
        np.testing.assert_array_equal(problem.means, means[trial])
        assert problem.best_arm == asked.best_arm
        assert (problem.edges_per_round, problem.graph.name) == ("all", "ring:3")
    for trial, problem in enumerate(problems(asked, means, "alone")):
        np.testing.assert_array_equal(problem.means, means[trial, trial % 3, None])


def test_the_bias_is_the_gap_unless_means_would_leave_their_range():
    assert question(gap=0.05).bias == 0.05
    assert question(gap=0.9).bias == pytest.approx(0.04)
    assert question(bias=0).bias == 0.0


# ---------------------------------------------------------------- curves


def seen_as(monkeypatch, estimates):
    """A curve of estimates [trial][time][agent][arm] in place of simulated ones."""

    def run_trials(truths, plans, times, numbers, *others, on_estimates):
        pulls = np.ones((len(numbers), 3, len(times), 2), np.int32)
        agents = np.zeros(3, [("deviation", float, (2,))])
        for trial in range(len(numbers)):
            for c in range(len(times)):
                on_estimates(0, trial, c, np.array(estimates[trial][c], float), agents)
        return (new_record(len(numbers), 3, len(times), 2)._replace(pulls=pulls),)

    monkeypatch.setattr(trials.cpu, "run_trials", run_trials)
    monkeypatch.setattr(trials, "_times", lambda rounds: list(range(1, 1 + len(estimates[0]))))
    return player(question(), CENTRAL).play(len(estimates[0]), len(estimates))


def test_found_means_that_the_best_arm_leads_and_keeps_the_lead(monkeypatch):
    right, wrong, tie = [[0, 1]] * 3, [[1, 0]] * 3, [[0, 0]] * 3
    curve = seen_as(
        monkeypatch,
        [
            [wrong, right, wrong, right, right],
            [right, right, right, right, right],
            [right, right, right, right, wrong],
            [tie, tie, right, right, right],
        ],
    )
    np.testing.assert_allclose(curve.kept.mean, [0.25, 0.25, 0.5, 0.75, 0.75])
    np.testing.assert_allclose(curve.leads.mean, [0.625, 0.875, 0.75, 1.0, 0.75])  # a tie is a guess
    assert (curve.found, curve.last, curve.trials) == (inf, 7, 4)
    assert (curve.kept.low <= curve.kept.mean).all()
    assert (curve.kept.high >= curve.kept.mean).all()


@pytest.mark.parametrize(("shared", "own"), [(0.6, 0.3), (0.3, 0.6), (0.6, 0.0)])
@pytest.mark.parametrize("count", [24, 60, 200])
def test_intervals_cover_with_few_trials(shared, own, count):
    """Times at which 6 sites find the best arm, log-normal and correlated: the interval has the true 95 % quantile.

    Wanted are 95 %; 1,000 intervals have a standard error of 0.7 % of it. Resampling trials covered 71 % of 24.
    """
    source, at, repeats = np.random.default_rng(count), np.geomspace(10, 2000, 90), 1000
    truth = 120 * np.exp(1.6448536 * sqrt(shared**2 + own**2))
    covered = 0
    for _ in range(repeats):
        times = 120 * np.exp(shared * source.standard_normal((count, 1)) + own * source.standard_normal((count, 6)))
        low, high = share_of((at >= times[..., None]).astype(float), at).interval
        covered += low <= truth <= high
    assert covered / repeats > 0.95 - 5.5 * 0.007
    if count == 200:
        assert high < inf


def test_a_share_that_falls_again_is_not_reached():
    assert crossing(np.array([1.0, 10.0, 100.0]), np.array([0.96, 0.9, 1.0])) == pytest.approx(sqrt(10 * 100))


def test_sites_are_sure_as_the_page_of_a_live_site_is():
    """The same numbers, given to the functions of a live site."""
    source, sure = np.random.default_rng(0), []
    for _ in range(300):
        theta, deviation = source.normal(0.5, 0.02, (1, 4)), source.uniform(0.005, 0.02, (1, 4))
        theta[0, 3] += 0.05
        chances = chances_of_highest(theta[0].tolist(), deviation[0].tolist())
        sure.append(is_sure(chances[3]))
        if abs(chances[3] - SURE) > MOST_ERROR:
            assert sure_of(3, theta, deviation)[0] == sure[-1]
    assert 30 < sum(sure) < 270
    assert not sure_of(1, np.array([[0.5, 0.5]]), np.zeros((1, 2)))[0]


@pytest.mark.parametrize("released", [(12, 42, 7), (12, 42, 0)])
def test_sites_know_less_where_others_have_released_less(released):
    """As ``Player.error`` of a live site has it: at least the deviation of the mean of all rows, and of the index.

    Before its first release a site's mean has the variance of the prior.
    """
    asked = question(sites=3, epsilon=1.0)
    policy = FedBatch(1.0)
    problem = problems(asked, means_of_trials(asked, 1), "together")[0]
    terms = policy.terms(settings_of(problem, 100)[0][0])
    schedule = terms.first_batch, terms.growth, terms.most_variance, terms.noise_variance
    unseen = terms.most_variance / batch.PRIOR_REWARDS
    own = [batch.scheduled_variance(count, *schedule) if count else unseen for count in released]
    rows = [(0.5, variance, 1.0) for variance in own]
    of_all = random_effects(rows, (1, 1, 1), 3.0, 3.0, unseen)[1]
    spread = np.sqrt(np.array(own) / 3)
    fields = [("spread", float, 2), ("precision", float, 2), ("releases", int, 2), ("num_unknown", int)]
    agents = np.zeros(3, fields)
    agents["spread"], agents["releases"] = spread[:, None], np.array(released)[:, None]
    agents["precision"] = [[1 / variance if count else 0.0] for variance, count in zip(own, released, strict=True)]
    agents["num_unknown"] = [0 if count else 2 for count in released]
    deviation, judges = deviations(agents, np.arange(3))
    np.testing.assert_array_equal(judges, [count > 0 for count in released])
    np.testing.assert_allclose(deviation[:, 0], np.maximum(spread, sqrt(of_all)))
    assert deviation[1, 0] > 1.2 * spread[1], "the others know less"


def test_the_crossing_lies_between_two_times_evenly_in_log():
    at = np.array([10.0, 100.0, 1000.0])
    assert crossing(at, np.array([0.5, 0.9, 1.0])) == pytest.approx(sqrt(100 * 1000))
    assert crossing(at, np.array([0.5, 0.95, 1.0])) == pytest.approx(100)
    assert crossing(at, np.array([0.96, 0.97, 1.0])) == 10
    assert crossing(at, np.array([0.0, 0.5, 0.94])) == inf


def pooled_by_hand(asked, rounds, times, count, seed):
    """Thompson sampling on pooled rewards in plain NumPy: the share of trials with the best arm in the lead for good.

    Everyone's first patients get every arm once; a draw has the variance sum_i 0.25 / (N^2 n_i) of the pooled mean.
    """
    source, sites, arms = np.random.default_rng(seed), asked.sites, asked.arms
    means = means_of_trials(asked, count)
    n, total = np.ones((count, sites, arms)), (source.random(means.shape) < means).astype(float)
    leads = np.zeros((count, len(times)), bool)
    worse = np.full((count, sites), arms - 1.0)
    rows, columns = np.ogrid[:count, :sites]
    for t in range(1, rounds + 1):
        theta, deviation = (total / n).mean(axis=1), np.sqrt((0.25 / n).sum(axis=1)) / sites
        drawn = theta[:, None] + deviation[:, None] * source.standard_normal(n.shape)
        arm = drawn.argmax(axis=2)
        total[rows, columns, arm] += source.random(arm.shape) < means[rows, columns, arm]
        n[rows, columns, arm] += 1
        worse += arm != asked.best_arm
        if t in times:
            leads[:, times.index(t)] = (total / n).mean(axis=1).argmax(axis=1) == asked.best_arm
    return np.logical_and.accumulate(leads[:, ::-1], axis=1)[:, ::-1].mean(axis=0), worse.mean()


def test_the_pooled_curve_is_that_of_a_direct_simulation():
    asked, rounds, count = question(sites=4, gap=0.2), 50, 800
    curve = player(asked, CENTRAL).play(rounds, count)
    times = [int(patients) - asked.arms for patients in curve.patients]
    chance, worse = pooled_by_hand(asked, rounds, times, count, seed=1)
    error = np.sqrt((curve.kept.mean * (1 - curve.kept.mean) + chance * (1 - chance)) / count)
    assert (np.abs(curve.kept.mean - chance) <= 5.5 * error + 1e-9).all()
    assert curve.kept.at(10) > 0.3
    assert curve.worse[-1] == pytest.approx(
        worse, abs=5.5 * 6.0 / sqrt(count)
    )  # a trial's mean deviates by less than 6
    assert 1.0 < curve.worse[0] < 2.0  # of the arms' first patients, one each got the worse arm


def test_before_the_first_releases_nobody_has_found_anything():
    asked = question(epsilon=0.5, sites=10)  # a first batch has 24 rewards
    curve = player(asked).play(60, 50)
    assert curve.kept.at(40) == 0.0
    assert curve.kept.at(62) > 0.3


@pytest.mark.slow
def test_the_chance_grows_with_epsilon_sites_and_gap(coarse):
    """The standard error of a difference of two curves of 300 trials is at most sqrt(2 / 1200)."""

    def chance(**other):
        asked = question(**{"sites": 3, "gap": 0.07, "epsilon": 1.0, "bias": 0.1} | other)
        return player(asked).play(160, 300).kept.at(80)

    usual, least = chance(), 5.5 * sqrt(2 / 1200)
    assert chance(epsilon=0.2) < usual - least
    assert chance(sites=20) > usual + least
    assert chance(gap=0.3) > usual + least


@pytest.mark.slow
def test_a_site_alone_stays_wrong_where_its_own_patients_differ(coarse):
    asked = question(sites=4, gap=0.2, bias=0.3)
    right = (means_of_trials(asked, 400).argmax(axis=2) == asked.best_arm).mean()
    assert 0.5 < right < 0.9
    curve = player(asked, CENTRAL, alone=True).play(600, 200)
    assert curve.found == inf
    assert curve.kept.mean[-1] == pytest.approx(right, abs=5.5 * 0.5 / sqrt(200))
    alike = player(question(sites=4, gap=0.2, bias=0), CENTRAL, alone=True).play(600, 100)
    assert alike.found < 400


def test_the_engine_tells_its_estimates_at_every_checkpoint():
    asked = question()
    call = check_call(problems(asked, means_of_trials(asked, 3), "together"), FedBatch(3.0), 40, 3, 0, [5, 20])
    told = {}
    (record,) = cpu.run_trials(
        [truths_of(problem) for problem in call.problems],
        call.compiled,
        call.times,
        call.trials,
        0,
        2,
        lambda done: None,
        on_estimates=lambda which, trial, c, theta, agents: told.update({(which, trial, c): theta.copy()}),
    )
    assert sorted(told) == [(0, trial, c) for trial in range(3) for c in range(3)]
    for (_, trial, c), theta in told.items():
        error = np.abs(theta - call.problems[trial].arm_means).mean(axis=1)
        np.testing.assert_allclose(record.theta_error[trial, :, c], error)


# ---------------------------------------------------------------- theory


def test_no_way_finds_the_best_arm_with_fewer_patients_than_the_bound(coarse):
    for asked in (question(sites=4, gap=0.2), question(gap=0.4, bias=0)):
        curve = player(asked, CENTRAL).play(300, 200)
        assert forecast.fewest_patients(asked) < curve.kept.interval[0]
    two = question(sites=2, gap=0.2, bias=0)  # by hand: kl(0.95, 0.05) / (2 kl(0.6, 0.4))
    by_hand = 0.9 * log(19) / (2 * 0.2 * log(1.5))
    assert forecast.fewest_patients(two) == pytest.approx(by_hand)


def test_the_bound_holds_for_the_best_test_of_two_arms():
    """All patients on one of two arms with known means: the best test needs more than the bound, by exact binomials."""
    asked = question(sites=2, gap=0.2, bias=0)
    patients = int(forecast.fewest_patients(asked) * 2)
    for n in range(1, patients + 1):
        best = (max(0.6**k * 0.4 ** (n - k), 0.4**k * 0.6 ** (n - k)) * comb(n, k) for k in range(n + 1))
        assert sum(best) / 2 < CERTAINTY


def test_equal_arms_are_those_of_a_direct_simulation():
    asked, count, patients = question(sites=4, arms=3, gap=0.1, bias=0.2), 20_000, 150
    source, means = np.random.default_rng(0), means_of_trials(question(sites=4, arms=3, gap=0.1, bias=0.2), 1)[0]
    rates = source.binomial(patients // 3, means, (count, 4, 3)).mean(axis=1) + 1e-9 * source.random((count, 3))
    chance = (rates.argmax(axis=1) == 2).mean()
    assert forecast.chance_of_equal_arms(asked, patients) == pytest.approx(chance, abs=0.01 + 5.5 * 0.5 / sqrt(count))
    needed = forecast.patients_of_equal_arms(asked)
    assert forecast.chance_of_equal_arms(asked, needed) == pytest.approx(CERTAINTY, abs=1e-6)


def test_the_radius_is_that_of_the_page():
    """Arms in turn, every other reward 1: the page's radius first is half the gap when the formula says."""
    asked, policy = question(sites=5, arms=2, gap=0.2, epsilon=1.0), FedBatch(1.0)
    problem = problems(asked, means_of_trials(asked, 1), "together")[0]
    page, terms = policy.page(), policy.terms(settings_of(problem, 1000)[0][0])
    me, patients = new_me(page, terms, 2), 0
    while True:
        for arm in range(2):
            me.tried[arm] += 1
            page.observe(me, terms, arm, patients // 2 % 2, 0.0)
            patients += 1
        me.spread[0] = me.deviation[0]
        if me.releases[0] > 0 and 2 * page.radius(me, terms, me, time_of(patients), 0) <= asked.gap:
            break
    assert forecast.patients_until_radius(asked, None) == patients


# ---------------------------------------------------------------- words


def curve_of(found, last=1000, leads=0.5, trials=400, known=inf, worse=0.3):
    at = np.array([1.0, found, last]) if found < last else np.array([1.0, last / 2, last])
    kept = [0.0, CERTAINTY, 1.0] if found < inf else [0.0, 0.2, 0.3]
    values = np.zeros((trials, 1, 3))
    for c, share in enumerate(kept):
        values[: round(share * trials), :, c] = 1.0
    led = np.zeros((trials, 1, 3))
    led[: round(leads * trials)] = 1.0
    sure = share_of(values, np.array([1.0, known, 2 * known]) if known < inf else at)
    if known == inf:
        sure = share_of(np.zeros_like(values), at)
    return Curve(at, share_of(values, at), share_of(led, at), sure, worse * at, np.full(3, 51.0), trials)


def said(together, given=None, share=0.7, alone=inf, best_alone=53.2, **other):
    asked = question(sites=12, arms=4, gap=0.05, **({"epsilon": 0.1} | other))
    return Forecast(asked, together, curve_of(250), curve_of(alone, 5000), given, share, best_alone, {}).words


def test_words_say_when_it_is_hopeless():
    needed = curve_of(2400, 9000)
    words = said(needed, curve_of(inf, 400, leads=0.27), patients=200)
    assert ", with 200 patients per site at epsilon 0.1 nothing can be learnt" in words
    assert "best one with a chance of 27 %, a guess with 25 %. It takes about 2,400 patients per site" in words
    assert "240 days" not in words
    assert "(7.9 months)" in words
    assert "hardly anything can be learnt" in said(needed, curve_of(inf, 400, leads=0.36), patients=200)
    assert "nothing can be learnt" in said(needed, curve_of(inf, 400, leads=0.1), patients=200)
    assert "nothing can be learnt" in said(needed, curve_of(inf, 400, leads=0.36, trials=25), patients=200)
    assert "60 % only. It takes about 2,400 " in said(needed, curve_of(inf, 400, leads=0.6), patients=200)
    assert "best one with a chance of 97 %; " in said(needed, curve_of(50, leads=0.97), patients=200)
    assert "need more than 9,000 patients per site" in said(curve_of(inf, 9000))
    assert "Even 9,000 would not do" in said(curve_of(inf, 9000), curve_of(inf, 400, leads=0.2), patients=200)


def test_the_headline_says_what_decides_it():
    """First of all how sites differ, above all where that is a default; then the rate and the window, if given."""
    assert said(curve_of(500)).startswith(
        "If an arm's chance of success at a site is within 0.05 of its average over all sites (by default: the gap), "
        "12 sites that gossip with epsilon 0.1 need about 500 patients per site"
    )
    assert " is within 0.02 of its average over all sites, 12 sites " in said(curve_of(500), bias=0.02)
    assert said(curve_of(500), bias=0).startswith("If all sites are alike, 12 sites that gossip")
    given = said(curve_of(500), bias=0, rate=0.1, reward_window=30)
    rates = "the best arm succeeds with 0.15, the others with 0.1"
    assert given.startswith(f"If all sites are alike, {rates} and a reward counts after 30 days, 12 sites ")


def test_words_say_when_sites_know_it():
    assert "and about 2,300 (7.6 months) until the sites can be sure of it" in said(curve_of(520, known=2304))
    assert "and more than 9,000 until the sites can be sure" in said(curve_of(520, 9000))


def test_words_say_what_a_site_alone_would_do():
    assert "at 30 % of the sites another arm" in said(curve_of(500))
    assert "A site alone would need about 3,450 (11 months)" in said(curve_of(500), share=1.0, alone=3444)
    assert "more than 5,000 patients" in said(curve_of(500), share=0.96)
    assert "52.5 do together and 53.2 alone: for a site's own patients acting alone is better in" in said(curve_of(500))
    assert "in the long run 52.5 do either way" in said(curve_of(500), share=1.0, best_alone=52.5)


def test_numbers_are_rounded_as_a_person_would():
    numbers = [about(number) for number in (0.4, 3.2, 14.5, 234.6, 522, 2440, 63_700)]
    assert numbers == ["0", "3", "15", "235", "520", "2,450", "63,500"]
    assert [duration(days) for days in (0.3, 1.2, 17.3, 72.6, 500, 2125)] == [
        "less than a day",
        "1 day",
        "17 days",
        "2.4 months",
        "16 months",
        "6 years",
    ]


def test_no_share_is_rounded_to_all_or_nothing():
    assert [percent(share) for share in (0.0, 0.005, 0.02, 0.994, 0.995, 1.0)] == [
        "0 %",
        "less than 1 %",
        "2 %",
        "99 %",
        "more than 99 %",
        "100 %",
    ]


def test_words_and_tables_say_the_same_number():
    """7 sites and 3 arms: at most 952,380 patients, which ``about`` would round."""
    asked = question(sites=7, arms=3, gap=0.01)
    most = player(asked).most + asked.arms
    together = curve_of(520, most)
    forecast = Forecast(asked, together, curve_of(250), curve_of(inf), None, 0.7, 53.2, {})
    assert f"and more than {most:,} until the sites can be sure" in forecast.words
    assert f"more than {most:,}" in forecast.tables[0].rows[0]
    assert player(question(arms=3)).most + 3 == 1_000_000


# ---------------------------------------------------------------- the figure


def drawn(together, last=10**6, patients=300, given=None, per_day=1.0, gap=0.01):
    asked = Question.checked(3, 3, gap, 0.05, per_day, "ring", patients, None, 0)
    forecast = Forecast(asked, together, curve_of(last / 50, last), curve_of(inf, last), given, 0.7, 53.2, {})
    return forecast.plot()


def test_the_figure_is_drawn_into_axes_of_the_caller():
    asked = Question.checked(3, 3, 0.01, 0.05, 1.0, "ring", None, None, 0)
    forecast = Forecast(asked, curve_of(500), curve_of(250), curve_of(inf), None, 0.7, 53.2, {})
    mine = Figure()
    left, right = mine.subplots(1, 2)
    assert forecast.plot(ax=left) is mine
    assert left.get_xlabel() == "patients per site"
    assert "3 sites, 3 arms" in left.get_title()
    assert not right.lines


def test_a_short_run_has_no_curve_beside_long_ones():
    """It leads "for good" until the end of a short run more easily: what it gives is told in words."""
    short = curve_of(inf, 600, leads=0.34)
    figure = drawn(curve_of(110_000, 10**6), given=short)
    axes = figure.axes[0]
    assert not [line for line in axes.get_lines() if np.array_equal(line.get_xdata(), short.patients)]
    assert "after 300 patients it leads, if only for now, at 34 % of the sites together, 50 % pooled" in (
        figure.get_suptitle()
    )
    assert axes.get_xlim()[0] < 300
    assert "if only for now" not in drawn(curve_of(110_000, 10**6), patients=None).get_suptitle()


@pytest.mark.parametrize("last", [10**6, 3 * 10**5, 40_000, 700])
@pytest.mark.parametrize("per_day", [1.0, 30.0, 0.01])
def test_numbers_of_the_axes_do_not_touch(last, per_day):
    figure = drawn(curve_of(last / 9, last), last, patients=100, given=curve_of(inf, 200), per_day=per_day)
    FigureCanvasAgg(figure).draw()
    below, (above,) = figure.axes[0], figure.axes[0].child_axes
    for axes in (below, above):
        low, high = axes.get_xlim()
        ticks = [tick for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        labels = [tick.label1 if axes is below else tick.label2 for tick in ticks]
        boxes = [label.get_window_extent() for label in labels]
        assert len(boxes) >= 3
        assert all(left.x1 + 3 < right.x0 for left, right in itertools.pairwise(boxes))
    if last == 10**6:
        assert "1 million" in {label.get_text() for label in below.get_xticklabels()}
    assert above.get_xlabel() == f"days at {per_day:g} patient{'' if per_day == 1 else 's'} per site and day"


def test_the_figure_shows_itself_in_a_notebook_and_nothing_is_cut_off():
    figure = drawn(curve_of(110_000, 10**6), patients=100_000, given=curve_of(inf, 200_000, leads=0.999))
    assert figure._repr_png_()[0].startswith(b"\x89PNG")
    FigureCanvasAgg(figure).draw()
    for box in (figure.legends[0].get_window_extent(), figure._suptitle.get_window_extent()):
        assert 0 <= box.x0 <= box.x1 <= figure.bbox.x1
    assert figure.legends[0].get_texts()[-1].get_text().startswith("below 5,509 no method reaches 95 %")


# ---------------------------------------------------------------- the whole


@pytest.fixture
def quick(monkeypatch, coarse):
    small = {"PILOT_TRIALS": 24, "LEAST_PILOT_TRIALS": 24, "FINAL_TRIALS": 100, "LEAST_FINAL_TRIALS": 60}
    for name, value in (small | {"SURE_TRIALS": 60}).items():
        monkeypatch.setattr(trials, name, value)


def test_a_plan_from_python(quick):
    forecast = fedbandit.plan(4, 2, 0.3, 2.0, 10, "complete", patients=6)
    again = fedbandit.plan(4, 2, 0.3, 2.0, 10, "complete", patients=6)
    assert isinstance(forecast, fedbandit.Forecast)
    assert (forecast.words, forecast.table.to_csv()) == (again.words, again.table.to_csv())
    assert list(forecast.table.index) == ["together, epsilon 2", "pooled, no privacy", "alone"]
    row = forecast.table.loc["together, epsilon 2"]
    assert forecast.fewest < forecast.pooled.found < row["patients"]
    assert row["low"] <= row["patients"] <= row["high"]
    assert row["days"] == pytest.approx(row["patients"] / 10)
    assert 0 < row["worse"] < row["patients"]
    assert forecast.together.last >= 2 * forecast.together.found
    assert forecast.given.last >= 12
    assert row["leads"] == forecast.given.leads.at(6)
    assert row["patients"] < row["sure"] == forecast.together.known
    assert 40 < row["successes"] < row["successes_at_last"] == 65
    assert forecast.table["successes_at_last"]["alone"] == forecast.best_alone > 65
    html = forecast._repr_html_()
    assert forecast.words.replace("'", "&#x27;") in html
    assert html.count("<table") == 3
    with pytest.raises(AttributeError):
        forecast.given = None
    labels = [line.get_label() for line in forecast.plot().axes[0].get_lines()]
    assert [label for label in labels if not label.startswith("_")] == [
        "together, epsilon 2",
        "together, sites are sure",
        "pooled, no privacy",
        "alone",
    ]


@pytest.mark.slow
def test_all_ways_are_simulated_as_far_as_they_are_compared(quick):
    forecast = fedbandit.plan(4, 2, 0.3, 0.2)
    assert forecast.compared_at == forecast.together.found > 5 * forecast.pooled.found
    assert all(curve.last >= forecast.compared_at for curve in forecast.ways.values())
    assert forecast.together.kept.at(forecast.compared_at) == pytest.approx(CERTAINTY, abs=0.01)
    assert forecast.rows["together, epsilon 0.2"]["leads"] >= CERTAINTY - 0.01


def test_the_command_prints_a_table_and_words_and_draws_a_figure(quick, tmp_path):
    arguments = "plan --sites 4 --arms 2 --gap 0.3 --epsilon 2 --patients-per-day 10 --graph complete"
    ran = CliRunner().invoke(app, [*arguments.split(), "-o", str(tmp_path / "here")])
    assert ran.exit_code == 0, ran.output
    assert (tmp_path / "here" / "plan.png").stat().st_size > 10_000
    assert "(by default: the gap), 4 sites that gossip with epsilon 2 need about " in ran.stdout.replace("\n", " ")
    assert re.match(r"This takes about \d+ (seconds|minutes?) on \d+ cores?, .*--quick takes about ", ran.stderr)
    rows = [line.split() for line in ran.output.splitlines() if line.startswith("  ")]
    assert ["alone", "never"] in [row[:2] for row in rows]
    lines = ran.stdout.splitlines()
    title = next(n for n, line in enumerate(lines) if line.startswith("Patients per site until"))
    assert len({len(line) for line in lines[title + 2 : title + 8] if line}) == 1  # aligned


BAD = {
    "sites": [1, 0, 1001, 2.5, nan, "3"],
    "arms": [1, 101, True],
    "gap": [0, -0.1, 0.91, nan, inf, 1e-6],
    "epsilon": [0, -1, nan, 1e9],
    "patients_per_day": [0, -3, inf, nan],
    "graph": ["ringg", "ring:5", "path:4:2", 3],
    "patients": [0, 1.5, 10**7, nan],
    "bias": [-0.1, 0.5, nan, "a"],
    "seed": [-1, 0.5],
    "rate": [0, 0.7, nan, "a"],  # with a gap of 0.3, at most 0.69
    "reward_window": [-1, nan, inf, 1e6],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_input_is_refused_by_name(name, value):
    given = {"sites": 4, "arms": 2, "gap": 0.3, "epsilon": 1.0, "patients_per_day": 10} | {name: value}
    with pytest.raises(InvalidArgument) as caught:
        fedbandit.plan(**given)
    assert caught.value.argument == name


@pytest.mark.parametrize(
    "option",
    [
        "--sites 1",
        "--arms 1",
        "--gap 0",
        "--gap nan",
        "--epsilon 0",
        "--patients-per-day 0",
        "--graph ring:9",
        "--patients 0.5",
        "--patients 1",
        "--bias 2",
        "--seed -1",
        "--rate 0.9",
        "--reward-window -1",
        "--output /dev/null",
        "--output /dev/null/x/y",
    ],
)
def test_the_command_names_the_option(option, monkeypatch):
    monkeypatch.setattr("fedbandit.planning.forecast._forecast", None)  # nothing is simulated
    usual = {"--sites": "4", "--arms": "2", "--gap": "0.3", "--epsilon": "1"}
    name, value = option.split()
    ran = CliRunner().invoke(app, ["plan", *(part for pair in (usual | {name: value}).items() for part in pair)])
    assert ran.exit_code == 2
    assert f"error: {name} must be " in ran.output


@pytest.mark.parametrize("what", ["a folder in its place", "a link to nowhere"])
def test_where_no_figure_can_be_written_nothing_is_simulated(tmp_path, monkeypatch, what):
    monkeypatch.setattr("fedbandit.planning.forecast._forecast", None)
    output = tmp_path / "out"
    if what == "a folder in its place":
        (output / "plan.png").mkdir(parents=True)
    else:
        output.symlink_to(tmp_path / "nowhere")
    ran = CliRunner().invoke(
        app, [*["plan", "--sites", "4", "--arms", "2", "--gap", "0.3", "--epsilon", "1", "-o"], str(output)]
    )
    assert ran.exit_code == 2
    assert "error: --output must be a folder that this user can write to" in ran.output


def test_the_command_says_how_many_patients_are_accepted():
    """With one patient there is nothing to choose: every arm comes first once."""
    arguments = "plan --sites 4 --arms 3 --gap 0.3 --epsilon 1 --patients 1"
    ran = CliRunner().invoke(app, arguments.split())
    assert ran.exit_code == 2
    assert "error: --patients must be a whole number from 4 (more than arms: each comes first once)" in ran.output


def test_all_mistakes_are_told_at_once():
    """A line each; what depends on a bad argument, here the patients and the bias, is not judged."""
    arguments = "plan --sites 4 --arms 1 --gap 7 --epsilon -1 --graph foo --patients 1 --bias 0.45"
    ran = CliRunner().invoke(app, arguments.split())
    assert ran.exit_code == 2
    told = [line.removeprefix("error: ").partition(" must be ")[0] for line in ran.output.splitlines()]
    assert told == ["--arms", "--gap", "--epsilon", "--graph"]
    assert ran.output.splitlines()[-1].endswith(", not 'foo'")
    with pytest.raises(InvalidArgument) as caught:
        fedbandit.plan(4, 1, 0.3, -1.0)
    assert (caught.value.argument, caught.value.value) == ("arms", 1)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):  # noqa: S301
        assert [it.argument for it in error.errors] == ["arms", "epsilon"]
        assert str(error).count(" must be ") == 2
    assert str(caught.value.at("plan")).splitlines()[1].startswith("plan.epsilon must be ")


EXAMPLES = re.findall(
    r"```sh\nfedbandit (plan [^\n]*)\n```\n\n((?:> [^\n]*\n)+)\n```text\n(.*?)\n```",
    (DOCS / "planning.md").read_text(),
    re.DOTALL,
)


@pytest.mark.slow
@pytest.mark.parametrize("example", range(3))
def test_the_examples_of_the_document(example, tmp_path):
    """docs/planning.md as printed."""
    command, words, tables = EXAMPLES[example]
    ran = CliRunner().invoke(app, [*command.split(), "-o", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    printed = "\n".join(line.rstrip() for line in ran.stdout.splitlines())
    assert tables in printed
    assert " ".join(line.removeprefix("> ") for line in words.splitlines()) in printed.replace("\n", " ")


def test_the_document_has_three_examples_one_of_them_hopeless():
    assert len(EXAMPLES) == 3
    assert "hardly anything can be learnt" in "".join(words for _, words, _ in EXAMPLES)


def test_too_many_patients_for_so_many_sites_are_refused():
    with pytest.raises(InvalidArgument, match="patients must be at most 10,000 with 1000 sites and 2 arms"):
        fedbandit.plan(1000, 2, 0.3, 1.0, patients=20_000)


def test_a_budget_of_work_ends_every_search(quick, monkeypatch):
    """Ticks never go back, and the words say how many patients were too few."""
    monkeypatch.setattr(trials, "MOST_WORK", 60 * 4 * 2 * 200)
    told = []
    forecast = fedbandit.plan(4, 2, 0.01, 0.1, progress=lambda done, total: told.append((done, total)))
    assert "4 sites that gossip with epsilon 0.1 need more than 200 patients per site" in forecast.words
    assert forecast.together.last == 200
    assert told == sorted(told)
    assert all(done <= total for done, total in told)


def test_nobody_has_more_patients_than_the_limit(quick, monkeypatch):
    monkeypatch.setattr(trials, "MOST_PATIENTS", 150)
    forecast = fedbandit.plan(4, 2, 0.01, 0.1, patients=150)
    curves = [*forecast.ways.values(), forecast.given]
    assert {curve.last for curve in curves} == {curve.sure.last for curve in curves} == {150}


def test_each_run_has_its_name(quick, monkeypatch):
    """A bar or lines: which way, how many patients; what is left is that of the run."""
    told = []
    monkeypatch.setattr("fedbandit.progress._BETWEEN_LINES", 0.0)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: False, write=told.append, flush=lambda: None))
    forecast = fedbandit.plan(4, 2, 0.3, 2.0, progress=True)
    names = [re.match(r"run (\d+): (together|pooled|alone), ([\d,]+) patients per site: \d+ %", line) for line in told]
    assert all(names)
    assert {name[2] for name in names} == {"together", "pooled", "alone"}
    numbers = [int(name[1]) for name in names]
    assert numbers == sorted(numbers)
    assert f"{forecast.together.last:,}" in {name[3] for name in names}
    assert not [line for line in told if "pulls/s" in line]
