"""What can be run: the paper's policies and ours, as frozen records of their parameters.

Here belong names, parameters and their checks; what a policy does each round is in ``fedbandit.rules``. What
they are compared with is in ``fedbandit.baselines``.
"""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from math import inf
from typing import Any, ClassVar, Literal, get_args

from fedbandit.baselines import (
    GSE,
    INDICES,
    AdaPUCB,
    CentralUCB,
    CoopUCB2,
    DistUCB,
    Fed1UCB,
    Index,
    LocalUCB,
    checked_index,
)
from fedbandit.checks import InvalidArgument, closest, number_above, number_between, true_or_false, whole_number

__all__ = ["MAX_HORIZON", "POLICIES", "FedBatch", "FedUCB", "GossipUCB", "Policy", "PrivacyWarning", "policy_from"]

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
class FedBatch:
    """Gossip of private batch means: the same epsilon as Fed_UCB at nearly the price of no privacy (beyond the paper).

    An agent collects a batch of rewards of an arm and releases their noisy mean once, so that every reward is
    epsilon-differentially private for ever, without a horizon. Releases are weighted by their variance. Agents
    gossip value and weight; the estimate is their ratio, so that a site that has released nothing yet does not
    count as zero. There is no consistency rule: an agent's bonus covers the uncertainty that its own pulls can
    remove, and a slow agent need not chase a fast one's counts.

    * ``epsilon``: the privacy of one reward; may be infinite.
    * ``index``: ``"thompson"`` draws theta + sqrt(V / N) z, V the variance of the agent's own mean; ``"ucb"`` takes
      theta + radius; ``"kl"`` the largest mean that the divergence d_eps does not rule out (rewards with a range).
    * ``radius``, for ``"ucb"``: ``"calibrated"`` is sqrt(2 log t V / N), without a theorem; ``"safe"`` is the paper's C
      with a proved bound on the noise.
    * ``first_batch``: rewards in the first batch of an arm; default: ``rules.batch.default_first_batch``.
    * ``growth``: a batch makes the number of released rewards grow by this factor.
    * ``sigma``: the standard deviation of one reward, if known. Without it releases are weighted as if it were
      (high - low) / 2, the most it can be, and V takes what the private means tell of it
      (``rules.batch.learnt_reward_variance``); for Gaussian rewards it is the problem's.
    * ``catches_up=True`` adds the paper's consistency rule, for comparison and for the proof of the safe radius.
    * ``assume_sensitivity``: for a problem without a ``reward_range``, pretend that one reward moves a sum
      by at most this much, as the paper does with Gaussian rewards. Epsilon is then not met; a run warns.
    """

    epsilon: float
    index: Index = "thompson"
    radius: Literal["calibrated", "safe"] = "calibrated"
    first_batch: int | None = None
    growth: float = 1.25
    sigma: float | None = None
    catches_up: bool = False
    assume_sensitivity: float | None = None

    kind: ClassVar[str] = "fed_batch"

    def __post_init__(self) -> None:
        """Check the parameters."""
        object.__setattr__(self, "epsilon", number_above("epsilon", self.epsilon, 0.0, allow_inf=True))
        checked_index(self.index)
        if self.radius not in ("calibrated", "safe"):
            raise InvalidArgument("radius", self.radius, "one of calibrated, safe")
        if self.radius == "safe" and self.index != "ucb":
            raise InvalidArgument("radius", self.radius, "calibrated unless index is ucb, which alone uses a radius")
        if self.first_batch is not None:
            object.__setattr__(self, "first_batch", whole_number("first_batch", self.first_batch, 1, 10**6))
        object.__setattr__(self, "growth", number_between("growth", self.growth, 1.0, 1e6))
        for name in ("sigma", "assume_sensitivity"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, number_above(name, getattr(self, name), 0.0))
        object.__setattr__(self, "catches_up", true_or_false("catches_up", self.catches_up))

    @property
    def label(self) -> str:
        """How figures and tables call it."""
        safe = ", safe radius" if self.radius == "safe" else ""
        lag = ", catching up" if self.catches_up else ""
        return f"FedBatch {INDICES[self.index]}{safe}{lag}, eps={self.epsilon:g}"


Policy = GossipUCB | FedUCB | FedBatch | LocalUCB | CentralUCB | DistUCB | CoopUCB2 | Fed1UCB | AdaPUCB | GSE
POLICIES: dict[str, type[Policy]] = {policy.kind: policy for policy in get_args(Policy)}


def policy_from(
    where: str, given: Mapping[str, Any], kinds: Collection[str] = tuple(POLICIES), beside: Collection[str] = ()
) -> Policy:
    """The policy of a table in a file: its ``kind``, one of ``kinds``, and its parameters.

    ``where`` is the table's name, for the message of a mistake; ``beside`` are further keys that it may have.
    """
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise InvalidArgument(f"{where}.kind", kind, f"one of {', '.join(kinds)}", closest(str(kind), kinds))
    known = [parameter.name for parameter in fields(POLICIES[kind])]
    parameters = {name: value for name, value in given.items() if name != "kind"}
    for name, value in parameters.items():
        if name not in known:
            accepted = f"one of {', '.join(['kind', *beside, *known])}"
            raise InvalidArgument(f"a key of {where} ({kind})", name, accepted, closest(name, known))
        if not isinstance(value, (str, int, float)):
            raise InvalidArgument(f"{where}.{name}", value, "one value")
    needed = [p.name for p in fields(POLICIES[kind]) if p.default is MISSING and p.name not in parameters]
    if needed:
        raise InvalidArgument(f"{where} ({kind})", dict(given), f"given {', '.join(needed)}")
    try:
        return POLICIES[kind](**parameters)
    except InvalidArgument as error:
        raise error.at(where) from None
