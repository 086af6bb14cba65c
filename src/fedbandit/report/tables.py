"""The tables of a report, as comma-separated values: numbers in full, times in UTC, names that no spreadsheet runs."""

import csv
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from io import StringIO

from fedbandit.agent.http.evidence import plain_cell, table_of
from fedbandit.report.facts import Facts

__all__ = ["tables_of"]


def tables_of(facts: Facts) -> dict[str, str]:
    """Each table by the name of its file."""
    return {
        "sites.csv": _table(("site", "stratum", "arm", "patients", "rewards_released", "share"), _sites(facts)),
        "evidence.csv": table_of((facts.evidence, *facts.strata)),
        "history.csv": _table(
            ("at", "arm", "estimate", "low", "high", "always_low", "always_high", "own_mean"), _history(facts)
        ),
        "policies.csv": _table(
            ("policy", "gives", "estimate", "low", "high", "patients", "effective", "mean_weight"), _policies(facts)
        ),
        "changes.csv": _table(
            ("at", "change", "arm", "site", "person", "reason", "accepted", "accepted_by", "known_at", "not_yet"),
            _changes(facts),
        ),
    }


def _sites(facts: Facts) -> Iterable[Sequence[object]]:
    for body in (facts.evidence, *facts.strata):
        stratum = plain_cell(body.stratum or "")
        for it in body.arms:
            for each in it.sites:
                rewards = "" if stratum else each.rewards
                yield plain_cell(each.site), stratum, plain_cell(it.arm), each.patients, rewards, each.share


def _policies(facts: Facts) -> Iterable[Sequence[object]]:
    for it in () if facts.state.evaluation is None else facts.state.evaluation.policies:
        ends = ("", "") if it.interval is None else (it.interval.low, it.interval.high)
        estimate = "" if it.estimate is None else it.estimate
        sizes = it.decisions, it.effective, it.mean_weight
        yield plain_cell(it.name), plain_cell(it.words), estimate, *ends, *sizes


def _history(facts: Facts) -> Iterable[Sequence[object]]:
    names = [it.name for it in facts.state.arms]
    for it in facts.points:
        rows = it.estimates, it.lows, it.highs, it.always_lows, it.always_highs, it.own_means
        for k, name in enumerate(names[: len(it.estimates)]):
            values = [row[k] if k < len(row) else None for row in rows]
            yield _time(it.at), plain_cell(name), *("" if value is None else value for value in values)


def _changes(facts: Facts) -> Iterable[Sequence[object]]:
    in_force = {it.last_change.id for it in facts.arms.arms if it.last_change is not None}
    for it in facts.arms.changes:
        receipts = it.receipts if it.id in in_force else ()  # a stop that ended is missed by nobody
        having = "; ".join(each.site for each in receipts if each.has_it)
        missing = "; ".join(each.site for each in receipts if not each.has_it)
        consent = "yes" if it.accepted else "no", facts.who_accepted(it.id)
        cells = it.change, it.arm, it.by, facts.who_made(it.id), it.reason, *consent, having, missing
        yield _time(it.at), *map(plain_cell, cells)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(headings)
    table.writerows(rows)
    return text.getvalue()
