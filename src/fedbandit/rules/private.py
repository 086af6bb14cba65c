"""Private sums: what stands between a reward and everybody else (beyond the paper).

A private page hands each reward and its noise to a rule: ``collect`` for batches, ``collect_in_cells`` for batches
where decisions have strata, ``collect_row`` for batches of features times rewards, ``collect_records`` for batches that
hide features, too, or ``collect_in_tree`` for the tree of Algorithms 2 and 3, and learns what they release. ``total``,
``totals`` and ``slots`` belong to the rule; the page never reads them. It reads ``n`` and ``released``, and those of
cells, and never writes them. ``batch_end``, the number of the reward that fills the batch, is the page's to choose.
Then whatever a page does is epsilon-differentially private (docs/privacy.md):

* A reward moves a sum by at most ``terms.high - terms.low``.
* Of a batch, it lies in one release, alone or with other cells of its arm; of a tree, in one of each level.
* Noise is fresh: ``batch_due`` and ``tree_due`` name it by the number of the next reward, which only grows, and
  ask for it exactly where the rule adds it.
"""

from math import sqrt
from typing import Any

from fedbandit.rules.linear import scale_of
from fedbandit.rules.mean import clamp, pull_tree_add, trailing_zeros

STAYS, ALONE, POOLED = 0, 1, 2
"""What happens to the rewards of a cell: ``me.part``."""


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


def records_due(me: Any, terms: Any, arm: int, context: Any) -> int:
    """The next decision, of any arm, if it fills the batch; else 0."""
    return me.batch_end if me.decisions + 1 == me.batch_end else 0


def records_interval(me: Any, terms: Any, arm: int, end: int) -> tuple[int, int]:
    """A batch begins after the last released decision."""
    return me.decided + 1, 0


def collect_records(me: Any, terms: Any, arm: int, reward: float, noise: Any, context: Any) -> int:
    """Add a decision to the batch of all arms: the size of a full one; 0: not yet.

    A full one is released: its noisy sums x q stand in ``noise`` then, ``me.noise``, and x x' in ``me.gram_noise``, of
    all arms, whether they were given or not. Another decision moves them by at most ``rules.linear.RECORD``, with
    off-diagonal entries once and times sqrt(2): so noise in these is divided by it.
    """
    x, total, slots = context.features, me.total[arm], me.slots[arm]
    scale = scale_of(x, terms.norm)
    scaled = scale * (clamp(reward, terms.low, terms.high) - terms.centre) / (terms.high - terms.low)
    for a in range(len(x)):
        total[a] += scaled * x[a]
        for b in range(len(x)):
            slots[a][b] += scale * x[a] * scale * x[b]
    me.decisions += 1
    if me.decisions != me.batch_end:
        return 0
    size = me.decisions - me.decided
    for k in range(len(noise)):
        for a in range(len(x)):
            noise[k][a] += me.total[k][a]
            me.total[k][a] = 0.0
            for b in range(a + 1):
                z = me.gram_noise[k][a][b] if a == b else me.gram_noise[k][a][b] / sqrt(2.0)
                me.gram_noise[k][a][b] = me.slots[k][a][b] + z
                me.gram_noise[k][b][a] = me.gram_noise[k][a][b]
                me.slots[k][a][b] = 0.0
                me.slots[k][b][a] = 0.0
    me.decided = me.decisions
    return size


def skip_batch(me: Any, arm: int) -> int:
    """Count a batch that was released before the agent lost what it knew, and whose rewards are gone: its size.

    The page then writes a new ``batch_end``, above ``n``.
    """
    size = me.batch_end[arm] - me.n[arm]
    me.n[arm] = me.released[arm] = me.batch_end[arm]
    return size


# ---------------------------------------------------------------- cells: an arm in a stratum


def cells_due(me: Any, terms: Any, arm: int, context: Any) -> int:
    """How many sums the next reward of a cell releases; fills in ``me.part`` and, by stratum, ``me.due``.

    * Its arm closes with reward ``me.arm_end[arm]``. Cells with enough rewards are released alone: ``me.alone``, or
      ``me.alone_later`` where the cell has been before. The rest is one pooled sum: at the first release of the arm, or
      if it has ``me.pool_least`` rewards.
    * Otherwise its cell is released alone with reward ``me.cell_end[arm][stratum]``.

    All of it follows from counts and from what the page makes of releases. A sum's noise is named by the last reward of
    its cell, of a pooled sum by that of its first cell: no name comes twice.
    """
    s, sums, rest = context.stratum, 0, 0
    closes = me.n[arm] + 1 >= me.arm_end[arm]
    for r in range(len(me.due)):
        me.due[r] = 0
        me.part[r] = STAYS
        last = me.cells[arm][r] + int(r == s)
        size = last - me.marks[arm][r]
        least = me.alone_later if me.cell_releases[arm][r] > 0 else me.alone
        if size > 0 and (size >= least if closes else r == s and last >= me.cell_end[arm][r]):
            me.due[r] = last
            me.part[r] = ALONE
            sums += 1
        elif closes:
            rest += size
    if rest > 0 and (me.releases[arm] == 0 or rest >= me.pool_least):
        sums += 1
        is_first = True
        for r in range(len(me.due)):
            last = me.cells[arm][r] + int(r == s)
            if me.part[r] == STAYS and last > me.marks[arm][r]:
                me.part[r] = POOLED
                me.due[r] = last if is_first else 0
                is_first = False
    return sums


def collect_in_cells(me: Any, terms: Any, arm: int, reward: float, noise: Any, context: Any) -> int:
    """Add the clamped reward to its cell, and release what ``cells_due`` says: how many sums.

    ``me.sizes`` has the rewards of each cell that is released, alone or pooled, ``me.sums`` the noisy sum of each that
    is released alone; ``me.pool_size`` and ``me.pool_sum`` are those of the pooled sum. The page then writes new ends.
    """
    s, sums = context.stratum, 0
    me.totals[arm][s] += clamp(reward, terms.low, terms.high)
    me.n[arm] += 1
    me.cells[arm][s] += 1
    me.pool_size = 0
    me.pool_sum = 0.0
    for r in range(len(me.due)):
        me.sizes[r] = 0
        if me.part[r] != STAYS:
            me.sizes[r] = me.cells[arm][r] - me.marks[arm][r]
            total = me.totals[arm][r] + noise[r]
            if me.part[r] == ALONE:
                me.sums[r] = total
                sums += 1
            else:
                sums += int(me.pool_size == 0)
                me.pool_size += me.sizes[r]
                me.pool_sum += total
            me.totals[arm][r] = 0
            me.marks[arm][r] = me.cells[arm][r]
            me.released[arm] += me.sizes[r]
    return sums


def skip_cells(me: Any, arm: int, sizes: Any) -> Any:
    """Count so many rewards of each cell as released before the agent lost what it knew: ``sizes``, as they are."""
    rewards = 0
    for s in range(len(sizes)):
        me.cells[arm][s] = sizes[s]
        me.marks[arm][s] = sizes[s]
        rewards += sizes[s]
    me.n[arm] = me.released[arm] = rewards
    return sizes


# ---------------------------------------------------------------- a tree


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
