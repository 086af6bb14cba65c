"""Fills the models of ``state`` from a site and the status of its neighbours."""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version

from fedbandit.agent.core.answer import Answer, Interval, intervals_of, losses_of
from fedbandit.agent.core.arms import ArmChange, resumes, takes_back
from fedbandit.agent.core.board import Board, Held
from fedbandit.agent.core.bulletin import ArmEntry, Signed
from fedbandit.agent.core.decisions import Retention
from fedbandit.agent.core.evaluation import evaluated, remarks
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.notices import Note, how_chosen, warnings_of_terms
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.words import Words, plural
from fedbandit.agent.gossip.links import NeighbourStatus
from fedbandit.agent.gossip.signatures import fingerprint
from fedbandit.agent.gossip.tls import TlsFiles
from fedbandit.agent.http import state as models
from fedbandit.agent.http.bodies import HttpError
from fedbandit.policies.registry import label_of
from fedbandit.privacy.noise import GRID, from_grid
from fedbandit.rules.gossip import ratio
from fedbandit.rules.releases import MEAN, VARIANCE, WEIGHT
from fedbandit.rules.strata_influence import mean_of_record, unpacked

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
    limits: Retention,
    forgotten: dict[str, int],
    warnings: Iterable[str],
    per_minute: tuple[float, float],
) -> models.SiteState:
    """A site as ``GET /v1/state`` shows it; ``warnings`` are the site's, ``per_minute`` decisions and rewards."""
    answer = site.answer
    until = None if tls is None else tls.until
    said = [*warnings, *_warnings(tls, statuses, now)]
    state = models.SiteState(
        name=site.name,
        version=version("fedbandit"),
        incarnation=site.incarnation,
        started=started,
        held=None if site.doubt is None else site.doubt.why,
        waits_for=list(site.waits_for),
        insecure=tls is None,
        certificate_until=None if until is None else until.timestamp(),
        federation=_federation_state(site),
        decisions=models.DecisionState(
            handed_out=site.decided,
            pending=site.pending,
            waiting=site.waiting,
            late=site.late,
            missing=site.missing,
            out_of_range=site.out_of_range,
            per_day=site.per_day,
            remembered=site.remembered,
            keep=limits.keep,
            expire_after=limits.expire_after,
            forgotten=forgotten,
        ),
        answer=_answer_state(site, answer),
        rates=models.RatesState(decisions_per_minute=per_minute[0], rewards_per_minute=per_minute[1]),
        arms=_arm_states(site, answer),
        arms_version=len(site.arms.changes),
        arms_waiting=len(site.arms.waiting),
        neighbours=[_neighbour_state(name, status) for name, status in statuses.items()],
        members=_member_states(site, now),
        privacy=models.PrivacyState(**asdict(site.privacy())),
        evaluation=_evaluation_state(site),
        refused=refused,
        warnings_of_terms=[it for it in said if it in (*warnings_of_terms(site.terms), INSECURE)],
        notes=[it for it in said if isinstance(it, Note)],
        needs_person=[],
        warnings=said,
    )
    stops = _stops_that_do_not_hold(site, state, now)
    return state.model_copy(update={"needs_person": [*stops, *needs_a_person(state)]})


ACKNOWLEDGED_WITHIN = 10.0
"""Seconds that other sites have to say that they know a stop."""


def _stops_that_do_not_hold(site: Site, state: models.SiteState, now: float) -> Iterator[str]:
    """A line for each arm that is stopped here, and given at another site, or perhaps."""
    left_out = site.stored.excluded
    for arm in state.arms:
        change = site.arms.standing(arm.name).by
        whole = [] if arm.status == "active" or change is None else [(change, arm.status, arm)]
        parts = zip(site.arms.stops_in_part(arm.name), arm.suspended_for, strict=True)
        for it, status, who in (*whole, *((it, f"suspended for {part.whom}", part) for it, part in parts)):
            if 0.0 <= now - it.at / 1000.0 < ACKNOWLEDGED_WITHIN:
                continue
            stop = f"{arm.name} is {status} by {it.by}"
            giving = [name for name in who.resumed_by if name not in left_out]
            if giving:
                give = "gives" if len(giving) == 1 else "give"
                yield f"{stop}, but {_listed(giving)} resumed it or accepted that, and {give} it"
            missing = [name for name in who.missing if name not in left_out]
            if missing:
                yield f"{stop}, but {_listed(missing)} not confirmed that, and may still give it: tell the people there"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED]) + (f" and {n} more" if (n := len(names) - _MOST_NAMED) > 0 else "")
    return f"{shown} {'has' if len(names) == 1 else 'have'}"


_MOST_NAMED = 12


def needs_a_person(state: models.SiteState) -> list[str]:
    """A line for each thing that needs a person: warnings that somebody can end, and neighbours out of reach."""
    said = [warning for warning in state.warnings if warning not in (*state.warnings_of_terms, *state.notes)]
    if state.held is not None:  # its sentence is the first
        said[:1] = [f"held: {state.held}: {said[0]}" if said else f"held: {state.held}"]
    if state.arms_waiting and not said:
        many = "1 change of the arms waits"
        if state.arms_waiting > 1:
            many = f"{state.arms_waiting} changes of the arms wait"
        said.append(f"{many} for consent")
    silent = [it for it in state.neighbours if not it.reachable]
    never = "no connection since this site has started"
    return said + [f"{it.name} is unreachable: {it.last_error or never}" for it in silent]


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


def _federation_state(site: Site) -> models.FederationState:
    """The terms that all sites share, how many sites are known to take part, and the arms as they are now."""
    terms, shares = site.terms, site.terms.shares
    return models.FederationState(
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
        largest_share=terms.largest_share if terms.counted == "patients" else None,
        guardrails=None if terms.guardrails is None else models.GuardrailsState(**asdict(terms.guardrails)),
        context=None if terms.context is None else terms.context.plain,
        policy=label_of(terms.policy),
        chosen=how_chosen(terms),
        words=_words_state(terms.words),
        plan=models.PlanState(**asdict(terms.plan), per_site=getattr(terms.policy, "expected_decisions", None)),
        patients=sum(site.patients),
        digest=terms.digest(),
    )


def _evaluation_state(site: Site) -> models.EvaluationState | None:
    plan = site.terms.evaluation
    if plan is None:
        return None
    policies = [
        models.EvaluatedState(
            name=it.name,
            words=it.words,
            decisions=it.decisions,
            estimate=it.value,
            interval=None if it.low is None or it.high is None else models.IntervalBody(low=it.low, high=it.high),
            noise=it.noise,
            effective=it.effective,
            mean_weight=it.kept,
            remark=remarks(it),
            sites=[models.SiteValue(site=name, decisions=n, value=value) for name, n, value in it.site_values],
        )
        for it in evaluated(site)
    ]
    return models.EvaluationState(
        epsilon=plan.epsilon, largest_weight=plan.largest_weight, batch=plan.batch, policies=policies
    )


def _words_state(words: Words) -> models.WordsState:
    return models.WordsState(
        arm=words.arm,
        arms=plural(words.arm),
        reward=words.reward,
        rewards=plural(words.reward),
        failure=words.failure,
        failures=plural(words.failure) if words.failure else "",
    )


def _strata_state(site: Site) -> list[models.StratumState]:
    factors, names, terms = site.terms.context, site.arms.names, site.terms
    if factors is None or not terms.num_strata:
        return []
    pulls, patients, width = site.tried_in, site.patients_in, terms.high - terms.low
    return [
        models.StratumState(
            label=factors.label(it.stratum),
            context=factors.levels(it.stratum),
            frequency=it.frequency,
            leader=None if it.answer.leader is None else names[it.answer.leader],
            chance=it.answer.chance,
            settled=it.answer.settled,
            estimates=list(it.theta),
            errors=list(it.errors),
            chances=list(it.answer.chances),
            intervals=[
                interval_body(intervals_of(mean, error, width, terms.low, terms.high)[0])
                for mean, error in zip(it.theta, it.errors, strict=True)
            ],
            pulls=[of_arm[it.stratum] for of_arm in pulls],
            patients=[of_arm[it.stratum] for of_arm in patients],
            statuses=[site.arms.standing_in(name, it.stratum).status for name in names],
        )
        for it in site.strata
    ]


def _answer_state(site: Site, answer: Answer) -> models.AnswerState:
    return models.AnswerState(
        leader=None if answer.leader is None else site.arms.names[answer.leader],
        chance=answer.chance,
        settled=answer.settled,
        expected_loss=answer.expected_loss,
        words=answer.words,
        strata=_strata_state(site),
        strata_matter=site.matters,
    )


def _arm_states(site: Site, answer: Answer) -> list[models.ArmState]:
    """Every arm, as the site sees it."""
    weights, own, theta, radius, errors = site.weights, site.own_means, site.theta, site.radius, site.errors
    low, high, patients = site.terms.low, site.terms.high, site.patients
    losses = losses_of(answer.leader, theta, errors, site.stopped, high - low)
    around = [intervals_of(mean, error, high - low, low, high) for mean, error in zip(theta, errors, strict=True)]
    verdicts = [site.arms.standing(name) for name in site.arms.names]
    receipts = [_receipts(site, it.by) if it.by is not None and it.by.is_stop else [] for it in verdicts]
    return [
        models.ArmState(
            name=name,
            estimate=theta[k],
            radius=radius[k],
            error=errors[k],
            interval=interval_body(around[k][0]),
            always=interval_body(around[k][1]),
            own_mean=own[k],
            weight=weights[k],
            pulls=site.tried[k] - site.history[k],
            patients=patients[k],
            rewards=site.rewards[k] - site.history[k],
            history=site.history[k],
            releases=site.releases[k],
            status=verdicts[k].status,
            changed_by=None if (change := verdicts[k].by) is None else change.by,
            reason="" if change is None else change.reason,
            acknowledged_by=[it.site for it in receipts[k] if it.has_it],
            missing=[it.site for it in receipts[k] if not it.has_it and it.resumed_by is None],
            resumed_by=[it.site for it in receipts[k] if it.resumed_by is not None],
            suspended_for=[_part_stop(site, it) for it in site.arms.stops_in_part(name)],
            chance_best=answer.chances[k],
            behind=losses[k].behind,
            behind_interval=interval_body(losses[k].interval),
            behind_always=interval_body(losses[k].always),
        )
        for k, name in enumerate(site.arms.names)
    ]


def _part_stop(site: Site, it: ArmChange) -> models.PartStopState:
    factors, receipts = site.terms.context, _receipts(site, it)
    return models.PartStopState(
        whom=it.whom(factors),
        strata=labels_of(site, it),
        context=None if factors is None else factors.common_levels(it.strata),
        by=it.by,
        reason=it.reason,
        acknowledged_by=[each.site for each in receipts if each.has_it],
        missing=[each.site for each in receipts if not each.has_it and each.resumed_by is None],
        resumed_by=[each.site for each in receipts if each.resumed_by is not None],
    )


def labels_of(site: Site, it: ArmChange) -> list[str]:
    """Of the strata that a change is for; none: it is for all patients."""
    return [] if site.terms.context is None else [site.terms.context.label(s) for s in it.strata]


def interval_body(it: Interval | None) -> models.IntervalBody | None:
    """An interval as it is shown."""
    return None if it is None else models.IntervalBody(low=it.low, high=it.high)


def point_of(site: Site, at: float) -> models.HistoryPoint:
    """A site as its history shows it: a part of what the state shows."""
    low, high = site.terms.low, site.terms.high
    around = [_around(*it, site.terms) for it in zip(site.theta, site.errors, site.radius, strict=True)]
    always = [intervals_of(*it, high - low, low, high)[1] for it in zip(site.theta, site.errors, strict=True)]
    return models.HistoryPoint(
        at=at,
        estimates=list(site.theta),
        lows=[None if it is None else it.low for it in around],
        highs=[None if it is None else it.high for it in around],
        always_lows=[None if it is None else it.low for it in always],
        always_highs=[None if it is None else it.high for it in always],
        own_means=list(site.own_means),
        pulls=[tried - past for tried, past in zip(site.tried, site.history, strict=True)],
        decisions=site.decided,
        rewards=sum(site.rewards) - sum(site.history),
    )


def _around(mean: float | None, error: float | None, margin: float | None, terms: Federation) -> Interval | None:
    """The interval of 95 %, or the margin of a policy that has none."""
    if mean is None or margin is None:
        return None
    found = intervals_of(mean, error, terms.high - terms.low, terms.low, terms.high)[0]
    return found or Interval(mean - margin, mean + margin)


# ---------------------------------------------------------------- changes of the arms, and who has them


def arms_body(site: Site) -> models.ArmsBody:
    """The arms as ``GET /v1/arms`` shows them."""
    arms = site.arms
    return models.ArmsBody(
        version=len(arms.changes),
        arms=[
            models.ArmStatusBody(
                name=name,
                arm=k,
                status=(verdict := arms.standing(name)).status,
                last_change=None if verdict.by is None else change_body(site, verdict.by),
                suspended_for=[change_body(site, it) for it in arms.stops_in_part(name)],
            )
            for k, name in enumerate(arms.names)
        ],
        waiting=[change_body(site, it) for it in arms.waiting],
        changes=[
            change_body(site, it) for it in sorted((it.change for it in arms.changes.values()), key=lambda it: it.order)
        ],
    )


def change_body(site: Site, it: ArmChange) -> models.ArmChangeBody:
    """One change; of a stop also who has it."""
    return models.ArmChangeBody(
        id=it.id,
        version=it.version,
        change=it.kind,
        arm=it.arm,
        by=it.by,
        at=it.at / 1000.0,
        reason=it.reason,
        whom=it.whom(site.terms.context),
        strata=labels_of(site, it),
        accepted=site.arms.changes[it.id].accepted > 0,
        receipts=_receipts(site, it) if it.is_stop else [],
        accepted_by=[name for name, has in _consent(site, it) if has],
        not_accepted_by=[name for name, has in _consent(site, it) if not has],
    )


def _consent(site: Site, change: ArmChange) -> list[tuple[str, bool]]:
    """Which of the other sites that count have accepted a change, as they say; nobody is asked about a suspension."""
    others = (name for name in site.board.counted() if name not in (site.name, change.by))
    return [] if change.kind == "suspend" else [(it, site.board.has_accepted(it, change)) for it in others]


def _receipts(site: Site, change: ArmChange) -> list[models.ReceiptBody]:
    """Which of all other sites have said that they know a stop, and have accepted no resume of it."""
    board = site.board
    having, missing = board.receipts(change)
    found = dict.fromkeys((*site.neighbours, *missing), False) | dict.fromkeys(having, True)
    for name in (site.name, change.by):
        found.pop(name, None)
    held = {name: board.held(name) for name in found}
    members = [it for it in map(board.held, board.sites) if it is not None]
    resuming = [it.bulletin.site for it in members if any(resumes(other, change) for other in it.bulletin.changes)]
    resumed = {name: _resumed_by(board, name, resuming, change) for name in found}
    return [
        models.ReceiptBody(
            site=name,
            has_it=has_it and resumed[name] is None,
            resumed_by=resumed[name],
            last_heard=None if (it := held[name]) is None else it.since,
        )
        for name, has_it in sorted(found.items())
    ]


def _resumed_by(board: Board, member: str, resuming: Sequence[str], stop: ArmChange) -> str | None:
    """Whose resume of a stop counts at a site, as its bulletin says: rather its own."""
    if stop.kind == "retire" and board.has_accepted(member, stop):
        return None  # that is final
    for name in sorted(resuming, key=lambda name: name != member):
        for it in board.known_changes(member, name):
            if takes_back(it, stop) or (resumes(it, stop) and board.has_accepted(member, it)):
                return name
    return None


# ---------------------------------------------------------------- links and members


_CREDENTIALS = re.compile(r"//[^/@]*@")
"""User and password in the URL of a proxy: nobody who looks needs them."""


def _neighbour_state(name: str, status: NeighbourStatus) -> models.NeighbourState:
    neighbour = status.neighbour
    return models.NeighbourState(
        name=name,
        address=None if neighbour.address is None else str(neighbour.address),
        proxy=None if neighbour.proxy is None else _CREDENTIALS.sub("//", neighbour.proxy),
        reachable=status.linked,
        linked_since=status.since if status.linked else None,
        last_heard=status.last_heard,
        received=status.received,
        sent=status.sent,
        failures=status.failures,
        refusals=status.refusals,
        last_error=status.last_error,
    )


def _member_states(site: Site, now: float) -> list[models.MemberState]:
    board = site.board
    counted, excluded = frozenset(board.counted()), site.stored.excluded
    shares, oddities = _largest_shares(site), site.oddities(now)
    found: list[models.MemberState] = []
    for name in sorted({*board.sites, *board.dropped}):
        held, conflict = board.held(name) or board.dropped.get(name), board.conflicts.get(name)
        if held is None:
            continue
        bulletin = held.bulletin
        found.append(
            models.MemberState(
                name=name,
                counts=name in counted,
                excluded=name in excluded,
                excluded_because=excluded[name].reason if name in excluded else "",
                refused=name not in counted and name not in excluded and conflict is None,
                incarnation=bulletin.incarnation,
                number=bulletin.number,
                made=bulletin.at / 1000.0,
                since=held.since,
                decisions=bulletin.decisions,
                share=shares.get(name),
                arms=[_member_arm(site, it) for it in bulletin.arms],
                software=bulletin.software,
                conflict=None
                if conflict is None
                else models.ConflictState(
                    incarnation=conflict.place[0],
                    number=conflict.place[1],
                    signatures=[_base64(it.signed.signature) for it in (conflict.first, conflict.second)],
                ),
                oddities=list(oddities.get(name, ())),
            )
        )
    return found


def _member_arm(site: Site, entry: ArmEntry) -> models.MemberArm:
    terms, row = site.terms, entry.row
    steps = mean = None
    if entry.releases > 0:
        if terms.num_strata:
            steps = GRID * mean_of_record(unpacked(row, terms.num_strata), terms.num_strata)[0]
        elif len(row) in (1, 3):
            steps = row[MEAN]
        elif row[1] > 0.0:  # whoever lies may say anything
            steps = ratio(row[0], row[1])
    if steps is not None:
        mean = from_grid(steps, terms.low, terms.high)
    return models.MemberArm(
        arm=entry.name, mean=mean, releases=entry.releases, rewards=entry.rewards, decisions=entry.decisions
    )


def _largest_shares(site: Site) -> dict[str, float]:
    """The largest share of each site that counts in the average of any arm."""
    names, found = site.board.counted(), dict[str, float]()
    for arm in site.arms.names:
        rows, versions = site.board.rows(arm)
        if strata := site.terms.num_strata:
            weights = [sum(row[1 : 1 + strata]) if row[0] > 0.0 else 0.0 for row in rows]
        elif len(rows[0] if rows else ()) == 3:
            weights = [row[WEIGHT] if row[VARIANCE] > 0.0 else 0.0 for row in rows]
        else:
            weights = [float(version > 0) for version in versions]
        total = sum(weights)
        for name, weight in zip(names, weights, strict=True):
            found[name] = max(found.get(name, 0.0), weight / total if total > 0.0 else 0.0)
    return found


def member_body(site: Site, name: str) -> models.MemberBody:
    """What a site has signed, as ``GET /v1/members/NAME`` shows it."""
    held, conflict = site.board.held(name), site.board.conflicts.get(name)
    if held is None:
        raise HttpError(
            404, "unknown_member", "no bulletin of this site is here", "name", "one of 'members' in the state"
        )
    halves: list[Held] = [] if conflict is None else [conflict.first, conflict.second]
    signers = {it.signed.signer for it in (held, *halves)} - {b""}
    return models.MemberBody(
        name=name,
        bulletin=_statement(held.signed),
        conflict=[_statement(it.signed) for it in halves],
        certificates={fingerprint(it).hex(): it.decode() for it in sorted(signers)},
    )


def _statement(it: Signed) -> models.StatementBody:
    signer = fingerprint(it.signer).hex()
    return models.StatementBody(
        digest=it.digest.hex(), signature=_base64(it.signature), signer=signer, body=it.body.decode()
    )


def _base64(content: bytes) -> str:
    return b64encode(content).decode()
