"""From a site's rewards to its own numbers, one class for each way: batches, exact sums, a tree.

Here belongs what a reward does to the own numbers of its arm, what of it must survive, and the radius of these numbers;
formulas are the rules', privacy is the mechanism's. What is gossiped of them is ``site``'s.
"""

from collections.abc import Sequence
from math import log
from typing import Protocol

from fedbandit.agent.core.estimate import NO_BATCH, NOTHING, Estimate, with_release
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import ArmSum, ArmTree, Batch, Record, Stored
from fedbandit.policies import FedBatch, FedUCB, GossipUCB
from fedbandit.privacy.mechanism import Batches, Tree
from fedbandit.privacy.noise import NoiseSource
from fedbandit.rules.batch import equivalent_rewards, released
from fedbandit.rules.mean import last_end, pull_tree_add, trailing_zeros
from fedbandit.rules.radius import (
    CALIBRATED_ALPHA,
    alpha1,
    deviation,
    gossip_sampling,
    private_noise,
    radius,
    variance_sampling,
)

__all__ = ["Batched", "Exact", "Own", "Treed", "own_of"]


class Own(Protocol):
    """A site's own numbers, all arms."""

    @property
    def estimates(self) -> Sequence[Estimate]:
        """What others may see of each arm."""
        ...

    def rewards(self, arm: int) -> int:
        """How many rewards of the arm were taken, released or not."""
        ...

    def radius(self, arm: int, log_t: float) -> float:
        """How far theta of a known arm may be off, as the index takes it."""
        ...

    def take(self, arm: int, reward: float) -> tuple[Record, ...]:
        """Take a reward: what must be on disk before anybody sees what came of it."""
        ...


def own_of(terms: Federation, stored: Stored, noise: NoiseSource) -> Own:
    """The own numbers as the journal knows them: what has been released is never drawn again."""
    match terms.policy:
        case FedBatch():
            return Batched(terms, terms.policy, stored, noise)
        case FedUCB():
            return Treed(terms, terms.policy, stored, noise)
        case GossipUCB():
            return Exact(terms, stored)


class Batched:
    """FedBatch: a noisy mean for each full batch."""

    def __init__(self, terms: Federation, policy: FedBatch, stored: Stored, noise: NoiseSource) -> None:
        """The batches under way, and the estimates that the releases add up to."""
        self._terms, self._policy = terms, policy
        empty = Batches(terms.num_arms, policy.epsilon, terms.low, terms.high, terms.first_batch, policy.growth)
        batches = [stored.batches.get(k, Batch(k, 0, 0)) for k in range(terms.num_arms)]
        self.mechanism = Batches.restore(
            {
                **empty.state(),
                "counts": [batch.count for batch in batches],
                "totals": [batch.total for batch in batches],
                "released": [[release.arm, 0, release.first, release.last] for release in stored.releases],
            },
            noise,
        )
        self._collected = [batch.count for batch in batches]
        self.estimates = [NO_BATCH] * terms.num_arms
        for release in stored.releases:
            self.estimates[release.arm] = with_release(self.estimates[release.arm], release, terms, policy)

    def rewards(self, arm: int) -> int:
        """Those in releases, and those in the batch under way."""
        return self.estimates[arm].released + self._collected[arm]

    def radius(self, arm: int, log_t: float) -> float:
        """Thompson: the deviation; else calibrated, or safe: C for what the mean is worth, and the noise's tail."""
        known, num_agents = self.estimates[arm], self._terms.num_agents
        if self._policy.index == "thompson":
            return deviation(known.variance / num_agents)
        if self._policy.radius == "calibrated":
            return radius(variance_sampling(CALIBRATED_ALPHA, known.variance / num_agents), 0.0, log_t, 1.0, 0.0)
        sampling = gossip_sampling(equivalent_rewards(known.precision, known.square), num_agents, 1.0)
        width = self._terms.high - self._terms.low
        return radius(sampling, 0.0, log_t, width, alpha1(num_agents)) + (known.slope * log_t + known.level)

    def take(self, arm: int, reward: float) -> tuple[Record, ...]:
        """The batch, and its release if it is full: then the raw sum is gone."""
        release = self.mechanism.add(arm, reward)
        count, total = self.mechanism.collected(arm)
        self._collected[arm] = count
        if release is None:
            return (Batch(arm, count, total),)
        self.estimates[arm] = with_release(self.estimates[arm], release, self._terms, self._policy)
        return Batch(arm, count, total), release


class Exact:
    """GossipUCB: the mean of all rewards, after each of them. Nothing is private."""

    def __init__(self, terms: Federation, stored: Stored) -> None:
        """The sums so far."""
        self._terms = terms
        self._sums = [stored.sums.get(k, ArmSum(k, 0, 0.0)) for k in range(terms.num_arms)]
        self.estimates = [_exact(held) for held in self._sums]

    def rewards(self, arm: int) -> int:
        """All of them."""
        return self._sums[arm].count

    def radius(self, arm: int, log_t: float) -> float:
        """C (Lemma 4)."""
        num_agents, width = self._terms.num_agents, self._terms.high - self._terms.low
        return radius(gossip_sampling(self._sums[arm].count, num_agents, 1.0), 0.0, log_t, width, alpha1(num_agents))

    def take(self, arm: int, reward: float) -> tuple[Record, ...]:
        """Add it up."""
        before = self._sums[arm]
        self._sums[arm] = ArmSum(arm, before.count + 1, before.total + reward)
        self.estimates[arm] = _exact(self._sums[arm])
        return (self._sums[arm],)


def _exact(held: ArmSum) -> Estimate:
    if held.count == 0:
        return NOTHING
    return Estimate(released(held.total, 0.0, held.count), held.count, held.count)


class Treed:
    """FedUCB: Algorithm 3 over the arm's pulls, a release at each of them until the tree is full."""

    def __init__(self, terms: Federation, policy: FedUCB, stored: Stored, noise: NoiseSource) -> None:
        """The trees so far. The number of pulls tells which intervals have been released: none is drawn again."""
        self._terms, self._policy = terms, policy
        assert policy.horizon is not None and terms.max_pulls is not None  # noqa: S101, PT018  # checked by the terms
        self._log_horizon = log(policy.horizon)
        empty = Tree(terms.num_arms, policy.epsilon, terms.low, terms.high, terms.max_pulls, lines="last")
        levels = empty.ledger.levels
        nothing = (0,) * levels
        self._trees = [stored.trees.get(k, ArmTree(k, 0, nothing, (0.0,) * levels)) for k in range(terms.num_arms)]
        ends = [
            (k, level, last_end(tree.pulls, level)) for k, tree in enumerate(self._trees) for level in range(levels)
        ]
        self.mechanism = Tree.restore(
            {
                **empty.state(),
                "pulls": [tree.pulls for tree in self._trees],
                "sums": [list(tree.sums) for tree in self._trees],
                "released": [[k, level, end - (1 << level) + 1, end] for k, level, end in ends if end > 0],
            },
            noise,
            lines="last",
        )
        self.estimates = [_prefix(tree) for tree in self._trees]

    def rewards(self, arm: int) -> int:
        """All of them."""
        return self._trees[arm].pulls

    def radius(self, arm: int, log_t: float) -> float:
        """C~ (Lemma 6)."""
        n, num_agents, policy = self._trees[arm].pulls, self._terms.num_agents, self._policy
        noise = private_noise(n, n, num_agents, self._log_horizon, policy.epsilon, policy.noise_constant)
        sampling = gossip_sampling(n, num_agents, policy.sampling_constant)
        return radius(sampling, noise, log_t, self._terms.high - self._terms.low, alpha1(num_agents))

    def take(self, arm: int, reward: float) -> tuple[Record, ...]:
        """The tree with one more release."""
        release = self.mechanism.add(arm, reward)
        slots = list(self._trees[arm].slots)
        pull_tree_add(slots, release.last, release.value * release.size)
        self._trees[arm] = ArmTree(arm, release.last, self.mechanism.sums(arm), tuple(slots))
        self.estimates[arm] = _prefix(self._trees[arm])
        return (self._trees[arm],)


def _prefix(tree: ArmTree) -> Estimate:
    """Algorithm 3: the noisy sum of all pulls, which stands in the slot of the newest interval, and their number."""
    if tree.pulls == 0:
        return NOTHING
    return Estimate(released(tree.slots[trailing_zeros(tree.pulls)], 0.0, tree.pulls), tree.pulls, tree.pulls)
