"""Decides whether an own policy may run: its parts, its code, then a rehearsal in plain Python on strict stand-ins.

What was found of a page is kept: asking again costs next to nothing.
"""

from collections.abc import Iterator
from math import inf, sqrt
from statistics import NormalDist
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

from fedbandit.checks import InvalidArgument
from fedbandit.policies.own_code import PACKAGE
from fedbandit.policies.plain import Me, Seen, narrowed
from fedbandit.policies.protocol import Now, Page, Policy, Setting, time_of
from fedbandit.policies.registry import WrongPage, check_kind, is_built_in, kind_of, source_hash
from fedbandit.testing.coupling import Scene
from fedbandit.testing.dry_run import Script, Shown, Stage
from fedbandit.testing.page_code import ARGUMENTS, Reached, check_code, check_parts, check_terms, reached_by

__all__ = [
    "AGENTS",
    "EDGES",
    "GOLDEN",
    "Admitted",
    "admit",
    "check_choices",
    "claimed_epsilon",
    "rehearse",
    "scenes_of",
    "script_of",
    "small",
]


AGENTS, ARMS, ROUNDS, MOST_ARMS, LONG = 3, 3, 40, 20, 1500
EDGES = [(0, 1), (0, 2), (1, 2)]
GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, spread evenly

_admitted: set[Any] = set()


class Admitted(NamedTuple):
    """A policy that may run: its page, and a digest of the own code that it reaches; empty for a built-in one."""

    page: Page
    digest: str
    functions: dict[FunctionType, str]  # own functions, with a digest of each


def admit(policy: Policy, setting: Setting) -> Admitted:
    """Refuse a policy whose page cannot run as it stands, in words."""
    check_kind("policy", policy)
    if is_built_in(policy):
        return Admitted(policy.page(), "", {})
    kind = kind_of(policy)
    page = _call(kind, "page", policy.page)
    check_parts(kind, page)
    if page != policy.page():
        raise WrongPage(
            kind, "page() returns another page each time: define its functions once, at the top of the module"
        )
    source_hash(policy)  # of the text as it is now: it may be edited while this process runs
    reached = reached_by(kind, page, type(policy).__module__)
    few = small(setting)
    terms = _call(kind, "terms", policy.terms, few)
    check_terms(kind, page, terms)
    check_terms(kind, page, _call(kind, "terms", policy.terms, setting))
    if terms != policy.terms(few):
        raise WrongPage(kind, "terms(setting) returns other numbers each time: they must follow from the parameters")
    _check_claim(kind, policy, page, setting)
    verdict: Any = (
        kind,
        reached.digest,
        tuple(getattr(page, name) for name in ARGUMENTS),
        type(terms)._fields,
        terms,
        few,
        setting.num_agents,
        min(setting.num_arms, MOST_ARMS),
    )
    if verdict not in _admitted:
        _check_homes(kind, page, reached)
        check_code(kind, page, terms, reached)
        rehearse(kind, page, terms, few)
        some = setting._replace(num_arms=min(setting.num_arms, MOST_ARMS))
        rehearse(kind, page, _call(kind, "terms", policy.terms, some), some)
        _admitted.add(verdict)
    return Admitted(page, reached.digest, dict(reached.digests))


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
    """The same setting with few agents and arms, for a rehearsal."""
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
    epsilon = getattr(policy, "epsilon", inf)
    return float(epsilon) if isinstance(epsilon, (int, float)) else inf


def scenes_of(policy: Policy, setting: Setting) -> Iterator[Scene]:
    """Scenes in which to try the policy's privacy: a small one, and one with the terms that agents will play."""
    for known in (small(setting), setting._replace(num_arms=min(setting.num_arms, MOST_ARMS))):
        yield Scene(
            kind_of(policy),
            policy.page(),
            [policy.terms(known)] * AGENTS,
            known.num_arms,
            EDGES,
            script_of(known),
            ROUNDS,
            known.low,
            known.high,
            not setting.bounded,
            rounds_without_noise=LONG,
        )


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
        if not function.__module__.startswith(f"{PACKAGE}.policies."):
            raise WrongPage(kind, f"{name} is {function.__module__}.{function.__name__}, which no page may use")


def rehearse(kind: str, page: Page, terms: Any, setting: Setting, rounds: int = ROUNDS) -> list[Shown]:
    """Play a page some rounds in plain Python on strict stand-ins, so that every function runs; what it shows."""
    stage = Stage(kind, page, [terms] * AGENTS, setting.num_arms, EDGES, script_of(setting), strict=True)
    shown = [stage.first_round()]
    stage.try_the_rest(1)
    for t in range(1, rounds + 1):
        shown.append(stage.next_round(t))
        stage.try_the_rest(t + 1)
    return shown


def script_of(setting: Setting) -> Script:
    """Randomness for a rehearsal, always the same."""
    normal = NormalDist()

    def spread(*place: int) -> float:
        """A number in (0, 1) for a place in the script."""
        number = 1.0 + place[0]
        for step in place[1:]:
            number = 31.0 * number + step
        return min(max(GOLDEN * number % 1.0, 1e-6), 1.0 - 1e-6)

    def reward(t: int, i: int, k: int) -> float:
        u = spread(t, i, k)
        return setting.low + (setting.high - setting.low) * u if setting.has_range else k + normal.inv_cdf(u)

    return Script(
        reward=reward,
        edge=lambda t: EDGES[t % len(EDGES)],
        pick=spread,
        normals=lambda t, i: [normal.inv_cdf(spread(t, i, k, 7)) for k in range(setting.num_arms)],
        noise=lambda end, i, k: normal.inv_cdf(spread(end, i, k, 5)),
    )


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
    stage = Stage(kind, page, [terms] * AGENTS, setting.num_arms, EDGES, script_of(setting))
    stage.first_round()
    every = range(setting.num_arms)
    for t in range(1, max(MOMENTS) + 1):
        stage.next_round(t)
        if t in MOMENTS:
            for arms in [[*every], *([k for k in every if k != left_out] for left_out in every)]:
                if len(arms) > 1:
                    _Asked(kind, page, terms, time_of(t + 1)).check(stage.me[0], stage.seen[0], arms)


class _Asked:
    """A page that is asked for an arm many times in one state."""

    def __init__(self, kind: str, page: Page, terms: Any, now: Now) -> None:
        self.kind, self.page, self.terms, self.now = kind, page, terms, now

    def check(self, me: Me, seen: Seen, arms: list[int]) -> None:
        counts, normal = [0] * len(arms), NormalDist()
        few, shown = narrowed(self.page, self.terms, me, seen, arms)
        for i in range(1, DRAWS + 1):
            few, shown = narrowed(self.page, self.terms, me, seen, arms)
            even = [i * sqrt(prime) % 1.0 for prime in PRIMES]  # spread evenly over a cube
            draws = SimpleNamespace(u=even[0], normals=[normal.inv_cdf(x) for x in even[1 : len(arms) + 1]])
            counts[self._arm(few, shown, draws, arms)] += 1
        if self.page.chance is None or max(counts) == DRAWS:
            return
        stated = [self.page.chance(few, self.terms, shown, self.now, k) for k in range(len(arms))]
        for arm, chance, count in zip(arms, stated, counts, strict=True):
            if type(chance) is not float or not abs(chance - count / DRAWS) < MOST_DIFFERENCE:
                raise WrongPage(
                    self.kind,
                    f"chance returns {chance!r} for arm {arm}, which decide gives in {count / DRAWS:.2f} of its draws. "
                    "If decide is not that of the page it was taken from, leave chance out, or write its own",
                )

    def _arm(self, few: Me, shown: Seen, draws: Any, arms: list[int]) -> int:
        among = f"of the arms {arms} alone (docs/own-policy.md)"
        try:
            arm: Any = self.page.decide(few, self.terms, shown, self.now, draws)
        except Exception as error:
            raise WrongPage(self.kind, f"decide fails with {type(error).__name__}, asked {among}: {error}") from None
        if type(arm) is not int or not 0 <= arm < len(arms):
            raise WrongPage(self.kind, f"decide returns {arm!r}, asked {among}: they are 0 to {len(arms) - 1} there")
        return arm
