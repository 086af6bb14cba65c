"""Checks that an own page can choose among some of the arms, and that the chances it states are those of its draws."""

from math import sqrt
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

from fedbandit.outside.admission import AGENTS, EDGES, script_of
from fedbandit.outside.policies import WrongPage
from fedbandit.outside.stage import Stage
from fedbandit.policies.plain import Me, Seen, narrowed
from fedbandit.policies.protocol import Now, Page, Setting, time_of

__all__ = ["check_choices"]

ROUNDS = (2, 12, 40)
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
    for t in range(1, max(ROUNDS) + 1):
        stage.next_round(t)
        if t in ROUNDS:
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
