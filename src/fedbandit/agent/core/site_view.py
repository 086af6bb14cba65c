"""What one site knows, and what others, its operator and its application may see of it.

Nothing here changes anything: ``site_answers`` adds what it tells people, ``site`` the events.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fedbandit.agent.core.aligned_rows import widened
from fedbandit.agent.core.arms import Arms
from fedbandit.agent.core.bounds import DAY, Bounds
from fedbandit.agent.core.events import UnknownDecision
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.link_watch import LinkWatch
from fedbandit.agent.core.player import Player
from fedbandit.agent.core.presence import Doubt, Presence
from fedbandit.agent.core.records import Decision, Link, Stored
from fedbandit.agent.core.requests import RequestIndex
from fedbandit.agent.core.slots import Slots
from fedbandit.agent.core.standings import Standings
from fedbandit.agent.core.unequal_sites import Estimates
from fedbandit.outside.policies import is_built_in
from fedbandit.policies import FedBatch
from fedbandit.privacy.noise import NoiseSource, laplace
from fedbandit.rules import flow
from fedbandit.rules.gossip import ratio

__all__ = ["SiteView"]


class SiteView:
    """One agent as it stands.

    * ``stored``: what its journal holds
    * ``noise``: OpenDP's but in tests
    * ``keeps_rewards``: rewards stay in the file, for the site's log, until their decisions are forgotten
    * ``most_sites``: as its operator knows; more do not make it surer (``believed_sites``)
    """

    def __init__(
        self,
        name: str,
        terms: Federation,
        stored: Stored,
        noise: NoiseSource = laplace,
        presence: Presence | None = None,
        keeps_rewards: bool = False,
        most_sites: int | None = None,
    ) -> None:
        """The site as it was when the last of its records was written; ``presence`` is the process's."""
        self._keeps_rewards, self._most_sites = keeps_rewards, most_sites
        self.name, self.terms, self._noise = name, terms, noise
        self._digest, self._bounds, self._is_built_in = terms.digest(), Bounds.of(terms), is_built_in(terms.policy)
        self._presence = presence or Presence()
        self._presence.begin(stored)
        self._twins: set[str] = set()  # neighbours of whom two processes have spoken
        self._past_runs: dict[str, deque[int]] = {}  # processes of neighbours that others have followed
        self._take_over(stored)

    def _take_over(self, stored: Stored) -> None:
        name, terms, noise = self.name, self.terms, self._noise
        self._arms = Arms.of(terms.arms, stored.arm_changes)
        num_arms = len(self._arms.names)
        expected = [link.neighbour for link in stored.links.values() if link.epoch > 0 and not link.left]
        most = self._bounds.weight, expected, self._most_sites
        self._standings = Standings(name, terms.most_agents, num_arms, *most)
        self._has_standings = isinstance(terms.policy, FedBatch) or terms.catches_up
        self._player = Player(terms, stored, noise, self.num_agents, num_arms)
        self._tried: list[int] = self._player.me.tried
        self._stored = replace(stored, known={}, released={})  # they are the player's from here on: one copy in memory
        self._slots = Slots(terms, self._stored.decisions, stored.by_arrival, num_arms)
        self._requests = RequestIndex(self._stored.decisions.values())
        self._clock = max([stored.times.clock, *(decision.at for decision in stored.decisions.values())])
        self._since: float | None = stored.times.since  # when the rate's time begins
        for link in self._stored.links.values():  # of a version that had no limits, or from when there were fewer arms
            register = flow.held(widened(link.register, num_arms), name, self._bounds.limits)
            self._stored.links[link.neighbour] = replace(link, register=register)
        self._watch, self._counted = LinkWatch(terms, self._bounds, self._standings if self._has_standings else None), 0
        self._watch.name_arms(self._arms.names)
        self._at_exchange: Estimates | None = None  # what was known at the last one, once anything has been taken since
        self._has_exchanged = False
        self._count()
        self._player.look(self.gossiped, range(num_arms))

    def _count(self) -> None:
        """Tell the page how many sites take part, and what they have released, as far as has been heard."""
        player, num_agents = self._player, self.num_agents
        if num_agents != self._counted:
            self._counted = num_agents
            self._watch.count(num_agents)
        is_told = self._is_built_in and player.page.trust is not None
        player.count(num_agents, self._standings.others(player.terms) if is_told else ())

    @property
    def stored(self) -> Stored:
        """What the journal holds once all records of this site are committed."""
        return replace(self._stored, known=self._player.known, released=self._player.marks)

    # ---------------------------------------------------------------- what can be seen

    @property
    def arms(self) -> Arms:
        """The arms, and which of them are stopped."""
        return self._arms

    @property
    def stopped(self) -> frozenset[int]:
        """The numbers of arms that are given to nobody."""
        return self._arms.stopped

    @property
    def epoch(self) -> int:
        """The life of this site."""
        return self._stored.life.epoch

    @property
    def num_agents(self) -> int:
        """N: the sites that take part, as far as has been heard, this one among them.

        A policy from outside plays with the number with which it was rehearsed.
        """
        return self._standings.num_agents if self._is_built_in else self.terms.most_agents

    @property
    def doubt(self) -> Doubt | None:
        """Why nothing is released now; None: it is.

        A file that never had a link has told nobody anything.
        """
        doubt = self._presence.doubt
        return None if doubt is not None and doubt.why == "unconfirmed" and not self._stored.links else doubt

    @property
    def waits(self) -> str:
        """For whom the site waits before it releases (``Presence.is_waiting``)."""
        return self._presence.is_waiting(self.neighbours)

    @property
    def run(self) -> int:
        """The number of this process; 0 in a simulation without faults."""
        return self._presence.run

    @property
    def own_means(self) -> tuple[float | None, ...]:
        """The own mean of each arm, as others may see it; None before its first release."""
        own, num_arms = self.own, self._player.num_arms
        values, weights = own[:num_arms], own[num_arms:]
        return tuple(ratio(x, weight) if weight > 0.0 else None for x, weight in zip(values, weights, strict=True))

    @property
    def releases(self) -> tuple[int, ...]:
        """How often something of each arm was released."""
        return self._player.releases

    @property
    def released(self) -> tuple[int, ...]:
        """How many rewards of each arm are in releases."""
        return self._player.released

    @property
    def rewards(self) -> tuple[int, ...]:
        """How many rewards of each arm the page has observed, released or not; defaults are among them."""
        return self._player.rewards

    @property
    def tried(self) -> tuple[int, ...]:
        """Decisions for each arm, pending ones counted."""
        return tuple(self._tried)

    @property
    def n_max(self) -> tuple[int, ...]:
        """The most decisions for each arm by anyone, as far as is known here; empty without the consistency rule.

        Of sites that have not left. A site that claims more than time allows counts as much as time allows.
        """
        own = self._player.announced
        return self._standings.counts(own, self._most_decisions) if own else ()

    @property
    def _most_decisions(self) -> int:
        return self._bounds.most_decisions(self._elapsed)

    @property
    def _elapsed(self) -> float:
        """Since the first decision, up to the last time that anything was decided or settled."""
        return 0.0 if self._since is None else self._clock - self._since

    @property
    def decided(self) -> int:
        """Decisions handed out since the file was made."""
        return self._stored.life.decisions

    @property
    def pending(self) -> int:
        """Decisions that wait for their reward."""
        return sum(self._tried) - sum(self.rewards) - self.waiting

    @property
    def waiting(self) -> int:
        """Rewards that were reported and do not count yet: their window, or an earlier slot, is still open."""
        return self._slots.waiting()

    @property
    def late(self) -> int:
        """Rewards that came after their window, and do not count."""
        return self._stored.times.late

    @property
    def clock(self) -> float:
        """The largest time that this site was told of: it never goes back.

        After a restart it is the largest at which a decision was made, or anything settled: a file keeps no time that
        depends on when a reward came.
        """
        return self._clock

    @property
    def remembered(self) -> int:
        """Decisions that have not expired."""
        return len(self._stored.decisions)

    def decision(self, decision_id: str) -> Decision:
        """A decision that is remembered."""
        decision = self._stored.decisions.get(decision_id)
        if decision is None:
            raise UnknownDecision(f"no decision has the id {decision_id!r}, or it has expired")
        return decision

    def oldest_pending(self) -> Iterator[Decision]:
        """The oldest decision of each arm that has no reward and does not count yet."""
        return (decision for decision in self._slots.oldest() if not decision.rewarded)

    def log(self, after: int = 0) -> tuple[list[Decision], Mapping[str, float]]:
        """All decisions that are remembered with a number beyond ``after``, and the rewards that are kept.

        As they are now: neither changes any more.
        """
        decisions = [it for it in self._stored.decisions.values() if it.number > after]
        return decisions, dict(self._stored.kept)

    @property
    def links(self) -> tuple[Link, ...]:
        """All links, also those of neighbours that have left."""
        return tuple(self._stored.links.values())

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Those with whom there is a link."""
        return tuple(link.neighbour for link in self._stored.links.values() if not link.left)

    @property
    def own(self) -> tuple[float, ...]:
        """The own value of each arm, then the own weight: 0 until the first release."""
        return self._player.own

    @property
    def gossiped(self) -> tuple[float, ...]:
        """Value of each arm, then weights: the own ones and what has flowed here."""
        return flow.gossiped(self.own, [link.register[0] for link in self._stored.links.values()])

    @property
    def weights(self) -> tuple[float, ...]:
        """How much of the federation has released each arm, as far as is known here: 1 where all have.

        Where patients count, it is relative to the arm that has the most.
        """
        row = self.gossiped[self._player.num_arms :]
        most = max(row) if self.terms.counted == "patients" else 1.0
        return tuple(weight / most if most > 0.0 else 0.0 for weight in row)

    @property
    def per_day(self) -> float | None:
        """Decisions per day, by which this site counts; None before its first release, or where sites count alike."""
        by_rate = self.terms.counted == "patients" and any(self.releases)
        return self._player.me.share * DAY if by_rate else None

    @property
    def theta(self) -> tuple[float | None, ...]:
        """The estimate of each arm; None for an arm that is unknown."""
        return tuple(self._player.theta(k) for k in range(self._player.num_arms))

    @property
    def radius(self) -> tuple[float | None, ...]:
        """The uncertainty of each arm that the index uses now; None for an arm that is unknown."""
        now = self._player.now
        return tuple(self._player.radius(k, now) for k in range(self._player.num_arms))
