"""Chooses the arm that a site hands out: its page's choice among the arms that have room.

Formulas are in ``fedbandit.rules``, the algorithm is on the page, draws are arguments.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedbandit.agent.core.events import HorizonReached
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.player import Player
from fedbandit.checks import InvalidArgument, finite_number
from fedbandit.outside.policies import WrongPage, is_built_in, kind_of
from fedbandit.policies import FedBatch
from fedbandit.policies.plain import narrowed
from fedbandit.rules.choose import fewest_pulls

__all__ = ["DecisionDraws", "choice"]


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


def choice(
    terms: Federation,
    player: Player,
    n_max: Sequence[int],
    draws: DecisionDraws,
    allowed: Sequence[int] | None = None,
) -> int:
    """The arm of a decision, one of those ``allowed``; None: of all.

    An arm whose pending decisions would fill its tree is not handed out. ``n_max`` is empty without the consistency
    rule.
    """
    _check_normals(terms, player.num_arms, draws)
    page, me, seen, arms = player.page, player.me, player.seen, range(player.num_arms)
    may = range(player.num_arms) if allowed is None else frozenset(allowed)
    room = [k in may and (terms.max_pulls is None or me.tried[k] < terms.max_pulls) for k in arms]
    if not any(room):
        raise HorizonReached(
            f"every arm has had the {terms.max_pulls} decisions for which policy.horizon pays: the promised epsilon "
            "is spent. A new federation with a longer horizon, on new rewards, can go on"
        )
    if page.unknown is None:  # the page takes every arm for known: Alg. 1, line 1, is the site's
        unknown = [room[k] and player.is_unknown(k) for k in arms]
        if any(unknown):
            return fewest_pulls(me.tried, unknown)
    if n_max:
        seen.n_max[:] = n_max
    if all(room):
        return _checked(terms, page.decide(me, player.terms, seen, player.now, draws), player.num_arms)
    opened = [k for k in arms if room[k]]
    if len(opened) == 1:
        return opened[0]
    me, seen = narrowed(page, me, seen, opened)
    if hasattr(me, "num_unknown"):  # of these arms: one that is not among them may be unknown
        me.num_unknown = sum(me.unknown)
    some = replace(draws, normals=tuple(draws.normals[k] for k in opened) if draws.normals else ())
    return opened[_checked(terms, page.decide(me, player.terms, seen, player.now, some), len(opened))]


def _checked(terms: Federation, arm: object, num_arms: int) -> int:
    """The arm of a page: an own one may be wrong where no rehearsal has been."""
    if type(arm) is not int or not 0 <= arm < num_arms:
        raise WrongPage(kind_of(terms.policy), f"decide returns {arm!r}, not an arm from 0 to {num_arms - 1}")
    return arm


def _check_normals(terms: Federation, num_arms: int, draws: DecisionDraws) -> None:
    policy = terms.policy
    needed = policy.index == "thompson" if isinstance(policy, FedBatch) else not is_built_in(policy)
    if len(draws.normals) != num_arms and (needed or draws.normals):
        raise InvalidArgument("normals", draws.normals, f"{num_arms} draws, one for each arm")
