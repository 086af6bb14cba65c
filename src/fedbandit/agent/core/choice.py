"""Which arm a site hands out, and the radii that it shows: from its numbers to its arm.

Here belongs what is read for a decision; formulas are the rules', draws are arguments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from fedbandit.agent.core.events import HorizonReached
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.own import Own
from fedbandit.checks import InvalidArgument, finite_number
from fedbandit.policies import FedBatch
from fedbandit.rules.choose import choose, count_lagging, fewest_pulls
from fedbandit.rules.kl import highest_kl_index, kl_index

__all__ = ["DecisionDraws", "choice", "log_time", "radii"]


@dataclass(frozen=True)
class DecisionDraws:
    """The randomness of one decision.

    * ``normals``: a standard normal draw for each arm, for the Thompson index
    * ``u``: uniform in [0, 1), for the pick among lagging arms
    """

    normals: tuple[float, ...]
    u: float

    def __post_init__(self) -> None:
        """Check the draws."""
        object.__setattr__(
            self, "normals", tuple(finite_number(f"normals[{k}]", z) for k, z in enumerate(self.normals))
        )
        object.__setattr__(self, "u", finite_number("u", self.u))
        if not 0.0 <= self.u < 1.0:
            raise InvalidArgument("u", self.u, "a number in [0, 1)")


def log_time(terms: Federation, tried: Sequence[int]) -> float:
    """Log t of the next decision, t being the site's own number of them; each arm's first is at t = 0 (Alg. 1)."""
    return log(max(sum(tried) + 1 - terms.num_arms, 1))


def _by(terms: Federation) -> str:
    return terms.policy.index if isinstance(terms.policy, FedBatch) else "ucb"


def radii(terms: Federation, own: Own, theta: Sequence[float | None], tried: Sequence[int]) -> tuple[float | None, ...]:
    """The uncertainty of each arm that the index uses; None while the arm is unknown.

    Thompson: the deviation of the draw; else by how much the index lies above theta.
    """
    log_t = log_time(terms, tried)

    def one(k: int, x: float | None) -> float | None:
        if x is None:
            return None
        if isinstance(terms.policy, FedBatch) and terms.policy.index == "kl":
            return kl_index(x, log_t / _worth(terms, own, k), terms.policy.epsilon) - x
        return own.radius(k, log_t)

    return tuple(one(k, x) for k, x in enumerate(theta))


def _worth(terms: Federation, own: Own, arm: int) -> int:
    return terms.num_agents * own.estimates[arm].released


def choice(
    terms: Federation,
    own: Own,
    theta: Sequence[float | None],
    tried: Sequence[int],
    n_max: Sequence[int],
    draws: DecisionDraws,
) -> int:
    """The arm of a decision: an unknown one, else a lagging one (Alg. 1, line 13), else the one with the best index.

    An arm whose tree will be full with what is pending is not handed out: its reward could not be taken.
    """
    arms = range(terms.num_arms)
    if _by(terms) == "thompson" and len(draws.normals) != terms.num_arms:
        raise InvalidArgument("normals", draws.normals, f"{terms.num_arms} draws, one for each arm")
    room = [terms.max_pulls is None or tried[k] < terms.max_pulls for k in arms]
    if not any(room):
        raise HorizonReached(
            f"every arm has had the {terms.max_pulls} decisions for which policy.horizon pays: the promised epsilon "
            "is spent. A new federation with a longer horizon, on new rewards, can go on"
        )
    unknown = [room[k] and theta[k] is None for k in arms]
    if any(unknown):
        return fewest_pulls(tried, unknown)
    if isinstance(terms.policy, FedBatch) and terms.policy.index == "kl":
        known = [x for x in theta if x is not None]
        return highest_kl_index(
            known, [_worth(terms, own, k) for k in arms], log_time(terms, tried), terms.policy.epsilon
        )
    shown = radii(terms, own, theta, tried)
    judged = [
        (k, x, r) for k, x, r in zip(arms, theta, shown, strict=True) if room[k] and x is not None and r is not None
    ]
    bonus = [r * draws.normals[k] if _by(terms) == "thompson" else r for k, _, r in judged]
    n = [tried[k] for k, _, _ in judged]
    heard = [n_max[k] for k, _, _ in judged] if terms.catches_up else n
    lagging = count_lagging(n, heard, terms.num_agents)  # Alg. 1, line 6
    position = choose([x for _, x, _ in judged], bonus, n, heard, terms.num_agents, lagging, draws.u)
    return judged[position][0]
