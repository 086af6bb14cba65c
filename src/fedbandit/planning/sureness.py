"""Which sites would say that the question is settled: the answer of a live site's page, from simulated estimates.

The page gives its leader a chance of being the best arm, from normal beliefs with the deviations of the index
(``rules.propensity``), and says that it is sure from ``rules.belief.SURE`` on. Few cases need that integral: the chance
lies between those of a comparison with the closest rival, and of as many rivals as close as that one.
"""

from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.rules.batch import PRIOR_REWARDS, largest_reward_variance
from fedbandit.rules.belief import SURE, is_sure, widening
from fedbandit.rules.propensity import chances_of_highest

__all__ = ["deviations", "sure_of"]


def deviations(agents: Any, sites: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The standard deviations of these sites' estimates [site, arm], and which of them can judge all arms.

    As on the page of a live site (``agent.core.unequal_sites``), more where other sites have released less.
    """
    if "spread" not in agents.dtype.names:  # rewards in one place, or of one site
        return agents["deviation"][sites], np.ones(len(sites), bool)
    unseen = largest_reward_variance(0.0, 1.0) / PRIOR_REWARDS
    precision = np.where(agents["releases"] > 0, agents["precision"], 1.0 / unseen)
    own, share = 1.0 / precision[sites], 1.0 / len(precision)
    of_all = share * (1.0 / precision).mean(axis=0)  # sites count alike: sum of (V_j / N^2)
    wider = [[widening(v, share, all_) for v, all_ in zip(row, of_all, strict=True)] for row in own]
    return agents["spread"][sites] * np.array(wider), agents["num_unknown"][sites] == 0


def sure_of(best_arm: int, theta: NDArray[np.float64], deviation: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each site [site, arm] is sure, and right: its leader is the best arm."""
    rivals = [arm for arm in range(theta.shape[1]) if arm != best_arm]
    ahead = theta[:, best_arm, None] - theta[:, rivals]
    errors = np.hypot(deviation[:, best_arm, None], deviation[:, rivals])
    exact = np.where(ahead > 0.0, np.inf, -np.inf)
    closest = np.divide(ahead, errors, out=exact, where=errors > 0.0).min(axis=1)
    normal = NormalDist()
    sure = closest >= normal.inv_cdf(1.0 - (1.0 - SURE) / len(rivals))
    for site in np.flatnonzero(~sure & (closest >= normal.inv_cdf(SURE))):
        sure[site] = is_sure(chances_of_highest(theta[site].tolist(), deviation[site].tolist())[best_arm])
    return sure
