"""Attacks on the mechanisms that real rewards pass through.

Each attack is the worst case of a mechanism: two streams of rewards that differ in one, from one end of the range to
the other, and the statistic of an attacker who knows everything else. The target is the code that an agent runs, with
OpenDP's noise, fetched in blocks because a call costs more than a draw.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedbandit.checks import InvalidArgument
from fedbandit.policies import FedBatch, FedUCB
from fedbandit.privacy.mechanism import Mechanism
from fedbandit.privacy.noise import GRID, NoiseSource, laplace, to_grid

__all__ = ["Attack", "log_ratio", "on_batches", "on_mechanism", "on_tree", "prefetched"]

BLOCK = 4096


@dataclass(frozen=True)
class Attack:
    """What ``fedbandit.audit.measure.audit`` needs to attack something, and what tables call it.

    ``known_bad``: the claim is false on purpose, to show that the audit can see it; ``samples`` is then its
    own size.
    """

    label: str
    claimed: float
    sample: Callable[[int, int], Iterable[Any]]
    statistic: Callable[[Any], float | Sequence[float]] = float
    known_bad: bool = False
    samples: int | None = None


def prefetched() -> NoiseSource:
    """The noise of ``laplace``, each draw used once, fetched in blocks."""
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
