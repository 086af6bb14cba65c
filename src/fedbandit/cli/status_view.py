"""Draws the state of live agents for a terminal.

Names and reasons come from other sites: they are shown as plain text, without control characters, and never parsed as
markup.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from math import floor, isfinite, log10
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedbandit.agent.client import AgentError, Client, Forbidden, Unauthorised
from fedbandit.agent.http.state import ArmState, EvidenceOf, IntervalBody, MemberState, SiteEstimateBody, SiteState
from fedbandit.checks import printable

PATIENCE = 5.0
"""Seconds that an agent has to answer: somebody waits at a terminal."""

_LONGEST = 4000
"""Characters of a text that others have written."""

_MOST = 500
"""Rows of a table, and lines of a list."""

_WIDE = 120
"""Columns of a terminal from which all numbers of an arm have room."""

_MIDDLE = 100
"""Columns from which patients of this site have room beside those of all."""

_NARROW = 80
"""Columns of a terminal below which headings have two lines, and tables what matters most."""

NARROWEST = 50
"""Columns that tables need; a narrower terminal wraps lines."""


class AgentStatus(NamedTuple):
    """What one agent answered: its state, if it did, and what needs a person."""

    url: str
    state: SiteState | None
    needs: list[str]
    at: float
    evidence: tuple[EvidenceOf, ...] = ()
    stratum: str | None = None


def seen_at(
    url: str, token: str | None, sites: bool = False, reference: str | None = None, stratum: str | None = None
) -> AgentStatus:
    """Ask an agent; with ``sites`` also for every site's estimates, or differences from a reference; of a stratum."""
    at = datetime.now(UTC).timestamp()
    with Client(url, token, timeout=PATIENCE, deadline=PATIENCE, retries=0) as client:
        evidence: tuple[EvidenceOf, ...] = ()
        try:
            state = client.state()
            if sites:
                found = client.evidence(reference, stratum)
                evidence = tuple(found.arms if reference is None else found.differences)
        except AgentError as error:
            return AgentStatus(url, None, [_told(url, error)], at)
        try:
            client.ready()
        except AgentError as error:
            return AgentStatus(url, state, [f"it does not serve: {error}", *state.needs_person], at, evidence, stratum)
    return AgentStatus(url, state, state.needs_person, at, evidence, stratum)


def _told(url: str, error: AgentError) -> str:
    """Why there is no state, with the address."""
    if isinstance(error, Unauthorised):
        return f"{url} refuses: it requires a token (--token-file)"
    if isinstance(error, Forbidden):
        return f"{url} refuses: {error}"
    return str(error) if url.rstrip("/") in str(error) else f"{url}: {error}"


def printed(drawn: RenderableType, console: Console) -> Iterator[str]:
    """Lines as a console would print them, without blanks at their ends."""
    with console.capture() as capture:
        console.print(drawn)
    yield from (line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


def fitted(seen: Sequence[AgentStatus], console: Console) -> RenderableType:
    """As much as has room in a terminal: without the promises of privacy, or only what needs a person."""
    whole = Group(*_agents(seen, console.width))
    for one in (view(seen, console.width), whole):
        if len(console.render_lines(one)) < console.height:
            return one
    return Group(*_first_things(seen, console))


def _first_things(seen: Sequence[AgentStatus], console: Console) -> Iterator[RenderableType]:
    """What needs a person, and a row for each agent, those first that need one; as far as there is room."""
    pressing = [it for it in seen if it.needs]
    yield Text("There is more: make the window taller, or leave out --watch.")
    for it in pressing:
        whose = it.url if it.state is None else it.state.name
        yield from _lines(f"{_clean(whose)} needs a person: ", it.needs, "red")
    yield _overview([*pressing, *(it for it in seen if not it.needs)], console.width)


def view(seen: Sequence[AgentStatus], width: int) -> RenderableType:
    """All of it for a terminal of so many columns: with several agents, a row for each comes first."""
    parts = _agents(seen, width)
    promises: dict[str, list[str]] = {}
    for state in (it.state for it in seen if it.state is not None):
        mechanism = state.privacy.mechanism[:1].upper() + state.privacy.mechanism[1:]  # ``capitalize`` changes names
        promises.setdefault(f"{state.privacy.promise} {mechanism}.", []).append(state.name)
    for promise, names in promises.items():
        of = f" of {', '.join(names)}" if len(promises) > 1 else ""
        parts += [*([Text()] if len(seen) > 1 else []), Text(_clean(f"privacy{of}: {promise}"))]
    return Group(*parts)


def _agents(seen: Sequence[AgentStatus], width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [] if len(seen) == 1 else [_overview(seen, width)]
    for it in seen:
        parts += [*([Text()] if parts else []), *_agent(it, width)]
    return parts


def _overview(seen: Sequence[AgentStatus], width: int) -> Table:
    counts = ["neighbours >", "decisions >"] if width >= _NARROW else []
    table = _table(width, "agent", "site", "best so far", *counts, "needs a person >")
    for it in seen:
        if it.state is None:
            said = "refuses" if " refuses: " in it.needs[0] else "no answer"
            row = [_plain(it.url), Text(said, "red"), *map(Text, ("-", "-", "-"))]
        else:
            links = it.state.neighbours
            reachable = Text(f"{sum(link.reachable for link in links)} of {len(links)}")
            row = [_plain(it.url), _plain(it.state.name), _plain(_leader(it.state)), reachable]
            row.append(Text(f"{it.state.decisions.handed_out:,}"))
        table.add_row(*row[: 3 + len(counts)], Text(str(len(it.needs)), "red" if it.needs else "green"))
    return table


def _agent(seen: AgentStatus, width: int) -> Iterator[RenderableType]:
    state = seen.state
    if state is None:
        yield from (Text(_clean(it), "bold red") for it in seen.needs)
        return
    count = state.federation.num_agents
    sites = (
        f"{count:,} of {len(state.members):,} sites count"
        if len(state.members) > count
        else (f"{count:,} site{'' if count == 1 else 's'}")
    )
    federation = f"federation {state.federation.name}, {sites}, {state.federation.policy}"
    yield Text.assemble((_clean(state.name), "bold"), f"  {_clean(federation)}, version {_clean(state.version)}")
    yield Text(_clean(state.answer.words), "bold")
    if seen.needs:
        yield Text("needs a person:", "bold red")
        yield from _lines("  ", seen.needs, "red")
    yield from _lines("note: ", [it for it in state.notes if it not in seen.needs], "")
    yield from _arms(state, width)
    if state.answer.strata:
        yield _strata(state, width)
    if state.evaluation is not None:
        yield from _evaluation(state, width)
    for it in seen.evidence[:_MOST]:
        yield from _sites(it, state, width, seen.stratum)
    if state.neighbours:
        yield from _neighbours(state, seen.at, width)
    else:
        yield Text("no neighbours: this site learns alone")
    if len(state.members) > 1:
        yield from _members(state, seen.at, width)
    yield Text(_decisions(state))
    if state.refused:
        counts = ", ".join(f"{reason} {count:,}" for reason, count in state.refused.items())
        yield Text(f"refused at the gossip port: {_clean(counts)}")
    yield from _lines("from the terms: ", state.warnings_of_terms, "yellow")


def _lines(before: str, texts: Sequence[str], style: str) -> Iterator[Text]:
    yield from (Text(f"{before}{_clean(it)}", style) for it in texts[:_MOST])
    yield from _more(texts)


def _more(rows: Sequence[object]) -> Iterator[Text]:
    if len(rows) > _MOST:
        yield Text(f"... and {len(rows) - _MOST:,} more")


def _arms(state: SiteState, width: int) -> Iterator[RenderableType]:
    words = state.federation.words
    lost = f"more {words.failures}" if words.failures else f"fewer {words.rewards}"
    more = ["this site alone >"] if width >= _WIDE else []
    costs = [f"{_clean(lost)} per\n100 patients >"] if width >= _WIDE else []
    given = ["given here >", "at all sites >"][width < _MIDDLE : 2 if width >= _NARROW else 1]
    headings = [_clean(words.arm), "estimate (95 %)", *more, "chance to be best >", *costs]
    table = _table(width, *headings, *given, "")
    leader = state.answer.leader
    decimals = _decimals(state.federation.high - state.federation.low)
    arms = sorted(state.arms, key=lambda it: -float("inf") if it.estimate is None else it.estimate, reverse=True)
    for arm in arms[:_MOST]:
        why = f": {arm.reason}" if arm.reason else ""
        status = "" if arm.status == "active" else f"{arm.status} by {arm.changed_by or 'nobody'}{why}"
        cells = [
            _estimate(arm, decimals),
            _number(arm.own_mean, decimals),
            _chance(arm.chance_best),
            _lost(arm, leader, max(decimals - 2, 0)),
        ]
        counts = [f"{arm.pulls:,}", f"{arm.patients:,}"][width < _MIDDLE : 2 if width >= _NARROW else 1]
        cells = [*(cells if width >= _WIDE else cells[::2]), *counts]
        table.add_row(_plain(arm.name), *map(Text, cells), Text(_clean(status), "yellow"))
    yield table
    yield from _more(arms)


def _strata(state: SiteState, width: int) -> RenderableType:
    """The best arm of each stratum, and of all arms the estimate, and how many patients got it at all sites."""
    decimals = _decimals(state.federation.high - state.federation.low)
    arms = [_clean(it.name) for it in state.arms[:_MOST]] if width >= _MIDDLE else []
    table = _table(width, "patients", "of all >", "best so far", "sure >", *(f"{name} >" for name in arms))
    for it in state.answer.strata[:_MOST]:
        leader, sure = _clean(it.leader or "unknown"), "" if it.chance is None else _chance(it.chance)
        each = zip(it.estimates, it.intervals, it.patients, strict=True) if arms else ()
        cells = [f"{_of_cell(mean, around, decimals)}\n{patients:,} patients" for mean, around, patients in each]
        table.add_row(_plain(it.label), *map(Text, (f"{100.0 * it.frequency:.0f} %", leader, sure, *cells)))
    return table


def _evaluation(state: SiteState, width: int) -> Iterator[RenderableType]:
    """How well other policies would have done over all sites."""
    decimals = _decimals(state.federation.high - state.federation.low)
    more = ["patients >", "tell as much as >"] if width >= _NARROW else []
    table = _table(width, "policy", "estimate (95 %)", *more, "")
    for it in state.evaluation.policies if state.evaluation is not None else ():
        estimate = "unknown" if it.estimate is None else _with_interval(it.estimate, it.interval, decimals)
        counts = [f"{it.decisions:,}", f"{it.effective:,.0f}"] if more else []
        what = f"{it.name}\n{it.words}" if it.words else it.name
        table.add_row(_plain(what), *map(Text, (estimate, *counts)), Text(_clean(it.remark), "yellow"))
    yield table


def _of_cell(mean: float | None, around: IntervalBody | None, decimals: int) -> str:
    return "unknown" if mean is None else _with_interval(mean, around, decimals)


def _sites(it: EvidenceOf, state: SiteState, width: int, stratum: str | None) -> Iterator[RenderableType]:
    """A forest plot: every site's estimate beside the average."""
    decimals = _decimals(state.federation.high - state.federation.low)
    less = "" if it.reference is None else f", less that of {it.reference}"
    said = f": {it.words}" if it.words else ""
    whose = "" if stratum is None else f"{stratum}: "
    yield Text(_clean(f"{whose}{it.arm}{less}{said}"), "bold")
    drawn = width >= _NARROW
    headings = ["site", "estimate (95 %)", *([""] if drawn else []), "share >", "patients >"]
    table = _table(width, *headings)
    shown = [each for each in (*it.sites, it) if _range_of(each) is not None][:_MOST]
    low = min((ends[0] for each in shown if (ends := _range_of(each)) is not None), default=0.0)
    high = max((ends[1] for each in shown if (ends := _range_of(each)) is not None), default=1.0)
    for each in it.sites[:_MOST]:
        mean = "nothing yet" if each.mean is None else _with_interval(each.mean, each.interval, decimals)
        if each.mean is not None and each.part < 0.995:
            mean += f"\n{100.0 * each.part:.0f} % from this group"
        line = [_line_of(each, low, high)] if drawn else []
        table.add_row(_plain(each.site), *map(Text, (mean, *line, _share(each.share), f"{each.patients:,}")))
    average = "unknown" if it.estimate is None else _with_interval(it.estimate, it.interval, decimals)
    line = [_line_of(it, low, high)] if drawn else []
    cells = [Text(cell, "bold") for cell in ("all", average, *line, "", f"{it.patients:,}")]
    table.add_row(*cells)
    yield table
    yield from _more(it.sites)
    for name, ends in (("calibrated", it.always), ("proved", it.proved)):
        if ends is not None:
            around = f"{_number(ends.low, decimals)} to {_number(ends.high, decimals)}"
            yield Text(f"however often one looks: {around} (95 %, {name})")
    if it.spread_in_words:
        yield Text(_clean(it.spread_in_words))


_LINE = 24  # characters


def _range_of(it: EvidenceOf | SiteEstimateBody) -> tuple[float, float] | None:
    mean = it.estimate if isinstance(it, EvidenceOf) else it.mean
    if mean is None or not isfinite(mean):
        return None
    around = it.interval
    if around is None or not (isfinite(around.low) and isfinite(around.high)):
        return mean, mean
    return min(around.low, mean), max(around.high, mean)


def _line_of(it: EvidenceOf | SiteEstimateBody, low: float, high: float) -> str:
    """A line from end to end with a dot, or a diamond for the average."""
    ends = _range_of(it)
    mean = it.estimate if isinstance(it, EvidenceOf) else it.mean
    if ends is None or mean is None or high <= low:
        return ""
    first, at, last = (round((_LINE - 1) * (x - low) / (high - low)) for x in (ends[0], mean, ends[1]))
    letters = [" "] * first + ["\N{BOX DRAWINGS LIGHT HORIZONTAL}"] * (last - first + 1) + [" "] * (_LINE - 1 - last)
    letters[at] = "\N{BLACK DIAMOND}" if isinstance(it, EvidenceOf) else "\N{BLACK CIRCLE}"
    return "".join(letters)


def _neighbours(state: SiteState, now: float, width: int) -> Iterator[RenderableType]:
    counts = ["bulletins in >", "out >"] if width >= _NARROW else []
    table = _table(width, "neighbour", "", "last heard >", *counts, "failures >")
    for link in state.neighbours[:_MOST]:
        last = "never" if link.last_heard is None else _ago(now - link.last_heard)
        numbers = [f"{link.received:,}", f"{link.sent:,}"][: len(counts)]
        reach = Text("linked", "green") if link.reachable else Text("unreachable", "red")
        table.add_row(_plain(link.name), reach, *map(Text, (last, *numbers, f"{link.failures:,}")))
    yield table
    yield from _more(state.neighbours)


def _members(state: SiteState, now: float, width: int) -> Iterator[RenderableType]:
    counts = ["decisions >", "share >"] if width >= _NARROW else []
    table = _table(width, "member", "", "its bulletin >", *counts, "what is odd")
    for it in state.members[:_MOST]:
        share = "-" if it.share is None else _share(it.share)
        numbers = [f"{it.decisions:,}", share][: len(counts)]
        age = _ago(now - it.since)
        why = [f"excluded: {it.excluded_because}"] if it.excluded_because else []
        odd = [*why, *it.oddities[:1], *(["two bulletins with one number"] if it.conflict is not None else [])]
        table.add_row(_plain(it.name), _counts(it), *map(Text, (age, *numbers)), Text(_clean("; ".join(odd)), "red"))
    yield table
    yield from _more(state.members)
    without = [f"{arm.name}: {', '.join(arm.missing)}" for arm in state.arms if arm.missing]
    yield from _lines("stop not acknowledged: ", without, "yellow")
    giving = [f"{arm.name}: {', '.join(arm.resumed_by)}" for arm in state.arms if arm.resumed_by]
    yield from _lines("stopped here, resumed and given there: ", giving, "yellow")


def _counts(it: MemberState) -> Text:
    if it.refused or it.excluded:
        return Text("refused" if it.refused else "excluded", "yellow")
    return Text("counts", "green") if it.counts else Text("does not count", "red")


def _decisions(state: SiteState) -> str:
    it, rates = state.decisions, state.rates
    said = f"decisions: {it.handed_out:,} handed out, {it.pending:,} without a reward"
    said += f", {rates.decisions_per_minute:.1f} per minute; {rates.rewards_per_minute:.1f} rewards per minute"
    said += f", {it.waiting:,} rewards do not count yet, {it.late:,} came too late"
    forgotten = sum(it.forgotten.values())
    return said + (f", {forgotten:,} forgotten without a reward" if forgotten else "")


def _leader(state: SiteState) -> str:
    answer = state.answer
    if answer.leader is None:
        return "nothing is known yet"
    leaders = {it.leader for it in answer.strata if it.leader is not None}
    if len(leaders) > 1 and (answer.strata_matter or 0.0) > 0.5:  # more likely than not
        return "depends on the patient"
    return answer.leader if answer.chance is None else f"{answer.leader} ({_chance(answer.chance)} sure)"


def _decimals(span: float) -> int:
    """As on the page: three for rewards from 0 to 1."""
    return min(6, max(0, 3 - floor(log10(span)))) if isfinite(span) and span > 0.0 else 3


def _estimate(arm: ArmState, decimals: int) -> str:
    if arm.estimate is None:
        return "unknown"
    if arm.interval is not None:
        return _with_interval(arm.estimate, arm.interval, decimals)
    shown = _number(arm.estimate, decimals)
    return shown if arm.radius is None else f"{shown} \N{PLUS-MINUS SIGN} {_number(arm.radius, decimals)}"


def _lost(arm: ArmState, leader: str | None, decimals: int) -> str:
    """As on the page: what 100 patients lose with an arm."""
    if arm.name == leader:
        return "none"
    if arm.behind is None or not isfinite(arm.behind):
        return "-"
    return _with_interval(100.0 * arm.behind, arm.behind_interval, decimals, 100.0)


def _with_interval(value: float, around: IntervalBody | None, decimals: int, unit: float = 1.0) -> str:
    shown = _number(value, decimals)
    if around is None or not (isfinite(around.low) and isfinite(around.high)):
        return shown
    return f"{shown} ({_number(unit * around.low, decimals)} to {_number(unit * around.high, decimals)})"


def _chance(chance: float | None) -> str:
    """As on the page: rounded down, since 99.6 % is not certain, and never 0 % or 100 %."""
    if chance is None or not isfinite(chance):
        return "-"
    if not 0.01 <= chance <= 0.99:
        return "> 99 %" if chance > 0.99 else "< 1 %"
    return f"{floor(100.0 * chance)} %"


def _share(share: float) -> str:
    """As on the page; 0 % and 100 % are possible."""
    if not isfinite(share):
        return "-"
    whole = 100.0 * share
    if 0.0 < whole < 0.001:
        return "< 0.001 %"
    return f"{whole:.1g} %" if 0.0 < whole < 1.0 else f"{whole:.0f} %"


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None or not isfinite(value) else f"{value:.{decimals}f}"


def _ago(seconds: float) -> str:
    if seconds < 120.0:
        return f"{max(seconds, 0.0):.0f} s ago"
    return f"{seconds / 60.0:.0f} min ago" if seconds < 7200.0 else f"{seconds / 3600.0:.0f} h ago"


def _table(width: int, *headings: str) -> Table:
    """``>``: a column of numbers. Only names are folded where there is no room."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for k, heading in enumerate(headings):
        is_number = heading.endswith(">")
        table.add_column(
            heading.removesuffix(" >") if width >= _NARROW else heading.removesuffix(" >").replace(" ", "\n", 1),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=is_number or heading.startswith("estimate"),
            min_width=8 if k == 0 else None,
        )
    return table


def _clean(text: str) -> str:
    return printable(text, _LONGEST)


def _plain(text: str) -> Text:
    return Text(_clean(text))
