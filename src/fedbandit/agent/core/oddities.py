"""Names what does not fit in what sites say, for people: whatever it is, it counts as bounded (``core.counting``).

An honest site can be named, too, if its patients differ from all others'. Measured for 4 to 50 honest sites with few
releases: 6 of 10,000 means at most lie very far from the others, where sites' means are normal, uniform or Student's t;
where one site in ten really differs, up to 76, nearly all of them its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from fedbandit.agent.core.bulletin import ArmEntry, Bulletin
from fedbandit.agent.core.counting import Counting, Row
from fedbandit.agent.core.federation import DAY, Federation
from fedbandit.checks import listed, printable
from fedbandit.rules.influence import distances

__all__ = ["beyond_rate", "oddities_of"]

FAR, VERY_FAR = 3.0, 4.0
"""Standard deviations: a site is named whose mean of one arm is very far from what the others say, or far of two."""


def oddities_of(counting: Counting, sites: Sequence[tuple[Bulletin, Mapping[str, Row]]]) -> dict[str, list[str]]:
    """What of these does not fit, by site; with each bulletin what its entries count as."""
    found: dict[str, list[str]] = {it.site: [] for it, _ in sites}
    for bulletin, rows in sites:
        found[bulletin.site] += [
            f"{printable(entry.name)}: {said}"
            for entry in bulletin.arms
            if entry.name in rows
            for said in _of_entry(counting, entry, rows[entry.name])
        ]
    if counting.has_weights:
        far: dict[str, dict[str, float]] = {it.site: {} for it, _ in sites}
        shares: dict[str, tuple[float, float]] = {}
        for arm in dict.fromkeys(chain.from_iterable(rows for _, rows in sites)):
            of_arm = [rows.get(arm) for _, rows in sites]
            capped, _ = counting.capped(of_arm)
            for (it, _), distance, cut in zip(
                sites, distances(capped, counting.prior), _cuts(of_arm, capped), strict=True
            ):
                if distance > FAR:
                    far[it.site][arm] = distance
                if cut is not None:
                    shares[it.site] = max(shares.get(it.site, cut), cut)
        for site, arms in far.items():
            found[site] += _in_words_of_distance(arms)
        for site, (claimed, counted) in shares.items():
            found[site].append(f"it claims {claimed:.0%} of all patients and counts as {counted:.0%}, by largest_share")
    return {site: said for site, said in found.items() if said}


def _of_entry(counting: Counting, entry: ArmEntry, row: Row) -> Iterator[str]:
    """What an entry says that no site with these terms publishes."""
    if (rewards := counting.rewards_of(entry)) is not None and rewards != entry.rewards:
        yield f"{entry.releases} releases hold {rewards} rewards, not {entry.rewards}"
    for name, said, counts in zip(counting.columns, counting.said(entry), row, strict=True):
        if said != counts:
            yield f"its {name} counts as {counts:.6g} instead of {said:.6g}"


def _cuts(rows: Sequence[Row | None], capped: Sequence[Row]) -> Iterator[tuple[float, float] | None]:
    """Of each site whose weight was cut, its share before and after."""
    before = sum(row[-1] for row in rows if row is not None)
    after = sum(row[-1] for row in capped)
    for row, cut in zip(rows, capped, strict=True):
        is_cut = row is not None and cut[-1] < row[-1]
        yield (row[-1] / before, cut[-1] / after) if row is not None and is_cut else None


def _in_words_of_distance(arms: Mapping[str, float]) -> Iterator[str]:
    if len(arms) > 1 or any(distance > VERY_FAR for distance in arms.values()):
        yield (
            f"its mean of {listed([printable(arm) for arm in arms], 3)} is {max(arms.values()):.1f} standard "
            f"deviations from what the others say: noise and differences between sites explain less"
        )


def beyond_rate(terms: Federation, decisions: int, before: int, elapsed: float) -> str | None:
    """Whether a site has decided more often in so many seconds than it counts as, in words."""
    if decisions - before <= terms.largest_rate * (elapsed + DAY):
        return None
    per_day = terms.largest_rate * DAY
    return (
        f"it has made {decisions - before:,} decisions in {elapsed / DAY:.1f} days, and counts as {per_day:,.0f} a day"
    )
