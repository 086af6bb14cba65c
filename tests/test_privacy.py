"""Noise, ledger and mechanism: the code that docs/privacy.md proves things about.

OpenDP's randomness has no seed. Every statistical test states how often it fails by chance; all of them
together less than once in a million runs.
"""

import ast
import json
import math
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedbandit import FedBatch, FedLinear, FedUCB, GossipUCB, InvalidArgument, PrivacyWarning, Tape, replay
from fedbandit.policies import POLICIES
from fedbandit.privacy.ledger import AlreadyReleased, Ledger
from fedbandit.privacy.mechanism import Mechanism, ReleasedInterval
from fedbandit.privacy.noise import GRID, from_grid, laplace, measurement_of, to_grid, to_steps
from fedbandit.rules.batch import batch_size
from fedbandit.rules.mean import last_end, trailing_zeros
from fedbandit.world import graph
from test_laws import SOURCE, imports_of

FINITE = st.floats(allow_nan=False, allow_infinity=False)
RANGES = st.tuples(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12)).filter(lambda pair: pair[0] < pair[1])


def silent(epsilon, count):
    """Noise of zero, for looking at sums."""
    return [0] * count


def batches(num_arms=1, epsilon=1.0, low=0.0, high=1.0, first_batch=None, noise=laplace):
    return Mechanism(FedBatch(epsilon, first_batch=first_batch), 3, num_arms, low, high, noise)


def tree(num_arms=1, epsilon=1.0, low=0.0, high=1.0, max_pulls=7, noise=laplace):
    return Mechanism(FedUCB(epsilon, horizon=max_pulls - 1), 3, num_arms, low, high, noise)


def state(mechanism):
    """All that survives, through JSON."""
    rows = {arm: json.loads(json.dumps(mechanism.kept(arm))) for arm in range(mechanism.num_arms)}
    return rows, mechanism.ledger.marks if mechanism.ledger else {}


# ---------------------------------------------------------------- noise


def exact_laplace(scale_num, scale_den, bit):
    """Canonne, Kamath, Steinke 2020, Algorithm 2: P(z) ~ exp(-|z| scale_den / scale_num), in whole numbers alone."""

    def below(limit):
        while True:
            value = 0
            for _ in range((limit - 1).bit_length()):
                value = 2 * value + bit()
            if value < limit:
                return value

    def exp_minus(num, den):  # true with probability exp(-num / den), num <= den
        k = 1
        while below(den * k) < num:
            k += 1
        return k % 2 == 1

    while True:
        u = below(scale_num)
        if not exp_minus(u, scale_num):
            continue
        v = 0
        while exp_minus(1, 1):
            v += 1
        magnitude, negative = (u + scale_num * v) // scale_den, bit()
        if magnitude or not negative:
            return -magnitude if negative else magnitude


def cell_probabilities(scale, edges):
    """Exact: P(z < edge) for whole edges, as differences."""
    q = math.exp(-1 / scale)

    def cdf(z):  # P(Z <= z)
        return 1 - q ** (z + 1) / (1 + q) if z >= 0 else q**-z / (1 + q)

    return np.diff([0.0, *(cdf(edge - 1) for edge in edges), 1.0])


@pytest.mark.parametrize("sampler", ["opendp", "ours"])
@pytest.mark.parametrize("epsilon", [GRID, GRID / 3, 1.0])
def test_the_noise_is_discrete_laplace(sampler, epsilon):
    """Chi-square over 10 to 14 cells against exact probabilities. False alarm: below 1e-7 (ours has a fixed seed)."""
    scale, bits = GRID / epsilon, random.Random(7)  # noqa: S311
    if sampler == "opendp":
        drawn = laplace(epsilon, 40_000)
    else:
        drawn = [exact_laplace(round(scale), 1, lambda: bits.getrandbits(1)) for _ in range(20_000)]
    edges = sorted(
        {round(scale * x) for x in (-4, -3, -2, -1, -0.5, -0.1, 0, 0.1, 0.5, 1, 2, 3, 4)}
        | ({1} if scale < 4 else set())
    )
    expected = len(drawn) * cell_probabilities(scale, edges)
    seen = np.bincount(np.searchsorted(edges, drawn, side="right"), minlength=len(edges) + 1)
    assert expected.min() > 50, "the chi-square approximation needs full cells"
    assert stats.chisquare(seen, expected).pvalue > 1e-8


def test_the_last_bits_of_the_noise_are_there():
    """At scale 2^16 the four last bits are even to 1e-9: no coarser grid inside. False alarm: 1e-8."""
    assert stats.chisquare(np.bincount(np.array(laplace(1.0, 40_000)) % 16, minlength=16)).pvalue > 1e-8


@pytest.mark.parametrize("epsilon", [1e-6, 0.05, 1 / 21, 0.1, 0.3, 1.0, 3.0, 7.7, 100.0, 1e6])
def test_opendp_confirms_the_epsilon(epsilon):
    """Its privacy map says that a change by GRID costs at most epsilon, and not much less."""
    assert epsilon * (1 - 1e-12) <= measurement_of(epsilon).map(GRID) <= epsilon


def test_draws_are_fresh():
    """Two lists of 8 draws at scale 2^16 are equal less than once in 10^40."""
    assert laplace(1.0, 8) != laplace(1.0, 8)


@given(FINITE, RANGES)
def test_every_reward_lies_on_the_grid(reward, ends):
    """The sensitivity proof: 0 <= steps <= GRID, whatever the reward and the range."""
    steps = to_grid(reward, *ends)
    assert isinstance(steps, int)
    assert 0 <= steps <= GRID


def test_the_grid_keeps_what_matters():
    assert [to_grid(reward, 0.0, 1.0) for reward in (-5, 0, 0.5, 1, 7)] == [0, 0, GRID // 2, GRID, GRID]
    assert from_grid(to_grid(0.3, -1.0, 3.0), -1.0, 3.0) == pytest.approx(0.3, abs=4 / GRID)


@given(RANGES, st.floats(0.0, 1.0), st.floats(-4.0, 4.0))
def test_steps_and_rewards_are_each_others_inverse(ends, share, weight):
    value = weight * ends[0] + share * (ends[1] - ends[0])
    size = abs(weight * ends[0]) + ends[1] - ends[0]
    assert from_grid(to_steps(value, *ends, weight), *ends, weight) == pytest.approx(value, abs=1e-12 * size)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, True, "1", None])
def test_what_is_no_number_is_refused(reward):
    for mechanism in (batches(), tree(), Mechanism(GossipUCB(), 3, 1, 0.0, 1.0)):
        before = state(mechanism)
        with pytest.raises(InvalidArgument, match="reward must be a finite number"):
            mechanism.take(0, reward)
        assert state(mechanism) == before


# ---------------------------------------------------------------- pages with real rewards


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, GRID)), max_size=200), st.integers(1, 9))
def test_batches_partition_the_rewards(pulls, first_batch):
    """Every reward is in one release or waits; a release is the sum of its own rewards and no others."""
    mechanism = batches(3, first_batch=first_batch, noise=silent)
    seen, covered, expected = [[], [], []], [0, 0, 0], [0.0] * 3
    for arm, steps in pulls:
        seen[arm].append(steps)
        precision = mechanism.me.precision[arm]
        interval = mechanism.take(arm, steps / GRID)
        if interval is None:
            assert mechanism.me.total[arm] == sum(seen[arm][covered[arm] :])
            continue
        assert interval == ReleasedInterval(0, covered[arm] + 1, len(seen[arm]))
        assert interval.last - covered[arm] == batch_size(covered[arm], first_batch, 1.25)
        weight = 1 - precision / mechanism.me.precision[arm]
        expected[arm] += weight * (np.mean(seen[arm][covered[arm] :]) - expected[arm])
        assert mechanism.me.x_mean[arm] == pytest.approx(expected[arm], abs=1e-6)
        assert mechanism.me.total[arm] == 0, "the raw sum is gone"
        covered[arm] = interval.last


@given(st.lists(st.integers(0, GRID), min_size=1, max_size=70))
def test_the_tree_is_algorithm_2(steps):
    """The release after pull n is Algorithm 2's newest interval; the published mean is that of all n rewards."""
    mechanism = tree(max_pulls=70, noise=silent)
    for n in range(1, len(steps) + 1):
        interval = mechanism.take(0, steps[n - 1] / GRID)
        assert interval == ReleasedInterval(trailing_zeros(n), (n & (n - 1)) + 1, n)
        assert mechanism.me.x_mean[0] == sum(steps[:n]) / n


@given(st.integers(1, 70), st.randoms(use_true_random=False))
def test_every_interval_of_the_tree_keeps_its_noise(pulls, source):
    """The noise of a prefix is the sum of its intervals' draws, in whole numbers of any size (Algorithms 2 and 3)."""
    drawn = [source.randint(-(10**30), 10**30) for _ in range(pulls)]
    given_out = iter(drawn)
    mechanism = tree(max_pulls=70, noise=lambda *_: [next(given_out)])
    for n in range(1, pulls + 1):
        mechanism.take(0, 0.0)
        expected, end = 0, n
        while end:
            expected += drawn[end - 1]
            end &= end - 1
        assert mechanism.me.slots[0][trailing_zeros(n)] == expected
        assert mechanism.me.x_mean[0] == expected / n


def test_sums_and_noise_are_whole_numbers():
    """Also after a restart: no rounding of floating point ever touches them."""
    for make in (batches, tree):
        mechanism = make(max_pulls=99) if make is tree else make()
        for i in range(99):
            mechanism.take(0, i / 99)
            again = make(max_pulls=99) if make is tree else make()
            again.restore(*state(mechanism))
            mechanism = again
            held = [mechanism.me.total[0], *(mechanism.me.slots[0] if make is tree else [])]
            assert all(type(x) is int for x in held)


def test_the_tree_is_the_engines():
    """The same rewards and noise give the engine's noisy mean, so that an audit of one is about the other."""
    world = Tape.random(graph.path(3), 3, 40, seed=3, reward_range=(0.0, 1.0))
    rewards = np.round(np.clip(world.rewards, 0, 1) * GRID) / GRID
    drawn = np.round(world.noise * GRID * 6)  # 41 pulls: 6 intervals hold a reward
    tape = Tape(rewards, world.edges, world.picks, world.graph, drawn / (GRID * 6), world.reward_range)
    trace = replay(tape, FedUCB(1.0))
    ends = [iter(drawn[1:, 0, arm].astype(int)) for arm in range(3)]
    for arm in range(3):
        mechanism = tree(max_pulls=41, noise=lambda _, count, arm=arm: [int(next(ends[arm]))])
        times = [0, *(t for t in range(1, 41) if trace.arms[t - 1, 0] == arm)]
        for t in times:
            mechanism.take(0, rewards[t, 0, arm])
            mean = from_grid(mechanism.me.x_mean[0], 0.0, 1.0)
            assert mean == pytest.approx(trace.x_mean[t, 0, arm], abs=1e-12)


def test_what_a_reward_costs():
    assert batches(2, 0.5).epsilon() == 0.5
    assert batches(2, 0.5).epsilon(group=3) == 1.5
    for max_pulls in (2, 7, 8, 1000, 10**6):
        mechanism = tree(1, 2.0, max_pulls=max_pulls)
        assert mechanism.epsilon() == pytest.approx(2.0)
        assert mechanism.epsilon(group=4) == pytest.approx(8.0)
        per_release = mechanism.ledger.epsilon_per_release
        assert measurement_of(per_release).map(GRID) * max_pulls.bit_length() <= 2.0 * (1 + 1e-12)
    assert Mechanism(GossipUCB(), 3, 1, 0.0, 1.0).epsilon() == math.inf
    with pytest.raises(InvalidArgument, match="group must be"):
        batches().epsilon(group=0)


def test_no_reward_is_charged_more_than_epsilon():
    """Over a whole tree and many batches: what the releases cost each reward, and the one that pays all."""

    def charged(mechanism):
        spent = [0.0] * 101
        for _ in range(100):
            interval = mechanism.take(0, 1.0)
            for pull in range(interval.first, interval.last + 1) if interval else ():
                spent[pull] += mechanism.ledger.epsilon_per_release
        return spent[1:]

    spent = charged(tree(max_pulls=100, noise=silent))
    assert max(spent) == spent[0] == pytest.approx(1.0)
    assert set(charged(batches(noise=silent))) == {0.0, 1.0}


def test_the_tree_refuses_to_go_past_its_end():
    mechanism = tree(2, max_pulls=3)
    for _ in range(3):
        mechanism.take(0, 0.5)
    before = state(mechanism)
    with pytest.raises(InvalidArgument, match="max_pulls must be at least 4 for pull 4 of arm 0, not 3"):
        mechanism.take(0, 0.5)
    assert state(mechanism) == before
    assert mechanism.take(1, 0.5).last == 1, "the other arm has pulls left"


def test_release_carries_noise():
    """A batch of rewards 1 at epsilon 1 comes out exactly 1 once in 130,000; two of four once in 3 10^9."""
    noises = []

    def watched(epsilon, count):
        noises.extend(drawn := laplace(epsilon, count))
        return drawn

    mechanism, means = batches(first_batch=12, noise=watched), []
    for _ in range(48):
        if interval := mechanism.take(0, 1.0):
            means.append(mechanism.me.x_mean[0])
            assert interval.last - interval.first + 1 == 12
    assert len(noises) == len(means) == 4
    assert sum(noise != 0 for noise in noises) >= 3, "every release carries noise, not the first alone"
    assert means[0] == (12 * GRID + noises[0]) / 12  # in this order: else the last bit differed in 3 of 300 runs
    assert len({GRID, *means}) >= 4


def test_noise_is_what_was_drawn():
    mechanism = batches(low=-1.0, first_batch=2, noise=lambda epsilon, count: [GRID // 4])
    for _ in range(4):  # so in the first batch and in every later one
        mechanism.take(0, -1.0)
        assert mechanism.take(0, 1.0)
        mean = from_grid(mechanism.me.x_mean[0], -1.0, 1.0)
        assert mean == pytest.approx(0.25)  # the mean 0, and 2 * (1/4) / 2


@pytest.mark.parametrize("reward", [-5.0, 7.0])
def test_rewards_are_clamped(reward):
    end = 0.0 if reward < 0 else 1.0
    for make in (batches, tree):
        one, other = make(noise=silent), make(noise=silent)
        for _ in range(3):
            one.take(0, reward)
            other.take(0, end)
        assert state(one) == state(other)


def test_rewards_of_a_failed_draw_are_not_released_again():
    """Whether noise went out is unknown, so the ledger counts them as released, and the arm is closed."""
    failing = iter([OSError("no randomness")])

    def source(epsilon, count):
        for error in failing:
            raise error
        return [0]

    for mechanism in (batches(2, first_batch=1, noise=source), tree(2, noise=source)):
        failing = iter([OSError("no randomness")])
        with pytest.raises(OSError, match="no randomness"):
            mechanism.take(0, 1.0)
        for _ in range(2):
            with pytest.raises(AlreadyReleased):
                mechanism.take(0, 1.0)
        assert mechanism.me.n == [0, 0]
        assert mechanism.take(1, 1.0), "the other arm goes on"


def test_noise_must_be_whole_numbers():
    for make in (batches, tree):
        mechanism = make(noise=lambda epsilon, count: [np.random.default_rng(1).laplace()])
        mechanism.me.n[0] = mechanism.me.batch_end[0] - 1 if make is batches else 0
        with pytest.raises(TypeError, match="noise must be whole numbers"):
            mechanism.take(0, 1.0)


@pytest.mark.parametrize(
    "make", [lambda: batches(3, 0.7, -1, 2, noise=silent), lambda: tree(3, 0.7, -1, 2, 99, silent)]
)
def test_a_mechanism_survives_in_plain_numbers(make):
    """Stopped and brought back after every reward, it releases what it would have."""
    straight, stopped = make(), make()
    source = np.random.default_rng(5)
    for _ in range(200):
        arm, reward = int(source.integers(3)), float(source.normal())
        expected = straight.take(arm, reward)
        again = make()
        again.restore(*state(stopped))
        stopped = again
        assert stopped.take(arm, reward) == expected
        assert state(stopped) == state(straight)


def test_a_tree_survives_in_the_last_release_of_each_level():
    """Bounded, however many pulls: it refuses a second draw of any interval."""
    mechanism = tree(2, 0.7, -1, 2, 99, silent)
    source, intervals = np.random.default_rng(6), []
    for _ in range(150):
        arm = int(source.integers(2))
        intervals.append((arm, mechanism.take(arm, float(source.normal()))))
        again = tree(2, 0.7, -1, 2, 99, silent)
        again.restore(*state(mechanism))
        mechanism = again
        assert len(mechanism.ledger.marks) <= 2 * 7
        for k in range(2):
            for level in range(7):
                ends = [interval.last for a, interval in intervals if (a, interval.level) == (k, level)]
                mark = mechanism.ledger.released_up_to(k, level)
                assert mark == max(ends, default=0) == last_end(mechanism.me.n[k], level)
    for arm, interval in intervals:
        with pytest.raises(AlreadyReleased):
            mechanism.ledger.draw(arm, interval.first, interval.last, interval.level)


@pytest.mark.parametrize(
    "make", [lambda: batches(first_batch=2, noise=silent), lambda: tree(max_pulls=99, noise=silent)]
)
def test_a_row_that_is_older_than_the_last_release_is_refused(make):
    """Its noise would be drawn again."""
    mechanism, rows = make(), []
    for _ in range(12):
        rows.append(state(mechanism)[0])
        if mechanism.take(0, 1.0) is None:
            continue
        marks = mechanism.ledger.marks
        for old in rows:
            with pytest.raises(InvalidArgument, match="n of arm 0 must be that of a row as new as the release up to"):
                make().restore(old, marks)
        make().restore(*state(mechanism))


@pytest.mark.parametrize("change", [{"n": -5}, {"n": 0.5}, {"total": math.nan}, {"total": "1"}, {"releases": None}])
def test_an_impossible_state_is_refused(change):
    rows, marks = state(batches(noise=silent))
    with pytest.raises(InvalidArgument, match=r"(n|total|releases) of arm 0 must be a (whole|finite) number"):
        batches().restore({0: rows[0] | change}, marks)


def test_a_damaged_state_is_refused():
    rows, marks = state(batches(2))
    short = {name: value for name, value in rows[0].items() if name != "n"}
    for damaged, reason in (
        ({0: {}}, "n is missing"),
        ({0: short}, "n is missing"),
        ({0: rows[0] | {"extra": 1}}, "extra is unknown"),
        ({2: rows[0]}, "arm must be a whole number from -1 to 1"),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            batches(2).restore(damaged, marks)
    slots = state(tree())[0][0]["slots"]
    for damaged in (slots[:-1], 0, [slots]):
        with pytest.raises(InvalidArgument, match="slots of arm 0 must be a list of 32"):
            tree().restore({0: state(tree())[0][0] | {"slots": damaged}}, {})
    with pytest.raises(InvalidArgument, match="n of arm 0 must be at most 7"):
        tree().restore({0: state(tree())[0][0] | {"n": 8}}, {})
    for wrong in ({(0, 1): 1}, {(2, 0): 1}, {(0, 0): 0}, {(0, 0): 1.5}):
        with pytest.raises(InvalidArgument, match="must be a whole number"):
            batches(2).restore(rows, wrong)
    with pytest.raises(InvalidArgument, match="released must be empty for a policy without noise"):
        Mechanism(GossipUCB(), 3, 1, 0.0, 1.0).restore({}, {(0, 0): 1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1.0, 0, 1), "num_arms must be a whole number"),
        ((1, 0.0, 0, 1), "epsilon must be a number above 0"),
        ((1, 1.0, 1, 1), "high must be above low"),
        ((1, 1.0, math.nan, 1), "low must be a finite number"),
        ((1, 1.0, 0, 1e13), "high must be at most 1e"),
        ((1, 1.0, 0, 1, 0), "first_batch must be|horizon must be"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    for make in (batches, tree):
        with pytest.raises(InvalidArgument, match=message):
            make(*arguments)


def test_a_private_page_gets_noise_or_does_not_run():
    """An infinite epsilon has no ledger's price; pages whose releases have no named interval are for the simulator."""
    with pytest.raises(InvalidArgument, match="epsilon must be a number above 0"):
        batches(epsilon=math.inf)
    with pytest.warns(PrivacyWarning):
        printed = FedUCB(1.0, horizon=9, paper=True)
    with pytest.raises(InvalidArgument, match="policy must be one whose page names the interval of each release"):
        Mechanism(printed, 3, 1, 0.0, 1.0)
    with pytest.raises(InvalidArgument, match="simulations only"):
        Mechanism(FedLinear(1.0), 3, 1, 0.0, 1.0)
    for kind, policy in POLICIES.items():
        page = (policy(1.0) if "epsilon" in policy.__dataclass_fields__ else policy()).page()
        assert (page.noise_due is None) == ("epsilon" not in policy.__dataclass_fields__), kind


# ---------------------------------------------------------------- the ledger


def test_no_interval_gets_a_second_draw():
    drawn = []
    ledger = Ledger(2, 1.0, noise=lambda epsilon, count: drawn.append(epsilon) or [7])
    assert ledger.draw(0, 1, 8) == 7
    for again in ((1, 8), (3, 4), (8, 20), (1, 1)):
        with pytest.raises(AlreadyReleased, match="rewards up to pull 8 have been released already"):
            ledger.draw(0, *again)
    assert len(drawn) == 1, "a refused draw must not be made"
    ledger.draw(0, 9, 9)
    ledger.draw(1, 1, 8)
    assert ledger.marks == {(0, 0): 9, (1, 0): 8}


def test_levels_are_separate_accounts():
    ledger = Ledger(1, 0.25, levels=3, noise=silent)
    ledger.draw(0, 1, 1, level=0)
    ledger.draw(0, 1, 2, level=1)
    assert ledger.epsilon() == 0.75
    with pytest.raises(AlreadyReleased):
        ledger.draw(0, 2, 2, level=1)


def test_a_ledger_comes_back_with_its_marks():
    ledger = Ledger(1, 1.0, noise=silent)
    ledger.draw(0, 1, 8)
    again = Ledger(1, 1.0, noise=silent)
    again.restore(ledger.marks)
    with pytest.raises(AlreadyReleased):
        again.draw(0, 5, 9)
    with pytest.raises(InvalidArgument, match="of arms and levels of which none is known"):
        again.restore({(0, 0): 3})
    assert again.marks == {(0, 0): 8}


def test_what_a_lost_file_had_released_is_never_drawn_again():
    """A site takes it back from its own bulletin: the same row and schedule, and no noise for these rewards."""
    lost, drawn = batches(2, first_batch=2), []
    for _ in range(11):
        lost.take(0, 0.7)
    row, releases = lost.published(0), lost.me.releases[0]
    fresh = batches(2, first_batch=2, noise=lambda epsilon, count: drawn.append(epsilon) or [0])
    fresh.take_back(0, releases, row)
    assert not drawn
    assert fresh.published(0) == row
    assert fresh.ledger.marks == lost.ledger.marks
    assert fresh.me.total[0] == 0
    assert fresh.me.batch_end[0] == lost.me.batch_end[0]
    with pytest.raises(AlreadyReleased):
        fresh.ledger.draw(0, fresh.me.released[0], fresh.me.released[0] + 1)
    intervals = [fresh.take(0, 0.7) for _ in range(20)]
    assert next(it for it in intervals if it).first == lost.me.released[0] + 1


def test_a_failed_draw_is_not_tried_again():
    """Whether noise went out before the failure is unknown, so the interval counts as released."""

    def fails(epsilon, count):
        raise OSError

    ledger = Ledger(1, 1.0, noise=fails)
    with pytest.raises(OSError):  # noqa: PT011
        ledger.draw(0, 1, 8)
    with pytest.raises(AlreadyReleased):
        ledger.draw(0, 1, 8)


# ---------------------------------------------------------------- the laws of this room


def test_real_data_never_meet_the_simulators_noise():
    """Neither the mechanisms nor a site import the simulator or an attack; of the attacks, two play the simulator.

    Its noise has one of them alone: it audits that noise, too, in a row of its own.
    """
    for room in ("privacy", "agent"):
        for path in (SOURCE / room).rglob("*.py"):
            forbidden = ("fedbandit.simulation", "fedbandit.engine", "fedbandit.audit")
            assert not any(name.startswith(forbidden) for name in imports_of(path))
    attacks = list((SOURCE / "audit").glob("*.py"))
    assert {
        path.name
        for path in attacks
        if any(name.startswith(("fedbandit.simulation", "fedbandit.engine")) for name in imports_of(path))
    } == {"as_printed.py", "one_run.py"}
    assert [it.name for it in attacks if "fedbandit.engine.streams" in set(imports_of(it))] == ["one_run.py"]
    assert "NOT fit for real data" in ast.get_docstring(ast.parse((SOURCE / "engine" / "streams.py").read_text()))


def test_mechanisms_run_without_an_engine():
    """A live agent loads noise, ledger and mechanisms, and with them neither Numba nor the simulator."""
    code = (
        "import sys, fedbandit.privacy.mechanism\n"
        "print(*(name for name in sys.modules if name == 'numba' or name.startswith('fedbandit.simulation')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


@pytest.mark.docs
def test_the_document_says_what_is_there():
    """docs/privacy.md: its example runs, the tests and functions that it names exist, its links lead somewhere."""
    root = Path(__file__).parents[1]
    text = (root / "docs" / "privacy.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(example, {})  # noqa: S102
    written = "\n".join(path.read_text() for path in (root / "tests").glob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}" in written, name
    for path in re.findall(r"`((?:audit|engine|privacy|rules|simulation)/\w+\.py)`", text):
        assert (SOURCE / path).exists(), path
    for target in re.findall(r"\]\(((?!http|#)[^)]+)\)", text):
        assert (root / "docs" / target.partition("#")[0]).exists(), target


def test_noise_is_asked_for_in_one_place():
    """Outside attacks, only the ledger calls a noise source: a mechanism cannot draw behind its back."""
    text = (SOURCE / "privacy" / "mechanism.py").read_text()
    assert "laplace(" not in text
    assert "noise(" not in text
