"""What a site's entry of an arm counts as: no more than honest sites could publish, whatever it says.

It depends on the terms and on bulletins alone, not on clocks: sites with equal boards compute equal bits.

* ``FedBatch``: the mean counts within the range and the noise of so many releases (``rules.influence``). The variance
  follows from their number, by the schedule of batches. A weight is at most the terms' largest rate, and at most
  ``largest_share`` of all; where sites count, all weigh the same.
* ``FedBatch`` with strata: its record counts as far as any rewards can have made it (``rules.strata_influence``), and
  weights as above, in each stratum.
* Other policies: values are clamped to what their page can publish.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from math import inf, isclose
from typing import NamedTuple

from fedbandit.agent.core.bulletin import ArmEntry
from fedbandit.agent.core.federation import SCALES, Federation
from fedbandit.policies import FedBatch
from fedbandit.privacy.noise import GRID
from fedbandit.rules import batch, influence, proved
from fedbandit.rules.cell_sequences import CellMean
from fedbandit.rules.gossip import LEAST_WEIGHT
from fedbandit.rules.guardrail import MeanOfReleases
from fedbandit.rules.releases import MEAN, VARIANCE, WEIGHT
from fedbandit.rules.strata import length_of_record
from fedbandit.rules.strata_influence import bounded_record, unpacked

Row = tuple[float, ...]

MOST_RELEASES = 10_000
"""Of an arm: more count as this many. The default schedule has 1,100 for 10^12 rewards."""

LEAST_PRECISION = 1e-6
"""Of a mean in units of the range: noise that leaves less is beyond all use."""

ROUNDING = 1e-9
"""By which a variance may differ, relatively, from the one that follows from the releases."""


class Schedule(NamedTuple):
    """What so many releases are, by the schedule of batches alone; as ``fed_batch.add_release`` computes it."""

    rewards: int
    precision: float
    square: float
    largest: float
    noise: float


EXACT = 50
"""With more releases the quantile of noise is taken a little wider: it is small by then."""


class _Schedules:
    """What 0, 1, 2, ... releases are, as far as anybody has asked."""

    def __init__(
        self, first_batch: int, growth: float, reward_variance: float, noise_variance: float, noise_scale: float
    ) -> None:
        self._first_batch, self._growth = first_batch, growth
        self._reward_variance, self._noise_variance, self._noise_scale = reward_variance, noise_variance, noise_scale
        self._known = [Schedule(0, 0.0, 0.0, 0.0, 0.0)]
        self._coefficients: list[float] = []  # of the releases' noise, times the precision
        self._squares = 0.0  # sum of their squares

    def of(self, releases: int) -> Schedule:
        while len(self._known) <= releases:
            self._add()
        return self._known[releases]

    def _add(self) -> None:
        last, scale = self._known[-1], self._noise_scale
        size = batch.batch_size(last.rewards, self._first_batch, self._growth)
        variance = batch.release_variance(size, self._reward_variance, self._noise_variance)
        precision = last.precision + 1.0 / variance
        largest = proved.largest_coefficient(scale, batch.last_weight(precision, variance), size)
        self._squares += (scale / (variance * size)) ** 2
        if len(self._known) <= EXACT:
            self._coefficients.append(scale / (variance * size))
            noise = influence.noise_quantile([c / precision for c in self._coefficients])
        else:
            noise = influence.wide_quantile(self._squares / precision**2, largest)
        square = last.square + batch.release_square(size, variance)
        self._known.append(Schedule(last.rewards + size, precision, square, largest, noise))


@lru_cache(16)
def _schedules(
    first_batch: int, growth: float, reward_variance: float, noise_variance: float, noise_scale: float
) -> _Schedules:
    return _Schedules(first_batch, growth, reward_variance, noise_variance, noise_scale)


class Counting:
    """Counts entries by the terms of a federation."""

    def __init__(self, terms: Federation) -> None:
        """Nothing is computed yet."""
        policy = terms.policy
        self._terms, self._page = terms, terms.page_terms
        self.num_strata = terms.num_strata
        self.num_columns = length_of_record(self.num_strata) if self.num_strata else terms.num_columns
        """Of a row that counts; a bulletin has the lower triangle of a precision alone."""
        self.columns = _names_of_record(terms) if self.num_strata else terms.page.published_names
        self.draws_noise = terms.page.noise_due is not None
        """Whether releases hide rewards: then none may be drawn twice."""
        self.takes_back = isinstance(policy, FedBatch) and not self.num_strata
        """Whether a site that has lost its file goes on with its last bulletin; others begin anew."""
        self._is_proved = isinstance(policy, FedBatch) and policy.radius == "proved"
        self.has_weights = self.num_columns == 3 and self.takes_back
        """Whether sites may count differently."""
        self.prior: float = self._page.most_variance / batch.PRIOR_REWARDS if self.takes_back else 0.0
        """The variance of a mean anywhere in the range."""
        if self.takes_back:
            page = self._page
            self._schedules = _schedules(
                page.first_batch, page.growth, page.most_variance, page.noise_variance, page.noise_scale
            )

    # ---------------------------------------------------------------- one entry

    def rows(self, entries: Iterable[ArmEntry]) -> dict[str, Row]:
        """The rows that count, by arm; with FedBatch a site's weight counts before its first release."""
        return {it.name: self.row(it) for it in entries if self.has_weights or self.num_strata or it.releases > 0}

    def row(self, entry: ArmEntry) -> Row:
        """The row that counts."""
        if self.num_strata:
            return self._record(entry)
        if not self.takes_back:
            return self._page_row(entry)
        if entry.releases == 0:
            return (0.0, 0.0, self._weight(entry.row[WEIGHT])) if self.has_weights else (0.0,) * self.num_columns
        known = self.schedule(entry.releases)
        mean = influence.clamped(self._mean_said(entry), self._page.low, self._page.high, known.noise)
        if self._is_proved:
            return self._proved_row(entry, known, mean)
        variance, said = self._variance(known, mean), entry.row[VARIANCE]
        if isclose(said, variance, rel_tol=ROUNDING):
            variance = said  # as the page has rounded it
        return mean, variance, self._weight(entry.row[WEIGHT])

    def mean_of(self, entry: ArmEntry) -> float | Row | None:
        """What never changes while an arm's releases do not; None: there is no such number."""
        if entry.releases > 0 and self.num_strata:
            return entry.row[1 + self.num_strata :]
        if entry.releases == 0 or not (self.takes_back or self.num_columns == 1):
            return None
        return entry.row[0]

    def released(self, entry: ArmEntry) -> MeanOfReleases | None:
        """All that has been released, as bounds of it need it; None: nothing, or of another policy."""
        if entry.releases == 0 or not self.takes_back:
            return None
        known, page = self.schedule(entry.releases), self._page
        mean = influence.clamped(self._mean_said(entry), page.low, page.high, known.noise)
        noise = proved.noise_of_mean(known.precision, known.square, page.most_variance)
        return MeanOfReleases(mean, min(entry.releases, MOST_RELEASES), 1.0 / known.precision, noise, known.largest)

    def released_in(self, entry: ArmEntry, stratum: int) -> CellMean | None:
        """What has been released of a stratum alone, in units of the range; None: nothing that honest sites release.

        A mean counts within the range and what noise explains; precisions as far as so many patients can have made
        them, and squares as far as these.
        """
        if entry.releases == 0 or not entry.alone:
            return None
        page = self._page
        mean, precision, square = entry.alone[stratum]
        width, most = page.width, 1.0 / (page.most_variance / page.width**2)
        mean, precision, square = (mean - page.low) / width, precision * width**2, square * width**4
        if not (precision > 0.0 and square > 0.0):
            return None
        precision = min(precision, entry.cells[stratum] * most)
        if precision < LEAST_PRECISION:
            return None
        square = min(max(square, precision * precision / max(entry.cells[stratum], 1)), precision * most)
        wide = influence.wide_quantile(1.0 / precision, page.noise_scale / width * most / precision)
        return CellMean(influence.clamped(mean, 0.0, 1.0, wide), precision, square)

    def rewards_of(self, entry: ArmEntry) -> int | None:
        """How many rewards so many releases hold; None: nobody knows."""
        is_known = self.takes_back and entry.releases < MOST_RELEASES
        return self.schedule(entry.releases).rewards if is_known else None

    def said(self, entry: ArmEntry) -> Row:
        """The row as an honest site would have it; before the first release only the weight matters."""
        if self.num_strata:
            return unpacked(entry.row, self.num_strata)
        if entry.releases > 0 or not self.has_weights:
            return entry.row
        return 0.0, 0.0, entry.row[WEIGHT]

    def _record(self, entry: ArmEntry) -> Row:
        """Of strata: a weight in each, and what all its releases add up to."""
        page, said = self._page, entry.row[1 : 1 + self.num_strata]
        weights = [self._weight(it) if it > 0.0 or self._terms.counted == "sites" else 0.0 for it in said]
        total = sum(weights)
        if self._terms.counted == "patients" and total > self._terms.largest_rate * (1.0 + ROUNDING):
            weights = [it * self._terms.largest_rate / total for it in weights]
        releases, most = min(entry.releases, MOST_RELEASES), page.width * page.width / page.least_variance
        return bounded_record(unpacked(entry.row, self.num_strata), weights, releases, entry.rewards, most)

    def _mean_said(self, entry: ArmEntry) -> float:
        return entry.row[0] / self._page.share if self._is_proved else entry.row[MEAN]

    def _weight(self, said: float) -> float:
        if self._terms.counted == "sites":
            return self._page.share
        return min(said, self._terms.largest_rate) if said >= LEAST_WEIGHT else 0.0

    def _variance(self, known: Schedule, mean: float) -> float:
        page = self._page
        learnt = batch.learnt_reward_variance(
            mean, 1.0 / known.precision, page.low, page.high, page.least_variance, page.most_variance
        )
        return batch.mean_variance(known.precision, known.square, page.most_variance, learnt)

    def _proved_row(self, entry: ArmEntry, known: Schedule, mean: float) -> Row:
        """As ``fed_batch.published_for_proof``."""
        share = self._page.share
        noise = proved.noise_of_mean(known.precision, known.square, self._page.most_variance)
        releases = float(min(entry.releases, MOST_RELEASES))
        squared = share * share
        row = share * mean, share, releases, squared / known.precision, squared * noise, share * known.largest
        is_right = all(isclose(x, y, rel_tol=ROUNDING) for x, y in zip(row, entry.row, strict=True))
        return entry.row if is_right else row  # as the page has rounded it

    def _page_row(self, entry: ArmEntry) -> Row:
        """Of other pages: a mean, or a value and its weight."""
        noise = self._page_noise(entry.rewards)
        if self.num_columns == 1:
            return (influence.clamped(entry.row[0], 0.0, GRID, noise),)
        value, weight = entry.row
        weight = min(max(weight, 0.0), 1.0)
        return influence.clamped(value, 0.0, weight * GRID, noise), weight

    def _page_noise(self, rewards: int) -> float:
        """Of a sum of at most one draw for each level of a tree, over the number of rewards; of an own page any."""
        scale: float = getattr(self._page, "noise_scale", 0.0)
        if scale <= 0.0:
            return 0.0
        if self._terms.max_pulls is None:
            return SCALES * scale / self._terms.first_batch
        rewards = max(rewards, 1)
        return influence.noise_quantile([scale / rewards] * rewards.bit_length())

    def schedule(self, releases: int) -> Schedule:
        """What so many releases are."""
        return self._schedules.of(min(releases, MOST_RELEASES))

    # ---------------------------------------------------------------- all sites

    def capped(self, rows: Sequence[Row | None]) -> tuple[list[Row], list[int]]:
        """The rows of an arm as pages combine them; where patients count no weight is more than the largest share.

        First among all sites, then among those that have released the arm: they are all that the estimate rests on.
        """
        versions = [0 if row is None else 1 for row in rows]
        found = [self._nothing if row is None else row for row in rows]
        if self.num_strata:
            return self._capped_records(found), versions
        if self.has_weights and self._terms.counted == "patients":
            of_all = influence.water_level([row[WEIGHT] for row in found], self._terms.largest_share)
            found = _cut(found, of_all, known_only=False)
            of_known = influence.water_level(
                [row[WEIGHT] for row in found if row[VARIANCE] > 0.0], self._terms.largest_share
            )
            found = _cut(found, of_known, known_only=True)
        return found, versions

    def _capped_records(self, rows: list[Row]) -> list[Row]:
        """The same in each stratum by itself."""
        share = self._terms.largest_share
        if self._terms.counted == "patients":
            for column in range(1, 1 + self.num_strata):
                for known_only in (False, True):
                    here = [row[column] if row[0] > 0.0 or not known_only else 0.0 for row in rows]
                    level = influence.water_level(here, share)
                    rows = [
                        (*row[:column], level, *row[column + 1 :]) if weight > level else row
                        for row, weight in zip(rows, here, strict=True)
                    ]
        return rows

    @cached_property
    def _nothing(self) -> Row:
        return (0.0,) * self.num_columns


def _names_of_record(terms: Federation) -> tuple[str, ...]:
    """For people, in the order of ``rules.strata``."""
    labels = () if terms.context is None else terms.context.labels
    pairs = [f"{one} and {other}" for one in labels for other in labels]
    kinds = ("weight", labels), ("score", labels), ("precision", pairs)
    return ("releases", *(f"{what} ({it})" for what, names in kinds for it in names))


def _cut(rows: list[Row], level: float, known_only: bool) -> list[Row]:
    if level == inf:
        return rows
    return [
        (row[MEAN], row[VARIANCE], level) if row[WEIGHT] > level and (row[VARIANCE] > 0.0 or not known_only) else row
        for row in rows
    ]
