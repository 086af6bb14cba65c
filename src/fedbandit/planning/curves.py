"""Curves of a forecast against patients per site, with intervals: the lead, the sureness, what patients get.

Sites of a trial share their luck, so trials are what is counted. An interval is Wilson's, for as many independent sites
as would have the variance that is seen between trials. When a curve reaches the certainty is read off the curve, and
its interval off the band. That covers with few trials, too (tests/test_plan.py).
"""

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from fedbandit.planning.question import CERTAINTY

__all__ = ["Curve", "Share", "crossing", "share_of"]

_Z = 1.959964  # of 95 %


@dataclass(frozen=True, eq=False)
class Share:
    """The share of sites of which something is true, against patients per site, with its 95 % band."""

    patients: NDArray[np.float64]  # per site
    mean: NDArray[np.float64]  # over sites and trials
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def last(self) -> int:
        """Patients per site that were simulated."""
        return int(self.patients[-1])

    @property
    def reached(self) -> float:
        """Patients per site from which on the share is the certainty; infinite: not in this run."""
        return crossing(self.patients, self.mean)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of ``reached``."""
        return crossing(self.patients, self.high), crossing(self.patients, self.low)

    def at(self, patients: float) -> float:
        """The share after so many patients per site."""
        return float(np.interp(patients, self.patients, self.mean))

    def interval_at(self, patients: float) -> tuple[float, float]:
        """The 95 % interval of ``at``."""
        low, high = (float(np.interp(patients, self.patients, side)) for side in (self.low, self.high))
        return low, high


@dataclass(frozen=True, eq=False)
class Curve:
    """One way to act.

    * ``kept``: sites at which the best arm leads for good: from then on until the end of the run.
    * ``leads``: sites at which it leads at that time; arms with the same estimate share the lead.
    * ``sure``: sites whose own answer is the best arm and settled, as a live site would say it.
    * ``worse``: patients per site so far who got an arm that is worse on average over all sites.
    * ``successes``: so far, of 100 patients, in expectation.
    """

    patients: NDArray[np.float64]  # per site
    kept: Share
    leads: Share
    sure: Share
    worse: NDArray[np.float64]
    successes: NDArray[np.float64]
    trials: int

    @property
    def last(self) -> int:
        """Patients per site that were simulated."""
        return self.kept.last

    @property
    def found(self) -> float:
        """Patients per site until the best arm leads for good at 95 % of the sites; infinite: not in this run."""
        return self.kept.reached

    @property
    def known(self) -> float:
        """Patients per site until 95 % of the sites are sure of it; infinite: not in the run of ``sure``."""
        return self.sure.reached

    def worse_at(self, patients: float) -> float:
        """Patients per site, of so many, who get a worse arm."""
        return float(np.interp(patients, self.patients, self.worse))

    def successes_at(self, patients: float) -> float:
        """Successes of 100, of so many patients per site."""
        return float(np.interp(patients, self.patients, self.successes))


def share_of(values: NDArray[np.float64], patients: NDArray[np.float64]) -> Share:
    """From values between 0 and 1 [trial, site, time]."""
    trials, sites = values.shape[:2]
    by_trial = values.mean(axis=1)
    mean = by_trial.mean(axis=0)
    between = by_trial.var(axis=0, ddof=1) / trials if trials > 1 else np.zeros_like(mean)
    alike = mean * (1.0 - mean)
    worth = np.divide(alike, between, out=np.full_like(mean, trials), where=between > 1e-15)
    worth = np.clip(worth, trials, trials * sites)  # independent sites
    wide = 1.0 + _Z * _Z / worth
    middle = (mean + _Z * _Z / (2.0 * worth)) / wide
    half = _Z * np.sqrt(alike / worth + (_Z / (2.0 * worth)) ** 2) / wide
    return Share(patients, mean, middle - half, middle + half)


def crossing(patients: NDArray[np.float64], share: NDArray[np.float64]) -> float:
    """Where a share reaches the certainty and stays, between two times evenly in log; infinite if it never does."""
    below = np.flatnonzero(share < CERTAINTY - 1e-12)
    if len(below) == 0:
        return float(patients[0])
    last = int(below[-1])
    if last + 1 == len(share):
        return inf
    part = (CERTAINTY - share[last]) / (share[last + 1] - share[last])
    return float(patients[last] * (patients[last + 1] / patients[last]) ** part)
