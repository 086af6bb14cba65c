"""Reads the terms of a federation, the section ``[federation]`` of a site's file; mistakes name its fields."""

import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from fedbandit.agent.core.context import Factors
from fedbandit.agent.core.evaluation import EvaluatedPolicy, Evaluation, OtherShares
from fedbandit.agent.core.federation import NO_FEATURES, Federation, check_trust
from fedbandit.agent.core.guardrails import Guardrails
from fedbandit.agent.core.words import Plan, Words
from fedbandit.checks import InvalidArgument, checked_counts
from fedbandit.policies import OFUL, FedLinear, FedLinUCB, LinTS, LinUCB, Policy, TreeLinUCB
from fedbandit.policies.registry import WrongPage, policy_from
from fedbandit.shares import Shares
from fedbandit.toml_files import Section

__all__ = ["POLICY_KINDS", "FederationSection", "read_terms"]

T = TypeVar("T")

POLICY_KINDS = ("fed_batch", "fed_ucb", "gossip_ucb")  # policies that a live site can play

_TAKE_FEATURES = (FedLinear, FedLinUCB, LinTS, LinUCB, OFUL, TreeLinUCB)
_WITH_FEATURES = {name for it in _TAKE_FEATURES for name in (it.kind, it.__name__)}

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


class _FederationShares(Section):
    control: str | None = None
    control_share: float = 0.0
    least_share: float = 0.0


class _GuardrailsSection(Section):
    reference: str
    worse_by: float


def _day(value: Any) -> Any:
    """TOML knows days."""
    return value.isoformat() if type(value) is date else value


class _WordsSection(Section):
    arm: str = "arm"
    reward: str = "reward"
    failure: str = ""


class _OtherShares(Section):
    context: dict[str, str]
    shares: dict[str, float | int]


class _EvaluatedPolicy(Section):
    name: str
    shares: dict[str, float | int] = Field(default_factory=dict[str, "float | int"])
    strata: list[_OtherShares] = Field(default_factory=list[_OtherShares])


class _EvaluationSection(Section):
    epsilon: float
    policies: list[_EvaluatedPolicy]
    largest_weight: int | None = None
    batch: int | None = None


class _PlanSection(Section):
    question: str = ""
    starts: Annotated[str, BeforeValidator(_day)] = ""
    patients: int | None = None
    stops: str = ""


class FederationSection(Section):
    """The section, of which only the types are checked."""

    name: str
    max_agents: int | None = None
    arms: list[str]
    rewards: list[float]
    reward_window: Annotated[float, BeforeValidator(_duration)] = 0.0
    default_reward: float | None = None
    counts: str | None = None
    max_decisions_per_day: float | None = None
    largest_share: float | None = None
    shares: _FederationShares | None = None
    guardrails: _GuardrailsSection | None = None
    context: dict[str, Any] | None = None
    evaluation: _EvaluationSection | None = None
    words: _WordsSection = _WordsSection()
    plan: _PlanSection = _PlanSection()
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
    if str(given["kind"]) in _WITH_FEATURES:
        accepted = f"one of {', '.join(POLICY_KINDS)}, or module:Class"
        raise InvalidArgument("federation.policy.kind", given["kind"], accepted, NO_FEATURES)
    try:
        if ":" in str(given["kind"]):
            check_trust(str(given["kind"]), trusted)  # before its code is loaded
    except InvalidArgument as error:
        raise error.at("federation") from None
    return policy_from("federation.policy", given, POLICY_KINDS, folder=folder)


def _terms(section: FederationSection, policy: Policy, trusted: str) -> Federation:
    low, high = section.rewards
    given = {} if section.largest_share is None else {"largest_share": section.largest_share}
    return Federation(
        name=section.name,
        arms=tuple(section.arms),
        low=low,
        high=high,
        policy=policy,
        trusted=trusted,
        reward_window=section.reward_window,
        default_reward=section.default_reward,
        counts=None if section.counts is None else checked_counts("counts", section.counts),
        max_decisions_per_day=section.max_decisions_per_day,
        shares=_shares(section.shares),
        guardrails=_guardrails(section.guardrails),
        context=None if section.context is None else Factors.of(section.context),
        max_agents=section.max_agents,
        evaluation=_evaluation(section.evaluation),
        words=_checked_at("words", lambda: Words(**section.words.model_dump())),
        plan=_checked_at("plan", lambda: Plan(**section.plan.model_dump())),
        **given,
    )


def _checked_at(place: str, make: Callable[[], T]) -> T:
    """What ``make`` gives; its mistakes name the field as in the file."""
    try:
        return make()
    except InvalidArgument as error:
        raise error.at(place) from None


def _shares(section: _FederationShares | None) -> Shares | None:
    if section is None:
        return None
    return _checked_at("shares", lambda: Shares(section.control, section.control_share, section.least_share))


def _evaluation(section: _EvaluationSection | None) -> Evaluation | None:
    if section is None:
        return None
    policies = tuple(
        EvaluatedPolicy(
            it.name,
            tuple(it.shares.items()),
            tuple(OtherShares(tuple(other.context.items()), tuple(other.shares.items())) for other in it.strata),
        )
        for it in section.policies
    )
    given = {"largest_weight": section.largest_weight, "batch": section.batch}
    numbers = {name: value for name, value in given.items() if value is not None}
    return _checked_at("evaluation", lambda: Evaluation(section.epsilon, policies, **numbers))


def _guardrails(section: _GuardrailsSection | None) -> Guardrails | None:
    if section is None:
        return None
    try:
        return Guardrails(section.reference, section.worse_by)
    except InvalidArgument as error:
        raise error.at("guardrails") from None
