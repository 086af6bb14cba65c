"""An agent's own numbers of one arm, from its releases.

Here belongs the order in which the rules of ``rules.batch`` are called; formulas are theirs. Everything is recomputed
from releases, so that nothing here needs to survive.
"""

from dataclasses import dataclass

from fedbandit.agent.federation import Federation
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

__all__ = ["NOTHING", "Estimate", "with_release"]


@dataclass(frozen=True)
class Estimate:
    """The weighted mean of the releases of an arm, its variance, and the sums that both need."""

    x_mean: float
    variance: float
    released: int
    releases: int
    precision: float
    square: float


NOTHING = Estimate(x_mean=0.0, variance=0.0, released=0, releases=0, precision=0.0, square=0.0)
"""Before the first release."""


def with_release(before: Estimate, release: Release, terms: Federation) -> Estimate:
    """What the agent knows of the arm after one more release."""
    width, sigma = terms.high - terms.low, terms.policy.sigma
    most = sigma * sigma if sigma is not None else largest_reward_variance(terms.low, terms.high)
    variance = release_variance(release.size, most, laplace_variance(width / terms.policy.epsilon))
    precision = before.precision + 1.0 / variance
    square = before.square + release_square(release.size, variance)
    x_mean = weighted_mean(before.x_mean, release.value, last_weight(precision, variance))
    learnt = most
    if sigma is None:
        learnt = learnt_reward_variance(x_mean, 1.0 / precision, terms.low, terms.high, most)
    return Estimate(
        x_mean=x_mean,
        variance=mean_variance(precision, square, most, learnt),
        released=release.last,
        releases=before.releases + 1,
        precision=precision,
        square=square,
    )
