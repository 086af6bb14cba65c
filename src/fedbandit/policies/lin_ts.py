"""LinTS (Agrawal and Goyal 2013, Algorithm 1, disjoint arms): Thompson sampling with ridge regression, no privacy."""

from dataclasses import dataclass
from typing import Any, ClassVar

from fedbandit.checks import number_above, true_or_false
from fedbandit.policies import lin_ucb
from fedbandit.policies.lin_ucb import Terms, check_setting, judge, terms_of
from fedbandit.policies.protocol import Context, Now, Page, Setting, highest_draw


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any, context: Context) -> int:
    """The highest draw of x . theta, theta from N(A^-1 b, v^2 A^-1): of one arm that is N(x . theta, v^2 x' A^-1 x)."""
    judge(me, terms, context)
    return highest_draw(me.belief, me.spread, draws)


ALONE = lin_ucb.ALONE._replace(decide=decide)
POOLED = lin_ucb.POOLED._replace(decide=decide)


@dataclass(frozen=True)
class LinTS:
    """Thompson sampling with ridge regression of each arm (Agrawal and Goyal 2013), no privacy.

    * ``central``: on everyone's pooled decisions, the ceiling where agents agree; else alone, the floor.
    * ``v``: the standard deviation of one reward, in units of its range; default 1/2, the largest there is. Their
      theorem takes R sqrt(9 d log(t / delta)) for it, which explores far more.
    * ``ridge``: the multiple of the identity to begin with, theirs is 1.
    """

    central: bool = False
    v: float = 0.5
    ridge: float = 1.0

    kind: ClassVar[str] = "lin_ts"

    def __post_init__(self) -> None:
        """Check the parameters."""
        true_or_false("central", self.central)
        for name in ("v", "ridge"):
            object.__setattr__(self, name, number_above(name, getattr(self, name), 0.0))

    @property
    def label(self) -> str:
        """The name in figures and tables."""
        numbers = "" if (self.v, self.ridge) == (0.5, 1.0) else f", v={self.v:g}, ridge={self.ridge:g}"
        return f"{'Central' if self.central else 'Local'} LinTS{numbers}"

    def page(self) -> Page:
        """Alone or pooled."""
        return POOLED if self.central else ALONE

    def check(self, setting: Setting) -> None:
        """Refuse rewards without a range."""
        check_setting(self, setting)

    def terms(self, setting: Setting) -> Terms:
        """Numbers that follow from the parameters and the setting."""
        return terms_of(setting, self.v, self.ridge)
