"""The audit in both directions: real mechanisms are not accused, bad ones are caught.

A true claim is called broken once in a million audits at most, by construction (FALSE_ALARM); other chances are
stated where they are.
"""

import math
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta
from typer.testing import CliRunner

from fedbandit import FedUCB, InvalidArgument
from fedbandit.audit import whole_agent
from fedbandit.audit.attacks import Attack, on_batches, on_mechanism
from fedbandit.audit.known_bad import known_bad
from fedbandit.audit.measure import FALSE_ALARM, audit, clopper_pearson, fewest_samples, lower_bound
from fedbandit.audit.suite import Row, attacks_on, run_attacks
from fedbandit.audit.whole_agent import noisy_sums, on_fed_batch, reconstruct
from fedbandit.cli import app
from fedbandit.privacy.mechanism import Batches
from fedbandit.privacy.noise import GRID

EXAMPLE = Path(__file__).parents[1] / "examples" / "audit_own_mechanism.py"


def integer_laplace(seed, epsilon=1.0):
    """A fast discrete Laplace mechanism with a seed: its statistic is the exact log likelihood ratio."""
    source = np.random.default_rng(seed)

    def sample(which, count):
        p = 1 - math.exp(-epsilon / GRID)
        z = source.geometric(p, count) - source.geometric(p, count) + which * GRID
        return (np.abs(z) - np.abs(z - GRID)) * (epsilon / GRID)

    return sample


# ---------------------------------------------------------------- the statistics


@pytest.mark.parametrize("trials", [1, 2, 10, 1000, 10**4, 10**6])
@pytest.mark.parametrize("miss", [0.025, FALSE_ALARM / 2])
def test_clopper_pearson_is_scipys(trials, miss):
    for hits in {0, 1, 2, trials // 3, trials // 2, trials - 1, trials} & set(range(trials + 1)):
        least, most = clopper_pearson(hits, trials, miss)
        assert least == pytest.approx(beta.ppf(miss, hits, trials - hits + 1) if hits else 0.0, rel=1e-8)
        assert most == pytest.approx(beta.isf(miss, hits + 1, trials - hits) if hits < trials else 1.0, rel=1e-8)


def test_the_bound_keeps_its_confidence():
    """Of 400 audits of a mechanism whose epsilon is exactly 1, at most 5 % may say more.

    The event of largest ratio has exactly e^1, so this is as hard as it gets. 400 audits at a rate of 5 % give more
    than 46 once in 10^6; the seed is fixed.
    """
    sample, too_high = integer_laplace(0), 0
    for _ in range(400):
        too_high += lower_bound(np.array(sample(0, 2000)), np.array(sample(1, 2000)), 0.95) > 1.0
    assert too_high <= 46


def test_the_event_is_judged_on_samples_that_did_not_choose_it():
    """Two equal worlds, confidence 80 %: at most 20 % of bounds exceed 0. Seen: 3 %; 53 % if judged on the same.

    More than 128 of 400 at a rate of 20 % happen once in 10^8; the seed is fixed.
    """
    source = np.random.default_rng(0)
    assert sum(lower_bound(source.random(400), source.random(400), 0.8) > 0 for _ in range(400)) <= 128


def test_the_audit_can_measure():
    """Epsilon 1 is seen as nearly 1, 3 as nearly 3: a bound of 0 would never accuse anybody. Seeds are fixed."""
    assert 0.9 < audit(integer_laplace(1), claimed=1.0, samples=20_000).lower_bound < 1.0
    assert 2.5 < audit(integer_laplace(2, 3.0), claimed=3.0, samples=60_000).lower_bound < 3.0


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("mirrored", [False, True])
def test_either_tail_of_either_world_is_looked_at(flipped, mirrored):
    """An event that is certain in one world and impossible in the other, wherever it lies."""

    def sample(which, count):
        rare = (which == 0) != flipped
        values = np.zeros(count)
        values[: count // 4] = rare
        return -values if mirrored else values

    found = audit(sample, claimed=1.0, samples=2000)
    assert found.sure_bound > 2.0
    assert not found.holds


def test_infinities_are_welcome_and_nan_is_not():
    found = audit(lambda which, count: [math.inf if which else -math.inf] * count, claimed=1.0, samples=1000)
    assert not found.holds
    assert found.lower_bound > found.sure_bound > 3.0
    with pytest.raises(InvalidArgument, match="statistic must be a number for every view"):
        audit(lambda which, count: [math.nan] * count, claimed=1.0, samples=1000)


def test_equal_worlds_show_nothing():
    source = np.random.default_rng(3)
    found = audit(lambda which, count: source.random(count), claimed=0.5, samples=4000)
    assert found.lower_bound < 0.5
    assert audit(lambda which, count: [0.0] * count, claimed=0.5, samples=4000).lower_bound == 0.0


def test_too_few_samples_are_refused():
    """With the fewest allowed, an attack that always succeeds does contradict the claim; with two fewer it cannot."""
    for claimed in (0.1, 1.0, 4.0, 8.0):
        trials = fewest_samples(claimed) // 2
        for enough, count in ((True, trials), (False, trials - 2)):
            least, most = (
                clopper_pearson(count, count, FALSE_ALARM / 2)[0],
                clopper_pearson(0, count, FALSE_ALARM / 2)[1],
            )
            assert (math.log(least / most) > claimed) == enough
    with pytest.raises(InvalidArgument, match=r"samples must be at least 4\d\d\d, not 100"):
        audit(integer_laplace(0), claimed=5.0, samples=100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"claimed": 0.0}, "claimed must be"),
        ({"claimed": 16.0}, "claimed must be"),
        ({"claimed": math.nan}, "claimed must be"),
        ({"claimed": 1.0, "samples": 1.5}, "samples must be"),
        ({"claimed": 1.0, "confidence": 1.0}, "confidence must be"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        audit(integer_laplace(0), **arguments)


def test_a_sample_of_the_wrong_size_is_refused():
    with pytest.raises(InvalidArgument, match="sample must be 20 views, as asked for, not '1 views'"):
        audit(lambda which, count: [0.0], claimed=1.0, samples=1000)


# ---------------------------------------------------------------- both directions


def test_real_mechanisms_are_not_accused():
    """Six attacks, so that one is accused falsely less than six times in a million."""
    rows = run_attacks([*attacks_on("fed_batch", 1.0), *attacks_on("fed_ucb", 1.0)], samples=6000)
    assert [row.attack.label for row in rows] == [
        "batches",
        "batches, a later one",
        "agent, FedBatch",
        "agent, FedBatch, a later one",
        "tree of 7 pulls",
        "agent, Fed_UCB",
    ]
    for row in rows:
        assert row.finding.holds, row
        assert row.as_expected
        assert row.verdict == "not broken"
        # Nor blind: batches 0.89 with a standard deviation of 0.04, trees 0.74 with 0.1; lower than 0.2 once in 10^7.
        assert row.finding.lower_bound > 0.2, row


def test_the_bound_comes_close_to_the_claim():
    """Batches at 20,000 samples: 0.94 with a standard deviation of 0.024, so above 0.8 but for once in 10^8."""
    (row,) = run_attacks([on_batches(1.0)], samples=20_000)
    assert row.finding.lower_bound > 0.8


@pytest.mark.parametrize("attack", known_bad(), ids=lambda attack: attack.label)
def test_every_known_bad_variant_is_caught(attack):
    """Sizes are such that each is missed less than once in a million."""
    (row,) = run_attacks([attack])
    assert not row.finding.holds
    assert row.verdict == "caught"
    assert row.as_expected


def test_a_bad_variant_that_is_not_caught_is_a_failure():
    row = run_attacks([Attack("harmless", 1.0, integer_laplace(5), known_bad=True, samples=2000)])[0]
    assert row.verdict == "NOT CAUGHT"
    assert not row.as_expected
    assert Row(row.attack, row.finding).finding.samples == 2000


def silent_after_the_first(make_noise):
    """A source of noise that is spent after one draw."""

    def noise(epsilon, count):
        noise.draws += 1
        return make_noise(epsilon, count) if noise.draws == 1 else [0] * count

    noise.draws = 0
    return noise


@pytest.mark.parametrize(("position", "holds"), [(1, True), (4, False)])
def test_noise_that_stops_after_the_first_release_is_caught(position, holds):
    """A changed reward of the second batch shows what one of the first cannot: a release without noise."""

    def bare(noise):
        return Batches(1, 1.0, 0.0, 1.0, first_batch=3, noise=silent_after_the_first(noise))

    streams = [[0.5] * 6, [0.5] * 6]
    streams[0][position], streams[1][position] = 0.0, 1.0
    attack = on_mechanism("bare", bare, (streams[0], streams[1]), 1.0)
    assert audit(attack.sample, attack.statistic, claimed=1.0, samples=4000).holds is holds


def test_whatever_is_seen_before_the_first_release_decides():
    """The attacker of a whole agent takes a raw reward that is gossiped before its release for what it is."""
    views = []
    for raw in (0.0, 1.0):
        gossiped = np.zeros((7, 2))
        gossiped[1:, 0] = raw / 2  # agent 1 held nothing, and half of what the victim brought after the first average
        views.append(whole_agent.View(gossiped, np.zeros((7, 2)), np.array([0, 1, 0, 0, 0, 0])))
    statistic = whole_agent.fed_batch_statistic(1.0, later=False)
    assert statistic(views[1]) > 1e6


def test_an_understated_claim_is_caught():
    """The same code with a claim of 0.3 instead of 1: the sure bound is 0.66, standard deviation 0.05."""
    attack = on_fed_batch(1.0)
    assert not audit(attack.sample, attack.statistic, claimed=0.3, samples=4000).holds


def test_the_attacker_reads_what_the_victim_released():
    """The reconstruction through averages gives back the victim's own means, to the last step of the grid."""
    from fedbandit.simulation.replay import replay

    for policy in (FedUCB(1.0), whole_agent.FedBatch(1.0, first_batch=2)):
        world = whole_agent._world(1.0, clamped=True, round_of_change=0)
        noise = np.array(world.noise)
        noise[:, 0] = np.random.default_rng(1).laplace(size=noise[:, 0].shape)
        trace = replay(whole_agent.replace(world, noise=noise), policy)
        view = whole_agent.view_of(trace)
        np.testing.assert_allclose(reconstruct(view), trace.x_mean[:-1, 0], atol=1e-9)
        assert len(noisy_sums(view)) > 2


def test_progress_is_told():
    told = []
    run_attacks([on_batches(1.0), on_batches(2.0)], samples=700, on_progress=lambda *done: told.append(done))
    assert told[-1] == (1400, 1400)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


# ---------------------------------------------------------------- what a person sees


def invoke(*arguments):
    return CliRunner().invoke(app, ["audit", *(str(argument) for argument in arguments)])


def test_a_kept_promise_exits_with_0():
    ran = invoke("--policy", "fed_batch", "--samples", 1000)
    assert ran.exit_code == 0, ran.output
    assert re.search(r"batches\s+1\s+0\.\d\d\s+not broken\s+1,000", ran.output)
    assert re.search(r"agent, FedBatch\s+1\s+0\.\d\d\s+not broken", ran.output)
    assert "Fed_UCB" not in ran.output


@pytest.mark.filterwarnings("ignore::fedbandit.PrivacyWarning")
def test_a_broken_promise_exits_with_1():
    ran = invoke("--policy", "fed_ucb", "--paper", "--epsilon", 2, "--samples", 1000)
    assert ran.exit_code == 1
    assert re.search(r"agent, Fed_UCB as printed\s+2\s+[345]\.\d\d\s+BROKEN", ran.output)


def test_known_bad_variants_are_shown_and_do_not_fail_the_audit():
    ran = invoke("--policy", "fed_batch", "--samples", 500, "--show-broken")
    assert ran.exit_code == 0, ran.output
    assert len(re.findall(r"\bcaught\b", ran.output)) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "fed_bach"], "Did you mean 'fed_batch'?"),
        (["--policy", "gossip_ucb"], "policy must be fed_batch or fed_ucb"),
        (["--epsilon", "-1"], "--epsilon must be a number above 0 and at most 15"),
        (["--epsilon", "inf"], "--epsilon must be a number above 0 and at most 15"),
        (["--epsilon", "8"], "samples must be at least 86516, not 10000. Fewer cannot contradict epsilon 8."),
        (["--samples", "0"], "samples must be a whole number"),
        (["--policy", "fed_batch", "--paper"], "paper must be given with fed_ucb"),
    ],
)
def test_bad_input_exits_with_2(arguments, message):
    ran = invoke(*arguments)
    assert ran.exit_code == 2
    assert message in ran.output


def test_the_example():
    ran = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=True)
    kept, broken = ran.stdout.splitlines()
    assert re.fullmatch(r"noisy_count: claims 1, at least 0\.[89]\d: not broken", kept)
    assert re.fullmatch(r"careless_count: claims 1, at least \d\.\d\d: BROKEN", broken)
    assert len(EXAMPLE.read_text().splitlines()) < 50
    assert "attack" in runpy.run_path(str(EXAMPLE))
