"""Measures what a broken site leaks, so that nobody need believe the executed proof: a lower bound on its epsilon.

``python tests/measured_leaks.py`` prints the table of broken sites in docs/privacy.md, and with ``--epsilon`` bounds.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from broken_sites import BrokenSite, broken_sites
from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.audit.attacks import Attack
from fedbandit.audit.executor import Run, Sent
from fedbandit.audit.measure import AuditResult, audit
from fedbandit.audit.noise_tests import noisy_sums
from fedbandit.audit.pairs import Leak, search
from fedbandit.audit.random_scripts import THEMES, terms_of
from fedbandit.audit.scripts import Decide, Script, once
from fedbandit.audit.suite import check_noise
from fedbandit.privacy.noise import GRID
from more_broken_sites import more_broken_sites

SCRIPTS = 400
DRY_RUNS = 100
MOST_RELEASES = 6  # of an arm, that an attack looks at
MUCH = 1e9  # more than any estimate
LAST = 3  # bulletins of which it looks at every number
SAMPLES = 500  # enough to show a certain leak as an epsilon of 3


def leak_of(broken: BrokenSite) -> Leak | None:
    """The shortest script that shows what the noise does not hide at epsilon 1."""
    return search(terms_of("fed_batch", 1.0), 1.0, broken.opened, broken.process, scripts=SCRIPTS).leak


def measured(broken: BrokenSite, leak: Leak) -> AuditResult:
    """The epsilon that 500 samples of the leak's two worlds show."""
    attack = attack_on(broken, leak, 1.0)
    return audit(attack.sample, attack.statistic, claimed=1.0, samples=SAMPLES)


class View(NamedTuple):
    """What is seen of a run: bulletins, arms, and the state where the leak shows and at the end."""

    sent: list[Sent]
    rest: list[float]


def attack_on(broken: BrokenSite, leak: Leak, claimed: float) -> Attack:
    """Play a leak's two worlds with real noise, up to where it shows and a little longer.

    The event is one of any number seen: it is found on samples that do not judge it.
    """
    worlds, source = _worlds(leak), broken.noise()
    length = 60 + 5 * len(worlds[0].terms.arms)

    def sample(which: int, count: int) -> Iterable[View]:
        for _ in range(count):
            run = broken.process(worlds[which], broken.opened, source)
            with suppress(Exception):  # a broken site may stop: what was seen by then is seen
                run.play()
            yield View(run.sent, _rest(run, leak, length))

    dry_runs = [[_sums_of(leak.pair.script, view.sent) for view in sample(which, DRY_RUNS)] for which in (0, 1)]
    ratio = _learnt_ratio(dry_runs)

    def statistic(view: View) -> Sequence[float]:
        sums = _sums_of(leak.pair.script, view.sent)
        return (
            *(ratio(sums), *_together(sums), *_times_of(leak.pair.script, view.sent)),
            *(x for sent in view.sent[-LAST:] for x in _numbers(leak.pair.script, sent)),
            *[0.0] * (len(_numbers(leak.pair.script, None)) * max(0, LAST - len(view.sent))),
            *view.rest,
        )

    return Attack(broken.label, claimed, sample, statistic)


def _worlds(leak: Leak) -> list[Script]:
    """The two worlds: from one end of the range to the other if values leak, else as the leak was found.

    Where the index draws, draws give each request the first arm that it may have, whatever the noise.
    """
    script, change = leak.pair
    low, high = script.terms.low, script.terms.high
    it = script.events[change.event]
    assert isinstance(it, Decide)
    before, entries = it.entries[change.position], [it.entries[change.position], change.entry]
    if len(before) == len(change.entry) == 1 and all(low <= entry[0].value <= high for entry in entries):
        entries = [once(end, entry[0].delay) for end, entry in zip((low, high), entries, strict=True)]
    sure = tuple(
        replace(it, draws=tuple(_sure(draws, it.request.eligible) for draws in it.draws))
        if isinstance(it, Decide)
        else it
        for it in script.events
    )
    script = replace(script, events=sure)
    return [script.changed(replace(change, entry=entry)) for entry in entries]


def _sure(draws: SiteDraws, eligible: tuple[int, ...] | None) -> SiteDraws:
    first = 0 if eligible is None else eligible[0]
    return replace(draws, normals=tuple(MUCH if k == first else -MUCH for k in range(len(draws.normals))))


def _rest(run: Run, leak: Leak, length: int) -> list[float]:
    """All else that is seen: how much, and the arms; the numbers of the state where the leak shows and at the end."""
    kinds = ("decision", "refusal", "bulletin", "Have", "state")
    counts = [float(sum(it.what == kind for it in run.seen)) for kind in kinds]
    states = [it for it in run.seen if it.what == "state"]
    where = [it for it in states if it.at <= leak.at][-1:]
    numbers = [x for it in (*where, *states[-1:]) for x in _flat(it.content)]
    arms = [float(it.arm) if it is not None else -1.0 for it in run.decisions]
    found = [*counts, *arms[:30], *[0.0] * (30 - len(arms)), *numbers]
    return [*found[:length], *[0.0] * (length - len(found))]


def _flat(content: object) -> Iterable[float]:
    if isinstance(content, bool | int | float):
        yield float(content)
    elif content is None:
        yield 0.0
    elif isinstance(content, tuple):
        for it in content:
            yield from _flat(it)


def _numbers(script: Script, sent: Sent | None) -> tuple[float, ...]:
    """Of a bulletin: place, time, order, size and the numbers of each arm."""
    names = script.terms.arms
    if sent is None:
        return (0.0,) * (6 + 6 * len(names))
    it = sent.bulletin
    each = [(*it.by_arm[name].row, it.by_arm[name].releases, it.by_arm[name].decisions) for name in names]
    head = it.number, it.at, it.decisions, len(it.receipts), names.index(it.arms[0].name), sent.at
    return *map(float, head), *(float(x) for row in each for x in (*row, 0.0, 0.0)[:6])


def _sums_of(script: Script, view: Sequence[Sent]) -> list[float]:
    """The noisy sums of each arm's first releases, 0 where there is none."""
    sums: list[float] = []
    for name in script.terms.arms:
        means = [mean for _, mean in _means_as_they_move(view, name)]
        found = noisy_sums(script.terms, means, 40)[:MOST_RELEASES]
        sums += found + [0.0] * (MOST_RELEASES - len(found))
    return sums


def _means_as_they_move(view: Sequence[Sent], arm: str) -> list[tuple[int, float]]:
    """Where in the view the mean of an arm moves, and to what."""
    found: list[tuple[int, float]] = []
    for position, sent in enumerate(view):
        entry = sent.bulletin.by_arm[arm]
        if entry.releases > 0 and not (found and found[-1][1] == entry.row[0]):
            found.append((position, entry.row[0]))
    return found


def _times_of(script: Script, view: Sequence[Sent]) -> list[float]:
    """How many bulletins came before each release."""
    times: list[float] = []
    for name in script.terms.arms:
        found = [float(position) for position, _ in _means_as_they_move(view, name)][:MOST_RELEASES]
        times += found + [-1.0] * (MOST_RELEASES - len(found))
    return times


def _together(sums: Sequence[float]) -> list[float]:
    """What two releases tell together: nothing, if their noise is fresh. And how far each lies from the grid."""
    return [
        *(one - other for one, other in combinations(sums, 2)),
        *(one + other for one, other in combinations(sums, 2)),
        *(abs(x - round(x)) for x in sums),
    ]


def _learnt_ratio(worlds: Sequence[Sequence[Sequence[float]]]) -> Callable[[Sequence[float]], float]:
    """The logarithm of the likelihood ratio if each release had Laplace noise around the medians of dry runs."""
    tables = [np.array(world) for world in worlds]
    centres = [np.median(table, axis=0) for table in tables]
    widths = [np.mean(np.abs(table - centre), axis=0) for table, centre in zip(tables, centres, strict=True)]
    scale = np.maximum((widths[0] + widths[1]) / 2.0, GRID * 1e-3)
    told = np.abs(centres[1] - centres[0]) > 0.3 * scale  # the rest is chance

    def ratio(sums: Sequence[float]) -> float:
        x = np.array(sums)
        each = (np.abs(x - centres[0]) - np.abs(x - centres[1])) / scale
        return float(each[told].sum())

    return ratio


def row_of(broken: BrokenSite) -> str:
    """Its row in the table of docs/privacy.md: in which script it leaks, of which theme, and what is seen."""
    if broken.found == "noise":
        row = check_noise(1.0, 500, broken.opened, broken.noise())
        return f"| {broken.label} | noise | - | - | {row.reason.removeprefix('noise: ')} |"
    found = search(terms_of("fed_batch", 1.0), 1.0, broken.opened, broken.process, scripts=SCRIPTS, shrinking=0.0)
    if found.leak is None:
        return f"| {broken.label} | not found | {SCRIPTS} | - | - |"
    theme = THEMES[(found.scripts - 1) % len(THEMES)].name
    return f"| {broken.label} | proof | {found.scripts} | {theme} | {found.leak.what} |"


def main() -> None:
    """Print the table, or with ``--epsilon`` what each leak measures; other arguments are parts of names."""
    wanted = [it for it in sys.argv[1:] if it != "--epsilon"]
    every = (*broken_sites(), *more_broken_sites())
    for broken in (it for it in every if not wanted or any(part in it.label for part in wanted)):
        if "--epsilon" not in sys.argv:
            print(row_of(broken), flush=True)  # noqa: T201
        elif broken.found == "proof" and (leak := leak_of(broken)) is not None:
            print(f"{broken.label}: at least {measured(broken, leak).at_least:.2f}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
