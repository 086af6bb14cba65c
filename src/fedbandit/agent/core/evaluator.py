"""A site's sums for the policies that the terms evaluate: clipped weights and weighted rewards, released in batches.

Of each decision that counts a site adds up the weight of each policy and the weighted reward, over batches of decisions
in the order of their numbers. A batch is released as a whole, once all of its decisions count or are cancelled, with
noise of a budget of its own (docs/privacy.md). Sums are whole numbers, so they do not depend on the order in which
rewards came.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fedbandit.agent.core.bulletin import EvaluationEntry
from fedbandit.agent.core.records import DecisionRecord, Evaluating, EvaluationReleased, Record, Stored
from fedbandit.checks import InvalidArgument
from fedbandit.privacy.ledger import Ledger
from fedbandit.privacy.noise import GRID, NoiseSource, to_grid
from fedbandit.rules.evaluation_sums import PolicySums, gain_in_steps, weight_in_steps

if TYPE_CHECKING:
    from fedbandit.agent.core.federation import Federation

__all__ = ["Evaluator", "evaluation_renewed", "no_noise"]

MOST_REMEMBERED = 1000
"""Kinds of requests whose chances are remembered."""

_Sums = list[int]  # decisions, weights, squares, gains: in whole steps


class Evaluator:
    """A site's sums for the policies of its terms, and the only one that asks for their noise."""

    def __init__(self, terms: "Federation", stored: Stored, noise: NoiseSource) -> None:
        """As the journal knows them; only for terms with an evaluation."""
        assert terms.evaluation is not None  # noqa: S101  # the caller has looked
        self._terms, self._plan, self._noise = terms, terms.evaluation, noise
        factors = {} if terms.context is None else terms.context.plain
        self._targets = self._plan.targets(terms.arms, factors)
        self._chances: dict[tuple[bytes, int | None], tuple[tuple[float, ...] | None, ...]] = {}
        rows = self._plan.num_rows
        fields = stored.evaluating or {"last": 0, "releases": 0, "told": [[0] * 4] * rows, "open": {}}
        self._last: int = fields["last"]
        self.releases: int = fields["releases"]
        self._told: list[_Sums] = [list(it) for it in fields["told"]]
        self._open: dict[int, tuple[int, list[_Sums]]] = {
            int(end): (done, [list(it) for it in sums]) for end, (done, sums) in fields["open"].items()
        }
        self._ledger = Ledger(rows, self._plan.epsilon_of_row, 1, noise)
        mark = stored.evaluated
        if self._last < mark or len(self._told) != rows:
            raise InvalidArgument("evaluation", self._last, f"sums as new as the release up to decision {mark}")
        self._ledger.restore({(row, 0): mark for row in range(rows) if mark})

    @property
    def fields(self) -> dict[str, Any]:
        """All that must survive; contains raw sums."""
        return {
            "last": self._last,
            "releases": self.releases,
            "told": [list(it) for it in self._told],
            "open": {str(end): [done, [list(it) for it in sums]] for end, (done, sums) in sorted(self._open.items())},
        }

    @property
    def entry(self) -> EvaluationEntry:
        """What the site's bulletin says of it."""
        rows = [(n, weights / GRID, squares / GRID / GRID, gains / GRID) for n, weights, squares, gains in self._told]
        return EvaluationEntry(self.releases, tuple(PolicySums(*it) for it in rows))

    def take(self, counted: Iterable[tuple[DecisionRecord, float]], cancelled: Iterable[DecisionRecord] = ()) -> None:
        """These decisions count, with these rewards; those were cancelled. ``records`` must be written."""
        for it, reward in counted:
            if it.number > self._last:
                self._add(it, to_grid(reward, self._terms.low, self._terms.high))
        for it in cancelled:
            if it.number > self._last:
                self._sums_of(it.number)

    @property
    def records(self) -> tuple[Record, ...]:
        """What must be on disk after ``take``."""
        return (Evaluating(self.fields),)

    def _sums_of(self, number: int) -> list[_Sums]:
        """Of the batch in which a decision lies, in which one more is done."""
        size = self._plan.batch
        end = self._last + -(-(number - self._last) // size) * size
        done, sums = self._open.get(end) or (0, [[0] * 4 for _ in range(self._plan.num_rows)])
        self._open[end] = done + 1, sums
        return sums

    def _add(self, it: DecisionRecord, reward: int) -> None:
        sums = self._sums_of(it.number)
        propensity = it.propensity
        if propensity is None or not self._was_a_choice(it, propensity):
            return
        largest = self._plan.largest_weight
        for row, chances in zip(sums, ((), *self._chances_of(it)), strict=True):
            if chances is None:
                continue
            weight = GRID
            if row is not sums[0]:
                chance = chances[it.arm] if it.arm < len(chances) else 0.0
                weight = weight_in_steps(chance, propensity, largest, GRID)
            gain = gain_in_steps(weight, reward, GRID)
            for column, x in enumerate((1, weight, weight * weight, gain)):
                row[column] += x

    def _was_a_choice(self, it: DecisionRecord, propensity: float) -> bool:
        """Where an arm was certain among several, nobody knows what another would have done."""
        return propensity < 1.0 or (bool(it.eligible) and int.from_bytes(it.eligible, "little").bit_count() == 1)

    def _chances_of(self, it: DecisionRecord) -> tuple[tuple[float, ...] | None, ...]:
        """What each policy gives to such a request, by arm; None: it could have had no arm of the policy."""
        asked = it.eligible, it.stratum
        if asked not in self._chances:
            if len(self._chances) >= MOST_REMEMBERED:
                self._chances.clear()
            factors, number = self._terms.context, int.from_bytes(it.eligible, "little")
            context = () if factors is None or it.stratum is None else tuple(factors.levels(it.stratum).items())
            eligible = [k for k in range(self._terms.num_arms) if number >> k & 1] if it.eligible else None
            self._chances[asked] = tuple(it.among(eligible, context) for it in self._targets)
        return self._chances[asked]

    # ---------------------------------------------------------------- releases

    @property
    def is_due(self) -> bool:
        """Whether all decisions of the next batch count, or are cancelled."""
        done, _ = self._open.get(self._last + self._plan.batch, (0, []))
        return done == self._plan.batch

    def release(self) -> tuple[Record, ...]:
        """Add noise to all batches that are due: what must be on disk before anybody sees it."""
        was = self._last
        while self.is_due:
            first, end = self._last + 1, self._last + self._plan.batch
            _, sums = self._open.pop(end)
            for row, told in enumerate(self._told):
                noise = self._ledger.draw(row, first, end)
                for column, x in enumerate(sums[row]):
                    told[column] += x
                told[3] += noise
            self._last, self.releases = end, self.releases + 1
        return (*self.records, EvaluationReleased(self._last)) if self._last > was else ()

    def take_back(self, entry: EvaluationEntry) -> tuple[Record, ...]:
        """What the site had released before it lost its file, if it has released nothing since."""
        if self._ledger.marks or entry.releases <= self.releases or len(entry.rows) != len(self._told):
            return ()
        self.releases, self._told = entry.releases, _in_steps(entry)
        return self.records


def _in_steps(entry: EvaluationEntry) -> list[_Sums]:
    return [
        [int(n), round(weights * GRID), round(squares * GRID * GRID), round(gains * GRID)]
        for n, weights, squares, gains in entry.rows
    ]


def evaluation_renewed(stored: Stored, terms: "Federation", first: int, told: EvaluationEntry | None) -> list[Record]:
    """The records of a new incarnation with an old file: no reward of a decision up to ``first`` is in any sum of it.

    ``told``: what the newest own bulletin says; if it knows more releases than the file, they are the site's.
    """
    if terms.evaluation is None:
        return []
    fields = Evaluator(terms, stored, no_noise).fields
    last = max(first, fields["last"])
    if told is not None and told.releases > fields["releases"] and len(told.rows) == len(fields["told"]):
        fields |= {"releases": told.releases, "told": _in_steps(told)}
    kept = Stored(stored.numbering, evaluating={**fields, "last": last, "open": {}})
    evaluator = Evaluator(terms, kept, no_noise)
    evaluator.take((), [it for it in stored.decisions.values() if it.cancelled])
    return [*evaluator.records, *([EvaluationReleased(last)] if last else [])]


def no_noise(epsilon: float, count: int) -> list[int]:
    """For sums that are only looked at."""
    raise AssertionError("nothing is released here")
