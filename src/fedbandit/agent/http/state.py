"""The models of ``GET /v1/state``, which the server writes and the client reads.

They hold nothing raw: means and estimates are made of releases. The descriptions appear in the OpenAPI document, and
docs/http.md repeats them.
"""

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ArmState", "DecisionState", "FederationState", "NeighbourState", "PrivacyState", "SiteState"]


class _Shown(BaseModel):
    model_config = ConfigDict(frozen=True)


class FederationState(_Shown):
    """What all sites agreed on."""

    name: str = Field(description="of the federation")
    num_agents: int = Field(description="sites that are expected to take part")
    arms: list[str] = Field(description="names of the arms, in order")
    low: float = Field(description="no reward is lower")
    high: float = Field(description="no reward is higher")
    policy: str = Field(description="how arms are chosen, in words")
    digest: str = Field(description="a hash of all the terms: sites with different ones do not talk")


class ArmState(_Shown):
    """One arm, as this agent sees it."""

    name: str = Field(description="of the arm")
    estimate: float | None = Field(description="of the mean reward over all sites; null while the arm is unknown here")
    radius: float | None = Field(
        description="how far the estimate is typically off, in units of the reward; under ucb, kl, fed_ucb and "
        "gossip_ucb the margin that is added to it when arms are compared; null while the arm is unknown here"
    )
    own_mean: float | None = Field(
        description="by this site's own releases alone, noise included: it may lie outside the range of rewards; null "
        "before the first release"
    )
    weight: float = Field(
        description="how much of the federation is in the estimate, near 1 in the end. 0.75: a quarter of the sites "
        "has not released this arm yet, or gossip has not mixed yet"
    )
    pulls: int = Field(
        description="decisions for this arm, pending ones included; those that expired without a reward are not"
    )
    rewards: int = Field(description="decisions for this arm that have their reward")
    releases: int = Field(description="noisy means of this arm that this site has made public")


class NeighbourState(_Shown):
    """One link, as this end sees it."""

    name: str = Field(description="of the neighbour")
    address: str | None = Field(description="where we dial it; null: it dials us")
    reachable: bool = Field(
        description="the last attempt came through; for one who dials us: it has called within the last minute"
    )
    last_exchange: float | None = Field(
        description="when the last exchange came through, in seconds since 1970; null: none since this process started"
    )
    exchanges: int = Field(description="that came through since this process started, whoever began them")
    failures: int = Field(
        description="exchanges that we began and that did not come through, since this process started"
    )
    refusals: int = Field(description="calls of it that we refused, since this process started")
    last_error: str | None = Field(
        description="why the last exchange failed or was refused; null once one came through"
    )
    left: bool = Field(description="it has left for good, and what it said was dropped")


class PrivacyState(_Shown):
    """What is promised to the one whose reward it is."""

    mechanism: str = Field(description="how rewards are hidden, in words")
    epsilon_per_reward: float | None = Field(description="what one reward costs; null: there is no privacy")
    releases: int = Field(description="of this site, of all arms")
    promise: str = Field(description="what holds, in words")


class DecisionState(_Shown):
    """Decisions of this site, over all its runs."""

    handed_out: int = Field(description="decisions since the data folder was empty")
    pending: int = Field(description="those without a reward that have not expired")
    remembered: int = Field(description="those pending, and those whose reward can still be repeated")


class SiteState(_Shown):
    """One agent."""

    name: str = Field(description="of this site")
    version: str = Field(description="of the software")
    epoch: int = Field(description="this site's life: when its data folder was begun, in milliseconds since 1970")
    started: float = Field(description="when this process started, in seconds since 1970")
    insecure: bool = Field(description="gossip has no certificates; only on one machine")
    certificate_until: float | None = Field(
        default=None,
        description="when this site's certificate expires, in seconds since 1970; null without certificates",
    )
    federation: FederationState = Field(description="what all sites agreed on")
    decisions: DecisionState = Field(description="of this site, over all its runs")
    arms: list[ArmState] = Field(description="as this site sees them")
    neighbours: list[NeighbourState] = Field(description="links, as this end sees them")
    privacy: PrivacyState = Field(description="what is promised to the one whose reward it is")
    refused: dict[str, int] = Field(
        description="calls that were turned away since this process started, by reason: `not a neighbour`, "
        "`certificate`, `other terms`, `message` (broken, or not believed), `disk`, and handshakes that failed"
    )
    warnings: list[str] = Field(
        description="what the operator should know: a policy without privacy, one that makes a slow site chase a fast "
        "one, a radius without a theorem, a horizon that is nearly used up; gossip without certificates, a certificate "
        "that expires within 30 days, a neighbour that spoke from an earlier life"
    )
