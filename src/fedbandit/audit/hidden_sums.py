"""Which rewards each draw of noise for other policies hides, and with which weights (docs/privacy.md, 9).

Computed beside the site: from the decisions that it has handed out, the terms, and its records alone.
"""

from collections.abc import Iterator, Mapping, Sequence

from fedbandit.agent.core.decisions import arms_in
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import DecisionRecord, EvaluationReleased, Record, Stored
from fedbandit.privacy.noise import GRID
from fedbandit.rules.evaluation_sums import gain_in_steps, weight_in_steps

__all__ = ["HiddenSums"]


class HiddenSums:
    """``hidden``: of each draw the decisions whose rewards are in its sum, each with its weight in steps."""

    def __init__(self, terms: Federation) -> None:
        """Of a site that has released nothing."""
        self._terms, self._plan = terms, terms.evaluation
        self.hidden: dict[int, list[tuple[int, int]]] = {}
        self._made: dict[int, tuple[int, DecisionRecord]] = {}  # by the number that the site has given
        self._cancelled: set[int] = set()
        self._last = 0

    def made(self, number: int, decision: DecisionRecord) -> None:
        """The site has handed out a decision, which is this one of the run."""
        self._made[decision.number] = number, decision
        self._cancelled.discard(number)

    def cancelled(self, number: int) -> None:
        """It has let the application cancel one."""
        self._cancelled.add(number)

    def begin_again(self, stored: Stored, numbers: Mapping[str, int]) -> None:
        """It has been opened, or has begun a new incarnation: what it knows is what its file says."""
        self._last = 0 if stored.evaluating is None else stored.evaluating["last"]
        for place in [it for it in self._made if it > stored.numbering.decisions]:
            del self._made[place]
        for it in stored.decisions.values():
            self._made.pop(it.number, None)
            if (number := numbers.get(it.id)) is not None:
                self.made(number, it)
                if it.cancelled:
                    self.cancelled(number)

    def account(self, records: Sequence[Record], drawn: range) -> None:
        """An event has written these records, and drawn these: those for other policies come last."""
        if self._plan is None or not any(isinstance(it, EvaluationReleased) for it in records):
            return
        last, size, rows = self._of(records), self._plan.batch, self._plan.num_rows
        ends = range(self._last + size, last + 1, size)
        places = [(end, row) for end in ends for row in range(rows)]
        for draw, (end, row) in zip(drawn[len(drawn) - len(places) :], places, strict=False):
            self.hidden[draw] = [*self._in_sum(row, end - size, end)]
        self._last = last

    def _of(self, records: Sequence[Record]) -> int:
        return max(it.last for it in records if isinstance(it, EvaluationReleased))

    def _in_sum(self, row: int, before: int, last: int) -> Iterator[tuple[int, int]]:
        for place in range(before + 1, last + 1):
            number, decision = self._made.get(place, (0, None))
            if decision is not None and number not in self._cancelled:
                weight = self._weight(row, decision)
                if weight:
                    yield number, weight

    def _weight(self, row: int, it: DecisionRecord) -> int:
        """0: the decision is in no sum of the policy."""
        plan, terms, p = self._plan, self._terms, it.propensity
        eligible = arms_in(it.eligible) if it.eligible else [*range(terms.num_arms)]
        if plan is None or p is None or (p == 1.0 and len(eligible) > 1):
            return 0
        if row == 0:
            return GRID
        factors = terms.context
        context = () if factors is None or it.stratum is None else tuple(factors.levels(it.stratum).items())
        policy = plan.targets(terms.arms, {} if factors is None else factors.plain)[row - 1]
        chances = policy.among([k for k in eligible if k < terms.num_arms], context)
        if chances is None or it.arm >= terms.num_arms:
            return 0
        return weight_in_steps(chances[it.arm], p, plan.largest_weight, GRID)

    def moved(self, draw: int, number: int, before: int, after: int) -> int:
        """By how much another reward of a decision, in steps, moves the sum that a draw hides."""
        weights = [weight for owner, weight in self.hidden.get(draw, []) if owner == number]
        return sum(gain_in_steps(it, after, GRID) - gain_in_steps(it, before, GRID) for it in weights)
