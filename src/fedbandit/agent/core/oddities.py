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
from fedbandit.rules.releases import WEIGHT

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
        for arm in dict.fromkeys(chain.from_iterable(rows for _, rows in sites)):
            capped, _ = counting.capped([rows.get(arm) for _, rows in sites])
            for (it, _), distance in zip(sites, distances(capped, counting.prior), strict=True):
                if distance > FAR:
                    far[it.site][arm] = distance
        for site, arms in far.items():
            found[site] += _in_words_of_distance(arms)
    return {site: said for site, said in found.items() if said}


def cut_shares(
    counting: Counting, sites: Sequence[tuple[Bulletin, Mapping[str, Row]]]
) -> dict[str, tuple[float, float]]:
    """Whose share of all patients is above ``largest_share``: what it says, and what it counts as, where it is most.

    That is agreed, and no sign of an error: of two sites that decide, one nearly always has more than half.
    """
    found: dict[str, tuple[float, float]] = {}
    if counting.has_weights:
        for arm in dict.fromkeys(chain.from_iterable(rows for _, rows in sites)):
            of_arm = [rows.get(arm) for _, rows in sites]
            before = sum(row[WEIGHT] for row in of_arm if row is not None)
            capped, _ = counting.capped(of_arm)
            after = sum(row[WEIGHT] for row in capped)
            for (it, _), row, cut in zip(sites, of_arm, capped, strict=True):
                if row is not None and cut[WEIGHT] < row[WEIGHT]:
                    share = row[WEIGHT] / before, cut[WEIGHT] / after
                    found[it.site] = max(found.get(it.site, share), share)
    return found


def _of_entry(counting: Counting, entry: ArmEntry, row: Row) -> Iterator[str]:
    """What an entry says that no site with these terms publishes."""
    if (rewards := counting.rewards_of(entry)) is not None and rewards != entry.rewards:
        yield f"{entry.releases} releases hold {rewards} rewards, not {entry.rewards}"
    if entry.cells and (cells := sum(entry.cells)) != entry.decisions:
        yield f"its decisions by stratum add up to {cells}, not {entry.decisions}"
    for name, said, counts in zip(counting.columns, counting.said(entry), row, strict=True):
        if said != counts:
            yield f"its {name} counts as {counts:.6g} instead of {said:.6g}"


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
