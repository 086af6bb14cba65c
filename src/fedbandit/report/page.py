"""Writes the report as one HTML page that needs nothing else: to read, and to print on A4.

Names and reasons come from other people: they are text, isolated from what is around them. Whether an outcome was
reported can depend on the outcome, and such counts have no noise: so the report has shares in classes, and no counts.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from html import escape
from math import floor, isfinite, log10

from fedbandit.agent.core.notices import duration
from fedbandit.agent.http.state import (
    ArmChangeBody,
    ArmState,
    EvidenceBody,
    EvidenceOf,
    FederationState,
    IntervalBody,
    MemberState,
    SiteEstimateBody,
    SiteState,
)
from fedbandit.checks import printable
from fedbandit.report.drawings import Scale, Span, axis, lines_over_time, row, vertical
from fedbandit.report.facts import Facts

__all__ = ["class_of_share", "page_of"]

MOST_DRAWN = 12
"""Arms whose course is drawn: those that most patients got."""

SHORT = 20
"""Rows of a table that is kept on one page."""

LONGEST = 2_000
"""Characters of a text that others have written."""

ARMS_ABREAST = 5
"""Columns of arms that a page of A4 has room for."""

STYLE = """
@page { size: A4; margin: 16mm 15mm 18mm;
  @bottom-left { content: "%s"; font: 8pt sans-serif; color: #555; }
  @bottom-right { content: counter(page) " of " counter(pages); font: 8pt sans-serif; color: #555; } }
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 180mm; padding: 10mm 5mm; color: #14212a; background: #fff;
  font: 10.5pt/1.45 "Segoe UI", "Helvetica Neue", Arial, "Liberation Sans", "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
h1 { font-size: 18pt; line-height: 1.2; margin: 0 0 2mm; }
h2 { font-size: 13pt; margin: 8mm 0 2mm; padding-bottom: 1mm; border-bottom: 0.5pt solid #9aa7b0; }
h3 { font-size: 10.5pt; margin: 4mm 0 1mm; }
h2, h3, h2 + p { break-after: avoid; }
p { margin: 0 0 2mm; orphans: 3; widows: 3; }
ul { margin: 0 0 2mm; padding-left: 5mm; }
.answer { font-size: 12.5pt; border-left: 3pt solid #0b6b6b; padding: 1mm 0 1mm 4mm; margin: 4mm 0; }
.faint { color: #51616c; font-size: 9pt; }
.arm { break-inside: avoid; }
table { width: 100%%; border-collapse: collapse; margin: 1mm 0 3mm; font-size: 9.5pt; }
thead { display: table-header-group; }
tr, table.short { break-inside: avoid; }
.scroll + p { break-before: avoid; }
.when { width: 33mm; } .what { width: 32mm; } .site { width: 26mm; } .known { width: 42mm; }
th, td { text-align: left; vertical-align: top; padding: 0.9mm 2mm 0.9mm 0; border-bottom: 0.4pt solid #dde3e8; }
thead th { border-bottom: 0.8pt solid #51616c; vertical-align: bottom; font-weight: 600; }
tbody th { font-weight: 400; }
.n { text-align: right; white-space: nowrap; }
thead .n { white-space: normal; }
.w { white-space: nowrap; }
.all th, .all td { font-weight: 600; border-top: 0.8pt solid #51616c; }
.plot { width: 66mm; padding: 0 2mm; vertical-align: middle; }
.forest td, .forest tbody th { vertical-align: middle; padding-top: 0.3mm; padding-bottom: 0.3mm; }
.forest .plot { padding-top: 0; padding-bottom: 0; border-bottom: 0; }
dl { display: grid; grid-template-columns: 48mm 1fr; gap: 1mm 4mm; margin: 0 0 2mm; }
dt { color: #51616c; } dd { margin: 0; }
svg { display: block; width: 100%%; height: auto; }
svg text { font: 10px sans-serif; fill: #51616c; }
svg .rule { stroke: #51616c; stroke-width: 1; }
svg .grid { stroke: #dde3e8; stroke-width: 1; }
svg .zero { stroke: #51616c; stroke-width: 1; stroke-dasharray: 3 2; }
svg .interval { stroke: #14212a; stroke-width: 1.4; }
svg .site { fill: #14212a; }
svg .average { fill: #0b6b6b; stroke: none; }
svg .always { stroke: #0b6b6b; stroke-opacity: 0.3; stroke-width: 7; }
svg .band { fill: #0b6b6b; fill-opacity: 0.28; }
svg .always-band { fill: #0b6b6b; fill-opacity: 0.12; }
svg .estimate { fill: none; stroke: #0b6b6b; stroke-width: 1.6; }
code { font: 8.5pt "DejaVu Sans Mono", monospace; }
@media print { body { max-width: none; padding: 0; } a { color: inherit; text-decoration: none; } }
@media (max-width: 640px) { body { padding: 4mm; } .scroll { overflow-x: auto; } dl { grid-template-columns: 1fr; } }
"""


def page_of(facts: Facts) -> str:
    """The whole page."""
    state, terms = facts.state, facts.state.federation
    title = f"{printable(terms.name)}: report of {_day(facts.at)}"
    parts = [
        *_head(facts, title),
        *_section("What was asked, and what was planned", _plan(facts)),
        *_section("What all sites have agreed", _terms(terms)),
        *_section("Privacy", _privacy(state)),
        *_section("Patients", _patients(facts)),
        *_section(f"How good each {terms.words.arm} is", _forests(facts, facts.evidence.arms)),
        *_section(f"Compared with {_name(facts.evidence.reference)}", _forests(facts, facts.evidence.differences)),
        *(_section("Whom it is best for", _for_whom(facts)) if facts.strata else ()),
        *(part for it in facts.strata for part in _section(_of_stratum(it), _forests(facts, it.differences))),
        *(_section("How other policies would have done", _evaluation(state)) if state.evaluation else ()),
        *_section("Over time", _over_time(facts)),
        *_section("What was stopped, when and why", _stops(facts)),
        *_section("Quality of the data", _quality(facts)),
        *_section("Software", _software(state)),
        *_section("How to check this report", _checks(facts)),
    ]
    style = STYLE % _css_text(f"{title} ({printable(state.name)})")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def _css_text(text: str) -> str:
    """Within quotes of a style sheet, which is within an element of a page."""
    return "".join(it if it.isalnum() or it in " .,:()-" else f"\\{ord(it):x} " for it in text)


def _section(heading: str, parts: Iterator[str]) -> Iterator[str]:
    yield f"<section>\n<h2>{heading}</h2>"
    yield from parts
    yield "</section>"


def _head(facts: Facts, title: str) -> Iterator[str]:
    state = facts.state
    source = "its agent was running" if facts.is_running else "its agent had stopped: what its data folder holds"
    yield f"<h1>{escape(title)}</h1>"
    yield (
        f"<p class='faint'>As known at the site {_name(state.name)} on {_time(facts.at)}; {source}. Estimates come "
        "from what sites have released, with the noise that protects each patient.</p>"
    )
    yield f'<p class="answer">{_text(state.answer.words)}</p>'


# ---------------------------------------------------------------- what was agreed


def _plan(facts: Facts) -> Iterator[str]:
    terms = facts.state.federation
    plan, words = terms.plan, terms.words
    yield "<dl>"
    yield from _entry("Question", _text(plan.question) or f"Which {_text(words.arm)} is best on average?")
    first = facts.points[0].at if facts.points else None
    begun = f"planned for {plan.starts}" if plan.starts else "no day was planned"
    known = f"; first noted at this site on {_day(first)}" if first is not None else ""
    yield from _entry("Start", f"{begun}{known}")
    planned = "no number was planned" if plan.patients is None else f"of {plan.patients:,} planned"
    part = "" if plan.patients is None else f" ({100 * terms.patients / plan.patients:.0f} %)"
    yield from _entry("Patients so far", f"{terms.patients:,} over all sites, {planned}{part}")
    if plan.per_site is not None:
        yield from _entry("Expected at one site", f"{plan.per_site:,} patients")
    yield from _entry("Stopping rule", _text(plan.stops) or "none was written down")
    yield "</dl>"


def _terms(it: FederationState) -> Iterator[str]:
    words = it.words
    yield "<dl>"
    yield from _entry(_capital(words.arms), ", ".join(_name(arm) for arm in it.arms))
    yield from _entry(f"Range of a {_text(words.reward)}", f"from {it.low:g} to {it.high:g}")
    window = f"{duration(it.reward_window)} after the decision" if it.reward_window else "as they are reported"
    yield from _entry(f"{_capital(words.rewards)} count", f"{window}; where none was reported, {it.default_reward:g}")
    whose = "of all patients" if it.counts == "patients" else "of all sites, each alike"
    most = f"; one site weighs at most {100 * it.largest_share:g} %" if it.largest_share is not None else ""
    yield from _entry("Averages", f"{whose}{most}")
    setting = f' <span class="faint">({_text(it.policy)})</span>' if it.chosen else _text(it.policy)
    yield from _entry(f"How a {_text(words.arm)} is chosen", f"{_text(it.chosen)}{setting}")
    if it.control is not None:
        yield from _entry("Control", f"{_name(it.control)}, always with a chance of {100 * it.control_share:g} %")
    if it.least_share:
        yield from _entry("Least chance", f"{100 * it.least_share:g} % for every other {_text(words.arm)}")
    if it.guardrails is not None:
        yield from _entry(
            "Guardrail",
            f"a {_text(words.arm)} that is certainly worse than {_name(it.guardrails.reference)} by more than "
            f"{it.guardrails.worse_by:g} is suspended at every site; a person can resume it",
        )
    yield from _entry("Fingerprint of these terms", f"<code>{_text(it.digest)}</code>")
    yield "</dl>"


def _privacy(state: SiteState) -> Iterator[str]:
    it = state.privacy
    yield f"<p>{_text(it.promise)}</p>"
    yield f"<p>How: {_text(it.mechanism)}. {it.releases:,} of them were released at this site.</p>"


# ---------------------------------------------------------------- patients


def _patients(facts: Facts) -> Iterator[str]:
    """Sites by arms; of many arms several tables, one below the other."""
    terms, arms = facts.state.federation, facts.evidence.arms
    yield f"<p>Patients who got each {_text(terms.words.arm)}, as the newest message of each site says.</p>"
    sites = [it.site for it in arms[0].sites] if arms else []
    for start in range(0, len(arms), ARMS_ABREAST):
        shown = arms[start : start + ARMS_ABREAST]
        is_last = start + ARMS_ABREAST >= len(arms)
        headings = [(_name(it.arm), "n") for it in shown] + ([("all", "n")] if is_last else [])
        rows: list[list[str]] = []
        for i, site in enumerate(sites):
            total = [f"{sum(it.sites[i].patients for it in arms):,}"] if is_last else []
            rows.append([_name(site), *(f"{it.sites[i].patients:,}" for it in shown), *total])
        total = [f"{sum(it.patients for it in arms):,}"] if is_last else []
        last = ["all sites", *(f"{it.patients:,}" for it in shown), *total]
        yield from _table([("site", ""), *headings], rows, last)
    left_out = [it.name for it in facts.state.members if not it.counts]
    if left_out:
        yield f"<p>Not counted here: {', '.join(map(_name, left_out))}.</p>"


# ---------------------------------------------------------------- estimates


def _forests(facts: Facts, found: Sequence[EvidenceOf]) -> Iterator[str]:
    terms, words = facts.state.federation, facts.state.federation.words
    if not found:
        yield f"<p>There is no other {_text(words.arm)}.</p>"
        return
    if _has_parts(found):
        yield (
            "<p>Of one group a site has means of sums in which its patients are: where sums were too small, several "
            "groups are in one. Then it says how much of the mean is from this group.</p>"
        )
    if found[0].reference is None:
        yield (
            f"<p>Each row is a site: its own mean {_text(words.reward)}, with its 95 % interval for somebody who looks "
            "once. The diamond is the average over all; the pale bar behind it is the interval that holds however "
            "often one looks (95 %, calibrated).</p>"
        )
    else:
        yield (
            f"<p>How much larger the mean {_text(words.reward)} is than that of {_name(found[0].reference)}: to the "
            "right of the dashed line more, to the left less. An interval on one side of the line is a difference.</p>"
        )
    yield from (part for it in found for part in forest(it, terms))


def forest(it: EvidenceOf, terms: FederationState) -> Iterator[str]:
    """A forest plot as a table, whose headings and axis are repeated on each page; every site beside the average."""
    decimals = _decimals(terms.high - terms.low)
    width = terms.high - terms.low
    low, high = (terms.low, terms.high) if it.reference is None else (-width, width)
    less = "" if it.reference is None else f" less {_name(it.reference)}"
    status = "" if it.status == "active" else f" ({_text(it.status)})"
    said = f": {_text(it.words)}" if it.words else ""
    ends = [end for each in it.sites for end in (each.mean, *_ends(each.interval)) if end is not None]
    ends += [end for end in (it.estimate, *_ends(it.interval), *_ends(it.always)) if end is not None]
    zero = 0.0 if it.reference is not None else None
    scale = Scale([*ends, *([] if zero is None else [zero])], low - 0.1 * width, high + 0.1 * width, 250)
    label = f"from {scale.low:.{decimals}f} to {scale.high:.{decimals}f}"
    rows = [_site_row(each, scale, zero, decimals) for each in it.sites]
    average = Span(it.estimate, *_ends(it.interval))
    wide = Span(None, *_ends(it.always))
    last = [
        "all",
        row(scale, average, zero, wide, is_average=True),
        _around(it.estimate, it.interval, decimals),
        "",
        f"{it.patients:,}",
    ]
    headings = [("site", ""), (axis(scale, label), "plot"), ("estimate (95 %)", "w"), ("share", "n"), ("patients", "n")]
    yield f"<h3>{_name(it.arm)}{less}{status}{said}</h3>"
    yield from _table(headings, rows, last, "forest")
    sequences = [(name, ends) for name, ends in (("calibrated", it.always), ("proved", it.proved)) if ends is not None]
    if sequences:
        found = "; ".join(
            f"{_number(ends.low, decimals)} to {_number(ends.high, decimals)} ({name})" for name, ends in sequences
        )
        yield f"<p>However often one looks, with 95 %: {found}. {_text(it.spread_in_words)}</p>"
    elif it.spread_in_words:
        yield f"<p>{_text(it.spread_in_words)}</p>"


def _is_mixed(it: SiteEstimateBody) -> bool:
    """Whether a site's mean of a stratum has others' patients in it."""
    return it.mean is not None and it.part < 0.995


def _has_parts(found: Sequence[EvidenceOf]) -> bool:
    """Whether any site's has."""
    return any(_is_mixed(each) for it in found for each in it.sites)


def _site_row(it: SiteEstimateBody, scale: Scale, zero: float | None, decimals: int) -> list[str]:
    drawn = row(scale, Span(it.mean, *_ends(it.interval)), zero)
    mean = "nothing yet" if it.mean is None else _around(it.mean, it.interval, decimals)
    if _is_mixed(it):
        mean += f'<br><span class="faint">{100 * it.part:.0f} % from this group</span>'
    return [_name(it.site), drawn, mean, f"{100 * it.share:.0f} %", f"{it.patients:,}"]


def _for_whom(facts: Facts) -> Iterator[str]:
    """The answer in each stratum, and how many patients of each got which arm."""
    state, words = facts.state, facts.state.federation.words
    decimals = _decimals(state.federation.high - state.federation.low)
    factors = ", ".join(_name(it) for it in state.federation.context or {})
    yield (
        f"<p>The best {_text(words.arm)} so far for patients of whom this is known beforehand: {factors}. Nothing of "
        "it is about one patient. Estimates of one group lean on all others, as far as they are alike.</p>"
    )
    headings = [("patients", ""), ("of all", "n"), ("best so far", ""), ("sure", "n")]
    rows = [
        [
            _name(it.label),
            f"{100 * it.frequency:.0f} %",
            "unknown" if it.leader is None else _name(it.leader),
            "" if it.chance is None else _sure(it.chance),
        ]
        for it in state.answer.strata
    ]
    yield from _table(headings, rows)
    for start in range(0, len(state.arms), ARMS_ABREAST):
        shown = list(enumerate(state.arms))[start : start + ARMS_ABREAST]
        headings = [("patients", ""), *((_name(arm.name), "n") for _, arm in shown)]
        yield f"<h3>Mean {_text(words.reward)} (95 % interval)</h3>"
        rows = [
            [_name(it.label), *(_around(it.estimates[k], it.intervals[k], decimals) for k, _ in shown)]
            for it in state.answer.strata
        ]
        yield from _table(headings, rows)
        yield "<h3>Patients at all sites</h3>"
        rows = [[_name(it.label), *(f"{it.patients[k]:,}" for k, _ in shown)] for it in state.answer.strata]
        yield from _table(headings, rows)


def _of_stratum(it: EvidenceBody) -> str:
    return f"{_name(it.stratum or '')}: compared with {_name(it.reference)}"


def _sure(chance: float) -> str:
    """Rounded down: nobody is told more than is known."""
    return "&gt; 99 %" if chance > 0.99 else "&lt; 1 %" if chance < 0.01 else f"{floor(100.0 * chance)} %"


# ---------------------------------------------------------------- other policies


def _evaluation(state: SiteState) -> Iterator[str]:
    """A row for each policy that the terms evaluate, with a drawing."""
    terms, found = state.federation, state.evaluation
    if found is None:
        return
    words, decimals = terms.words, _decimals(terms.high - terms.low)
    yield (
        f"<p>The mean {_text(words.reward)} that patients of all sites would have had under another policy, from which "
        f"{_text(words.arm)} they got and how likely that was. The intervals (95 %) are for somebody who looks once. "
        f"<i>Worth</i> is how many patients of the policy itself would tell as much. No site showed more than "
        f"noisy sums: they cost each patient epsilon {found.epsilon:g} of privacy.</p>"
    )
    ends = [end for it in found.policies for end in (it.estimate, *_ends(it.interval)) if end is not None]
    scale = Scale(ends, terms.low, terms.high, 250)
    rows: list[list[str]] = []
    for it in found.policies:
        what = f'<span class="faint">{_text(it.words or it.remark)}</span>'
        if it.words and it.remark:
            what = f'<span class="faint">{_text(it.words)}. {_text(_capital(it.remark))}</span>'
        estimate = "nothing yet" if it.estimate is None else _around(it.estimate, it.interval, decimals)
        drawn = row(scale, Span(it.estimate, *_ends(it.interval)), None)
        counts = f"{it.decisions:,}", f"{it.effective:,.0f}"
        rows.append([f"{_name(it.name)}<br>{what}", drawn, estimate, *counts])
    label = f"from {scale.low:.{decimals}f} to {scale.high:.{decimals}f}"
    headings = [("policy", ""), (axis(scale, label), "plot"), ("estimate (95 %)", "w")]
    yield from _table([*headings, ("patients", "n"), ("worth", "n")], rows, (), "forest")


# ---------------------------------------------------------------- over time


def _over_time(facts: Facts) -> Iterator[str]:
    points, terms, words = facts.points, facts.state.federation, facts.state.federation.words
    if not any(value is not None for it in points for value in it.estimates):
        yield "<p>Nothing to draw yet.</p>"
        return
    yield (
        f"<p>The estimate of each {_text(words.arm)} over all sites, as this site knew it then. The dark band is the "
        "95 % interval for somebody who looks once, the pale one that which holds however often one looks. Times are "
        "UTC.</p>"
    )
    if terms.counts == "patients":
        yield (
            "<p>A line can move while nobody gets that "
            f"{_text(words.arm)}: sites count by how many patients they have, and that changes.</p>"
        )
    arms = sorted(enumerate(facts.state.arms), key=lambda it: it[1].patients, reverse=True)
    drawn = sorted(arms[:MOST_DRAWN], key=lambda it: it[0])
    at = [it.at for it in points]
    courses = [(arm, *_course(facts, k)) for k, arm in drawn]
    known = [value for _, spans, _ in courses for it in _settled(spans) for value in it if value is not None]
    room = 0.1 * (terms.high - terms.low)
    scale = vertical(known, terms.low - room, terms.high + room)
    for arm, spans, wide in courses:
        label = f"{arm.name}: {_in_words(spans)}"
        drawing = lines_over_time(at, facts.at, spans, wide, scale, label)
        yield f'<div class="arm"><h3>{_name(arm.name)}</h3>{drawing}</div>'
    if len(arms) > MOST_DRAWN:
        yield f"<p>{len(arms) - MOST_DRAWN} others, which fewer patients got, are in history.csv.</p>"


def _course(facts: Facts, k: int) -> tuple[list[Span], list[Span]]:
    """The estimate of an arm with its usual interval at each point, and with the always-valid one."""

    def span(middle: list[float | None], low: list[float | None], high: list[float | None]) -> Span:
        found = [values[k] if k < len(values) else None for values in (middle, low, high)]
        return Span(*found)

    spans = [span(it.estimates, it.lows, it.highs) for it in facts.points]
    return spans, [span(it.estimates, it.always_lows, it.always_highs) for it in facts.points]


def _settled(spans: Sequence[Span]) -> Sequence[Span]:
    """Without the first tenth, which is wild."""
    return spans[len(spans) // 10 :] if len(spans) > 20 else spans


def _in_words(spans: Sequence[Span]) -> str:
    known = [it.value for it in spans if it.value is not None]
    return "nothing known" if not known else f"from {known[0]:.3f} to {known[-1]:.3f}"


# ---------------------------------------------------------------- stops, quality, software


def _stops(facts: Facts) -> Iterator[str]:
    words, changes = facts.state.federation.words, facts.arms.changes
    if not changes:
        yield f"<p>No {_text(words.arm)} was added, stopped or resumed.</p>"
        return
    waiting = {it.id for it in facts.arms.waiting}
    in_force = {it.last_change.id for it in facts.arms.arms if it.last_change is not None}
    done = {"add": "added", "suspend": "suspended", "resume": "resumed", "retire": "retired for good"}
    rows = [
        [
            _time(it.at),
            f"{_name(it.arm)} {done.get(it.change, _text(it.change))}{', not accepted here' * (it.id in waiting)}",
            _name(it.by) + _faint(facts.who_made(it.id)),
            _text(it.reason) or "no reason was given",
            (_who_has(it) if it.id in in_force else "") + _faint(facts.who_accepted(it.id), "accepted here by "),
        ]
        for it in sorted(changes, key=lambda it: it.at)
    ]
    headings = [
        ("when, by its clock", "when"),
        ("what", "what"),
        ("site, person", "site"),
        ("why", ""),
        ("known at", "known"),
    ]
    yield from _table(headings, rows)
    stopped = [it for it in facts.state.arms if it.status != "active"]
    yield f"<p>Now {_given(facts.state.arms, stopped, words.arms)}.</p>"


def _faint(who: str, before: str = "") -> str:
    """A person, if one is known, on a line of its own."""
    return f'<br><span class="faint">{before}{_name(who)}</span>' if who else ""


def _given(arms: Sequence[ArmState], stopped: Sequence[ArmState], noun: str) -> str:
    if not stopped:
        return f"all {len(arms)} {_text(noun)} are given"
    names = ", ".join(f"{_name(it.name)} ({_text(it.status)})" for it in stopped)
    return f"{len(arms) - len(stopped)} of {len(arms)} {_text(noun)} are given; not: {names}"


def _who_has(it: ArmChangeBody) -> str:
    if not it.receipts:
        return ""
    missing = [each.site for each in it.receipts if not each.has_it]
    if not missing:
        return "all sites"
    return f"{len(it.receipts) - len(missing)} of {len(it.receipts)} other sites; not: {', '.join(map(_name, missing))}"


CLASSES = ((0.01, "less than 1 %"), (0.05, "1 to 5 %"), (0.1, "5 to 10 %"), (0.25, "10 to 25 %"), (0.5, "25 to 50 %"))
"""Shares below these, in words."""


def class_of_share(part: int, total: int) -> str:
    """A share in words, as coarse as it can be and still help."""
    if total <= 0 or part <= 0:
        return "none"
    return next((words for below, words in CLASSES if part / total < below), "more than half")


def _quality(facts: Facts) -> Iterator[str]:
    state = facts.state
    words, it = state.federation.words, state.decisions
    counted = sum(arm.rewards for arm in state.arms)
    yield f"<p>At this site, of {it.handed_out:,} decisions:</p>"
    yield "<dl>"
    yield from _entry(
        f"Without a {_text(words.reward)} reported",
        f"{class_of_share(it.missing, counted)} of those that count; they count as {state.federation.default_reward:g}",
    )
    yield from _entry("Too late", f"{class_of_share(it.late, it.handed_out)}; they do not count")
    since = " since the agent's start" if facts.is_running else ""
    refused = f"{it.out_of_range:,} reports{since}, refused" if facts.is_running else "not counted while stopped"
    yield from _entry("Out of range", refused)
    ahead = [f"{_name(name)} by {duration(by)}" for name, by in _clocks(state.members)]
    yield from _entry("Clocks", "ahead: " + ", ".join(ahead) if ahead else "no site's clock is ahead of this one's")
    silent = [it for it in state.members if facts.at - it.since > 86_400.0]
    heard = ", ".join(f"{_name(it.name)} on {_day(it.since)}" for it in silent)
    yield from _entry("Not heard for a day", heard or "none")
    odd = [f"{_name(it.name)}: {_text(said)}" for it in state.members for said in _oddities(it)]
    yield from _entry("Numbers that do not fit", "; ".join(odd) or "none")
    yield "</dl>"
    yield (
        '<p class="faint">Shares are told in classes, since whether something was reported can depend on the outcome '
        "of a patient. What other sites know of their own reports stays there.</p>"
    )


def _clocks(members: Sequence[MemberState]) -> list[tuple[str, float]]:
    """Sites whose newest message was made after it came, by their clock."""
    return [(it.name, it.made - it.since) for it in members if it.made - it.since > 2.0]


def _oddities(it: MemberState) -> Iterator[str]:
    yield from it.oddities
    if it.conflict is not None:
        yield f"two different messages with the number {it.conflict.number}"


def _software(state: SiteState) -> Iterator[str]:
    said = {it.name: it.software for it in state.members} or {state.name: state.version}
    rows = [[_name(name), f"fedbandit {_text(version)}" if version else "not said"] for name, version in said.items()]
    yield from _table([("site", ""), ("version", "")], rows)


def _checks(facts: Facts) -> Iterator[str]:
    state = facts.state
    yield "<ul>"
    yield (
        "<li>Every site can make this report, and each computes it from the same signed messages: at another site "
        "<code>fedbandit report</code> must show the same estimates, up to messages that have not arrived there.</li>"
    )
    yield (
        "<li>What a site has said is signed with its key: <code>GET /v1/members/NAME</code> has the message, its "
        "signature and the certificate, which the certificate authority of the federation has issued.</li>"
    )
    yield (
        f"<li>The terms above have the SHA-256 <code>{_text(state.federation.digest)}</code>: sites with others are "
        "refused.</li>"
    )
    yield (
        "<li>The numbers of this page are in the tables beside it: <code>sites.csv</code>, <code>evidence.csv</code>, "
        "<code>history.csv</code>, <code>changes.csv</code>. An estimate over all is the sum of the sites' means, each "
        "times its share.</li>"
    )
    yield (
        "<li>What another rule would have achieved with the same patients: <code>fedbandit evaluate</code>, with the "
        "log of a site that keeps one.</li>"
    )
    yield "</ul>"


# ---------------------------------------------------------------- pieces


def _table(
    headings: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], last: Sequence[str] = (), name: str = ""
) -> Iterator[str]:
    """With a heading that is repeated on each page; ``last``: a row below all others."""

    def cells(row: Sequence[str]) -> str:
        classes = [f' class="{name}"' if name else "" for _, name in headings]
        first = f'<th scope="row"{classes[0]}>{row[0]}</th>'
        return first + "".join(f"<td{it}>{cell}</td>" for it, cell in zip(classes[1:], row[1:], strict=True))

    kind = f"{name} short" if len(rows) <= SHORT else name
    yield f'<div class="scroll"><table class="{kind.strip()}"><thead><tr>'
    yield "".join(f'<th scope="col" class="{it}">{text}</th>' for text, it in headings)
    yield "</tr></thead><tbody>"
    yield from (f"<tr>{cells(row)}</tr>" for row in rows)
    if last:
        yield f'<tr class="all">{cells(last)}</tr>'
    yield "</tbody></table></div>"


def _entry(term: str, said: str) -> Iterator[str]:
    yield f"<dt>{term}</dt><dd>{said}</dd>"


def _text(text: str) -> str:
    return escape(printable(text, LONGEST))


def _name(text: str) -> str:
    return f"<bdi>{_text(text)}</bdi>"


def _capital(word: str) -> str:
    return _text(word[:1].upper() + word[1:])


def _ends(it: IntervalBody | None) -> tuple[float | None, float | None]:
    return (None, None) if it is None else (it.low, it.high)


def _around(value: float | None, it: IntervalBody | None, decimals: int) -> str:
    shown = _number(value, decimals)
    return shown if it is None else f"{shown} ({_number(it.low, decimals)} to {_number(it.high, decimals)})"


def _number(value: float | None, decimals: int) -> str:
    return "unknown" if value is None or not isfinite(value) else f"{value:.{decimals}f}"


def _decimals(span: float) -> int:
    """As on the page of an agent: three for rewards from 0 to 1."""
    return min(6, max(0, 3 - floor(log10(span)))) if isfinite(span) and span > 0.0 else 3


def _day(at: float) -> str:
    found: date = datetime.fromtimestamp(at, UTC).date()
    return found.isoformat()


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
