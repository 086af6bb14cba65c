"""Suspends an arm that is worse than a reference for certain: a term, which every site applies to its own board.

Whoever notices says so in a change of arms like that of a person, which counts everywhere at once. A person can resume
the arm. With strata arms are compared in each of them, and one that is worse there is suspended for its patients
alone. That is not undone at once: where a site accepts it, its guardrail acts again only once the arm is certainly
worse by another ``worse_by`` than it was then.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fedbandit.agent.core.arms import GUARDRAIL, MAX_ADDED
from fedbandit.agent.core.cells import Cells
from fedbandit.checks import InvalidArgument, closest, finite_number, printable
from fedbandit.policies import FedBatch
from fedbandit.privacy.noise import from_grid
from fedbandit.rules import proved
from fedbandit.rules.guardrail import ERROR, Deficit, MeanOfReleases, deficit, shares_by_precision

if TYPE_CHECKING:
    from fedbandit.agent.core.board import Board
    from fedbandit.agent.core.federation import Federation

__all__ = ["Breach", "Guard", "Guardrails", "check_guardrails"]


@dataclass(frozen=True)
class Guardrails:
    """Of the terms: the arm that others are compared with, and by how much one may be worse, in units of a reward."""

    reference: str
    worse_by: float

    def __post_init__(self) -> None:
        """Check what can be checked without the other terms."""
        worse_by = finite_number("worse_by", self.worse_by)
        if worse_by < 0.0:
            raise InvalidArgument("worse_by", worse_by, "0 or more, in units of a reward")
        object.__setattr__(self, "worse_by", worse_by)


def check_guardrails(terms: "Federation") -> None:
    """Refuse guardrails of another arm, beyond the range, or where nothing is proved."""
    guardrails, policy = terms.guardrails, terms.policy
    if guardrails is None:
        return
    if not isinstance(policy, FedBatch):
        raise InvalidArgument("guardrails", guardrails, "left out: only fed_batch has releases of which that is proved")
    if policy.sigma is not None:
        raise InvalidArgument("policy.sigma", policy.sigma, "left out with guardrails, which go by the range")
    if policy.growth is not None and policy.growth < proved.LEAST_GROWTH:
        raise InvalidArgument("policy.growth", policy.growth, f"at least {proved.LEAST_GROWTH:g} with guardrails")
    if guardrails.reference not in terms.arms:
        accepted = f"one of the arms: {', '.join(terms.arms)}"
        hint = closest(guardrails.reference, terms.arms)
        raise InvalidArgument("guardrails.reference", guardrails.reference, accepted, hint)
    if guardrails.worse_by >= terms.high - terms.low:
        accepted = f"below {terms.high - terms.low:g}, the width of the range: no arm can be worse by that"
        raise InvalidArgument("guardrails.worse_by", guardrails.worse_by, accepted)


NO_STRATUM = -1
"""Of a guardrail that is for all patients."""


def rail_of(arm: str, stratum: int) -> str:
    """What is overruled with a resume: the guardrail of an arm, or of an arm in a stratum. No name has a line end."""
    return arm if stratum == NO_STRATUM else f"{arm}\n{stratum}"


def arm_and_stratum(rail: str) -> tuple[str, int]:
    """Whose guardrail it is."""
    arm, _, stratum = rail.partition("\n")
    return arm, int(stratum) if stratum else NO_STRATUM


class Breach(NamedTuple):
    """An arm that is worse than its limit, in units of a reward; ``certain``: at least so much; ``stratum``: where."""

    arm: str
    reference: str
    estimate: float
    certain: float
    limit: float
    stratum: int = NO_STRATUM

    @property
    def reason(self) -> str:
        """In words, for the change of arms."""
        return (
            f"{GUARDRAIL}worse than {printable(self.reference, 60)} by {self.estimate:.4g} on average, by more than "
            f"{self.certain:.4g} for certain (95 %, always valid); the limit is {self.limit:.4g}"
        )


class Guard:
    """Looks at a board."""

    def __init__(self, terms: "Federation") -> None:
        """Only for terms with guardrails."""
        assert terms.guardrails is not None  # noqa: S101  # the caller has looked
        self._terms, self._rails, self._page = terms, terms.guardrails, terms.page_terms
        self._most = proved.most_releases(self._page.first_batch, self._page.growth, proved.MOST_PULLS)

    @property
    def strata(self) -> Sequence[int]:
        """Where arms are compared: in each stratum that the policy tells apart, or else over all patients."""
        return range(self._terms.num_strata) if self._terms.num_strata else (NO_STRATUM,)

    def breaches(
        self, board: "Board", arms: Sequence[str], overruled: Mapping[str, float], stratum: int = NO_STRATUM
    ) -> Iterator[Breach]:
        """Those that are worse than their limit; ``overruled``: by how much each was when it was resumed."""
        for arm in arms:
            limit = self._rails.worse_by + overruled.get(rail_of(arm, stratum), 0.0)
            found = None if arm == self._rails.reference else self.deficit(board, arm, stratum)
            if found is not None and found.certain > limit:
                yield Breach(arm, self._rails.reference, found.estimate, found.certain, limit, stratum)

    def resumed(self, board: "Board", arm: str, stratum: int = NO_STRATUM) -> float:
        """What a person overrules who resumes an arm: by how much it is worse for certain; 0 within the limit."""
        found = None if arm == self._rails.reference else self.deficit(board, arm, stratum)
        return 0.0 if found is None or found.certain <= self._rails.worse_by else found.certain

    def deficit(self, board: "Board", arm: str, stratum: int = NO_STRATUM) -> Deficit | None:
        """How much worse an arm is than the reference, in units of a reward; None: no site has released both."""
        if stratum != NO_STRATUM:
            error, width = self._error(arm) / self._terms.num_strata, self._terms.high - self._terms.low
            found = Cells(self._terms, board, stratum).deficit(arm, self._rails.reference, error)
            return None if found is None else Deficit(width * found.estimate, width * found.certain)
        pairs = [pair for name in board.counted() if (pair := self._pair(board, name, arm)) is not None]
        if not pairs:
            return None
        if self._terms.counted == "patients":
            shares = shares_by_precision(pairs, self._terms.largest_share)
        else:
            shares = [1.0 / len(pairs)] * len(pairs)
        found = deficit(pairs, shares, board.num_agents, self._most, self._error(arm))
        width = self._terms.high - self._terms.low
        return Deficit(from_grid(found.estimate, 0.0, width), from_grid(found.certain, 0.0, width))

    def _error(self, arm: str) -> float:
        """Half of it for the arms of the terms together, half for all that may be added."""
        among = self._terms.num_arms - 1 if arm in self._terms.arms else MAX_ADDED
        return ERROR / (2.0 * among)

    def _pair(self, board: "Board", site: str, arm: str) -> tuple[MeanOfReleases, MeanOfReleases] | None:
        one, other = (board.released_mean(site, name) for name in (self._rails.reference, arm))
        return None if one is None or other is None else (one, other)
