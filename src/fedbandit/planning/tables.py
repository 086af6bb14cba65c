"""The tables of a forecast, as texts: for the terminal and for notebooks."""

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from fedbandit.planning.words import duration, percent

if TYPE_CHECKING:
    from fedbandit.planning.forecast import Forecast

__all__ = ["Table", "tables_of"]


class Table(NamedTuple):
    """A title, headings (the first one of names), rows of cells, and a sentence below."""

    title: str
    headings: list[str]
    rows: list[list[str]]
    note: str = ""


def tables_of(forecast: "Forecast") -> list[Table]:
    """How many patients it takes; what so many give; what theory says."""
    worse = "arm worse\non average"
    until = ["", "until it\nleads", "95 % interval", "time", f"get an {worse}", "until sites\nare sure", "time"]
    then = ["", "best arm\nleads", f"got an {worse}", "successes per\n100 own patients", "in the\nlong run"]
    return [
        Table(
            "Patients per site until the best arm leads for good at 95 % of the sites",
            until,
            [[name, *_until(forecast, name)] for name in forecast.ways],
            "The lead is seen in hindsight: nobody can tell yet which arm it is. That takes until the sites are sure.",
        ),
        Table(
            f"After {forecast.compared_at:,.0f} patients per site",
            then,
            [[name, *_by_then(forecast, name)] for name in forecast.ways],
            "Worse on average: over all sites. For a site's own patients it may be better: see the successes.",
        ),
        Table(
            "By theory",
            ["", "patients per site"],
            [[name, f"{number:,.0f}" if number < inf else "-"] for name, number in forecast.theory.items()],
            "The trial is judged once, at its end; a bandit must stay in the lead, and tries worse arms less and less.",
        ),
    ]


def _until(forecast: "Forecast", name: str) -> list[str]:
    row, curve = forecast.rows[name], forecast.ways[name]
    never = name == "alone" and forecast.never_alone
    cells = ["never" if never else f"more than {curve.last:,}", "-", "-", "-"]
    if row["patients"] < inf:
        interval = f"{row['low']:,.0f} to {row['high']:,.0f}" if row["high"] < inf else f"at least {row['low']:,.0f}"
        cells = [f"{row['patients']:,.0f}", interval, duration(row["days"]), _of(row["worse"], row["patients"])]
    if row["sure"] < inf:
        return [*cells, f"{row['sure']:,.0f}", duration(row["days_sure"])]
    return [*cells, "never" if never else f"more than {curve.sure.last:,}", "-"]


def _by_then(forecast: "Forecast", name: str) -> list[str]:
    row = forecast.rows[name]
    return [
        percent(row["leads"]),
        _of(row["worse_by_then"], forecast.compared_at),
        f"{row['successes']:.1f}",
        f"{row['successes_at_last']:.1f}",
    ]


def _of(part: float, whole: float) -> str:
    return f"{part:,.0f} ({100 * part / whole:.0f} %)"
