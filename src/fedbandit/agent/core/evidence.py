"""What is known of each arm, and of each difference from a reference: of every site beside the average, with intervals.

All of it derives from releases, which every site has on its board. An interval is one of three (``rules.sequences``):
the usual one of 95 %, for somebody who looks once; an always-valid one, calibrated; an always-valid one that is proved,
over the sites that have released, each by how much it has released where patients count.

Of a stratum, the average is that of the model of all strata (``rules.strata``). A site's own mean is that of all sums
in which the stratum is: some pool it with others, and ``part`` says how much of the mean is patients of the stratum.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

from fedbandit.agent.core.answer import Interval, intervals_of
from fedbandit.agent.core.bulletin import ArmEntry
from fedbandit.agent.core.cells import Cells
from fedbandit.agent.core.words import Words
from fedbandit.policies import FedBatch
from fedbandit.privacy.noise import GRID, from_grid
from fedbandit.rules import proved
from fedbandit.rules.belief import error_of_difference
from fedbandit.rules.gossip import ratio
from fedbandit.rules.guardrail import MeanOfReleases, shares_by_precision
from fedbandit.rules.heterogeneity import Heterogeneity, heterogeneity
from fedbandit.rules.releases import MEAN, VARIANCE, WEIGHT
from fedbandit.rules.sequences import NORMAL_95, SEQUENCE_ERROR, proved_difference, proved_interval
from fedbandit.rules.strata_influence import mean_in_stratum, mean_of_record

if TYPE_CHECKING:
    from fedbandit.agent.core.federation import Federation
    from fedbandit.agent.core.site import Site

__all__ = ["Evidence", "SiteEstimate", "evidence_of", "reference_of", "spread_in_words"]


@dataclass(frozen=True)
class SiteEstimate:
    """One site's own mean of an arm, or its own difference, in units of the reward.

    * ``deviation``: of its noise and its rewards; None where the policy has none
    * ``share``: in the average; 0 before its first release
    * ``patients``: its decisions for the arm; ``rewards``: those in releases
    * ``part``: of a stratum, how much of the mean is its patients; 1 where there is nothing to mix
    """

    site: str
    mean: float | None
    deviation: float | None
    share: float
    patients: int
    rewards: int
    part: float = 1.0

    @property
    def interval(self) -> Interval | None:
        """The usual one, of 95 %; noise may take it beyond the range."""
        if self.mean is None or self.deviation is None:
            return None
        return Interval(self.mean - NORMAL_95 * self.deviation, self.mean + NORMAL_95 * self.deviation)


@dataclass(frozen=True)
class Evidence:
    """Of an arm, or with a ``reference`` of how much larger its mean is than that one's."""

    arm: str
    reference: str
    estimate: float | None
    interval: Interval | None
    always: Interval | None
    proved: Interval | None
    spread: Heterogeneity | None
    sites: tuple[SiteEstimate, ...]


def reference_of(site: "Site") -> str:
    """The arm with which others are compared, unless somebody asks for another.

    The control arm, else that of the guardrails, else the leader, else the first arm.
    """
    terms, leader = site.terms, site.answer.leader
    if terms.control >= 0:
        return terms.arms[terms.control]
    if terms.guardrails is not None:
        return terms.guardrails.reference
    return site.arms.names[leader or 0]


def evidence_of(
    site: "Site", reference: str, stratum: int | None = None
) -> tuple[tuple[Evidence, ...], tuple[Evidence, ...]]:
    """Of each arm, and of each other arm against the reference, which is one of the arms; of all patients, or some."""
    looked = _Looked(site, stratum)
    names = site.arms.names
    return (
        tuple(looked.arm(k) for k in range(len(names))),
        tuple(looked.difference(k, names.index(reference)) for k, name in enumerate(names) if name != reference),
    )


class _Looked:
    """A board as it is now."""

    def __init__(self, site: "Site", stratum: int | None) -> None:
        self._site, self._terms, self._names, self._stratum = site, site.terms, site.arms.names, stratum
        self._width = site.terms.high - site.terms.low
        if stratum is None:
            self._theta, self._errors = site.theta, site.errors
        else:
            found = site.strata[stratum]
            self._theta, self._errors = found.theta, found.errors
        self._of_sites = [tuple(self._estimates(name)) for name in self._names]
        self._most = _most_releases(self._terms)

    def arm(self, arm: int) -> Evidence:
        """Of an arm."""
        low, high = self._terms.low, self._terms.high
        theta, sites = self._theta[arm], self._of_sites[arm]
        usual, always = intervals_of(theta, self._errors[arm], self._width, low, high)
        return Evidence(self._names[arm], "", theta, usual, always, self._proved(arm), _spread(sites), sites)

    def difference(self, arm: int, reference: int) -> Evidence:
        """Of an arm's mean less the reference's."""
        theta, other = self._theta[arm], self._theta[reference]
        found = None if theta is None or other is None else theta - other
        error, spread = self._errors[arm], self._errors[reference]
        both = None if error is None or spread is None else error_of_difference(error, spread)
        sites = tuple(
            _apart(one, than) for one, than in zip(self._of_sites[arm], self._of_sites[reference], strict=True)
        )
        usual, always = intervals_of(found, both, self._width, -self._width, self._width)
        certain = self._proved_apart(arm, reference)
        return Evidence(self._names[arm], self._names[reference], found, usual, always, certain, _spread(sites), sites)

    # ---------------------------------------------------------------- sites

    def _estimates(self, arm: str) -> Iterator[SiteEstimate]:
        """Of all sites that count, by name."""
        board = self._site.board
        rows, versions = board.rows(arm)
        weights = [row[WEIGHT] if len(row) == 3 and row[VARIANCE] > 0.0 else 0.0 for row in rows]
        if strata := self._terms.num_strata:
            here = slice(1, 1 + strata) if self._stratum is None else slice(1 + self._stratum, 2 + self._stratum)
            weights = [sum(row[here]) if row[0] > 0.0 else 0.0 for row in rows]
        if not any(weights):  # of other pages each row that is there counts alike
            weights = [float(len(row) != 3 and version > 0) for row, version in zip(rows, versions, strict=True)]
        total = sum(weights) or 1.0
        for name, row, weight in zip(board.counted(), rows, weights, strict=True):
            held = board.counting(name)
            entries: Mapping[str, ArmEntry] = {} if held is None else held.bulletin.by_arm
            entry = entries.get(arm)
            patients = self._patients(name, arm, entry)
            mean, variance, part = self._of_row(name, arm, row, entry)
            yield SiteEstimate(
                name,
                None if mean is None else from_grid(mean, self._terms.low, self._terms.high),
                None if variance is None else from_grid(sqrt(variance), 0.0, self._width),
                weight / total if mean is not None or self._stratum is not None else 0.0,  # others' strata tell, too
                patients,
                0 if entry is None else entry.rewards,
                part,
            )

    def _patients(self, site: str, arm: str, entry: ArmEntry | None) -> int:
        """Of this site as it knows itself, of others as their bulletins say."""
        k, s = self._names.index(arm), self._stratum
        if site == self._site.name:
            return self._site.tried[k] if s is None else self._site.tried_in[k][s]
        if entry is None:
            return 0
        return entry.patients if s is None else entry.cells[s]

    def _of_row(
        self, site: str, arm: str, row: Sequence[float], entry: ArmEntry | None
    ) -> tuple[float | None, float | None, float]:
        """The mean and its variance in steps of the grid, and how much of it is the stratum's."""
        if entry is None or entry.releases == 0:
            return None, None, 1.0
        if strata := self._terms.num_strata:
            if self._stratum is None:
                mean, variance = mean_of_record(row, strata)
                return (GRID * mean, GRID * GRID * variance, 1.0) if variance > 0.0 else (None, None, 1.0)
            found = mean_in_stratum(row, self._stratum, strata)
            return (None, None, 1.0) if found is None else (GRID * found.mean, GRID * GRID * found.variance, found.part)
        if len(row) == 3:
            return (row[MEAN], row[VARIANCE], 1.0) if row[VARIANCE] > 0.0 else (None, None, 1.0)
        released = self._site.board.released_mean(site, arm)
        if released is not None:
            return released.mean, released.variance, 1.0
        return (row[0] if len(row) == 1 else ratio(row[0], row[1])), None, 1.0

    # ---------------------------------------------------------------- what is proved

    def _released(self, arm: int) -> dict[str, MeanOfReleases]:
        board = self._site.board
        found = {name: board.released_mean(name, self._names[arm]) for name in board.counted()}
        return {name: it for name, it in found.items() if it is not None}

    def _proved(self, arm: int) -> Interval | None:
        if self._stratum is not None:
            found = Cells(self._terms, self._site.board, self._stratum).mean(self._names[arm], SEQUENCE_ERROR)
            low, high = self._terms.low, self._terms.high
            return found and Interval(*(low + self._width * min(max(x, 0.0), 1.0) for x in found))
        rows = list(self._released(arm).values()) if self._most else []
        if not rows:
            return None
        nothing = MeanOfReleases(0.0, 0, 0.0, 0.0, 0.0)
        shares = self._shares([(row, nothing) for row in rows])
        found = proved_interval(rows, shares, self._site.board.num_agents, self._most, SEQUENCE_ERROR)
        low, high = self._terms.low, self._terms.high
        ends = [min(max(from_grid(x, low, high), low), high) for x in found]
        return Interval(ends[0], ends[1])

    def _proved_apart(self, arm: int, reference: int) -> Interval | None:
        if self._stratum is not None:
            return self._proved_apart_in(self._stratum, arm, reference)
        if not self._most:
            return None
        one, other = self._released(arm), self._released(reference)
        pairs = [(row, other[name]) for name, row in one.items() if name in other]
        if not pairs:
            return None
        found = proved_difference(pairs, self._shares(pairs), self._site.board.num_agents, self._most, SEQUENCE_ERROR)
        ends = [min(max(from_grid(x, 0.0, self._width), -self._width), self._width) for x in found]
        return Interval(ends[0], ends[1])

    def _proved_apart_in(self, stratum: int, arm: int, reference: int) -> Interval | None:
        cells = Cells(self._terms, self._site.board, stratum)
        less = cells.deficit(self._names[arm], self._names[reference], SEQUENCE_ERROR / 2.0)
        more = cells.deficit(self._names[reference], self._names[arm], SEQUENCE_ERROR / 2.0)
        if less is None or more is None:
            return None
        return Interval(*(self._width * min(max(x, -1.0), 1.0) for x in (more.certain, -less.certain)))

    def _shares(self, pairs: Sequence[tuple[MeanOfReleases, MeanOfReleases]]) -> list[float]:
        if self._terms.counted == "patients":
            return shares_by_precision(pairs, self._terms.largest_share)
        return [1.0 / len(pairs)] * len(pairs)


def _most_releases(terms: "Federation") -> int:
    """The most releases that an arm can have at a site; 0: nothing is proved."""
    policy, page = terms.policy, terms.page_terms
    if not isinstance(policy, FedBatch) or policy.sigma is not None or terms.num_strata:
        return 0
    if policy.growth is not None and policy.growth < proved.LEAST_GROWTH:
        return 0
    return proved.most_releases(page.first_batch, page.growth, proved.MOST_PULLS)


def _apart(one: SiteEstimate, other: SiteEstimate) -> SiteEstimate:
    """A site's own difference; its share is that of the arm of which it has less."""
    is_known = one.mean is not None and other.mean is not None
    has_both = one.deviation is not None and other.deviation is not None
    return SiteEstimate(
        one.site,
        (one.mean or 0.0) - (other.mean or 0.0) if is_known else None,
        error_of_difference(one.deviation or 0.0, other.deviation or 0.0) if is_known and has_both else None,
        min(one.share, other.share),
        one.patients + other.patients,
        one.rewards + other.rewards,
        min(one.part, other.part),
    )


MOSTLY = 0.5
"""A site is compared with others in a stratum if at least so much of its mean is patients of that."""


def _spread(sites: Sequence[SiteEstimate]) -> Heterogeneity | None:
    known = [(it.mean, it.deviation) for it in sites if it.mean is not None and it.deviation and it.part >= MOSTLY]
    return heterogeneity([mean for mean, _ in known], [(deviation or 0.0) ** 2 for _, deviation in known])


def spread_in_words(it: Heterogeneity | None, decimals: int, words: Words) -> str:
    """What tau^2 and I^2 say; the steps of I^2 are those of Higgins et al. 2003."""
    if it is None:
        return "Fewer than two sites have released enough to be compared."
    share = f"{100.0 * it.i2:.0f} %"
    if it.i2 < 0.25:
        said = f"The sites agree as far as can be told: {share} of what differs between them is more than chance"
    else:
        much = "somewhat" if it.i2 < 0.5 else "clearly" if it.i2 < 0.75 else "greatly"
        said = f"The sites differ {much}: {share} of what differs between them is more than chance"
    said += " (I\N{SUPERSCRIPT TWO})."
    if it.tau2 > 0.0:
        tau2 = f"\N{GREEK SMALL LETTER TAU}\N{SUPERSCRIPT TWO} = {it.tau2:.2g}"
        said += f" Their true means of the {words.reward} vary by about {sqrt(it.tau2):.{decimals}f} ({tau2})."
    return said + (" So few sites hardly tell." if it.sites < 5 else "")
