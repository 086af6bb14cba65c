"""What all sites of a federation must agree on, and its hash.

Here belong the terms of the federation alone; what differs between sites (name, neighbours, files) does not.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from math import inf

from fedbandit.checks import LARGEST, InvalidArgument, finite_number, instance, whole_number
from fedbandit.policy import FedBatch
from fedbandit.rules.batch import default_first_batch

__all__ = ["Federation"]


@dataclass(frozen=True)
class Federation:
    """The terms: whoever has others neither gossips with these sites nor opens their files.

    * ``num_agents``: N, all sites that are expected to take part
    * ``arms``: their names, in order
    * ``low``, ``high``: the range of a reward
    * ``policy``: ``FedBatch`` with a finite epsilon and the calibrated radius, without the paper's consistency rule,
      which makes a slow site chase a fast one's counts for ever (docs/fedbatch.md)
    """

    name: str
    num_agents: int
    arms: tuple[str, ...]
    low: float
    high: float
    policy: FedBatch

    def __post_init__(self) -> None:
        """Check the terms."""
        instance("name", self.name, str, "text")
        object.__setattr__(self, "num_agents", whole_number("num_agents", self.num_agents, 1, 10**6))
        object.__setattr__(self, "arms", tuple(self.arms))
        if len(self.arms) < 2 or len(set(self.arms)) < len(self.arms):
            raise InvalidArgument("arms", self.arms, "two or more different names")
        for name in ("low", "high"):
            value = finite_number(name, getattr(self, name))
            if abs(value) > LARGEST:
                raise InvalidArgument(name, value, f"at most {LARGEST:g} in size")
            object.__setattr__(self, name, value)
        if not self.low < self.high:
            raise InvalidArgument("high", self.high, f"above low ({self.low:g})")
        self._check_policy()

    def _check_policy(self) -> None:
        instance("policy", self.policy, FedBatch, "a FedBatch")
        policy = self.policy
        if policy.epsilon == inf:
            raise InvalidArgument("policy.epsilon", inf, "finite: a live agent is private")
        if policy.catches_up:
            raise InvalidArgument("policy.catches_up", True, "False: live sites do not act in step")
        if policy.radius != "calibrated":
            raise InvalidArgument("policy.radius", policy.radius, "calibrated")
        if policy.assume_sensitivity is not None:
            raise InvalidArgument(
                "policy.assume_sensitivity", policy.assume_sensitivity, "left out: rewards have a range"
            )
        if policy.index == "kl" and (self.low, self.high) != (0.0, 1.0):
            raise InvalidArgument("policy.index", "kl", "for rewards in [0, 1] only")

    @property
    def num_arms(self) -> int:
        """M."""
        return len(self.arms)

    @property
    def first_batch(self) -> int:
        """How many rewards the first release of an arm holds."""
        return self.policy.first_batch or default_first_batch(self.policy.epsilon)

    def digest(self) -> str:
        """A hash of the terms: equal if and only if the terms are."""
        terms = json.dumps({"policy_kind": self.policy.kind, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(terms.encode()).hexdigest()
