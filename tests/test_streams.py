"""The simulator's randomness: right distributions, independent names, and a pure function of its name.

Kolmogorov-Smirnov thresholds are for a false alarm of 1e-7: D > sqrt(-ln(5e-8) / 2n). Seeds are fixed.
"""

import math

import numpy as np
import pytest
from numba import njit
from scipy import stats

from fedbandit.simulation.streams import (
    NOISE,
    REWARDS,
    beta,
    coarse_normal,
    draw,
    laplace,
    standard_normal,
    stream,
    student_t,
    uniform,
    whole_below,
)

COUNT = 400_000
LIMIT = math.sqrt(-math.log(5e-8) / (2 * COUNT))


@njit  # not cached: a cache would not notice a change in streams.py
def fill(kind, first, second, out):
    name = stream(7, 3, NOISE, 2, 1)
    for c in range(len(out)):
        bits = draw(name, c)
        if kind == 0:
            out[c] = uniform(bits)
        elif kind == 1:
            out[c] = standard_normal(bits)
        elif kind == 2:
            out[c] = laplace(bits)
        elif kind == 3:
            out[c] = beta(bits, first, second)
        elif kind == 6:
            out[c] = student_t(bits, first)
        elif kind == 5:
            out[c] = coarse_normal(draw(name, c // 2), np.uint64(c % 2))
        else:
            out[c] = whole_below(bits, 7)


def sample(kind, first=1.0, second=1.0):
    out = np.zeros(COUNT)
    fill(kind, first, second, out)
    return out


@pytest.mark.parametrize(
    ("kind", "first", "second", "truth"),
    [
        (0, 1.0, 1.0, stats.uniform()),
        (1, 1.0, 1.0, stats.norm()),
        (5, 1.0, 1.0, stats.norm()),
        (6, 1.2, 1.0, stats.t(1.2)),
        (6, 3.0, 1.0, stats.t(3.0)),
        (6, 1e6, 1.0, stats.norm()),
        (2, 1.0, 1.0, stats.laplace()),
        (3, 2.0, 3.0, stats.beta(2.0, 3.0)),
        (3, 0.3, 0.7, stats.beta(0.3, 0.7)),
        (3, 40.0, 1.0, stats.beta(40.0, 1.0)),
    ],
    ids=[
        "uniform",
        "normal",
        "coarse normal",
        "t(1.2)",
        "t(3)",
        "t(1e6)",
        "laplace",
        "beta(2,3)",
        "beta(.3,.7)",
        "beta(40,1)",
    ],
)
def test_distribution(kind, first, second, truth):
    assert stats.kstest(sample(kind, first, second), truth.cdf).statistic < LIMIT


def test_two_normals_of_one_word_are_uncorrelated():
    both = sample(5).reshape(-1, 2)
    for left, right in ((both[:, 0], both[:, 1]), (np.abs(both[:, 0]), np.abs(both[:, 1]))):
        assert abs(np.corrcoef(left, right)[0, 1]) < 6 / math.sqrt(len(both))


@pytest.mark.parametrize("kind", [1, 5], ids=["normal", "coarse normal"])
def test_the_tails_of_the_normal(kind):
    """The tail beyond the ziggurat's last edge: about 103 of 400,000 draws; 6 standard deviations either way."""
    far = np.abs(sample(kind)) > 3.6541528853610088
    expected = COUNT * 2 * stats.norm.sf(3.6541528853610088)
    assert abs(far.sum() - expected) < 6 * math.sqrt(expected)


def test_the_tails_of_students_t():
    """Beyond 1,000 with 1.2 degrees of freedom: about 80 of 400,000 draws; 6 standard deviations either way."""
    far = np.abs(sample(6, 1.2)) > 1000.0
    expected = COUNT * 2 * stats.t(1.2).sf(1000.0)
    assert expected > 50
    assert abs(far.sum() - expected) < 6 * math.sqrt(expected)


def test_whole_numbers_are_even():
    counts = np.bincount(sample(4).astype(int), minlength=7)
    assert stats.chisquare(counts).pvalue > 1e-7


def test_neighbouring_draws_and_streams_are_uncorrelated():
    def numbers(trial, agent, arm):
        name = np.uint64(stream(0, trial, REWARDS, agent, arm))
        return np.array([uniform(np.uint64(draw(name, c))) for c in range(20_000)])

    one = numbers(0, 0, 0)
    for other in (np.roll(one, 1), numbers(1, 0, 0), numbers(0, 1, 0), numbers(0, 0, 1)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / math.sqrt(20_000)


def test_every_part_of_a_name_counts():
    names = {
        int(stream(seed, trial, purpose, agent, arm))
        for seed in range(3)
        for trial in range(3)
        for purpose in (REWARDS, NOISE)
        for agent in range(3)
        for arm in range(3)
    }
    assert len(names) == 3 * 3 * 2 * 3 * 3
