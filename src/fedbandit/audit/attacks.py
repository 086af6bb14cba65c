"""Attacks on the mechanisms that real rewards pass through, and on a live site by a member that reads its bulletins.

Each attack is a worst case: two worlds whose rewards differ in one, from one end of the range to the other, and the
statistic of an attacker who knows everything else. The target is the code that a site runs, with OpenDP's noise.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

from fedbandit.agent.core.bulletin import ArmEntry
from fedbandit.agent.core.decisions import ANY, Request, SiteDraws
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.site import Site
from fedbandit.audit.executor import OpenSite, Run, Sent
from fedbandit.audit.scripts import Change, Decide, Entry, Event, Restart, Say, Script, once
from fedbandit.checks import InvalidArgument
from fedbandit.policies import FedBatch, FedUCB
from fedbandit.privacy.mechanism import Mechanism
from fedbandit.privacy.noise import GRID, NoiseSource, laplace, to_grid
from fedbandit.rules.mean import dyadic_intervals, epsilon_per_node

BLOCK = 4096


@dataclass(frozen=True)
class Attack:
    """What ``fedbandit.audit.measure.audit`` needs to attack something, and its name in tables."""

    label: str
    claimed: float
    sample: Callable[[int, int], Iterable[Any]]
    statistic: Callable[[Any], float | Sequence[float]] = float


def prefetched() -> NoiseSource:
    """The noise of ``laplace``, each draw used once, in blocks because a call costs more than a draw."""
    stock: dict[float, list[int]] = {}

    def draw(epsilon: float, count: int) -> list[int]:
        kept = stock.setdefault(epsilon, [])
        while len(kept) < count:
            kept.extend(laplace(epsilon, BLOCK))
        taken = kept[-count:]
        del kept[-count:]
        return taken

    return draw


def log_ratio(noisy: float, sum_0: int, sum_1: int, epsilon: float) -> float:
    """The logarithm of P(noisy | sum_1) / P(noisy | sum_0) for discrete Laplace noise: exact, in steps of the grid."""
    return (abs(noisy - sum_0) - abs(noisy - sum_1)) * epsilon / GRID


# ---------------------------------------------------------------- mechanisms


class Release(NamedTuple):
    """The noisy sum of the rewards of pulls ``first`` to ``last``, in steps of the grid."""

    first: int
    last: int
    noisy: int


def releases_of(mechanism: Mechanism, rewards: Sequence[float]) -> list[Release]:
    """Feed rewards to arm 0, and work out every noisy sum from the mean that goes out after it."""
    me = mechanism.me
    seen: list[Release] = []
    prefixes = {0: 0}  # of a tree: noisy sums of the first pulls
    for reward in rewards:
        mean, precision = me.x_mean[0], getattr(me, "precision", [0.0])[0]
        interval = mechanism.take(0, reward)
        if interval is None:
            continue
        _, first, last = interval
        if hasattr(me, "precision"):  # batches: the weight of the newest one follows from sizes, which are public
            weight = (me.precision[0] - precision) / me.precision[0]
            noisy = round((mean + (me.x_mean[0] - mean) / weight) * (last - first + 1))
        else:
            prefixes[last] = round(me.x_mean[0] * last)
            noisy = prefixes[last] - prefixes[first - 1]
        seen.append(Release(first, last, noisy))
    return seen


def on_mechanism(
    label: str,
    make: Callable[[NoiseSource], Mechanism],
    streams: tuple[Sequence[float], Sequence[float]],
    claimed: float,
) -> Attack:
    """Feed two streams of rewards in [0, 1] to arm 0 of a mechanism, and look at all that it releases."""
    noise = prefetched()
    ledger = make(noise).ledger
    if ledger is None:
        raise InvalidArgument("make", label, "a mechanism that promises an epsilon")
    epsilon = ledger.epsilon_per_release
    steps = [[to_grid(reward, 0.0, 1.0) for reward in stream] for stream in streams]

    def sample(which: int, count: int) -> Iterable[list[Release]]:
        for _ in range(count):
            yield releases_of(make(noise), streams[which])

    def statistic(view: list[Release]) -> float:
        total = 0.0
        for first, last, noisy in view:
            sum_0, sum_1 = (sum(stream[first - 1 : last]) for stream in steps)
            if sum_0 != sum_1:
                total += log_ratio(noisy, sum_0, sum_1, epsilon)
        return total

    return Attack(label, claimed, sample, statistic)


def on_batches(epsilon: float, later: bool = False) -> Attack:
    """One of seven rewards changes; batches of three make two releases, of which the first (or the later) holds it."""
    streams = [[0.3, changed, 0.8, 0.0, 1.0, 0.5, 0.2] for changed in (0.0, 1.0)]
    if later:
        streams = [[0.8, 0.0, 1.0, 0.3, changed, 0.5, 0.2] for changed in (0.0, 1.0)]
    policy = FedBatch(epsilon, first_batch=3)
    return on_mechanism(
        "batches, a later one" if later else "batches",
        lambda noise: Mechanism(policy, 1, 1, 0.0, 1.0, noise),
        (streams[0], streams[1]),
        epsilon,
    )


def on_tree(epsilon: float, max_pulls: int = 7, claimed: float | None = None) -> Attack:
    """The first reward changes: it lies in every interval that begins at pull 1, the most that any does."""
    streams = [[changed] + [0.5] * (max_pulls - 1) for changed in (0.0, 1.0)]
    policy = FedUCB(epsilon, horizon=max_pulls - 1)
    return on_mechanism(
        f"tree of {max_pulls} pulls",
        lambda noise: Mechanism(policy, 1, 1, 0.0, 1.0, noise),
        (streams[0], streams[1]),
        epsilon if claimed is None else claimed,
    )


# ---------------------------------------------------------------- a live site
# The victim is the site that ships, with a disk in memory and OpenDP's noise through its own ledger. A member of its
# federation reads its bulletins, and from the published means works out the noisy sums. Another claim of that member
# lies on the victim's board.

BATCH = 2  # small, so that a short run releases two; what a release costs does not depend on its size
HORIZON = 6  # in a tree of 7 pulls the first reward lies in three intervals
REST, REST_STEPS = 0.5, GRID // 2  # every reward but the changed one, and its steps on the grid
WAIT = 4.0  # the reward window of an attack by delays, longer than any of them


BETWEEN = 0.25  # seconds from a look at the clock to a request
DRAWS = SiteDraws((0.0, 0.0), 0.5)  # an attacker may know even the randomness of decisions


def in_turn(
    terms: Federation,
    entries: Sequence[Entry],
    draws: Sequence[SiteDraws] = (),
    others: Iterable[Event] = (),
    rest: float = 2.0,
    requests: Sequence[Request] = (),
) -> Script:
    """A request, for any arm if none are given, a moment after each look of the process at its clock.

    ``draws`` and ``entries``: one for each decision; ``rest``: how many looks follow.
    """
    decided: list[Event] = []
    for number, entry in enumerate(entries):
        request = requests[number] if requests else ANY
        drawn = draws[number] if draws else DRAWS
        decided.append(Decide(number + 1 + BETWEEN, request, (drawn,), (entry,)))
    events = sorted((*others, *decided), key=lambda it: it.at)  # stable: at one time, others come first
    return Script(terms, tuple(events), rest + 1.0 - BETWEEN)


def with_entry(script: Script, number: int, entry: Entry) -> Script:
    """The same with another entry for one decision, counted from 1."""
    places = [k for k, it in enumerate(script.events) if isinstance(it, Decide)]
    return script.changed(Change(places[number - 1], 0, entry))


def lie(terms: Federation, at: float, releases: int) -> Say:
    """A member says that arm 0 is worth all there is and others nothing, by more releases than it can have."""
    columns = len(terms.page.published_names)
    count = 10 * releases
    rows = [(GRID * float(arm == 0), 0.0, 1.0)[:columns] for arm in range(terms.num_arms)]
    return Say(at, "member", tuple((row, releases, count, count, 0) for row in rows))


def two_worlds(
    terms: Federation, changed: int, arms: Sequence[int], restarts: int = 0, delay: float = 0.0
) -> tuple[Script, Script]:
    """Two scripts in which the reward of one decision is 0 or 1, and every other one is 1/2.

    * ``changed``: that decision, counted from 1; ``arms``: those that come
    * ``restarts``: how often the site is restarted from its disk after the third decision
    * ``delay``: how many seconds later the changed reward is reported if it is 1; if it is 0: at once
    """
    others: list[Event] = [lie(terms, 0.6, 1), *(Restart(3.4 + BETWEEN * number) for number in range(restarts))]
    requests = [Request(eligible=(arm,)) for arm in arms]
    script = in_turn(terms, [once(REST)] * len(arms), (), others, terms.reward_window + 2.0, requests)
    return with_entry(script, changed, once(0.0)), with_entry(script, changed, once(1.0, delay))


def entries_of(view: Sequence[Sent]) -> list[ArmEntry]:
    """What the bulletins say of arm 0."""
    return [it.bulletin.arms[0] for it in view if it.bulletin.arms]


def first_batch_sums(view: Sequence[Sent]) -> list[int]:
    """The noisy sum of arm 0's first batch in steps of the grid: one, unless it is drawn again."""
    return list(dict.fromkeys(round(it.row[0] * BATCH) for it in entries_of(view) if it.releases == 1))


def second_batch_sums(view: Sequence[Sent]) -> list[int]:
    """The noisy sums of arm 0's second batch. Batches of equal size weigh alike: twice the mean, less the first."""
    first = first_batch_sums(view)
    both = dict.fromkeys(round(2.0 * it.row[0] * BATCH) for it in entries_of(view) if it.releases == 2)
    return [total - first[0] for total in both] if first else []


def tree_sums(view: Sequence[Sent]) -> list[tuple[int, int]]:
    """How many pulls of arm 0, and the noisy sum of their rewards in steps of the grid; each as often as it differs."""
    sums = ((it.rewards, round(it.row[0] * it.rewards)) for it in entries_of(view) if it.rewards > 0)
    return list(dict.fromkeys(sums))


def _public(view: Sequence[Sent]) -> list[Sent]:
    """All that no reward may move: bulletins without the rows of arms that were released."""
    return [
        sent._replace(
            bulletin=replace(
                sent.bulletin, arms=tuple(replace(it, row=()) if it.releases else it for it in sent.bulletin.arms)
            )
        )
        for sent in view
    ]


def bulletins_of(world: Script, opened: OpenSite, noise: NoiseSource) -> list[Sent]:
    """What a member sees of a run."""
    run = Run(world, opened, noise, looks=False)
    run.play()
    return run.sent


def on_site(
    label: str,
    worlds: tuple[Script, Script],
    claimed: float,
    statistic: Callable[[list[Sent]], float],
    opened: OpenSite = Site,
    noise: NoiseSource | None = None,
) -> Attack:
    """Attack a site by the public part of what is read if that differs between the worlds, else by ``statistic``.

    A dry run of both worlds without noise shows whether it differs.
    """
    source = noise or prefetched()
    dry_runs = [_public(bulletins_of(world, opened, lambda _, count: [0] * count)) for world in worlds]
    differs = dry_runs[0] != dry_runs[1]

    def sample(which: int, count: int) -> Iterable[list[Sent]]:
        return (bulletins_of(worlds[which], opened, source) for _ in range(count))

    def judge(view: list[Sent]) -> float:
        public = _public(view) if differs else None
        if public in dry_runs:
            return inf if public == dry_runs[1] else -inf
        return statistic(view)

    return Attack(label, claimed, sample, judge)


def _terms(policy: FedBatch | FedUCB) -> Federation:
    return Federation("audit", ("a", "b"), 0.0, 1.0, policy, counts="sites", max_agents=2)


def on_fed_batch(
    epsilon: float,
    later: bool = False,
    restarts: int = 0,
    opened: OpenSite = Site,
    noise: NoiseSource | None = None,
) -> Attack:
    """A reward of arm 0's first (or second) batch changes.

    With ``restarts`` the site is restarted so often after the attacker has read the release, and goes on.
    """
    label = "site, FedBatch" + (", a later batch" if later else ", restarted" if restarts else "")
    changed, arms = (5, (0, 1, 0, 1, 0, 0)) if later else (1, (0, 1, 0, 1, 0)) if restarts else (1, (0, 1, 0))
    worlds = two_worlds(_terms(FedBatch(epsilon, first_batch=BATCH)), changed, arms, restarts)
    return on_site(label, worlds, epsilon, (_second_batch if later else _first_batch)(epsilon), opened, noise)


def on_delays(epsilon: float, opened: OpenSite = Site, window: float = WAIT) -> Attack:
    """The first reward is reported at once if it is bad, and after the next decisions of its arm if it is good."""
    terms = replace(_terms(FedBatch(epsilon, first_batch=BATCH)), reward_window=window)
    worlds = two_worlds(terms, 1, (0, 1, 0, 1, 0, 1, 0), delay=3.0)
    return on_site("site, delay by outcome", worlds, epsilon, _first_batch(epsilon), opened)


def _first_batch(epsilon: float) -> Callable[[list[Sent]], float]:
    rest = (BATCH - 1) * REST_STEPS

    def statistic(view: list[Sent]) -> float:
        return sum(log_ratio(noisy, rest, rest + GRID, epsilon) for noisy in first_batch_sums(view))

    return statistic


def _second_batch(epsilon: float) -> Callable[[list[Sent]], float]:
    rest = (BATCH - 1) * REST_STEPS

    def statistic(view: list[Sent]) -> float:
        first = first_batch_sums(view)
        if len(first) > 1:  # it must not change until the second release: what it shows, decides
            return 1e9 * (first[-1] - first[0])
        return sum(log_ratio(noisy, rest, rest + GRID, epsilon) for noisy in second_batch_sums(view))

    return statistic


def on_fed_ucb(epsilon: float, noise: NoiseSource | None = None) -> Attack:
    """The first reward changes. Each interval that begins at pull 1 holds it, and is the whole prefix."""
    worlds = two_worlds(_terms(FedUCB(epsilon, horizon=HORIZON)), 1, (0, 1, 0, 0, 0))
    per_node = epsilon_per_node(epsilon, HORIZON + 1)

    def statistic(view: list[Sent]) -> float:
        total = 0.0
        for end, noisy in tree_sums(view):
            if dyadic_intervals(end)[0][0] == 1:
                rest = (end - 1) * REST_STEPS
                total += log_ratio(noisy, rest, rest + GRID, per_node)
        return total

    return on_site("site, Fed_UCB", worlds, epsilon, statistic, noise=noise)
