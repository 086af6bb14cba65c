"""What is proved of two arms in one stratum, by a board: from releases of that stratum alone, pooled sums left out.

Of each site that has released both arms there the two are compared, as guardrails compare them over all patients. The
bounds hold at all times at once (``rules.cell_sequences``).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedbandit.policies import FedBatch
from fedbandit.rules.cell_sequences import CellMean, proved_deficit, proved_mean
from fedbandit.rules.guardrail import Deficit
from fedbandit.rules.influence import water_level

if TYPE_CHECKING:
    from fedbandit.agent.core.board import Board
    from fedbandit.agent.core.federation import Federation

__all__ = ["Cells", "shares_of"]


class Cells:
    """Looks at a board, in one stratum; numbers in units of the range."""

    def __init__(self, terms: "Federation", board: "Board", stratum: int) -> None:
        """Only for terms whose policy is told of strata."""
        self._terms, self._board, self._stratum = terms, board, stratum
        page = terms.page_terms
        self._noise_scale: float = page.noise_scale / page.width
        policy = terms.policy
        self.is_proved = isinstance(policy, FedBatch) and policy.sigma is None
        """With ``sigma`` nothing is: rewards may vary more than was said."""

    def of(self, arm: str) -> dict[str, CellMean]:
        """What each site that counts has released of an arm."""
        found = {name: self._board.released_in(name, arm, self._stratum) for name in self._board.counted()}
        return {name: it for name, it in found.items() if it is not None}

    def mean(self, arm: str, error: float) -> tuple[float, float] | None:
        """Where the mean over sites is, each by how much it has released; None: nothing is proved."""
        cells = list(self.of(arm).values())
        return proved_mean(cells, self._noise_scale, error) if cells and self.is_proved else None

    def deficit(self, arm: str, reference: str, error: float) -> Deficit | None:
        """How much worse an arm is than another, over the sites that have released both; None: nothing is proved."""
        one, other = self.of(reference), self.of(arm)
        pairs = [(it, other[name]) for name, it in one.items() if name in other]
        if not pairs or not self.is_proved:
            return None
        shares = shares_of(pairs, self._terms.largest_share if self._terms.counted == "patients" else None)
        most = max(self._terms.most_agents, self._board.num_agents)
        return proved_deficit(pairs, shares, self._noise_scale, most, error)

    def leads(self, leader: str, others: Sequence[str], error: float) -> bool:
        """Whether an arm is better than each other for certain, whatever any one of several sites has said.

        On average over all sites, as they count in the stratum: what is not known of a site is the worst that can be.
        """
        names = self._board.counted()
        rows, _ = self._board.rows(leader)
        weights = {name: row[1 + self._stratum] for name, row in zip(names, rows, strict=True)}
        left_out = ("",) if len(names) == 1 else ("", *names)
        one = self.of(leader)
        for other in others if self.is_proved else ():
            leads = self._leads_at(one, self.of(other), error / len(others))
            for without in left_out:
                counted = {name: weight for name, weight in weights.items() if name != without}
                lead = sum(weight * leads.get(name, -1.0) for name, weight in counted.items())
                if lead <= 0.0:
                    return False
        return self.is_proved

    def _leads_at(self, one: dict[str, CellMean], other: dict[str, CellMean], error: float) -> dict[str, float]:
        """By how much the first arm is better at each site that has released both, for certain, at all at once."""
        most = max(self._terms.most_agents, self._board.num_agents)
        return {
            name: proved_deficit([(it, other[name])], [1.0], self._noise_scale, most, error).certain
            for name, it in one.items()
            if name in other
        }


def shares_of(pairs: Sequence[tuple[CellMean, CellMean]], largest_share: float | None) -> list[float]:
    """Of each site: alike, or by the precision of its difference, none more than the largest."""
    if largest_share is None:
        return [1.0 / len(pairs)] * len(pairs)
    weights = [1.0 / (1.0 / one.precision + 1.0 / other.precision) for one, other in pairs]
    level = water_level(weights, largest_share)
    cut = [min(weight, level) for weight in weights]
    return [weight / sum(cut) for weight in cut]
