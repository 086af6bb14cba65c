"""Guardrails: who suspends which arm when, who may undo it, and how often they act without cause.

Statistical tests have fixed seeds; what a guardrail that keeps its 5 % would fail by chance is said at each.
"""

import math
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from scipy import stats

from fedbandit import FedBatch, FedUCB, InvalidArgument, Shares
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.guardrails import Guard, Guardrails
from fedbandit.local.processes import LocalFederation
from fedbandit.rules import proved
from fedbandit.rules.guardrail import MeanOfReleases, deficit, shares_by_precision
from fedbandit.testing.memory_network import MemoryNetwork
from processes import ask, command, lines, state, wait_until
from test_proved import row

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import guardrails as measured


def terms(worse_by=0.1, reference="A", arms=("A", "B"), **more):
    given = {"policy": FedBatch(2.0, first_batch=20), "shares": Shares(least_share=0.8 / len(arms))} | more
    return Federation("guarded", arms, 0.0, 1.0, guardrails=Guardrails(reference, worse_by), **given)


def network(*links, seed=1, **more):
    return MemoryNetwork(terms(**more), links or [("north", "east"), ("east", "south")], seed=seed, spreads=True)


def play(found, rates, until, names=None, most=4000, seed=3):
    """Decisions at each site until something is so; how many at each."""
    outcomes = Random(seed)  # noqa: S311
    for count in range(most):
        if until():
            return count
        for name in names or found.running:
            made = found.decide(name)
            arm = found.site(name).arms.names[made.arm]
            found.report(name, made.id, float(outcomes.random() < rates[arm]))
        found.run(found.now + 60.0)
    raise AssertionError(f"not within {most} decisions of each site")


def is_suspended(found, name, arm="B"):
    return found.site(name).arms.standing(arm).status == "suspended"


def settled(found):
    """All messages have come, and everybody has looked."""
    for _ in range(4):
        found.run()
        for a, b in found.links:
            found.exchange(a, b)
        found.run()


# ---------------------------------------------------------------- the bound


def as_mean(e, mean=0.0, first=24, growth=1.25, epsilon=1.0):
    _, _, releases, variance, noise, largest = row(mean, e, first, growth, epsilon)
    return MeanOfReleases(mean, int(releases), variance, noise, largest)


def test_the_deficit_is_what_chernoff_says_of_a_fixed_board():
    """At the level of the union bound, for shares that are not alike; and no smaller than the exact bound."""
    pairs = [(as_mean(5, 0.7), as_mean(3, 0.4)), (as_mean(9, 0.6), as_mean(9, 0.5))]
    shares, sites, most, error = [0.3, 0.7], 4, 60, 0.025
    level = -math.log(error) + math.log(5 * 6)
    level += proved.price(sites, 2, 5, 14, most) + proved.price(sites, 2, 3, 12, most)
    coefficients, rewards = [], 0.0
    for share, pair in zip(shares, pairs, strict=True):
        for mean in pair:
            sizes = np.array([24] * mean.releases, float)
            for k in range(mean.releases):
                sizes[k] = max(24, math.ceil(0.25 * sizes[:k].sum()))
            weights = 1 / (0.25 / sizes + 2 / sizes**2)
            weights /= weights.sum()
            coefficients += list(share * weights / sizes)
            rewards += float(np.sum((share * weights) ** 2 / sizes)) / 4
    c = np.array(coefficients)
    z = np.linspace(1e-3, 0.999, 4000)[:, None] / c.max()
    exact = np.min((level + rewards * z[:, 0] ** 2 / 2 - np.log1p(-((c * z) ** 2)).sum(axis=1)) / z[:, 0])
    found = deficit(pairs, shares, sites, most, error)
    assert found.estimate == pytest.approx(0.3 * 0.3 + 0.7 * 0.1)
    assert exact <= found.estimate - found.certain <= 1.1 * exact


def test_a_site_weighs_by_what_it_has_released_and_never_more_than_the_largest_share():
    small, large = (as_mean(3), as_mean(3)), (as_mean(20), as_mean(20))
    assert shares_by_precision([small, large], 1.0)[1] == pytest.approx(
        small[0].variance / (small[0].variance + large[0].variance)
    )
    assert max(shares_by_precision([small, small, large], 0.5)) == pytest.approx(0.5)


@pytest.mark.parametrize("sites", [1, 4])
def test_it_acts_without_cause_no_more_often_than_it_says(sites):
    """At the edge of its limit, looked at after each release for a year, 400 times: more than 41 of 2.5 %, 1 in 10^10.

    A plain interval of 95 % at each look would have acted in about a third.
    """
    assert stats.binom.sf(41, 400, 0.025) < 1e-10
    given = measured.terms_of(sites), measured.means(sites, 0.1), 0.1, 400, 5
    assert np.isfinite(measured.acts_after(*given)).sum() <= 41
    assert np.isfinite(measured.acts_after(*given, looks="once")).sum() > 60, "the test can tell"
    worse = measured.acts_after(measured.terms_of(sites), measured.means(sites, 0.4), 0.1, 100, 6)
    assert np.isfinite(worse).all(), "and it acts with cause"


# ---------------------------------------------------------------- a federation


def test_an_arm_that_is_worse_is_suspended_everywhere_with_the_reason():
    found = network()
    play(found, {"A": 0.8, "B": 0.3}, lambda: is_suspended(found, "north"))
    settled(found)
    assert all(is_suspended(found, name) for name in found.names)
    change = found.site("south").arms.standing("B").by
    assert change.by in found.names
    assert change.reason.startswith("guardrail: worse than A by 0.")
    assert "the limit is 0.1" in change.reason
    assert {found.decide(name).arm for name in found.names for _ in range(30)} == {0}
    assert not found.site("north").arms.waiting, "a stop needs nobody's consent"


def test_an_arm_within_the_limit_stays():
    found = network()
    play(found, {"A": 0.6, "B": 0.55}, lambda: found.site("north").decided >= 500)
    settled(found)
    assert not any(is_suspended(found, name) for name in found.names)


def test_the_reference_itself_is_never_suspended_nor_the_only_arm_that_is_given():
    found = network()
    play(found, {"A": 0.2, "B": 0.8}, lambda: found.site("north").decided >= 300)
    assert not found.site("north").stopped, "the others may be better by anything"
    found = network()
    found.change_arm("north", "suspend", "A", "recalled")
    settled(found)
    assert found.site("north").stopped == {0}
    other = network(arms=("A", "B", "C"))
    play(other, {"A": 0.8, "B": 0.8, "C": 0.8}, lambda: min(other.site("north").releases) >= 2)
    other.change_arm("north", "suspend", "A", "recalled")
    settled(other)
    rates = {"B": 0.1, "C": 0.1}
    play(other, rates, lambda: bool(other.site("north").stopped - {0}))
    play(other, rates, lambda: other.site("north").decided >= 600)
    settled(other)
    assert len(other.site("north").stopped) == 2, "one is left"


def test_each_side_of_a_partition_looks_on_its_own():
    found = network(("north", "east"), ("east", "south"), ("south", "west"))
    found.partition("north", "east")
    play(found, {"A": 0.9, "B": 0.1}, lambda: is_suspended(found, "north") and is_suspended(found, "west"))
    made = {found.site(name).arms.standing("B").by.by for name in ("north", "west")}
    assert len(made) == 2, "nobody could tell the other side"


class TestAPersonHasResumedIt:
    """North's operator resumes the arm, with a reason."""

    @pytest.fixture
    def resumed(self):
        found = network()
        found.accepts = dict.fromkeys(found.names, "anyone")
        for name in found.names:
            found.restart(name)
        play(found, {"A": 0.8, "B": 0.3}, lambda: is_suspended(found, "north"))
        settled(found)
        found.change_arm("north", "resume", "B", "outcomes of one ward were entered the wrong way round")
        settled(found)
        return found

    def test_it_is_not_suspended_again_at_once_nor_after_a_restart(self, resumed):
        assert not any(is_suspended(resumed, name) for name in resumed.names)
        for name in resumed.names:
            resumed.restart(name)
        settled(resumed)
        play(resumed, {"A": 0.7, "B": 0.7}, lambda: resumed.site("north").decided >= 900)
        settled(resumed)
        assert not any(is_suspended(resumed, name) for name in resumed.names)
        said = " ".join(resumed.site("south").warnings())
        assert "B was resumed although it was worse than A by more than 0.1" in said

    def test_it_is_suspended_again_once_it_is_worse_by_as_much_again(self, resumed):
        known = resumed.site("east").stored.overruled["B"]
        assert known > 0.1
        play(resumed, {"A": 1.0, "B": 0.0}, lambda: is_suspended(resumed, "east"))
        reason = resumed.site("east").arms.standing("B").by.reason
        assert f"the limit is {known + 0.1:.4g}" in reason

    def test_it_stays_suspended_where_nobody_has_accepted_that(self):
        found = network()
        play(found, {"A": 0.8, "B": 0.3}, lambda: is_suspended(found, "north"))
        settled(found)
        found.change_arm("north", "resume", "B", "a mistake")
        settled(found)
        assert [is_suspended(found, name) for name in ("north", "east", "south")] == [False, True, True]
        found.accept_arm("east", "B")
        play(found, {"A": 0.8, "B": 0.8}, lambda: found.site("east").decided >= 700, ["north", "east"])
        assert not is_suspended(found, "east")

    def test_a_resumed_arm_within_the_limit_has_the_limit_of_the_terms(self):
        found = network()
        found.change_arm("north", "suspend", "B", "recalled")
        found.change_arm("north", "resume", "B", "tested")
        assert found.site("north").stored.overruled == {"B": 0.0}
        play(found, {"A": 0.9, "B": 0.2}, lambda: is_suspended(found, "north"))


def test_in_doubt_nobody_is_guarded():
    """What a folder that may be old says is no reason to stop an arm everywhere."""
    found = network(("north", "east"))
    play(found, {"A": 0.6, "B": 0.6}, lambda: min(found.site("north").releases) >= 1)
    found.crash("east")
    found.restart("north")
    assert found.site("north").doubt is not None
    assert not found.site("north").needs_guarding()


def test_an_arm_that_was_added_is_guarded_too():
    found = network()
    found.accepts = dict.fromkeys(found.names, "anyone")
    for name in found.names:
        found.restart(name)
    found.change_arm("north", "add", "new")
    settled(found)
    play(found, {"A": 0.9, "B": 0.9, "new": 0.1}, lambda: is_suspended(found, "south", "new"))
    guard = Guard(found.terms)
    board = found.site("south").board
    assert guard.deficit(board, "new").certain < guard.deficit(board, "new").estimate


# ---------------------------------------------------------------- the terms


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"worse_by": -0.1}, "worse_by must be 0 or more, in units of a reward, not -0.1"),
        ({"worse_by": 1.0}, "guardrails.worse_by must be below 1, the width of the range"),
        ({"worse_by": math.nan}, "worse_by must be a finite number"),
        ({"reference": "C"}, "guardrails.reference must be one of the arms: A, B, not 'C'"),
        ({"policy": FedUCB(1.0, horizon=100), "shares": None}, "guardrails must be left out: only fed_batch"),
        ({"policy": FedBatch(1.0, sigma=0.2)}, "policy.sigma must be left out with guardrails"),
        ({"policy": FedBatch(1.0, growth=1.01)}, "policy.growth must be at least 1.05 with guardrails"),
    ],
)
def test_wrong_guardrails_are_refused_in_words(given, said):
    with pytest.raises(InvalidArgument) as caught:
        terms(**given)
    assert said in str(caught.value)


def test_they_are_terms():
    one, other = terms(0.1), terms(0.2)
    assert one.digest() != other.digest()
    assert "guardrails.worse_by: 0.1 here, 0.2 there" in " ".join(one.difference(other.terms()))


# ---------------------------------------------------------------- real agents


def test_real_agents_suspend_an_arm_and_a_person_resumes_it(tmp_path):
    """Over TLS, with files: the reason is shown, and survives a restart; without a reason nobody resumes it."""
    given = terms(0.1, policy=FedBatch(5.0, first_batch=10), max_agents=2)
    federation = LocalFederation(tmp_path, given, [("north", "east")])

    def status(name):
        arms = ask(f"{federation.url(name)}/v1/arms")[1]["arms"]
        return {it["name"]: it["status"] for it in arms}["B"]

    def give(name, count):
        for _ in range(count):
            made = ask(f"{federation.url(name)}/v1/decisions", "POST")[1]
            value = float(made["name"] == "A")
            assert ask(f"{federation.url(name)}/v1/decisions/{made['id']}/reward", "PUT", {"value": value})[0] == 204

    with federation:
        wait_until(lambda: all(state(federation, it)["neighbours"][0]["reachable"] for it in federation.names))

        def worse():
            give("north", 20)
            return status("north") == "suspended"

        wait_until(worse, within=60.0)
        wait_until(lambda: status("east") == "suspended")
        assert any(lines(federation, name, "guardrail: worse than A by") for name in federation.names)  # who was first
        code, said = command("arm", "list", "-c", federation.config("east"))
        assert code == 0
        assert "guardrail: worse than A by" in " ".join(said.split())
        code, said = command("arm", "resume", "B", "-c", federation.config("north"))
        assert code == 2
        assert "--reason" in said
        code, said = command("arm", "resume", "B", "--reason", "one ward", "-c", federation.config("north"))
        assert code == 0, said
        federation.kill("north")
        federation.start("north")
        federation.wait_ready("north")
        give("north", 20)
        assert status("north") == "active", "a restart remembers what a person has resumed"
