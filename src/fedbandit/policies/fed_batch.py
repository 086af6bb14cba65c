"""FedBatch: gossip of private batch means, with Fed_UCB's epsilon at almost no cost in regret (beyond the paper).

An agent collects a batch of rewards of an arm and releases their noisy mean once. Every reward lies in one release,
so it is epsilon-differentially private for ever, without a horizon. Releases are weighted by inverse variance. Agents
gossip value and weight; the estimate is their ratio, so an agent that has released nothing yet does not count as
zero. Derivations and measurements are in docs/fedbatch.md, the privacy proof in docs/privacy.md.
"""

import warnings
from dataclasses import dataclass
from math import ceil, floor, inf, log10
from typing import Any, ClassVar, Literal, NamedTuple

from fedbandit.checks import InvalidArgument, number_above, number_between, true_or_false, whole_number
from fedbandit.policies import fed_strata, protocol
from fedbandit.policies.protocol import (
    ARMS,
    INDICES,
    Count,
    Fields,
    Flag,
    Index,
    Now,
    Number,
    Page,
    Setting,
    highest_chance,
    highest_draw,
    lagging_chance,
    uniform,
)
from fedbandit.rules import batch, gossip, private, proved, urn
from fedbandit.rules import radius as radii
from fedbandit.rules.batch import break_even_decisions, break_even_epsilon
from fedbandit.rules.choose import count_lagging, highest, nth_lagging
from fedbandit.rules.kl import kl_index, lasting_kl_index
from fedbandit.rules.releases import random_effects

__all__ = [
    "FedBatch",
    "FewPatientsWarning",
    "Terms",
    "add_release",
    "check_first_batch",
    "take_back",
    "too_few_patients",
    "warn_of_few_patients",
]

FACTOR = radii.calibrated_factor(radii.CALIBRATED_ALPHA)

KNOWS = Fields(
    n=Count[ARMS],  # rewards of each arm
    total=Number[ARMS],  # sum of the current batch, which nobody else sees
    batch_end=Count[ARMS],  # the reward that fills it
    released=Count[ARMS],  # rewards in releases
    releases=Count[ARMS],
    x_mean=Number[ARMS],  # of all releases, weighted by 1/v
    precision=Number[ARMS],  # sum of 1/v
    square=Number[ARMS],  # sum of 1/(v^2 m)
    deviation=Number[ARMS],  # of theta; where patients count, of x_mean
    worth=Number[ARMS],  # how many rewards theta is worth; where patients count, x_mean
    largest=Number[ARMS],  # coefficient of a noise in x_mean
    share=Number,  # in the average over agents
    spread=Number[ARMS].transient,  # the standard deviation of theta: Thompson sampling draws with it
    rewards=Number[ARMS].transient,  # how many rewards theta is worth, for the divergence
    winner=Count.transient,  # by divergence
    winner_until=Number.transient,  # the log t up to which it stays the winner
    theta=Number[ARMS].transient,
    unknown=Flag[ARMS].transient,  # arms that the agent cannot judge yet
    num_unknown=Count.transient,
    belief=Number[ARMS].transient,
    caught_up=Count.transient,  # decisions by the consistency rule, if it is on
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    num_agents: int
    catches_up: int  # whether the consistency rule is on
    by_rate: int  # whether agents count by their rate
    share: float  # the agent's weight; by rate, before it is measured
    averaging: float  # variance of theta / variance of an agent's own mean, after mixing: 1 / N
    epsilon: float
    epsilon_per_release: float
    noise_scale: float
    noise_variance: float
    first_batch: int
    growth: float
    low: float  # rewards are clamped to this range
    high: float
    width: float  # of the declared range, which begins at 0 where the index is by divergence
    most_variance: float  # of one reward
    least_variance: float
    most_releases: int  # of an arm, by the schedule of batches


def start(me: Any, terms: Terms) -> None:
    """Before the first reward every arm is unknown."""
    me.num_unknown = len(me.n)
    me.share = terms.share
    for k in range(len(me.n)):
        me.unknown[k] = 1
        me.batch_end[k] = terms.first_batch
        me.deviation[k] = radii.deviation(terms.most_variance / batch.PRIOR_REWARDS)
        me.worth[k] = batch.PRIOR_REWARDS
        me.theta[k], me.spread[k], me.rewards[k] = -inf, 0.0, inf  # no index chooses it


def _first(me: Any, terms: Terms, seen: Any, draws: Any) -> int:
    """An unknown arm from the urn; else a lagging one, if others' counts are known; else -1, for the index."""
    if me.num_unknown > 0:
        rest = urn.rest_of(me.num_unknown, len(me.unknown))
        return urn.drawn(me.tried, me.unknown, me.batch_end, _waits(me, terms), rest, uniform(draws))
    if terms.catches_up:
        lagging = count_lagging(me.tried, seen.n_max, terms.num_agents)  # Algorithm 1, line 6
        if lagging > 0:
            me.caught_up += 1
            return nth_lagging(me.tried, seen.n_max, terms.num_agents, int(uniform(draws) * lagging))  # line 13
    return -1


def _waits(me: Any, terms: Terms) -> bool:
    """By rate, what others know will do until late rewards have filled a batch; unless nothing is known at all."""
    return terms.by_rate != 0 and me.num_unknown < len(me.unknown)


def decide_by_thompson(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """The highest draw around theta."""
    arm = _first(me, terms, seen, draws)
    if arm >= 0:
        return arm
    return highest_draw(me.theta, me.spread, draws)


def decide_by_radius(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """The highest theta + calibrated radius."""
    arm = _first(me, terms, seen, draws)
    return arm if arm >= 0 else _by_radius(me, terms, seen, now)


def _by_radius(me: Any, terms: Terms, seen: Any, now: Now) -> int:
    for k in range(len(me.belief)):
        me.belief[k] = me.theta[k] + radius(me, terms, seen, now, k)
    return highest(me.belief)


def decide_by_proved_radius(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """The highest theta + proved radius."""
    arm = _first(me, terms, seen, draws)
    return arm if arm >= 0 else _by_proved_radius(me, terms, seen, now)


def _by_proved_radius(me: Any, terms: Terms, seen: Any, now: Now) -> int:
    for k in range(len(me.belief)):
        me.belief[k] = -inf if me.unknown[k] else me.theta[k] + proved_radius(me, terms, seen, now, k)
    return highest(me.belief)


def decide_by_divergence(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """The arm with the largest mean that the private divergence does not rule out."""
    arm = _first(me, terms, seen, draws)
    return arm if arm >= 0 else _by_divergence(me, terms, now)


def _by_divergence(me: Any, terms: Terms, now: Now) -> int:
    if now.log_t >= me.winner_until:
        for k in range(len(me.belief)):
            me.belief[k] = me.theta[k] / terms.width
        me.winner, me.winner_until = lasting_kl_index(me.belief, me.rewards, now.log_t, terms.epsilon)
    return me.winner


def announced(me: Any, terms: Terms, arm: int) -> int:
    """Algorithm 1, line 5, with ``catches_up``."""
    return me.tried[arm]


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: float) -> None:
    """Collect the reward; if it fills the batch, its noisy sum is released and the next one begins."""
    size, noisy_sum = private.collect(me, terms, arm, reward, noise)
    if size > 0:
        add_release(me, terms, arm, size, noisy_sum)


def add_release(me: Any, terms: Terms, arm: int, size: int, noisy_sum: float) -> None:
    """Weigh a release by inverse variance, and keep what the indices need of the variance of the mean."""
    variance = batch.release_variance(size, terms.most_variance, terms.noise_variance)
    me.precision[arm] += 1.0 / variance
    me.square[arm] += batch.release_square(size, variance)
    weight = batch.last_weight(me.precision[arm], variance)
    me.largest[arm] = proved.largest_coefficient(terms.noise_scale, weight, size)
    me.x_mean[arm] = batch.weighted_mean(me.x_mean[arm], noisy_sum / size, weight)
    me.releases[arm] += 1
    me.batch_end[arm] = me.n[arm] + batch.batch_size(me.n[arm], terms.first_batch, terms.growth)
    recount(me, terms, arm)


def recount(me: Any, terms: Terms, arm: int) -> None:
    """What the indices need of the variance of the mean, for so many agents."""
    precision, square = me.precision[arm], me.square[arm]
    learnt = batch.learnt_reward_variance(
        me.x_mean[arm], 1.0 / precision, terms.low, terms.high, terms.least_variance, terms.most_variance
    )
    variance = terms.averaging * batch.mean_variance(precision, square, terms.most_variance, learnt)
    me.deviation[arm] = radii.deviation(variance)
    me.worth[arm] = me.released[arm] / terms.averaging


def published(me: Any, terms: Terms, arm: int) -> tuple[float, ...]:
    """Value and weight: nothing before the first release."""
    return me.share * me.x_mean[arm], (me.share if me.releases[arm] > 0 else 0.0)


def reweigh(me: Any, terms: Terms, elapsed: float) -> None:
    """Where patients count, the agent's weight is its rate."""
    if terms.by_rate:
        me.share = gossip.rate(me.tried, elapsed)


def believe(me: Any, terms: Terms, seen: Any, arm: int) -> None:
    """The ratio of value and weight, once the weight suffices to judge the arm."""
    weight = seen.weight[arm]
    unknown = not (
        gossip.is_known_by_rate(weight, me.releases[arm], seen.weight)
        if terms.by_rate
        else gossip.is_known(weight, me.releases[arm], terms.share, terms.num_agents)
    )
    me.num_unknown += int(unknown) - me.unknown[arm]
    me.unknown[arm] = unknown
    me.winner_until = 0.0
    if not unknown:
        me.theta[arm] = gossip.ratio(seen.value[arm], weight)
        me.spread[arm], me.rewards[arm] = me.deviation[arm], me.worth[arm]
        if terms.by_rate:
            share = gossip.share_of_all(me.share, weight, terms.num_agents)
            me.spread[arm] = radii.shared_deviation(me.deviation[arm], share)
            me.rewards[arm] = me.worth[arm] / share
    else:  # no index chooses it
        me.theta[arm], me.spread[arm], me.rewards[arm] = -inf, 0.0, inf


def take_back(me: Any, terms: Terms, arm: int, size: int, row: tuple[float, ...]) -> None:
    """Note a batch that was released before the agent lost what it knew; ``row`` is that of ``published_release``."""
    add_release(me, terms, arm, size, 0.0)
    me.x_mean[arm] = row[0]
    recount(me, terms, arm)
    if terms.by_rate:
        me.share = row[2]


def take_back_for_proof(me: Any, terms: Terms, arm: int, size: int, row: tuple[float, ...]) -> None:
    """The same from a row of ``published_for_proof``."""
    take_back(me, terms, arm, size, (row[0] / row[1],))


# ---------------------------------------------------------------- where releases spread


def published_release(me: Any, terms: Terms, arm: int) -> tuple[float, ...]:
    """The agent's own mean, the variance of that, 0 before the first release, and its weight."""
    variance = me.deviation[arm] * me.deviation[arm] / terms.averaging
    return me.x_mean[arm], (variance if me.releases[arm] > 0 else 0.0), me.share


def combine(terms: Terms, rows: Any, versions: Any) -> tuple[float, ...]:
    """Theta and its variance from all releases that are known here."""
    total = 0.0 if terms.by_rate else float(terms.num_agents)
    prior = terms.most_variance / batch.PRIOR_REWARDS
    return random_effects(rows, versions, total, terms.averaging * total * total, prior)


def believe_releases(me: Any, terms: Terms, seen: Any, arm: int) -> None:
    """An arm is known as soon as anybody's release of it is; its spread says how well.

    The variance of theta is known exactly. Once the agent has released the arm itself, its spread is at most what it
    was where averages spread, V_i / N: more would be an uncertainty that only others can remove, for which a fast agent
    would explore for ever (docs/fedbatch.md).
    """
    weight = seen.weight[arm]
    unknown = weight <= 0.0
    me.num_unknown += int(unknown) - me.unknown[arm]
    me.unknown[arm] = unknown
    me.winner_until = 0.0
    if unknown:  # no index chooses it
        me.theta[arm], me.spread[arm], me.rewards[arm] = -inf, 0.0, inf
        return
    own, variance = me.deviation[arm] * me.deviation[arm], seen.sampling[arm] + seen.missing[arm]
    if me.releases[arm] > 0:
        share = gossip.share_of_all(me.share, weight, terms.num_agents) if terms.by_rate else 1.0
        variance = min(variance, share * own)
    me.theta[arm] = seen.mean[arm]
    me.spread[arm], me.rewards[arm] = radii.deviation(variance), me.worth[arm] * own / variance


def estimate(me: Any, terms: Terms, seen: Any, arm: int) -> float:
    """Theta; 0 while the arm is unknown."""
    return 0.0 if me.unknown[arm] else me.theta[arm]


def unknown(me: Any, arm: int) -> bool:
    """Whether the agent cannot judge the arm yet."""
    return me.unknown[arm] != 0


def radius(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """Calibrated: sqrt(2 log t V / N), without a theorem."""
    return radii.calibrated_radius(me.spread[arm], FACTOR, now.root_log_t)


# ---------------------------------------------------------------- the proved radius, on releases (docs/theorem.md)


def published_for_proof(me: Any, terms: Terms, arm: int) -> tuple[float, float, float, float, float, float]:
    """A row of ``rules.proved``: nothing before the first release."""
    if me.releases[arm] == 0:
        return 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    share, precision = me.share, me.precision[arm]
    noise = proved.noise_of_mean(precision, me.square[arm], terms.most_variance)
    return (
        share * me.x_mean[arm],
        share,
        float(me.releases[arm]),
        share * share / precision,
        share * share * noise,
        share * me.largest[arm],
    )


def combine_for_proof(terms: Terms, rows: Any, versions: Any) -> tuple[float, float, float, float, float, float]:
    """The estimate of a board, and what its radius needs."""
    return proved.seen_from_rows(rows, terms.low, terms.high, terms.most_releases)


def believe_board(me: Any, terms: Terms, seen: Any, arm: int) -> None:
    """An arm is unknown while the board has no release of it."""
    unknown = not seen.variance[arm] > 0.0
    me.num_unknown += int(unknown) - me.unknown[arm]
    me.unknown[arm] = unknown
    me.theta[arm] = seen.centre[arm]


def proved_radius(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """Holds on every board at once with probability 1 - 1/t in each direction, however it came about (Theorem 1)."""
    level = now.log_t + seen.price[arm]
    return proved.board_radius(seen.missing[arm], seen.variance[arm], seen.noise[arm], seen.coefficient[arm], level)


def thompson_margin(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """The standard deviation of the draw."""
    return me.spread[arm]


def divergence_margin(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """How far the index lies above theta."""
    index = kl_index(me.theta[arm] / terms.width, now.log_t / me.rewards[arm], terms.epsilon)
    return terms.width * index - me.theta[arm]


# ---------------------------------------------------------------- how likely an arm is


def _chance(me: Any, terms: Terms, seen: Any, now: Now, arm: int, by_index: float) -> float:
    """Of an arm that the index gives with chance ``by_index``: from the urn; else among lagging arms."""
    if me.num_unknown > 0:
        rest, waits = urn.rest_of(me.num_unknown, len(me.unknown)), _waits(me, terms)
        known = urn.chance(me.tried, me.unknown, me.batch_end, waits, rest, urn.KNOWN)
        return urn.chance(me.tried, me.unknown, me.batch_end, waits, rest, arm) + known * by_index
    if terms.catches_up and count_lagging(me.tried, seen.n_max, terms.num_agents) > 0:
        return lagging_chance(me, terms, seen, now, arm)
    return by_index


def thompson_chance(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """Of the highest draw, where the index chooses."""
    return _chance(me, terms, seen, now, arm, highest_chance(me.theta, me.spread, arm))


def radius_chance(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """Of the highest index with the calibrated radius."""
    return _chance(me, terms, seen, now, arm, float(arm == _by_radius(me, terms, seen, now)))


def proved_chance(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """Of the highest index with the proved radius."""
    return _chance(me, terms, seen, now, arm, float(arm == _by_proved_radius(me, terms, seen, now)))


def divergence_chance(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """Of the highest index by divergence."""
    return _chance(me, terms, seen, now, arm, float(arm == _by_divergence(me, terms, now)))


ON_RELEASES = {
    "averaged": ("mean", "sampling", "missing", "weight"),
    "columns": ("mean", "variance", "weight"),
    "published": published_release,
    "combine": combine,
    "believe": believe_releases,
}
THOMPSON = Page(
    knows=KNOWS,
    averaged=("value", "weight"),
    network="gossip",
    start=start,
    decide=decide_by_thompson,
    noise_due=private.batch_due,
    interval=private.batch_interval,
    observe=observe,
    published=published,
    reweigh=reweigh,
    believe=believe,
    recount=recount,
    take_back=take_back,
    estimate=estimate,
    unknown=unknown,
    radius=radius,
    margin=thompson_margin,
    chance=thompson_chance,
    on_releases=ON_RELEASES,
)
RADIUS = THOMPSON._replace(decide=decide_by_radius, margin=None, chance=radius_chance)
PROVED = RADIUS._replace(
    averaged=("centre", "missing", "variance", "noise", "coefficient", "price"),
    columns=("value", "share", "releases", "variance", "noise", "largest"),
    decide=decide_by_proved_radius,
    published=published_for_proof,
    combine=combine_for_proof,
    reweigh=None,
    take_back=take_back_for_proof,
    believe=believe_board,
    radius=proved_radius,
    chance=proved_chance,
    on_releases=None,
)
DIVERGENCE = THOMPSON._replace(decide=decide_by_divergence, margin=divergence_margin, chance=divergence_chance)


class FewPatientsWarning(UserWarning):
    """With so few decisions, noise outweighs what agents learn from each other: each does better alone."""


def check_first_batch(policy: Any) -> None:
    """Refuse a first batch and expected decisions that are no whole numbers, or both: one follows from the other."""
    for name, most in (("first_batch", 10**6), ("expected_decisions", 10**12)):
        if getattr(policy, name) is not None:
            object.__setattr__(policy, name, whole_number(name, getattr(policy, name), 1, most))
    if policy.first_batch is not None and policy.expected_decisions is not None:
        raise InvalidArgument("first_batch", policy.first_batch, "left out: it follows from expected_decisions")


def too_few_patients(expected_decisions: int | None, epsilon: float, num_agents: int, num_arms: int) -> str | None:
    """What would do instead, in words; None if they suffice, are unknown, or there is one agent."""
    if expected_decisions is None or num_agents == 1:
        return None
    break_even = break_even_decisions(epsilon, num_agents, num_arms)
    if expected_decisions >= break_even:
        return None
    decisions = ceil(_rounded_up(break_even))
    enough = _rounded_up(break_even_epsilon(expected_decisions, num_agents, num_arms))
    return (
        f"{expected_decisions:,} decisions at each of {num_agents} sites are too few for epsilon {epsilon:g} and "
        f"{num_arms} arms: noise outweighs what the sites learn from each other, and a site that plays UCB1 alone is "
        f"expected to do better. About {decisions:,} decisions at each site would do, or an epsilon of {enough:g} "
        "(docs/few-patients.md)."
    )


def warn_of_few_patients(expected_decisions: int | None, epsilon: float, setting: Setting) -> None:
    """Warn the caller of ``simulate``."""
    if said := too_few_patients(expected_decisions, epsilon, setting.num_agents, setting.num_arms):
        warnings.warn(said, FewPatientsWarning, stacklevel=6)


def _rounded_up(value: float) -> float:
    """To two significant digits."""
    places = 1 - floor(log10(value))
    return round(ceil(value * 10.0**places) / 10.0**places, max(places, 0))


@dataclass(frozen=True)
class FedBatch:
    """Gossip of private batch means: the same epsilon as Fed_UCB at nearly the price of no privacy (beyond the paper).

    * ``epsilon``: the privacy of one reward; may be infinite.
    * ``index``: ``"thompson"`` draws theta + sqrt(V / N) z, V the variance of the agent's own mean; ``"ucb"`` takes
      theta + radius; ``"kl"`` the largest mean that the divergence d_eps does not rule out (rewards with a range).
      Where patients count, the agent's share of them stands for 1 / N.
    * ``radius``, for ``"ucb"``: ``"calibrated"`` is sqrt(2 log t V / N), without a theorem; ``"proved"`` holds on every
      network, graph and order of messages (docs/theorem.md), where the problem has ``gossip="releases"``.
    * ``first_batch``: rewards in the first batch of an arm; default: 12 / epsilon, sqrt(10 / N) times as many with
      fewer than ten agents, or fewer where one agent's ``expected_decisions`` are few (``rules.batch.first_size``). A
      run warns if they cannot suffice. With the proved radius: 24 + 24 / epsilon.
    * ``growth``: a batch makes the number of released rewards grow by this factor; default: 1.25, and 2 with the proved
      radius.
    * ``sigma``: the standard deviation of one reward, if known. Otherwise it is learnt (docs/fedbatch.md).
    * ``context``, where decisions have strata: ``"ignore"`` gives all of them the same arm; ``"strata"`` learns how
      much strata matter, and gives each its best arm (``policies.fed_strata``, for ``gossip="releases"``);
      ``"separate"`` is one FedBatch for each stratum.
    * ``catches_up=True`` adds the paper's consistency rule, for comparison.
    * ``assume_sensitivity``: for rewards without a range, pretend that one moves a sum by at most this much, as the
      paper does with Gaussian ones. Epsilon then does not hold; a run warns.
    """

    epsilon: float
    index: Index = "thompson"
    radius: Literal["calibrated", "proved"] = "calibrated"
    first_batch: int | None = None
    growth: float | None = None
    sigma: float | None = None
    catches_up: bool = False
    assume_sensitivity: float | None = None
    expected_decisions: int | None = None
    context: Literal["ignore", "strata", "separate"] = "ignore"

    kind: ClassVar[str] = "fed_batch"

    def __post_init__(self) -> None:
        """Check the parameters."""
        object.__setattr__(self, "epsilon", number_above("epsilon", self.epsilon, 0.0, allow_inf=True))
        protocol.checked_index(self.index)
        if self.radius not in ("calibrated", "proved"):
            raise InvalidArgument("radius", self.radius, "one of calibrated, proved")
        if self.radius == "proved" and self.index != "ucb":
            raise InvalidArgument("radius", self.radius, "calibrated unless index is ucb, the only index with a radius")
        if self.radius == "proved" and self.sigma is not None:
            raise InvalidArgument("sigma", self.sigma, "left out: the proved radius goes by the range of rewards")
        check_first_batch(self)
        if self.growth is not None:
            least = proved.LEAST_GROWTH if self.radius == "proved" else 1.0
            object.__setattr__(self, "growth", number_between("growth", self.growth, least, 1e6))
        for name in ("sigma", "assume_sensitivity"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, number_above(name, getattr(self, name), 0.0))
        object.__setattr__(self, "catches_up", true_or_false("catches_up", self.catches_up))
        if self.context not in ("ignore", "strata", "separate"):
            raise InvalidArgument("context", self.context, "one of ignore, strata, separate")
        if self.context != "ignore" and (self.index != "thompson" or self.catches_up):
            raise InvalidArgument("context", self.context, "ignore unless index is thompson, without catches_up")

    @property
    def label(self) -> str:
        """The name in figures and tables."""
        radius = ", proved radius" if self.radius == "proved" else ""
        lag = ", catching up" if self.catches_up else ""
        context = {"ignore": "", "strata": ", strata", "separate": ", separate strata"}[self.context]
        return f"FedBatch {INDICES[self.index]}{radius}{lag}{context}, eps={self.epsilon:g}"

    def page(self) -> Page:
        """The page of the index, or that of strata."""
        by_radius = PROVED if self.radius == "proved" else RADIUS
        page = {"thompson": THOMPSON, "ucb": by_radius, "kl": DIVERGENCE}[self.index]
        if self.context != "ignore":
            in_context = fed_strata.HIERARCHICAL if self.context == "strata" else fed_strata.SEPARATE
            return in_context._replace(without_context=page)
        return page._replace(announced=announced) if self.catches_up else page

    def check(self, setting: Setting) -> None:
        """Refuse rewards that the epsilon or the index cannot handle."""
        if self.index == "kl":
            protocol.needs_unit_range(self, setting)
        if self.radius == "proved":
            self._check_proof(setting)
        if self.context != "ignore" and setting.num_strata > 0:
            self._check_context(setting)
        protocol.check_sensitivity(self, setting)
        warn_of_few_patients(self.expected_decisions, self.epsilon, setting)

    def _check_context(self, setting: Setting) -> None:
        """Refuse a setting in which nothing is known of how much strata matter."""
        hint = "docs/context.md says why."
        if setting.gossip != "releases":
            accepted = 'ignore unless the problem has gossip="releases": the model needs each site\'s own releases'
            raise InvalidArgument("context", self.context, accepted, hint)
        if not setting.has_range:
            accepted = "ignore for rewards without a range: the model says how much strata change in parts of it"
            raise InvalidArgument("context", self.context, accepted, "Give the problem a reward_range=(low, high).")

    def _check_proof(self, setting: Setting) -> None:
        """Refuse a setting that the theorem does not cover."""
        hint = "docs/theorem.md says what is proved."
        if setting.gossip != "releases":
            accepted = 'calibrated unless the problem has gossip="releases": the proof is about releases'
            raise InvalidArgument("radius", self.radius, accepted, hint)
        if setting.counts == "patients" and not setting.in_step:
            accepted = "calibrated where patients count and rates differ: the proof knows the weights beforehand"
            raise InvalidArgument("radius", self.radius, accepted, hint)
        if not setting.bounded:
            accepted = "calibrated for rewards that do not stay in a range by themselves: clamping moves their means"
            raise InvalidArgument("radius", self.radius, accepted, hint)
        if not setting.keeps_means:
            accepted = "calibrated where means change, or a default may count for a late reward: that moves the mean"
            raise InvalidArgument("radius", self.radius, accepted, hint)

    def _schedule(self, setting: Setting) -> tuple[int, float, int]:
        """The first batch, the growth of batches, and with the proved radius the most releases that they allow."""
        if self.radius != "proved":
            num_agents = batch.ENOUGH_SITES if self.index == "kl" else setting.num_agents
            expected = batch.first_size(self.expected_decisions, self.epsilon, setting.num_arms, num_agents)
            first = self.first_batch or expected
            return first, float(self.growth or batch.BATCH_GROWTH), 0
        first = self.first_batch or proved.first_size(self.expected_decisions, self.epsilon, setting.num_arms)
        growth = float(self.growth or proved.GROWTH)
        return first, growth, proved.most_releases(first, growth, proved.MOST_PULLS)

    def terms(self, setting: Setting) -> Any:
        """Numbers that follow from the parameters and the setting."""
        if self.context != "ignore" and setting.num_strata > 0:
            first_batch, growth, _ = self._schedule(setting)
            return fed_strata.strata_terms(setting, self.epsilon, first_batch, growth, self.sigma)
        scale = batch.noise_scale(protocol.sensitivity(setting, self.assume_sensitivity), self.epsilon)
        low, high, most, least = protocol.reward_bounds(setting, self.epsilon)
        if self.sigma is not None:
            most = least = (self.sigma * setting.unit) ** 2
        if self.radius == "proved":
            most = batch.largest_reward_variance(low, high)  # a smaller variance is no bound on tails
        by_rate = setting.counts == "patients" and self.radius != "proved"
        first_batch, growth, most_releases = self._schedule(setting)
        return Terms(
            num_agents=setting.num_agents,
            catches_up=int(self.catches_up),
            by_rate=int(by_rate),
            share=gossip.first_rate(setting.in_step) if by_rate else setting.share,
            averaging=1.0 if by_rate else setting.sum_of_squares,
            epsilon=self.epsilon,
            epsilon_per_release=self.epsilon,
            noise_scale=scale,
            noise_variance=batch.laplace_variance(scale),
            first_batch=first_batch,
            growth=growth,
            low=low,
            high=high,
            width=setting.high - setting.low,
            most_variance=most,
            least_variance=least,
            most_releases=most_releases,
        )
