"""The kit of a compiled loop over rounds: a page's functions, and what else is fixed before it is compiled."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedbandit.policies.protocol import Page
from fedbandit.rewards import Family
from fedbandit.shares import Shares
from fedbandit.simulation.compiled import SOURCES
from fedbandit.simulation.links import LinkKind
from fedbandit.simulation.rewards import code_of, draw_of

__all__ = ["Kit", "kit_of"]


class Kit(NamedTuple):
    """What a loop over rounds is made of: a page's functions, and what else is known before it is compiled.

    What is fixed here is known to the compiler: branches that a page never takes are left out. It is also the key of
    compiled code, so it must tell apart all that differs.
    """

    code: str  # digest of the sources, ours and the user's
    is_guarded: bool  # a user's page: check that its arms exist
    num_averaged: int
    network: str
    has_marks: bool
    announces: bool
    reweighs: bool
    believes: bool
    is_private: bool
    meets: bool
    watches: bool
    is_late: bool
    knows_unknown: bool
    has_shares: bool
    has_control: bool
    draw_reward: Callable[..., Any]
    average_links: Callable[..., Any]
    mark_links: Callable[..., Any]
    start: Callable[..., Any]
    decide: Callable[..., Any]
    noise_due: Callable[..., Any]
    observe: Callable[..., Any]
    published: Callable[..., Any]
    reweigh: Callable[..., Any]
    believe: Callable[..., Any]
    estimate: Callable[..., Any]
    radius: Callable[..., Any]
    unknown: Callable[..., Any]
    meet: Callable[..., Any]
    announced: Callable[..., Any]


# ---------------------------------------------------------------- functions that a page may leave out


def _no_start(me: Any, terms: Any) -> None:
    """Zeros will do."""


def _no_noise_due(me: Any, terms: Any, arm: Any) -> int:
    return 0


def _no_belief(me: Any, terms: Any, seen: Any, arm: Any) -> None:
    """Nothing is derived from the averages."""


def _no_reweighing(me: Any, terms: Any, elapsed: Any) -> None:
    """The agent's weight is fixed."""


def _nothing_unknown(me: Any, arm: Any) -> bool:
    return False


def _no_radius(me: Any, terms: Any, seen: Any, now: Any, arm: Any) -> float:
    return np.inf


def _nothing_announced(me: Any, terms: Any, arm: Any) -> int:
    return 0


def _no_marks(links: Any, t: Any, bits: Any) -> None:
    """Which links are present does not matter to n~."""


def _no_meeting(agents: Any, terms: Any, seen: Any, edges: Any, present: Any) -> int:
    return 0


def kit_of(
    page: Page,
    family: Family,
    links: LinkKind,
    watches: bool,
    own_code: str = "",
    is_late: bool = False,
    shares: Shares | None = None,
) -> Kit:
    """The kit of a page, for a family of rewards and a kind of links.

    ``watches``: count how often an estimate lies further from the truth than its radius. ``own_code``: a digest of what
    the page reaches outside this package; whether its arms exist is then checked. ``is_late``: rewards may count later
    than in the round of their decision.
    """
    return Kit(
        code=SOURCES + own_code + code_of(family) + links.code,
        is_guarded=own_code != "",
        num_averaged=len(page.averaged),
        network=page.network,
        has_marks=links.mark is not None,
        announces=page.announced is not None,
        reweighs=page.reweigh is not None,
        believes=page.believe is not None,
        is_private=page.noise_due is not None,
        meets=page.meet is not None,
        watches=watches,
        is_late=is_late,
        knows_unknown=page.unknown is not None,
        has_shares=shares is not None,
        has_control=shares is not None and shares.control is not None,
        draw_reward=draw_of(family),
        average_links=links.average,
        mark_links=links.mark or _no_marks,
        start=page.start or _no_start,
        decide=page.decide,
        noise_due=page.noise_due or _no_noise_due,
        observe=page.observe,
        published=page.published,
        reweigh=page.reweigh or _no_reweighing,
        believe=page.believe or _no_belief,
        estimate=page.estimate,
        radius=page.radius or _no_radius,
        unknown=page.unknown or _nothing_unknown,
        meet=page.meet or _no_meeting,
        announced=page.announced or _nothing_announced,
    )
