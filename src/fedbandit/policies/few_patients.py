"""Checks how many decisions a federation expects: too few for its epsilon are told in words, for simulator and site."""

import warnings
from math import ceil, floor, log10
from typing import Any

from fedbandit.checks import InvalidArgument, whole_number
from fedbandit.policies.protocol import Setting
from fedbandit.rules.batch import break_even_decisions, break_even_epsilon

__all__ = ["FewPatientsWarning", "check_first_batch", "too_few_patients", "warn_of_few_patients"]


class FewPatientsWarning(UserWarning):
    """With so few decisions, noise outweighs what agents learn from each other: each does better alone."""


def check_first_batch(policy: Any) -> None:
    """Refuse a first batch and expected decisions that are no whole numbers, or both: one follows from the other."""
    for name, most in (("first_batch", 10**6), ("expected_decisions", 10**12)):
        if getattr(policy, name) is not None:
            object.__setattr__(policy, name, whole_number(name, getattr(policy, name), 1, most))
    if policy.first_batch is not None and policy.expected_decisions is not None:
        raise InvalidArgument("first_batch", policy.first_batch, "left out: it follows from expected_decisions")


def too_few_patients(expected_decisions: int | None, epsilon: float, num_agents: int, num_arms: int) -> str | None:
    """What would do instead, in words; None if they suffice, are unknown, or there is one agent."""
    if expected_decisions is None or num_agents == 1:
        return None
    break_even = break_even_decisions(epsilon, num_agents, num_arms)
    if expected_decisions >= break_even:
        return None
    decisions = ceil(_rounded_up(break_even))
    enough = _rounded_up(break_even_epsilon(expected_decisions, num_agents, num_arms))
    return (
        f"{expected_decisions:,} decisions at each of {num_agents} sites are too few for epsilon {epsilon:g} and "
        f"{num_arms} arms: noise outweighs what the sites learn from each other, and a site that plays UCB1 alone is "
        f"expected to do better. About {decisions:,} decisions at each site would do, or an epsilon of {enough:g} "
        "(docs/few-patients.md)."
    )


def warn_of_few_patients(expected_decisions: int | None, epsilon: float, setting: Setting) -> None:
    """Warn the caller of ``simulate``."""
    if said := too_few_patients(expected_decisions, epsilon, setting.num_agents, setting.num_arms):
        warnings.warn(said, FewPatientsWarning, stacklevel=6)


def _rounded_up(value: float) -> float:
    """To two significant digits."""
    places = 1 - floor(log10(value))
    return round(ceil(value * 10.0**places) / 10.0**places, max(places, 0))
