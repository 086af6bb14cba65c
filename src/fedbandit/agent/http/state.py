"""Models of ``GET /v1/state``, which the server writes and the client reads.

They hold no raw reward: means and estimates derive from releases. The descriptions appear in the OpenAPI document, and
docs/http.md repeats them.
"""

from pydantic import BaseModel, ConfigDict, Field


class _StateModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class FederationState(_StateModel):
    """The terms that all sites share, and how many sites take part."""

    name: str = Field(description="name of the federation")
    num_agents: int = Field(description="number of sites known to take part, this one included")
    max_agents: int = Field(default=100, description="most sites that may take part")
    arms: list[str] = Field(description="names of the arms that this site knows, in the order of their numbers")
    stopped: list[str] = Field(default_factory=list[str], description="names of those that are given to nobody now")
    control: str | None = Field(default=None, description="the control arm, which has a fixed share")
    control_share: float = Field(default=0.0, description="probability of the control arm")
    least_share: float = Field(default=0.0, description="least probability of every other arm")
    low: float = Field(description="lowest possible reward")
    high: float = Field(description="highest possible reward")
    reward_window: float = Field(
        description="seconds from a decision until its reward counts, if it has come; 0: rewards are reported at once"
    )
    default_reward: float = Field(description="reward that counts where none came")
    counts: str = Field(
        description="whose average decides which arm is best: `patients`, or `sites`, which count alike"
    )
    max_decisions_per_day: float | None = Field(
        default=None, description="most decisions per day by which one site counts; null: 100 per second"
    )
    policy: str = Field(description="how arms are chosen, in words")
    digest: str = Field(description="hash of all the terms; sites with different digests refuse each other")


class ArmState(_StateModel):
    """One arm, as this agent sees it."""

    name: str = Field(description="name of the arm")
    estimate: float | None = Field(
        description="estimate of the mean reward over all patients, or sites (`federation.counts`); null while the "
        "arm is unknown here"
    )
    radius: float | None = Field(
        description="typical error of the estimate, in units of the reward; under ucb, kl, fed_ucb and "
        "gossip_ucb the margin added to it when arms are compared; null while the arm is unknown here"
    )
    error: float | None = Field(
        default=None,
        description="typical error of the estimate over all sites: `radius` under thompson, and more where other sites "
        "have released less than this one; null while the arm is unknown, or where the policy has only a margin",
    )
    own_mean: float | None = Field(
        description="mean of this site's own releases alone, noise included, so it may lie outside the range of "
        "rewards; null before the first release"
    )
    weight: float = Field(
        description="share of the federation in the estimate; it approaches 1. 0.75: a quarter of the sites "
        "have not released this arm yet, or gossip has not mixed yet. Where patients count, it is relative to the arm "
        "that most have released"
    )
    pulls: int = Field(description="decisions for this arm, pending ones included")
    rewards: int = Field(description="rewards of this arm that count already; where none came, the default counts")
    releases: int = Field(description="noisy means of this arm that this site has published")
    status: str = Field(default="active", description="`active`, `suspended` or `retired`; only an active one is given")
    changed_by: str | None = Field(
        default=None, description="site whose change made it so; null: it was so from the start"
    )
    chance_best: float | None = Field(
        default=None,
        description="chance that this is the best of the active arms, within 0.01, by the numbers of the index, as of "
        "the last exchange; null for a stopped arm, while an active one is unknown, and under fed_ucb, gossip_ucb and "
        "own policies",
    )
    behind: float | None = Field(
        default=None,
        description="what giving it instead of the leading arm costs per decision, on average: the difference of the "
        "estimates beside it; below 0 where it is ahead of the leader, which is that of the last exchange, by what was "
        "released here since; null for a stopped or unknown arm",
    )
    behind_radius: float | None = Field(
        default=None, description="typical error of `behind`; null where that is not known"
    )


class AnswerState(_StateModel):
    """How far the question is settled: which arm is best. As of the last exchange; where nobody else is there, now."""

    leader: str | None = Field(
        description="active arm with the highest estimate, or the only active one; null while nothing is known"
    )
    chance: float | None = Field(
        description="chance that it is the best active arm, within 0.01: a belief about the mean over all patients, or "
        "sites, not about one patient; null where that is not known"
    )
    settled: bool = Field(
        description="the chance is at least 0.99, and what sites have released has spread; never under fed_ucb, "
        "gossip_ucb and own policies"
    )
    expected_loss: float | None = Field(
        description="what giving the leader always would lose per decision against the best arm, on average over what "
        "may be true; null where the chance is"
    )
    words: str = Field(description="the same in a sentence or two")


class RatesState(_StateModel):
    """How much is going on, over the last minute of this process."""

    decisions_per_minute: float = Field(description="decisions handed out")
    rewards_per_minute: float = Field(description="rewards reported, each once, also those that came too late")


class HistoryPoint(_StateModel):
    """The site at one time; rows have an entry for each arm that it knew then, in the order of their numbers."""

    at: float = Field(description="when, in seconds since 1970")
    estimates: list[float | None] = Field(description="the estimate of each arm; null while it is unknown here")
    radii: list[float | None] = Field(description="their typical errors, or margins")
    own_means: list[float | None] = Field(description="the means of this site's own releases alone")
    pulls: list[int] = Field(description="decisions for each arm")
    decisions: int = Field(description="decisions handed out since the data folder was created")
    rewards: int = Field(description="rewards that count")


class HistoryBody(_StateModel):
    """How the numbers moved since this process started."""

    started: float = Field(description="when this process started, in seconds since 1970")
    arms: list[str] = Field(description="names of the arms that this site knows now; older points may have fewer")
    points: list[HistoryPoint] = Field(
        description="at most 500, oldest first; the older they are, the further apart they lie"
    )


class RightsBody(_StateModel):
    """What the caller may do."""

    rights: list[str] = Field(
        description="the rights of the token, or all of them where the agent requires no token", examples=[["view"]]
    )


class ArmChangeBody(_StateModel):
    """A change of an arm, signed by the site that made it."""

    id: str = Field(description="hash of the change")
    version: int = Field(description="how many changes its site knew, this one counted")
    change: str = Field(description="`add`, `suspend`, `resume` or `retire`")
    arm: str = Field(description="name of the arm")
    by: str = Field(description="name of the site that made it")
    at: float = Field(description="when, by its clock, in seconds since 1970")
    accepted: bool = Field(
        description="whether this site has accepted it; a stop counts all the same, but a retirement is final only then"
    )


class ArmStatusBody(_StateModel):
    """One arm, and the change that made it what it is."""

    name: str = Field(description="name of the arm")
    arm: int = Field(description="its number here; other sites may have another")
    status: str = Field(description="`active`, `suspended` or `retired`")
    last_change: ArmChangeBody | None = Field(description="the change that made it so; null: it was so from the start")


class ArmsBody(_StateModel):
    """The arms of a site, and all changes that it knows."""

    version: int = Field(description="how many changes this site knows")
    arms: list[ArmStatusBody] = Field(description="the arms that this site has, those of the terms first")
    waiting: list[ArmChangeBody] = Field(
        description="changes that do not count here until they are accepted; a retirement only suspends until then"
    )
    changes: list[ArmChangeBody] = Field(description="all changes, in the order of their versions")


class FlowState(_StateModel):
    """What a link carries of one arm, towards this site."""

    arm: str = Field(description="name of the arm")
    value: float = Field(description="in ranges of the reward, counted from the lowest, times the weight")
    weight: float = Field(description="in sites, or decisions per second where patients count")
    share: float = Field(
        description="the larger share of what a link may carry of value or weight; 1: the link is at its bound"
    )


class NeighbourState(_StateModel):
    """One link, as this end sees it."""

    name: str = Field(description="name of the neighbour")
    address: str | None = Field(description="address that we dial; null: it dials us")
    reachable: bool = Field(
        description="whether the last attempt succeeded; where it dials us: whether it called within the last minute"
    )
    last_exchange: float | None = Field(
        description="time of the last completed exchange, in seconds since 1970; null: none since this process started"
    )
    exchanges: int = Field(description="exchanges completed since this process started, whichever end began them")
    failures: int = Field(description="exchanges that we began and that failed, since this process started")
    refusals: int = Field(description="calls from it that we refused, since this process started")
    unheard: int = Field(
        default=0,
        description="exchanges since this process started that averaged nothing, because one end was in another "
        "incarnation; they are not among `exchanges`",
    )
    last_error: str | None = Field(
        description="why the last exchange failed or was refused; null after one has succeeded"
    )
    left: bool = Field(description="it has left for good, and what it contributed was removed")
    flow: list[FlowState] = Field(
        default=[], description="what the link carries of each arm: all that it ever sent us; `leave` removes it"
    )
    arms_version: int = Field(default=0, description="how many changes of the arms it knew at the last exchange")
    moved: float = Field(
        default=0.0, description="share of what the link may carry that the last exchange moved, at most over arms"
    )
    moves: float = Field(default=0.0, description="root mean square of that over about the last 20 exchanges")


class PrivacyState(_StateModel):
    """The privacy of one reward."""

    mechanism: str = Field(description="how rewards are protected, in words")
    epsilon_per_reward: float | None = Field(description="epsilon that one reward costs; null: there is no privacy")
    releases: int = Field(description="releases of this site, of all arms")
    promise: str = Field(description="what is promised, in words")


class DecisionState(_StateModel):
    """Decisions of this site, over all its runs."""

    handed_out: int = Field(description="decisions handed out since the data folder was created")
    pending: int = Field(description="decisions without a reward that do not count yet")
    waiting: int = Field(
        description="rewards that were reported and do not count yet: their window is open, without a window that "
        "of an earlier decision of the arm is missing, or nothing is released now (`held`)"
    )
    late: int = Field(description="rewards that came after their window, and do not count")
    per_day: float | None = Field(
        description="decisions per day, by which this site counts where patients count; null before its first release, "
        "or where sites count alike"
    )
    remembered: int = Field(description="decisions that have not expired: their reward can be reported or repeated")
    keep: int = Field(default=0, description="most decisions that are remembered")
    expire_after: float = Field(
        default=0.0, description="seconds after the end of its reward window until a decision is forgotten"
    )
    forgotten: dict[str, int] = Field(
        default={},
        description="decisions forgotten without a reward since this process started, by reason: `time` "
        "(`expire_after`) and `keep`; cancelled ones are not among them",
    )


class RestoredBody(_StateModel):
    """What a new incarnation with an old file has dropped, and kept."""

    rewards: int = Field(description="acknowledged rewards that were in no release of the file, and are dropped")
    decisions: int = Field(description="open decisions that are forgotten: their rewards can no longer be reported")
    kept: int = Field(description="decisions that no other process knows; their rewards will count")


class SiteState(_StateModel):
    """One agent."""

    name: str = Field(description="name of this site")
    version: str = Field(description="version of the software")
    incarnation: int = Field(
        description="this site's incarnation: when its data folder was created or restored, in milliseconds since 1970"
    )
    started: float = Field(description="when this process started, in seconds since 1970")
    held: str | None = Field(
        default=None,
        description="why nothing is released now; null: releases go on. `unconfirmed`: not every neighbour has "
        "answered since the start that the data folder is current. `old`: a neighbour has proved that it is not. "
        "`split-brain`: another process has this name and folder. Decisions are handed out and rewards taken all the "
        "same",
    )
    waits_for: list[str] = Field(
        default=[], description="neighbours that have not answered, while `held` is `unconfirmed`"
    )
    insecure: bool = Field(description="gossip has no certificates; only on one machine")
    certificate_until: float | None = Field(
        default=None,
        description="when this site's certificate expires, in seconds since 1970; null without certificates",
    )
    federation: FederationState = Field(description="the terms that all sites share")
    decisions: DecisionState = Field(description="decisions of this site, over all its runs")
    answer: AnswerState = Field(description="which arm is best, as far as is known here")
    rates: RatesState = Field(description="decisions and rewards of the last minute")
    arms: list[ArmState] = Field(description="the arms, as this site sees them")
    arms_version: int = Field(default=0, description="how many changes of the arms this site knows")
    arms_waiting: int = Field(default=0, description="changes of the arms that wait for the operator")
    neighbours: list[NeighbourState] = Field(description="the links, as this end sees them")
    privacy: PrivacyState = Field(description="the privacy of one reward")
    refused: dict[str, int] = Field(
        description="connections and calls refused since this process started, by reason: `not a neighbour`, "
        "`certificate` (a name that no site can have), `connections` (more than one neighbour may have), "
        "`other terms`, `message` (malformed, or out of bounds), `disk`, `unfinished handshake`, and failed handshakes"
    )
    warnings_of_terms: list[str] = Field(
        default=[],
        description="those of `warnings` that follow from the terms, or from `--insecure`, and stay while these do",
    )
    notes: list[str] = Field(
        default=[],
        description="those of `warnings` that need nobody: an arm that somebody has suspended, a site whose few "
        "patients are why the answer is not surer",
    )
    needs_person: list[str] = Field(
        description="what needs a person, a line each: warnings that are neither `notes` nor `warnings_of_terms`, and "
        "neighbours that cannot be reached"
    )
    warnings: list[str] = Field(
        description="conditions that the operator should know: rewards that wait for that of an "
        "earlier decision; a decision that is forgotten soon and waits for its reward; a policy without privacy, one "
        "that makes a slow site "
        "chase a fast one, a radius without a theorem, a horizon that is nearly used up, too few expected decisions "
        "for epsilon; a site whose few patients leave the answer open, gossip that is slower than decisions; "
        "a neighbour whose link carries too much or jumps, an estimate outside the range, a weight that cannot be, "
        "more decisions or sites than there can be; "
        "gossip without certificates, a certificate that expires within 30 days, a neighbour that spoke from an "
        "earlier incarnation, one that was removed from the list without `leave`; why nothing is released, two "
        "processes of one name; names of arms that look like others"
    )
