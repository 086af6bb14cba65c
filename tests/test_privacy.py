"""Noise, mechanisms and the ledger: the code that docs/privacy.md proves things about.

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

from fedbandit import FedUCB, InvalidArgument, Tape, graph, replay
from fedbandit.privacy.ledger import AlreadyReleased, Ledger
from fedbandit.privacy.mechanism import Batches, Release, Tree
from fedbandit.privacy.noise import GRID, from_grid, laplace, measurement_of, to_grid
from fedbandit.rules.batch import batch_size, default_first_batch
from fedbandit.rules.mean import last_end, pull_tree_add, trailing_zeros
from test_laws import SOURCE, imports_of

FINITE = st.floats(allow_nan=False, allow_infinity=False)
RANGES = st.tuples(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12)).filter(lambda pair: pair[0] < pair[1])


def silent(epsilon, count):
    """Noise of zero, for looking at sums."""
    return [0] * count


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


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, True, "1", None])
def test_what_is_no_number_is_refused(reward):
    for mechanism in (Batches(1, 1.0, 0, 1), Tree(1, 1.0, 0, 1, 7)):
        before = mechanism.state()
        with pytest.raises(InvalidArgument, match="reward must be a finite number"):
            mechanism.add(0, reward)
        assert mechanism.state() == before


# ---------------------------------------------------------------- mechanisms


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, GRID)), max_size=200), st.integers(1, 9))
def test_batches_partition_the_rewards(pulls, first_batch):
    """Every reward is in one release or waits; a release is the mean of its own rewards and no others."""
    mechanism = Batches(3, 1.0, 0.0, 1.0, first_batch, noise=silent)
    seen, covered = [[], [], []], [0, 0, 0]
    for arm, steps in pulls:
        seen[arm].append(steps / GRID)
        release = mechanism.add(arm, steps / GRID)
        if release is not None:
            assert release.first == covered[arm] + 1
            assert release.last == len(seen[arm])
            assert release.size == batch_size(covered[arm], first_batch, 1.25)
            assert release.value == pytest.approx(np.mean(seen[arm][covered[arm] :]))
            covered[arm] = release.last


@given(st.lists(st.integers(0, GRID), min_size=1, max_size=70))
def test_the_tree_is_algorithm_2(steps):
    """The release after pull n is Algorithm 2's newest interval; prefixes add up by ``pull_tree_add``."""
    mechanism, slots = Tree(1, 1.0, 0.0, 1.0, 70, noise=silent), [0.0] * 7
    for n in range(1, len(steps) + 1):
        release = mechanism.add(0, steps[n - 1] / GRID)
        assert (release.first, release.last) == ((n & (n - 1)) + 1, n)
        assert release.value * release.size * GRID == pytest.approx(sum(steps[release.first - 1 : n]), abs=1e-6)
        assert pull_tree_add(slots, n, release.value * release.size * GRID) == pytest.approx(sum(steps[:n]), abs=1e-6)


def test_the_tree_is_the_engines():
    """The same rewards and noise give the engine's noisy mean, so that an audit of one is about the other."""
    world = Tape.random(graph.path(3), 2, 40, seed=3, reward_range=(0.0, 1.0))
    rewards = np.round(np.clip(world.rewards, 0, 1) * GRID) / GRID
    drawn = np.round(world.noise * GRID * 6)  # 41 pulls: 6 intervals hold a reward
    tape = Tape(rewards, world.edges, world.picks, world.graph, drawn / (GRID * 6), world.reward_range)
    trace = replay(tape, FedUCB(1.0))
    ends = [iter(drawn[1:, 0, arm].astype(int)) for arm in (0, 1)]
    for arm in (0, 1):
        tree, slots = Tree(1, 1.0, 0.0, 1.0, 41, lambda _, count, arm=arm: [int(next(ends[arm]))]), [0.0] * 6
        times = [0, *(t for t in range(1, 41) if trace.arms[t - 1, 0] == arm)]
        for n, t in enumerate(times, 1):
            release = tree.add(0, rewards[t, 0, arm])
            mean = pull_tree_add(slots, n, release.value * release.size) / n
            assert mean == pytest.approx(trace.x_mean[t, 0, arm], abs=1e-9)


def test_what_a_reward_costs():
    assert Batches(2, 0.5, 0, 1).epsilon() == 0.5
    assert Batches(2, 0.5, 0, 1).epsilon(group=3) == 1.5
    for max_pulls in (1, 2, 7, 8, 1000, 10**6):
        tree = Tree(1, 2.0, 0, 1, max_pulls)
        assert tree.epsilon() == pytest.approx(2.0)
        assert tree.epsilon(group=4) == pytest.approx(8.0)
        assert measurement_of(tree.ledger.epsilon_per_release).map(GRID) * max_pulls.bit_length() <= 2.0 * (1 + 1e-12)
    with pytest.raises(InvalidArgument, match="group must be"):
        Batches(1, 1.0, 0, 1).epsilon(group=0)


def test_no_reward_is_charged_more_than_epsilon():
    """Over a whole tree and many batches: the ledger's account of each reward, and the one that pays all."""
    tree, batches = Tree(1, 1.0, 0, 1, 100, silent), Batches(1, 1.0, 0, 1, noise=silent)
    for _ in range(100):
        tree.add(0, 1.0)
        batches.add(0, 1.0)
    spent = [tree.ledger.spent(0, pull) for pull in range(1, 101)]
    assert max(spent) == spent[0] == pytest.approx(1.0)
    assert len(tree.ledger) == 100
    assert {batches.ledger.spent(0, pull) for pull in range(1, 101)} == {0.0, 1.0}


def test_the_tree_refuses_to_go_past_its_end():
    tree = Tree(2, 1.0, 0, 1, 3)
    for _ in range(3):
        tree.add(0, 0.5)
    with pytest.raises(InvalidArgument, match="max_pulls must be at least 4 for pull 4 of arm 0, not 3"):
        tree.add(0, 0.5)
    assert tree.add(1, 0.5).last == 1, "the other arm has pulls left"


def test_release_carries_noise():
    """A batch of rewards 1 at epsilon 1 comes out exactly 1 once in 130,000; two of four once in 3 10^9."""
    mechanism = Batches(1, 1.0, 0, 1)
    releases = [release for _ in range(48) if (release := mechanism.add(0, 1.0))]
    assert len(releases) == 4
    assert default_first_batch(1.0) == releases[0].size
    assert sum(release.value != 1.0 for release in releases) >= 3, "every release carries noise, not the first alone"
    assert releases[0] == Release(0, 1, 12, releases[0].value, 12)


def test_noise_is_what_was_drawn():
    mechanism = Batches(1, 1.0, -1.0, 1.0, first_batch=2, noise=lambda epsilon, count: [GRID // 4])
    mechanism.add(0, -1.0)
    assert mechanism.add(0, 1.0).value == pytest.approx(0.25)  # the mean 0, and 2 * (1/4) / 2
    for _ in range(3):  # and so in every later batch
        mechanism.add(0, -1.0)
        assert mechanism.add(0, 1.0).value == pytest.approx(0.25)


def test_rewards_of_a_failed_draw_are_lost_not_released_again():
    """The ledger counts them as released; so must the mechanism, or the next batch would hold them too."""
    failing = iter([OSError("no randomness")])

    def source(epsilon, count):
        for error in failing:
            raise error
        return [0]

    mechanism = Batches(1, 1.0, 0, 1, first_batch=2, noise=source)
    mechanism.add(0, 1.0)
    with pytest.raises(OSError, match="no randomness"):
        mechanism.add(0, 1.0)
    mechanism.add(0, 0.0)
    assert mechanism.add(0, 0.0) == Release(0, 3, 4, 0.0, 2)


def test_noise_must_be_whole_numbers():
    mechanism = Batches(1, 1.0, 0, 1, first_batch=1, noise=lambda epsilon, count: [np.random.default_rng(1).laplace()])
    with pytest.raises(InvalidArgument, match="noise must be a source of whole numbers"):
        mechanism.add(0, 1.0)


@pytest.mark.parametrize("change", [{"counts": [-5]}, {"totals": [10**9]}, {"counts": [0.5]}, {"totals": [-1]}])
def test_an_impossible_state_is_refused(change):
    state = Batches(1, 1.0, 0, 1, noise=silent).state() | change
    with pytest.raises(InvalidArgument, match=r"state\.(counts|totals) must be a whole number"):
        Batches.restore(state)


@pytest.mark.parametrize(
    "make", [lambda: Batches(3, 0.7, -1, 2, noise=silent), lambda: Tree(3, 0.7, -1, 2, 99, silent)]
)
def test_a_mechanism_survives_in_plain_numbers(make):
    """Stopped and brought back after every reward, it releases what it would have."""
    straight, stopped = make(), make()
    source = np.random.default_rng(5)
    for _ in range(200):
        arm, reward = int(source.integers(3)), float(source.normal())
        expected = straight.add(arm, reward)
        kept = json.loads(json.dumps(stopped.state()))
        stopped = type(stopped).restore(kept, silent)
        assert stopped.add(arm, reward) == expected
    assert stopped.state() == straight.state()


def test_a_tree_survives_in_the_last_line_of_each_level():
    """Bounded, however many pulls: it releases the same, and refuses a second draw as the whole ledger does."""
    straight, stopped = Tree(2, 0.7, -1, 2, 99, silent), Tree(2, 0.7, -1, 2, 99, silent, lines="last")
    source = np.random.default_rng(6)
    for _ in range(150):
        arm, reward = int(source.integers(2)), float(source.normal())
        expected = straight.add(arm, reward)
        stopped = Tree.restore(json.loads(json.dumps(stopped.state())), silent, lines="last")
        assert stopped.add(arm, reward) == expected
        assert len(stopped.ledger) <= 2 * 7
        for k in range(2):
            for level in range(7):
                assert stopped.ledger.released_up_to(k, level) == straight.ledger.released_up_to(k, level)
                ends = [last for a, lv, _, last in straight.ledger.entries if (a, lv) == (k, level)]
                assert last_end(straight.state()["pulls"][k], level) == max(ends, default=0)
    with pytest.raises(AlreadyReleased):
        stopped.ledger.draw(expected.arm, expected.first, expected.last, trailing_zeros(expected.last))
    with pytest.raises(InvalidArgument, match="lines must be all"):
        stopped.ledger.spent(0, 1)


def test_a_tree_whose_lines_and_pulls_differ_is_refused():
    """It would draw noise for an interval that has been released."""
    tree = Tree(1, 1.0, 0, 1, 99, silent)
    for _ in range(5):
        tree.add(0, 1.0)
    state = tree.state()
    for damaged in ({"pulls": [4]}, {"pulls": [6]}, {"released": state["released"][:-1]}):
        with pytest.raises(InvalidArgument, match=r"state\.released must be those of"):
            Tree.restore({**state, **damaged}, silent)
    with pytest.raises(InvalidArgument, match=r"state\.sums must be 7 sums"):
        Tree.restore({**state, "sums": [[0]]}, silent)
    with pytest.raises(InvalidArgument, match="lines must be all or last"):
        Tree(1, 1.0, 0, 1, 99, silent, lines="some")


def test_a_damaged_state_is_refused():
    state = Batches(2, 1.0, 0, 1).state()
    for damaged in (
        {},
        {**state, "totals": [0]},
        {**state, "extra": 1},
        {k: v for k, v in state.items() if k != "low"},
    ):
        with pytest.raises(InvalidArgument, match="state must be"):
            Batches.restore(damaged)
    with pytest.raises(InvalidArgument, match="entries must be lines of"):
        Batches.restore({**state, "released": [[0, 1, 2]]})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1.0, 0, 1), "num_arms must be a whole number"),
        ((1, 0.0, 0, 1), "epsilon must be a number above 0"),
        ((1, math.inf, 0, 1), "epsilon must be a number above 0"),
        ((1, 1.0, 1, 1), "high must be above low"),
        ((1, 1.0, math.nan, 1), "low must be a finite number"),
        ((1, 1.0, 0, 1e13), "high must be at most 1e"),
        ((1, 1.0, 0, 1, 0), "first_batch must be|max_pulls must be"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        Batches(*arguments)
    with pytest.raises(InvalidArgument, match=message):
        Tree(*(arguments if len(arguments) == 5 else (*arguments, 7)))


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
    assert ledger.entries == ((0, 0, 1, 8), (0, 0, 9, 9), (1, 0, 1, 8))
    assert [ledger.spent(0, pull) for pull in (1, 9, 10)] == [1.0, 1.0, 0.0]


def test_levels_are_separate_accounts():
    ledger = Ledger(1, 0.25, levels=3, noise=silent)
    ledger.draw(0, 1, 1, level=0)
    ledger.draw(0, 1, 2, level=1)
    assert ledger.spent(0, 1) == 0.5
    assert ledger.epsilon() == 0.75
    with pytest.raises(AlreadyReleased):
        ledger.draw(0, 2, 2, level=1)


def test_a_ledger_comes_back_with_its_marks():
    ledger = Ledger(1, 1.0, noise=silent)
    ledger.draw(0, 1, 8)
    again = Ledger(1, 1.0, noise=silent)
    again.restore(json.loads(json.dumps(ledger.entries)))
    with pytest.raises(AlreadyReleased):
        again.draw(0, 5, 9)
    with pytest.raises(InvalidArgument, match="an empty ledger"):
        again.restore([])
    with pytest.raises(AlreadyReleased):
        Ledger(1, 1.0).restore([(0, 0, 1, 8), (0, 0, 8, 9)])


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
    """Neither the mechanisms nor a site import the simulator or an attack; of the attacks, one plays the simulator."""
    for room in ("privacy", "agent"):
        for path in (SOURCE / room).rglob("*.py"):
            assert not any(name.startswith(("fedbandit.simulation", "fedbandit.audit")) for name in imports_of(path))
    attacks = list((SOURCE / "audit").glob("*.py"))
    assert {path.name for path in attacks if any("simulation" in name for name in imports_of(path))} == {
        "as_printed.py"
    }
    for path in attacks:
        assert "fedbandit.simulation.streams" not in set(imports_of(path))
    assert "NOT fit for real data" in ast.get_docstring(ast.parse((SOURCE / "simulation" / "streams.py").read_text()))


def test_mechanisms_run_without_an_engine():
    """A live agent loads noise, ledger and mechanisms, and with them neither Numba nor the simulator."""
    code = (
        "import sys, fedbandit.privacy.mechanism\n"
        "print(*(name for name in sys.modules if name == 'numba' or name.startswith('fedbandit.simulation')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_the_document_says_what_is_there():
    """docs/privacy.md: its example runs, the tests and functions that it names exist, its links lead somewhere."""
    root = Path(__file__).parents[1]
    text = (root / "docs" / "privacy.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(example, {})  # noqa: S102
    written = "\n".join(path.read_text() for path in (root / "tests").glob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}" in written, name
    for path in re.findall(r"`((?:audit|privacy|rules|simulation)/\w+\.py)`", text):
        assert (SOURCE / path).exists(), path
    for target in re.findall(r"\]\(((?!http)[^)]+)\)", text):
        assert (root / "docs" / target).exists(), target


def test_noise_is_asked_for_in_one_place():
    """Outside attacks, only the ledger calls a noise source: a mechanism cannot draw behind its back."""
    text = (SOURCE / "privacy" / "mechanism.py").read_text()
    assert "laplace(" not in text
    assert "noise(" not in text
