"""An agent's own numbers of one arm.

Here belongs what they are, and for batches the order in which the rules of ``rules.batch`` are called; formulas are
theirs. Those of batches are recomputed from releases, so that nothing here needs to survive.
"""

from dataclasses import dataclass, replace
from math import log

from fedbandit.agent.core.federation import Federation
from fedbandit.policies import FedBatch
from fedbandit.privacy.mechanism import Release
from fedbandit.rules.batch import (
    laplace_variance,
    largest_reward_variance,
    last_weight,
    learnt_reward_variance,
    mean_variance,
    release_square,
    release_variance,
    weighted_mean,
)
from fedbandit.rules.radius import tail_level, tail_slope, tail_tilt

__all__ = ["NOTHING", "NO_BATCH", "BatchEstimate", "Estimate", "with_release"]


@dataclass(frozen=True)
class Estimate:
    """The own mean of an arm, as others may see it, and how many rewards and releases it is made of."""

    x_mean: float
    released: int
    releases: int


NOTHING = Estimate(x_mean=0.0, released=0, releases=0)
"""Before the first release."""


@dataclass(frozen=True)
class BatchEstimate(Estimate):
    """The weighted mean of the releases of an arm, its variance, the sums that both need, and the noise's tail."""

    variance: float
    precision: float
    square: float
    slope: float = 0.0
    level: float = 0.0


NO_BATCH = BatchEstimate(x_mean=0.0, released=0, releases=0, variance=0.0, precision=0.0, square=0.0)
"""Before the first batch is full."""


def with_release(before: BatchEstimate, release: Release, terms: Federation, policy: FedBatch) -> BatchEstimate:
    """What the agent knows of the arm after one more release."""
    width, sigma = terms.high - terms.low, policy.sigma
    most = sigma * sigma if sigma is not None else largest_reward_variance(terms.low, terms.high)
    variance = release_variance(release.size, most, laplace_variance(width / policy.epsilon))
    precision = before.precision + 1.0 / variance
    square = before.square + release_square(release.size, variance)
    weight = last_weight(precision, variance)
    x_mean = weighted_mean(before.x_mean, release.value, weight)
    learnt = most
    if sigma is None:
        learnt = learnt_reward_variance(x_mean, 1.0 / precision, terms.low, terms.high, most)
    after = BatchEstimate(
        x_mean=x_mean,
        released=release.last,
        releases=before.releases + 1,
        variance=mean_variance(precision, square, most, learnt),
        precision=precision,
        square=square,
    )
    if policy.radius == "safe":
        # The newest noise has the largest coefficient, and the tilt is chosen by counts alone (see simulation.pull).
        largest = width / policy.epsilon * weight / release.size
        tilt = tail_tilt(after.releases, 2.0 * log(max(after.released, 2)))
        after = replace(after, slope=tail_slope(largest, tilt), level=tail_level(largest, after.releases, tilt))
    return after
