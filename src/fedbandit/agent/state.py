"""What an agent shows of itself: the content of ``GET /v1/state``, as the server writes it and the client reads it.

Here belong names, types and what they mean, in the words of the documents, and no rule. Nothing raw is in here: means
and estimates are made of releases.
"""

from pydantic import BaseModel, ConfigDict

__all__ = ["ArmState", "DecisionState", "FederationState", "NeighbourState", "PrivacyState", "State"]


class _Shown(BaseModel):
    model_config = ConfigDict(frozen=True)


class FederationState(_Shown):
    """What all sites agreed on."""

    name: str
    num_agents: int
    arms: list[str]
    low: float
    high: float
    policy: str  # in words
    digest: str


class ArmState(_Shown):
    """One arm, as this agent sees it."""

    name: str
    estimate: float | None  # of the mean over all sites; None while the arm is unknown
    radius: float | None  # the uncertainty that the index uses; None while the arm is unknown
    own_mean: float | None  # of this site's releases alone; None before the first
    weight: float  # that has been gossiped here: near 1 once every site has released and gossip has mixed
    pulls: int  # decisions for this arm, those that wait for their reward included
    rewards: int  # decisions with a reward
    releases: int


class NeighbourState(_Shown):
    """One link, as this end sees it."""

    name: str
    address: str | None  # None: they dial us
    reachable: bool  # the last attempt came through; for one who dials us: it has called within the last minute
    last_exchange: float | None  # seconds since 1970
    exchanges: int  # since this process started
    failures: int  # since this process started
    refusals: int  # since this process started: calls of it that were answered with an error
    last_error: str | None
    left: bool  # it has left for good, and its flow was dropped


class PrivacyState(_Shown):
    """What is promised to the one whose reward it is."""

    mechanism: str
    epsilon_per_reward: float | None  # None: no privacy
    releases: int
    promise: str


class DecisionState(_Shown):
    """Decisions of this site, over all its runs."""

    handed_out: int
    pending: int  # without a reward, not expired
    remembered: int  # pending ones and those whose reward can still be repeated


class State(_Shown):
    """One agent."""

    name: str
    version: str  # of the software
    epoch: int  # the life of this site, which a lost disk ends
    started: float  # seconds since 1970: this process
    insecure: bool  # gossip without certificates, on loopback
    certificate_until: float | None = None  # seconds since 1970; None without certificates
    federation: FederationState
    decisions: DecisionState
    arms: list[ArmState]
    neighbours: list[NeighbourState]
    privacy: PrivacyState
    refused: dict[str, int]  # since this process started, by reason: calls turned away, handshakes that failed
    warnings: list[str]
