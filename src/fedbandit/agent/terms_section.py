"""The section ``[federation]`` of a site's file: the terms, which all sites share."""

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.own_policy import check_trust
from fedbandit.checks import InvalidArgument, checked_counts
from fedbandit.outside.policies import WrongPage, policy_from
from fedbandit.policies import Policy
from fedbandit.shares import Shares
from fedbandit.toml_files import Section

__all__ = ["POLICY_KINDS", "FederationSection", "read_terms"]

POLICY_KINDS = ("fed_batch", "fed_ucb", "gossip_ucb")  # policies that a live site can play
_DURATION = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?) ?(days?|d|hours?|h|minutes?|min|seconds?|s)", re.ASCII)
_SECONDS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def _duration(value: Any) -> float:
    """Seconds; 0 is the only number without a unit."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        return float(found[1]) * _SECONDS[found[2][0]]
    if type(value) in (int, float) and value == 0:
        return 0.0
    raise InvalidArgument("", value, "0, or a number of days, hours, minutes or seconds, such as '30 days' or '90 s'")


class _Shares(Section):
    control: str | None = None
    control_share: float = 0.0
    least_share: float = 0.0


class FederationSection(Section):
    """The section, of which only the types are checked."""

    name: str
    num_agents: int | None = None
    max_agents: int | None = None
    arms: list[str]
    rewards: list[float]
    reward_window: Annotated[float, BeforeValidator(_duration)] = 0.0
    default_reward: float | None = None
    counts: str | None = None
    max_decisions_per_day: float | None = None
    shares: _Shares | None = None
    policy: dict[str, Any] = Field(default_factory=dict[str, Any])


def read_terms(section: FederationSection, trusted: str, folder: Path) -> tuple[Federation | None, list[str]]:
    """The terms, or what is wrong with them; mistakes name the fields as in the file.

    ``trusted``: code from outside that the site agrees to run; its files are looked for in ``folder``.
    """
    mistakes: list[str] = []
    policy = None
    if len(section.rewards) != 2 or not section.rewards[0] < section.rewards[1]:
        accepted = "two numbers, the lowest and the highest reward"
        mistakes.append(str(InvalidArgument("federation.rewards", section.rewards, accepted)))
    try:
        policy = _policy(section, trusted, folder)
    except InvalidArgument as error:
        mistakes.append(str(error))
    if policy is None or mistakes:
        return None, mistakes
    try:
        return _terms(section, policy, trusted), []
    except WrongPage as error:
        return None, [str(error)]
    except InvalidArgument as error:
        place = {"low": "rewards[0]", "high": "rewards[1]"}.get(error.argument, error.argument)
        return None, [str(InvalidArgument(f"federation.{place}", error.value, error.accepted, error.hint))]


def _policy(section: FederationSection, trusted: str, folder: Path) -> Policy:
    given = {"kind": POLICY_KINDS[0]} | section.policy
    try:
        if ":" in str(given["kind"]):
            check_trust(str(given["kind"]), trusted)  # before its code is loaded
    except InvalidArgument as error:
        raise error.at("federation") from None
    return policy_from("federation.policy", given, POLICY_KINDS, folder=folder)


def _terms(section: FederationSection, policy: Policy, trusted: str) -> Federation:
    low, high = section.rewards
    return Federation(
        section.name,
        section.num_agents,
        tuple(section.arms),
        low,
        high,
        policy,
        trusted,
        section.reward_window,
        section.default_reward,
        None if section.counts is None else checked_counts("counts", section.counts),
        section.max_decisions_per_day,
        _shares(section.shares),
        section.max_agents,
    )


def _shares(section: _Shares | None) -> Shares | None:
    if section is None:
        return None
    try:
        return Shares(section.control, section.control_share, section.least_share)
    except InvalidArgument as error:
        raise error.at("shares") from None
