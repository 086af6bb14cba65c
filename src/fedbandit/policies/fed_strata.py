"""FedBatch with strata: the best arm of each stratum, with the same epsilon per reward (beyond the paper).

Each decision has a stratum. A site collects rewards of each cell, an arm in a stratum, and releases noisy sums: of a
cell that has enough rewards alone, of the others together. A hierarchical model learns from the releases of all sites
how much strata change an arm at all, and how much at one site (``rules.strata``); Thompson sampling draws from its
posterior for the stratum of the decision. docs/context.md explains and measures it, docs/privacy.md has the proof.

**What a site publishes of an arm is one record**, 1 + 2 S + S^2 numbers for S strata, in units of the declared range
(``rules.strata``): how many sums it has released of the arm; its weight in each stratum (1, or where patients count its
patients of the stratum per round); the score e; the precision L, row by row. The mean of what it has released in
stratum s is 1/2 + e_s / sum_r L_sr. Records are sufficient, and the newest one replaces all others, as bulletins do.

The second page, ``SEPARATE``, is one FedBatch for each stratum, for comparison. There e_s is the site's own mean of the
cell less 1/2, and L_ss its variance.
"""

from math import inf
from typing import Any, NamedTuple

from fedbandit.policies.protocol import (
    ARMS,
    STRATA,
    Context,
    Count,
    Fields,
    Flag,
    Now,
    Number,
    Page,
    Setting,
    highest_chance,
    highest_draw,
    reward_bounds,
    uniform,
)
from fedbandit.rules import batch, private, strata, urn
from fedbandit.rules import radius as radii
from fedbandit.rules.releases import random_effects
from fedbandit.rules.strata import GRID, MATRICES, VECTORS

NEVER = 2**30  # rewards

KNOWS = Fields(
    n=Count[ARMS],  # rewards of each arm
    cells=Count[ARMS, STRATA],  # rewards of each cell
    totals=Number[ARMS, STRATA],  # sums of rewards that are in no release, which nobody else sees
    arm_end=Count[ARMS],  # the reward of the arm that releases what its cells hold
    cell_end=Count[ARMS, STRATA],  # the reward of a cell that releases it alone
    released=Count[ARMS],  # rewards in releases
    marks=Count[ARMS, STRATA],  # rewards of each cell in releases
    releases=Count[ARMS],  # sums
    cell_releases=Count[ARMS, STRATA],  # of a cell alone
    cell_mean=Number[ARMS, STRATA],  # of releases of a cell alone, weighted by 1/v
    cell_precision=Number[ARMS, STRATA],  # sum of 1/v
    cell_square=Number[ARMS, STRATA],  # sum of 1/(v^2 m)
    pool_score=Number[ARMS, STRATA],  # e of pooled sums
    pool_precision=Number[ARMS, STRATA, STRATA],  # L of pooled sums
    worth=Number[ARMS],  # the record: released sums ...
    weight=Number[ARMS, STRATA],  # ... the agent's weight in the average of each stratum ...
    score=Number[ARMS, STRATA],  # ... e ...
    precision=Number[ARMS, STRATA, STRATA],  # ... and L
    share=Number.carried,  # the agent's part of all weight, where patients count
    alone=Number,  # the fewest rewards of a cell that is released alone when its arm closes
    alone_later=Number,  # where it has been before
    pool_least=Number,  # the fewest rewards of a later pooled sum
    matters=Number.transient,  # Q, the probability that strata matter
    evidence=Number[ARMS, GRID].carried,  # for each pair of scales
    means=Number[ARMS, STRATA, GRID].carried,  # theta - 1/2, for each pair
    variances=Number[ARMS, STRATA, GRID].carried,
    heard=Count[ARMS].carried,  # sites whose releases of the arm are known here
    stamp=Number[ARMS].carried,  # releases in the records from which these follow
    is_new=Flag.transient,  # records have come since the beliefs below were derived
    theta=Number[STRATA, ARMS].transient,
    error=Number[STRATA, ARMS].transient,  # the standard deviation of theta ...
    spread=Number[STRATA, ARMS].transient,  # ... and that of the draw
    chances=Number[GRID].transient,  # of the pairs of scales
    unknown=Flag[ARMS].transient,  # arms that the agent cannot judge yet
    cell_unknown=Flag[STRATA, ARMS].transient,
    cells_unknown=Count[STRATA].transient,
    num_unknown=Count.transient,
    due=Count[STRATA].transient,  # of the rule, for one reward
    part=Count[STRATA].transient,
    noise=Number[STRATA].transient,
    sizes=Count[STRATA].transient,
    sums=Number[STRATA].transient,
    pool_size=Count.transient,
    pool_sum=Number.transient,
    tried_in=Count[ARMS, STRATA].transient,  # decisions for each cell, which the engine counts
    turn=Count[ARMS].transient,  # those of one stratum; scratch, as is all that follows
    index=Number[ARMS].transient,
    width=Number[ARMS].transient,
    mix=Number[STRATA].transient,
    vectors=Number[VECTORS, STRATA].transient,
    matrices=Number[MATRICES, STRATA, STRATA].transient,
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    num_agents: int
    by_rate: int  # whether agents count by their patients of a stratum
    share: float  # the agent's weight, where sites count
    own_share: float  # variance of theta / variance of an agent's own mean, where all know alike
    total: float  # of all weights; 0: they are measured
    squares: float  # of all weights
    epsilon: float
    epsilon_per_release: float
    noise_scale: float
    noise_variance: float
    first_batch: int
    growth: float
    low: float  # rewards are clamped to this range
    high: float
    middle: float
    width: float
    most_variance: float  # of one reward
    least_variance: float


def start(me: Any, terms: Terms) -> None:
    """Before the first reward every arm is unknown, and scales have their prior."""
    me.num_unknown = len(me.n)
    me.is_new = 1
    for k in range(len(me.n)):
        me.unknown[k] = 1
        me.stamp[k] = -1.0
        me.arm_end[k] = terms.first_batch
        for s in range(len(me.due)):
            me.cell_end[k][s] = terms.first_batch
            me.weight[k][s] = terms.share
    choose_batches(me, terms)


def choose_batches(me: Any, terms: Terms) -> None:
    """The more strata matter, the smaller are the sums of cells that are released alone.

    Only the first sum of an arm is pooled, unless it is unlikely that strata matter.
    """
    me.matters = strata.choose_scales(me.evidence, me.heard, me.chances)
    least = strata.cell_least(me.matters, terms.first_batch)
    me.alone = me.alone_later = least
    me.pool_least = 0.5 * terms.first_batch
    if me.matters >= strata.UNLIKELY:
        me.alone_later = max(least, 0.5 * terms.first_batch)
        me.pool_least = float(NEVER)


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any, context: Context) -> int:
    """While an arm is unknown one from the stratum's urn; else the highest draw around theta of the stratum."""
    s = context.stratum
    if me.is_new:
        judge(me, terms)
    if me.num_unknown > 0:
        return draw_with_unknown(me, me.unknown, me.num_unknown, s, draws)
    return highest_draw(me.theta[s], me.spread[s], draws)


def draw_with_unknown(me: Any, unknown: Any, num_unknown: int, s: int, draws: Any) -> int:
    """An unknown arm from the urn of the stratum, which balances arms in it; or the index among those known."""
    look_at(me, unknown, s)
    rest = urn.rest_of(num_unknown, len(me.turn))
    arm = urn.drawn(me.turn, unknown, me.turn, False, rest, uniform(draws))
    return arm if arm != urn.KNOWN else highest_draw(me.index, me.width, draws)


def chance_with_unknown(me: Any, unknown: Any, num_unknown: int, s: int, arm: int) -> float:
    """How likely ``draw_with_unknown`` gives this arm."""
    look_at(me, unknown, s)
    rest = urn.rest_of(num_unknown, len(me.turn))
    if unknown[arm]:
        return urn.chance(me.turn, unknown, me.turn, False, rest, arm)
    known = urn.chance(me.turn, unknown, me.turn, False, rest, urn.KNOWN)
    return known * highest_chance(me.index, me.width, arm)


def look_at(me: Any, unknown: Any, s: int) -> None:
    """Write down the decisions of a stratum, and beliefs by which no unknown arm is best."""
    for k in range(len(me.turn)):
        me.turn[k] = me.tried_in[k][s]
        me.index[k], me.width[k] = me.theta[s][k], me.spread[s][k]
        if unknown[k]:
            me.index[k], me.width[k] = -inf, 0.0


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: Any, context: Context) -> None:
    """Collect the reward; what it releases goes into the record."""
    sums = private.collect_in_cells(me, terms, arm, reward, noise, context)
    if sums > 0:
        add_sums(me, terms, arm, sums)
        write_record(me, terms, arm)


def add_sums(me: Any, terms: Terms, arm: int, sums: int) -> None:
    """Weigh each released sum by inverse variance, and close batches."""
    size = me.pool_size
    for s in range(len(me.sizes)):
        me.mix[s] = 0.0
        if me.part[s] == private.ALONE:
            add_cell(me, terms, arm, s)
        elif me.part[s] == private.POOLED:
            me.mix[s] = me.sizes[s] / size
        if me.part[s] != private.STAYS:
            me.cell_end[arm][s] = me.cells[arm][s] + batch.batch_size(me.cells[arm][s], terms.first_batch, terms.growth)
    if size > 0:
        value = me.pool_sum / size
        variance = batch.release_variance(size, terms.most_variance, terms.noise_variance)
        learnt = batch.learnt_reward_variance(
            value, variance, terms.low, terms.high, terms.least_variance, terms.most_variance
        )
        variance = batch.release_variance(size, learnt, terms.noise_variance) / (terms.width * terms.width)
        value = (value - terms.middle) / terms.width
        strata.add_release(me.pool_score[arm], me.pool_precision[arm], me.mix, value, variance, len(me.mix))
    me.releases[arm] += sums
    if me.n[arm] >= me.arm_end[arm]:
        me.arm_end[arm] = me.n[arm] + batch.batch_size(me.n[arm], terms.first_batch, terms.growth)
    me.arm_end[arm] = max(me.arm_end[arm], me.released[arm] + terms.first_batch)


def add_cell(me: Any, terms: Terms, arm: int, s: int) -> None:
    """Add the release of a cell alone to the mean of all of these."""
    size = me.sizes[s]
    variance = batch.release_variance(size, terms.most_variance, terms.noise_variance)
    me.cell_precision[arm][s] += 1.0 / variance
    me.cell_square[arm][s] += batch.release_square(size, variance)
    weight = batch.last_weight(me.cell_precision[arm][s], variance)
    me.cell_mean[arm][s] = batch.weighted_mean(me.cell_mean[arm][s], me.sums[s] / size, weight)
    me.cell_releases[arm][s] += 1


def cell_variance(me: Any, terms: Terms, arm: int, s: int) -> float:
    """Of the mean of a cell, with the variance of a reward that the mean tells."""
    precision, square = me.cell_precision[arm][s], me.cell_square[arm][s]
    learnt = batch.learnt_reward_variance(
        me.cell_mean[arm][s], 1.0 / precision, terms.low, terms.high, terms.least_variance, terms.most_variance
    )
    return batch.mean_variance(precision, square, terms.most_variance, learnt)


def write_record(me: Any, terms: Terms, arm: int) -> None:
    """Cells' means and pooled sums, as score and precision."""
    me.worth[arm] = float(me.releases[arm])
    for s in range(len(me.due)):
        me.score[arm][s] = me.pool_score[arm][s]
        for r in range(len(me.due)):
            me.precision[arm][s][r] = me.pool_precision[arm][s][r]
        if me.cell_releases[arm][s] > 0:
            own = terms.width * terms.width / cell_variance(me, terms, arm, s)
            me.precision[arm][s][s] += own
            me.score[arm][s] += own * (me.cell_mean[arm][s] - terms.middle) / terms.width


def reweigh(me: Any, terms: Terms, elapsed: float) -> None:
    """Where patients count, the agent's weight in a stratum is how many of its patients come in a round."""
    if terms.by_rate:
        for s in range(len(me.due)):
            rewards = 0
            for k in range(len(me.n)):
                rewards += me.cells[k][s]
            for k in range(len(me.n)):
                me.weight[k][s] = rewards / elapsed


def receive(me: Any, terms: Terms, arm: int, rows: Any, versions: Any) -> None:
    """The posterior of the arm for each pair of scales, if there is news of it, and what follows for batches."""
    stamp = 0.0
    for j in range(len(versions)):
        if versions[j] > 0:
            stamp += rows[j][0]
    if stamp == me.stamp[arm] and not terms.by_rate:
        return
    me.stamp[arm] = stamp
    me.is_new = 1
    me.heard[arm] = strata.posterior_of_arm(
        rows,
        versions,
        terms.total,
        terms.squares,
        me.vectors,
        me.matrices,
        me.evidence[arm],
        me.means[arm],
        me.variances[arm],
    )
    me.share = strata.share_of_all(me.weight[arm], me.vectors, len(me.due))
    choose_batches(me, terms)


def recount(me: Any, terms: Terms, arm: int) -> None:
    """With another number of agents everything heard is to be weighed anew."""
    me.stamp[arm] = -1.0


def unknown(me: Any, arm: int) -> bool:
    """Whether the agent cannot judge the arm yet."""
    return me.unknown[arm] != 0


def judge(me: Any, terms: Terms) -> None:
    """Beliefs over all pairs of scales. An arm is known once the agent itself or half of all have released it."""
    me.is_new = 0
    me.num_unknown = 0
    me.matters = strata.choose_scales(me.evidence, me.heard, me.chances)
    for k in range(len(me.n)):
        unknown = me.heard[k] == 0 or (me.releases[k] == 0 and me.heard[k] < terms.num_agents // 2)
        me.unknown[k] = unknown
        me.num_unknown += int(unknown)
        for s in range(len(me.due)):
            mean = strata.mean_over_scales(me.means[k][s], me.chances)
            variance = strata.variance_over_scales(me.means[k][s], me.variances[k][s], me.chances, mean)
            me.error[s][k] = terms.width * radii.deviation(variance)
            variance = min(variance, most_variance(me, terms, k, s))
            me.theta[s][k] = terms.middle + terms.width * mean
            me.spread[s][k] = strata.DRAWN * terms.width * radii.deviation(variance)


def most_variance(me: Any, terms: Terms, arm: int, s: int) -> float:
    """What the agent's own pulls can still remove: a bonus for more makes a fast agent explore for slow ones.

    All of its releases tell of a stratum if strata do not matter, otherwise those of the stratum do.
    """
    of_stratum, of_all = 0.0, 0.0
    for r in range(len(me.due)):
        of_stratum += me.precision[arm][s][r]
        for q in range(len(me.due)):
            of_all += me.precision[arm][r][q]
    precision = me.matters * of_stratum + (1.0 - me.matters) * of_all
    share = me.share if terms.by_rate else terms.own_share
    return share / precision if precision > 0.0 else inf


def estimate(me: Any, terms: Terms, seen: Any, arm: int, context: Context) -> float:
    """Theta of the stratum."""
    if me.is_new:
        judge(me, terms)
    return me.theta[context.stratum][arm]


def margin(me: Any, terms: Terms, seen: Any, now: Now, arm: int, context: Context) -> float:
    """The standard deviation of the draw."""
    if me.is_new:
        judge(me, terms)
    return me.spread[context.stratum][arm]


def chance(me: Any, terms: Terms, seen: Any, now: Now, arm: int, context: Context) -> float:
    """From the urn while an arm is unknown; else of Thompson's draws around theta of the stratum."""
    s = context.stratum
    if me.num_unknown > 0:
        return chance_with_unknown(me, me.unknown, me.num_unknown, s, arm)
    return highest_chance(me.theta[s], me.spread[s], arm)


def take_back(me: Any, terms: Terms, arm: int, size: Any, row: tuple[float, ...]) -> None:
    """Enter what the agent had released before it lost what it knew: ``row`` is its record, the same bit for bit.

    ``size``: the rewards of each stratum that may be in it. The record counts as that of pooled sums: what it is made
    of is not needed any more.
    """
    num_strata = len(me.due)
    me.releases[arm] = int(row[0])
    for s in range(num_strata):
        me.cell_end[arm][s] = size[s] + batch.batch_size(size[s], terms.first_batch, terms.growth)
        me.weight[arm][s] = row[1 + s]
        me.pool_score[arm][s] = row[strata.place_of_score(num_strata, s)]
        for r in range(num_strata):
            me.pool_precision[arm][s][r] = row[strata.place_of_precision(num_strata, s, r)]
    me.arm_end[arm] = me.n[arm] + batch.batch_size(me.n[arm], terms.first_batch, terms.growth)
    write_record(me, terms, arm)


HIERARCHICAL = Page(
    knows=KNOWS,
    averaged=(),
    network="gossip",
    context="strata",
    start=start,
    decide=decide,
    noise_due=private.cells_due,
    observe=observe,
    published=None,
    records=("worth", "weight", "score", "precision"),
    receive=receive,
    reweigh=reweigh,
    recount=recount,
    estimate=estimate,
    unknown=unknown,
    radius=None,
    margin=margin,
    chance=chance,
    take_back=take_back,
)


# ---------------------------------------------------------------- one FedBatch for each stratum, for comparison


def start_apart(me: Any, terms: Terms) -> None:
    """Every cell is unknown, and is released alone."""
    me.is_new = 1
    for k in range(len(me.n)):
        me.arm_end[k] = NEVER
        for s in range(len(me.due)):
            me.cell_end[k][s] = terms.first_batch
            me.weight[k][s] = terms.share


def decide_apart(me: Any, terms: Terms, seen: Any, now: Now, draws: Any, context: Context) -> int:
    """While an arm is unknown in the stratum one from its urn; else the highest draw."""
    s = context.stratum
    if me.is_new:
        judge_apart(me, terms)
    if me.cells_unknown[s] > 0:
        return draw_with_unknown(me, me.cell_unknown[s], me.cells_unknown[s], s, draws)
    return highest_draw(me.theta[s], me.spread[s], draws)


def observe_apart(me: Any, terms: Terms, arm: int, reward: float, noise: Any, context: Context) -> None:
    """Collect the reward; a full cell goes into the record."""
    sums = private.collect_in_cells(me, terms, arm, reward, noise, context)
    if sums > 0:
        add_sums(me, terms, arm, sums)
        me.worth[arm] = float(me.releases[arm])
        for s in range(len(me.due)):
            if me.cell_releases[arm][s] > 0:
                me.score[arm][s] = (me.cell_mean[arm][s] - terms.middle) / terms.width
                me.precision[arm][s][s] = cell_variance(me, terms, arm, s) / (terms.width * terms.width)


def receive_apart(me: Any, terms: Terms, arm: int, rows: Any, versions: Any) -> None:
    """Random effects of each stratum by itself."""
    num_strata = len(me.due)
    me.is_new = 1
    for s in range(num_strata):
        score, precision = strata.place_of_score(num_strata, s), strata.place_of_precision(num_strata, s, s)
        mean, sampling, missing, weight = random_effects(
            rows, versions, terms.total, terms.squares, strata.COMMON, score, precision, 1 + s
        )
        variance = sampling + missing
        if me.cell_releases[arm][s] > 0 and weight > 0.0:
            own = me.weight[arm][s] / (terms.num_agents * weight) if terms.by_rate else terms.own_share
            variance = min(variance, own * me.precision[arm][s][s])
        me.means[arm][s][0], me.variances[arm][s][0] = mean, variance


def judge_apart(me: Any, terms: Terms) -> None:
    """A cell is known as soon as anybody's release of it is."""
    me.is_new = 0
    for s in range(len(me.due)):
        me.cells_unknown[s] = 0
    for k in range(len(me.n)):
        me.unknown[k] = 0
        for s in range(len(me.due)):
            variance = me.variances[k][s][0]
            me.cell_unknown[s][k] = variance == 0.0
            if variance == 0.0:
                me.unknown[k] = 1
                me.cells_unknown[s] += 1
            me.theta[s][k] = terms.middle + terms.width * me.means[k][s][0]
            me.spread[s][k] = me.error[s][k] = terms.width * radii.deviation(variance)


def estimate_apart(me: Any, terms: Terms, seen: Any, arm: int, context: Context) -> float:
    """Theta of the stratum."""
    if me.is_new:
        judge_apart(me, terms)
    return me.theta[context.stratum][arm]


def margin_apart(me: Any, terms: Terms, seen: Any, now: Now, arm: int, context: Context) -> float:
    """The standard deviation of the draw."""
    if me.is_new:
        judge_apart(me, terms)
    return me.spread[context.stratum][arm]


def chance_apart(me: Any, terms: Terms, seen: Any, now: Now, arm: int, context: Context) -> float:
    """From the stratum's urn while an arm is unknown in it; else of Thompson's draws."""
    s = context.stratum
    if me.cells_unknown[s] > 0:
        return chance_with_unknown(me, me.cell_unknown[s], me.cells_unknown[s], s, arm)
    return highest_chance(me.theta[s], me.spread[s], arm)


SEPARATE = HIERARCHICAL._replace(
    start=start_apart,
    decide=decide_apart,
    observe=observe_apart,
    receive=receive_apart,
    estimate=estimate_apart,
    margin=margin_apart,
    chance=chance_apart,
    take_back=None,
)


def strata_terms(setting: Setting, epsilon: float, first_batch: int, growth: float, sigma: float | None) -> Terms:
    """Numbers that follow from the parameters and the setting."""
    low, high, most, least = reward_bounds(setting, epsilon)
    low, high = max(low, setting.low), min(high, setting.high)
    if sigma is not None:
        most = least = (sigma * setting.unit) ** 2
    scale = batch.noise_scale(setting.high - setting.low, epsilon)
    by_rate = setting.counts == "patients"
    num_agents = setting.num_agents
    return Terms(
        num_agents=num_agents,
        by_rate=int(by_rate),
        share=0.0 if by_rate else setting.share,
        own_share=setting.sum_of_squares,
        total=0.0 if by_rate else float(num_agents),
        squares=0.0 if by_rate else setting.sum_of_squares * num_agents * num_agents,
        epsilon=epsilon,
        epsilon_per_release=epsilon,
        noise_scale=scale,
        noise_variance=batch.laplace_variance(scale),
        first_batch=first_batch,
        growth=growth,
        low=low,
        high=high,
        middle=0.5 * (low + high),
        width=high - low,
        most_variance=most,
        least_variance=least,
    )
