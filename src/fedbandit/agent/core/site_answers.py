"""What a site tells people: which arm is best and how sure that is, what is promised, what an operator should know."""

from fedbandit.agent.core.answer import Answer, Belief, answer_before_exchange, answer_of, over_whom
from fedbandit.agent.core.holdout import Holdout, holdout
from fedbandit.agent.core.link_watch import Carried
from fedbandit.agent.core.notices import (
    Privacy,
    privacy_of,
    warnings_of,
    warnings_of_arms,
    warnings_of_claims,
    warnings_of_network,
    warnings_of_processes,
    warnings_of_unbelieved,
)
from fedbandit.agent.core.site_view import SiteView
from fedbandit.agent.core.standings import Standing
from fedbandit.agent.core.unequal_sites import Estimates, errors_of
from fedbandit.policies import FedBatch
from fedbandit.privacy.noise import from_grid
from fedbandit.rules.belief import is_sure
from fedbandit.rules.gossip import LEAST_WEIGHT

__all__ = ["SiteAnswers"]


class SiteAnswers(SiteView):
    """What a site knows (``site_view``), and what follows from it for people. ``decisions`` adds its application."""

    @property
    def errors(self) -> tuple[float | None, ...]:
        """The typical error of each estimate; None for an arm that is unknown, or where the policy has none.

        The standard deviation of the index, and more where other sites have released less than this one.
        """
        return self._errors(self._estimates)

    def _errors(self, it: Estimates) -> tuple[float | None, ...]:
        standings = self._standings.all(it.own, self._most_decisions)
        step = from_grid(1.0, 0.0, self.terms.high - self.terms.low)
        return errors_of(it, standings, self.terms.page_terms, step, self._most_sites)

    @property
    def _estimates(self) -> Estimates:
        """What is known now."""
        player, arms = self._player, range(self._player.num_arms)
        has_errors = isinstance(self.terms.policy, FedBatch)
        deviation = tuple(player.deviation(k) if has_errors else None for k in arms)
        is_mixed = self._is_alone or (player.is_mixed and self._standings.is_whole)
        return Estimates(self.theta, deviation, self.weights, is_mixed, self._standing, player.num_agents)

    @property
    def _is_alone(self) -> bool:
        return all(link.left for link in self._stored.links.values())

    def _remember(self) -> None:
        """Before this site takes rewards, which it may release: what it tells people is what the last exchange left.

        What it releases counts in full here until others have averaged with it. If none can, it would be sure of what
        its own patients say.
        """
        if self._at_exchange is None and not self._is_alone:
            self._at_exchange = self._estimates

    @property
    def answer(self) -> Answer:
        """Which arm is best, as far as was known here at the last exchange; where there are no neighbours, now."""
        belief = self.belief
        if not self._is_alone and not self._has_exchanged and sum(belief.active) > 1:
            return answer_before_exchange(len(belief.names))
        return answer_of(belief)

    @property
    def belief(self) -> Belief:
        """All that the answer is made of."""
        names, is_alone = self._arms.names, self._is_alone
        status = [self._arms.standing(name).status for name in names]
        it = self._at_exchange
        it = self._estimates if is_alone or it is None else it.grown(len(names))
        whose = over_whom(self.num_agents, self.terms.counted)
        return Belief(names, status, it.theta, self._errors(it), it.weights, it.is_mixed, whose)

    def privacy(self) -> Privacy:
        """What is promised to the one whose reward it is."""
        return privacy_of(self.terms, sum(self.releases))

    def warnings(self) -> tuple[str, ...]:
        """What an operator should know."""
        names, num_agents = self._arms.names, max(self.num_agents, 1 + len(self.neighbours))  # also those to come
        said = warnings_of(self.terms, num_agents, names, self._tried, self.n_max, self._slots.held_up())
        beyond = self._standings.beyond(self._most_decisions) if self.terms.catches_up else []
        flows = {link.neighbour: link.register[0] for link in self._stored.links.values() if not link.left}
        return (
            *warnings_of_processes(self.doubt, self._presence.namesakes, self._twins),
            *said,
            *warnings_of_arms(self._arms, self.terms.shares),
            *warnings_of_network(self._arms.names, self.holdout, self._player.unrest),
            *warnings_of_claims(self.terms, beyond, self._most_decisions, self._standings.surplus()),
            *warnings_of_unbelieved(self._standings.unbelieved()),
            *self._watch.warnings(flows, self.gossiped),
        )

    def carried(self, neighbour: str) -> Carried:
        """What the link to a neighbour carries, and how it moved."""
        link = self._stored.links.get(neighbour)
        return self._watch.carried(neighbour, () if link is None else link.register[0])

    @property
    def holdout(self) -> Holdout | None:
        """The site whose few releases alone leave open which arm is best, if there is one.

        It takes the largest variance that rewards may have, ``answer`` the one that was learnt: what is settled there
        is not open here.
        """
        if not isinstance(self.terms.policy, FedBatch):
            return None
        standings = self._standings.all(self._standing, self._most_decisions)
        found = holdout(standings, self._player.estimates, self.terms.page_terms)
        if found is None:
            return None  # an answer takes longer: only where it matters
        chance = self.answer.chance
        return None if chance is not None and is_sure(chance) else found

    @property
    def _standing(self) -> Standing:
        player = self._player
        if self.terms.catches_up:
            return self._standings.state(self.epoch, 1.0, player.announced)
        weight = max(getattr(player.me, "share", 1.0), LEAST_WEIGHT)  # 0 says that a site has left
        return self._standings.state(self.epoch, weight, player.released)
