"""Evaluates a policy on a log: three estimates with intervals, how much of the log bears on it, and what to beware of.

A decision is used if its reward and its propensity are known and more than one arm was possible. Which ones are left
out then depends on what was known before the arm was drawn, and not on the outcome.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import fsum, sqrt
from operator import mul
from statistics import NormalDist

from fedbandit.checks import InvalidArgument, finite_number, number_between
from fedbandit.evaluation.log import DETERMINISTIC, Context, Log, LoggedDecision
from fedbandit.evaluation.target import Target, target
from fedbandit.rules import off_policy

__all__ = ["FEW", "Estimate", "Evaluation", "Used", "by_stratum", "evaluate", "usable"]

FEW = 50.0
"""Effective decisions below which Student's interval is not to be relied on."""

PRIOR = 4.0
"""Rewards that an arm's mean over all counts as, where its mean in one context is expected."""

_MANY_MISSING = 0.05

CANCELLED, NO_REWARD, NOT_KEPT = "were cancelled", "have no reward", "have a reward that the log does not hold"
UNKNOWN, CERTAIN, NOT_FOR = "have no known propensity", "were certain", "could have had no arm of the policy"


@dataclass(frozen=True)
class Estimate:
    """What the policy gains per decision: ``value``, and an interval from ``low`` to ``high``.

    ``interval``: how it was made, ``empirical Bernstein`` or ``Student``.
    """

    name: str
    value: float
    low: float
    high: float
    interval: str


@dataclass(frozen=True)
class Evaluation:
    """A policy on a log.

    * ``estimates``: inverse propensity scoring (``ips``), the same self-normalised (``snips``), doubly robust (``dr``)
    * ``logged``: what the same decisions gained as they were made
    * ``decisions``: how many were used; ``left_out``: how many were not, and why
    * ``effective``: the effective sample size; ``mean_weight``: near 1 if the log could have given what the policy
      gives; ``largest_weight``: of one decision; ``least_propensity``: of those in which the policy agrees
    * ``warnings``: what to know before any of it is relied on
    """

    policy: str
    estimates: tuple[Estimate, ...]
    logged: Estimate
    decisions: int
    left_out: dict[str, int]
    effective: float
    mean_weight: float
    largest_weight: float
    least_propensity: float
    warnings: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Estimate:
        return next(it for it in self.estimates if it.name == name)


@dataclass(frozen=True)
class Used:
    """The decisions of a log that bear on a policy, in columns; and why the others do not.

    ``chances``: what the policy gives to such a request, by arm.
    """

    arms: list[int] = field(default_factory=list[int])
    eligible: list[tuple[int, ...] | None] = field(default_factory=list[tuple[int, ...] | None])
    rewards: list[float] = field(default_factory=list[float])
    propensities: list[float] = field(default_factory=list[float])
    chances: list[tuple[float, ...]] = field(default_factory=list[tuple[float, ...]])
    contexts: list[Context] = field(default_factory=list[Context])
    left_out: Counter[str] = field(default_factory=Counter[str])
    certain: Counter[str] = field(default_factory=Counter[str])  # why, of those that were

    @property
    def weights(self) -> list[float]:
        """pi(a) / p of each."""
        rows = zip(self.chances, self.arms, self.propensities, strict=True)
        return [chances[arm] / p for chances, arm, p in rows]


def usable(log: Log, policy: Target, default_reward: float | None = None) -> Used:
    """The decisions that bear on a policy; an error that says why if there are none.

    ``default_reward``: what a decision gained that counted without a reward; None: those are left out.
    """
    used, among = Used(), dict[tuple[tuple[int, ...] | None, Context], tuple[float, ...] | None]()
    for it in log.decisions:
        reward = default_reward if it.counted and not it.rewarded else it.reward
        asked = it.eligible, it.context
        if asked not in among:
            among[asked] = policy.among(*asked)
        chances = among[asked]
        why = _why_not(it, reward, chances, len(log.arms))
        if why is not None or reward is None or it.propensity is None or chances is None:
            used.left_out[why or ""] += 1
            if why == CERTAIN and it.deterministic is not None:
                used.certain[it.deterministic] += 1
            continue
        used.arms.append(it.arm)
        used.eligible.append(it.eligible)
        used.rewards.append(reward)
        used.propensities.append(it.propensity)
        used.chances.append(chances)
        used.contexts.append(it.context)
    if not used.arms:
        raise _NothingToTell(
            "log", "; ".join(_in_words(used.left_out)), "one with decisions that can be used", _hint(used)
        )
    return used


def _why_not(it: LoggedDecision, reward: float | None, chances: Sequence[float] | None, num_arms: int) -> str | None:
    if it.cancelled:
        return CANCELLED
    if reward is None:
        return NOT_KEPT if it.rewarded else NO_REWARD
    if it.propensity is None:
        return UNKNOWN
    if it.propensity >= 1.0 and (num_arms if it.eligible is None else len(it.eligible)) > 1:
        return CERTAIN
    return NOT_FOR if chances is None else None


def _in_words(left_out: Counter[str]) -> Iterator[str]:
    for why, count in left_out.most_common():
        yield f"{count:,} decisions {why}" if count != 1 else f"1 decision {_SINGULAR[why]}"


_SINGULAR = {
    CANCELLED: "was cancelled",
    NO_REWARD: "has no reward",
    NOT_KEPT: "has a reward that the log does not hold",
    UNKNOWN: "has no known propensity",
    CERTAIN: "was certain",
    NOT_FOR: "could have had no arm of the policy",
}


def _hint(used: Used) -> str:
    """What would give a log that can be used."""
    return {
        NOT_KEPT: "Set keep_rewards = true in [decisions], or write the rewards into the lines yourself.",
        CERTAIN: "Whoever gives an arm with certainty cannot learn what another would have done: set a least_share in "
        "the terms, or use the Thompson index.",
    }.get(used.left_out.most_common(1)[0][0], "")


def evaluate(
    log: Log,
    policy: Target | str,
    level: float = 0.95,
    reward_range: tuple[float, float] = (0.0, 1.0),
    default_reward: float | None = None,
) -> Evaluation:
    """What a policy would have gained per decision, with intervals of this level.

    ``policy``: a ``Target``, or a text that ``target`` reads, such as ``always insulin``. ``reward_range``: the lowest
    and highest reward that there can be. ``default_reward``: see ``usable``.
    """
    low, high = (finite_number(f"reward_range[{k}]", x) for k, x in enumerate(reward_range))
    if not low < high:
        raise InvalidArgument("reward_range", reward_range, "two numbers, the lower one first")
    level = number_between("level", level, 0.5, 0.9999)
    if isinstance(policy, str):
        policy = target(policy, log.arms, log.factors)
    used = usable(log, policy, default_reward)
    for reward in (min(used.rewards), max(used.rewards)):
        if not low <= reward <= high:
            hint = "Say which range rewards have." if reward_range == (0.0, 1.0) else ""
            raise InvalidArgument("reward", reward, f"from {low:g} to {high:g}", hint)
    weights = used.weights
    if not any(weights):
        gives = [log.arms[k] for k in policy.given]
        raise _NothingToTell("policy", policy.name, "one that gives arms that the log has given", f"It gives {gives}.")
    return Evaluation(
        policy.name,
        tuple(_estimates(used, weights, low, high, level)),
        _as_logged(used.rewards, (low, high), level),
        len(weights),
        dict(used.left_out),
        off_policy.effective_size(weights),
        off_policy.mean(weights),
        max(weights),
        min(p for p, w in zip(used.propensities, weights, strict=True) if w > 0.0),
        tuple(_warnings(used, weights)),
    )


def by_stratum(
    log: Log,
    policy: Target | str,
    level: float = 0.95,
    reward_range: tuple[float, float] = (0.0, 1.0),
    default_reward: float | None = None,
) -> dict[Context, Evaluation]:
    """The same for each context of the log by itself; without those in which nothing can be told of the policy."""
    if isinstance(policy, str):
        policy = target(policy, log.arms, log.factors)
    found: dict[Context, Evaluation] = {}
    for context in sorted({it.context for it in log.decisions}):
        part = Log(log.arms, tuple(it for it in log.decisions if it.context == context))
        with suppress(_NothingToTell):
            found[context] = evaluate(part, policy, level, reward_range, default_reward)
    return found


class _NothingToTell(InvalidArgument):
    """No decision bears on the policy."""


def _estimates(used: Used, weights: list[float], low: float, high: float, level: float) -> Iterator[Estimate]:
    rewards, alpha = used.rewards, (1.0 - level) / 2.0
    width = high - low
    # From 0 to 1 and, for the upper bound, from the other end: w (1 - r) is never negative either.
    gains = [w * (r - low) / width for w, r in zip(weights, rewards, strict=True)]
    losses = [w * (high - r) / width for w, r in zip(weights, rewards, strict=True)]
    least, most = off_policy.least_mean(gains, alpha), 1.0 - off_policy.least_mean(losses, alpha)
    ips = off_policy.mean(off_policy.weighted(weights, rewards))
    yield Estimate("ips", ips, low + width * least, low + width * most, "empirical Bernstein")
    snips, error = off_policy.self_normalised(weights, rewards), off_policy.deviation_of_ratio(weights, rewards)
    degrees = off_policy.effective_size(weights) - 1.0
    yield _student("snips", snips, error, degrees, (low, high), level)
    scores = off_policy.advantages(weights, rewards, *_guesses(used, low, high))
    value, error = off_policy.mean(scores), off_policy.deviation_of_mean(scores)
    yield _student("dr", value, error, degrees, (low, high), level)


def _as_logged(rewards: list[float], reward_range: tuple[float, float], level: float) -> Estimate:
    value, error = off_policy.mean(rewards), off_policy.deviation_of_mean(rewards)
    return _student("logged", value, error, len(rewards) - 1.0, reward_range, level)


def expectations(used: Used, low: float, high: float) -> Iterator[list[float]]:
    """What was expected of each arm before each decision: the mean of the rewards that it had in earlier ones.

    So no guess knows its own reward, and the doubly robust estimate has no bias, although the log's policy learns. With
    contexts it is the mean in the same one, to which the arm's mean over all adds ``PRIOR`` rewards.
    """
    num_arms = len(used.chances[0])
    totals, counts = [(low + high) / 2.0] * num_arms, [1] * num_arms  # as if each arm had had one reward, in the middle
    means = list(totals)
    cells: dict[Context, tuple[list[float], list[int]]] = {}
    for arm, reward, context in zip(used.arms, used.rewards, used.contexts, strict=True):
        if context:
            sums, known = cells.setdefault(context, ([0.0] * num_arms, [0] * num_arms))
            yield [(x + PRIOR * mean) / (n + PRIOR) for x, n, mean in zip(sums, known, means, strict=True)]
            sums[arm] += reward
            known[arm] += 1
        else:
            yield list(means)
        totals[arm] += reward
        counts[arm] += 1
        means[arm] = totals[arm] / counts[arm]


def _guesses(used: Used, low: float, high: float) -> tuple[list[float], list[float]]:
    """What was expected of each decision's arm, and of the policy's."""
    of_arm: list[float] = []
    of_policy: list[float] = []
    for arm, chances, means in zip(used.arms, used.chances, expectations(used, low, high), strict=True):
        of_arm.append(means[arm])
        of_policy.append(fsum(map(mul, chances, means)))
    return of_arm, of_policy


def _student(
    name: str, value: float, error: float, degrees: float, reward_range: tuple[float, float], level: float
) -> Estimate:
    margin = off_policy.student_quantile(NormalDist().inv_cdf((1.0 + level) / 2.0), degrees) * error
    return Estimate(name, value, max(value - margin, reward_range[0]), min(value + margin, reward_range[1]), "Student")


def _warnings(used: Used, weights: list[float]) -> Iterator[str]:
    n, left_out = len(weights), used.left_out
    effective, centre = off_policy.effective_size(weights), off_policy.mean(weights)
    if left_out[CERTAIN]:
        reasons = "".join(f", {count:,} {DETERMINISTIC[why]}" for why, count in used.certain.most_common())
        yield (
            f"{left_out[CERTAIN]:,} decisions were certain (propensity 1{reasons}) and are left out: nobody knows what "
            "another arm would have done. What is estimated holds for the others. A least_share in the terms would "
            "make none of an index certain."
        )
    missing = left_out[NO_REWARD] + left_out[NOT_KEPT]
    if missing > _MANY_MISSING * (missing + n):
        yield (
            f"{missing:,} decisions have no reward and are left out: if rewards are missing for some outcomes more "
            "than for others, every estimate is wrong. Where no reward means a default, say which."
        )
    if left_out[UNKNOWN]:
        yield f"{left_out[UNKNOWN]:,} decisions have no known propensity and are left out."
    if left_out[NOT_FOR]:
        yield f"{left_out[NOT_FOR]:,} decisions could have had no arm of the policy: estimates are about the others."
    spread = sqrt(max(fsum(w * w for w in weights) / n - centre * centre, 0.0) / n)
    if abs(centre - 1.0) > max(4.0 * spread, 1e-9):
        yield (
            f"weights average {centre:.3g} instead of 1: the log could not have given some of the policy's arms to "
            "some of the requests, or propensities are wrong. Do not rely on ips and dr."
        )
    if effective < FEW:
        yield (
            f"the log tells as much as {effective:.0f} decisions of the policy itself would: below {FEW:.0f} only the "
            "interval of ips can be relied on."
        )
