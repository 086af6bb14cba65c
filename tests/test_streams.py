"""The simulator's randomness: right distributions, independent names, and a pure function of its name.

Kolmogorov-Smirnov thresholds are for a false alarm of 1e-7: D > sqrt(-ln(5e-8) / 2n). Seeds are fixed.
"""

import math

import numpy as np
import pytest
from numba import njit
from scipy import stats

from fedbandit.engine.compiled import compilable
from fedbandit.engine.layout import new_population, no_tape
from fedbandit.engine.streams import (
    NOISE,
    REWARDS,
    SLAB_EDGES,
    SLABS,
    SimulatedDraws,
    beta,
    draw,
    laplace,
    name_streams,
    normal_in_slab,
    slab_of,
    standard_normal,
    stream,
    student_t,
    uniform,
    whole_below,
)
from fedbandit.policies.protocol import fill_with_normals, highest_draw
from fedbandit.rules.choose import highest_drawn
from fedbandit.rules.mean import trailing_zeros

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
            out[c] = normal_in_slab(slab_of(draw(name, c // 8), c), draw(name, len(out) + c))
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
        "normal by slabs",
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


def test_eight_normals_of_one_word_are_uncorrelated():
    rows = sample(5).reshape(-1, 8).T
    for of in (np.corrcoef(rows), np.corrcoef(np.abs(rows))):
        assert np.abs(of[~np.eye(8, dtype=bool)]).max() < 6.5 / math.sqrt(COUNT / 8)


@pytest.mark.parametrize("kind", [1, 5], ids=["normal", "normal by slabs"])
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


# ---------------------------------------------------------------- normals that are drawn no finer than needed


def test_slabs_are_equally_likely_and_symmetric():
    assert np.diff(stats.norm.cdf(SLAB_EDGES)) == pytest.approx(1 / SLABS, rel=1e-9)
    assert np.array_equal(SLAB_EDGES, -SLAB_EDGES[::-1])


@njit
def fill_slab(slab, out):
    name = stream(1, 2, NOISE, 3, slab)
    for c in range(len(out)):
        out[c] = normal_in_slab(slab, draw(name, c))


@pytest.mark.parametrize("slab", [0, 1, 77, 127, 128, 200, 254, 255])
def test_a_normal_lies_in_its_slab_as_a_normal_does(slab):
    """Given its slab, the place of a normal's quantile in it is uniform: Kolmogorov and Smirnov, as above."""
    out = np.zeros(100_000)
    fill_slab(np.uint64(slab), out)
    assert SLAB_EDGES[slab] <= out.min() <= out.max() <= SLAB_EDGES[slab + 1]
    place = stats.norm.cdf(out) * SLABS - slab
    assert stats.kstest(place, stats.uniform().cdf).statistic < math.sqrt(-math.log(5e-8) / (2 * len(out)))


@njit
def choose(streams, tape, means, spreads, likely, first, arms, other_arms):
    """The arms by ``highest_draw``, and by all normals of the same decisions."""
    mine = streams[0]
    name_streams(np.uint64(5), np.uint64(0), mine, 0)
    row = np.zeros(len(means))
    for c in range(len(arms)):
        draws = SimulatedDraws(0, first + c, np.uint64(likely), mine, tape)
        arms[c] = highest_draw(means, spreads, draws)
        fill_with_normals(row, draws)
        other_arms[c] = highest_drawn(means, spreads, row)


def chosen(means, spreads, likely, count):
    from fedbandit.policies import gossip_ucb

    compilable(highest_drawn)
    terms = np.zeros(1, [("num_agents", "i8")])
    streams = new_population(gossip_ucb.PAGE, terms, len(means)).streams
    arms = np.zeros((2, count), np.int64)
    choose(streams, no_tape(), np.array(means), np.array(spreads), likely, 1, *arms)
    return arms


WORLDS = {
    "a clear leader": ([0.9, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0, 0.1, 0.2, 0.3, 0.6], [0.01, *[0.1] * 10]),
    "all alike": ([0.5] * 11, [0.1] * 11),
    "without a spread": ([0.1, 0.7, 0.7, 0.6], [0.0, 0.0, 0.0, 0.0]),
    "one is certain": ([0.5, 0.45, -math.inf], [0.0, 0.1, 0.0]),
    "two arms": ([0.3, 0.2], [0.1, 0.2]),
}


@pytest.mark.parametrize("world", WORLDS)
def test_the_highest_draw_is_the_highest_of_all_normals_whoever_is_thought_likely(world):
    means, spreads = WORLDS[world]
    for likely in range(len(means)):
        arms, other_arms = chosen(means, spreads, likely, 20_000)
        assert np.array_equal(arms, other_arms)


def test_the_highest_of_two_draws_as_often_as_it_should_be():
    """Normal differences are normal; 6 standard deviations."""
    arms, _ = chosen([0.3, 0.2], [0.1, 0.2], 0, COUNT)
    chance = stats.norm.cdf(0.1 / math.hypot(0.1, 0.2))
    assert abs((arms == 0).mean() - chance) < 6 * math.sqrt(chance * (1 - chance) / COUNT)


@njit
def levels(numbers, out):
    for c in range(len(numbers)):
        out[c] = trailing_zeros(numbers[c])


def test_the_level_of_a_node_in_compiled_code_and_in_python():
    compilable(trailing_zeros)
    numbers = np.array([*range(1, 3000), 2**30, 2**30 + 2**29, 2**31 - 1], np.int32)
    out = np.zeros(len(numbers), np.int64)
    levels(numbers, out)
    expected = [len(bits) - len(bits.rstrip("0")) for bits in map("{:b}".format, numbers.tolist())]
    assert out.tolist() == expected == [trailing_zeros(n) for n in numbers.tolist()]
