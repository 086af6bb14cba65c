"""Chooses the arm that a site hands out, and says how likely that was: the page's choice among those it may give.

Formulas are in ``fedbandit.rules``, the algorithm is on the page, draws are arguments. Shares of the terms wrap what
the page says: it knows nothing of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random  # noqa: TID251  # an argument's type
from typing import Any, NamedTuple

from fedbandit.agent.core.events import HorizonReached
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.player import Player
from fedbandit.checks import InvalidArgument, finite_number
from fedbandit.outside.policies import WrongPage, is_built_in, kind_of
from fedbandit.policies import FedBatch
from fedbandit.policies.plain import widen
from fedbandit.rules.choose import fewest_pulls
from fedbandit.rules.shares import BY_INDEX, CONTROL, floor_of_others, given_by_share, shared_chance, sum_of_floors

__all__ = ["Choice", "DecisionDraws", "choice", "draws_for"]


class Choice(NamedTuple):
    """An arm, and its propensity: the probability with which this site gives this arm to this request.

    Given what the site knows now. Exact, but for Thompson's draws, where it is within 0.01; None: an own page draws and
    does not say its chances.
    """

    arm: int
    propensity: float | None


@dataclass(frozen=True)
class DecisionDraws:
    """The randomness of one decision.

    * ``normals``: a standard normal draw for each arm, for the Thompson index
    * ``u``: uniform in [0, 1), for the pick among lagging arms
    * ``share``: uniform in [0, 1), for the shares of arms; None where the terms have none
    """

    normals: tuple[float, ...]
    u: float
    share: float | None = None

    def __post_init__(self) -> None:
        """Check the draws."""
        object.__setattr__(
            self, "normals", tuple(finite_number(f"normals[{k}]", z) for k, z in enumerate(self.normals))
        )
        for name in ("u", "share"):
            value = getattr(self, name)
            if value is None and name == "share":
                continue
            value = finite_number(name, value)
            object.__setattr__(self, name, value)
            if not 0.0 <= value < 1.0:
                raise InvalidArgument(name, value, "a number in [0, 1)")


def draws_for(terms: Federation, random: Random, num_arms: int | None = None) -> DecisionDraws:
    """All that a decision under these terms may need, among so many arms; None: those of the terms."""
    normals = tuple(random.gauss(0.0, 1.0) for _ in range(num_arms or terms.num_arms))
    u = random.random()
    return DecisionDraws(normals, u, None if terms.shares is None else random.random())


def choice(
    terms: Federation,
    player: Player,
    n_max: Sequence[int],
    draws: DecisionDraws,
    allowed: Sequence[int] | None = None,
) -> Choice:
    """The arm of a decision.

    ``allowed``: the arms that this request may have; None: all. An arm whose pending decisions would fill its tree is
    not handed out. ``n_max`` is empty without the consistency rule. If only some arms remain, the page chooses as in a
    world of these; t goes on counting all decisions.
    """
    num_arms = player.num_arms
    _check_normals(terms, num_arms, draws)
    arms = _with_room(terms, player, range(num_arms) if allowed is None else _checked_arms(num_arms, allowed))
    if terms.shares is None:
        said = _said(terms, player, n_max, draws, arms)
        return Choice(said.arm, said.chance(said.arm))
    control, control_share = terms.control, 0.0
    others = arms
    if control in arms and len(arms) > 1:
        control_share, others = terms.shares.control_share, [k for k in arms if k != control]
    if draws.share is None:
        raise InvalidArgument("share", None, "a draw in [0, 1): the terms have shares")
    said = _said(terms, player, n_max, draws, others)
    floor = floor_of_others(control_share, terms.shares.least_share, len(others))
    given = given_by_share(draws.share, control_share, floor, len(others))
    if given == CONTROL:
        return Choice(control, control_share)
    arm = said.arm if given == BY_INDEX else others[given]
    chance = said.chance(arm)
    if chance is None:
        return Choice(arm, None)
    return Choice(arm, shared_chance(chance, floor, sum_of_floors(control_share, floor, len(others))))


def _with_room(terms: Federation, player: Player, arms: Sequence[int]) -> Sequence[int]:
    most = terms.max_pulls
    if most is None:
        return arms
    opened = [k for k in arms if player.me.tried[k] < most]
    if not opened:
        raise HorizonReached(
            f"every arm{'' if len(arms) == player.num_arms else ' that this request may have'} has had the {most} "
            "decisions for which policy.horizon pays: the promised epsilon is spent. A new federation with a longer "
            "horizon, on new rewards, can go on"
        )
    return opened


class _Said(NamedTuple):
    """What the index says: an arm, and how likely it says each; ``chance_of`` is None where that is not known."""

    arm: int
    is_certain: bool
    chance_of: Callable[[int], float] | None = None

    def chance(self, arm: int) -> float | None:
        """How likely the index says this arm."""
        if self.is_certain:
            return float(arm == self.arm)
        return None if self.chance_of is None else self.chance_of(arm)


def _certainly(arm: int) -> _Said:
    return _Said(arm, True)


def _said(terms: Federation, player: Player, n_max: Sequence[int], draws: DecisionDraws, arms: Sequence[int]) -> _Said:
    """The page's choice among some arms."""
    page, me, seen = player.page, player.me, player.seen
    if page.unknown is None:  # the page takes every arm for known: Alg. 1, line 1, is the site's
        unknown = [player.is_unknown(k) for k in arms]
        if any(unknown):
            return _certainly(arms[fewest_pulls([me.tried[k] for k in arms], unknown)])
    if len(arms) == 1:
        return _certainly(arms[0])
    if n_max:
        seen.n_max[:] = n_max
    is_part = len(arms) < len(me.tried)
    if is_part:
        me, seen = player.among(arms)
    now, watched = player.now, _WatchedDraws(draws, len(arms))
    position = _checked_arm(terms, page.decide(me, player.terms, seen, now, watched), len(arms))
    if is_part:
        widen(page, player.me, me, arms)
    if not watched.are_used:
        return _certainly(arms[position])
    if (chance := page.chance) is None:
        return _Said(arms[position], False)

    def chance_of(arm: int) -> float:
        return chance(me, player.terms, seen, now, arms.index(arm))

    return _Said(arms[position], False, chance_of)


class _WatchedDraws:
    """The draws of a decision among some arms, and whether any was used: if not, the choice was certain."""

    are_used: bool
    normals: tuple[float, ...]
    u: float

    def __init__(self, draws: DecisionDraws, num_arms: int) -> None:
        self._draws, self._num_arms, self.are_used = draws, num_arms, False

    def __getattr__(self, name: str) -> Any:
        """Python asks for a name that is not there: each draw once."""
        if name not in ("normals", "u"):
            raise AttributeError(name)
        self.are_used = True
        value = self._draws.u if name == "u" else self._draws.normals[: self._num_arms]
        setattr(self, name, value)
        return value


def _checked_arm(terms: Federation, arm: object, num_arms: int) -> int:
    """The arm of a page: an own one may be wrong where no rehearsal has been."""
    if type(arm) is not int or not 0 <= arm < num_arms:
        raise WrongPage(kind_of(terms.policy), f"decide returns {arm!r}, not an arm from 0 to {num_arms - 1}")
    return arm


def _checked_arms(num_arms: int, allowed: Sequence[int]) -> Sequence[int]:
    arms = [k for k in range(num_arms) if k in allowed]
    if not arms or len(arms) < len(allowed):
        raise InvalidArgument("allowed", allowed, f"one or more different arms from 0 to {num_arms - 1}")
    return arms


def _check_normals(terms: Federation, num_arms: int, draws: DecisionDraws) -> None:
    policy = terms.policy
    needed = policy.index == "thompson" if isinstance(policy, FedBatch) else not is_built_in(policy)
    if len(draws.normals) != num_arms and (needed or draws.normals):
        raise InvalidArgument("normals", draws.normals, f"{num_arms} draws, one for each arm")
