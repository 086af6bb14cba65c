"""What a site forgets: how many decisions it remembers and for how long, what that costs, and who should be warned."""

from collections.abc import Iterator
from dataclasses import dataclass

from fedbandit.agent.core.site_view import SiteView

__all__ = ["Expired", "Limits", "warnings_of_forgetting"]

_SOON = 0.1
"""Share of ``keep`` or of the time that is left when a warning begins."""


@dataclass(frozen=True)
class Limits:
    """The most decisions that are remembered, and for how many seconds after the end of their reward window."""

    keep: int
    expire_after: float


@dataclass(frozen=True)
class Expired:
    """How many decisions a site has forgotten; of those without a reward, how many by age and because of ``keep``."""

    total: int
    by_age: int = 0
    by_keep: int = 0


def warnings_of_forgetting(site: SiteView, limits: Limits, now: float) -> Iterator[str]:
    """Decisions that still wait for their reward and are forgotten soon.

    With a reward window there are none: nothing is forgotten that can still be rewarded.
    """
    if site.terms.reward_window > 0.0:
        return
    waiting = list(site.oldest_pending())
    if not waiting:
        return
    first = min(it.number for it in waiting)
    left = limits.keep - min(site.decided - first + 1, site.remembered)
    if left <= _SOON * limits.keep:
        yield (
            f"after {max(left, 0) + 1} more decisions the oldest that waits for its reward is forgotten, and the "
            f"default counts: decisions.keep is {limits.keep}. Report sooner, cancel what was not used, or keep more."
        )
    at = min(it.at for it in waiting)
    seconds = at + limits.expire_after - now
    if seconds <= _SOON * limits.expire_after:
        yield (
            f"in {max(seconds, 0.0) / 3600.0:.1f} hours the oldest decision that waits for its reward is forgotten, "
            f"and the default counts: decisions.expire_after_hours is {limits.expire_after / 3600.0:g}."
        )
