import functools
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit import InvalidArgument, theory

LAMBDA_PATH_10 = 0.99456


def lemma_4_holds(t, lambda2, num_agents):
    return lambda2 ** (t / 6) / (1 - lambda2 ** (1 / 3)) < 1 / (num_agents * t)


@given(st.floats(0.05, 0.9995), st.integers(3, 200))
def test_l_is_the_smallest_value_from_which_the_inequality_holds(lambda2, num_agents):
    """Lemma 4: "L is the minimal value that satisfies ... for all t >= L"."""
    smallest = theory.mixing_horizon(lambda2, num_agents)
    assert all(lemma_4_holds(t, lambda2, num_agents) for t in range(smallest, smallest + 2000, 7))
    assert lemma_4_holds(100 * smallest, lambda2, num_agents)
    assert smallest == 1 or not lemma_4_holds(smallest - 1, lambda2, num_agents)


def test_alphas():
    assert theory.alpha1(3) == 64 / 3**17
    mixing = 2 * 0.5 ** (1 / 12) / ((1 - 0.5 ** (1 / 3)) * (1 - 0.5 ** (1 / 12)))
    assert theory.alpha2(3, 5, 0.5) == pytest.approx(14 * 3 + 2 * math.pi**2 / 3 + mixing)
    assert theory.alpha3(3, 5, 0.5) == pytest.approx(theory.alpha2(3, 5, 0.5) + 12)
    assert theory.p0(120, 0.5) == pytest.approx(0.5**10 / (1 - 0.5 ** (1 / 3)))
    assert theory.p1(120, 3, 0.5) == pytest.approx(6 / 120 + theory.p0(120, 0.5))


def test_radii():
    """Theorem 1 and Lemma 6, as printed."""
    clean = math.sqrt(2 * 10 / 500 * math.log(9000)) + 64 / 10**17
    assert theory.clean_radius(500, 9000, 10) == pytest.approx(clean)
    inside = 128 * 10 * math.log(10**6) ** 2 * math.log(9000) * math.log(500) / (500**2 * 2**2) + 1 / 500
    private = 64 / 10**17 + math.sqrt(2 * 10 * inside * math.log(9000))
    assert theory.private_radius(500, 9000, 10, 10**6, 2.0) == pytest.approx(private)
    assert theory.private_radius(500, 9000, 10, 10**6, math.inf) == theory.clean_radius(500, 9000, 10)


def test_why_setting_b_plays_uniformly():
    """With N = M = 10 and epsilon 1 the private radius stays above 1 until t = 1.04e6."""
    rounds = theory.rounds_above(1.0, 10, 10, 10**6, 1.0)
    assert rounds == pytest.approx(1.04e6, rel=0.005)
    assert theory.private_radius(rounds / 10, rounds, 10, 10**6, 1.0) > 1.0
    assert theory.private_radius((rounds + 1) / 10, rounds + 1, 10, 10**6, 1.0) <= 1.0


def test_theorem_1():
    gaps = [0.0, 0.2, 0.4]
    rest = theory.alpha2(3, 3, 0.5)
    slow = max(theory.mixing_horizon(0.5, 3), 30)
    expected = sum(g * (max(6 / (g / 2 - 64 / 3**17) ** 2 * math.log(10**6), slow) + rest) for g in gaps[1:])
    assert theory.gossip_bound(gaps, 3, 3, 10**6, 0.5) == pytest.approx(expected)


def test_theorem_2():
    margin, log_t = 0.1 - 64 / 3**17, math.log(10**6)
    pulls = 3 * log_t * (1 + math.sqrt(1 + (16 * margin / 2) ** 2 * log_t**3)) / margin**2
    expected = 0.2 * (pulls + 12 * log_t + theory.alpha3(3, 2, 0.5))
    assert theory.fed_bound([0.0, 0.2], 3, 2, 10**6, 0.5, 2.0) == pytest.approx(expected)
    clean = theory.gossip_bound([0.0, 0.2], 3, 2, 10**6, 0.5)
    assert theory.fed_bound([0.0, 0.2], 3, 2, 10**6, 0.5, math.inf) == pytest.approx(clean + 0.2 * (12 * log_t + 12))


def test_vacuous_bounds():
    gaps = [0.0] + [0.1] * 9
    assert theory.is_vacuous(theory.fed_bound(gaps, 10, 10, 10**6, LAMBDA_PATH_10, 1.0), gaps, 10**6)
    assert not theory.is_vacuous(theory.gossip_bound([0.0, 0.5], 3, 2, 10**6, 0.5), [0.0, 0.5], 10**6)
    assert theory.gossip_bound([0.0, 1e-7], 3, 2, 10**6, 0.5) == math.inf  # a gap below 2 alpha_1


def test_the_bound_of_the_proved_radius():
    """Theorem 2 of docs/theorem.md, term by term; first batches of 48, doubling; E = 25 within 10^9 pulls."""
    gap, num_agents, horizon, rounds = 0.1, 10, 10**6, 81.0
    level = math.log(horizon) + num_agents * math.log(26) + math.log(2)
    sizes, enough = [], None
    while sum(sizes) <= horizon:
        sizes.append(max(48, sum(sizes)))
        variances = [0.25 / m + 2 / m**2 for m in sizes]
        precision = sum(1 / v for v in variances)
        largest = 1 / (variances[-1] * precision * sizes[-1]) / num_agents
        radius = math.sqrt(2 * level / (precision * num_agents) + 4 * largest**2 * level**2)
        if enough is None and 2 * radius < gap:
            enough = sum(sizes)
    expected = 9 * gap * (48 + enough)
    expected += gap * num_agents * 10 * (len(sizes) - 1) * rounds + 10 * gap * (1 + math.log(horizon))
    gaps = [0.0] + [gap] * 9
    assert theory.rounds_to_spread(10, 9) == rounds
    assert theory.proved_bound(gaps, 10, 10, horizon, rounds, 1.0) == pytest.approx(expected)
    assert theory.proved_bound([0.0, 1e-6], 10, 2, horizon, rounds, 1.0) == math.inf
    pooled = [theory.proved_bound(gaps, 10, 10, horizon, 0.0, epsilon) for epsilon in (math.inf, 1.0, 0.1)]
    assert pooled == sorted(pooled)
    said = theory.proved_conclusion(gaps, 10, 10, horizon, rounds, 1.0)
    assert said.startswith("The bound of docs/theorem.md: FedBatch with the proved radius and epsilon 1 loses at most")
    assert f"{expected:,.0f} per agent" in said
    vacuous = theory.proved_conclusion(gaps, 10, 10, 10_000, rounds, 1.0)
    assert "says nothing about FedBatch with the proved radius" in vacuous


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.proved_bound([0.1], 3, 2, 100, 9.0, 1.0), "gaps must be 2 finite numbers"),
        (lambda: theory.proved_bound([0.0, 0.1], 0, 2, 100, 9.0, 1.0), "num_agents must be"),
        (lambda: theory.proved_bound([0.0, 0.1], 3, 2, 100, 9.0, 0.0), "epsilon must be"),
        (lambda: theory.mixing_horizon(1.0, 3), "lambda2 must be"),
        (lambda: theory.mixing_horizon(0.5, 0), "num_agents must be"),
        (lambda: theory.gossip_bound([], 3, 2, 100, 0.5), "gaps must be"),
        (lambda: theory.gossip_bound(None, 3, 2, 100, 0.5), "gaps must be"),
        (lambda: theory.gossip_bound([0.1], 3, 2, 100, 0.5), "gaps must be 2 finite numbers"),
        (lambda: theory.gossip_bound([0.0, 0.1], 3, 2, 10**12, 0.5), "horizon must be"),
        (lambda: theory.fed_bound([0.0, 0.1], 3, 2, 100, 0.5, 0), "epsilon must be"),
        (lambda: theory.private_radius(10, 10, 3, 100, 0.0), "epsilon must be"),
        (lambda: theory.private_radius(10, 10, 3, 100, 1e-200), "epsilon must be between 1e-09"),
        (lambda: theory.clean_radius(0, 10, 3), "n must be"),
        (lambda: theory.alpha1(0), "num_agents must be"),
        (lambda: theory.p0(-100, 0.5), "n must be"),
        (lambda: theory.is_vacuous(1.0, [], 10), "gaps must be"),
    ],
)
def test_bad_calls(call, message):
    with pytest.raises(InvalidArgument, match=message):
        call()


def test_a_conclusion_says_what_the_bounds_promise():
    """Checked against the bounds themselves: one that says something, and one that says it only later."""
    gaps, setting = [0.0, 0.1, 0.1], (3, 3)
    bound = theory.gossip_bound(gaps, *setting, 10**6, 0.5)
    words = theory.conclusion(gaps, *setting, 10**6, 0.5)
    assert words == (
        f"Theorem 1: Gossip_UCB loses at most {bound:,.0f} per agent within 1,000,000 rounds, "
        f"{100 * bound / 1e5:.2g} % of gap * T, the most that anybody can lose."
    )
    words = theory.conclusion(gaps, *setting, 10_000, 0.5, 1.0)
    assert "Theorem 1 says nothing about Gossip_UCB within 10,000 rounds: its bound is above gap * T = 1,000" in words
    first = [int(float(number)) for number in re.findall(r"after about (\S+) rounds", words)]
    assert len(first) == 2
    private = functools.partial(theory.fed_bound, gaps, *setting, lambda2=0.5, epsilon=1.0)
    clean = functools.partial(theory.gossip_bound, gaps, *setting, lambda2=0.5)
    for rounds, of in zip(first, (clean, private), strict=True):
        assert theory.is_vacuous(of(horizon=int(0.9 * rounds)), gaps, int(0.9 * rounds))
        assert not theory.is_vacuous(of(horizon=int(1.1 * rounds)), gaps, int(1.1 * rounds))
    ratio = private(horizon=10_000) / clean(horizon=10_000)
    assert words.endswith(f"Privacy makes the bound {ratio:,.2f} times as large.")
    hopeless = theory.conclusion([0.0, 1e-5], 3, 2, 10**6, 0.5)
    assert hopeless.endswith("It stays above that up to 1.0e9 rounds.")
