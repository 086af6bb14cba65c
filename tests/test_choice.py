"""The arms that a request may have, the propensity of the arm that it gets, and shares of arms, at a live site.

Frequencies are compared by Bernstein's inequality: each comparison fails by chance in one of 10^10 runs, all of them
together in less than one of 10^7; seeds are fixed.
"""

# ruff: noqa: S311  # draws from explicit seeds

import math
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from functools import cache
from random import Random
from unittest.mock import patch

import numpy as np
import pytest

from fedbandit import FedBatch, FedUCB, GossipUCB, InvalidArgument, Shares
from fedbandit.agent.core import decisions as decisions_module
from fedbandit.agent.core.decisions import Choice, SiteDraws, choice, draws_for
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.player import Player
from fedbandit.agent.core.records import HorizonReached, Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.policies import protocol
from fedbandit.policies.plain import NO_ARM
from fedbandit.policies.protocol import time_of
from fedbandit.policies.registry import WrongPage
from fedbandit.rules.propensity import chances_of_highest
from fedbandit.testing.memory_network import MemoryNetwork
from own_choices import Inherited, Own

ARMS = ("a", "b", "c", "d")
OWN = "own_choices:Own"
POLICIES = {
    "thompson": FedBatch(1.0, first_batch=3),
    "ucb": FedBatch(1.0, "ucb", first_batch=3),
    "kl": FedBatch(1.0, "kl", first_batch=3),
    "fed_ucb": FedUCB(8.0, horizon=60),
    "gossip_ucb": GossipUCB(),
    "own": Own("greedy"),
    "own, in turn": Own("in turn"),
}
ASKED = 10_000


@cache
def terms_of(name, arms=ARMS, **options):
    return Federation("f", arms, 0.0, 1.0, POLICIES[name], OWN, **options, max_agents=3)


def silent(epsilon, count):
    return [0] * count


def played(terms, rounds, seed):
    """A site among three that have played some rounds, one of them faster than the others."""
    source = Random(seed)
    network = MemoryNetwork(terms, [("x", "y"), ("y", "z")], seed=seed, noise=silent)
    for t in range(rounds):
        for name in ("x", "y", "z") if t % 3 == 0 else ("z",):
            decision = network.decide(name)
            network.report(name, decision.id, float(source.random() < 0.2 + 0.2 * decision.arm))
        if t % 2:
            network.exchange(*source.choice([("x", "y"), ("y", "z")]))
            network.run()
    return network.site("x")


def asked(site, draws, allowed=None):
    return choice(site.terms, site._looking, site.n_max, draws, allowed)


def known(site):
    return deepcopy(vars(site._looking.me))


# ---------------------------------------------------------------- arms that a request may have


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("rounds", [0, 5, 40, 150])
def test_an_arm_that_is_not_allowed_is_never_given(name, rounds):
    """And what the site knows stays as it was, but for what a decision changes by itself."""
    source, terms = Random(rounds), terms_of(name)
    site = played(terms, rounds, 7)
    for _ in range(60):
        allowed = sorted(source.sample(range(4), source.randint(1, 4)))
        draws, before = draws_for(terms, source), known(site)
        given = asked(site, draws, allowed)
        assert given.arm in allowed
        assert 0.0 < given.propensity <= 1.0
        after = known(site)
        if len(allowed) < 4:
            may_change = {"caught_up", "turn"}
            assert {k: v for k, v in after.items() if k not in may_change} == {
                k: v for k, v in before.items() if k not in may_change
            }
            assert after.get("caught_up", 0) - before.get("caught_up", 0) in (0, 1)


@pytest.mark.parametrize("name", POLICIES)
def test_all_arms_allowed_is_no_restriction(name):
    terms, source = terms_of(name), Random(3)
    one, other = played(terms, 60, 7), played(terms, 60, 7)
    for _ in range(100):
        draws, copied = draws_for(terms, source), deepcopy(one)
        assert asked(one, draws) == asked(other, draws, (0, 1, 2, 3)) == asked(copied, draws, [3, 2, 1, 0])
        assert known(one) == known(other)


def alone(terms, counts, seed):
    """A site that nobody has joined yet, with so many rewards of each arm."""
    source, site = Random(seed), Site("x", terms, Stored(Numbering(1, 0)), silent)
    left = list(counts)
    for _ in range(10_000):
        if not any(left):
            return site
        allowed = [k for k, n in enumerate(left) if n > 0]
        arm = source.choice(allowed)
        decision = _decided(site, arm)
        site.report(decision.id, float(source.random() < 0.3 + 0.1 * arm))
        left[arm] -= 1
    raise AssertionError


def _decided(site, arm):
    """A decision for this arm, whatever the page says."""
    with patch.object(decisions_module, "choice", lambda *_: Choice(arm, 1.0)):
        return site.decide(0.0, SiteDraws((0.0,) * site.terms.num_arms, 0.5)).result


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "own, in turn"])
@pytest.mark.parametrize("counts", [(20, 3, 11, 6), (2, 3, 1, 9), (30, 0, 12, 0), (0, 1, 0, 1)])
def test_a_choice_among_some_arms_is_that_of_a_world_of_these(name, counts, monkeypatch):
    """Beside a site of a federation that has only these arms, with the same rows in its file; only t is the same."""
    terms, source = terms_of(name), Random(5)
    site = alone(terms, counts, 11)
    rows, marks = site.stored.known, site.stored.released
    for allowed in ((0, 1, 2), (1, 2, 3), (0, 3), (1, 3), (2, 3)):
        single = {NO_ARM: rows[NO_ARM]} if NO_ARM in rows else {}
        few = {position: rows[k] for position, k in enumerate(allowed) if k in rows}
        small = terms_of(name, tuple(ARMS[k] for k in allowed))
        released = {(allowed.index(k), level): last for (k, level), last in marks.items() if k in allowed}
        other = Site("x", small, Stored(Numbering(1, 0), known={**few, **single}, released=released), silent)
        for t in (3, 50, 10**6):
            monkeypatch.setattr(Player, "now", time_of(t))
            for _ in range(10):
                draws = draws_for(small, source)
                wide = replace(draws, normals=(*draws.normals, *(9.0,) * (4 - len(allowed))))
                here, there = asked(site, wide, allowed), asked(other, draws)
                assert allowed[there.arm] == here.arm
                assert here.propensity == there.propensity


def test_what_a_page_keeps_of_its_decisions_goes_on():
    """A round robin by a kept counter goes on among the arms that are left."""
    site = played(terms_of("own, in turn"), 60, 7)
    source = Random(1)
    given = [asked(site, draws_for(site.terms, source), (0, 2, 3)).arm for _ in range(9)]
    assert Counter(given) == {0: 3, 2: 3, 3: 3}


def test_what_is_remembered_of_some_arms_is_never_stale():
    """Rewards and exchanges move beliefs; each time a site that remembers nothing says the same."""
    for name in ("thompson", "kl"):
        terms, source = terms_of(name), Random(3)
        network = MemoryNetwork(terms, [("x", "y")], seed=1, noise=silent)
        for t in range(120):
            for who in ("x", "y"):
                decision = network.decide(who)
                network.report(who, decision.id, float(source.random() < (0.2, 0.5, 0.9, 0.4)[decision.arm]))
            asked(network.site("x"), draws_for(terms, source), (0, 1, 3))  # what is remembered from now on
            if t % 3 == 0:
                network.exchange("x", "y")
                network.run()
            site, draws = network.site("x"), draws_for(terms, source)
            forgetful = deepcopy(site)
            forgetful._player._narrowed.clear()
            assert asked(site, draws, (0, 1, 3)) == asked(forgetful, draws, (0, 1, 3))


def test_wrong_arms_are_refused():
    site, draws = played(terms_of("ucb"), 40, 7), SiteDraws((0.0,) * 4, 0.5)
    for wrong in ((), (0, 4), (-1, 2), (1, 1)):
        with pytest.raises(InvalidArgument, match="allowed must be one or more different arms from 0 to 3"):
            asked(site, draws, wrong)


def test_an_arm_without_room_is_not_given():
    """Nor counted among those that lag, and the words tell what is spent."""
    terms, draws = terms_of("fed_ucb"), SiteDraws((), 0.5)
    site = alone(terms, (61, 5, 61, 5), 11)
    assert asked(site, draws).arm in (1, 3)
    assert asked(site, draws, (0, 1, 2)) == (1, 1.0)
    with pytest.raises(HorizonReached, match="every arm that this request may have has had the 61 decisions"):
        asked(site, draws, (0, 2))


# ---------------------------------------------------------------- propensity


def tolerance(p, asked=ASKED):
    """Bernstein: a frequency is further off in one of 10^10 cases."""
    many = math.log(2e10)
    return math.sqrt(2.0 * p * (1.0 - p) * many / asked) + 2.0 * many / (3.0 * asked)


def compare_frequencies(site, allowed=None, seed=1, error=0.0):
    """Ask the same state many times; the propensity of each arm that was given."""
    source, counts, propensities = Random(seed), Counter(), {}
    for _ in range(ASKED):
        given = asked(site, draws_for(site.terms, source), allowed)
        counts[given.arm] += 1
        assert propensities.setdefault(given.arm, given.propensity) == given.propensity
    for arm, p in propensities.items():
        assert abs(counts[arm] / ASKED - p) <= tolerance(p) + error, (arm, p, counts)
    assert sum(propensities.values()) == pytest.approx(1.0, abs=0.005)  # an arm that never came is hardly likely
    assert sum(propensities.values()) <= 1.0 + 1e-9
    return propensities


def believing(theta, spread, **options):
    """A Thompson site with these beliefs."""
    arms = tuple(f"arm {k}" for k in range(len(theta)))
    site = Site("x", terms_of("thompson", arms, counts="sites", **options), Stored(Numbering(1, 0)), silent)
    player = site._looking
    player.seen.mean[:], player.seen.sampling[:] = theta, [x * x for x in spread]
    player.seen.weight[:], player.me.deviation[:], player.me.releases[:] = [1.0] * len(arms), spread, [1] * len(arms)
    for k in range(len(arms)) if min(spread) > 0.0 else ():
        player.page.believe(player.me, player.terms, player.seen, k)
    player.me.unknown[:], player.me.num_unknown = [0] * len(arms), 0
    player.me.theta[:], player.me.spread[:] = theta, spread
    return site


HARD = {
    "equal": ([0.5] * 4, [0.1] * 4),
    "a wide one": ([0.5, 0.6, 0.4], [1e-3, 2e-3, 5.0]),
    "tiny and near, among wide ones": ([0.5, 0.5 + 1e-7, 0.2, 0.3], [1e-7, 2e-7, 0.4, 0.6]),
    "no spread": ([0.5, 0.5, 0.2], [0.0, 0.0, 0.3]),
    "no spread at all, tied": ([0.1, 0.5, 0.5], [0.0, 0.0, 0.0]),
    "many": ([0.3 + 0.01 * k for k in range(20)], [0.1 + 0.05 * (k % 3) for k in range(20)]),
    "in steps of the grid": ([4.0e5, 5.0e5, 5.2e5], [3.0e4, 1.0, 5.0e4]),
}


@pytest.mark.parametrize("case", HARD)
def test_thompson_says_how_likely_an_arm_was(case):
    compare_frequencies(believing(*HARD[case]), error=0.01)


def test_a_state_that_was_played_says_how_likely_an_arm_was():
    """With all arms, and with some."""
    site = played(terms_of("thompson"), 100, 7)
    every = compare_frequencies(site, error=0.01)
    some = compare_frequencies(site, (0, 1, 2), error=0.01)
    assert min(len(every), len(some)) > 1
    assert some != every


UNKNOWN = {  # decisions of each arm so far, the arms that a request may have, and balls of these
    "nothing yet": ((0, 0, 0, 0), None, (16, 16, 16, 16)),
    "all leads": ((2, 0, 1, 1), None, (4, 16, 8, 8)),
    "some arms": ((2, 0, 1, 2), (0, 2, 3), (8, 16, 8)),
    "two arms": ((2, 0, 1, 1), (2, 3), (16, 16)),
}


@pytest.mark.parametrize("name", ["ucb", "kl", "thompson"])
@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_arms_are_drawn_from_an_urn(name, case):
    """Before the first releases; whatever staff have seen, no arm is certain and none impossible."""
    counts, allowed, balls = UNKNOWN[case]
    found = compare_frequencies(alone(terms_of(name), counts, 7), allowed)
    assert found == {k: n / sum(balls) for k, n in zip(allowed or range(4), balls, strict=True)}


@pytest.mark.parametrize("name", ["ucb", "kl", "thompson"])
def test_a_lone_unknown_arm_leaves_a_fifth_to_the_index(name):
    """Known arms beside it get what the index says, so nobody knows when it comes."""
    site = alone(terms_of(name), (30, 40, 2, 50), 7)
    found = compare_frequencies(site, error=0.002)
    assert found[2] == 0.8
    assert sum(found.values()) == pytest.approx(1.0, abs=0.001)
    site = alone(terms_of(name), (30, 1, 2, 50), 7)
    found = compare_frequencies(site, error=0.002)
    assert (found[1], found[2]) == (16 / 28, 8 / 28)


def test_indices_are_certain():
    for name in ("ucb", "kl", "fed_ucb", "gossip_ucb"):
        site = alone(terms_of(name), (20, 30, 40, 50), 7)
        assert asked(site, draws_for(site.terms, Random(1))).propensity == 1.0


@pytest.mark.parametrize("allowed", [None, (0, 1), (0, 1, 3)])
def test_lagging_arms_share_their_chance(allowed):
    """Algorithm 1, line 13: of those that this request may have."""
    site = played(terms_of("gossip_ucb"), 40, 7)
    site.board.n_max = lambda arms, most: (99, 99, 0, 99)
    expected = [k for k in (0, 1, 3) if allowed is None or k in allowed]
    assert compare_frequencies(site, allowed) == dict.fromkeys(expected, 1.0 / len(expected))


def test_an_own_page_says_its_chances_or_none():
    site = played(terms_of("own"), 60, 7)
    found = compare_frequencies(site)
    assert sorted(found.values()) == pytest.approx([0.075, 0.075, 0.075, 0.775])
    assert sorted(compare_frequencies(site, (0, 1, 2)).values()) == pytest.approx([0.1, 0.1, 0.8])
    silent_one = played(Federation("f", ARMS, 0.0, 1.0, Own("silent"), OWN, max_agents=3), 60, 7)
    assert asked(silent_one, draws_for(site.terms, Random(1))).propensity is None


def test_own_pages_that_misjudge_are_refused():
    with pytest.raises(WrongPage, match=r"decide returns 2, asked of the arms \[.*\] alone"):
        Federation("f", ARMS, 0.0, 1.0, Own("absent arm"), OWN, max_agents=3)
    with pytest.raises(WrongPage, match=r"chance returns .* for arm .*, which decide gives in .* of its draws"):
        Federation("f", ARMS, 0.0, 1.0, Inherited(1.0), "own_choices:Inherited", max_agents=3)


def integrated(means, spreads):
    """The chance of each arm by a fine grid, independent of the rule: on the quantiles of each arm's draw."""
    from math import erf

    phi = np.vectorize(lambda x: 0.5 * (1.0 + erf(x / math.sqrt(2.0))))
    z = np.linspace(-8.5, 8.5, 4001)
    density = np.exp(-(z**2) / 2.0) / math.sqrt(2.0 * math.pi) * (z[1] - z[0])
    found = []
    for k, (mean, spread) in enumerate(zip(means, spreads, strict=True)):
        x = mean + spread * z
        rest = np.ones_like(z)
        for j, (m, s) in enumerate(zip(means, spreads, strict=True)):
            if j != k:
                rest *= phi((x - m) / s)
        found.append(float(np.sum(density * rest)))
    return found


def test_the_highest_draw_is_integrated_well():
    """Two arms in closed form, within 0.0005; more by a fine grid, within 0.002. Promised is 0.008."""
    source = Random(2)
    for _ in range(100):
        a, b = source.gauss(0, 3), source.gauss(0, 3)
        s, t = 10 ** source.uniform(-5, 5), 10 ** source.uniform(-5, 5)
        expected = 0.5 * math.erfc((b - a) / math.sqrt(2.0 * (s * s + t * t)))
        assert chances_of_highest([a, b], [s, t])[0] == pytest.approx(expected, abs=5e-4)
    for size in (3, 3, 5, 12):
        means = [source.gauss(0, 1) for _ in range(size)]
        spreads = [10 ** source.uniform(-1.5, 0.7) for _ in range(size)]
        found = chances_of_highest(means, spreads)
        assert found == pytest.approx(integrated(means, spreads), abs=2e-3)
        assert sum(found) == pytest.approx(1.0, abs=1e-12)


def test_equal_arms_are_equally_likely_and_ties_go_to_the_first():
    for size in (2, 7, 100):
        assert chances_of_highest([3.0] * size, [0.2] * size) == pytest.approx([1.0 / size] * size, abs=1e-12)
    assert chances_of_highest([1.0, 2.0, 2.0], [0.0, 0.0, 0.0]) == [0.0, 1.0, 0.0]
    assert chances_of_highest([0.0, -1e300, 0.0], [0.0, 1e-3, 1.0]) == pytest.approx([0.5, 0.0, 0.5])


def test_chances_are_computed_once_while_beliefs_stay(monkeypatch):
    """Of each set of arms that requests may have; a new belief is noticed."""
    calls = []
    monkeypatch.setattr(
        protocol, "chances_of_highest", lambda *given: calls.append(given) or chances_of_highest(*given)
    )
    protocol._remembered.cache_clear()
    site, source = believing([0.3, 0.4, 0.5], [0.1, 0.2, 0.1]), Random(1)
    for _ in range(50):
        before = asked(site, draws_for(site.terms, source))
    assert len(calls) == 1
    site._player.me.theta[0] = 0.9
    for _ in range(50):
        after = asked(site, draws_for(site.terms, source))
    assert len(calls) == 2
    assert before.propensity != after.propensity


# ---------------------------------------------------------------- shares


SHARES = Shares("b", 0.25, 0.05)


def expected_with(shares, said, allowed, control=1):
    """p = floor + (1 - sum of floors) q, q the index's without the control arm: written out, for a certain index."""
    others = [k for k in allowed if k != control] or list(allowed)
    floors = dict.fromkeys(others, shares.least_share)
    if control in allowed and len(allowed) > 1:
        floors[control] = shares.control_share
    return {k: floors[k] + (1.0 - sum(floors.values())) * (k == said) for k in allowed}


@pytest.mark.parametrize("allowed", [(0, 1, 2, 3), (0, 2, 3), (1, 2), (1,), (3,)])
@pytest.mark.parametrize("counts", [(0, 0, 0, 0), (9, 9, 30, 12)])
def test_shares_of_an_index(allowed, counts):
    """With unknown arms, too, and with whatever arms a request may have: a fine comb of draws counts each arm."""
    site, bare = (alone(terms_of("ucb", shares=shares), counts, 7) for shares in (SHARES, None))
    others = tuple(k for k in allowed if k != 1) or allowed
    said = asked(bare, SiteDraws((), 0.5), others).arm
    comb = [asked(site, SiteDraws((), 0.5, (i + 0.5) / 1000), allowed) for i in range(1000)]
    expected = expected_with(SHARES, said, allowed)
    if any(counts):
        assert dict(comb) == pytest.approx(expected)
    else:  # the index is an urn, and says each as likely
        alike = [expected_with(SHARES, k, allowed) for k in others]
        assert dict(comb) == pytest.approx({k: sum(it[k] for it in alike) / len(alike) for k in allowed})
    assert Counter(given.arm for given in comb) == {k: round(1000 * p) for k, p in expected.items()}
    assert sum(dict(comb).values()) == pytest.approx(1.0, abs=1e-12)


def test_the_control_arm_has_its_share_exactly():
    """Even where its belief is by far the highest, and beside an index that draws."""
    site = believing([0.2, 0.9, 0.3], [0.1, 0.1, 0.1], shares=Shares("arm 1", 0.25, 0.1))
    found = compare_frequencies(site, error=0.01)
    assert found[1] == 0.25
    said = chances_of_highest([0.2, 0.3], [0.1, 0.1])
    assert found[0] == pytest.approx(0.1 + 0.55 * said[0])
    assert found[2] == pytest.approx(0.1 + 0.55 * said[1])
    least = believing([0.2, 0.9, 0.3], [0.01, 0.01, 0.01], shares=Shares(None, 0.0, 0.1))
    assert compare_frequencies(least, error=0.01) == pytest.approx({0: 0.1, 1: 0.8, 2: 0.1})


def test_a_draw_for_shares_is_needed_where_there_are_some():
    site = played(terms_of("ucb", shares=SHARES), 0, 7)
    with pytest.raises(InvalidArgument, match="share must be a draw in"):
        asked(site, SiteDraws((), 0.5))
    with pytest.raises(InvalidArgument, match="share must be a number in"):
        SiteDraws((), 0.5, 1.0)
    assert draws_for(site.terms, Random(1)).share is not None
    assert draws_for(terms_of("ucb"), Random(1)).share is None


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        (Shares("bb", 0.2), r"shares.control must be one of the arms: a, b, c, d, not 'bb'. Did you mean 'b'\?"),
        (Shares(None, 0.0, 0.25), "shares.least_share must be below 0.25 for 4 arms, not 0.25. The floors .* sum to 1"),
        (Shares("a", 0.4, 0.2), "shares.least_share must be below 0.2 for 4 arms, not 0.2"),
    ],
)
def test_wrong_shares_are_refused_by_a_federation(shares, message):
    with pytest.raises(InvalidArgument, match=message):
        terms_of("ucb", shares=shares)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"control_share": 0.2}, "control must be an arm, where control_share is given"),
        ({"control": 0}, "control_share must be above 0, where control is given"),
        ({}, "least_share must be above 0, where control is left out"),
        ({"least_share": -0.1}, "least_share must be a probability"),
        ({"control": 0, "control_share": 1.0}, "control_share must be a probability"),
    ],
)
def test_shares_that_say_nothing_are_refused(given, message):
    with pytest.raises(InvalidArgument, match=message):
        Shares(**given)


def test_shares_are_a_term():
    """Sites see by what their shares differ."""
    before, terms = terms_of("ucb"), terms_of("ucb", shares=SHARES)
    assert "shares" not in before.terms()
    assert terms.digest() != before.digest()
    assert terms.difference(before.terms()) == [
        'shares.control: "b" here, absent there',
        "shares.control_share: 0.25 here, absent there",
        "shares.least_share: 0.05 here, absent there",
    ]
    assert terms.difference(terms_of("ucb", shares=Shares("b", 0.2, 0.05)).terms()) == [
        "shares.control_share: 0.25 here, 0.2 there"
    ]
