"""Which arm is best and how sure that is: chances against brute force, and sentences that are true."""

from math import sqrt
from random import Random

import numpy as np
import pytest

from fedbandit import FedBatch, FedUCB, GossipUCB
from fedbandit.agent.core import answer
from fedbandit.agent.core.answer import Belief, Holdout, answer_of, losses_of
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.words import Words, plural
from fedbandit.rules import belief as rules
from fedbandit.rules.propensity import MOST_ERROR
from fedbandit.rules.releases import random_effects
from fedbandit.testing.memory_network import MemoryNetwork

NAMES = ("none", "metformin", "glipizide")
DRAWS = 200_000


def belief(theta, deviation=None, active=None, weights=None, rests_on=""):
    some = (None,) * len(theta)
    names = NAMES[: len(theta)] if len(theta) <= 3 else tuple(f"arm {k}" for k in range(len(theta)))
    return Belief(
        names,
        ["active" if it else "suspended" for it in active or (True,) * len(theta)],
        theta,
        deviation or some,
        weights or (1.0,) * len(theta),
        "over all patients",
        rests_on,
    )


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("num_arms", [2, 3, 8, 30])
def test_chances_and_loss_against_brute_force(num_arms, seed):
    """Tolerances: the rule's own, plus 6 standard errors: a false alarm in 1e-6 for all of these together."""
    random = np.random.default_rng([num_arms, seed])
    means, spreads = random.normal(0.5, 0.02, num_arms), np.abs(random.normal(0.0, 0.02, num_arms)) + 1e-4
    found = answer_of(belief(tuple(means.tolist()), tuple(spreads.tolist())))
    drawn = means + spreads * random.standard_normal((DRAWS, num_arms))
    shares = np.bincount(drawn.argmax(axis=1), minlength=num_arms) / DRAWS
    error = MOST_ERROR + 6.0 * np.sqrt(0.25 / DRAWS)
    assert np.abs(np.array(found.chances) - shares).max() < error
    assert found.leader == int(means.argmax())
    assert found.chance == found.chances[found.leader]
    lost = drawn.max(axis=1) - drawn[:, found.leader]
    assert found.expected_loss == pytest.approx(
        lost.mean(), abs=6.0 * lost.std() / np.sqrt(DRAWS) + 0.01 * lost.mean() + 1e-7
    )
    for k, loss in enumerate(losses_of(found.leader, means.tolist(), spreads.tolist(), ())):
        assert loss.behind == pytest.approx(means.max() - means[k])
        if k != found.leader:
            difference = drawn[:, found.leader] - drawn[:, k]
            # The relative error of a standard deviation is 1 / sqrt(2 DRAWS).
            radius = (loss.interval.high - loss.interval.low) / 2.0
            assert radius == pytest.approx(1.959964 * difference.std(), rel=6.0 / np.sqrt(2 * DRAWS))
            assert loss.always.low < loss.interval.low < loss.behind < loss.interval.high < loss.always.high


def test_two_arms_have_a_closed_form():
    from math import erfc, exp, pi, sqrt

    d, s = 0.03, 0.05
    spread = sqrt(2.0) * s
    exact = spread * exp(-((d / spread) ** 2) / 2) / sqrt(2 * pi) - d * erfc(d / spread / sqrt(2.0)) / 2
    assert rules.expected_loss((0.5, 0.5 - d), (s, s), 0) == pytest.approx(exact, rel=1e-3)
    assert rules.expected_loss((0.5 - d, 0.5), (s, s), 1) == pytest.approx(exact, rel=1e-3)


def test_a_belief_without_spread_loses_nothing():
    assert rules.expected_loss((0.5, 0.4), (0.0, 0.0), 0) == 0.0
    assert rules.expected_loss((0.5, 0.4), (0.1, 0.0), 0) > 0.0
    assert rules.expected_loss((1e-300, 0.0), (1e-310, 0.0), 0) >= 0.0


@pytest.mark.parametrize("num_arms", [2, 30, 150])
@pytest.mark.parametrize("ahead", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("spreads", ["alike", "not alike"])
def test_the_loss_is_as_exact_as_it_says(num_arms, ahead, spreads, monkeypatch):
    """Against cells that are a hundred times finer; with many arms they are coarser, since a point costs more."""
    random = np.random.default_rng(num_arms)
    means = [0.0, *(-np.abs(random.normal(0.0, 0.5, num_arms - 1)) - ahead).tolist()]
    of_arms = [1.0] * num_arms if spreads == "alike" else random.uniform(0.01, 1.0, num_arms).tolist()
    found = rules.expected_loss(means, of_arms, 0)
    monkeypatch.setattr(rules, "_PER_CELL", 1e-7)
    monkeypatch.setattr(rules, "_PER_ARM", 0.0)
    error = found - rules.expected_loss(means, of_arms, 0)
    assert abs(error) < (5e-5 if num_arms <= 30 else 5e-4) * 18.0 * max(of_arms)


def test_the_loss_takes_no_more_time_with_many_arms_than_it_must(monkeypatch):
    """Points times arms: a stream asks for it, and decisions wait."""
    points, factors = [], rules._factors
    monkeypatch.setattr(rules, "_factors", lambda *given: points.append(1) or factors(*given))
    means = np.random.default_rng(1).normal(0.5, 0.05, 150).tolist()
    rules.expected_loss(means, [0.1] * 150, int(np.argmax(means)))
    assert len(points) < 100


@pytest.mark.parametrize("num_arms", [2, 3, 10, 30])
def test_a_chance_near_the_bound_of_what_is_settled_is_exact(num_arms):
    """The rule promises 0.008, which would be much beside 0.99. For equals behind the leader a fine sum says it."""
    from math import erfc

    grid = np.linspace(-9.0, 9.0, 2_001)
    density = np.exp(-grid * grid / 2.0)
    for gap in np.linspace(2.5, 6.0, 8).tolist():
        below = np.array([1.0 - erfc((x + gap) / 2**0.5) / 2.0 for x in grid])
        exact = float((density * below ** (num_arms - 1)).sum() / density.sum())
        found = answer_of(belief((gap, *[0.0] * (num_arms - 1)), (1.0,) * num_arms)).chance
        assert found == pytest.approx(exact, abs=0.002 if exact > 0.98 else MOST_ERROR)


def test_it_does_not_depend_on_the_unit_of_rewards():
    small = answer_of(belief((0.1, 0.12, 0.11), (0.01, 0.02, 0.01)))
    large = answer_of(belief((100.0, 120.0, 110.0), (10.0, 20.0, 10.0)))
    assert small.chances == pytest.approx(large.chances, abs=1e-9)
    assert 1000.0 * small.expected_loss == pytest.approx(large.expected_loss)


def test_chances_are_computed_once_for_the_same_numbers():
    answer._beliefs.cache_clear()
    for _ in range(10):
        answer_of(belief((0.1, 0.2), (0.01, 0.02)))
    assert answer._beliefs.cache_info().misses == 1


# ---------------------------------------------------------------- which arms count


def test_a_stopped_arm_is_no_candidate():
    found = answer_of(belief((0.9, 0.5, 0.4), (0.01, 0.05, 0.05), active=(False, True, True)))
    assert found.leader == 1
    assert found.chances[0] is None
    assert losses_of(1, (0.9, 0.5, 0.4), (0.01, 0.05, 0.05), {0})[0] == (None, None, None)
    assert sum(found.chances[1:]) == pytest.approx(1.0)


def test_an_unknown_arm_leaves_the_chance_open():
    found = answer_of(belief((0.9, None, 0.4), (0.01, None, 0.05)))
    assert (found.leader, found.chance, found.settled, found.expected_loss) == (0, None, False, None)
    assert set(found.chances) == {None}
    losses = losses_of(0, (0.9, None, 0.4), (0.01, None, 0.05), ())
    assert [it.behind for it in losses] == [0.0, None, pytest.approx(0.5)]
    assert losses_of(0, (0.9, None, 0.4), (None, None, None), ())[2] == (pytest.approx(0.5), None, None)
    assert "too little is known of metformin to compare" in found.words


def test_an_unknown_arm_that_is_stopped_does_not():
    found = answer_of(belief((0.9, None, 0.4), (0.01, None, 0.05), active=(True, False, True)))
    assert found.settled


def test_one_arm_or_no_leader_leaves_nothing_to_lose():
    nothing = [(None, None, None)] * 3
    assert losses_of(None, (0.9, 0.5, 0.4), (0.1, 0.1, 0.1), ()) == nothing
    assert losses_of(0, (0.9, 0.5, 0.4), (0.1, 0.1, 0.1), {1, 2}) == nothing
    assert losses_of(0, (None, 0.5, 0.4), (None, 0.1, 0.1), ()) == nothing


# ---------------------------------------------------------------- words


AHEAD = ((0.9, 0.5, 0.4), (0.01, 0.01, 0.01), (False, True, True))


def test_a_stopped_arm_with_a_higher_average_is_named():
    """A physician must not read that the second best is best of all."""
    found = answer_of(belief(*AHEAD))
    assert found.settled
    assert found.words == (
        "Of the arms that are given now, metformin is best on average over all patients (more than 99 % sure). none, "
        "with a higher average, is suspended. For one patient another arm may be better."
    )
    retired = answer_of(belief(*AHEAD)._replace(status=("retired", "active", "active")))
    assert "none, with a higher average, is retired." in retired.words
    lower = answer_of(belief((0.2, 0.5, 0.4), *AHEAD[1:]))
    assert lower.words.startswith("metformin is best on average over all patients (")
    assert "none" not in lower.words


@pytest.mark.parametrize(
    "changes",
    [
        {"rests_on": "north"},
        {"deviation": (0.01, 0.2, 0.2)},
        {"deviation": (None, None, None)},
        {"theta": (0.9, 0.5, None), "deviation": (0.01, 0.01, None)},
    ],
)
def test_it_is_named_whatever_is_known_of_the_others(changes):
    words = answer_of(belief(*AHEAD)._replace(**changes)).words
    assert words.startswith("Of the arms that are given now, metformin ")
    assert ". none, with a higher average, is suspended." in words


def test_several_arms_that_are_ahead_and_stopped():
    theta, errors = (0.9, 0.5, 0.4, 0.95, 0.7), (0.01,) * 5
    stopped = ("suspended", "active", "active", "suspended", "retired")
    words = answer_of(belief(theta, errors)._replace(status=stopped)).words
    assert "arm 3 and arm 0, with higher averages, are suspended. arm 4, with a higher average, is retired." in words
    only = answer_of(belief(*AHEAD)._replace(status=("retired", "suspended", "active"))).words
    assert only == (
        "Only glipizide is given now: there is nothing to compare it with. metformin, with a higher average, is "
        "suspended. none, with a higher average, is retired."
    )


def test_nothing_is_known_yet():
    found = answer_of(belief((None, None, None)))
    assert (found.leader, found.settled) == (None, False)
    assert found.words == "Nothing can be said yet: too few results have been released."


def test_one_arm_or_none():
    found = answer_of(belief((0.5, 0.9, 0.1), (0.1, 0.1, 0.1), active=(False, True, False)))
    assert (found.leader, found.chance, found.settled) == (1, None, False)
    assert found.words == "Only metformin is given now: there is nothing to compare it with."
    found = answer_of(belief((0.5, 0.9, 0.1), (0.1, 0.1, 0.1), active=(False, False, False)))
    assert (found.leader, found.words) == (None, "No arm is given now: all are stopped.")


def test_open_and_settled():
    found = answer_of(belief((0.5, 0.52, 0.3), (0.02, 0.02, 0.02)))
    assert not found.settled
    assert found.words.startswith(
        "metformin is best so far on average over all patients, but this is not settled (76 % sure): none may be "
        "better (23 %). By what is known now, always giving metformin would mean about 4 fewer rewards per 1,000 "
        "patients, on average, than always giving the best arm."
    )
    assert found.words.endswith("For one patient another arm may be better.")
    found = answer_of(belief((0.5, 0.62, 0.3), (0.02, 0.02, 0.02)))
    assert found.settled
    assert found.words.startswith("metformin is best on average over all patients (more than 99 % sure).")


@pytest.mark.parametrize(
    ("chance", "words"),
    [(0.9999, "more than 99 %"), (0.99, "99 %"), (0.9499, "94 %"), (0.009, "less than 1 %"), (0.5, "50 %")],
)
def test_nobody_is_told_more_than_is_known(chance, words):
    assert answer.in_percent(chance) == words


def test_a_part_of_the_federation_is_called_so():
    of_all = answer_of(belief((0.5, 0.6, 0.3), (0.02, 0.02, 0.02), weights=(0.95, 1.02, 0.9)))
    of_some = answer_of(belief((0.5, 0.6, 0.3), (0.02, 0.02, 0.02), weights=(0.95, 1.02, 0.5)))
    assert "part of the federation" not in of_all.words
    assert "about 50 %" in of_some.words
    stopped = (True, True, False)
    other = answer_of(belief((0.5, 0.6, 0.3), (0.02, 0.02, 0.02), stopped, weights=(0.95, 1.02, 0.5)))
    assert "part of the federation" not in other.words, "only arms that are compared"


def test_what_daily_looks_can_produce_settles_nothing():
    """A lead of 2.8 standard deviations is a chance of 99.7 %, and found by chance now and then by who looks daily."""
    found = answer_of(belief((0.5, 0.58), (0.02, 0.02)))
    assert found.chance > 0.99
    assert not found.settled
    assert "(more than 99 % sure by what is known here), but this is not settled: whoever looks again" in found.words
    assert answer_of(belief((0.5, 0.59), (0.02, 0.02))).settled
    assert not answer_of(belief((0.5, 0.59, 0.1, 0.1, 0.1, 0.1, 0.1), (0.02,) * 7)).settled, "more arms, more chances"


@pytest.mark.parametrize(
    ("words", "low", "high", "loss", "said"),
    [
        (Words(), 0.0, 1.0, 0.0096, "about 1 fewer reward per 100 patients"),
        (Words("treatment", "success", "failure"), 0.0, 1.0, 0.0096, "about 1 more failure per 100 patients"),
        (Words("treatment", "success"), 0.0, 1.0, 0.26, "about 26 fewer successes per 100 patients"),
        (Words(failure="death"), 0.0, 1.0, 0.0031, "about 3 more deaths per 1,000 patients"),
        (Words(failure="death"), 0.0, 1.0, 1e-5, "at most 1 more death per 1,000 patients"),
        (Words(reward="quality of life"), 0.0, 100.0, 0.031, "about 3.1 less quality of life per 100 patients"),
        (Words("treatment", "success", "failure"), 0.0, 1.0, -0.0096, "about 1 fewer failure per 100 patients"),
        (Words("treatment", "success"), 0.0, 1.0, -0.26, "about 26 more successes per 100 patients"),
    ],
)
def test_a_loss_is_told_in_patients(words, low, high, loss, said):
    """Never as a number per decision."""
    assert words.per_patients(-loss, low, high) == said


def test_the_words_of_the_terms_are_spoken():
    said = Words("therapy", "success", "failure")
    found = answer_of(belief((0.5, 0.52), (0.02, 0.02))._replace(words=said)).words
    assert "more failures per 1,000 patients" in found
    assert "the best therapy. For one patient another therapy may be better." in found
    assert "arm" not in found.replace("metformin", "")


@pytest.mark.parametrize(
    ("word", "several"), [("arm", "arms"), ("therapy", "therapies"), ("success", "successes"), ("day", "days")]
)
def test_plurals(word, several):
    assert plural(word) == several


def test_95_percent_settle_nothing():
    """Who looks often sees that by chance: see docs/operations.md."""
    found = answer_of(belief((0.5, 0.55), (0.02, 0.02)))
    assert 0.95 < found.chance < 0.98
    assert not found.settled
    assert "but this is not settled (96 % sure)" in found.words


def test_nothing_is_settled_that_rests_on_one_site():
    found = answer_of(belief((0.5, 0.6, 0.3), (0.02, 0.02, 0.02), rests_on="north"))
    assert found.chance > 0.99
    assert not found.settled
    assert found.words.startswith(
        "metformin is best so far on average over all patients (more than 99 % sure by what is known here), but this "
        "is not settled: it rests on north alone, without which another arm might lead."
    )


def test_a_policy_that_does_not_say_how_sure_it_is():
    found = answer_of(belief((0.5, 0.9, 0.3)))
    assert (found.leader, found.chance, found.settled) == (1, None, False)
    assert "How sure that is, this policy does not say" in found.words


# ---------------------------------------------------------------- at sites


MEANS = 0.2, 0.8, 0.4
THREE = [("here", "there"), ("there", "yonder")]


def network(policy=None, links=THREE, counts=None, noise=None):
    """Sites that have linked; nothing has been decided."""
    terms = Federation("trial", NAMES, 0.0, 1.0, policy or FedBatch(2.0, first_batch=4), counts=counts)
    found = MemoryNetwork(terms, links, seed=1, noise=noise or (lambda epsilon, count: [0] * count), spreads=True)
    pass_on(found)
    return found


def pass_on(it):
    for link in it.links:
        it.exchange(*link)
    it.run()


def treat(it, names, patients=200):
    random = Random(2)  # noqa: S311  # a simulation
    for _ in range(patients):
        for name in names:
            it.now += 60.0
            decision = it.decide(name)
            it.report(name, decision.id, float(random.random() < MEANS[decision.arm]))
    it.run()


@pytest.mark.parametrize("index", ["thompson", "ucb", "kl"])
@pytest.mark.parametrize("counts", ["sites", "patients"])
def test_the_error_is_exactly_that_of_the_board(index, counts):
    """The root of both parts of the variance, of what has been released and of what is missing, at every site."""
    it = network(FedBatch(2.0, index=index, first_batch=4), counts=counts)
    treat(it, ["here", "there"])
    treat(it, ["yonder"], 30)
    fixed = it.site("here").terms.page_terms
    for name in it.names:
        site = it.site(name)
        for k, arm in enumerate(NAMES):
            rows, versions = site.board.rows(arm)
            total = float(len(rows)) if counts == "sites" else 0.0
            mean, sampling, missing, _ = random_effects(rows, versions, total, total, fixed.most_variance / 3.0)
            assert site.theta[k] == pytest.approx(mean / 2**16)
            assert site.errors[k] == pytest.approx(sqrt(sampling + missing) / 2**16)
        assert site.answer == it.site("here").answer
    assert it.site("here").answer.leader == 1
    assert it.site("here").answer.chance is not None


@pytest.mark.parametrize("policy", [GossipUCB(), FedUCB(1.0, horizon=1000)])
def test_a_margin_is_no_typical_error(policy):
    it = network(policy)
    treat(it, it.names, 60)
    found = it.site("here").answer
    assert (found.leader, found.chance, found.settled) == (1, None, False)
    assert set(found.chances) == {None}
    assert found.words.startswith("metformin has the highest average so far")
    assert "How sure that is, this policy does not say." in found.words


def test_nothing_is_known_before_the_first_release():
    it = network()
    treat(it, ["here"], 3)
    assert it.site("here").answer.words.startswith("Nothing can be said yet")


def test_one_message_is_enough_to_answer():
    """A site that joins knows what all others have released with its first message: no answer waits for exchanges."""
    it = network()
    treat(it, it.names)
    it.join("late", ["here"])
    pass_on(it)
    assert it.site("late").theta == it.site("here").theta
    assert it.site("late").answer.leader == 1
    it.restart("there")
    it.save_board("here")
    it.restart("here")
    assert it.site("here").theta == it.site("late").theta, "the board is on disk"


def test_a_site_that_has_released_alone_settles_nothing():
    """However much it has released, and though the others are known to be there."""
    it = network()
    treat(it, ["there"], 600)
    for name in it.names:
        site = it.site(name)
        assert site.num_agents == 3
        assert site.answer.leader == 1
        assert not site.answer.settled
        assert site.weights == pytest.approx((1 / 3,) * 3)


def test_who_leaves_the_answer_open_is_named():
    """The site whose few releases are what the error comes from; nobody once the answer is sure."""
    it = network(counts="sites")
    treat(it, ["here", "there"], 600)
    treat(it, ["yonder"], 14)
    site = it.site("here")
    assert site.board.counted() == ("here", "there", "yonder")
    found = site.holdout
    if site.answer.chance is None or site.answer.chance < 0.99:
        assert isinstance(found, Holdout)
        assert found.site == "yonder"
    treat(it, ["yonder"], 600)
    assert it.site("here").answer.chance > 0.99
    assert it.site("here").holdout is None


def test_a_site_that_is_alone_says_so():
    it = network()
    it.leave("there")
    it.leave("yonder")
    treat(it, ["here"])
    alone = MemoryNetwork(it.terms, [("here", "nobody")], noise=lambda epsilon, count: [0] * count)
    alone.leave("nobody")
    treat(alone, ["here"])
    assert "at this site, the only one that takes part so far" in alone.site("here").answer.words
    assert "over all patients of 3 sites" in it.site("here").answer.words, "what others have released stays"
