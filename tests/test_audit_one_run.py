"""One-run audits: many coins in one run bound epsilon from below, and accuse nobody who keeps the claim.

A true claim is refuted once in a million audits at most (FALSE_ALARM); other chances are stated where they are.
"""

import math

import numpy as np
import pytest

from broken_sites import scaled_noise
from fedbandit.audit.attacks import prefetched
from fedbandit.audit.measure import FALSE_ALARM
from fedbandit.audit.one_run import Guesses, audit_run, bound_of, guess, live_run, simulated_run
from fedbandit.audit.suite import AuditRow, check_one_run
from fedbandit.privacy.noise import GRID


def no_noise(epsilon, count):
    return [0] * count


def run_of(source):
    return lambda coins: live_run(1.0, coins, coins, source)


def test_the_bound_keeps_its_confidence():
    """Right guesses with exactly e / (1 + e), at 5 %: of 400 bounds, more than 46 exceed 1 once in 10^6."""
    source, too_high = np.random.default_rng(0), 0
    for _ in range(400):
        right = int(source.binomial(500, math.e / (1.0 + math.e)))
        too_high += bound_of(Guesses(right, 500, 700), 0.05) > 1.0
    assert 0 < too_high <= 46


def test_guesses_are_right_as_often_as_epsilon_allows():
    """Discrete Laplace noise; 40,000 guesses differ from e / (1 + e) by more than 0.011 once in 10^6. Fixed seed."""
    source, q = np.random.default_rng(1), 1 - math.exp(-1.0 / GRID)
    coins = source.random(60_000) < 0.5
    noise = source.geometric(q, 60_000) - source.geometric(q, 60_000)
    found = guess((coins * GRID + noise).tolist(), coins.tolist())
    assert found.coins == 60_000
    assert 38_000 < found.guesses < 44_000
    assert found.right / found.guesses == pytest.approx(math.e / (1.0 + math.e), abs=0.011)


def test_nothing_guessed_shows_nothing():
    assert bound_of(Guesses(0, 0, 100), FALSE_ALARM) == 0.0
    assert bound_of(Guesses(50, 100, 100), FALSE_ALARM) == 0.0
    assert bound_of(Guesses(100, 100, 100), FALSE_ALARM) == pytest.approx(1.9, abs=0.1)


def test_live_sites_keep_their_claim_and_no_noise_is_noticed():
    """300 coins; without noise each guess is right, which shows more than 2.5."""
    fine = check_one_run("one run", run_of(prefetched()), 1.0, canaries=300)
    assert not fine.refuted, fine
    bare = check_one_run("one run", run_of(no_noise), 1.0, canaries=300)
    assert bare.refuted
    assert bare.at_least > 2.5
    assert bare.words == f"at least {bare.at_least:.2f}, broken at the claimed epsilon 1"
    assert bare.size == 300


def test_the_clock_ends_an_audit_of_one_run():
    """After its time no run follows."""
    asked = []

    def run(coins):
        asked.append(coins)
        return Guesses(30, 40, 60)

    assert audit_run(run, claimed=1.0, false_alarm=1e-3, canaries=150).samples == 120
    assert asked == [150, 90, 30]
    asked.clear()
    assert audit_run(run, claimed=1.0, false_alarm=1e-3, canaries=150, seconds=0.0).samples == 40
    assert asked == [150]


def test_what_is_measured_is_said_with_the_bound_of_the_verdict():
    fine = AuditRow("one run of live sites", 1.0, 0.731, 2_000, 1.0)
    assert fine.words == "at least 0.73, not broken at the claimed epsilon 1"
    close = AuditRow("one run of live sites", 1.0, 1.002, 2_000, 1.0, "the lower bound exceeds the claim")
    assert close.words == "at least 1.002, broken at the claimed epsilon 1"


@pytest.mark.slow
def test_noise_too_small_by_two_is_noticed_at_live_sites():
    """3,000 coins show 1.5 of 2 with a standard deviation of 0.08: not above 1 once in 10^9."""
    row = check_one_run("one run", run_of(scaled_noise(2.0)), 1.0)
    assert row.refuted, row
    assert not check_one_run("one run", run_of(prefetched()), 1.0).refuted


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_simulator_keeps_its_claim_and_smaller_noise_is_noticed(seed):
    """3,000 coins show 0.72 of 1 with a standard deviation of 0.05, 1.5 of 2 and 4.5 without noise; fixed seeds."""
    assert bound_of(simulated_run(1.0, 3_000, seed), FALSE_ALARM) < 1.0
    assert bound_of(simulated_run(1.0, 3_000, seed, 2.0), FALSE_ALARM) > 1.0
    assert bound_of(simulated_run(1.0, 3_000, seed, 1e9), FALSE_ALARM) > 3.0
