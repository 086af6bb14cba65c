"""How well other policies would have done, over all sites: terms that name them, and what all sites' sums say.

The terms name the policies before the start. Each site releases sums for them (``core.evaluator``). Everybody adds up
what the board shows, and divides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fedbandit.agent.core.bulletin import EvaluationEntry
from fedbandit.checks import InvalidArgument, closest, number_above, printable, whole_number
from fedbandit.evaluation.target import Target, defined, named
from fedbandit.rules.evaluation_sums import NOTHING, PolicySums, Pooled, bounded, epsilon_of_sum, pooled
from fedbandit.rules.off_policy import student_quantile

if TYPE_CHECKING:
    from fedbandit.agent.core.federation import Federation
    from fedbandit.agent.core.site import Site

__all__ = ["AS_LOGGED", "Evaluated", "EvaluatedPolicy", "Evaluation", "OtherShares", "evaluated", "remarks"]

AS_LOGGED = "as given"
"""The policy of the federation itself, of which the mean reward of the same decisions is released."""

MOST_POLICIES, MOST_WEIGHT, MOST_BATCH, MOST_LETTERS = 16, 1000, 10**6, 60

NORMAL_95 = 1.959963984540054


# ---------------------------------------------------------------- the terms


class OtherShares(NamedTuple):
    """What patients with these levels get instead."""

    context: tuple[tuple[str, str], ...]
    shares: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class EvaluatedPolicy:
    """A policy that does not learn: the share of each arm, in some strata others; the first that fits counts.

    Without shares its name says what it does: ``uniform``, or ``always ARM``.
    """

    name: str
    shares: tuple[tuple[str, float], ...] = ()
    strata: tuple[OtherShares, ...] = ()

    @property
    def plain(self) -> dict[str, Any]:
        """As in the terms."""
        strata = [{"context": dict(it.context), "shares": dict(it.shares)} for it in self.strata]
        return {"name": self.name, "shares": dict(self.shares), "strata": strata}

    @property
    def words(self) -> str:
        """What it gives, in words; empty: its name says it."""
        if not self.shares:
            return ""
        each = [f"{', '.join(level for _, level in it.context)}: {_in_words(it.shares)}" for it in self.strata]
        return "; ".join([*each, f"{'all others: ' if each else ''}{_in_words(self.shares)}"])

    def target(self, arms: Sequence[str], factors: Mapping[str, Sequence[str]]) -> Target:
        """Its probabilities, by arm."""
        if self.shares:
            strata = [(dict(it.context), dict(it.shares)) for it in self.strata]
            return defined(self.name, dict(self.shares), strata, arms, factors)
        found = named(self.name, arms)
        if found is None:
            accepted = "'uniform' or 'always ARM' where there are no shares"
            raise InvalidArgument("name", self.name, accepted, closest(self.name.partition(" ")[0], _NAMED))
        if self.strata:
            raise InvalidArgument("strata", len(self.strata), "left out where there are no shares")
        return found


def _in_words(shares: Sequence[tuple[str, float]]) -> str:
    given = [(arm, share) for arm, share in shares if share > 0.0]
    return given[0][0] if len(given) == 1 else ", ".join(f"{arm} {100.0 * share:.3g} %" for arm, share in given)


_NAMED = ("uniform", "always")


@dataclass(frozen=True)
class Evaluation:
    """Of the terms: which policies are evaluated over all sites.

    * ``epsilon``: what all that is released for it costs one reward, beside the policy's own
    * ``largest_weight``: larger weights are cut; a larger one needs more noise
    * ``batch``: decisions in a release
    """

    epsilon: float
    policies: tuple[EvaluatedPolicy, ...]
    largest_weight: int = 10
    batch: int = 200

    def __post_init__(self) -> None:
        """Check what can be checked without the other terms."""
        object.__setattr__(self, "epsilon", number_above("epsilon", self.epsilon, 0.0))
        object.__setattr__(self, "policies", tuple(self.policies))
        whole_number("largest_weight", self.largest_weight, 1, MOST_WEIGHT)
        whole_number("batch", self.batch, 1, MOST_BATCH)
        if not 0 < len(self.policies) <= MOST_POLICIES:
            raise InvalidArgument("policies", len(self.policies), f"1 to {MOST_POLICIES} policies")
        names = [it.name for it in self.policies]
        for k, name in enumerate(names):
            if not 0 < len(name) <= MOST_LETTERS or name != name.strip() or not name.isprintable():
                raise InvalidArgument(f"policies[{k}].name", name, f"a name of 1 to {MOST_LETTERS} letters")
        if len({*names, AS_LOGGED}) <= len(names):
            raise InvalidArgument("policies", names, f"policies with different names, none of them {AS_LOGGED!r}")

    @property
    def num_rows(self) -> int:
        """How many sums a release has: that as given, and one of each policy."""
        return 1 + len(self.policies)

    @property
    def epsilon_of_row(self) -> float:
        """What each of them costs if a reward moves it by one range."""
        return epsilon_of_sum(self.epsilon, len(self.policies), self.largest_weight)

    @property
    def noise_scale(self) -> float:
        """Of each sum, in ranges of a reward."""
        return 1.0 / self.epsilon_of_row

    def targets(self, arms: Sequence[str], factors: Mapping[str, Sequence[str]]) -> tuple[Target, ...]:
        """The policies; refuses arms, factors and levels that the terms do not have."""
        found: list[Target] = []
        for k, it in enumerate(self.policies):
            try:
                found.append(it.target(arms, factors))
            except InvalidArgument as error:
                raise error.at(f"evaluation.policies[{k}]") from None
        return tuple(found)

    @property
    def plain(self) -> dict[str, Any]:
        """As in the terms."""
        numbers = {"epsilon": self.epsilon, "largest_weight": self.largest_weight, "batch": self.batch}
        return {**numbers, "policies": [it.plain for it in self.policies]}


# ---------------------------------------------------------------- what all sites say


class Evaluated(NamedTuple):
    """A policy over all sites: the estimate in units of the reward, with an interval of 95 %; None: nothing is known.

    * ``words``: what it gives
    * ``decisions``: in releases; ``sites``: that have released; ``effective`` and ``kept``: see ``Pooled``
    * ``noise``: the part of the standard error that is noise, in units of the reward
    * ``site_values``: of each site that has released its own estimate, None where its weights are all 0
    """

    name: str
    words: str
    decisions: int
    sites: int
    value: float | None
    low: float | None
    high: float | None
    noise: float | None
    effective: float
    kept: float
    site_values: tuple[tuple[str, int, float | None], ...]


def evaluated(site: "Site") -> tuple[Evaluated, ...]:
    """All policies of the terms, that as given first, as the board shows them; none without an evaluation."""
    plan = site.terms.evaluation
    if plan is None:
        return ()
    entries = {name: it.bulletin.evaluation for name in site.board.counted() if (it := site.board.counting(name))}
    names = ((AS_LOGGED, ""), *((it.name, it.words) for it in plan.policies))
    return tuple(_evaluated(site.terms, plan, row, name, entries) for row, name in enumerate(names))


def _evaluated(
    terms: "Federation", plan: Evaluation, row: int, name: tuple[str, str], entries: Mapping[str, EvaluationEntry]
) -> Evaluated:
    largest, scale = plan.largest_weight if row else 1, plan.noise_scale
    said = {
        site: (bounded(it.rows[row] if it.rows else NOTHING, it.releases, largest, scale), it.releases)
        for site, it in entries.items()
        if it.releases > 0
    }
    found: Pooled | None = pooled([*said.values()], scale, terms.largest_share)
    decisions = int(sum(it.decisions for it, _ in said.values()))
    width = terms.high - terms.low

    def value_of(it: PolicySums) -> float | None:
        return terms.low + width * it.gains / it.weights if it.weights > 0.0 else None

    values = tuple((site, int(it.decisions), value_of(it)) for site, (it, _) in said.items())
    if found is None:
        return Evaluated(*name, decisions, len(said), None, None, None, None, 0.0, 0.0, values)
    margin = student_quantile(NORMAL_95, found.effective - 1.0) * found.error
    value = min(max(found.value, 0.0), 1.0)
    low, high = (min(max(end, 0.0), 1.0) for end in (found.value - margin, found.value + margin))
    value, low, high = (terms.low + width * x for x in (value, low, high))
    ends = value, low, high, width * found.noise
    return Evaluated(*name, decisions, len(said), *ends, found.effective, found.kept, values)


def remarks(it: Evaluated) -> str:
    """What to beware of, in words; empty: nothing."""
    if it.value is None:
        return "nothing was released yet"
    if it.kept < LEAST_KEPT:
        name = printable(it.name, MOST_LETTERS)
        return f"weights average {it.kept:.2f} instead of 1: some were cut, or sites never give what {name} gives"
    return f"tells as much as {it.effective:.0f} patients would: too few" if it.effective < FEW else ""


LEAST_KEPT, FEW = 0.9, 50.0
