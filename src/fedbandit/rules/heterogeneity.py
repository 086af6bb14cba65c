"""How much sites differ in the mean of an arm: Cochran's Q, I^2 and tau^2, as a forest plot shows them.

Unlike ``releases.between_sites`` this has no prior: it describes what is there.
"""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Heterogeneity", "heterogeneity"]


class Heterogeneity(NamedTuple):
    """Of the means of some sites.

    * ``tau2``: the variance of their true means around a common one, by the method of moments (DerSimonian and Laird
      1986), at least 0
    * ``i2``: the share of the variation between their estimates that is more than chance (Higgins and Thompson 2002)
    """

    sites: int
    tau2: float
    i2: float


def heterogeneity(means: Sequence[float], variances: Sequence[float]) -> Heterogeneity | None:
    """None of fewer than two sites.

    With w_j = 1 / V_j and the mean weighted by them, Q = sum w_j (x_j - mean)^2 has the expectation n - 1 if nothing
    but chance makes sites differ; tau^2 = (Q - (n - 1)) / (sum w_j - sum w_j^2 / sum w_j), I^2 = (Q - (n - 1)) / Q.
    """
    if len(means) < 2:
        return None
    weights = [1.0 / v for v in variances]
    total = sum(weights)
    mean = sum(w * x for w, x in zip(weights, means, strict=True)) / total
    q = sum(w * (x - mean) ** 2 for w, x in zip(weights, means, strict=True))
    excess = max(q - (len(means) - 1), 0.0)
    scale = total - sum(w * w for w in weights) / total
    return Heterogeneity(len(means), excess / scale, excess / q if q > 0.0 else 0.0)
