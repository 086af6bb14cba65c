"""Defines what a policy page must have, and what it may rely on.

A page is a policy read from top to bottom beside the paper: its parameters, what one agent knows, the numbers
fixed before the first round, and a handful of functions. Engines play pages: the simulator on array records, a live
site on lists. A function of a page uses ``math`` and ``fedbandit.rules`` only: no I/O, clock or randomness.

``me`` is what one agent knows (the fields that the page declares), ``terms`` its fixed numbers, ``seen`` what the
network shows it: a row for each name in ``averaged``, and ``n_max``, the most decisions for each arm by any agent, to
its knowledge. An engine counts a decision in ``me.tried[arm]`` when it hands it out; its reward may come later.
When rewards come at once, as in the paper, ``tried`` and the page's own ``n`` are equal. A page that takes strata may
declare ``tried_in=Count[ARMS, STRATA].transient``: there it counts decisions of each arm in each stratum.
"""

import warnings
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log, sqrt
from typing import Any, Literal, NamedTuple, Protocol

from fedbandit.checks import Counts, Gossip, InvalidArgument
from fedbandit.rules.batch import largest_reward_variance, least_reward_variance
from fedbandit.rules.choose import highest_drawn
from fedbandit.rules.propensity import chance_of_lagging, chances_of_highest

__all__ = [
    "ARMS",
    "FEATURES",
    "INDICES",
    "LEVELS",
    "STRATA",
    "Context",
    "Count",
    "Field",
    "Fields",
    "Flag",
    "Index",
    "LinkRule",
    "Now",
    "Number",
    "Page",
    "Policy",
    "PrivacyWarning",
    "Setting",
    "check_sensitivity",
    "checked_index",
    "fill_with_normals",
    "highest_chance",
    "highest_draw",
    "known_variance",
    "lagging_chance",
    "needs_company",
    "needs_every_decision",
    "needs_one_row",
    "needs_rewards_at_once",
    "needs_rows_of_arms",
    "needs_step",
    "needs_unit_range",
    "page_on",
    "reward_bounds",
    "sensitivity",
    "time_of",
    "uniform",
]


ARMS = "arms"
"""The length of a row with an entry for each arm."""

STRATA = "strata"
"""The length of a row with an entry for each stratum of decisions; 1 where they have none."""

FEATURES = "features"
"""The length of a row with an entry for each feature of decisions."""

LEVELS = 32
"""The length of a row with an entry for each level of a tree: enough for a billion pulls."""


@dataclass(frozen=True)
class Field:
    """What one agent knows under one name: a single value, or a row of them.

    ``is_kept``: a live site stores it on disk. Fields that are recomputed need not be stored. ``is_carried``: it means
    the same whichever other arms there are.
    """

    kind: Literal["count", "number", "flag"]
    shape: tuple[str | int, ...] = ()
    is_kept: bool = True
    is_carried: bool = True

    def __getitem__(self, shape: str | int | tuple[str | int, ...]) -> "Field":
        """A row, such as ``Number[ARMS]``, or rows of rows, such as ``Number[ARMS, LEVELS]``."""
        return replace(self, shape=shape if isinstance(shape, tuple) else (shape,))

    @property
    def transient(self) -> "Field":
        """The same field, which need not be kept: ``Number[ARMS].transient``."""
        return replace(self, is_kept=False, is_carried=False)

    @property
    def carried(self) -> "Field":
        """The same field, which need not be kept, and means the same whichever other arms there are."""
        return replace(self, is_kept=False)


Count, Number, Flag = Field("count"), Field("number"), Field("flag")


class Fields(dict[str, Field]):
    """The fields that one agent knows, by name; ``tried=Count[ARMS]`` is always among them."""

    def __init__(self, **fields: Field) -> None:
        """Keep the order in which the page names them."""
        for name, field in fields.items():
            if name in ("tried", "n_max"):
                raise InvalidArgument(f"Fields.{name}", field, "left out: the engine keeps it for every page")
            if not isinstance(field, Field):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidArgument(f"Fields.{name}", field, "a Count, Number or Flag, or a row such as Number[ARMS]")
        super().__init__(tried=Count[ARMS].transient, **fields)


class Context(NamedTuple):
    """What is known of a decision before its arm is chosen: of a patient, say. A page that takes it is told.

    * ``stratum``: its number, where decisions have strata
    * ``features``: its row of features, where decisions have them; where each arm has one, those of all arms in turn
    """

    stratum: int
    features: Sequence[float] = ()


class Now(NamedTuple):
    """The time of a decision: t counts the agent's own decisions after the first of each arm."""

    log_t: float
    root_log_t: float


def time_of(t: int) -> Now:
    """The time of decision t; the first of each arm is at t = 0 (Algorithm 1), where log t counts as 0."""
    log_t = log(max(t, 1))
    return Now(log_t, sqrt(log_t))


class Setting(NamedTuple):
    """What one agent may know of its world before the first round.

    * ``share``: N times the agent's weight in the average that counts; 1 for equal weights
    * ``sum_of_squares``: sum of all agents' squared weights; 1 / N for equal weights
    * ``mean_square_share``: mean of all agents' squared shares; 1 for equal weights
    * ``low``, ``high``: the declared range of rewards; infinite ends if there is none
    * ``bounded``: rewards lie in their range by themselves; otherwise a private policy clamps them to it
    * ``scale``: the unit of radii: high - low for bounded rewards, else their standard deviation
    * ``reward_variance``: a known upper bound on the variance of one reward; infinite if there is none
    * ``unit``: a reward of 1 in the units of this setting: a live site counts in steps of a grid
    * ``rewards``: the kind of rewards, for messages
    * ``counts``: whether sites count alike (or by given weights), or by their patients, that is by their rates
    * ``at_once``: a reward counts before the agent's next decision; otherwise it may come later
    * ``keeps_means``: what counts of an arm has the same means throughout: they do not change, and no default counts
      instead of a late reward
    * ``has_shares``: decisions may be given by shares of arms, and not by the policy
    * ``gossip``: what links exchange: averages, or what each agent has published itself
    * ``num_strata``: how many strata decisions have; 0: none
    * ``num_features``: how many features decisions have, with the constant; 0: none
    * ``rows_of_features``: how many rows of features a decision has: one, or one for each arm
    * ``has_constant``: whether the first feature is the constant 1
    * ``norm``: no row of features is longer
    """

    num_agents: int
    num_arms: int
    share: float
    sum_of_squares: float
    mean_square_share: float
    degree: int
    complete: bool
    in_step: bool
    horizon: int
    low: float
    high: float
    bounded: bool
    scale: float
    reward_variance: float
    unit: float
    rewards: str
    counts: Counts = "sites"
    at_once: bool = True
    keeps_means: bool = True
    has_shares: bool = False
    gossip: Gossip = "averages"
    num_strata: int = 0
    num_features: int = 0
    rows_of_features: int = 1
    has_constant: bool = True
    norm: float = 1.0

    @property
    def has_range(self) -> bool:
        """Whether a range is declared."""
        return self.low > -inf


class LinkRule(NamedTuple):
    """A policy's own links, instead of the problem's.

    Each is present in a round with probability ``presence``; ``weight`` 0 means Metropolis weights.
    """

    presence: float
    weight: float = 0.0


Network = Literal["gossip", "consensus", "alone", "pooled", "server"]
"""How the network computes the averages.

* ``gossip``: active links average what was known before this round; then each agent adds the change of its published
  values (Algorithm 1, lines 17-22)
* ``consensus``: the reverse order: first the change, then the average
* ``alone``: no links
* ``pooled``: all agents see the sum of all published values, at once
* ``server``: only the page's own ``meet`` changes the averages

On every network the first pull of each arm, at t = 0, goes into the agent's own averages.

With ``gossip="releases"`` links of a ``gossip`` network pass on what each agent has published, as it was before this
round, and each then publishes what its own pull has changed; ``seen`` is the mean over the agents heard
(``rules.releases``), or what the page's ``combine`` makes of them. Other networks have nothing to pass on and stay as
they are, but for ``consensus``, which is refused: there the average itself is the algorithm.
"""


class Page(NamedTuple):
    """The functions of a policy and their data. ``None`` marks functions that the policy does not need.

    * ``start(me, terms)``: fill in what is not zero before the first round
    * ``decide(me, terms, seen, now, draws)``: the arm
    * ``noise_due(me, terms, arm)``: the interval that the next reward of this arm completes, named by its end; 0: none.
      A tuple of two ends if the policy needs two draws; such a page has no ``believe``.
    * ``interval(me, terms, arm, end)``: its first reward, and its level: releases of one level are disjoint
    * ``observe(me, terms, arm, reward, noise)``: update the agent's own numbers after a reward
    * ``published(me, terms, arm)``: what the network averages, a number for each name in ``averaged``
    * ``announced(me, terms, arm)``: what spreads by maximum
    * ``reweigh(me, terms, elapsed)``: after a release: the agent's weight, which may change what it publishes of every
      arm; ``elapsed`` is the time since its first decision, in rounds, at a live site in seconds
    * ``believe(me, terms, seen, arm)``: refresh what derives from the averages of this arm, which have changed
    * ``recount(me, terms, arm)``: the number of agents has changed, as it does at a live site: compute anew what was
      derived from it when the arm was released, and nothing else
    * ``take_back(me, terms, arm, size, row)``: at a live site that has lost its file, for each batch that it had
      released: note one of this size, whose rewards are gone; ``row`` is what the last of them made it publish.
      A page of strata notes all of them at once: ``size`` has the rewards of each stratum, ``row`` is its record.
      ``None``: the site begins anew
    * ``estimate(me, terms, seen, arm)``: the estimate of the arm's mean over all agents
    * ``radius(me, terms, seen, now, arm)``: how far the estimate may be off
    * ``margin``: like ``radius``: what the index adds to the estimate, if that differs
    * ``unknown(me, arm)``: whether the agent has no estimate of the arm yet; ``None``: it has all from the start
    * ``chance(me, terms, seen, now, arm)``: the probability with which ``decide`` gives this arm; asked at a live site
      only, after a decision that has used a draw, where ``me`` is as ``decide`` left it
    * ``meet(agents, terms, seen, edges, present)``: what agents do to each other besides averaging, over the edges
      whose entry in ``present`` is not 0; returns the number of messages that each agent has sent for it
    * ``on_releases``: what else the page is where releases spread: other functions and names, by their field
    * ``combine(terms, rows, versions)``, where releases spread: what the agent sees of an arm, a number for each name
      in ``averaged``. ``rows[j]`` is what agent j has published of it, ``versions[j]`` is 0 if it was not heard.
      ``None``: the mean over the agents heard.
    * ``columns``: names of what ``published`` gives, where that is not what ``combine`` makes of it
    * ``context``: what the page takes of each decision: its ``"strata"`` or ``"features"``. Then a ``Context`` is the
      last argument of ``decide``, ``noise_due``, ``observe``, ``estimate``, ``margin`` and ``chance``; with strata
      ``noise_due`` says how many sums are due, ``me.due`` by stratum which, and ``me.noise`` has their noise.
      ``None``: it knows nothing of it.
    * ``without_context``: the page to play where decisions have no strata; ``None``: this one
    * ``records``: names of rows with an entry, or a row, for each arm, which the network passes on as they are, instead
      of what ``published`` gives: the agent's record of an arm. On a ``gossip`` network that takes
      ``gossip="releases"``; where everything is ``pooled``, all see the sum of all records as that of one agent.
    * ``receive(me, terms, arm, rows, versions)``: make what there is to make of the records of an arm; ``rows[j]`` is
      agent j's, its numbers in the order of ``records``, and ``versions[j]`` is 0 if it was not heard. Called for every
      arm after each round in which a record may have changed.
    * ``one_record``: the record of the first arm is that of all arms together, and the only one that is passed on
    * ``noise``: of a page that takes features: what is drawn for ``me.noise``, and ``me.gram_noise`` if there is one,
      where ``noise_due`` says so: ``"laplace"`` or ``"gaussian"`` in each entry, or ``"spherical"``, with a density
      that falls as exp(-|z|), |z| Euclidean. All is multiplied by ``terms.noise_scale``.
    """

    knows: Fields
    averaged: tuple[str, ...]
    network: Network
    decide: Callable[..., int]
    observe: Callable[..., None]
    published: Callable[..., tuple[float, ...]] | None
    estimate: Callable[..., float]
    radius: Callable[..., float] | None
    start: Callable[..., None] | None = None
    noise_due: Callable[..., Any] | None = None
    interval: Callable[..., tuple[int, int]] | None = None
    announced: Callable[..., int] | None = None
    reweigh: Callable[..., None] | None = None
    believe: Callable[..., None] | None = None
    recount: Callable[..., None] | None = None
    take_back: Callable[..., None] | None = None
    margin: Callable[..., float] | None = None
    unknown: Callable[..., bool] | None = None
    meet: Callable[..., int] | None = None
    chance: Callable[..., float] | None = None
    on_releases: Mapping[str, Any] | None = None
    combine: Callable[..., tuple[float, ...]] | None = None
    columns: tuple[str, ...] = ()
    context: Literal["strata", "features"] | None = None
    records: tuple[str, ...] = ()
    receive: Callable[..., None] | None = None
    one_record: bool = False
    noise: Literal["laplace", "gaussian", "spherical"] = "laplace"
    without_context: Any = None

    @property
    def published_names(self) -> tuple[str, ...]:
        """Of what ``published`` gives."""
        return self.columns or self.averaged


def page_on(page: Page, gossip: Gossip, num_strata: int = 0) -> Page:
    """The page to play where links exchange averages, or releases, and decisions have so many strata."""
    page = page.without_context if num_strata == 0 and page.without_context is not None else page
    return page if gossip == "averages" else page._replace(**{**(page.on_releases or {}), "on_releases": None})


class Policy(Protocol):
    """The least that a policy has: a frozen dataclass of parameters with these two.

    Those of this package also have ``kind``, the name in files, ``label``, the name in tables, and ``check(setting)``,
    which refuses a setting that the policy cannot handle. Those from outside may have the last two.
    """

    def page(self) -> Page:
        """The functions of the policy."""
        ...

    def terms(self, setting: Setting) -> Any:
        """The numbers of one agent fixed before the first round, a ``NamedTuple``."""
        ...


# ---------------------------------------------------------------- draws, and how likely they give an arm


def uniform(draws: Any) -> float:
    """A draw in [0, 1), one for each decision."""
    return draws.u


def fill_with_normals(row: MutableSequence[float], draws: Any) -> None:
    """A standard normal draw for each arm, one row for each decision."""
    for k in range(len(row)):
        row[k] = draws.normals[k]


def highest_draw(means: Sequence[float], spreads: Sequence[float], draws: Any) -> int:
    """The arm with the highest of the draws mean + spread z, z the standard normals of ``fill_with_normals``.

    An engine need not know more of the draws than which is the highest.
    """
    return highest_drawn(means, spreads, draws.normals)


def _chances(means: tuple[float, ...], spreads: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(chances_of_highest(means, spreads))


_remembered = lru_cache(64)(_chances)  # sets of beliefs: decisions come far more often than beliefs change


def highest_chance(means: Sequence[float], spreads: Sequence[float], arm: int) -> float:
    """The chance that the arm has the highest of the draws mean + spread z (within 0.01)."""
    return _remembered(tuple(means), tuple(spreads))[arm]


def lagging_chance(me: Any, terms: Any, seen: Any, now: Now, arm: int) -> float:
    """Of a page that draws among lagging arms only (Algorithm 1, line 13)."""
    return chance_of_lagging(me.tried, seen.n_max, terms.num_agents, arm)


# ---------------------------------------------------------------- what several policies check


class PrivacyWarning(UserWarning):
    """The epsilon of the parameters does not hold."""


Index = Literal["ucb", "thompson", "kl"]
INDICES = {"ucb": "UCB", "thompson": "Thompson", "kl": "KL"}


def checked_index(index: str) -> str:
    """A known index, or an error."""
    if index not in INDICES:
        raise InvalidArgument("index", index, f"one of {', '.join(INDICES)}")
    return index


def sensitivity(setting: Setting, assumed: float | None) -> float:
    """How far one changed reward can move a sum of rewards: the width of their range, or the assumed sensitivity."""
    if setting.has_range:
        return setting.high - setting.low
    return 1.0 if assumed is None else float(assumed)  # 1: nothing is promised, so nothing depends on it


def check_sensitivity(policy: Any, setting: Setting) -> None:
    """Refuse a private policy on unbounded rewards, or warn if a sensitivity is assumed."""
    if setting.has_range or policy.epsilon == inf:
        return
    if policy.assume_sensitivity is None:
        raise InvalidArgument(
            "reward_range",
            None,
            f"declared for {policy.label}",
            f"{_capitalised(setting.rewards)} rewards are unbounded unless a range is declared: "
            "one reward can move a sum by any amount, and no noise hides it. Give the problem a "
            "reward_range=(low, high), to which rewards are clamped (not one computed from data, which it would "
            "reveal), or opt out with assume_sensitivity=1.0 as the paper does (epsilon then does not hold).",
        )
    warnings.warn(
        f"{policy.label} with assume_sensitivity={policy.assume_sensitivity:g} on unbounded {setting.rewards} "
        "rewards: epsilon does not hold, because a reward can move a sum by more than that.",
        PrivacyWarning,
        stacklevel=6,  # the caller of simulate
    )


def _capitalised(name: str) -> str:
    return name if ":" in name else name[0].upper() + name[1:]  # a function of Python keeps its name


def known_variance(setting: Setting) -> float:
    """The variance of one unclamped reward that a policy reckons with.

    If there is no upper bound, as with Student's t of two degrees of freedom, it is the square of the unit of radii: no
    radius holds then, with this or any other number.
    """
    return setting.reward_variance if setting.reward_variance < inf else setting.scale**2


def reward_bounds(setting: Setting, epsilon: float) -> tuple[float, float, float, float]:
    """The range to which a policy with batches clamps rewards, and the most and the least that one reward varies.

    Rewards lie in the range by themselves, or privacy demands it. Otherwise it is infinite, and the variance known.
    """
    if not (setting.bounded or (setting.has_range and epsilon < inf)):
        known = known_variance(setting)
        return -inf, inf, known, known
    most = min(setting.reward_variance, largest_reward_variance(setting.low, setting.high))
    return setting.low, setting.high, most, least_reward_variance(most)


def needs_unit_range(policy: Any, setting: Setting) -> None:
    """Refuse a divergence index for rewards outside [0, 1]."""
    if (setting.low, setting.high) != (0.0, 1.0):
        raise InvalidArgument(
            "reward_range",
            (setting.low, setting.high) if setting.has_range else None,
            f"(0, 1) for {policy.label}: its divergence is that of Bernoulli rewards",
        )


def needs_step(policy: Any, setting: Setting) -> None:
    """Refuse agents with different rates."""
    if not setting.in_step:
        raise InvalidArgument("rates", "given", f"left out for {policy.label}, whose agents act in step")


def needs_rewards_at_once(policy: Any, setting: Setting) -> None:
    """Refuse rewards that come later than the next decision."""
    if not setting.at_once:
        raise InvalidArgument("delays", "given", f"left out for {policy.label}, which waits for every reward")


def needs_one_row(policy: Any, setting: Setting) -> None:
    """Refuse decisions in which each arm has features of its own."""
    if setting.rows_of_features > 1:
        raise InvalidArgument("by_arm", True, f"False for {policy.label}, which has a model for each arm")


def needs_rows_of_arms(policy: Any, setting: Setting) -> None:
    """Refuse decisions whose features are the same for all arms."""
    if setting.rows_of_features == 1:
        raise InvalidArgument("by_arm", False, f"True for {policy.label}, which has one model for all arms")


def needs_every_decision(policy: Any, setting: Setting) -> None:
    """Refuse shares of arms: some decisions would not be the policy's."""
    if setting.has_shares:
        raise InvalidArgument("shares", "given", f"left out for {policy.label}, which pulls an arm many times in a row")


def needs_company(policy: Any, setting: Setting) -> None:
    """Refuse a single agent."""
    if setting.num_agents < 2:
        accepted = f"at least 2 for {policy.label}, which learns from neighbours"
        raise InvalidArgument("num_agents", setting.num_agents, accepted)


def __dir__() -> list[str]:
    return __all__
