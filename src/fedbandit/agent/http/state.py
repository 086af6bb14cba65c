"""Models of ``GET /v1/state``, which the server writes and the client reads.

They hold no raw reward: means and estimates derive from releases. The descriptions appear in the OpenAPI document, and
docs/http.md repeats them.
"""

from pydantic import BaseModel, ConfigDict, Field

from fedbandit.agent.core.trail import KINDS


class _StateModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class GuardrailsState(_StateModel):
    """What every site applies to the other arms (docs/guardrails.md)."""

    reference: str = Field(description="the arm with which others are compared")
    worse_by: float = Field(description="an arm that is certainly worse by more is suspended, in units of a reward")


class IntervalBody(_StateModel):
    """From where to where a number may lie."""

    low: float = Field(description="lower end")
    high: float = Field(description="upper end")


class WordsState(_StateModel):
    """The words in which the federation speaks to people: nouns in the singular, and their plurals."""

    arm: str = Field(default="arm", description="what is given")
    arms: str = Field(default="arms", description="several of them")
    reward: str = Field(default="reward", description="what is hoped for")
    rewards: str = Field(default="rewards", description="several of them")
    failure: str = Field(default="", description="what a patient without a reward has; empty: there is no word for it")
    failures: str = Field(default="", description="several of them")


class PlanState(_StateModel):
    """What was planned; nothing in it stops anything by itself."""

    question: str = Field(default="", description="what the federation is to find out")
    starts: str = Field(default="", description="the day of the first patient, such as 2026-03-02; empty: not given")
    patients: int | None = Field(default=None, description="patients over all sites; null: not given")
    per_site: int | None = Field(
        default=None, description="decisions that a site expects (`policy.expected_decisions`); null: not given"
    )
    stops: str = Field(default="", description="the stopping rule, in words; empty: not given")


class FederationState(_StateModel):
    """The terms that all sites share, and how many sites take part."""

    name: str = Field(description="name of the federation")
    num_agents: int = Field(description="number of sites whose bulletins count here, this one included")
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
    largest_share: float | None = Field(
        default=None, description="largest share of one site in any average, where patients count"
    )
    guardrails: GuardrailsState | None = Field(
        default=None, description="when an arm is suspended without anybody's word; null: never"
    )
    context: dict[str, list[str]] | None = Field(
        default=None, description="factors that a request names a level of, with their levels; null: none"
    )
    policy: str = Field(description="how arms are chosen: the policy and its settings")
    chosen: str = Field(default="", description="how arms are chosen, in a sentence")
    words: WordsState = Field(default=WordsState(), description="the words in which people are told")
    plan: PlanState = Field(default=PlanState(), description="what was planned")
    patients: int = Field(default=0, description="decisions of all sites that count, as far as known here")
    digest: str = Field(description="hash of all the terms; sites with different digests refuse each other")


class PartStopState(_StateModel):
    """A stop of an arm for the patients of some strata alone."""

    whom: str = Field(description="for whom, in words")
    strata: list[str] = Field(description="labels of the strata")
    context: dict[str, str] | None = Field(
        description="levels that these strata and no others have, by factor, for a resume; null: several are needed"
    )
    by: str = Field(description="site whose change it is")
    reason: str = Field(description="why, in that site's words")
    acknowledged_by: list[str] = Field(description="as of a stop for all patients")
    missing: list[str] = Field(description="the same")
    resumed_by: list[str] = Field(description="the same")


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
    interval: IntervalBody | None = Field(
        default=None,
        description="95 % interval of the estimate, for somebody who looks once; null where `error` is",
    )
    always: IntervalBody | None = Field(
        default=None,
        description="95 % interval that holds at all times at once, however often somebody looks: calibrated, that is "
        "measured, without a theorem; null where `error` is",
    )
    own_mean: float | None = Field(
        description="mean of this site's own releases alone, noise included, so it may lie outside the range of "
        "rewards; null before the first release"
    )
    weight: float = Field(
        description="share of the federation in the estimate: 0.75: a quarter of the sites have not released this arm "
        "yet. Where patients count, it is relative to the arm that most have released"
    )
    pulls: int = Field(description="decisions for this arm, pending ones included")
    patients: int = Field(default=0, description="decisions for this arm at all sites that count, as far as known here")
    rewards: int = Field(description="rewards of this arm that count already; where none came, the default counts")
    history: int = Field(
        default=0,
        description="rewards of before the federation that were entered here: released like others, not in `rewards`",
    )
    releases: int = Field(description="noisy means of this arm that this site has published")
    status: str = Field(default="active", description="`active`, `suspended` or `retired`; only an active one is given")
    changed_by: str | None = Field(
        default=None, description="site whose change made it so; null: it was so from the start"
    )
    reason: str = Field(default="", description="why, in that site's words")
    acknowledged_by: list[str] = Field(
        default=[],
        description="sites that have said that they know `changed_by`'s change, and have not resumed the arm; of stops "
        "alone",
    )
    missing: list[str] = Field(
        default=[],
        description="sites that have not said so yet: they may give it",
    )
    resumed_by: list[str] = Field(
        default=[], description="sites that have resumed the arm, or accepted that, and give it; of stops alone"
    )
    suspended_for: list[PartStopState] = Field(
        default=[], description="stops in force for the patients of some strata alone; for others it is given"
    )
    chance_best: float | None = Field(
        default=None,
        description="chance that this is the best of the active arms, within 0.01, by the numbers of the index; null "
        "for a stopped arm, while an active one is unknown, and under fed_ucb, gossip_ucb and own policies",
    )
    behind: float | None = Field(
        default=None,
        description="what giving it instead of the leading arm costs per decision, on average: the difference of the "
        "estimates beside it; null for a stopped or unknown arm",
    )
    behind_interval: IntervalBody | None = Field(
        default=None, description="95 % interval of `behind`, for somebody who looks once; null where that is not known"
    )
    behind_always: IntervalBody | None = Field(
        default=None, description="95 % interval of `behind` that holds at all times at once, like `always`"
    )


class StratumState(_StateModel):
    """What is known of a stratum: the patients with these levels of all factors."""

    label: str = Field(description="its levels in words")
    context: dict[str, str] = Field(description="the level of each factor")
    frequency: float = Field(description="share of all patients, as sites have measured it; alike where sites count")
    leader: str | None = Field(description="active arm with the highest estimate here; null while nothing is known")
    chance: float | None = Field(description="chance that it is the best active arm here; null where not known")
    settled: bool = Field(
        description="the chance is at least 0.99, and releases of this stratum alone prove it, whatever one site has "
        "said and however often anybody looks (docs/context.md)"
    )
    estimates: list[float | None] = Field(description="estimate of each arm, in the order of `arms`; null: unknown")
    errors: list[float | None] = Field(description="standard deviation of each estimate")
    chances: list[float | None] = Field(description="chance of each active arm to be the best here")
    intervals: list[IntervalBody | None] = Field(
        description="95 % interval of each estimate, for somebody who looks once"
    )
    pulls: list[int] = Field(description="decisions for each arm at this site")
    patients: list[int] = Field(description="decisions for each arm at all sites that count, as far as known here")
    statuses: list[str] = Field(description="status of each arm for these patients")


class AnswerState(_StateModel):
    """How far the question is settled: which arm is best."""

    leader: str | None = Field(
        description="active arm with the highest estimate, or the only active one; null while nothing is known"
    )
    chance: float | None = Field(
        description="chance that it is the best active arm, within 0.01: a belief about the mean over all patients, or "
        "sites, not about one patient; null where that is not known"
    )
    settled: bool = Field(
        description="the chance is at least 0.99, whatever one site has said, and the lead is larger than daily looks "
        "can produce: said of a wrong arm, at any time, in at most 1 of 20 federations; never under fed_ucb, "
        "gossip_ucb and own policies"
    )
    expected_loss: float | None = Field(
        description="what giving the leader always would lose per decision against the best arm, on average over what "
        "may be true; null where the chance is"
    )
    words: str = Field(description="the same in a sentence or two; with strata for whom which arm is best")
    strata: list[StratumState] = Field(
        default_factory=list[StratumState], description="the answer in each stratum that the policy tells apart"
    )
    strata_matter: float | None = Field(
        default=None, description="chance that strata change the arms by more than is negligible; null: there are none"
    )


class RatesState(_StateModel):
    """How much is going on, over the last minute of this process."""

    decisions_per_minute: float = Field(description="decisions handed out")
    rewards_per_minute: float = Field(description="rewards reported, each once, also those that came too late")


class HistoryPoint(_StateModel):
    """The site at one time; rows have an entry for each arm that it knew then, in the order of their numbers."""

    at: float = Field(description="when, in seconds since 1970")
    estimates: list[float | None] = Field(description="the estimate of each arm; null while it is unknown here")
    lows: list[float | None] = Field(description="the lower ends of their 95 % intervals, or margins")
    highs: list[float | None] = Field(description="the upper ends")
    always_lows: list[float | None] = Field(
        default=[], description="the lower ends of the 95 % intervals that hold at all times at once; null without one"
    )
    always_highs: list[float | None] = Field(default=[], description="the upper ends")
    own_means: list[float | None] = Field(description="the means of this site's own releases alone")
    pulls: list[int] = Field(description="decisions for each arm")
    decisions: int = Field(description="decisions handed out since the data folder was created")
    rewards: int = Field(description="rewards that count")


class HistoryBody(_StateModel):
    """How the numbers moved since the data folder was created."""

    started: float = Field(description="when this process started, in seconds since 1970")
    arms: list[str] = Field(description="names of the arms that this site knows now; older points may have fewer")
    points: list[HistoryPoint] = Field(
        description="at most 500, fewer of more than 50 arms; oldest first, and the older, the further apart they lie"
    )


class SiteEstimateBody(_StateModel):
    """What one site has released of an arm, or of two."""

    site: str = Field(description="name of the site")
    mean: float | None = Field(description="its own mean, or difference, noise included; null before its first release")
    interval: IntervalBody | None = Field(
        description="95 % interval of that; null before the first release, or where the policy has none"
    )
    share: float = Field(description="its share in the average")
    patients: int = Field(description="its decisions for the arm; of a difference for both arms")
    rewards: int = Field(description="rewards in its releases, of all strata; of a difference of both arms")
    part: float = Field(
        default=1.0,
        description="of a stratum, how much of the mean is patients of it: the rest lie in the same pooled sums",
    )


class SpreadBody(_StateModel):
    """How much the sites differ."""

    sites: int = Field(description="sites that have released")
    tau2: float = Field(
        description="variance of their true means (DerSimonian and Laird), in squared units of the reward"
    )
    i2: float = Field(description="share of the variation between their estimates that is more than chance")


class EvidenceOf(_StateModel):
    """What is known of an arm, or of how much larger its mean is than that of a reference."""

    arm: str = Field(description="name of the arm")
    reference: str | None = Field(description="arm with which it is compared; null: none")
    status: str = Field(description="status of the arm: `active`, `suspended` or `retired`")
    estimate: float | None = Field(description="over all patients, or sites; null while unknown")
    interval: IntervalBody | None = Field(description="95 % interval, for somebody who looks once")
    always: IntervalBody | None = Field(
        description="95 % interval that holds at all times at once: calibrated, that is measured, without a theorem"
    )
    proved: IntervalBody | None = Field(
        description="95 % interval that holds at all times at once, on every board (docs/theorem.md): over the sites "
        "that have released, where patients count each by how much it has released; null where nothing is proved"
    )
    patients: int = Field(description="decisions for the arm at all sites; of a difference for both arms")
    rewards: int = Field(description="rewards in releases of all sites, of all strata")
    words: str = Field(
        description="a difference in patients: such as 'about 3 more failures per 100 patients'; else empty"
    )
    spread: SpreadBody | None = Field(description="how much sites differ; null with fewer than two")
    spread_in_words: str = Field(description="the same in a sentence")
    sites: list[SiteEstimateBody] = Field(description="every site that counts, by name")


class EvidenceBody(_StateModel):
    """Every site's estimates beside the average: what a forest plot shows."""

    at: float = Field(description="when, in seconds since 1970")
    reference: str = Field(description="arm with which the others are compared")
    stratum: str | None = Field(
        default=None, description="label of the stratum whose patients these are; null: all patients"
    )
    arms: list[EvidenceOf] = Field(description="each arm, in the order of the numbers")
    differences: list[EvidenceOf] = Field(description="each other arm against the reference")


class AuditEntryBody(_StateModel):
    """Who did what, when and why."""

    number: int = Field(description="from 1")
    at: int = Field(description="when, in milliseconds since 1970 by the site's clock")
    kind: str = Field(description="what it is about: " + ", ".join(f"`{it}`" for it in KINDS))
    what: str = Field(description="what was done", examples=["suspend"])
    subject: str = Field(description="to what: an arm, a member, or whoever has rights", examples=["glipizide"])
    site: str = Field(description="whose change of an arm it is; else empty")
    detail: str = Field(description="id of a change, how many releases there are now, or the rights")
    who: str = Field(description="person, or role; empty: not known, or nobody", examples=["Dr. A. Meier"])
    how: str = Field(description="how that is known: `token`, `proxy`, `user of this machine`, or a file's name")
    reason: str = Field(description="why", examples=["recalled"])
    hash: str = Field(description="SHA-256 of the hash before it and of the fields above, in hexadecimal digits")


class AuditLogBody(_StateModel):
    """Entries of the audit trail, oldest first."""

    entries: list[AuditEntryBody] = Field(description="those that were asked for, at most 1,000")
    number: int = Field(description="how many entries the trail has")
    hash: str = Field(description="hash of the last of them")


class SessionBody(_StateModel):
    """Who the caller is, how that is known, and what he may do."""

    name: str = Field(
        default="",
        description="name of the person, or of the token; empty where the agent requires none",
        examples=["Dr. A. Meier"],
    )
    way: str = Field(
        description="how that is known: by a `token`, by a `session`, by the word of a trusted `proxy`, or not at all, "
        "`no token`",
        examples=["session"],
    )
    rights: list[str] = Field(
        description="the rights of the caller, or all of them where the agent requires no token", examples=[["view"]]
    )
    csrf: str | None = Field(
        default=None,
        description="what a change must repeat in `X-CSRF-Token`, where a cookie or a proxy says who calls; else null",
    )
    lasts: float | None = Field(default=None, description="seconds until the session ends; null: there is none")
    sign_out: str | None = Field(
        default=None, description="the path of the trusted proxy that ends its session; null: none is known"
    )


class ReceiptBody(_StateModel):
    """Whether a site has said that it knows a change of the arms."""

    site: str = Field(description="name of the site")
    has_it: bool = Field(description="its bulletin says that it knows the change, and it has not resumed the arm")
    resumed_by: str | None = Field(
        default=None,
        description="whose resume of the arm counts there, its own or one that it has accepted: it gives the arm",
    )
    last_heard: float | None = Field(
        description="when its newest bulletin arrived here, in seconds since 1970; null: it has none here"
    )


class ArmChangeBody(_StateModel):
    """A change of an arm, in the bulletin of the site that made it."""

    id: str = Field(description="hash of the change")
    version: int = Field(description="how many changes its site knew, this one counted")
    reason: str = Field(default="", description="why, in its site's words")
    whom: str = Field(default="", description="for whose patients, in words; empty: for all")
    strata: list[str] = Field(default=[], description="labels of their strata; empty: all")
    receipts: list[ReceiptBody] = Field(
        default=[], description="who has it, of all other sites: of stops that are in force"
    )
    change: str = Field(description="`add`, `suspend`, `resume` or `retire`")
    arm: str = Field(description="name of the arm")
    by: str = Field(description="name of the site that made it")
    at: float = Field(description="when, by its clock, in seconds since 1970")
    accepted: bool = Field(
        description="whether this site has accepted it; a stop counts all the same, but a retirement is final only then"
    )
    accepted_by: list[str] = Field(
        default=[],
        description="which other sites that count have accepted it, as they say; not of `suspend`, nor its own site",
    )
    not_accepted_by: list[str] = Field(default=[], description="which of them have not said that they have")


class ArmStatusBody(_StateModel):
    """One arm, and the change that made it what it is."""

    name: str = Field(description="name of the arm")
    arm: int = Field(description="its number here; other sites may have another")
    status: str = Field(description="`active`, `suspended` or `retired`")
    last_change: ArmChangeBody | None = Field(description="the change that made it so; null: it was so from the start")
    suspended_for: list[ArmChangeBody] = Field(
        default=[], description="stops in force for the patients of some strata alone"
    )


class ArmsBody(_StateModel):
    """The arms of a site, and all changes that it knows."""

    version: int = Field(description="how many changes this site knows")
    arms: list[ArmStatusBody] = Field(description="the arms that this site has, those of the terms first")
    waiting: list[ArmChangeBody] = Field(
        description="changes that do not count here until they are accepted; a retirement only suspends until then"
    )
    changes: list[ArmChangeBody] = Field(description="all changes, in the order of their versions")


class NeighbourState(_StateModel):
    """One link, as this end sees it."""

    name: str = Field(description="name of the neighbour")
    address: str | None = Field(description="address that we dial; null: it dials us")
    proxy: str | None = Field(default=None, description="HTTP proxy on the way; null: none")
    reachable: bool = Field(description="whether there is a connection")
    linked_since: float | None = Field(
        description="since when there is a connection, in seconds since 1970; null: there is none"
    )
    last_heard: float | None = Field(
        description="when anything came from it last, in seconds since 1970; null: never since this process started"
    )
    received: int = Field(description="bulletins that came over this link since this process started, each once")
    sent: int = Field(description="bulletins sent over it since this process started")
    failures: int = Field(
        description="attempts to dial it that failed, and connections lost, since this process started"
    )
    refusals: int = Field(description="calls and messages from it that we refused, since this process started")
    last_error: str | None = Field(description="why there is no connection, or was none last; null: nothing went wrong")


class StatementBody(_StateModel):
    """One of two different bulletins with one number."""

    digest: str = Field(description="hash of the bulletin, in hexadecimal")
    signature: str = Field(description="signature over its bytes, in base64; empty without certificates")
    signer: str = Field(description="SHA-256 of the signer's certificate, in hexadecimal; empty without certificates")
    body: str = Field(description="the bulletin: exactly these characters, in UTF-8, are signed")


class ConflictState(_StateModel):
    """Two different bulletins of one site with one number: two processes had its key."""

    incarnation: int = Field(description="incarnation of both")
    number: int = Field(description="number of both")
    signatures: list[str] = Field(description="their signatures, in base64; `GET /v1/members/NAME` shows the rest")


class MemberArm(_StateModel):
    """What a site has said of one arm."""

    arm: str = Field(description="name of the arm")
    mean: float | None = Field(
        description="mean of what it has released, noise included; null before its first release"
    )
    releases: int = Field(description="how often it has released anything of the arm")
    rewards: int = Field(description="rewards in these releases")
    decisions: int = Field(description="decisions for the arm there")


class MemberState(_StateModel):
    """One site of the federation, as its newest bulletin on this site's board has it."""

    name: str = Field(description="name of the site")
    counts: bool = Field(description="whether its numbers count here")
    excluded: bool = Field(default=False, description="this site's operator has excluded it")
    excluded_because: str = Field(default="", description="the operator's reason, if one was given")
    refused: bool = Field(default=False, description="`members.refuse` names it, or its certificate was revoked")
    incarnation: int = Field(description="incarnation of the bulletin: when its data folder was created or restored")
    number: int = Field(description="number of the bulletin within the incarnation")
    made: float = Field(description="when it was made, by that site's clock, in seconds since 1970")
    since: float = Field(description="when it arrived here first, in seconds since 1970")
    decisions: int = Field(description="decisions that the site has made")
    share: float | None = Field(
        description="its largest share of an average here, over arms; null where it does not count"
    )
    arms: list[MemberArm] = Field(description="what it has said of each arm")
    software: str = Field(description="version of its software")
    conflict: ConflictState | None = Field(default=None, description="two different bulletins with one number, if any")
    oddities: list[str] = Field(default=[], description="what does not fit in its numbers, in words")


class MemberBody(_StateModel):
    """What a site has signed: anybody can check it with the CA's certificate (docs/security.md)."""

    name: str = Field(description="name of the site")
    bulletin: StatementBody = Field(description="its newest bulletin here")
    conflict: list[StatementBody] = Field(description="two different bulletins with one number, or none")
    certificates: dict[str, str] = Field(description="certificates of the signers, in PEM, by their SHA-256")


class SiteValue(_StateModel):
    """One site's own estimate of another policy, noise included."""

    site: str = Field(description="name of the site")
    decisions: int = Field(description="decisions in its releases")
    value: float | None = Field(description="mean reward, which noise may take beyond the range; null: unknown")


class EvaluatedState(_StateModel):
    """How well a policy would have done over all sites (docs/evaluate.md)."""

    name: str = Field(description="`as given`, the policy of the federation itself, or one of the terms")
    words: str = Field(description="what it gives; empty: its name says it")
    decisions: int = Field(description="decisions of all sites in releases")
    estimate: float | None = Field(description="mean reward; null: nothing is known")
    interval: IntervalBody | None = Field(description="95 % interval, for somebody who looks once")
    noise: float | None = Field(description="the part of the standard error that is noise for privacy")
    effective: float = Field(description="so many decisions of the policy itself would tell as much, but for the noise")
    mean_weight: float = Field(description="near 1 if sites could have given what the policy gives, and little was cut")
    remark: str = Field(description="what to beware of; empty: nothing")
    sites: list[SiteValue] = Field(description="those that have released")


class EvaluationState(_StateModel):
    """What the terms say of the evaluation of other policies, and what all sites' releases say."""

    epsilon: float = Field(description="what it costs one reward, beside the policy's own epsilon")
    largest_weight: int = Field(description="larger weights are cut")
    batch: int = Field(description="decisions in a release")
    policies: list[EvaluatedState] = Field(description="the policy as given, then those of the terms")


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
    missing: int = Field(
        default=0,
        description="decisions that counted without a reward, so the default did: those that were remembered when this "
        "process started, and later ones",
    )
    out_of_range: int = Field(
        default=0, description="rewards that were refused since this process started: no numbers within the range"
    )
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
    members: list[MemberState] = Field(
        default=[], description="all sites whose bulletins are here, this one among them, by name"
    )
    privacy: PrivacyState = Field(description="the privacy of one reward")
    evaluation: EvaluationState | None = Field(
        default=None, description="how well other policies would have done; null: the terms name none"
    )
    refused: dict[str, int] = Field(
        description="connections and messages refused at the port for neighbours since this process started, by reason"
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
        "for epsilon; a site whose few patients leave the answer open; a member whose numbers do not fit, or that has "
        "signed two bulletins with one number, or released the same rewards twice; a share that is capped; gossip "
        "without certificates, a certificate that expires within 30 days, a neighbour that was removed from the list; "
        "why nothing is released, two processes of one name; names of arms that look like others"
    )
