"""Measures what a broken site leaks, so that nobody need believe the executed proof: a lower bound on its epsilon.

``python tests/measured_leaks.py`` prints the table of broken sites and mechanisms in docs/privacy.md.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from math import isfinite
from typing import NamedTuple

import numpy as np

from broken_mechanisms import broken_mechanisms
from broken_sites import BrokenSite, broken_sites
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import DecisionRecord
from fedbandit.agent.core.site import Site
from fedbandit.audit.attacks import Attack
from fedbandit.audit.coupling import ANOTHER_DECISION, Leak, first_leak
from fedbandit.audit.measure import AuditResult, audit
from fedbandit.audit.noise_tests import mean_of, noisy_sums
from fedbandit.audit.scenarios import Attacker, Entry, Reading, Scenario, draws_for, play, scenarios_of
from fedbandit.audit.suite import check_noise, run_attack
from fedbandit.privacy.noise import GRID

DRY_RUNS = 100
MOST_RELEASES = 6  # of an arm, that an attack looks at
LAST = 3  # messages of which it looks at every number
NEAR = 1e-6  # what is read by subtraction differs in its last digits
SAMPLES = 500  # enough to show a certain leak as an epsilon of 3


def leak_of(broken: BrokenSite) -> Leak | None:
    """The first change of one reward that the noise does not hide at epsilon 1."""
    return first_leak(scenarios_of("fed_batch", 1.0).values(), 1.0, broken.open_site)


def measured(broken: BrokenSite, leak: Leak) -> AuditResult:
    """The epsilon that 500 samples of the leak's two worlds show."""
    attack = attack_on(broken, leak, 1.0)
    return audit(attack.sample, attack.statistic, claimed=1.0, samples=SAMPLES)


class View(NamedTuple):
    """What is seen of a run: messages, and the state where the leak shows and at the end."""

    messages: list[Reading]
    state: list[float]


def attack_on(broken: BrokenSite, leak: Leak, claimed: float) -> Attack:
    """Play a leak's two worlds with real noise, up to where it shows and a little longer.

    The event is one of any number seen: it is found on samples that do not judge it.
    """
    worlds, attacker, source = _worlds(leak), Attacker(leak.scenario.terms, lies=False), broken.noise()

    def sample(which: int, count: int) -> Iterable[View]:
        nothing = [0.0] * (4 * leak.scenario.terms.num_arms + 3)
        states = {leak.second: nothing, len(worlds[which].entries): nothing}

        def watch(second: int, decision: DecisionRecord | None, site: Site) -> None:
            if second in states:
                states[second] = _state(site, leak.change.delay_is_kept)

        for _ in range(count):
            with suppress(Exception):  # a broken site may stop: what was seen by then is seen
                play(worlds[which], attacker, broken.open_site, source, watch)
            yield View(attacker.view, [x for state in states.values() for x in state])

    dry_runs = [[_sums_of(leak.scenario, view.messages) for view in sample(which, DRY_RUNS)] for which in (0, 1)]
    ratio = _learnt_ratio(dry_runs)

    def statistic(view: View) -> Sequence[float]:
        sums = _sums_of(leak.scenario, view.messages)
        return (
            *(ratio(sums), *_together(sums), *_times_of(leak.scenario, view.messages)),
            *(x for seen in view.messages[-LAST:] for x in _numbers(seen)),
            *view.state,
        )

    return Attack(broken.label, claimed, sample, statistic)


def _worlds(leak: Leak) -> list[Scenario]:
    """The two worlds: from one end of the range to the other if values leak, else as the leak was found.

    Unless it is the choice of arms that leaks, the same arms come whatever the noise: draws see to that.
    """
    terms, change, seconds = leak.scenario.terms, leak.change, leak.second + 2
    entries = [Entry(terms.low if change.after == Entry(terms.high) else terms.high), change.after]
    if change.delay_is_kept and change.values_in(terms.low, terms.high):
        entries = [change.before._replace(value=end) for end in (terms.low, terms.high)]
    return [
        replace(
            scenario,
            entries=scenario.entries[:seconds],
            draws=scenario.draws if leak.what == ANOTHER_DECISION else tuple(draws_for(arm) for arm in leak.arms),
            seconds=min(seconds, max(scenario.seconds, len(scenario.entries))),
        )
        for scenario in (leak.scenario.changed(change.number, entry) for entry in entries)
    ]


def _state(site: Site, with_counts: bool) -> list[float]:
    """The numbers of a site's state; with counts that tell when rewards were reported, if both worlds report alike."""
    means = (0.0 if mean is None else mean for mean in site.own_means)
    counts = (site.pending, site.waiting, site.late) if with_counts else (0, 0, 0)
    return [*means, *map(float, (*site.rewards, *site.tried, *site.releases, *counts))]


def _numbers(seen: Reading) -> tuple[float, ...]:
    """Arms, values, weights, and the version of the link."""
    return *map(float, seen.pulls), *seen.own, float(seen.version)


def _sums_of(scenario: Scenario, view: Sequence[Reading]) -> list[float]:
    """The noisy sums of each arm's first releases, 0 where there is none."""
    terms, sums = scenario.terms, list[float]()
    for arm in range(terms.num_arms):
        means = [mean for _, mean in _means_as_they_move(terms, view, arm)]
        found = noisy_sums(terms, means, len(scenario.entries))[:MOST_RELEASES]
        sums += found + [0.0] * (MOST_RELEASES - len(found))
    return sums


def _means_as_they_move(terms: Federation, view: Sequence[Reading], arm: int) -> list[tuple[int, float]]:
    """Where in the view the mean of an arm moves, and to what."""
    found: list[tuple[int, float]] = []
    for position, seen in enumerate(view):
        mean = mean_of(terms, seen, arm)
        if isfinite(mean) and not (found and abs(mean - found[-1][1]) < NEAR):
            found.append((position, mean))
    return found


def _times_of(scenario: Scenario, view: Sequence[Reading]) -> list[float]:
    """How many messages came before each release."""
    times: list[float] = []
    for arm in range(scenario.terms.num_arms):
        found = [float(position) for position, _ in _means_as_they_move(scenario.terms, view, arm)][:MOST_RELEASES]
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


def main() -> None:
    """Print the table."""
    for broken in broken_sites():
        leak = None if broken.open_site is Site else leak_of(broken)
        if leak is None:
            row = check_noise(1.0, 500, broken.open_site, broken.noise())
            print(f"| {broken.label} | {row.at_least:.2f} | {row.reason} |", flush=True)  # noqa: T201
        else:
            print(f"| {broken.label} | {measured(broken, leak).at_least:.2f} | proof: {leak.what} |", flush=True)  # noqa: T201
    for label, (attack, samples) in broken_mechanisms().items():
        print(f"| {label} | {run_attack(attack, samples).at_least:.2f} | measured |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
