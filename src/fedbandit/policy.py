"""What can be run: policies as frozen records of their parameters.

Here belong names, parameters and their checks; what a policy does each round is in ``fedbandit.rules``.
"""

import warnings
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from fedbandit.checks import number_above, true_or_false, whole_number

__all__ = ["MAX_HORIZON", "CentralUCB", "FedUCB", "GossipUCB", "LocalUCB", "Policy", "PrivacyWarning"]

MAX_HORIZON = 10**9


class PrivacyWarning(UserWarning):
    """The privacy that the parameters name does not hold."""


@dataclass(frozen=True)
class GossipUCB:
    """Algorithm 1: gossiped estimates, the consistency rule, radius C. No privacy."""

    kind: ClassVar[str] = "gossip_ucb"

    @property
    def label(self) -> str:
        """How figures and tables call it."""
        return "Gossip_UCB"


@dataclass(frozen=True)
class FedUCB:
    """Algorithms 2-4 with their privacy repaired: every reward is epsilon-differentially private.

    What differs from the printed algorithm: the first pull is noised like every other; a tree node has
    epsilon / (number of nodes that hold one reward) instead of epsilon / ceil(log T); noise belongs to
    an interval of the arm's pulls, not to the value of a sum; rewards are clamped to the problem's
    ``reward_range``. The radius is the paper's C~, but for the first pull's noise
    (``fedbandit.rules.radius.private_noise``).

    * ``epsilon``: the privacy of one reward; infinity is Gossip_UCB.
    * ``horizon``: the T of the radius and of the tree, which refuses more rounds; default: the run's.
    * ``paper=True``: the algorithm as printed, for reproduction. Its epsilon is **not** met, and it warns.
    * ``assume_sensitivity``: for a problem without a ``reward_range``, pretend that one reward moves a sum
      by at most this much, as the paper does with Gaussian rewards. Epsilon is then not met; a run warns.
      Where the problem declares its range, the range is used instead.
    * ``noise_constant``, ``sampling_constant``: the 128 and the 1 of C~ (Lemma 6), which is far too wide; smaller
      ones have no proof.
    """

    epsilon: float
    horizon: int | None = None
    paper: bool = False
    assume_sensitivity: float | None = None
    noise_constant: float = 128.0
    sampling_constant: float = 1.0

    kind: ClassVar[str] = "fed_ucb"

    def __post_init__(self) -> None:
        """Check the parameters; warn if the promise of epsilon is known to be broken."""
        object.__setattr__(self, "epsilon", number_above("epsilon", self.epsilon, 0.0, allow_inf=True))
        if self.horizon is not None:
            object.__setattr__(self, "horizon", whole_number("horizon", self.horizon, 1, MAX_HORIZON))
        if self.assume_sensitivity is not None:
            self._check("assume_sensitivity")
        self._check("noise_constant")
        self._check("sampling_constant")
        object.__setattr__(self, "paper", true_or_false("paper", self.paper))
        if self.paper and self.epsilon < inf:
            warnings.warn(
                f"FedUCB(epsilon={self.epsilon:g}, paper=True) runs Algorithm 4 as printed, which does not "
                "keep its epsilon: it publishes every first reward raw and counts too few tree nodes. "
                "For reproduction only.",
                PrivacyWarning,
                stacklevel=3,
            )

    def _check(self, name: str) -> None:
        object.__setattr__(self, name, number_above(name, getattr(self, name), 0.0))

    @property
    def label(self) -> str:
        """How figures and tables call it."""
        return f"Fed_UCB{' as printed' if self.paper else ''}, eps={self.epsilon:g}"


@dataclass(frozen=True)
class LocalUCB:
    """UCB1 on an agent's own rewards, no communication: the floor. Linear regret under local bias."""

    kind: ClassVar[str] = "local_ucb"

    @property
    def label(self) -> str:
        """How figures and tables call it."""
        return "Local UCB1"


@dataclass(frozen=True)
class CentralUCB:
    """UCB on everyone's rewards at once, no privacy: the ceiling.

    Index: sum_i weight_i x_mean_i + sqrt(alpha log t V), V the variance of that estimate.
    """

    alpha: float = 2.0

    kind: ClassVar[str] = "central_ucb"

    def __post_init__(self) -> None:
        """Check the parameters."""
        object.__setattr__(self, "alpha", number_above("alpha", self.alpha, 0.0))

    @property
    def label(self) -> str:
        """How figures and tables call it."""
        return "Central UCB" if self.alpha == 2.0 else f"Central UCB, alpha={self.alpha:g}"


Policy = GossipUCB | FedUCB | LocalUCB | CentralUCB
