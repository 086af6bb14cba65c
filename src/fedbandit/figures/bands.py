"""Bands over trials: how far they lie apart, or how well their mean is known."""

from math import atan, cos, pi, sin, sqrt
from typing import Any, Literal, get_args

import numpy as np

from fedbandit.checks import InvalidArgument, closest

__all__ = ["Band", "about_band", "checked_band", "limits"]

Band = Literal["minmax", "quantiles", "standard error", "confidence", "none"]

_TEXTS = {
    "minmax": "smallest to largest of {trials} trials",
    "quantiles": "10 % to 90 % of {trials} trials",
    "standard error": "standard error of the mean of {trials} trials",
    "confidence": "95 % confidence interval of the mean of {trials} trials",
}


def checked_band(band: Any) -> Band:
    """The band, or an error."""
    known = get_args(Band)
    if band not in known:
        raise InvalidArgument("band", band, f"one of {', '.join(known)}", closest(str(band), known))
    return band


def about_band(band: Band, trials: int, name: str = "band") -> str:
    """A caption: what the band spans."""
    if band == "none":
        return f"{trials} trials"
    return f"{name}: {_TEXTS[band].format(trials=trials)}" if trials > 1 else f"one trial, no {name}"


def limits(per_trial: Any, band: Band) -> tuple[Any, Any]:
    """The lower and the upper end, over the first axis."""
    if band == "minmax":
        return per_trial.min(axis=0), per_trial.max(axis=0)
    if band == "quantiles":
        return np.quantile(per_trial, 0.1, axis=0), np.quantile(per_trial, 0.9, axis=0)
    trials, mean = len(per_trial), per_trial.mean(axis=0)
    if band == "none" or trials == 1:
        return mean, mean
    error = per_trial.std(axis=0, ddof=1) / sqrt(trials) * (1.0 if band == "standard error" else _student(trials - 1))
    return mean - error, mean + error


def _student(freedom: int) -> float:
    """So many standard errors on either side hold 95 %: Student's distribution, by bisection."""
    freedom = min(freedom, 1_000)  # from there on it changes by less than 0.2 %
    low, high = 1.9, 13.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 0.95 else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """P(|T| < t) with whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    theta = atan(t / sqrt(freedom))
    odd = freedom % 2
    term = cos(theta) if odd else 1.0
    total = 0.0
    for k in range(odd, freedom - 1, 2):  # powers of the cosine
        total += term
        term *= cos(theta) ** 2 * (k + 1) / (k + 2)
    return 2 / pi * (theta + sin(theta) * total) if odd else sin(theta) * total
