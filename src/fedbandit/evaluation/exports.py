"""Writes the decisions that bear on a policy as files of Open Bandit Pipeline and of Vowpal Wabbit."""

import re
from pathlib import Path
from typing import Any

from fedbandit.evaluation.estimates import Used, expectations, usable
from fedbandit.evaluation.log import Log
from fedbandit.evaluation.target import Target
from fedbandit.extras import needs

__all__ = ["bandit_feedback", "vowpal_wabbit", "write_obp", "write_vowpal_wabbit"]


def bandit_feedback(
    log: Log, policy: Target, reward_range: tuple[float, float] = (0.0, 1.0), default_reward: float | None = None
) -> dict[str, Any]:
    """The ``bandit_feedback`` of Open Bandit Pipeline, as arrays.

    * ``n_rounds``, ``n_actions``, ``action``, ``reward``, ``pscore``; ``position``: 0
    * ``context``: of each decision 1 for the arms that were eligible, else 0; then the same for its level of each
      factor, in the order of ``Log.factors``
    * ``action_dist``: the policy, [n_rounds, n_actions, 1]
    * ``estimated_rewards_by_reg_model``: what the doubly robust estimate of ``evaluate`` goes by, of the same shape
    """
    needs("the format of Open Bandit Pipeline", "sim")
    import numpy as np

    used, arms = usable(log, policy, default_reward), len(log.arms)
    rounds = len(used.arms)
    levels = [(name, level) for name, levels in log.factors.items() for level in levels]
    context, chances = np.zeros((rounds, arms + len(levels))), np.array(used.chances)
    for row, eligible, known in zip(context, used.eligible, used.contexts, strict=True):
        row[slice(arms) if eligible is None else list(eligible)] = 1.0
        row[[arms + levels.index(it) for it in known]] = 1.0
    return {
        "n_rounds": rounds,
        "n_actions": arms,
        "context": context,
        "action": np.array(used.arms),
        "position": np.zeros(rounds, int),
        "reward": np.array(used.rewards),
        "pscore": np.array(used.propensities),
        "action_dist": chances[:, :, None],
        "estimated_rewards_by_reg_model": np.array([*expectations(used, *reward_range)])[:, :, None],
    }


def write_obp(path: Path, feedback: dict[str, Any]) -> None:
    """As an ``.npz`` file, which ``numpy.load`` reads: a dictionary of arrays."""
    import numpy as np

    with path.open("wb") as file:
        np.savez_compressed(file, **feedback)


_NO_FEATURE = re.compile(r"[\s:|]|[^\x20-\x7e]")
"""What the name of a feature cannot have."""


def vowpal_wabbit(used: Used) -> str:
    """Lines for ``vw --cb``: ``action:cost:probability |``, with actions from 1, and minus the reward as the cost.

    Levels of the context follow as features, such as ``age=over_65``. Where not all arms were eligible, the others that
    were come before them, without a cost.
    """
    lines: list[str] = []
    rows = zip(used.arms, used.rewards, used.propensities, used.eligible, used.contexts, strict=True)
    for arm, reward, propensity, eligible, context in rows:
        others = "".join(f" {k + 1}" for k in eligible or () if k != arm)
        features = "".join(f" {_NO_FEATURE.sub('_', f'{name}={level}')}" for name, level in context)
        lines.append(f"{arm + 1}:{0.0 - reward!r}:{propensity!r}{others} |{features}\n")
    return "".join(lines)


def write_vowpal_wabbit(path: Path, used: Used) -> None:
    """As a text file."""
    path.write_text(vowpal_wabbit(used), encoding="ascii")
