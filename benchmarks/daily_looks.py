"""How often an answer is settled for a wrong arm if people look every day for a year (docs/operations.md).

    python benchmarks/daily_looks.py

Federations play FedBatch Thompson as live sites do (``gossip="releases"``). Once a day somebody computes what a site
with all bulletins computes: estimates, their variances, the chance to be best, the intervals. A false alarm is a
federation in which an arm that is not the best was ever settled; of equal arms none is the best. It prints a row per
setting: in how many federations a wrong arm ever had a chance of 99 %, in how many it was ever settled, how many
settled on the best arm within the year and their median day, and how often an interval of 95 % was ever wrong: the
usual one and the always-valid one of an arm, and that of the difference of the first two arms.
"""

import argparse
from collections.abc import Iterator
from math import sqrt
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from fedbandit import FedBatch, Problem
from fedbandit.engine import cpu
from fedbandit.rules.batch import PRIOR_REWARDS, largest_reward_variance
from fedbandit.rules.belief import is_sure
from fedbandit.rules.propensity import chances_of_highest
from fedbandit.rules.releases import random_effects
from fedbandit.rules.sequences import NORMAL_95, always_valid_radius, leads_for_good
from fedbandit.simulation.run import check_call, truths_of

DAYS = 365
PRIOR = largest_reward_variance(0.0, 1.0) / PRIOR_REWARDS


class Setting(NamedTuple):
    """A federation: the mean of each arm, how much sites differ, patients per site and day."""

    words: str
    means: tuple[float, ...]
    sites: int
    per_day: int
    epsilon: float = 1.0
    bias: float = 0.0


SETTINGS = [
    Setting("2 equal arms", (0.5, 0.5), 3, 5),
    Setting("2 equal arms, busy sites", (0.5, 0.5), 3, 50),
    Setting("2 equal arms, 10 sites that differ by 0.1", (0.5, 0.5), 10, 10, bias=0.1),
    Setting("5 equal arms", (0.5,) * 5, 5, 10),
    Setting("2 equal arms, rare successes", (0.05, 0.05), 3, 20),
    Setting("3 equal arms, epsilon 0.3", (0.5,) * 3, 5, 10, epsilon=0.3),
    Setting("2 equal arms, one site", (0.5, 0.5), 1, 10),
    Setting("best ahead by 0.02", (0.5, 0.52), 3, 20),
    Setting("best ahead by 0.05", (0.5, 0.5, 0.55), 5, 20),
    Setting("best ahead by 0.1", (0.5, 0.5, 0.6), 5, 10),
    Setting("best ahead by 0.1, 10 sites that differ by 0.1", (0.4, 0.5, 0.5, 0.6), 10, 10, bias=0.1),
]


class Course(NamedTuple):
    """What became of one federation within the year; days are None where it did not happen."""

    false_before: int | None  # by the chance alone
    false_alarm: int | None
    found: int | None
    missed_daily: float  # share of arms whose usual 95 % interval ever missed
    missed_ever: float  # whose always-valid one did
    missed_difference: bool  # that of the difference of the first two arms


def _means(setting: Setting, trial: int) -> np.ndarray:
    """Sites differ, their average is what the setting says."""
    random = np.random.default_rng([7, trial])
    off = setting.bias * (random.random((setting.sites, len(setting.means))) - 0.5) * 2.0
    return np.asarray(setting.means) + off - off.mean(axis=0)


def courses(setting: Setting, trials: int, seed: int) -> list[Course]:
    """Play so many federations for a year."""
    worlds = [
        Problem.bernoulli(_means(setting, trial), f"complete:{setting.sites}", gossip="releases", edges_per_round="all")
        for trial in range(trials)
    ]
    times = [day * setting.per_day for day in range(1, DAYS + 1)]
    call = check_call(worlds, FedBatch(setting.epsilon), times[-1], trials, seed, times)
    found: list[Course] = []
    days: list[tuple[list[float], list[float]]] = []

    def see(_: int, trial: int, c: int, theta: Any, agents: Any) -> None:
        if c == 0:
            days.clear()
        days.append(_day(agents))
        if c == DAYS - 1:
            found.append(_course(setting, days))

    truths = [truths_of(it) for it in call.problems]
    cpu.run_trials(truths, call.compiled, call.times, call.trials, call.seed, 1, lambda _: None, on_estimates=see)
    return found


def _day(agents: Any) -> tuple[list[float], list[float]]:
    """The estimates and their variances, as a site with all bulletins has them; no arm, while one is unknown."""
    sites = len(agents)
    if not (agents["releases"] > 0).any(axis=0).all():
        return [], []
    theta, variance = [], []
    for k in range(agents["x_mean"].shape[1]):
        of_sites = np.where(agents["releases"][:, k] > 0, agents["deviation"][:, k] ** 2 * sites, 0.0)
        rows = [(float(x), float(v), 1.0 / sites) for x, v in zip(agents["x_mean"][:, k], of_sites, strict=True)]
        mean, sampling, missing, _ = random_effects(rows, [1] * sites, 1.0, 1.0 / sites, PRIOR)
        theta.append(mean)
        variance.append(sampling + missing)
    return theta, variance


def _course(setting: Setting, days: list[tuple[list[float], list[float]]]) -> Course:
    best = [k for k, mean in enumerate(setting.means) if mean == max(setting.means)]
    right = best[0] if len(best) == 1 else None
    false_before = false_alarm = found = None
    arms = range(len(setting.means))
    daily, ever, differs, apart = set[int](), set[int](), False, setting.means[1] - setting.means[0]
    for day, (theta, variance) in enumerate(days, 1):
        if not theta:
            continue
        for k in arms:
            off = abs(theta[k] - setting.means[k])
            if off > NORMAL_95 * sqrt(variance[k]):
                daily.add(k)
            if off > always_valid_radius(variance[k], 1.0, 0.05):
                ever.add(k)
        off = abs(theta[1] - theta[0] - apart)
        differs = differs or off > always_valid_radius(variance[0] + variance[1], 1.0, 0.05)
        leader = max(arms, key=lambda k: theta[k])
        others = [k for k in arms if k != leader]
        leads = [(theta[leader] - theta[k], variance[leader] + variance[k]) for k in others]
        if min(lead / sqrt(v) for lead, v in leads) < 2.3:
            continue  # not 99 %, whatever the others are
        if not is_sure(chances_of_highest(theta, [sqrt(v) for v in variance])[leader]):
            continue
        if leader != right and false_before is None:
            false_before = day
        if all(leads_for_good(lead, v, 1.0, len(others)) for lead, v in leads):
            if leader != right and false_alarm is None:
                false_alarm = day
            if leader == right and found is None:
                found = day
    return Course(false_before, false_alarm, found, len(daily) / len(arms), len(ever) / len(arms), differs)


def main() -> None:
    """Play all settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--federations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=31)
    args = parser.parse_args()
    for row in rows(args.federations, args.seed):
        print(row, flush=True)


def rows(federations: int, seed: int) -> Iterator[str]:
    """The table, line by line."""
    yield (
        "| arms | sites | patients per site and day | chance of 99 % for a wrong arm | settled for a wrong arm "
        "| settled for the best arm, median day | 95 % interval ever wrong | always-valid one | of a difference |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for setting in SETTINGS:
        found = courses(setting, federations, seed)
        n = len(found)
        before = sum(it.false_before is not None for it in found)
        alarms = sum(it.false_alarm is not None for it in found)
        right = [it.found for it in found if it.found is not None]
        is_open = len(set(setting.means)) == 1
        settled = "none is best" if is_open else f"{len(right) / n:.0%}" + (f", {median(right):.0f}" if right else "")
        daily, ever = sum(it.missed_daily for it in found) / n, sum(it.missed_ever for it in found) / n
        cells = [setting.words, f"{setting.sites}", f"{setting.per_day}", f"{before / n:.1%}", f"{alarms} of {n:,}"]
        cells += [settled, f"{daily:.0%}", f"{ever:.1%}", f"{sum(it.missed_difference for it in found) / n:.1%}"]
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
