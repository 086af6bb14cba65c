"""What to compare with: the floor, the ceiling, and other authors' policies, as frozen records of parameters.

Here belong names, parameters and their checks; what a policy does each round is in ``fedbandit.rules`` and
``fedbandit.simulation``. Where a description left something open, the docstring says how it was read.
"""

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from fedbandit.checks import InvalidArgument, number_above, number_between, true_or_false

__all__ = [
    "GSE",
    "INDICES",
    "AdaPUCB",
    "CentralUCB",
    "CoopUCB2",
    "DistUCB",
    "Fed1UCB",
    "Index",
    "LocalUCB",
    "checked_index",
]

Index = Literal["ucb", "thompson", "kl"]
INDICES = {"ucb": "UCB", "thompson": "Thompson", "kl": "KL"}


def checked_index(index: str) -> str:
    """One of the known ways to choose."""
    if index not in INDICES:
        raise InvalidArgument("index", index, f"one of {', '.join(INDICES)}")
    return index


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
    """An index on everyone's rewards at once, no privacy: the ceiling where agents act in step.

    Where rates differ it is none: its bonus covers the slowest agent's variance, which the fast ones cannot remove.

    With V the variance of the pooled mean m = sum_i weight_i x_mean_i, the ``index`` of an arm is

    * ``"ucb"``: m + sqrt(alpha log t V)
    * ``"thompson"``: m + sqrt(V) z, z standard normal, drawn by every agent for itself
    * ``"kl"``: max{q : kl(m, q) <= log t / count}, count the rewards that m is worth; for rewards in [0, 1]

    V takes a reward's variance to be the most it can be, (high - low)^2 / 4. With ``learns_variance`` it is learnt from
    the means, as FedBatch does.
    """

    alpha: float = 2.0
    index: Index = "ucb"
    learns_variance: bool = False

    kind: ClassVar[str] = "central_ucb"

    def __post_init__(self) -> None:
        """Check the parameters."""
        object.__setattr__(self, "alpha", number_above("alpha", self.alpha, 0.0))
        object.__setattr__(self, "learns_variance", true_or_false("learns_variance", self.learns_variance))
        checked_index(self.index)

    @property
    def label(self) -> str:
        """How figures and tables call it."""
        learns = ", variance learnt" if self.learns_variance else ""
        return f"Central {INDICES[self.index]}" + ("" if self.alpha == 2.0 else f", alpha={self.alpha:g}") + learns


@dataclass(frozen=True)
class DistUCB:
    """Dist-UCB (Zhu and Liu): the paper's estimate over all links in every round, with Metropolis weights.

    Index theta + sqrt(3 log t / (degree n)); an agent catches up on an arm when n <= n~ - M. No privacy.
    """

    kind: ClassVar[str] = "dist_ucb"

    @property
    def label(self) -> str:
        """How figures and tables call it."""
        return "Dist-UCB"


@dataclass(frozen=True)
class CoopUCB2:
    """coop-UCB2 (Landgren, Srivastava, Leonard 2016): running consensus on sums and counts, all links every round.

    Index s/c + sqrt(2 (c + f) log t / (N c^2)), f = sqrt(log t), gamma = 1 as in their simulations, Metropolis
    weights. It weighs agents by their pulls, and so is biased when agents see different means. No privacy.
    """

    kind: ClassVar[str] = "coop_ucb2"

    @property
    def label(self) -> str:
        """How figures and tables call it."""
        return "coop-UCB2"


@dataclass(frozen=True)
class Fed1UCB:
    """Fed1-UCB (Shi and Shen 2021): a server, in phases.

    In a phase each agent pulls each live arm ceil(10 log T) times; then the server averages the agents' means
    and drops arms whose upper bound is under the best lower bound, with radius sqrt(4 log T / (N F)) after F
    pulls. It knows T. No privacy. Agents must act in step.
    """

    kind: ClassVar[str] = "fed1_ucb"

    @property
    def label(self) -> str:
        """How figures and tables call it."""
        return "Fed1-UCB"


@dataclass(frozen=True)
class AdaPUCB:
    """AdaP-UCB (Azize and Basu 2022), gossiped: the best-known private bandit's mechanism in our network.

    An arm, once chosen, is pulled until its count has doubled; the noisy mean of that episode alone replaces the
    one before. Value and weight are gossiped and the radius is calibrated as for FedBatch, so that the two
    differ in the mechanism only.

    * ``assume_sensitivity``: as for FedBatch.
    """

    epsilon: float
    assume_sensitivity: float | None = None

    kind: ClassVar[str] = "adap_ucb"

    def __post_init__(self) -> None:
        """Check the parameters."""
        object.__setattr__(self, "epsilon", number_above("epsilon", self.epsilon, 0.0, allow_inf=True))
        if self.assume_sensitivity is not None:
            checked = number_above("assume_sensitivity", self.assume_sensitivity, 0.0)
            object.__setattr__(self, "assume_sensitivity", checked)

    @property
    def label(self) -> str:
        """How figures and tables call it."""
        return "AdaP-UCB gossiped" + ("" if self.epsilon == inf else f", eps={self.epsilon:g}")


@dataclass(frozen=True)
class GSE:
    """GSE (Liu, Qiu, Yang, Xu 2025): gossip with successive elimination, the newest for this setting. No privacy.

    Round robin over live arms; over edges that are each ``present`` with some probability in a round, theta moves
    by (theta_j - theta_i) / N. An arm is dropped when its upper bound is under another's lower bound, or when a
    neighbour on a present edge has dropped it. It knows T. Agents must act in step.
    """

    present: float = 1.0

    kind: ClassVar[str] = "gse"

    def __post_init__(self) -> None:
        """Check the parameters."""
        object.__setattr__(self, "present", number_between("present", self.present, 0.0, 1.0))

    @property
    def label(self) -> str:
        """How figures and tables call it."""
        return "GSE" if self.present == 1.0 else f"GSE, edges present {self.present:g}"
