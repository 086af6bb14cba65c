"""The proofs of docs/privacy.md, 7, executed: FedLinear is played twice, with one decision changed, releases kept.

Noise is chosen in the second run such that every released value is what it was in the first one. Then a proof says that
nothing else may differ that anybody sees: other arms, ends of batches, records, versions. And it says that one release
alone needs other noise, and by how much.
"""

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from fedbandit import FedLinear, Tape
from fedbandit.engine.layout import setting_of
from fedbandit.rules import linear
from fedbandit.simulation.replay import _problem_of
from fedbandit.world import graph
from plain_engine import PlainEngine

AGENTS, ARMS, SIZE, HORIZON = 4, 3, 3, 32
RECORDS = FedLinear(500.0, protects="record", first_batch=12)  # so sharp that features decide
REWARDS = FedLinear(500.0, first_batch=5)


def tape():
    """Rewards within and beyond their range, which depend on features; a path of agents."""
    made = Tape.random(graph.path(AGENTS), ARMS, HORIZON, 3, reward_range=(-1.0, 3.0), num_features=SIZE)
    theta = np.random.default_rng(3).normal(size=(AGENTS, ARMS, SIZE))
    means = np.einsum("tnf,nkf->tnk", made.features[ARMS - 1 :], theta)
    return replace(made, rewards=means + made.rewards - 0.5, gossip="releases")


class Run(NamedTuple):
    """What anybody sees of a run, by round, and what was released, by agent and number: with which noise."""

    arms: list
    seen: list
    moved: dict


def played(policy, recording, released=None):
    """A run in plain Python whose releases are those ``released`` before; a first one notes them there.

    ``moved``: how far noise had to be moved for that, by agent and number of the release.
    """
    problem = _problem_of(recording)
    norm = float(np.linalg.norm(tape().features, axis=-1).max())  # declared, not computed
    settings = [setting_of(problem, HORIZON, i)._replace(norm=norm) for i in range(AGENTS)]
    page, names, moved = policy.page(), {}, {}

    def observe(me, terms, arm, reward, noise, context):
        if page.noise_due(me, terms, arm, context) > 0:
            after = deepcopy(me)
            page.observe(after, terms, arm, reward, after.noise, context)
            place = names[id(me)], sum(after.releases)
            now = np.array(after.noise), np.array(getattr(after, "gram_noise", 0.0))
            wanted = released.setdefault(place, now)
            moved[place] = _move(me, [there - here for here, there in zip(now, wanted, strict=True)])
        page.observe(me, terms, arm, reward, me.noise, context)

    released = {} if released is None else released
    engine = PlainEngine(recording, page._replace(observe=observe), [policy.terms(each) for each in settings])
    names |= {id(me): i for i, me in enumerate(engine.me)}
    found = Run([], [], moved)
    for shown in engine.rounds():
        found.arms.append(list(shown.arms))
        found.seen.append([(deepcopy(board), np.copy(me.batch_end), list(me.unknown), np.array(me.theta))
                           for board, me in zip(engine.boards, engine.me, strict=True)])  # fmt: skip
    return found, released


def _move(me, by):
    """Move the noise in hand, and say how far: off-diagonal entries of x x' count once, times sqrt(2)."""
    me.noise[:] = (np.array(me.noise) + by[0]).tolist()
    square = float((by[0] ** 2).sum())
    if by[1].ndim == 0:
        return square**0.5
    below = np.tril(by[1]) * np.where(np.eye(SIZE) > 0, 1.0, 2.0**0.5)
    me.gram_noise[:] = (np.array(me.gram_noise) + below).tolist()
    return (square + float((below**2).sum())) ** 0.5


def compare(policy, changed, i, t, first, bound):
    """What the proof says of a second run in which agent i's decision of round t is another one; its arm may be, too.

    How far its release moved, and whether its arm is another one.
    """
    before, released = first
    after, _ = played(policy, changed, dict(released))
    assert after.moved.keys() == before.moved.keys(), "other releases"
    assert sum(it > 1e-6 for it in after.moved.values()) <= 1, "it lies in two releases"
    assert max(after.moved.values(), default=0.0) <= bound + 1e-9
    for round_, (one, other) in enumerate(zip(before.arms, after.arms, strict=True)):
        others = [j for j in range(len(one)) if (round_, j) != (t, i)]
        assert [one[j] for j in others] == [other[j] for j in others], f"round {round_}: other arms"
    for round_, (one, other) in enumerate(zip(before.seen, after.seen, strict=True)):
        for mine, theirs in zip(one, other, strict=True):
            _same(mine, theirs, f"round {round_}")
    return max(after.moved.values()), i >= 0 and before.arms[t][i] != after.arms[t][i]


def _same(one, other, where):
    """Boards, ends of batches, what is unknown, and the model."""
    boards, others = one[0], other[0]
    assert {j: version for j, (version, _) in boards.items()} == {j: version for j, (version, _) in others.items()}
    for j, (_, rows) in boards.items():
        np.testing.assert_allclose(rows, others[j][1], rtol=1e-6, atol=1e-6, err_msg=f"{where}: the record of {j}")
    np.testing.assert_array_equal(one[1], other[1], err_msg=f"{where}: ends of batches")
    assert one[2] == other[2], f"{where}: what is unknown"
    np.testing.assert_allclose(one[3], other[3], rtol=1e-6, atol=1e-6, err_msg=f"{where}: the model")


def with_reward(recording, i, t, reward):
    """Of every arm: whichever the decision had."""
    rewards = recording.rewards.copy()
    rewards[t, i] = reward
    return replace(recording, rewards=rewards)


def with_features(recording, i, t, scale):
    features = recording.features.copy()
    features[ARMS - 1 + t, i, 1:] *= scale  # the first one is the constant
    return replace(recording, features=features)


def with_pick(recording, i, t):
    """Another arm while arms are unknown."""
    picks = recording.picks.copy()
    picks[t - 1, i] = (picks[t - 1, i] + 0.4) % 1.0
    return replace(recording, picks=picks)


UNKNOWN = range(1, 10)  # rounds in which no agent has released anything: 12 decisions with the first pulls
LATER = (10, 14, 21)


@pytest.mark.parametrize("i", [0, 2])
def test_a_record_moves_its_own_release_and_nothing_else(i):
    """Its reward, its features and its arm, while arms are unknown and later."""
    recording = tape()
    first, moves, others = played(RECORDS, recording), [], 0
    assert all(all(unknown) for _, _, unknown, _ in first[0].seen[8])
    assert all(not any(unknown) for _, _, unknown, _ in first[0].seen[10])
    for t in (*UNKNOWN, *LATER):
        changes = [with_reward(recording, i, t, reward) for reward in (-9.0, 9.0)]
        changes += [with_features(recording, i, t, -1.0), with_features(changes[0], i, t, -1.0)]
        changes += [with_pick(recording, i, t)] if t in UNKNOWN else []
        for changed in changes:
            move, is_other = compare(RECORDS, changed, i, t, first, linear.RECORD)
            moves.append(move)
            others += is_other
    assert others >= len(UNKNOWN), "hardly any decision had another arm"
    assert max(moves) > 0.5
    assert sum(move > 1e-6 for move in moves) > len(moves) // 2


@pytest.mark.parametrize(
    ("choice", "mechanism"), [("thompson", "spherical"), ("thompson", "laplace"), ("greedy", "spherical")]
)
def test_a_reward_moves_its_own_release_and_nothing_else(choice, mechanism):
    """Where features and arms are inputs: no other arm follows from a reward, but through what is released."""
    recording = tape()
    policy = replace(REWARDS, choice=choice, mechanism=mechanism)
    first, moves = played(policy, recording), []
    for t in (*range(1, 14), 20, 30):
        for reward in (-9.0, 9.0):
            move, _ = compare(policy, with_reward(recording, t % AGENTS, t, reward), -1, -1, first, 1.0)
            moves.append(move)
    assert 0.3 < max(moves) <= 1.0 + 1e-9


def test_arms_that_nobody_knows_are_as_likely_as_each_other_whatever_was_given():
    """By records: a draw alone decides, in equal parts; by rewards: the urn, in which every arm has a ball."""
    page, me = RECORDS.page(), SimpleNamespace(num_unknown=3, unknown=[1, 1, 1])
    combs = [(b + 0.5) / 300 for b in range(300)]
    given = [page.decide(me, None, None, None, SimpleNamespace(u=u), None) for u in combs]
    assert np.bincount(given).tolist() == [100, 100, 100]
    page, me = REWARDS.page(), SimpleNamespace(num_unknown=2, unknown=[1, 0, 1], tried=[60, 50, 0])
    given = [page.decide(me, None, None, None, SimpleNamespace(u=u), None) for u in combs]
    assert np.bincount(given, minlength=3).min() > 0


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-9, 1e-9), (1e-6, 1e-12), (1e-3, 1e-6), (1.0, 1e-30), (60.0, 1e-6)])
def test_gaussian_noise_keeps_delta_at_the_ends(epsilon, delta):
    """By the definition: delta is the integral of p - e^eps q where it is positive, p of N(1, s^2) and q of N(0, s^2).

    From there on it is e^eps q expm1(log(p / q) - eps): a sum of positive terms, in which nothing cancels.
    """
    s = linear.gaussian_scale(epsilon, delta) / linear.RECORD
    above = np.linspace(0.0, 40.0, 4_000_001)  # in deviations, above the point at which log(p / q) = eps
    x = s * epsilon + 0.5 / s + above
    terms = np.exp(epsilon - 0.5 * x**2) * np.expm1(above / s)
    found = float(terms.sum()) * (above[1] - above[0]) / (2 * np.pi) ** 0.5
    assert found <= delta * (1 + 1e-6)
    assert found >= 0.99 * delta
