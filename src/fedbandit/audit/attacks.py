"""Attacks on the mechanisms that real rewards pass through, and on a live site from the other end of a link.

Each attack is a worst case: two worlds whose rewards differ in one, from one end of the range to the other, and the
statistic of an attacker who knows everything else. The target is the code that a site runs, with OpenDP's noise.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.site import Site
from fedbandit.audit.scenarios import Attacker, Entry, OpenSite, Reading, Scenario, play
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
# Victim and attacker are sites of a MemoryNetwork, which carries their messages. The victim is the site that ships,
# with a disk in memory and OpenDP's noise through its own ledger. From each message the attacker works out the victim's
# own row, and from the rows the noisy sums.

BATCH = 2  # small, so that a short run releases two; what a release costs does not depend on its size
HORIZON = 6  # in a tree of 7 pulls the first reward lies in three intervals
REST, REST_STEPS = 0.5, GRID // 2  # every reward but the changed one, and its steps on the grid
WAIT = 4.0  # the reward window of an attack by delays, longer than any of them


def two_worlds(
    terms: Federation, changed: int, decisions: int, restarts: int = 0, delay: int = 0
) -> tuple[Scenario, Scenario]:
    """Two scenarios in which the reward of one decision is 0 or 1, and every other one is 1/2.

    * ``changed``: that decision, counted from 1
    * ``restarts``: how often the site is restarted from its disk after the third decision, each time before another
      exchange
    * ``delay``: how many seconds later the changed reward is reported if it is 1; if it is 0: at once
    """
    scenario = Scenario(terms, (Entry(REST),) * decisions, restarts={3: restarts})
    return scenario.changed(changed, Entry(0.0)), scenario.changed(changed, Entry(1.0, delay))


def first_batch_sums(view: Sequence[Reading]) -> list[tuple[int, int]]:
    """How many rewards, and their noisy sum in steps of the grid, as the first batch of arm 0 shows them.

    One of ``BATCH`` rewards, unless something is seen too early or drawn again.
    """
    seen = ((min(it.pulls[0], BATCH), it.own[0], it.own[len(it.pulls)]) for it in view if 0 < it.pulls[0] < 2 * BATCH)
    sums = ((size, round(mean * size * GRID)) for size, mean, weight in seen if size == BATCH or mean or weight)
    return list(dict.fromkeys(sums))


def second_batch_sums(view: Sequence[Reading]) -> list[int]:
    """The noisy sums of arm 0's second batch. Batches of equal size weigh alike: twice the mean, less the first."""
    first = [noisy for size, noisy in first_batch_sums(view) if size == BATCH]
    both = dict.fromkeys(round(2.0 * it.own[0] * BATCH * GRID) for it in view if it.pulls[0] == 2 * BATCH)
    return [total - first[0] for total in both] if first else []


def tree_sums(view: Sequence[Reading]) -> list[tuple[int, int]]:
    """How many pulls of arm 0, and the noisy sum of their rewards in steps of the grid; each as often as it differs."""
    sums = ((it.pulls[0], round(it.own[0] * it.pulls[0] * GRID)) for it in view if it.pulls[0] > 0)
    return list(dict.fromkeys(sums))


def _public(view: Sequence[Reading], size: int) -> list[tuple[object, ...]]:
    """All that no reward may move: arms, headers, weights, and means of arms before their first release of ``size``."""
    return [
        (
            it.pulls,
            it.header,
            *(round(weight * GRID) for weight in it.own[len(it.pulls) :]),
            *(round(mean * GRID) for mean, n in zip(it.own, it.pulls, strict=False) if n < size),
        )
        for it in view
    ]


def on_site(
    label: str,
    worlds: tuple[Scenario, Scenario],
    claimed: float,
    statistic: Callable[[list[Reading]], float],
    open_site: OpenSite = Site,
    noise: NoiseSource | None = None,
) -> Attack:
    """Attack a site by the public part of what is read if that differs between the worlds, else by ``statistic``.

    A dry run of both worlds without noise shows whether it differs.
    """
    terms = worlds[0].terms
    source, attacker, size = noise or prefetched(), Attacker(terms), terms.first_batch
    dry_runs = [_public(play(world, attacker, open_site, lambda _, count: [0] * count), size) for world in worlds]
    differs = dry_runs[0] != dry_runs[1]

    def sample(which: int, count: int) -> Iterable[list[Reading]]:
        return (play(worlds[which], attacker, open_site, source) for _ in range(count))

    def judge(view: list[Reading]) -> float:
        public = _public(view, size) if differs else None
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
    open_site: OpenSite = Site,
    noise: NoiseSource | None = None,
) -> Attack:
    """A reward of arm 0's first (or second) batch changes. Arms come as 0, 1, 0, 1 and, by the lie, 0, 0.

    With ``restarts`` the site is restarted so often after the attacker has read the release, and goes on.
    """
    label = "site, FedBatch" + (", a later batch" if later else ", restarted" if restarts else "")
    changed, decisions = (5, 6) if later else (1, 5) if restarts else (1, 3)
    worlds = two_worlds(_terms(FedBatch(epsilon, first_batch=BATCH)), changed, decisions, restarts)
    return on_site(label, worlds, epsilon, (_second_batch if later else _first_batch)(epsilon), open_site, noise)


def on_delays(epsilon: float, open_site: OpenSite = Site, window: float = WAIT) -> Attack:
    """The first reward is reported at once if it is bad, and after the next decisions of its arm if it is good."""
    terms = replace(_terms(FedBatch(epsilon, first_batch=BATCH)), reward_window=window)
    worlds = two_worlds(terms, 1, 7, delay=3)
    return on_site("site, delay by outcome", worlds, epsilon, _delayed(epsilon), open_site)


def _delayed(epsilon: float) -> Callable[[list[Reading]], float]:
    """The first value that is seen of arm 0 is the noisy mean of its first batch, whenever that is."""
    rest = (BATCH - 1) * REST_STEPS

    def statistic(view: list[Reading]) -> float:
        first = next((it.own[0] for it in view if it.own[len(it.pulls)]), None)
        return 0.0 if first is None else log_ratio(round(first * BATCH * GRID), rest, rest + GRID, epsilon)

    return statistic


def _first_batch(epsilon: float) -> Callable[[list[Reading]], float]:
    def statistic(view: list[Reading]) -> float:
        total = 0.0
        for size, noisy in first_batch_sums(view):
            rest = (size - 1) * REST_STEPS
            total += log_ratio(noisy, rest, rest + GRID, epsilon)
        return total

    return statistic


def _second_batch(epsilon: float) -> Callable[[list[Reading]], float]:
    rest = (BATCH - 1) * REST_STEPS

    def statistic(view: list[Reading]) -> float:
        between = [noisy for size, noisy in first_batch_sums(view) if size == BATCH]
        if len(between) > 1:  # it must not change until the second release: what it shows, decides
            return 1e9 * (between[-1] - between[0])
        return sum(log_ratio(noisy, rest, rest + GRID, epsilon) for noisy in second_batch_sums(view))

    return statistic


def on_fed_ucb(epsilon: float, noise: NoiseSource | None = None) -> Attack:
    """The first reward changes. Each interval that begins at pull 1 holds it, and is the whole prefix."""
    worlds = two_worlds(_terms(FedUCB(epsilon, horizon=HORIZON)), 1, 5)
    per_node = epsilon_per_node(epsilon, HORIZON + 1)

    def statistic(view: list[Reading]) -> float:
        total = 0.0
        for end, noisy in tree_sums(view):
            if dyadic_intervals(end)[0][0] == 1:
                rest = (end - 1) * REST_STEPS
                total += log_ratio(noisy, rest, rest + GRID, per_node)
        return total

    return on_site("site, Fed_UCB", worlds, epsilon, statistic, noise=noise)
