"""What a site tells its operator in words: its privacy promise and its warnings."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fedbandit.agent.core.answer import Holdout
from fedbandit.agent.core.arms import Arms, in_words_of_stops, remarks_on_names
from fedbandit.agent.core.decisions import HeldUp, Retention
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Link
from fedbandit.agent.core.release_guard import Doubt
from fedbandit.checks import shortened
from fedbandit.policies import FedBatch, FedUCB, GossipUCB
from fedbandit.policies.fed_batch import too_few_patients
from fedbandit.policies.registry import is_built_in, kind_of
from fedbandit.rules.belief import surest_after
from fedbandit.rules.choose import floor_of_others
from fedbandit.shares import Shares
from fedbandit.testing.admission import claimed_epsilon

if TYPE_CHECKING:
    from fedbandit.agent.core.site import Site

__all__ = [
    "UNREST",
    "Note",
    "Privacy",
    "privacy_of",
    "warnings_of",
    "warnings_of_arms",
    "warnings_of_claims",
    "warnings_of_forgetting",
    "warnings_of_network",
    "warnings_of_processes",
    "warnings_of_second_draws",
    "warnings_of_terms",
    "warnings_of_unbelieved",
    "warnings_of_unlisted",
]


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
    match terms.policy:
        case GossipUCB():
            return Privacy(
                "exact means after every reward, without noise",
                None,
                releases,
                "None: neighbours can compute every reward from what is gossiped.",
            )
        case FedBatch():
            mechanism = f"noisy means of batches, the first of {terms.first_batch} rewards; a reward is in one of them"
            lasts = "for ever"
        case FedUCB():
            mechanism = f"noisy sums in a tree over the first {terms.max_pulls} rewards of an arm"
            lasts = f"for {terms.max_pulls} rewards of an arm, after which no more are taken"
        case _:
            about = f"an own policy, {kind_of(terms.policy)}"
            if terms.page.noise_due is None:
                return Privacy(f"{about}, without noise", None, releases, "None: neighbours can compute rewards.")
            mechanism, lasts = f"noise as {about}, asks for it", "if its page is what was tried at the start"
    epsilon = claimed_epsilon(terms.policy)
    return Privacy(
        mechanism,
        epsilon,
        releases,
        f"With epsilon {epsilon:g}, whoever was 50 % sure of an outcome {_surest(epsilon)} afterwards. Changing one "
        f"reward changes the probability of anything that all other sites together see by a factor of at most "
        f"e^{epsilon:g}, {lasts}{_delays(terms)}. It is not hidden that somebody was treated, nor how often.",
    )


def _surest(epsilon: float) -> str:
    percent = 100.0 * surest_after(epsilon)
    if percent >= 99.995:
        return "may be certain of it"
    return f"is at most {percent:{'.0f' if percent < 99.0 else '.2f'}} % sure of it"


def _delays(terms: Federation) -> str:
    if terms.reward_window > 0.0:
        return f", whenever it is reported: it counts {terms.reward_window:g} s after its decision"
    return ", provided that the time of a report does not depend on the reward"


def warnings_of(
    terms: Federation,
    num_agents: int,
    arms: Sequence[str],
    tried: Sequence[int],
    n_max: Sequence[int],
    held_up: Iterable[HeldUp] = (),
) -> tuple[str, ...]:
    """What an operator should know before it hurts."""
    said = [
        f"{it.rewards} rewards of {arms[it.arm]} wait for that of the decision of {_time(it.by.at)}, which came "
        "before them; when it expires without one, the default counts. A reward_window would not wait."
        for it in held_up
        if it.rewards >= terms.first_batch
    ]
    return (*said, *_warnings_of_policy(terms, num_agents, tried, n_max))


MOST_WAITING = 5
"""So many arms whose changes wait are named: somebody may ask for hundreds."""


def warnings_of_arms(arms: Arms, shares: Shares | None) -> tuple[str, ...]:
    """What somebody has suspended, what waits for the operator, and floors that leave nothing to the index."""
    said: list[str] = []
    suspended = [k for k in arms.stopped if arms.standing(arms.names[k]).status == "suspended"]
    if len(arms.stopped) == len(arms.names):
        said.append(f"no arm is left to give: {in_words_of_stops(arms, arms.stopped)}.")
    elif suspended:
        given = [name for k, name in enumerate(arms.names) if k not in arms.stopped]
        rest = f"only {given[0]} is" if len(given) == 1 else "the others are"
        said.append(Note(f"arms are stopped: {in_words_of_stops(arms, suspended)}; {rest} given."))
    last = {it.arm: it for it in arms.waiting}
    for name, it in [*last.items()][:MOST_WAITING]:
        final = " --retire" if it.kind == "retire" else ""
        accept = f"'fedbandit arm accept {shlex.quote(shortened(name))}{final}'"
        said.append(f"{it.in_words()}: that does not count here until {accept}.")
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


UNREST = 1.0
"""Standard deviations of an estimate that an exchange may move it. Where gossip kept up with decisions it moved them by
less than half of one, on a path of 50 with sorted bias and one exchange a round by two to four (docs/fedbatch.md)."""


def warnings_of_network(arms: Sequence[str], holdout: Holdout | None, unrest: float) -> tuple[str, ...]:
    """What keeps the whole network from an answer."""
    said: list[str] = []
    if holdout is not None:
        released = f"{holdout.released} rewards" if holdout.released else "nothing"
        said.append(
            Note(
                f"{holdout.site} has released {released} of {arms[holdout.arm]}, which is the main reason why the "
                "answer is not surer. More patients there would settle it."
            )
        )
    if unrest > UNREST:
        more = min(5.0 * unrest, 100.0)
        said.append(
            f"an exchange still moves an estimate by {unrest:.1f} times its uncertainty: sites decide faster than "
            f"gossip mixes what they know. About {more:.0f} times as many exchanges would do (the rate of neighbours)."
        )
    return tuple(said)


def warnings_of_processes(
    doubt: Doubt | None, waits_for: Sequence[str], namesakes: Iterable[str], split: Iterable[str]
) -> tuple[str, ...]:
    """Why nothing is released here, and which names two processes bear, as far as neighbours show."""
    said: list[str] = []
    match doubt:
        case Doubt("unconfirmed"):
            whom = f"It waits for {', '.join(waits_for)}." if waits_for else "They are being asked."
            said.append(
                f"nothing is released until all neighbours have answered that this data folder is the latest. {whom} "
                "That happens by itself. Only if they will not, and no copy of the folder has run since it last ran "
                "here: 'fedbandit confirm'."
            )
        case Doubt("old", _, proof):
            said.append(
                f"this data folder is old: {proof}. Nothing is released. If another process uses the later one, stop "
                "this one. If the later one is lost, begin a new incarnation with this one: 'fedbandit restore'."
            )
        case Doubt("split-brain", by):
            said.append(
                f"another process uses a copy of this data folder: {by} receives messages of both. Neither releases "
                "anything. Stop one of them, then tell the other: 'fedbandit confirm'."
            )
        case _:
            pass
    said += [
        f"{by} receives messages of another process that has the name of this site, and another data folder. Stop one "
        "of them."
        for by in sorted(namesakes)
    ]
    said += [f"two processes speak as {name}: its operator should stop one of them." for name in sorted(split)]
    return tuple(said)


def warnings_of_second_draws(here: Iterable[str], there: Iterable[str]) -> tuple[str, ...]:
    """What shows that rewards were released twice: by this site, or by others, as was seen here."""
    said = [
        f"rewards may have been released twice: {shown}. For those rewards epsilon counts twice. An old copy of the "
        "folder was used."
        for shown in here
    ]
    said += [
        f"{name} may have released rewards twice: it was started with a data folder that lacked releases which were "
        "seen here, and has released since. Tell its operator."
        for name in sorted(there)
    ]
    return tuple(said)


def warnings_of_unlisted(links: Iterable[Link], neighbours: Iterable[str]) -> tuple[str, ...]:
    """Sites that are not among the ``neighbours`` of the file, have not left, and whose flow is in the sums."""
    there = set(neighbours)
    return tuple(
        f"{it.neighbour} is not in the list of neighbours, and what has flowed over its link still counts here, since "
        f"it may return. If it has left for good: 'fedbandit leave {it.neighbour}' here and at each of its neighbours; "
        "if it has not, list it again."
        for it in links
        if not it.left and it.neighbour not in there and any(it.register[0])
    )


def warnings_of_claims(
    terms: Federation, beyond: Iterable[tuple[str, str, int]], most: int, surplus: tuple[str, int] | None
) -> Iterator[str]:
    """What sites claim and cannot be: counts ``beyond`` the ``most`` decisions that time allows, sites too many."""
    for site, source, count in beyond:
        who = "" if source == site else f" (as {source} says)"
        yield (
            f"{site} claims {count} decisions for an arm{who}, where time allows {most}, and counts as that: it began "
            "long before this site, or it lies."
        )
    if surplus is not None:
        source, sites = surplus
        yield (
            f"{sites} sites are known, where the terms allow {terms.most_agents}; {source} is the source of most. "
            "There are too many sites; or it, or a site behind it, is wrong or lies."
        )


def warnings_of_unbelieved(found: tuple[str, int, int] | None) -> Iterator[str]:
    """More sites than the operator of this one knows: the source of most, how many, and where the bound is."""
    if found is not None:
        source, sites, most = found
        yield (
            f"{sites} sites are counted, where most_sites in this site's file is {most}: the answer is no surer than "
            f"{most} sites make it. {source} is the source of most of them. If the federation has grown, raise "
            "most_sites; if not, it, or a site behind it, invents sites."
        )


def _time(at: float) -> str:
    """When a decision was handed out: its id is for the application alone."""
    return datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")


def _warnings_of_policy(
    terms: Federation, num_agents: int, tried: Sequence[int], n_max: Sequence[int]
) -> tuple[str, ...]:
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


# ---------------------------------------------------------------- forgetting


_SOON = 0.1
"""Share of ``keep`` or of the time that is left when a warning begins."""


def warnings_of_forgetting(site: "Site", limits: Retention, now: float) -> Iterator[str]:
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
