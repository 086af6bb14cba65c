"""Decides whether an own policy may run: its parts, its code, the epsilon it claims, then a dry run in plain Python.

What was found of a page is kept: asking again costs next to nothing.
"""

from collections.abc import Sequence
from math import inf, nan, sqrt
from statistics import NormalDist
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

from fedbandit.checks import InvalidArgument
from fedbandit.policies.plain import narrowed
from fedbandit.policies.protocol import Context, Now, Page, Policy, Setting, page_on, time_of
from fedbandit.policies.registry import PACKAGE, WrongPage, check_kind, is_built_in, kind_of, source_hash
from fedbandit.testing.dry_run import AGENTS, dry_run, even_script
from fedbandit.testing.page_code import (
    ARGUMENTS,
    Reached,
    check_cost,
    check_cost_of_rows,
    check_parts,
    check_terms,
    reached_by,
    read_page,
)

ARMS, MOST_ARMS = 3, 20

_admitted: dict[Any, bool] = {}  # whether a private page has a tree


class Admitted(NamedTuple):
    """A policy that may run: its page, and a digest of the own code that it reaches; empty for a built-in one."""

    page: Page
    digest: str
    functions: dict[FunctionType, str]  # own functions, with a digest of each


def admit(policy: Policy, setting: Setting, *others: Setting) -> Admitted:
    """Refuse a policy whose page cannot run as it stands, in words; ``others``: settings of further agents."""
    check_kind("policy", policy)
    if is_built_in(policy):
        return Admitted(page_on(policy.page(), setting.gossip, setting.num_strata), "", {})
    kind = kind_of(policy)
    page = _call(kind, "page", policy.page)
    check_parts(kind, page)
    if page != policy.page():
        raise WrongPage(
            kind, "page() returns another page each time: define its functions once, at the top of the module"
        )
    page = page_on(page, setting.gossip, setting.num_strata)
    source_hash(policy)  # of the text as it is now: it may be edited while this process runs
    reached = reached_by(kind, page, type(policy).__module__)
    some = setting._replace(num_arms=min(setting.num_arms, MOST_ARMS))
    terms, fixed = _call(kind, "terms", policy.terms, some), _call(kind, "terms", policy.terms, setting)
    all_terms = [terms, fixed, *(_call(kind, "terms", policy.terms, other) for other in others)]
    for each in all_terms:
        check_terms(kind, page, each)
        if type(each) is not type(terms):
            raise WrongPage(kind, "terms(setting) returns another class for some agents: give all the same fields")
    if terms != policy.terms(some):
        raise WrongPage(kind, "terms(setting) returns other numbers each time: they must follow from the parameters")
    _check_claim(kind, policy, page, setting)
    parts = tuple(getattr(page, name) for name in ARGUMENTS)
    types = tuple(map(type, terms))  # 1 == 1.0
    verdict: Any = (kind, claimed_epsilon(policy), reached.digest, parts, type(terms)._fields, terms, types, some)
    if verdict not in _admitted:
        _check_homes(kind, page, reached)
        has_tree = read_page(kind, page, terms, claimed_epsilon(policy))
        dry_run(kind, page, terms, some)
        _admitted[verdict] = has_tree
    _check_costs(kind, policy, page, _admitted[verdict], all_terms[1:], setting)
    return Admitted(page, reached.digest, dict(reached.digests))


def check_epsilon(policy: Policy, setting: Setting) -> None:
    """Refuse a policy, also one of this package, whose page does not keep the epsilon that it claims."""
    kind, page, terms = (
        kind_of(policy),
        page_on(policy.page(), setting.gossip, setting.num_strata),
        policy.terms(setting),
    )
    if claimed_epsilon(policy) < inf:
        has_tree = read_page(kind, page, terms, claimed_epsilon(policy))
        _check_costs(kind, policy, page, has_tree, [terms], setting)


def _check_costs(
    kind: str, policy: Policy, page: Page, has_tree: bool, all_terms: Sequence[Any], setting: Setting
) -> None:
    epsilon = claimed_epsilon(policy)
    if epsilon < inf and page.context == "features":
        for terms in all_terms:
            check_cost_of_rows(kind, page, terms, epsilon, setting)
        return
    if epsilon < inf and setting.has_range:  # else a sensitivity is assumed, and epsilon does not hold
        for terms in all_terms:
            check_cost(kind, has_tree, terms, epsilon, setting)


def _check_claim(kind: str, policy: Policy, page: Page, setting: Setting) -> None:
    """Refuse a claim of privacy that no noise or no range stands behind."""
    epsilon = claimed_epsilon(policy)
    if epsilon == inf:
        return
    if page.noise_due is None:
        raise WrongPage(
            kind,
            f"claims epsilon={epsilon:g} and asks for no noise: the page has no noise_due. If its epsilon is not a "
            "privacy, give it another name",
        )
    if not setting.has_range and getattr(policy, "assume_sensitivity", None) is None:
        hint = "Without a range one reward can move a sum by any amount, and no noise hides it."
        raise InvalidArgument("reward_range", None, f"declared for {kind}, which claims epsilon={epsilon:g}", hint)


def small(setting: Setting) -> Setting:
    """The same setting with few agents and arms, for a dry run."""
    return setting._replace(
        num_agents=AGENTS,
        num_arms=ARMS,
        share=1.0,
        sum_of_squares=1.0 / AGENTS,
        mean_square_share=1.0,
        degree=AGENTS - 1,
        complete=True,
    )


def claimed_epsilon(policy: Policy) -> float:
    """The privacy that a policy claims for one reward: its ``epsilon``, if it has a finite one; else infinity."""
    epsilon: Any = getattr(policy, "epsilon", None)
    try:
        claimed = inf if epsilon is None else float(epsilon)  # also of NumPy, or a Decimal
    except (TypeError, ValueError):
        claimed = nan
    if claimed != claimed:
        raise WrongPage(kind_of(policy), f"epsilon is {epsilon!r}: it must be a number, or infinite without a claim")
    return claimed


def _call(kind: str, name: str, method: Any, *arguments: Any) -> Any:
    try:
        return method(*arguments)
    except WrongPage:
        raise
    except AttributeError as error:
        has = f". A setting has {', '.join(Setting._fields)}" if "Setting" in str(error) else ""
        raise WrongPage(kind, f"{name}() fails with AttributeError: {error}{has}") from None
    except Exception as error:
        raise WrongPage(kind, f"{name}() fails with {type(error).__name__}: {error}") from None


def _check_homes(kind: str, page: Page, reached: Reached) -> None:
    for name in ARGUMENTS:
        function = getattr(page, name)
        if function is None or function in reached.functions:
            continue
        if not function.__module__.startswith((f"{PACKAGE}.policies.", f"{PACKAGE}.rules.")):
            raise WrongPage(kind, f"{name} is {function.__module__}.{function.__name__}, which no page may use")


# ---------------------------------------------------------------- a choice among some of the arms

MOMENTS = (2, 12, 40)
DRAWS = 500
PRIMES = (2, 3, 5, 7)  # for a uniform draw, and a normal one of each arm of a small setting
MOST_DIFFERENCE = 0.12
"""Between a stated chance and how often the arm is drawn; 5.4 standard deviations if draws were random."""


def check_choices(kind: str, page: Page, terms: Any, setting: Setting) -> None:
    """Refuse a page that fails, or misjudges its own draws, after some rounds: with all arms, and without each one.

    What a page keeps beside its rows must not count or name arms. Here that shows only if it leads to an arm that is
    not there.
    """
    every = range(setting.num_arms)
    for t in MOMENTS:
        run, _ = dry_run(kind, page, terms, setting, t)
        for arms in [[*every], *([k for k in every if k != left_out] for left_out in every)]:
            if len(arms) > 1:
                _check_choice(kind, page, terms, time_of(t + 1), run.known_by(0), arms, setting)


def _check_choice(
    kind: str, page: Page, terms: Any, now: Now, known: tuple[Any, Any], arms: list[int], setting: Setting
) -> None:
    """Ask a page for one of these arms many times in one state."""
    features = even_script(setting).features(0, 0)
    context = () if page.context is None else (Context(0, features),)
    counts, normal, among = [0] * len(arms), NormalDist(), f"of the arms {arms} alone (docs/own-policy.md)"
    lengths = setting.num_strata, setting.num_features
    few, shown = narrowed(page, terms, *known, arms, *lengths)
    for i in range(1, DRAWS + 1):
        few, shown = narrowed(page, terms, *known, arms, *lengths)
        even = [i * sqrt(prime) % 1.0 for prime in PRIMES]  # spread evenly over a cube
        draws = SimpleNamespace(u=even[0], normals=[normal.inv_cdf(x) for x in even[1 : len(arms) + 1]])
        try:
            arm: Any = page.decide(few, terms, shown, now, draws, *context)
        except Exception as error:
            raise WrongPage(kind, f"decide fails with {type(error).__name__}, asked {among}: {error}") from None
        if type(arm) is not int or not 0 <= arm < len(arms):
            raise WrongPage(kind, f"decide returns {arm!r}, asked {among}: they are 0 to {len(arms) - 1} there")
        counts[arm] += 1
    if page.chance is None or max(counts) == DRAWS:
        return
    stated = [page.chance(few, terms, shown, now, k, *context) for k in range(len(arms))]
    for arm, chance, count in zip(arms, stated, counts, strict=True):
        if type(chance) is not float or not abs(chance - count / DRAWS) < MOST_DIFFERENCE:
            raise WrongPage(
                kind,
                f"chance returns {chance!r} for arm {arm}, which decide gives in {count / DRAWS:.2f} of its draws. "
                "If decide is not that of the page it was taken from, leave chance out, or write its own",
            )
