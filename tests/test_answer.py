"""Which arm is best and how sure that is: chances against brute force, and sentences that are true."""

import numpy as np
import pytest

from fedbandit import FedBatch, FedUCB, GossipUCB
from fedbandit.agent.core import answer
from fedbandit.agent.core import site as site_module
from fedbandit.agent.core.answer import Belief, Holdout, answer_of, losses_of
from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.memory_network import simulated_signature
from fedbandit.agent.core.player import ENOUGH_EXCHANGES, RESTLESS
from fedbandit.agent.core.records import Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.standings import Standing
from fedbandit.agent.http.snapshot import _arm_states
from fedbandit.rules import belief as rules
from fedbandit.rules.propensity import MOST_ERROR

NAMES = ("none", "metformin", "glipizide")
DRAWS = 200_000


def belief(theta, deviation=None, active=None, weights=None, is_mixed=True):
    some = (None,) * len(theta)
    names = NAMES[: len(theta)] if len(theta) <= 3 else tuple(f"arm {k}" for k in range(len(theta)))
    return Belief(
        names,
        ["active" if it else "suspended" for it in active or (True,) * len(theta)],
        theta,
        deviation or some,
        weights or (1.0,) * len(theta),
        is_mixed,
        "over all patients",
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
            assert loss.radius == pytest.approx(difference.std(), rel=6.0 / np.sqrt(2 * DRAWS))


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
    assert losses_of(1, (0.9, 0.5, 0.4), (0.01, 0.05, 0.05), {0})[0] == (None, None)
    assert sum(found.chances[1:]) == pytest.approx(1.0)


def test_an_unknown_arm_leaves_the_chance_open():
    found = answer_of(belief((0.9, None, 0.4), (0.01, None, 0.05)))
    assert (found.leader, found.chance, found.settled, found.expected_loss) == (0, None, False, None)
    assert set(found.chances) == {None}
    losses = losses_of(0, (0.9, None, 0.4), (0.01, None, 0.05), ())
    assert [it.behind for it in losses] == [0.0, None, pytest.approx(0.5)]
    assert losses_of(0, (0.9, None, 0.4), (None, None, None), ())[2] == (pytest.approx(0.5), None)
    assert "too little is known of metformin to compare" in found.words


def test_an_unknown_arm_that_is_stopped_does_not():
    found = answer_of(belief((0.9, None, 0.4), (0.01, None, 0.05), active=(True, False, True)))
    assert found.settled


def test_one_arm_or_no_leader_leaves_nothing_to_lose():
    nothing = [(None, None)] * 3
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
        {"is_mixed": False},
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
        "better (23 %). By what is known now, always giving metformin would lose 0.0"
    )
    assert found.words.endswith("For one patient another arm may be better.")
    found = answer_of(belief((0.5, 0.6, 0.3), (0.02, 0.02, 0.02)))
    assert found.settled
    assert found.words.startswith("metformin is best on average over all patients (more than 99 % sure).")


@pytest.mark.parametrize(
    ("chance", "words"),
    [(0.9999, "more than 99 %"), (0.99, "99 %"), (0.9499, "94 %"), (0.009, "less than 1 %"), (0.5, "50 %")],
)
def test_nobody_is_told_more_than_is_known(chance, words):
    assert answer._in_percent(chance) == words


def test_a_part_of_the_federation_is_called_so():
    of_all = answer_of(belief((0.5, 0.6, 0.3), (0.02, 0.02, 0.02), weights=(0.95, 1.02, 0.9)))
    of_some = answer_of(belief((0.5, 0.6, 0.3), (0.02, 0.02, 0.02), weights=(0.95, 1.02, 0.5)))
    assert "part of the federation" not in of_all.words
    assert "about 50 %" in of_some.words
    stopped = (True, True, False)
    other = answer_of(belief((0.5, 0.6, 0.3), (0.02, 0.02, 0.02), stopped, weights=(0.95, 1.02, 0.5)))
    assert "part of the federation" not in other.words, "only arms that are compared"


def test_95_percent_settle_nothing():
    """Who looks often sees that by chance: see docs/operations.md."""
    found = answer_of(belief((0.5, 0.55), (0.02, 0.02)))
    assert 0.95 < found.chance < 0.98
    assert not found.settled
    assert "but this is not settled (96 % sure)" in found.words


def test_nothing_is_settled_before_releases_have_spread():
    found = answer_of(belief((0.5, 0.6, 0.3), (0.02, 0.02, 0.02), is_mixed=False))
    assert found.chance > 0.99
    assert not found.settled
    assert "(more than 99 % sure by what is known here), but this is not settled" in found.words


def test_a_policy_that_does_not_say_how_sure_it_is():
    found = answer_of(belief((0.5, 0.9, 0.3)))
    assert (found.leader, found.chance, found.settled) == (1, None, False)
    assert "How sure that is, this policy does not say" in found.words


# ---------------------------------------------------------------- at a site


def played(policy, rewards=60, counts=None):
    several = None if isinstance(policy, FedBatch) else 2
    terms = Federation("trial", NAMES, 0.0, 1.0, policy, counts=counts, max_agents=several)
    site = Site("here", terms, Stored(Numbering(1, 0), 1), lambda epsilon, count: [0] * count)
    for k in range(rewards):
        decision = site.decide(float(k), SiteDraws((0.3 * (k % 2), 0.0, 0.3 * (k % 3)), 0.5, None)).result
        site.report(decision.id, (0.2, 0.8, 0.4)[decision.arm])
    return site


@pytest.mark.parametrize("index", ["thompson", "ucb", "kl"])
def test_the_chance_is_that_of_the_numbers_of_the_index(index):
    """Whatever the index, the standard deviation is the same: that with which Thompson sampling draws."""
    site = played(FedBatch(2.0, index=index, first_batch=4))
    spreads = tuple(site._player.deviation(k) for k in range(3))
    if index == "thompson":
        assert spreads == site.radius
    else:
        assert all(margin > spread for margin, spread in zip(site.radius, spreads, strict=True))
    expected = answer_of(belief(site.theta, spreads))
    assert site.answer.chances == expected.chances
    assert site.answer.chance is not None


@pytest.mark.parametrize("policy", [GossipUCB(), FedUCB(1.0, horizon=1000)])
def test_a_margin_is_no_typical_error(policy):
    found = played(policy).answer
    assert (found.leader, found.chance, found.settled) == (1, None, False)
    assert set(found.chances) == {None}
    assert found.words.startswith("metformin has the highest average so far")
    assert "How sure that is, this policy does not say." in found.words


def test_nothing_is_known_before_the_first_release():
    assert played(FedBatch(1.0, first_batch=4), 5).answer.words.startswith("Nothing can be said yet")


def pair(terms=None, patients=400, exchanges=200):
    """Two sites that have exchanged what they released; metformin is best."""
    terms = terms or Federation("trial", NAMES, 0.0, 1.0, FedBatch(2.0, first_batch=4))
    sites = [
        Site(name, terms, Stored(Numbering(1, 0), 1), lambda epsilon, count: [0] * count) for name in ("here", "there")
    ]
    sites[0].join("there")
    sites[1].join("here")
    for site in sites:
        treat(site, patients, (0.2, 0.8, 0.4))
    for _ in range(exchanges):
        exchange(*sites)
    return sites


def treat(site, patients, rewards):
    for k in range(patients):
        arms = len(site.arms.names)
        draws = SiteDraws(tuple(50.0 * (arm == k % arms) for arm in range(arms)), 0.5, None)
        decision = site.decide(site.clock + 60.0, draws).result
        site.report(decision.id, rewards[decision.arm])


def exchange(one, other):
    one.receive_reply(other.receive_offer(one.offer(other.name).result).result)


def test_the_answer_is_that_of_the_last_exchange():
    """Who is cut off is not moved by its own patients alone, which count in full here and in no estimate elsewhere."""
    here, there = pair()
    before, errors, theta = here.answer, here.errors, here.theta
    assert before.settled
    assert (before.leader, before.words.startswith("metformin is best on average over all patients of 2 sites")) == (
        1,
        True,
    )
    treat(here, 600, (0.9, 0.1, 0.4))
    assert here.theta != theta
    assert here.errors != errors
    assert here.answer == before
    exchange(here, there)
    assert here.answer != before
    assert here._at_exchange is None


def test_what_an_arm_loses_fits_the_estimates_beside_it():
    """Also after rewards, which move estimates, and not the answer before the next exchange."""
    here, _ = pair()
    treat(here, 600, (0.9, 0.1, 0.4))
    arms = _arm_states(here, here.answer)
    assert [it.name for it in arms if it.behind == 0.0] == [NAMES[here.answer.leader]] == ["metformin"]
    assert arms[0].estimate > arms[1].estimate, "by its own patients since the last exchange"
    for arm in arms:
        assert arm.behind == arms[1].estimate - arm.estimate
        if arm is not arms[1]:
            assert arm.behind_radius == pytest.approx(np.hypot(arm.error, arms[1].error))


def test_an_answer_that_was_lost_is_no_exchange():
    here, there = pair()
    before = here.answer
    treat(here, 300, (0.9, 0.1, 0.4))
    late = there.receive_offer(here.offer("there").result).result
    assert here.answer == before
    here.receive_reply(late)
    assert here.answer != before
    after = here.answer
    treat(here, 300, (0.9, 0.1, 0.4))
    here.receive_reply(late)
    assert here.answer == after, "it came twice: nothing was averaged"


def test_arms_that_were_stopped_or_added_since_count_as_they_are():
    here, _ = pair()
    treat(here, 300, (0.2, 0.8, 0.4))
    here.change_arm("suspend", "none", 1, simulated_signature("here"))
    assert (here.answer.leader, here.answer.chances[0]) == (1, None)
    here.change_arm("add", "insulin", 2, simulated_signature("here"))
    found = here.answer
    assert (found.leader, found.chance, len(found.chances)) == (1, None, 4)
    assert "too little is known of insulin" in found.words
    treat(here, 300, (0.2, 0.8, 0.4, 0.9))
    assert here.theta[3] is not None
    assert here.answer == found


def test_an_arm_that_was_added_since_with_a_bound_on_sites():
    """Fails where what this site had released then is asked for an arm that there was not."""
    here, _ = pair()
    here.limit_sites(5)
    treat(here, 300, (0.2, 0.8, 0.4))
    before = here.answer
    here.change_arm("add", "insulin", 2, simulated_signature("here"))
    assert here.answer.leader == before.leader
    assert here.errors[3] is None


def test_who_has_not_exchanged_since_the_start_says_nothing():
    here, there = pair()
    again = Site("here", here.terms, here.stored, lambda epsilon, count: [0] * count)
    found = again.answer
    assert (found.leader, found.chance, found.settled) == (None, None, False)
    assert found.words == "No exchange since the start: which arm is best can be said after the first one."
    exchange(again, there)
    assert again.answer.leader == 1
    for _ in range(ENOUGH_EXCHANGES - 1):
        assert not again.answer.settled, "it cannot tell yet whether estimates still move"
        assert "results of other sites may still be on their way to this one." in again.answer.words
        exchange(again, there)
    assert again.answer.settled, "as before the restart"
    again.leave("there")
    treat(again, 300, (0.9, 0.1, 0.4))
    assert again.answer.leader == int(np.argmax(again.theta)), "alone it says what it knows now"


def test_while_exchanges_move_estimates_nothing_is_settled():
    here, _ = pair()
    player, row = here._player, list(here.gossiped)
    for i in range(20):
        moved = row.copy()
        moved[0] += (-1) ** i * 2.0 * here.errors[0] * row[3]
        player.exchange(moved)
    player.look(row, range(3))
    assert player.unrest > RESTLESS
    assert here.answer.chance > 0.99
    assert not here.answer.settled
    assert "results of other sites may still be on their way to this one." in here.answer.words


def test_while_the_network_is_parted_nothing_is_settled():
    here, _ = pair()
    assert here.answer.settled
    here._standings.is_whole = False
    assert not here.answer.settled


def test_invented_sites_can_be_counted_and_claim_no_more_than_time_allows():
    """98 of them, 10^9 rewards each. Errors get smaller with N, as liars.md says; the words tell N."""
    few = {"counts": "patients", "max_decisions_per_day": 400.0}
    for more, whose in (({"counts": "sites"}, "over all 100 sites"), (few, "over all patients of 100 sites")):
        terms = Federation("trial", NAMES, 0.0, 1.0, FedBatch(2.0, first_batch=4), **more)
        here, _ = pair(terms)
        honest = here.errors
        invented = [Standing(f"x{i}", 1, 1, here._standing.weight, (10**9,) * 3) for i in range(98)]
        here._standings.receive("there", invented)
        here._look()
        assert whose in here.answer.words
        most = here._most_decisions
        assert most < (10**3 if more is few else 10**7)
        assert {n for it in here._standings.all(here._standing, most)[1:] for n in it.released} >= {most}
        assert max(n for it in here._standings.all(here._standing, most) for n in it.released) <= most
        assert all(new < old for new, old in zip(here.errors, honest, strict=True)), "what liars.md admits"


def test_warnings_ask_for_an_answer_only_where_one_matters(monkeypatch):
    """They are looked at every second."""
    asked = []
    here, _ = pair()
    monkeypatch.setattr(site_module, "answer_of", lambda it: asked.append(1) or answer_of(it))
    here.warnings()
    assert asked == []


@pytest.mark.parametrize(("chance", "keeps_it_open"), [(0.999, False), (0.9, True), (None, True)])
def test_nobody_keeps_an_answer_open_that_is_sure_and_only_waits_for_exchanges(monkeypatch, chance, keeps_it_open):
    here, _ = pair()
    monkeypatch.setattr(site_module, "holdout", lambda *_: Holdout("there", 0, 9))
    monkeypatch.setattr(site_module, "answer_of", lambda it: answer_of(it)._replace(chance=chance, settled=False))
    assert (here.holdout is not None) == keeps_it_open


def test_a_site_that_is_alone_says_so():
    assert "at this site, the only one that takes part so far" in played(FedBatch(2.0, first_batch=4)).answer.words
