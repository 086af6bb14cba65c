"""Which sites take part, and how much each has released or decided, as far as is known here.

A site states its own standing, with a version; neighbours pass the newest of each site on. They say how many sites
there are, whom the others wait for, and for policies with the consistency rule n~, so that what a site has claimed goes
when it does. They are in memory alone: after a restart they come again, with the first reply of a neighbour.

N comes from neighbours, and one that lies can invent sites: errors fall with the root of N. Beyond the ``most_sites``
of the operator further names add nothing to what people are stated:

* N counts as ``most_sites`` where FedBatch divides a variance by it.
* Of what others claim to have released, as many claims count as there can be sites: those that leave most doubt. Names
  that are invented then hide no real site that knows little. Where patients count, and until its own first release of
  an arm, names that claim to be large still make this site surer.

The index keeps N as received. It also asks by N whether an arm is known at all: with a bound that is too low, a site
would take an arm that few have released for one that the network has lost, and act on its own patients alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar, cast

from fedbandit.checks import LARGEST, InvalidArgument, finite_number, instance, whole_number
from fedbandit.policies.fed_batch import Others
from fedbandit.rules.batch import PRIOR_REWARDS, scheduled_variance
from fedbandit.rules.belief import least_known
from fedbandit.rules.gossip import heard

__all__ = [
    "MAX_N",
    "MIXED",
    "QuietArms",
    "Standing",
    "Standings",
    "at_most",
    "believed",
    "schedule_of",
    "variance_of_released",
]


# ---------------------------------------------------------------- the operator's bound on the number of sites


_Site = TypeVar("_Site")


def at_most(num_agents: int, most_sites: int | None) -> int:
    """N as far as it makes anything surer; None: nobody says how many sites there can be."""
    return num_agents if most_sites is None else min(num_agents, most_sites)


def believed(
    others: Sequence[_Site],
    parts: Sequence[tuple[float, float]],
    most_sites: int | None,
    own: tuple[float, float] = (0.0, 0.0),
) -> Sequence[_Site]:
    """Of all other sites as many as there can be: with this one they leave most doubt of an arm.

    ``parts``, ``own``: the weight of each site, and its square times the variance of the site's own mean.
    """
    if most_sites is None or len(others) < most_sites:
        return others
    return [others[i] for i in least_known(parts, most_sites - 1, own)]


# ---------------------------------------------------------------- arms of which nothing is released


MIXED = 50
"""Exchanges of this site, times N, after which releases have spread: on a path of 20, all but e^-6 of them."""


class QuietArms:
    """Since when nobody has released anything of an arm: only then are numbers that jump suspicious.

    A site that was silent for a while has not averaged what others released meanwhile. When it is back, that moves
    numbers though nobody releases anything: for such arms the time of quiet begins anew. It begins only if the arm was
    released since, or shortly before, the silence began: so whoever is silent on purpose, or slow, cannot put it off
    for ever. Times are exchanges of this site.
    """

    def __init__(self, num_arms: int) -> None:
        """Nothing was released yet."""
        self.since = [0] * num_arms
        """The exchange since which nothing should move what is gossiped of an arm, but mixing."""
        self._released = [0] * num_arms

    def grow(self, num_arms: int, now: int) -> None:
        """There are so many arms now."""
        for row in (self.since, self._released):
            row += [now] * (num_arms - len(row))

    def release(self, arm: int, now: int) -> None:
        """Somebody has released the arm."""
        self.since[arm] = self._released[arm] = now

    def disturb(self, now: int) -> None:
        """A site has come, gone or changed its weight: all that is gossiped may move."""
        self.since = [now] * len(self.since)
        self._released = [now] * len(self.since)

    def come_back(self, silent_since: int, num_agents: int, now: int) -> None:
        """A site is back that had been silent."""
        for arm, released in enumerate(self._released):
            if released > silent_since - MIXED * num_agents:
                self.since[arm] = now


# ---------------------------------------------------------------- standings


MAX_N = 10**12
"""The most decisions for an arm."""

MAX_INCARNATION = 2**62

MAX_NAME = 64

ENOUGH = 10**5
"""Released rewards beyond which the variance of a mean is taken to fall with their number: nobody can make it take
long to work out."""

MOST_NUMBERS = 20_000
"""The most counts in one message: about 60,000 bytes. Larger federations send their standings in turn."""

STALE = 100
"""Exchanges of this site, times N, after which a standing that its site has not renewed is dropped."""

SILENT = 10
"""Exchanges, times N, after which one whose standing was not renewed may be cut off."""

RENEWED = 4
"""Messages after which a site renews its standing at the latest, though nothing has changed. A hub has as many
exchanges as all leaves together: a leaf that waited for N would seem to be gone."""

STALE_NAMES = 4
"""How many names, times N, are remembered as dropped."""


@dataclass(frozen=True)
class Standing:
    """What one site has released of each arm, in rewards, and its weight; 0: it has left.

    For policies with the consistency rule: its decisions for each arm. The newest counts: the largest ``incarnation``,
    and in it the largest ``version``.
    """

    site: str
    incarnation: int
    version: int
    weight: float
    released: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse what no honest site states."""
        instance("standing.site", self.site, str, "text")
        if not 0 < len(self.site) <= MAX_NAME or not self.site.isprintable():
            raise InvalidArgument("standing.site", self.site, f"a name of at most {MAX_NAME} characters")
        whole_number("standing.incarnation", self.incarnation, 1, MAX_INCARNATION)
        whole_number("standing.version", self.version, 0, MAX_N)
        if not 0.0 <= finite_number("standing.weight", self.weight) <= LARGEST:
            raise InvalidArgument("standing.weight", self.weight, f"0 to {LARGEST:g}")
        for k, n in enumerate(self.released):
            if type(n) is not int or not 0 <= n <= MAX_N:  # hardly ever: no name is made for nothing
                whole_number(f"standing.released[{k}]", n, 0, MAX_N)


@dataclass(slots=True)
class _Received:
    """A standing, the neighbour that sent it, and the exchange of this site at which it was last renewed."""

    standing: Standing
    source: str
    renewed: int


class Standings:
    """The newest standing of each other site, and this site's own.

    * A neighbour has room for as many sites as may take part: names that it invents take its own room only.
    * A site that receives of itself what it has not stated answers with something newer.
    * What its site has not renewed for ``STALE`` N exchanges is dropped, and not taken again.
    * ``forget``: a neighbour has left. It weighs nothing then, nor does any site of which it was the source. Others
      receive that: as fast as gossip they drop it, too. Sites that are there say something newer.
    """

    def __init__(
        self,
        own_name: str,
        most_agents: int,
        num_arms: int,
        most_weight: float = LARGEST,
        expected: Iterable[str] = (),
        most_sites: int | None = None,
    ) -> None:
        """Nothing received yet.

        * ``most_weight``: a site that claims more counts as much as this
        * ``expected``: neighbours that have spoken to this site before its restart. They count until they send
          anything, or do not for ``STALE`` N exchanges
        * ``most_sites``: more do not make this one surer (``believed``)
        """
        self._own, self._most_agents, self._num_arms, self._most_weight = own_name, most_agents, num_arms, most_weight
        self._expected: set[str] = {*expected}
        self.most_sites = most_sites
        self._num_agents: int | None = None  # until anybody comes or goes
        self._others: list[Others] | None = None  # until anything changes
        self._crowded = ""  # who has sent more sites than there is room for
        self._received: dict[str, _Received] = {}
        self._dropped: dict[str, tuple[_Stamp, int]] = {}
        self._stated: Standing | None = None
        self._unchanged = self._sent = self.exchanges = 0
        self._most: tuple[int, ...] | None = None  # of all counts, until one changes
        self.is_whole = True
        """Whether all sites that weigh anything were renewed lately: the network is not partitioned."""
        self.quiet = QuietArms(num_arms)

    def grow(self, num_arms: int) -> None:
        """There are so many arms now: nobody has released anything of those that are new, as far as is known."""
        zeros = (0,) * (num_arms - self._num_arms)
        for it in self._received.values():
            it.standing = replace(it.standing, released=it.standing.released + zeros)
        if self._stated is not None:
            self._stated = replace(self._stated, released=self._stated.released + zeros)
        self.quiet.grow(num_arms, self.exchanges)
        self._num_arms, self._most, self._others = num_arms, None, None

    @property
    def num_agents(self) -> int:
        """N: the sites that take part, this one among them; never more than may."""
        if self._num_agents is None:
            there = {name for name, it in self._received.items() if it.standing.weight > 0.0} | self._expected
            self._num_agents = min(1 + len(there), self._most_agents)
        return self._num_agents

    @property
    def believed(self) -> int:
        """N as far as it makes this site surer."""
        return at_most(self.num_agents, self.most_sites)

    def limit(self, most_sites: int | None) -> None:
        """The operator says that there can be so many sites."""
        self.most_sites = most_sites

    # ---------------------------------------------------------------- this site

    def state(self, incarnation: int, weight: float, released: tuple[int, ...]) -> Standing:
        """The own standing, newer than any that said something else."""
        before = self._stated
        if before is None or before.incarnation < incarnation:
            self._stated = Standing(self._own, incarnation, 0, weight, released)
            self._note(None, self._stated)
        elif (before.weight, before.released) != (weight, released):
            self._stated = _newer(before, weight, released)
            self._note(before, self._stated)
        return cast(Standing, self._stated)

    def to_send(self, own: Standing) -> tuple[Standing, ...]:
        """The own standing, and others': all of them, or so many that the message stays short, in turn.

        Now and then the own one is renewed, though nothing has changed: so others know that its site is there.
        """
        self._unchanged += 1
        if self._unchanged >= min(self.num_agents, RENEWED) and own is self._stated:
            self._unchanged, self._stated = 0, _newer(own, own.weight, own.released)
            own = self._stated
        others = [it.standing for it in self._received.values()]
        room = max(1, min(MOST_NUMBERS // self._num_arms, self._most_agents - 1))
        first = self._sent % len(others) if len(others) > room else 0
        self._sent += room
        return own, *islice((*others[first:], *others[:first]), room)

    # ---------------------------------------------------------------- others

    def receive(self, source: str, standings: Sequence[Standing]) -> None:
        """Take in what is newer."""
        self.exchanges += 1
        if self.exchanges % self.num_agents == 0:
            self._drop_stale()
        for it in standings[: self._most_agents + 1]:
            known = self._received.get(it.site)
            if known is not None:
                old = known.standing
                if it.incarnation < old.incarnation or (
                    it.incarnation == old.incarnation and it.version <= old.version
                ):
                    self._take_old(source, it, known)
                    continue
            if it.site == self._own:
                self._answer(it)
            elif len(it.released) == self._num_arms and _is_believed(it):
                self._take(source, it, known)

    def _answer(self, stated: Standing) -> None:
        """Somebody has sent this site its own standing: from before a restart, or a forged one."""
        own = self._stated
        if own is None or _stamp(stated) < _stamp(own) or not _is_believed(stated):
            return
        if (_stamp(stated), stated.weight, stated.released) != (_stamp(own), own.weight, own.released):
            newer = _newer(stated, own.weight, own.released)
            has_room = newer.incarnation < MAX_INCARNATION // 2 or newer.version <= MAX_N // 4  # to be renewed
            if _is_believed(newer) and has_room:
                self._stated = newer  # else the forged one goes when nobody renews it

    def _take(self, source: str, stated: Standing, known: _Received | None) -> None:
        if stated.weight > self._most_weight:
            stated = replace(stated, weight=self._most_weight)
        self._expected.discard(stated.site)
        if known is None:
            if source != stated.site and self._was_dropped(stated):
                return
            self._make_room(source)
            self._received[stated.site] = _Received(stated, source, self.exchanges)
            self._note(None, stated)
        else:
            if self._was_silent(known):
                self.quiet.come_back(known.renewed, self.num_agents, self.exchanges)
            self._note(known.standing, stated)
            known.standing, known.source, known.renewed = stated, source, self.exchanges

    def _take_old(self, source: str, stated: Standing, known: _Received) -> None:
        """A silent neighbour that repeats itself has restarted, and does not know its last version: others get one."""
        old = known.standing
        if (
            (stated.site, stated.incarnation) == (source, old.incarnation)
            and old.weight > 0.0
            and self._was_silent(known)
        ):
            self._take(source, _newer(old, old.weight, old.released), known)

    def _was_silent(self, known: _Received) -> bool:
        return self.exchanges - known.renewed > SILENT * self.num_agents

    def _was_dropped(self, stated: Standing) -> bool:
        """Whether a standing is one that nobody renewed, or one from before it: others may not have dropped it yet."""
        if stated.site not in self._dropped:
            return False
        stamp, when = self._dropped[stated.site]
        is_lately = self.exchanges - when < STALE * self.num_agents
        return _stamp(stated) == stamp or (is_lately and _stamp(stated) < stamp)

    def _note(self, before: Standing | None, now: Standing) -> None:
        """Remember which arms have changed."""
        if before is None or before.weight != now.weight:
            self.quiet.disturb(self.exchanges)
            self._most = self._others = self._num_agents = None
        elif before.released != now.released:
            self._most = self._others = None
            for k, n in enumerate(now.released):
                if n != before.released[k]:
                    self.quiet.release(k, self.exchanges)

    def _make_room(self, source: str) -> None:
        """For one more site of which a neighbour is the source: the one that was not renewed for longest makes room."""
        named = [name for name, it in self._received.items() if it.source == source]
        if len(named) >= max(self._most_agents - 1, 1):
            self._crowded = source
            others = [name for name in named if name != source] or named
            self._drop(min(others, key=lambda name: self._received[name].renewed))

    def _drop(self, name: str) -> None:
        dropped = self._received.pop(name).standing
        self._dropped.pop(name, None)
        self._dropped[name] = _stamp(dropped), self.exchanges
        while len(self._dropped) > STALE_NAMES * self._most_agents:
            del self._dropped[next(iter(self._dropped))]
        self._note(None, dropped)

    def _drop_stale(self) -> None:
        least = self.exchanges - STALE * self.num_agents
        silent = self.exchanges - SILENT * self.num_agents
        if least > 0 and self._expected:
            self._expected.clear()
            self._num_agents = None
        self.is_whole = all(it.renewed >= silent for it in self._received.values() if it.standing.weight > 0.0)
        for name in [name for name, it in self._received.items() if it.renewed < least]:
            self._drop(name)

    def forget(self, site: str) -> None:
        """A neighbour has left: it weighs nothing, nor do those of which it was the source, and others receive that."""
        self._expected.discard(site)
        self._num_agents = None
        for name, it in self._received.items():
            if site in (name, it.source):
                before, it.standing, it.source = it.standing, _newer(it.standing, 0.0, it.standing.released), name
                it.renewed = self.exchanges
                self._note(before, it.standing)

    # ---------------------------------------------------------------- what they say

    def all(self, own: Standing, most: int = MAX_N) -> list[Standing]:
        """The own standing and all others'. Nobody counts with more of an arm than ``most``."""
        return [own, *(_at_most(it.standing, most) for it in self._received.values())]

    def others(self, terms: Any) -> list[Others]:
        """What all others say of each arm; ``terms`` are those of the page."""
        if self._others is None:
            there = [it.standing for it in self._received.values() if it.standing.weight > 0.0]
            parts = [_parts(it.weight, it.released, *schedule_of(terms)) for it in there]
            self._others = [Others(*map(sum, zip(*of_arm, strict=True))) for of_arm in zip(*parts, strict=True)]
        return self._others

    def counts(self, own: tuple[int, ...], most: int) -> tuple[int, ...]:
        """Algorithm 1, line 5: n~, the largest count of each arm, of this site and of those that have not left.

        A count beyond ``most``, which nobody can have reached, counts as that.
        """
        if self._most is None:
            rows = [it.standing.released for it in self._received.values() if it.standing.weight > 0.0]
            self._most = tuple(map(max, zip(*rows, strict=True))) if rows else (0,) * self._num_arms
        return tuple(heard(n, min(other, most)) for n, other in zip(own, self._most, strict=True))

    def beyond(self, most: int) -> list[tuple[str, str, int]]:
        """Sites that claim more than ``most`` decisions for an arm, the source, and the largest count."""
        return [
            (name, it.source, max(it.standing.released))
            for name, it in self._received.items()
            if it.standing.weight > 0.0 and max(it.standing.released) > most
        ]

    def unbelieved(self) -> tuple[str, int, int] | None:
        """The source of most sites, N, and how many there can be, if N is more."""
        sources = [it.source for it in self._received.values() if it.standing.weight > 0.0]
        is_more = self.num_agents > self.believed and sources
        return (max(sources, key=sources.count), self.num_agents, self.believed) if is_more else None

    def surplus(self) -> tuple[str, int] | None:
        """The source of most sites, and how many sites there are, if there are more than there can be."""
        sources = [it.source for it in self._received.values() if it.standing.weight > 0.0]
        if len(sources) >= self._most_agents:
            return max(sources, key=sources.count), 1 + len(sources)
        return (self._crowded, 2 + len(sources)) if self._crowded in sources and self._is_full(sources) else None

    def _is_full(self, sources: Sequence[str]) -> bool:
        """Whether the source of more sites than there can be still fills its room."""
        return sources.count(self._crowded) >= max(self._most_agents - 1, 1)


def _at_most(it: Standing, most: int) -> Standing:
    return it if max(it.released, default=0) <= most else replace(it, released=tuple(min(n, most) for n in it.released))


_Stamp = tuple[int, int]


def _stamp(standing: Standing) -> _Stamp:
    return standing.incarnation, standing.version


def _newer(before: Standing, weight: float, released: tuple[int, ...]) -> Standing:
    """The next standing of a site: a later version, or a later incarnation where there is none."""
    if before.version < MAX_N // 2 or weight == 0.0:
        return Standing(before.site, before.incarnation, min(before.version + 1, MAX_N), weight, released)
    return Standing(before.site, min(before.incarnation + 1, MAX_INCARNATION), 0, weight, released)


def _is_believed(it: Standing) -> bool:
    """Whether it is as honest sites speak: none comes near these numbers, but to say that a liar's site has left."""
    return it.version <= MAX_N // 2 + (it.weight == 0.0) and it.incarnation <= MAX_INCARNATION // 2


def schedule_of(terms: Any) -> tuple[int, float, float, float]:
    """What the variance of releases follows from; ``terms`` are those of the page."""
    return terms.first_batch, terms.growth, terms.most_variance, terms.noise_variance


def variance_of_released(released: int, *schedule: Any) -> float:
    """Of a site's own mean after so many rewards, in the units of the page."""
    few = min(released, ENOUGH)
    return _of_schedule(few, *schedule) * few / released


_of_schedule = lru_cache(maxsize=10_000)(scheduled_variance)


@lru_cache(maxsize=1_000)
def _parts(weight: float, released: tuple[int, ...], *schedule: Any) -> tuple[Others, ...]:
    """A site's part of what all others say of each arm. It changes with a release: mostly it is known already."""
    square, most = weight * weight, schedule[2]
    return tuple(
        Others(weight, weight, square * variance_of_released(n, *schedule), square / n)
        if n > 0
        else Others(weight, 0.0, square * most / PRIOR_REWARDS, square / PRIOR_REWARDS)
        for n in released
    )
