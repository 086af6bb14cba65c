"""Fills the models of ``state`` from a site and the status of its neighbours."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version

from fedbandit.agent.core.arm_changes import ArmChange
from fedbandit.agent.core.arms import Arms
from fedbandit.agent.core.forgetting import Limits
from fedbandit.agent.core.site import Site
from fedbandit.agent.gossip.neighbour_status import NeighbourStatus
from fedbandit.agent.gossip.tls import TlsFiles
from fedbandit.agent.http.state import (
    ArmChangeBody,
    ArmsBody,
    ArmState,
    ArmStatusBody,
    DecisionState,
    FederationState,
    FlowState,
    NeighbourState,
    PrivacyState,
    SiteState,
)
from fedbandit.outside.policies import label_of

__all__ = ["INSECURE", "arms_body", "certificate_warning", "change_body", "site_state"]

EXPIRY_WARNING = 30.0
"""Days before expiry from which the agent warns about its certificate."""

INSECURE = "INSECURE: gossip has no certificates; any process on this machine can impersonate a neighbour"


def site_state(
    site: Site,
    tls: TlsFiles | None,
    statuses: Mapping[str, NeighbourStatus],
    refused: dict[str, int],
    started: float,
    now: float,
    limits: Limits,
    forgotten: dict[str, int],
    warnings: Iterable[str],
) -> SiteState:
    """A site as ``GET /v1/state`` shows it; ``warnings`` are those of the site."""
    until = None if tls is None else tls.until
    return SiteState(
        name=site.name,
        version=version("fedbandit"),
        epoch=site.epoch,
        started=started,
        held=None if site.doubt is None else site.doubt.why,
        insecure=tls is None,
        certificate_until=None if until is None else until.timestamp(),
        federation=_federation_state(site),
        decisions=DecisionState(
            handed_out=site.decided,
            pending=site.pending,
            waiting=site.waiting,
            late=site.late,
            per_day=site.per_day,
            remembered=site.remembered,
            keep=limits.keep,
            expire_after=limits.expire_after,
            forgotten=forgotten,
        ),
        arms=_arm_states(site),
        arms_version=site.arms.version,
        arms_waiting=len(site.arms.waiting),
        neighbours=_neighbour_states(site, statuses),
        privacy=PrivacyState(**asdict(site.privacy())),
        refused=refused,
        warnings=[*warnings, *_warnings(tls, statuses, now)],
    )


def _warnings(tls: TlsFiles | None, statuses: Mapping[str, NeighbourStatus], now: float) -> list[str]:
    found = [INSECURE if tls is None else None, certificate_warning(tls, now)]
    found += [status.suspicion for status in statuses.values()]
    return [warning for warning in found if warning is not None]


def certificate_warning(tls: TlsFiles | None, now: float) -> str | None:
    """That the certificate expires soon, or has."""
    if tls is None or tls.until is None:
        return None
    days = (tls.until.timestamp() - now) / 86_400.0
    if days <= 0.0:
        return "the certificate has expired"
    return f"the certificate expires in {days:.0f} days" if days <= EXPIRY_WARNING else None


def _federation_state(site: Site) -> FederationState:
    """The terms that all sites share, how many sites are known to take part, and the arms as they are now."""
    terms, shares = site.terms, site.terms.shares
    return FederationState(
        name=terms.name,
        num_agents=site.num_agents,
        max_agents=terms.most_agents,
        arms=list(site.arms.names),
        stopped=[site.arms.names[k] for k in sorted(site.stopped)],
        control=None if shares is None or shares.control is None else str(shares.control),
        control_share=0.0 if shares is None else shares.control_share,
        least_share=0.0 if shares is None else shares.least_share,
        low=terms.low,
        high=terms.high,
        reward_window=terms.reward_window,
        default_reward=terms.missing_reward,
        counts=terms.counted,
        max_decisions_per_day=terms.max_decisions_per_day,
        policy=label_of(terms.policy),
        digest=terms.digest(),
    )


def _arm_states(site: Site) -> list[ArmState]:
    """Every arm, as the site sees it."""
    weights, own, theta, radius = site.weights, site.own_means, site.theta, site.radius
    verdicts = [site.arms.standing(name) for name in site.arms.names]
    return [
        ArmState(
            name=name,
            estimate=theta[k],
            radius=radius[k],
            own_mean=own[k],
            weight=weights[k],
            pulls=site.tried[k],
            rewards=site.rewards[k],
            releases=site.releases[k],
            status=verdicts[k].status,
            changed_by=None if (change := verdicts[k].by) is None else change.by,
        )
        for k, name in enumerate(site.arms.names)
    ]


def arms_body(arms: Arms) -> ArmsBody:
    """The arms as ``GET /v1/arms`` shows them."""
    return ArmsBody(
        version=arms.version,
        arms=[
            ArmStatusBody(
                name=name,
                arm=k,
                status=(verdict := arms.standing(name)).status,
                last_change=None if verdict.by is None else change_body(arms, verdict.by),
            )
            for k, name in enumerate(arms.names)
        ],
        waiting=[change_body(arms, it) for it in arms.waiting],
        changes=[
            change_body(arms, it) for it in sorted((it.change for it in arms.changes.values()), key=lambda it: it.order)
        ],
    )


def change_body(arms: Arms, it: ArmChange) -> ArmChangeBody:
    """One change."""
    accepted = arms.changes[it.id].accepted > 0
    return ArmChangeBody(
        id=it.id, version=it.version, change=it.kind, arm=it.arm, by=it.by, at=it.at / 1000.0, accepted=accepted
    )


def _neighbour_states(site: Site, statuses: Mapping[str, NeighbourStatus]) -> list[NeighbourState]:
    """Every listed neighbour, then those that have left and are no longer listed."""
    left = {link.neighbour for link in site.links if link.left}
    listed = [_neighbour_state(site, name, status, name in left) for name, status in statuses.items()]
    return listed + [_neighbour_state(site, name, None, True) for name in sorted(left - statuses.keys())]


def _neighbour_state(site: Site, name: str, status: NeighbourStatus | None, left: bool) -> NeighbourState:
    carried = site.carried(name)
    address = None if status is None else status.neighbour.address
    return NeighbourState(
        name=name,
        address=None if address is None else str(address),
        reachable=status is not None and status.reachable and not left,
        last_exchange=None if status is None else status.last_exchange,
        exchanges=0 if status is None else status.exchanges,
        failures=0 if status is None else status.failures,
        refusals=0 if status is None else status.refusals,
        unheard=0 if status is None else status.unheard,
        last_error=None if status is None else status.last_error,
        left=left,
        flow=[
            FlowState(arm=arm, value=it.value, weight=it.weight, share=it.share)
            for arm, it in zip(site.arms.names, carried.arms, strict=False)
        ],
        arms_version=0 if status is None else status.arms_version,
        moved=carried.moved,
        moves=carried.moves,
    )
