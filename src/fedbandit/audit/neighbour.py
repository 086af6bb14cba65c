"""The attacker's end of the link: a site that sees every message of its neighbour, and lies within its bounds.

It pretends that arm 0 is a wonder, so that the victim goes on pulling it. From each offer and answer it works out the
victim's own row: what the victim gossips less what has flowed to it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from fedbandit.agent.core.bounds import Bounds
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.memory_network import Down, MemoryJournal
from fedbandit.agent.core.messages import Message, Offer, Reply
from fedbandit.agent.core.site import Site, Step
from fedbandit.rules.flow import FIRST, Stamp, mirrored

__all__ = ["NEIGHBOUR", "VICTIM", "Neighbour", "Seen"]

VICTIM, NEIGHBOUR, EPOCH = "victim", "neighbour", 1

LIE = 0.5
"""The share of what a link may carry."""


class Seen(NamedTuple):
    """What one message of the victim tells."""

    pulls: tuple[int, ...]  # of each arm, from the arms handed out before
    own: tuple[float, ...]  # the victim's own row: means, then weights
    header: tuple[object, ...]  # epochs, version, n_max, standings
    version: int = 0  # of the link


class Neighbour(Site):
    """The attacker: a site of the victim's network that says what it likes.

    What it says depends on the version of the link alone, so messages are made once. ``view`` is what it has read in
    the victim's ``messages``.
    """

    def __init__(self, terms: Federation, lies: bool = True) -> None:
        """Half of what the link may carry: the rest is room for the victim's numbers, which must not be clamped."""
        super().__init__(NEIGHBOUR, terms, MemoryJournal(EPOCH).load())
        lie, nothing = LIE * Bounds.of(terms).largest if lies else 0.0, (0.0,) * (terms.num_arms - 1)
        count = terms.max_pulls or 0 if lies else 0
        self._flow = (lie, *nothing, *(0.0,) * terms.num_arms)  # towards the victim
        self._gossips = (lie, *nothing, *(1.0,) * terms.num_arms)
        self._ends = NEIGHBOUR, VICTIM, EPOCH, EPOCH, terms.digest(), mirrored(self._flow)
        self._n_max = (count, *(0,) * (terms.num_arms - 1)) if terms.catches_up else ()
        self._offers: dict[Stamp, Offer] = {}
        self._answers: dict[int, Reply] = {}
        self.begin()

    def begin(self) -> None:
        """Forget the last run."""
        self._pulls, self._stamp, self.view = [0] * self.terms.num_arms, FIRST, list[Seen]()
        self.messages = list[Message]()

    def watch(self, arm: int) -> None:
        """See the victim hand out an arm."""
        self._pulls[arm] += 1

    def join(self, neighbour: str) -> Step[None]:
        """Nothing to remember: the link is as the last message says."""
        return Step(None)

    def offer(self, neighbour: str) -> Step[Offer]:
        """Offer the lie, on the newest version of the link."""
        if self._stamp not in self._offers:
            self._offers[self._stamp] = Offer(*self._ends, self._stamp, self._gossips, n_max=self._n_max)
        return Step(self._offers[self._stamp])

    def receive_offer(self, offer: Offer) -> Step[Reply]:
        """Read the victim's own row: what it gossips less what has flowed to it. Answer with the lie."""
        self._see(offer, (x - flow for x, flow in zip(offer.gossiped, offer.flow, strict=True)))
        if self._stamp[1] == NEIGHBOUR:
            raise Down("the last word on the link was a lie already")  # reading costs nothing; an answer would
        version = offer.stamp[0] + 1
        if version not in self._answers:
            self._answers[version] = Reply(*self._ends, (version, NEIGHBOUR), n_max=self._n_max)
        self._stamp = version, NEIGHBOUR
        return Step(self._answers[version])

    def receive_answer(self, answer: Reply) -> Step[None]:
        """Read the victim's own row: it gossiped own + before, and moved its flow half of the way to the offer.

        after = before + (offered - (own + before)) / 2, solved for own.
        """
        sent = zip(self._gossips, self._flow, answer.flow, strict=True)
        self._see(answer, (there - before - 2.0 * (after - before) for there, before, after in sent))
        self._stamp = answer.stamp
        return Step(None)

    def _see(self, message: Message, own: Iterable[float]) -> None:
        self.messages.append(message)
        self.view.append(Seen(tuple(self._pulls), tuple(own), _header(message), message.stamp[0]))


def _header(message: Message) -> tuple[object, ...]:
    return type(message), message.epoch, message.to_epoch, message.stamp, message.n_max, message.standings
