"""FedBatch with strata: the same arms in plain Python, compiled and word for word; batches, refusals, learning."""

from dataclasses import replace

import numpy as np
import pytest

from fedbandit import FedBatch, InvalidArgument, Problem, Shares, Tape, replay, simulate
from fedbandit.engine.layout import setting_of
from fedbandit.policies.plain import new_me
from fedbandit.policies.protocol import Context, page_on
from fedbandit.rules import private
from fedbandit.rules.urn import MOST_APART
from fedbandit.testing import check_policy
from fedbandit.world import graph
from literal_strata import fed_strata
from plain_engine import PlainEngine

CONTEXTS = ["strata", "separate"]


def tape_of(num_strata, agents=4, arms=3, horizon=250, seed=1, world=graph.path):
    means = np.linspace(0.2, 0.8, arms) + np.zeros((agents, 1))
    tape = Tape.random(world(agents), arms, horizon, seed, means, (0.0, 1.0), num_strata)
    return replace(tape, gossip="releases")


def plain(tape, policy, counts="sites"):
    means = np.full((tape.graph.num_agents, tape.num_strata, tape.rewards.shape[2]), 0.5)
    problem = Problem.gaussian(means, tape.graph, reward_range=(0.0, 1.0), gossip="releases", counts=counts)
    known = [setting_of(problem, tape.horizon, i) for i in range(tape.graph.num_agents)]
    page = page_on(policy.page(), "releases", tape.num_strata)
    return PlainEngine(tape, page, [policy.terms(s) for s in known])


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("num_strata", [1, 3])
def test_compiled_code_plays_as_plain_python(context, num_strata):
    tape, policy = tape_of(num_strata), FedBatch(8.0, context=context, first_batch=4)
    trace = replay(tape, policy)
    for t, shown in enumerate(plain(tape, policy).rounds()):
        if t > 0:
            assert trace.arms[t - 1].tolist() == shown.arms
        np.testing.assert_allclose(trace.theta[t], shown.theta, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("context", CONTEXTS)
def test_check_policy_accepts_it(context):
    check_policy(FedBatch(8.0, context=context, first_batch=3), horizon=150)


@pytest.mark.parametrize(("num_strata", "epsilon"), [(3, 8.0), (2, 2.0)])
def test_it_plays_word_for_word(num_strata, epsilon):
    tape = tape_of(num_strata, agents=3, horizon=120, seed=num_strata)
    trace = replay(tape, FedBatch(epsilon, context="strata", first_batch=4))
    literal = fed_strata(tape, epsilon, 4)
    np.testing.assert_array_equal(trace.arms, literal["arms"])
    known = ~np.isnan(literal["theta"])
    assert known[-1].all()
    np.testing.assert_allclose(trace.theta[known], literal["theta"][known], rtol=1e-6)


@pytest.mark.parametrize("context", CONTEXTS)
def test_unknown_arms_stay_near_each_other_in_each_stratum(context):
    """Strata of 70, 20 and 10 %, nothing released: no two arms are ever further apart than the urn's bound.

    By chance in less than one of 10^7 runs: 12 urns of at most 800 draws, each with a probability below 10^-9.
    """
    problem = Problem.random(4, 3, "path", rewards="bernoulli", strata=[0.7, 0.2, 0.1], gossip="releases", seed=1)
    policy = FedBatch(1.0, context=context, first_batch=10**6)
    result = simulate(problem, policy, 800, 3, seed=4, checkpoints=[200, 800])
    counts = result.pulls
    assert 1 <= (counts.max("arm") - counts.min("arm")).max() <= MOST_APART
    assert (counts > 0).all()


# ---------------------------------------------------------------- privacy


class Story:
    """One site alone, in plain Python: rewards of given cells, and all that is released and published of them."""

    def __init__(self, num_arms=2, num_strata=3, epsilon=1.0, first=6):
        policy = FedBatch(epsilon, context="strata", first_batch=first)
        means = np.full((1, num_strata, num_arms), 0.5)
        setting = setting_of(Problem.bernoulli(means, "path:1", gossip="releases"), 1000)
        self.page, self.terms = page_on(policy.page(), "releases", num_strata), policy.terms(setting)
        self.me, self.names, self.seen, self.forms = new_me(self.page, self.terms, num_arms, num_strata), [], [], []

    def play(self, cells, rewards, noise):
        """``noise(arm, cells of a sum, name)``: its draw."""
        page, me, terms = self.page, self.me, self.terms
        for (arm, s), reward in zip(cells, rewards, strict=True):
            context = Context(s)
            sums = page.noise_due(me, terms, arm, context)
            pooled = tuple(r for r, part in enumerate(me.part) if part == private.POOLED)
            for r, due in enumerate(me.due):
                me.noise[r] = 0.0
                if due > 0:
                    self.names.append((arm, r, due))
                    held = pooled if me.part[r] == private.POOLED else (r,)
                    me.noise[r] = noise(arm, held, (arm, r, due))
            assert sums == sum(due > 0 for due in me.due)
            page.observe(me, terms, arm, reward, me.noise, context)
            self.forms.append((sums, tuple(me.part) if sums else ()))
            row = [x for name in page.records for x in np.ravel(getattr(me, name)[arm])]
            self.seen.append(tuple(row))
            page.receive(me, terms, arm, [row], [1])
        return self


def cells_of(source, count):
    arms, strata = source.integers(2, size=count), source.choice(3, count, p=[0.6, 0.3, 0.1])
    return list(zip(arms.tolist(), strata.tolist(), strict=True))


def test_a_reward_lies_in_one_sum_and_each_sum_has_one_draw_of_its_own():
    """Rewards of 1 add up to the sizes of sums: all of them are in releases once, or wait."""
    source, held = np.random.default_rng(5), []
    cells = cells_of(source, 900)
    story = Story()
    story.play(cells, [1.0] * 900, lambda arm, of, name: held.append((arm, of)) or source.laplace())
    assert len(story.names) == len(set(story.names)) > 50
    assert any(len(of) > 1 for _, of in held), "no sum was pooled"
    assert any(len(of) == 1 for _, of in held), "no sum was alone"
    me = story.me
    for arm in range(2):
        assert me.released[arm] == sum(me.marks[arm])
        for s in range(3):
            assert me.totals[arm][s] == me.cells[arm][s] - me.marks[arm][s]  # what waits, and nothing else


@pytest.mark.parametrize("changed", [3, 40, 77, 150, 299])
def test_another_reward_is_hidden_by_one_draw_of_one_sum(changed):
    """The proof of docs/privacy.md, executed: with that draw shifted by at most 1, everything published is the same."""
    source = np.random.default_rng(changed)
    cells, rewards = cells_of(source, 600), source.integers(2, size=600).astype(float)
    draws = {}

    def drawn(arm, of, name):
        return draws.setdefault(name, float(source.integers(-3, 4)))  # whole numbers: sums are exact

    one = Story().play(cells, rewards, drawn)
    others = rewards.copy()
    others[changed] = 1.0 - rewards[changed]
    arm, s = cells[changed]
    number = sum(cell == (arm, s) for cell in cells[: changed + 1])
    shifted = []

    def shift(at, of, name):
        me, now = other.me, cells[len(other.forms)] == (arm, s)  # the reward in hand belongs to that cell
        last = me.cells[arm][s] + int(now)
        if at == arm and s in of and me.marks[arm][s] < number <= last:
            shifted.append(name)
            return draws[name] + rewards[changed] - others[changed]
        return draws[name]

    other = Story()
    other.play(cells, others, shift)
    assert len(shifted) == 1
    assert other.forms == one.forms, "which sums are released tells a reward"
    assert other.seen == one.seen
    assert other.names == one.names


# ---------------------------------------------------------------- where it works, and where not


def test_without_strata_it_is_fed_batch_itself():
    problem = Problem.random(3, 3, "path", rewards="bernoulli")
    one, other = (simulate(problem, FedBatch(1.0, context=c), 300, 2) for c in ("ignore", "strata"))
    np.testing.assert_array_equal(one.regret.values, other.regret.values)


@pytest.mark.parametrize(
    ("policy", "change", "words"),
    [
        ({}, {"gossip": "averages"}, "releases"),
        ({}, {"rewards": "gaussian"}, "range"),
        ({"index": "ucb"}, {}, "thompson"),
        ({"catches_up": True}, {}, "catches_up"),
        ({"context": "some"}, {}, "one of ignore, strata, separate"),
    ],
)
def test_what_it_cannot_do_is_refused_in_words(policy, change, words):
    problem = Problem.random(2, 2, "path", **{"rewards": "bernoulli", "strata": 2, "gossip": "releases"} | change)
    with pytest.raises(InvalidArgument, match=words):
        simulate(problem, FedBatch(**{"epsilon": 1.0, "context": "strata"} | policy), 10, 1)


@pytest.mark.slow
@pytest.mark.parametrize("context", CONTEXTS)
def test_it_learns_under_all_options_together(context):
    """Sites out of step, patients count, late rewards, shares with a control arm, unequal strata."""
    means = np.array([[[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]]] * 4)
    problem = Problem.bernoulli(
        means,
        "path:4",
        strata=[0.8, 0.2],
        gossip="releases",
        rates=[1.0, 0.3, 0.1, 0.5],
        counts="patients",
        delays="geometric:20",
    )
    result = simulate(problem, FedBatch(2.0, context=context), 6_000, 3, shares=Shares(control=2, control_share=0.1))
    share = result.by_stratum()["best_arm_share"]
    assert (share > [0.7, 0.5]).all()
