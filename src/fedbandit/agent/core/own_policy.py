"""Decides whether a live site plays an own policy: trusted by name, sound, and private if it claims to be.

What a site gossips of an arm is a mean, or a value and its weight, so that neighbours can tell impossible numbers.
"""

from math import inf
from typing import Any

from fedbandit.agent.core.bounds import SCALES
from fedbandit.checks import InvalidArgument
from fedbandit.outside.admission import admit, claimed_epsilon, rehearse, scenes_of, small
from fedbandit.outside.coupling import SAME, check_privacy
from fedbandit.outside.policies import WrongPage, kind_of
from fedbandit.outside.some_arms import check_choices
from fedbandit.policies.protocol import ARMS, Count, Page, Policy, Setting
from fedbandit.privacy.mechanism import levels_of, setting_in_steps
from fedbandit.privacy.noise import GRID

__all__ = ["check_own_policy", "check_trust"]

AVERAGED = (("theta",), ("value", "weight"))


def check_trust(kind: str, trusted: str) -> None:
    """Refuse an own policy that the operator has not agreed to run."""
    if kind != trusted:
        raise InvalidArgument(
            "policy.kind",
            kind,
            "a policy of fedbandit, or the one that trust_policy names",
            "It is code from outside, and would run with the rewards of this site. Read it; then write "
            f'trust_policy = "{kind}" at the top of site.toml.',
        )


def check_own_policy(policy: Policy, trusted: str, num_agents: int, num_arms: int, low: float, high: float) -> None:
    """Refuse an own policy that is not trusted, not sound, or that a live site cannot play."""
    kind = kind_of(policy)
    check_trust(kind, trusted)
    setting = setting_in_steps(num_agents, num_arms, low, high)
    if (check := getattr(policy, "check", None)) is not None:
        check(setting)
    page = admit(policy, setting).page
    _check_page(kind, page, hasattr(policy, "links"))
    terms = policy.terms(setting)
    _check_noise(kind, page, terms, claimed_epsilon(policy))
    _check_published(kind, page, policy.terms(small(setting)), small(setting))
    check_choices(kind, page, policy.terms(small(setting)), small(setting))
    if claimed_epsilon(policy) < inf:
        for scene in scenes_of(policy, setting):
            check_privacy(scene, claimed_epsilon(policy))


def _check_page(kind: str, page: Page, has_links: bool) -> None:
    if page.network != "gossip" or page.meet is not None or has_links:
        raise WrongPage(kind, "a live site plays pages of the network 'gossip', without meet and links of their own")
    if page.averaged not in AVERAGED:
        raise WrongPage(
            kind,
            f"averaged is {page.averaged!r}: a live site gossips ('theta',), a mean, or ('value', 'weight'), and so "
            "knows how large an honest number can be",
        )
    n = page.knows.get("n")
    if n != Count[ARMS]:
        raise WrongPage(kind, "knows must have n=Count[ARMS], the rewards of each arm: a live site counts with it")


def _check_noise(kind: str, page: Page, terms: Any, epsilon: float) -> None:
    if page.noise_due is None:
        if epsilon < inf:
            raise WrongPage(kind, f"claims epsilon={epsilon:g} and asks for no noise: the page has no noise_due")
        return
    if page.interval is None:
        raise WrongPage(
            kind, "noise_due asks for noise, and the page has no interval, which names the rewards it hides"
        )
    per_release = getattr(terms, "epsilon_per_release", None)
    if type(per_release) is not float or not 0.0 < per_release < inf:
        raise WrongPage(kind, "the terms need epsilon_per_release, a float: the ledger draws noise for it")
    if epsilon == inf:
        raise WrongPage(kind, "noise_due asks for noise, and the policy claims no privacy: give it a field epsilon")
    spent = levels_of(terms) * per_release
    if spent > epsilon * (1.0 + SAME):
        raise WrongPage(kind, f"claims epsilon={epsilon:g}, but its releases cost one reward {spent:g}")


def _check_published(kind: str, page: Page, terms: Any, setting: Setting) -> None:
    """Neighbours refuse what lies outside the range and its noise (``Bounds``): so must this site, before it starts."""
    room = SCALES * getattr(terms, "noise_scale", 0.0) / getattr(terms, "first_batch", 1)
    for t, shown in enumerate(rehearse(kind, page, terms, setting)):
        for row in shown.published:
            for arm, (value, *weight) in enumerate(row):
                if not -room <= value <= GRID + room or any(not 0.0 <= x <= 1.0 for x in weight):
                    raise WrongPage(
                        kind,
                        f"published returns {(value, *weight)} for arm {arm} in round {t}, where rewards lie in 0 to "
                        f"{GRID}: a live site gossips means, and weights from 0 to 1",
                    )
