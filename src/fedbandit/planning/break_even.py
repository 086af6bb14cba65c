"""From how many patients per site features pay: FedLinear beside FedBatch, which gives all patients the same arm.

With features FedBatch's regret grows with every patient, since no arm is best for all. FedLinear learns more numbers
behind the same noise, so it loses more at first. Where its regret so far is the smaller one for good, features pay.
Rewards are 0 or 1. Features are uniform in a ball; how much they matter is drawn (``features.drawn_theta``).
"""

from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import number_above, number_between, whole_number
from fedbandit.policies import FedBatch, FedLinear
from fedbandit.simulation.run import OnProgress, simulate
from fedbandit.world.features import MOST_EFFECT, drawn_theta
from fedbandit.world.graph import Graph
from fedbandit.world.problem import Problem

MOST_FEATURES, MOST_PATIENTS = 20, 100_000
_CHECKPOINTS = 60


@dataclass(frozen=True, eq=False)
class FeaturesPay:
    """Regret per site so far, in successes, by patients per site.

    ``told``: FedLinear, ``untold``: FedBatch, each of every trial; ``patients``: per site.
    """

    features: int
    effect: float
    patients: NDArray[np.float64]  # [time]
    told: NDArray[np.float64]  # [trial, time]
    untold: NDArray[np.float64]

    @property
    def ratio(self) -> NDArray[np.float64]:
        """Of the means, by time: below 1 features have paid."""
        return self.told.mean(axis=0) / self.untold.mean(axis=0)

    @property
    def from_patients(self) -> float:
        """Patients per site from which on they pay, until the end of the run; infinite: not in this run."""
        return _last_crossing(self.patients, self.told.mean(axis=0) - self.untold.mean(axis=0))

    @property
    def interval(self) -> tuple[float, float]:
        """The range of ``from_patients`` if the mean difference is two standard errors smaller, or larger."""
        apart = self.told - self.untold
        error = 2.0 * apart.std(axis=0, ddof=1) / len(apart) ** 0.5
        low, high = (_last_crossing(self.patients, apart.mean(axis=0) + side * error) for side in (-1.0, 1.0))
        return low, high

    def at(self, patients: float) -> tuple[float, float, float, float]:
        """After so many patients per site: the mean and the worst trial of FedLinear, then of FedBatch."""
        told, untold = self._interpolated(self.told, patients), self._interpolated(self.untold, patients)
        return sum(told) / len(told), max(told), sum(untold) / len(untold), max(untold)

    def _interpolated(self, trials: NDArray[np.float64], patients: float) -> list[float]:
        rows: list[list[float]] = trials.tolist()
        return [float(np.interp(patients, self.patients, row)) for row in rows]

    @property
    def words(self) -> str:
        """The answer, in sentences."""
        number = f"{self.features} feature{'s' * (self.features != 1)}"
        what = f"With {number} that move an arm's chance of success by up to {self.effect:g}, choosing by them"
        low, high = (_rounded(end, self.patients[-1]) for end in self.interval)
        answer = f"loses less than one arm for all patients from about {_rounded(self.from_patients, 0)} patients per "
        answer += f"site on ({low} to {high})."
        if self.from_patients == inf:
            answer = f"has not paid after {self.patients[-1]:,.0f} patients per site."
        told, worst, untold, other = self.at(self.patients[-1])
        after = f"After {self.patients[-1]:,.0f} it has lost {told:,.0f} successes per site, and {worst:,.0f} in the "
        after += f"worst of {len(self.told)} simulated federations; one arm for all {untold:,.0f}, and {other:,.0f}."
        return f"{what} {answer} {after} Live sites do not take features: simulations alone do (FedLinear)."


def _rounded(patients: float, most: float) -> str:
    return f"more than {most:,.0f}" if patients == inf else f"{round(patients, -1 if patients < 1000 else -2):,.0f}"


def _last_crossing(patients: NDArray[np.float64], apart: NDArray[np.float64]) -> float:
    """Where a curve is at most 0 from then on."""
    above = np.flatnonzero(apart > 0.0)
    if len(above) == 0:
        return float(patients[0])
    i = int(above[-1])
    if i == len(patients) - 1:
        return inf
    part = apart[i] / (apart[i] - apart[i + 1])
    return float(patients[i] + part * (patients[i + 1] - patients[i]))


def world_with_features(
    sites: int, arms: int, features: int, effect: float, graph: str | Graph, seed: tuple[int, int]
) -> Problem:
    """One that is drawn: as the first lines of this file say."""
    theta = drawn_theta(sites, arms, features, effect, seed)
    return Problem.linear(theta, graph, f"ball:{features}", gossip="releases")


def features_pay(
    features: int,
    effect: float,
    epsilon: float,
    sites: int = 10,
    arms: int = 4,
    graph: str | Graph = "path",
    patients: int = 20_000,
    protects: Literal["reward", "record"] = "reward",
    trials: int = 12,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> FeaturesPay:
    """Simulate both with so many features, without the constant, and so many patients per site.

    ``effect``: by how much features move the mean of an arm at most, up and down; ``epsilon``, ``protects``: see
    ``FedLinear``.
    """
    features = whole_number("features", features, 1, MOST_FEATURES)
    effect = number_between("effect", effect, 0.0, MOST_EFFECT)
    epsilon = number_above("epsilon", epsilon, 0.0, allow_inf=True)
    sites, arms = whole_number("sites", sites, 2, 1000), whole_number("arms", arms, 2, 100)
    patients = whole_number("patients", patients, 100, MOST_PATIENTS)
    trials = whole_number("trials", trials, 2, 10_000)
    named: Any = f"{graph}:{sites}" if isinstance(graph, str) and ":" not in graph else graph
    worlds = [world_with_features(sites, arms, features, effect, named, (seed, trial)) for trial in range(trials)]
    times = np.unique(np.geomspace(min(50, patients), patients, _CHECKPOINTS).astype(int)).tolist()
    policies = [FedLinear(epsilon, protects=protects), FedBatch(epsilon)]
    result = simulate(worlds, policies, patients, trials, seed=seed, checkpoints=times, progress=on_progress or False)
    told, untold = result.mean_regret.transpose("policy", "trial", "time").values
    return FeaturesPay(features, effect, np.array(times, float), told, untold)
