"""Private sums: what stands between a reward and everybody else (beyond the paper).

A private page hands each reward and its noise to one of three rules, ``collect`` for batches, ``collect_row`` for
batches of features times rewards, or ``collect_in_tree`` for the tree of Algorithms 2 and 3, and learns what they
release. ``total`` and ``slots`` belong to the rule; the page never
reads them. It reads ``n`` and ``released``, and never writes them. ``batch_end``, the number of the reward that fills
the batch, is the page's to choose. Then whatever a page does is epsilon-differentially private (docs/privacy.md):

* A reward moves a sum by at most ``terms.high - terms.low``.
* Of a batch, it lies in one release; of a tree, in one of each level.
* Noise is fresh: ``batch_due`` and ``tree_due`` name it by the number of the next reward, which only grows, and
  ask for it exactly where the rule adds it.
"""

from typing import Any

from fedbandit.rules.linear import scale_of
from fedbandit.rules.mean import clamp, pull_tree_add, trailing_zeros


def batch_due(me: Any, terms: Any, arm: int) -> int:
    """The next reward, if it fills the batch; else 0."""
    return me.batch_end[arm] if me.n[arm] + 1 == me.batch_end[arm] else 0


def batch_interval(me: Any, terms: Any, arm: int, end: int) -> tuple[int, int]:
    """A batch begins after the last released reward; batches are disjoint: one level."""
    return me.released[arm] + 1, 0


def collect(me: Any, terms: Any, arm: int, reward: float, noise: float) -> tuple[int, float]:
    """Add the clamped reward to its batch; a full one is released: its size and its noisy sum. Size 0: not yet.

    The page then writes a new ``batch_end``, above ``n``.
    """
    me.total[arm] += clamp(reward, terms.low, terms.high)
    me.n[arm] += 1
    if me.n[arm] != me.batch_end[arm]:
        return 0, 0.0
    size, noisy_sum = me.n[arm] - me.released[arm], me.total[arm] + noise
    me.total[arm] = 0
    me.released[arm] = me.n[arm]
    return size, noisy_sum


def row_due(me: Any, terms: Any, arm: int, context: Any) -> int:
    """As ``batch_due``."""
    return me.batch_end[arm] if me.n[arm] + 1 == me.batch_end[arm] else 0


def collect_row(me: Any, terms: Any, arm: int, reward: float, noise: Any, context: Any) -> int:
    """Add the decision's features, times the clamped reward, to its batch: the size of a full one; 0: not yet.

    A full one is released: its noisy sum stands in ``noise`` then, ``me.noise``. Features are scaled to a norm of at
    most 1 and rewards to a width of 1, so another reward moves the sum by at most 1 (Euclidean).
    """
    x, total = context.features, me.total[arm]
    scaled = scale_of(x, terms.norm) * (clamp(reward, terms.low, terms.high) - terms.centre) / (terms.high - terms.low)
    for c in range(len(x)):
        total[c] += scaled * x[c]
    me.n[arm] += 1
    if me.n[arm] != me.batch_end[arm]:
        return 0
    size = me.n[arm] - me.released[arm]
    for c in range(len(x)):
        noise[c] += total[c]
        total[c] = 0.0
    me.released[arm] = me.n[arm]
    return size


def skip_batch(me: Any, arm: int) -> int:
    """Count a batch that was released before the agent lost what it knew, and whose rewards are gone: its size.

    The page then writes a new ``batch_end``, above ``n``.
    """
    size = me.batch_end[arm] - me.n[arm]
    me.n[arm] = me.released[arm] = me.batch_end[arm]
    return size


def tree_due(me: Any, terms: Any, arm: int) -> int:
    """Every reward ends an interval of the tree (Algorithm 2)."""
    return me.n[arm] + 1


def tree_interval(me: Any, terms: Any, arm: int, end: int) -> tuple[int, int]:
    """Algorithm 2: the interval that ends at a reward begins after that number without its lowest bit."""
    return (end & (end - 1)) + 1, trailing_zeros(end)


def collect_in_tree(me: Any, terms: Any, arm: int, reward: float, noise: float) -> float:
    """Algorithm 3: the sum of all rewards of the arm, this one clamped, with the noise of its intervals."""
    me.total[arm] += clamp(reward, terms.low, terms.high)
    me.n[arm] += 1
    return me.total[arm] + pull_tree_add(me.slots[arm], me.n[arm], noise)
