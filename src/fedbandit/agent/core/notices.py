"""What a site promises, and warnings that belong to no other part: of its policy, and of members of the federation."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedbandit.agent.core.answer import Holdout
from fedbandit.agent.core.arms import Arms, in_words_of_stops, remarks_on_names
from fedbandit.agent.core.board import Board
from fedbandit.agent.core.context import Factors
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.guardrails import NO_STRATUM, arm_and_stratum
from fedbandit.agent.core.words import plural
from fedbandit.checks import listed, shortened
from fedbandit.policies import FedBatch, FedUCB, GossipUCB
from fedbandit.policies.fed_batch import too_few_patients
from fedbandit.policies.registry import is_built_in, kind_of
from fedbandit.rules.belief import surest_after
from fedbandit.rules.choose import floor_of_others
from fedbandit.shares import Shares
from fedbandit.testing.admission import claimed_epsilon


class Note(str):
    """A warning that needs nobody: it says what is so, by somebody's will or for a while."""

    __slots__ = ()


@dataclass(frozen=True)
class Privacy:
    """What is promised to the one whose reward it is; ``epsilon_per_reward`` is None where nothing is."""

    mechanism: str
    epsilon_per_reward: float | None
    releases: int
    promise: str


def privacy_of(terms: Federation, releases: int) -> Privacy:
    """The promise of the terms (docs/privacy.md), and how many releases there were."""
    plan = terms.evaluation
    match terms.policy:
        case GossipUCB():
            return Privacy(
                "exact means after every outcome, without noise",
                None,
                releases,
                "None: neighbours can compute every outcome from what they are told.",
            )
        case FedBatch():
            mechanism = (
                f"noisy means of batches, the first of {terms.first_batch} outcomes; an outcome is in one of them"
            )
            if terms.num_strata:
                mechanism = "noisy sums of an arm in one stratum, or in several; an outcome is in one of them"
            lasts = "for ever"
        case FedUCB():
            mechanism = f"noisy sums in a tree over the first {terms.max_pulls} outcomes of each {terms.words.arm}"
            lasts = f"for {terms.max_pulls} outcomes of each {terms.words.arm}, after which no more are taken"
        case _:
            about = f"an own policy, {kind_of(terms.policy)}"
            if terms.page.noise_due is None:
                return Privacy(f"{about}, without noise", None, releases, "None: neighbours can compute outcomes.")
            mechanism, lasts = f"noise as {about}, asks for it", "if its page is what was tried at the start"
    epsilon, budget = claimed_epsilon(terms.policy), ""
    if plan is not None:
        budget = f" ({epsilon:g} of it for the {plural(terms.words.arm)}, {plan.epsilon:g} to evaluate other policies)"
        epsilon += plan.epsilon
        others = f"{len(plan.policies)} other {'policy' if len(plan.policies) == 1 else 'policies'}"
        mechanism += f"; to evaluate {others}, noisy sums of {plan.batch} decisions each, of which it is in one"
    return Privacy(
        mechanism,
        epsilon,
        releases,
        f"With epsilon {epsilon:g}{budget}, whoever was 50 % sure of an outcome {_surest(epsilon)} afterwards. "
        f"Changing one outcome changes the probability of anything that all other sites together see by a factor of "
        f"at most e^{epsilon:g}, {lasts}{_delays(terms)}. It is not hidden that somebody was treated, nor how often"
        f"{_of_strata(terms)}.",
    )


def how_chosen(terms: Federation) -> str:
    """How an arm is chosen, in a sentence for people, who need not know the policy's name."""
    policy, words = terms.policy, terms.words
    arm, rewards = words.arm, plural(words.reward)
    match policy:
        case FedBatch():
            whom = ""
            if terms.num_strata and terms.context is not None:
                factors = listed([it.name for it in terms.context.factors])
                whom = f"; for each group of patients by itself ({factors}), as far as groups differ"
            if policy.index == "thompson":
                said = f"each {arm} as often as it is likely to be the best, by what all sites have released{whom}"
            else:
                said = f"the {arm} whose mean {words.reward} can still be the highest, by what all sites have released"
                said += whom
            return f"{said}. Until all are known each is given about equally often"
        case FedUCB() | GossipUCB():
            return (
                f"the {arm} whose mean {words.reward} can still be the highest, by what neighbours have averaged; "
                "sites that have given one less often than others catch up"
            )
        case _:
            return f"as {kind_of(policy)} says, which is no part of fedbandit: its author knows how it uses {rewards}"


def _of_strata(terms: Federation) -> str:
    if not terms.num_strata or terms.context is None:
        return ""
    return (
        f"; of each stratum ({listed([it.name for it in terms.context.factors])}) members may see how many of its "
        "patients had which arm"
    )


def _surest(epsilon: float) -> str:
    percent = 100.0 * surest_after(epsilon)
    if percent >= 99.995:
        return "may be certain of it"
    return f"is at most {percent:{'.0f' if percent < 99.0 else '.2f'}} % sure of it"


def duration(seconds: float) -> str:
    """In the largest unit of which it is at least one."""
    for size, noun in ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute")):
        if seconds >= size:
            return f"{seconds / size:.3g} {noun}{'' if seconds == size else 's'}"
    return f"{seconds:.3g} second{'' if seconds == 1.0 else 's'}"


def _delays(terms: Federation) -> str:
    if terms.reward_window > 0.0:
        return f", whenever it is reported: it counts {duration(terms.reward_window)} after its decision"
    return ", provided that the time of a report does not depend on the outcome"


# ---------------------------------------------------------------- arms


MOST_WAITING = 5
"""So many arms whose changes wait are named: somebody may ask for hundreds."""


def warnings_of_arms(arms: Arms, shares: Shares | None, factors: Factors | None = None) -> tuple[str, ...]:
    """What somebody has suspended, what waits for the operator, and floors that leave nothing to the index."""
    said: list[str] = []
    suspended = [k for k in arms.stopped if arms.standing(arms.names[k]).status == "suspended"]
    if len(arms.stopped) == len(arms.names):
        said.append(f"no arm is left to give: {in_words_of_stops(arms, arms.stopped)}.")
    elif suspended:
        given = [name for k, name in enumerate(arms.names) if k not in arms.stopped]
        rest = f"only {given[0]} is" if len(given) == 1 else "the others are"
        said.append(Note(f"arms are stopped: {in_words_of_stops(arms, suspended)}; {rest} given."))
    for name in arms.names:
        for it in arms.stops_in_part(name):
            said.append(Note(f"{name} is suspended for {it.whom(factors)} by {it.by}; for others it is given."))
    if factors is not None:
        empty = [s for s in arms.stopped_in if len(arms.stopped_for(s)) == len(arms.names) > len(arms.stopped)]
        if empty:
            said.append(f"no arm is left to give to patients who are {factors.in_words(empty)}.")
    last = {it.arm: it for it in arms.waiting}
    for name, it in [*last.items()][:MOST_WAITING]:
        final = " --retire" if it.kind == "retire" else ""
        accept = f"'fedbandit arm accept {shlex.quote(shortened(name))}{final}'"
        said.append(f"{it.in_words(factors)}: that does not count here until {accept}.")
    if len(last) > MOST_WAITING:
        said.append(f"changes of {len(last) - MOST_WAITING} more arms wait: 'fedbandit arm list'.")
    given = [name for k, name in enumerate(arms.names) if k not in arms.stopped]
    others = [name for name in given if shares is not None and name != shares.control]
    if shares is not None and others:
        control = shares.control_share if len(others) < len(given) else 0.0
        floor = floor_of_others(control, shares.least_share, len(others))
        if floor < shares.least_share:
            said.append(
                f"{len(others)} arms leave no room for a least share of {shares.least_share:g}: each has {floor:.3g}, "
                "and the index decides nothing. Retire some."
            )
    shown = dict.fromkeys((*arms.names, *[*last][:MOST_WAITING]))  # an operator compares what waits with what is there
    return (*said, *map(Note, remarks_on_names(tuple(shown))))


def notes_of_guardrails(terms: Federation, overruled: Mapping[str, float]) -> Iterator[str]:
    """Arms that a person has resumed although they were worse than the guardrails allow."""
    if (rails := terms.guardrails) is not None:
        for rail, deficit in overruled.items():
            if deficit > 0.0:
                arm, s = arm_and_stratum(rail)
                whom = f" for {terms.context.in_words((s,))}" if terms.context is not None and s != NO_STRATUM else ""
                yield Note(
                    f"{arm} was resumed{whom} although it was worse than {rails.reference} by more than {deficit:.4g} "
                    f"for certain: its guardrail acts again beyond {deficit + rails.worse_by:.4g}."
                )


# ---------------------------------------------------------------- members


def warnings_of_members(
    board: Board, own: str, excluded: Collection[str], drawn_twice: Mapping[str, str]
) -> Iterator[str]:
    """Sites as which two processes speak, that have released rewards twice, or that do not count here."""
    for name, it in board.conflicts.items():
        if name != own:
            yield (
                f"two processes speak as {name}: they have signed different bulletins {it.place[1]} of incarnation "
                f"{it.place[0]}. It counts with what it had said before. Its operator should stop one, and confirm the "
                "other."
            )
    for name, words in drawn_twice.items():
        yield f"{name} may have released rewards twice: {words}. Tell its operator."
    for name in excluded:
        yield Note(f"{name} is excluded here: what it says does not count. 'fedbandit include {name}' ends that.")


def notes_of_shares(terms: Federation, board: Board) -> Iterator[str]:
    """Whose share of all patients ``largest_share`` cuts, as all have agreed."""
    cut, num_agents = board.cut_shares(), board.num_agents
    if cut and num_agents * terms.largest_share <= 1.0:  # whose is cut would change with every patient
        most = f"none counts as more than {terms.largest_share:.0%} of all patients"
        yield Note(f"{num_agents} sites count alike, however many patients each has: {most} (largest_share).")
        return
    for name, (says, counts) in cut.items():
        said, cut_to = f"{says:.0%}", f"{counts:.0%}"
        if said != cut_to:
            yield Note(f"{name} has {said} of all patients, as it says, and counts as {cut_to} (largest_share).")


def warnings_of_holdout(arms: Sequence[str], holdout: Holdout | None) -> Iterator[str]:
    """Who keeps the whole federation from an answer."""
    if holdout is not None:
        released = f"{holdout.released} outcomes" if holdout.released else "nothing"
        yield Note(
            f"{holdout.site} has released {released} of {arms[holdout.arm]}, which is the main reason why the answer "
            "is not surer. More patients there would help most."
        )


# ---------------------------------------------------------------- the policy


def warnings_of_policy(
    terms: Federation, num_agents: int, tried: Sequence[int], n_max: Sequence[int]
) -> tuple[str, ...]:
    """Those that follow from the terms, and from how much sites have decided."""
    policy, kind = terms.policy, kind_of(terms.policy)
    said = list(warnings_of_terms(terms))
    if isinstance(policy, FedBatch):
        few = too_few_patients(policy.expected_decisions, policy.epsilon, num_agents, terms.num_arms)
        return (*([] if few is None else [few]), *said)
    if not terms.catches_up:
        return tuple(said)
    here, known = sum(tried), sum(n_max)
    started = here > terms.num_arms * num_agents  # before, the difference that the rule allows says nothing
    if started and known >= 2 * here:
        said[-1] = (
            f"this site is slower than others ({here} decisions, where {known} are known), and the "
            f"consistency rule of {kind} makes it chase their counts instead of choosing good arms. fed_batch "
            "has no such rule."
        )
    if terms.max_pulls is not None and 10 * max(tried) >= 9 * terms.max_pulls:
        said.append(f"an arm has had {max(tried)} of the {terms.max_pulls} decisions for which policy.horizon pays.")
    return tuple(said)


def warnings_of_terms(terms: Federation) -> tuple[str, ...]:
    """Those that follow from the terms alone, and stay: everybody has agreed to them."""
    policy, kind = terms.policy, kind_of(terms.policy)
    said: list[str] = []
    if not is_built_in(policy):
        said.append(f"{kind} is not a part of fedbandit: this site trusts its author.")
        if terms.page.noise_due is None:
            said.append(f"{kind} is not private: neighbours can compute rewards.")
    if isinstance(policy, GossipUCB):
        said.append("gossip_ucb is not private: neighbours can compute every reward. fed_batch is.")
    if terms.catches_up:
        said.append(
            f"the consistency rule of {kind} makes a slow site chase a fast one's counts: use it only where all "
            "sites decide about equally often. fed_batch has no such rule."
        )
    return tuple(said)
