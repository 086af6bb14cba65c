"""Plays the page of the policy at a live site: what the site owns, what the network shows it, what both say of an arm.

A page counts in steps of the grid, sites talk in units of the reward: here they are converted. If a page
averages one number, a weight travels with it: 1 once the site has a reward of the arm, else 0.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from fedbandit.agent.core.bounds import DAY
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Known, Record, Released, Stored
from fedbandit.agent.core.standings import MIXED
from fedbandit.checks import InvalidArgument
from fedbandit.policies.fed_batch import Others
from fedbandit.policies.plain import NO_ARM, Me, Seen, carry, narrowed, new_seen
from fedbandit.policies.protocol import Now, time_of
from fedbandit.privacy.noise import NoiseSource, from_grid, to_steps
from fedbandit.rules.gossip import drift, is_known, ratio, unrest
from fedbandit.rules.radius import shared_deviation

__all__ = ["LEAST_ELAPSED", "MIXED", "RESTLESS", "Player"]

ENOUGH_EXCHANGES = 50
"""Before, estimates move because the first releases spread."""

RESTLESS = 0.3
"""Standard deviations of an estimate that an exchange may move it, and releases count as spread. Where gossip kept up
with decisions 99 of 100 moments had 0.3 to 0.4 at most, the median 0.04; an exchange that moves an estimate by 1.3
of them is noticed for a while."""

LEAST_ELAPSED = DAY
"""A rate is measured over a day at least: a busy first hour says little about the years to come."""


MOST_NARROWED = 64
"""Sets of arms, each of which some request may have, for which beliefs are remembered."""


class Player:
    """A site's page, its own numbers, and what the network shows it; rows have an entry for each arm."""

    def __init__(
        self,
        federation: Federation,
        stored: Stored,
        noise: NoiseSource,
        num_agents: int,
        num_arms: int | None = None,
    ) -> None:
        """As the journal knows it: what has been released is never drawn again.

        ``num_agents``: how many sites take part; ``num_arms``: how many arms there are now; None: those of the terms.
        The page's fixed numbers are those of the terms either way.
        """
        self._federation, self.page, self._noise = federation, federation.page, noise
        self.num_arms = federation.num_arms if num_arms is None else num_arms
        self._own = federation.mechanism(noise, self.num_arms)
        self._own.restore(stored.known, stored.released)
        self.me, self.num_agents = self._own.me, federation.most_agents
        self._others: Sequence[Others] = ()
        self.me.tried[:] = self.me.n  # decisions so far: those that were played, and those that wait
        for decision in stored.decisions.values():
            self.me.tried[decision.arm] += decision.is_open
        most = federation.max_pulls
        if most is not None and max(self.me.tried) > most:  # ``decide`` leaves room for each: a file was changed
            raise InvalidArgument("decisions of an arm", max(self.me.tried), f"at most {most}: policy.horizon's")
        self.seen: Seen = new_seen(self.page, self.num_arms)
        self._has_weights = "weight" in self.page.averaged
        self._unknown = [True] * self.num_arms
        self._drift, self.exchanges = [0.0] * self.num_arms, 0
        self._lost = [0] * self.num_arms  # exchanges in a row after which the network had taken an arm away
        self._single = stored.known.get(NO_ARM)  # as the journal knows them; None: it does not
        self._narrowed: dict[tuple[int, ...], tuple[Me, Seen]] = {}  # until a reward or an exchange comes
        self.count(num_agents)

    @property
    def terms(self) -> Any:
        """The numbers of the page: fixed, but for those that follow from how many sites take part."""
        return self._own.terms

    def grown(self, stored: Stored, num_arms: int) -> "Player":
        """The same with more arms, of which nothing is known yet; ``stored`` holds all that this one knows.

        What was released stays as it was, as after a restart: no noise is drawn.
        """
        more = num_arms - self.num_arms
        other = Player(self._federation, stored, self._noise, self.num_agents, num_arms)
        other.exchanges = self.exchanges
        other._drift, other._lost = [*self._drift, *[0.0] * more], [*self._lost, *[0] * more]
        return other

    # ---------------------------------------------------------------- what the site owns

    @property
    def rewards(self) -> tuple[int, ...]:
        """How many rewards of each arm were taken, released or not; defaults are among them."""
        return tuple(self.me.n)

    @property
    def released(self) -> tuple[int, ...]:
        """How many of them others may have seen something of."""
        return tuple(getattr(self.me, "released", self.me.n))

    @property
    def releases(self) -> tuple[int, ...]:
        """How often something of an arm was released."""
        return tuple(getattr(self.me, "releases", self.me.n))

    @property
    def own(self) -> tuple[float, ...]:
        """The own value of each arm, then the own weights, in units of the reward: 0 before the first release."""
        low, high = self._federation.low, self._federation.high
        values: list[float] = []
        weights: list[float] = []
        for k in range(self.num_arms):
            published = self.page.published(self.me, self.terms, k)
            weight = published[1] if self._has_weights else float(self.me.n[k] > 0)
            values.append(from_grid(published[0], low, high, weight))
            weights.append(weight)
        return *values, *weights

    @property
    def announced(self) -> tuple[int, ...]:
        """What of each arm spreads by maximum (Algorithm 1, line 5); empty if nothing does."""
        if self.page.announced is None:
            return ()
        return tuple(self.page.announced(self.me, self.terms, k) for k in range(self.num_arms))

    @property
    def decided(self) -> int:
        """Decisions after the first of each arm of the terms: the paper's t, which never goes back."""
        return sum(self.me.tried) - self._federation.num_arms

    def take(self, rewards: Iterable[tuple[int, float]], elapsed: float) -> tuple[Record, ...]:
        """Take rewards of arms: what must be on disk before anybody sees what came of them.

        ``elapsed``: seconds since the first decision, by which the site's rate is measured.
        """
        self._narrowed.clear()
        arms: dict[int, None] = {}
        released: list[Record] = []
        for arm, reward in rewards:
            interval = self._own.take(arm, reward)
            arms[arm] = None
            if interval is not None:
                released.append(Released(arm, interval.level, interval.last))
        if released and self.page.reweigh is not None:
            self.page.reweigh(
                self.me, self.terms, max(elapsed, LEAST_ELAPSED, self.decided / self._federation.largest_rate)
            )
        known: list[Record] = [Known(arm, self._own.kept(arm)) for arm in arms]
        if known and (single := self._own.kept(NO_ARM)) and single != self._single:
            self._single = single
            known.append(Known(NO_ARM, single))
        return *known, *released

    def concerned(self, records: Sequence[Record]) -> tuple[int, ...]:
        """The arms whose own numbers ``take`` has changed; none means all: a release may move the site's weight."""
        if self.page.reweigh is not None and any(isinstance(record, Released) for record in records):
            return ()
        return tuple(record.arm for record in records if isinstance(record, Known) and record.arm != NO_ARM)

    @property
    def known(self) -> dict[int, dict[str, Any]]:
        """What the journal holds: of each arm that had a reward, and of the single numbers."""
        rows = {k: self._own.kept(k) for k in range(self.num_arms) if self.me.n[k] > 0}
        return rows if self._single is None else {**rows, NO_ARM: self._single}

    @property
    def marks(self) -> dict[tuple[int, int], int]:
        """The last pull released of each arm and level."""
        return {} if self._own.ledger is None else self._own.ledger.marks

    # ---------------------------------------------------------------- what the network shows

    def count(self, num_agents: int, others: Sequence[Others] = ()) -> None:
        """So many sites take part, and say this of each arm. ``look`` must follow."""
        self._others = others
        if num_agents != self.num_agents:
            self.num_agents = num_agents
            self._own.count(num_agents)

    def exchange(self, gossiped: Sequence[float]) -> None:
        """Take in what the site gossips after an exchange, and by how much that moves the estimates."""
        arms = range(self.num_arms)
        before = [None if self.is_unknown(k) else self._estimate(k) for k in arms]
        self.look(gossiped, arms)
        self.exchanges += 1
        num_agents, share = self.num_agents, getattr(self.me, "share", 1.0)
        for k, n in enumerate(getattr(self.me, "releases", self.me.n)):
            has_lost = n > 0 and not is_known(gossiped[len(before) + k], n, share, num_agents)
            self._lost[k] = self._lost[k] + 1 if has_lost else 0
        for k, estimate in enumerate(before):
            if estimate is not None and not self.is_unknown(k):
                self._drift[k] = drift(self._drift[k], self._estimate(k) - estimate)

    @property
    def unrest(self) -> float:
        """How many of its standard deviations an exchange still moves an estimate, at most over arms."""
        spread, deviation = getattr(self.me, "spread", None), getattr(self.me, "deviation", None)
        if spread is None or deviation is None or self.exchanges < ENOUGH_EXCHANGES:
            return 0.0
        arms = [k for k in range(self.num_arms) if not self.is_unknown(k)]
        # A tiny site's own spread is next to nothing: it is measured by that of an average site.
        average = [shared_deviation(deviation[k], 1.0 / self.num_agents) for k in arms]
        return max((unrest(self._drift[k], max(spread[k], x)) for k, x in zip(arms, average, strict=True)), default=0.0)

    @property
    def is_mixed(self) -> bool:
        """Whether what sites have released has spread, as far as exchanges tell: they hardly move an estimate."""
        return self.exchanges >= ENOUGH_EXCHANGES and self.unrest <= RESTLESS

    @property
    def estimates(self) -> tuple[float | None, ...]:
        """Of each arm, in steps of the grid; None while it is unknown."""
        return tuple(None if self.is_unknown(k) else self._estimate(k) for k in range(self.num_arms))

    def _estimate(self, arm: int) -> float:
        return self.page.estimate(self.me, self.terms, self.seen, arm)

    def look(self, gossiped: Sequence[float], arms: Iterable[int]) -> None:
        """Take in what the site gossips of these arms now: own numbers and what has flowed here."""
        low, high, num_arms = self._federation.low, self._federation.high, self.num_arms
        self._narrowed.clear()
        arms = tuple(arms)
        for k in arms:
            weight = gossiped[num_arms + k]
            value = to_steps(gossiped[k], low, high, weight)
            if weight <= 0.0 or self._lost[k] > MIXED * self.num_agents:
                value, weight = self._alone(k, value, weight)
            if self._has_weights:
                self.seen.value[k], self.seen.weight[k] = value, weight
            else:
                self._unknown[k] = not is_known(weight, self.me.n[k], 1.0, self.num_agents)
                if not self._unknown[k]:
                    self.seen.theta[k] = ratio(value, weight)
        if self.page.believe is not None:
            for k in arms:  # only now: a page may compare arms
                self.page.believe(self.me, self.terms, self.seen, k)
        if self.page.trust is not None and self._others:
            for k in arms:
                self.page.trust(self.me, self.terms, self.seen, k, self._others[k])

    def _alone(self, arm: int, value: float, weight: float) -> tuple[float, float]:
        """What this site would gossip of an arm if no other had released it: only its own share.

        For an arm of which the network has taken away what this site has released: honest sites leave some of it here,
        but for a moment after a fault. So nothing acts on a weight that cannot be, and no arm stays unknown.
        """
        published = self.page.published(self.me, self.terms, arm)
        own = published[1] if self._has_weights else float(self.me.n[arm] > 0)
        num_agents = self.num_agents
        return (published[0] / num_agents, own / num_agents) if own > 0.0 else (value, weight)

    def is_unknown(self, arm: int) -> bool:
        """Whether the site cannot judge the arm yet."""
        return self._unknown[arm] if self.page.unknown is None else self.page.unknown(self.me, arm)

    def among(self, arms: Sequence[int]) -> tuple[Me, Seen]:
        """What the site knows and sees in a world of these arms alone."""
        key = tuple(arms)
        found = self._narrowed.get(key)
        if found is not None:
            carry(self.page, self.me, self.seen, *found, arms)
            return found
        if len(self._narrowed) == MOST_NARROWED:
            self._narrowed.clear()
        few, seen = self._narrowed[key] = narrowed(self.page, self.terms, self.me, self.seen, arms)
        if self.page.trust is not None and self._others:
            for position, k in enumerate(arms):
                self.page.trust(few, self.terms, seen, position, self._others[k])
        return few, seen

    @property
    def now(self) -> Now:
        """The time of the next decision: t counts the site's own, after the first of each arm."""
        return time_of(self.decided + 1)

    def theta(self, arm: int) -> float | None:
        """The estimate of the arm in units of the reward; None while it is unknown."""
        if self.is_unknown(arm):
            return None
        return from_grid(self._estimate(arm), self._federation.low, self._federation.high)

    def radius(self, arm: int, now: Now) -> float | None:
        """The uncertainty that the index uses, in units of the reward; None while the arm is unknown."""
        margin = self.page.margin or self.page.radius
        if margin is None or self.is_unknown(arm):
            return None
        width = self._federation.high - self._federation.low
        return from_grid(margin(self.me, self.terms, self.seen, now, arm), 0.0, width)

    def deviation(self, arm: int) -> float | None:
        """The standard deviation of FedBatch's estimate, in units of the reward; None while the arm is unknown."""
        if self.is_unknown(arm):
            return None
        return from_grid(self.me.spread[arm], 0.0, self._federation.high - self._federation.low)
