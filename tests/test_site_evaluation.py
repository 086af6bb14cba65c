"""Other policies over all sites: sums against ``fedbandit evaluate``, what one reward moves, what happens to files."""

import json
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit import FedBatch, InvalidArgument, Shares
from fedbandit.agent.core.bulletin import EvaluationEntry, decode
from fedbandit.agent.core.context import Factors
from fedbandit.agent.core.decisions import Request, arms_in
from fedbandit.agent.core.evaluation import AS_LOGGED, EvaluatedPolicy, Evaluation, OtherShares, evaluated, remarks
from fedbandit.agent.core.federation import Federation
from fedbandit.evaluation import Log, LoggedDecision, evaluate
from fedbandit.privacy.noise import GRID, to_grid
from fedbandit.rules.evaluation_sums import PolicySums, bounded, epsilon_of_sum, gain_in_steps, pooled, weight_in_steps
from fedbandit.testing.memory_network import MemoryNetwork

LINKS = [("north", "east"), ("east", "south")]
MEANS = {"young": (0.3, 0.7, 0.5), "old": (0.8, 0.4, 0.5)}
BY_AGE = EvaluatedPolicy("by age", (("B", 0.75), ("C", 0.25)), (OtherShares((("age", "old"),), (("A", 1.0),)),))
POLICIES = (EvaluatedPolicy("always A"), EvaluatedPolicy("uniform"), BY_AGE)


def plan(**more):
    return Evaluation(**{"epsilon": 1.0, "policies": POLICIES, "largest_weight": 10, "batch": 20} | more)


def terms(evaluation=None, first_batch=5, **more):
    asked = {"shares": Shares(least_share=0.1), "context": Factors.of({"age": ("old", "young")})} | more
    return Federation(
        "trial",
        ("A", "B", "C"),
        0.0,
        1.0,
        FedBatch(1.0, first_batch=first_batch),
        evaluation=evaluation or plan(),
        **asked,
    )


class Draws:
    """Noise that is known; which epsilon each draw was for."""

    def __init__(self, size=0):
        self.asked, self.size = [], size

    def __call__(self, epsilon, count):
        self.asked += [epsilon] * count
        return [self.size * len(self.asked)] * count

    def of(self, evaluation):
        return self.asked.count(evaluation.epsilon_of_row)


def network(of=None, noise=None, **more):
    return settled(MemoryNetwork(of or terms(), LINKS, spreads=True, noise=noise or Draws(), **more))


def settled(found):
    for _ in range(4):
        found.run(found.now + 30.0)
        for a, b in found.links:
            found.exchange(a, b)
        found.run()
    return found


def played(found, name, count, seed=5):
    """So many decisions whose rewards come at once; the log's lines."""
    random, lines = Random(seed), []  # noqa: S311
    for number in range(count):
        age = "old" if random.random() < 0.4 else "young"
        exclude = (2,) if number % 7 == 0 else ()
        (made,) = found.request(name, Request(exclude=exclude, context={"age": age}))
        reward = float(random.random() < MEANS[age][made.arm])
        found.report(name, made.id, reward)
        eligible = tuple(arms_in(made.eligible)) if made.eligible else None
        lines.append(LoggedDecision(made.arm, made.propensity, reward, eligible, context=(("age", age),)))
    return lines


def look(found, name="north"):
    """Whatever is due is settled before any event."""
    found.expire(name, -1e9)


# ---------------------------------------------------------------- rules


@given(st.integers(0, 100 * GRID), st.integers(0, GRID), st.integers(0, GRID))
def test_another_reward_moves_a_gain_by_no_more_than_the_weight(weight, one, other):
    low, high = (gain_in_steps(weight, it, GRID) for it in sorted((one, other)))
    assert 0 <= low <= high <= weight


@given(st.floats(0.0, 1.0), st.floats(1e-300, 1.0), st.integers(1, 1000))
def test_weights_are_cut(chance, propensity, largest):
    found = weight_in_steps(chance, propensity, largest, GRID)
    assert 0 <= found <= largest * GRID
    assert abs(found / GRID - min(chance / propensity, largest)) <= 0.5 / GRID


@given(st.floats(1e-6, 1e6), st.integers(1, 16), st.integers(1, 1000))
def test_all_sums_together_cost_no_more_than_epsilon(epsilon, policies, largest):
    each = epsilon_of_sum(epsilon, policies, largest)
    spent = Fraction(each) * (1 + policies * largest)
    assert Fraction(epsilon) * Fraction(999_999_999, 10**9) < spent <= Fraction(epsilon)


def test_what_a_liar_says_counts_as_what_an_honest_site_could_say():
    honest = PolicySums(100, 101.5, 300.0, 60.0)
    assert bounded(honest, 2, 10, 21.0) == honest
    wild = bounded(PolicySums(100, 1e9, -5.0, 1e12), 2, 10, 21.0)
    assert wild.weights == 1000.0
    assert wild.squares == 10_000.0
    assert wild.gains < 1000.0 + 40 * 21.0
    assert bounded(PolicySums(100, 1e9, 0.0, 0.0), 0, 10, 21.0) == (0.0, 0.0, 0.0, 0.0)
    one = pooled([(PolicySums(10**12, 1e12, 1e12, 1e12), 1), (PolicySums(100, 100.0, 100.0, 0.0), 1)] * 1, 1.0, 0.5)
    assert one.value == pytest.approx(0.5), "nobody is more than half"


# ---------------------------------------------------------------- sums


def test_without_noise_the_sums_are_those_of_a_log():
    """Two implementations, of logs and of sites, agree on self-normalised estimates: no weight is cut."""
    found = network()
    lines = played(found, "north", 200)
    look(found)
    settled(found)
    log = Log(found.terms.arms, tuple(lines))
    (given, *others) = evaluated(found.site("south"))
    assert (given.name, given.decisions, given.sites) == (AS_LOGGED, 200, 1)
    assert given.value == pytest.approx(np.mean([it.reward for it in lines]))
    factors = {"age": ("old", "young")}
    for it, policy in zip(others, POLICIES, strict=True):
        said = evaluate(log, policy.target(log.arms, factors))
        assert it.decisions == said.decisions
        assert it.value == pytest.approx(said["snips"].value, abs=1e-4), "up to the rounding of weights"
        assert it.effective == pytest.approx(said.effective, rel=1e-3)
        assert it.kept == pytest.approx(said.mean_weight, rel=1e-4)
        assert it.low < it.value < it.high
        assert ("too few" in remarks(it)) == (it.effective < 50.0)


def test_a_release_is_a_batch_of_decisions_by_their_numbers():
    """It waits for the earlier ones, and for no release of the policy; cancelled ones are done."""
    draws, of = Draws(), terms()
    found = network(of, draws)
    made = [found.request("north", Request(context={"age": "old"}))[0] for _ in range(45)]
    for it in made[1:40]:
        found.report("north", it.id, 1.0)
    look(found)
    assert draws.of(of.evaluation) == 0, "the first batch waits for the first decision"
    found.cancel("north", made[0].id)
    look(found)
    assert draws.of(of.evaluation) == 8, "two batches of four sums"
    entry = found.site("north").board.held("north").bulletin.evaluation
    assert (entry.releases, entry.rows[0].decisions, entry.rows[0].gains) == (2, 39, 39.0)
    for it in made[40:]:
        found.report("north", it.id, 1.0)
    look(found)
    assert draws.of(of.evaluation) == 8, "an open batch shows nothing"


def test_a_reward_moves_no_other_sum_and_all_together_by_no_more_than_epsilon():
    """The policy itself releases nothing here: all decisions are the same."""
    of = terms(first_batch=1000, shares=Shares(least_share=0.05), evaluation=plan(largest_weight=4, epsilon=0.7))

    def entries(changed):
        found = network(of, seed=3)
        random, told = Random(8), []  # noqa: S311
        for number in range(60):
            (made,) = found.request("north", Request(context={"age": random.choice(["old", "young"])}))
            reward = 1.0 if changed == number else 0.0
            found.report("north", made.id, reward)
            look(found)
            told.append(found.site("north").board.held("north").bulletin.evaluation)
        return told

    base, most = entries(-1), 0.0
    for number in (0, 7, 19, 20, 33, 59):
        other = entries(number)
        assert [it.releases for it in other] == [it.releases for it in base], "when is the same"
        steps = 0.0
        for a, b in zip(base, other, strict=True):
            assert [it[:3] for it in a.rows] == [it[:3] for it in b.rows], "weights are public, and the same"
        for a, b in zip(base[-1].rows, other[-1].rows, strict=True):
            steps += abs(a.gains - b.gains)
        assert steps * of.evaluation.epsilon_of_row <= 0.7
        assert steps >= 1.0, "that as given moved by the whole range"
        most = max(most, steps)
    assert most > 1.0


def test_with_a_window_nothing_depends_on_when_rewards_come():
    of = terms(reward_window=100.0)

    def bulletins(delay):
        found, seen, waiting = network(of, Draws(11), seed=2), [], []
        for number in range(120):
            found.now += 5.0
            (made,) = found.request("north", Request(context={"age": "old"}))
            waiting.append((found.now + delay * (1 + number % 3), made, float(number % 2)))
            for it in [it for it in waiting if it[0] <= found.now]:
                waiting.remove(it)
                found.report("north", it[1].id, it[2])
            look(found)
            held = found.site("north").board.held("north").bulletin
            seen.append((held.number, held.evaluation))
        return seen

    assert bulletins(0.0) == bulletins(30.0)
    assert bulletins(0.0)[-1][1].releases == 5


def test_what_is_certain_or_unknown_is_left_out():
    """A subject keeps its arm with certainty: nobody knows what another would have done."""
    found = network()
    for _ in range(20):
        (made,) = found.request("north", Request(subject="s", context={"age": "old"}))
        found.report("north", made.id, 1.0)
    look(found)
    assert found.site("north").board.held("north").bulletin.evaluation.rows[0].decisions == 1
    for number in range(20):
        (made,) = found.request("north", Request(eligible=(number % 2,), context={"age": "old"}))
        found.report("north", made.id, 1.0)
    look(found)
    given, always_a, *_ = found.site("north").board.held("north").bulletin.evaluation.rows
    assert given.decisions == 21, "where one arm was possible, it was no choice"
    assert always_a.decisions == 11, "half could have had no arm of the policy"


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("crash", ["before", "torn", "after"])
def test_a_crash_shows_nobody_two_draws(crash):
    draws, of = Draws(3), terms()
    found = network(of, draws)
    played(found, "north", 20)
    found.crash("north", crash)
    with pytest.raises(RuntimeError, match="died"):
        look(found)
    found.restart("north")
    settled(found)
    look(found)
    settled(found)
    entry = found.site("south").board.held("north").bulletin.evaluation
    assert (entry.releases, entry.rows[0].decisions) == (1, 20)
    assert entry == found.site("north").board.held("north").bulletin.evaluation
    assert found.site("south").drawn_twice == {}


def test_a_lost_file_keeps_what_was_released_and_nothing_else():
    draws, of = Draws(), terms()
    found = network(of, draws)
    played(found, "north", 50)
    look(found)
    settled(found)
    before, count = found.site("east").board.held("north").bulletin.evaluation, draws.of(of.evaluation)
    assert (before.releases, before.rows[0].decisions) == (2, 40)
    found.lose_disk("north")
    found.restart("north")
    settled(found)
    played(found, "north", 20, seed=9)
    look(found)
    settled(found)
    after = found.site("east").board.held("north").bulletin.evaluation
    assert (after.releases, after.rows[0].decisions) == (3, 60), "its own 20, and the 40 of before"
    assert draws.of(of.evaluation) == count + 4
    assert after.rows[0].gains >= before.rows[0].gains


def test_an_old_file_releases_no_reward_again():
    draws, of = Draws(), terms()
    found = network(of, draws)
    made = played(found, "north", 15)
    old = found.snapshot("north")
    played(found, "north", 10, seed=6)
    look(found)
    settled(found)
    assert found.site("east").board.held("north").bulletin.evaluation.releases == 1
    count = draws.of(of.evaluation)
    found.put_back("north", old)
    found.restart("north")
    settled(found)
    assert found.site("north").doubt is not None
    look(found)
    assert draws.of(of.evaluation) == count
    found.restore("north")
    settled(found)
    assert len(made) == 15
    assert found.site("north").board.held("north").bulletin.evaluation.releases == 1, "as others know it"
    played(found, "north", 19, seed=7)
    look(found)
    assert draws.of(of.evaluation) == count, "what was open is dropped: a batch begins anew"
    played(found, "north", 1, seed=8)
    look(found)
    entry = found.site("north").board.held("north").bulletin.evaluation
    assert (entry.releases, entry.rows[0].decisions, draws.of(of.evaluation)) == (2, 40, count + 4)


def test_a_restart_goes_on_where_it_was():
    draws = Draws()
    found = network(noise=draws)
    lines = played(found, "north", 13)
    for seed in range(3):
        found.restart("north")
        settled(found)
        lines += played(found, "north", 9, seed)
    look(found)
    given = evaluated(found.site("north"))[0]
    assert given.decisions == 40
    assert given.value == pytest.approx(np.mean([it.reward for it in lines]))


# ---------------------------------------------------------------- what others say


def test_bulletins_with_other_rows_than_the_terms_are_refused():
    found = network()
    site = found.site("north")
    signed = found.site("east").board.held("east").signed
    it = decode(signed.body, site.terms.num_columns)
    assert it.evaluation == EvaluationEntry(0, (PolicySums(0, 0.0, 0.0, 0.0),) * 4)
    body = json.loads(signed.body)
    for wrong, said in (
        ([0, []], "evaluation must be 4, as the terms say"),
        ([0, [[0, 0.0, 0.0]]], "a list of 4"),
        ([0, [[0, 0, 0.0, 0.0]]], "a finite number with a point"),
        ([-1, []], "evaluation.releases"),
        ([0, [[-1, 0.0, 0.0, 0.0]]], r"evaluation\[0\].decisions"),
        ([0, [[0, 0.0, 0.0, 0.0]] * 18], "at most 17"),
    ):
        text = json.dumps({**body, "evaluation": wrong, "number": it.number + 1}, separators=(",", ":")).encode()
        with pytest.raises(InvalidArgument, match=said):
            found.site("north").board.merge(type(signed)(text, b"", b""), 1e9)


def test_sites_are_added_up_and_nobody_is_more_than_the_largest_share():
    found = network()
    for name, count in (("north", 400), ("east", 40), ("south", 40)):
        played(found, name, count, seed=len(name))
        look(found, name)
    settled(found)
    one, other = (evaluated(found.site(name)) for name in ("north", "south"))
    assert one == other, "all boards are equal"
    given = one[0]
    values = {name: value for name, _, value in given.site_values}
    assert given.value == pytest.approx(0.5 * values["north"] + 0.25 * (values["east"] + values["south"]), abs=1e-6)
    assert given.decisions == 480


# ---------------------------------------------------------------- terms


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"largest_weight": 0}, "largest_weight must be"),
        ({"largest_weight": 2.5}, "largest_weight must be"),
        ({"batch": 0}, "batch must be"),
        ({"policies": ()}, "policies must be 1 to 16 policies"),
        ({"policies": (EvaluatedPolicy("uniform"),) * 2}, "different names"),
        ({"policies": (EvaluatedPolicy(AS_LOGGED, (("A", 1.0),)),)}, "none of them 'as given'"),
    ],
)
def test_wrong_terms_are_refused(change, said):
    with pytest.raises(InvalidArgument, match=said):
        plan(**change)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (EvaluatedPolicy("unifrom"), r"evaluation.policies\[0\].name must be 'uniform' or 'always ARM'.*Did you mean"),
        (EvaluatedPolicy("always D"), r"evaluation.policies\[0\].policy must be an arm"),
        (EvaluatedPolicy("x", (("A", 0.5),)), r"evaluation.policies\[0\].shares must be numbers that sum to 1"),
        (EvaluatedPolicy("x", (("A", 1.0),), (OtherShares((("age", "middle"),), (("A", 1.0),)),)), "age must be"),
        (EvaluatedPolicy("x", (("A", 1.0),), (OtherShares((("sex", "f"),), (("A", 1.0),)),)), "sex must be"),
    ],
)
def test_wrong_policies_are_refused(policy, said):
    with pytest.raises(InvalidArgument, match=said):
        terms(plan(policies=(policy,)))


def test_the_policies_are_terms():
    one, other = terms(), terms(plan(policies=POLICIES[:2]))
    assert one.digest() != other.digest()
    assert any(it.startswith("evaluation.policies") for it in one.difference(other.terms()))
    assert json.loads(json.dumps(one.terms()))["evaluation"]["policies"][2]["strata"][0]["context"] == {"age": "old"}


def test_a_reward_in_steps_is_within_the_range():
    assert to_grid(7.0, 0.0, 1.0) == GRID
