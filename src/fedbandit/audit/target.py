"""Attacks a live site, whatever it does: executes the proof on it, tests its noise, and measures what it leaks.

A target is a site that can be opened from its disk, and a source of noise. Nothing is known of what may be wrong with
it. ``find_leak`` needs no chance, ``noise_of`` shows the draws that ``noise_tests`` judges, and ``attack_on`` turns a
leak into a lower bound on epsilon, which a reader need not believe a proof for.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from math import nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.agent.core.records import Decision
from fedbandit.agent.core.site import Site
from fedbandit.audit.attacks import Attack, prefetched
from fedbandit.audit.coupling import ANOTHER_DECISION, Leak, leaks
from fedbandit.audit.neighbour import Neighbour, Seen
from fedbandit.audit.releases import means_as_they_move, means_by_pulls, noisy_sums
from fedbandit.audit.script import Entry, OpenSite, Script, play
from fedbandit.audit.site_scripts import draws_for, with_real_noise
from fedbandit.privacy.noise import GRID, NoiseSource, to_grid

__all__ = ["Target", "attack_on", "find_leak", "noise_of"]

REHEARSALS = 100
MOST_RELEASES = 6  # of an arm, that an attack looks at
LAST = 3  # messages of which it looks at every number


@dataclass(frozen=True)
class Target:
    """A site under attack; ``noise`` makes a source for its releases."""

    label: str
    open_site: OpenSite = Site
    noise: Callable[[], NoiseSource] = prefetched


def find_leak(target: Target, scripts: Iterable[Script], claimed: float) -> Leak | None:
    """The first change of one reward that the noise does not hide within the claim; None: all are hidden."""
    return next((leak for script in scripts for leak in leaks(script, claimed, target.open_site)), None)


def noise_of(target: Target, epsilon: float, runs: int) -> NDArray[np.float64]:
    """The noise of each release of so many runs: a row for each run."""
    script = with_real_noise(epsilon)
    terms, source = script.terms, target.noise()
    neighbour = Neighbour(terms, lies=False)
    most = len(script.entries) // terms.num_arms
    sums: list[list[int]] = []
    for arm in range(terms.num_arms):
        values = [nan if it.value is None else it.value for it in script.entries[arm :: terms.num_arms]]
        steps = [to_grid(value, terms.low, terms.high) for value in values]
        size = terms.first_batch
        sums.append([sum(steps[first : first + size]) for first in range(0, most, size)])
    rows: list[list[float]] = []
    for _ in range(runs):
        view = play(script, neighbour, target.open_site, source)
        row: list[float] = []
        for arm, expected in enumerate(sums):
            noisy = noisy_sums(terms, means_by_pulls(terms, view, arm, most), most)
            row += [there - here for there, here in zip(noisy, expected, strict=True)]
        rows.append(row)
    return np.array(rows)


# ---------------------------------------------------------------- what a leak costs


class View(NamedTuple):
    """What is seen of a run: messages, and the state where the leak shows and at the end."""

    messages: list[Seen]
    state: list[float]


def attack_on(target: Target, leak: Leak, claimed: float) -> Attack:
    """Play a leak's two worlds with real noise, up to where it shows and a little longer.

    The event is one of any number seen: it is found on samples that do not judge it.
    """
    worlds, neighbour, source = _worlds(leak), Neighbour(leak.script.terms, lies=False), target.noise()

    def sample(which: int, count: int) -> Iterable[View]:
        nothing = [0.0] * (4 * leak.script.terms.num_arms + 3)
        states = {leak.second: nothing, len(worlds[which].entries): nothing}

        def watch(second: int, decision: Decision | None, site: Site) -> None:
            if second in states:
                states[second] = _state(site, leak.change.delay_is_kept)

        for _ in range(count):
            with suppress(Exception):  # a broken site may stop: what was seen by then is seen
                play(worlds[which], neighbour, target.open_site, source, watch)
            yield View(neighbour.view, [x for state in states.values() for x in state])

    rehearsed = [[_sums_of(leak.script, view.messages) for view in sample(which, REHEARSALS)] for which in (0, 1)]
    ratio = _learnt_ratio(rehearsed)

    def statistic(view: View) -> Sequence[float]:
        sums = _sums_of(leak.script, view.messages)
        return (
            *(ratio(sums), *_together(sums), *_times_of(leak.script, view.messages)),
            *(x for seen in view.messages[-LAST:] for x in _numbers(seen)),
            *view.state,
        )

    return Attack(target.label, claimed, sample, statistic)


def _worlds(leak: Leak) -> list[Script]:
    """The two worlds: from one end of the range to the other if values leak, else as the leak was found.

    Unless it is the choice of arms that leaks, the same arms come whatever the noise: draws see to that.
    """
    terms, change, seconds = leak.script.terms, leak.change, leak.second + 2
    entries = [Entry(terms.low if change.after == Entry(terms.high) else terms.high), change.after]
    if change.delay_is_kept and change.values_in(terms.low, terms.high):
        entries = [change.before._replace(value=end) for end in (terms.low, terms.high)]
    return [
        replace(
            script,
            entries=script.entries[:seconds],
            draws=script.draws if leak.what == ANOTHER_DECISION else tuple(draws_for(arm) for arm in leak.arms),
            seconds=min(seconds, max(script.seconds, len(script.entries))),
        )
        for script in (leak.script.changed(change.number, entry) for entry in entries)
    ]


def _state(site: Site, with_counts: bool) -> list[float]:
    """The numbers of a site's state; with counts that tell when rewards were reported, if both worlds report alike."""
    means = (0.0 if mean is None else mean for mean in site.own_means)
    counts = (site.pending, site.waiting, site.late) if with_counts else (0, 0, 0)
    return [*means, *map(float, (*site.rewards, *site.tried, *site.releases, *counts))]


def _numbers(seen: Seen) -> tuple[float, ...]:
    """Arms, values, weights, and the version of the link."""
    return *map(float, seen.pulls), *seen.own, float(seen.version)


def _sums_of(script: Script, view: Sequence[Seen]) -> list[float]:
    """The noisy sums of each arm's first releases, 0 where there is none."""
    terms, sums = script.terms, list[float]()
    for arm in range(terms.num_arms):
        means = [mean for _, mean in means_as_they_move(terms, view, arm)]
        found = noisy_sums(terms, means, len(script.entries))[:MOST_RELEASES]
        sums += found + [0.0] * (MOST_RELEASES - len(found))
    return sums


def _times_of(script: Script, view: Sequence[Seen]) -> list[float]:
    """How many messages came before each release."""
    times: list[float] = []
    for arm in range(script.terms.num_arms):
        found = [float(position) for position, _ in means_as_they_move(script.terms, view, arm)][:MOST_RELEASES]
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
    """The logarithm of the likelihood ratio if each release had Laplace noise around the medians of a rehearsal."""
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
