"""The urn of unknown arms: each test is a sentence of docs/operations.md on who gets an arm that nobody knows yet.

Statistical tests have fixed seeds and fail by chance in less than one of 10^6 runs, each.
"""

# ruff: noqa: S311  # draws from explicit seeds

import math
from collections import Counter, defaultdict
from random import Random

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit.rules.urn import KNOWN, MOST_APART, any_chance, any_drawn, chance, drawn, rest_of
from live import serving

FEDERATIONS, DECISIONS = 10_000, 100
ABOVE_CHANCE = 0.17
"""By how much the best guess of the next arm is right more often than one among as many arms, at most."""


# ---------------------------------------------------------------- one draw

counts = st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.integers(0, 40)), min_size=1, max_size=8).filter(
    lambda arms: any(unknown for _, unknown, _ in arms)
)


@given(counts, st.booleans())
def test_no_unknown_arm_is_certain_or_impossible(arms, waits):
    """Whatever was given before: every unknown arm has a chance, and all of it if no other arm is possible."""
    n, unknown, enough = zip(*arms, strict=True)
    rest = rest_of(sum(unknown), len(n))
    found = [chance(n, unknown, enough, waits, rest, k) for k in range(len(n))]
    others = [any_chance(n, unknown, k) for k in range(len(n))]
    known = chance(n, unknown, enough, waits, rest, KNOWN)
    assert sum(found) + known == pytest.approx(1.0, abs=1e-12)
    assert sum(others) == pytest.approx(1.0, abs=1e-12)
    for k in range(len(n)):
        assert (found[k] > 0.0) == unknown[k]
        if len(n) > 1:
            assert found[k] <= max(0.8, 16 / (15 + sum(unknown)))
            assert 0.0 < others[k] < 1.0
        if unknown[k]:
            assert found[k] >= 1 / (16 * sum(unknown) + 4)


@given(counts, st.booleans())
def test_arms_are_given_as_often_as_they_have_balls(arms, waits):
    """A comb of draws with a tooth for each ball."""
    n, unknown, enough = zip(*arms, strict=True)
    rest = rest_of(sum(unknown), len(n))
    balls = round(1.0 / min(p for p in (chance(n, unknown, enough, waits, rest, k) for k in range(len(n))) if p > 0.0))
    balls *= 16
    comb = Counter(drawn(n, unknown, enough, waits, rest, (i + 0.5) / balls) for i in range(balls))
    assert {k: comb[k] / balls for k in comb} == pytest.approx(
        {k: p for k in (KNOWN, *range(len(n))) if (p := chance(n, unknown, enough, waits, rest, k)) > 0.0},
        abs=2.0 / balls,
    )
    every = Counter(any_drawn(n, unknown, (i + 0.5) / 5000) for i in range(5000))
    assert {k: every[k] / 5000 for k in every} == pytest.approx(
        {k: any_chance(n, unknown, k) for k in range(len(n))}, abs=2.0 / 5000
    )


@pytest.mark.parametrize("u", [0.0, 1.0 - 2.0**-53])
def test_the_ends_of_a_draw(u):
    """The first ball is of the first arm with the fewest decisions; the last of the arm before it, or of the known."""
    assert drawn((3, 1, 1), (1, 1, 1), (9, 9, 9), False, 0, u) == (1 if u == 0.0 else 0)
    assert drawn((3, 1, 1), (1, 1, 0), (9, 9, 9), False, 4, u) == (1 if u == 0.0 else KNOWN)
    assert any_drawn((3, 1, 1), (1, 0, 0), u) == (0 if u == 0.0 else 2)


def test_an_arm_that_has_had_enough_waits():
    """For its late rewards: with one ball, beside four of what is known."""
    assert chance((5, 9), (1, 0), (5, 5), True, 4, 0) == 0.2
    assert chance((4, 9), (1, 0), (5, 5), True, 4, 0) == 0.8
    assert chance((5, 9), (1, 0), (5, 5), False, 4, 0) == 0.8


# ---------------------------------------------------------------- how far counts are apart


def apart(num_arms, decisions, most):
    """The probability that two counts are ever further apart than ``most``, exactly, but for paths below 1e-18."""
    states, beyond = {(0,) * num_arms: 1.0}, 0.0
    for _ in range(decisions):
        after = defaultdict(float)
        for leads, p in states.items():
            chances = [chance(leads, (1,) * num_arms, leads, False, 0, k) for k in range(num_arms)]
            for k in range(num_arms):
                found = list(leads)
                found[k] += 1
                least = min(found)
                if max(found) - least > most:
                    beyond += p * chances[k]
                elif p * chances[k] > 1e-18:
                    after[tuple(sorted(it - least for it in found))] += p * chances[k]
        states = after
    return beyond


@pytest.mark.parametrize(("num_arms", "decisions"), [(2, 1000), pytest.param(3, 1000, marks=pytest.mark.slow)])
def test_counts_stay_near_each_other(num_arms, decisions):
    """The probability that two are ever further apart than stated is below 10^-9."""
    assert 0.0 < apart(num_arms, decisions, MOST_APART) < 1e-9


def balls_of(leads):
    return 16 >> np.minimum(leads - leads.min(axis=-1, keepdims=True), 4)


def first_decisions(num_arms, seed):
    """Of so many federations: arms in order [federation, decision], the largest difference, and the best guesses."""
    source = np.random.default_rng(seed)
    n = np.zeros((FEDERATIONS, num_arms), int)
    rows, arms = np.arange(FEDERATIONS), np.zeros((FEDERATIONS, DECISIONS), int)
    furthest, guesses = 0, 0
    for t in range(DECISIONS):
        balls = balls_of(n)
        each = (source.random(FEDERATIONS) * balls.sum(axis=1)).astype(int)
        arms[:, t] = (each[:, None] >= balls.cumsum(axis=1)).sum(axis=1)
        guesses += (arms[:, t] == balls.argmax(axis=1)).sum()
        n[rows, arms[:, t]] += 1
        furthest = max(furthest, (n.max(axis=1) - n.min(axis=1)).max())
    return arms, n, furthest, guesses / arms.size


@pytest.mark.parametrize("num_arms", [2, 3, 4, 5, 10])
def test_the_first_decisions_of_many_federations(num_arms):
    """Balance, runs, and the guess of somebody who knows the urn and every decision so far.

    The urn here is written out for many federations at once; that it is the rule's is checked by a few of them.
    """
    arms, n, furthest, guessed = first_decisions(num_arms, seed=num_arms)
    assert furthest <= MOST_APART, "by chance in less than one of 10^6 runs: see above"
    overall = np.bincount(arms.ravel(), minlength=num_arms) / arms.size
    assert np.abs(overall - 1.0 / num_arms).max() < 6.0 * math.sqrt(0.25 / arms.size)
    assert n.std(axis=0).max() < 1.3, "independent draws vary by 5 with two arms"
    margin = 6.0 * math.sqrt(0.25 / arms.size)
    assert 1.0 / num_arms < guessed + margin
    assert guessed - margin < 1.0 / num_arms + ABOVE_CHANCE
    repeats = (arms[:, 1:] == arms[:, :-1]).mean()
    assert 0.05 / num_arms < repeats < 1.0 / num_arms, "no rotation, which never repeats, and rarer than by chance"
    patterns = Counter(map(tuple, arms[:, :6].tolist()))
    assert len(patterns) > min(num_arms**6, 5000) // 2, "nearly every beginning is possible"
    assert max(patterns.values()) / FEDERATIONS < 0.2


@pytest.mark.parametrize("num_arms", [2, 3, 5])
def test_many_federations_draw_from_the_rule_s_urn(num_arms):
    source = Random(num_arms)
    for _ in range(200):
        n = [0] * num_arms
        for _ in range(40):
            balls = balls_of(np.array(n))
            expected = [chance(n, (1,) * num_arms, n, False, 0, k) for k in range(num_arms)]
            assert (balls / balls.sum()).tolist() == expected
            n[drawn(n, (1,) * num_arms, n, False, 0, source.random())] += 1


@pytest.mark.parametrize("num_arms", [2, 3, 5])
def test_batches_fill_as_fast_as_in_turn(num_arms):
    """While nothing is known every decision goes to an arm whose batch is open: the last is full after as many."""
    source, size, late = Random(7), 12, []
    for _ in range(500):
        n, decisions = [0] * num_arms, 0
        while any(unknown := [k < size for k in n]):
            arm = drawn(n, unknown, [size] * num_arms, False, rest_of(sum(unknown), num_arms), source.random())
            decisions += 1
            if arm != KNOWN:
                n[arm] += 1
        late.append(decisions - size * num_arms)
    assert sum(late) / len(late) < 0.05 * size * num_arms, "the index had what it may give meanwhile"
    assert min(late) == 0


def test_ten_thousand_decisions_of_a_real_agent(tmp_path):
    """Over HTTP, with the system's randomness: each propensity is that of the urn, given all that staff have seen."""
    given, expected, variance = [0] * 3, [0.0] * 3, [0.0] * 3
    with serving(tmp_path, keep=20_000) as agent, httpx.Client(base_url=agent.url, timeout=30.0) as http:
        for _ in range(10):
            answer = http.post("/v1/decisions", json={"count": 1000})
            assert answer.status_code == 201, answer.text
            for it in answer.json()["decisions"]:
                chances = [chance(given, (1, 1, 1), given, False, 0, k) for k in range(3)]
                assert it["propensity"] == chances[it["arm"]]
                for k, p in enumerate(chances):
                    assert 0.0 < p < 1.0
                    expected[k], variance[k] = expected[k] + p, variance[k] + p * (1.0 - p)
                given[it["arm"]] += 1
                assert max(given) - min(given) <= MOST_APART + 3, "by chance in less than one of 10^9 runs"
    for k in range(3):
        assert abs(given[k] - expected[k]) < 6.0 * math.sqrt(variance[k])
