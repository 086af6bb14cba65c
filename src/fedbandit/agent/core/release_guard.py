"""Whether this process may release, and what is left of a file that may be old.

A snapshot that is put back, a copied folder, an image that is rolled back: an old file would release its rewards a
second time, with other noise. So after a start, and after a pause, nothing is released until every neighbour has
answered and none knows better, or the operator has confirmed the file (``Presence``). All of this is in memory alone: a
process that starts again asks again, unless a witness that no disk carries has seen the file's last commit (``Mark``).
What neighbours show later is compared with the file as it was opened.

With a file that is old a site can begin a new incarnation (``records_of_new_incarnation``). Nobody can tell in what its
rewards were released since it was copied. So rewards that it holds and that are in none of its own releases are
dropped, and never released again: those of open batches, those that wait for their window, and those of decisions that
are still open. What it has released stays the site's own, as others know it. What was decided after the start of the
present process, or since it found that another has a copy of its file, stays as it is.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.messages import Message, Seal, is_genuine
from fedbandit.agent.core.records import Forgotten, Known, Link, Numbering, Record, Refused, Released, Renewed, Stored
from fedbandit.checks import InvalidArgument
from fedbandit.policies import FedBatch
from fedbandit.policies.plain import NO_ARM
from fedbandit.rules import flow

__all__ = [
    "Doubt",
    "FileIsCurrent",
    "FileIsOld",
    "Mark",
    "Presence",
    "Restored",
    "SealPlace",
    "records_of_new_incarnation",
]


SealPlace = tuple[int, int, int]
"""Epoch, releases and version of a link, as in a seal."""


class FileIsOld(Refused):
    """Refused: the file is proven to be old, and confirming it would release rewards a second time."""


class FileIsCurrent(Refused):
    """Refused: nothing says that the file is old."""


@dataclass(frozen=True)
class Doubt:
    """Why nothing is released now.

    * ``unconfirmed``: not every neighbour has answered since the start, or since a pause
    * ``old``: a neighbour has shown a seal of this file from a later time
    * ``split-brain``: another process of this name has spoken to a neighbour since this one started

    ``by`` is that neighbour; ``proof`` says in words what it has shown.
    """

    why: Literal["unconfirmed", "old", "split-brain"]
    by: str = ""
    proof: str = ""


_RANK = {"unconfirmed": 0, "split-brain": 1, "old": 2}


@dataclass(frozen=True)
class Mark:
    """How far a file was: its identity, the process that opened it last, and its commits.

    A witness holds that of a process that may release, after its last commit, where a disk that is put back cannot
    carry it: in memory that lives as long as the machine runs. The process behind a mark has sent nothing that is not
    in the file's first ``commits`` commits.
    """

    identity: bytes
    run: int
    commits: int

    def vouches_for(self, file: "Mark") -> bool:
        """Whether a file holds all that was sent from it.

        It may be ahead: the process died after a commit, before it had told its witness, or anybody else. Another
        process has opened it if its run differs: it may be ahead, and lack what was sent all the same.
        """
        return (file.identity, file.run) == (self.identity, self.run) and file.commits >= self.commits


class Presence:
    """What a process knows of itself. ``run`` is a random number; 0: nobody asks, as in a simulation without faults."""

    def __init__(self, run: int = 0, is_vouched: bool = False) -> None:
        """A process that starts; ``is_vouched``: a witness knows its file as the latest."""
        self.run, self.is_vouched = run, is_vouched
        self.doubt: Doubt | None = Doubt("unconfirmed") if run else None
        self.first: int | None = None
        """Decisions up to this number may be in another process's file, too, and released by it."""
        self.parent = 0
        """The run of the process that opened the file before; 0: none."""
        self.others: dict[str, int] = {}
        """Another process of this name, as a neighbour says."""
        self.namesakes: set[str] = set()
        """Neighbours that know a process with this name and another file. They may err, so nothing is held."""
        self.last_incarnations: dict[str, int] = {}
        """For each neighbour, the latest incarnation in which a process is known to have used this file."""
        self._runs = {run}
        self._is_fresh = True  # it has been in doubt since its start
        self._before: tuple[int, Doubt | None] = 0, None  # the last new incarnation, and the doubt that it ended
        self._has_spoken = False
        self._confirmed_by: set[str] = set()
        self._answered: set[str] = set()
        self._opened: dict[str, SealPlace] | None = None  # where the file was on each link when it was opened
        self._opened_anew: SealPlace = 0, 0, 0  # the same on a link that it did not know
        self.drawn_twice: dict[str, str] = {}
        """What shows that this process has drawn again what a neighbour had seen, by neighbour."""

    def begin(self, stored: Stored) -> None:
        """Look at the file when it is opened first; the process remembers the rest when it has to open it again."""
        if self.first is not None:
            incarnation, doubt = self._before
            if stored.numbering.incarnation < incarnation:  # a new incarnation that could not be written has not begun
                self.doubt, self._before = doubt, (0, None)
            return
        self.first, self.parent = stored.numbering.decisions, stored.run
        self._has_spoken = any(link.incarnation > 0 for link in stored.links.values())
        if self.first == 0 or self.is_vouched:  # nothing in it can have been released; or all of it is there
            self._trust()

    def compare_with(self, links: Mapping[str, SealPlace], releases: tuple[int, int], anew: bool = False) -> None:
        """The file as it is opened, or as a new incarnation begins: places on links, its incarnation and releases."""
        if self._opened is None or anew:
            self._opened, self._opened_anew = dict(links), (*releases, 0)

    @property
    def opened_releases(self) -> int:
        """How often the file had released anything when it was opened."""
        return self._opened_anew[1]

    def _trust(self) -> None:
        self.doubt, self._is_fresh = None, False

    # ---------------------------------------------------------------- what neighbours show

    def receive(
        self, message: Message, mine: SealPlace, key: bytes, neighbours: Callable[[], Collection[str]], decided: int
    ) -> None:
        """Take in what a neighbour shows; ``mine`` is the place of the seal that this site would give it now."""
        if self.run == 0:
            return
        by = message.sender
        if message.other is not None and message.other.run not in self._runs:
            self.others[by] = message.other.run
        for seal in (message.most, message.other):
            if seal is None or (seal.run in self._runs and seal.place <= mine):
                continue
            if is_genuine(seal, key, by):
                self._examine(seal, mine, by, decided)
            elif seal.other == self.run and seal.run not in self._runs:
                self.namesakes.add(by)
        if self.doubt is not None and self.doubt.why == "unconfirmed" and message.to_run == self.run:
            self._answered.add(by)
            if self._is_known(message.most, key, by) or not self._has_spoken:
                self._confirmed_by.add(by)
            self._answered.intersection_update(neighbours())

    def _examine(self, seal: Seal, mine: SealPlace, by: str, decided: int) -> None:
        """A genuine seal of another process, or of this one from a time that it does not know.

        The second is of a machine whose memory was rolled back, too. If the other process knew of this one, if its
        file was last opened by this one, or if this one was sure already, both may hold the same decisions.
        """
        self.last_incarnations[by] = max(self.last_incarnations.get(by, 0), seal.incarnation)
        knows_this = not self._runs.isdisjoint({seal.run, seal.other, seal.parent})
        known = mine if knows_this else self._place_as_opened(by, mine)
        is_later = seal.place > known and (seal.run in self._runs or seal.other not in self._runs)
        if (seal.incarnation, seal.releases) > known[:2] or is_later:
            if not knows_this and seal.incarnation == known[0] and seal.releases > known[1] < mine[1]:
                self.drawn_twice[by] = (
                    f"{by} has seen {seal.releases} releases of this data folder, which had {known[1]} when it was "
                    f"opened and has {mine[1]} now"
                )
            self._doubt(Doubt("old", by, _proof(seal, known, by)), knows_this, decided)
        elif seal.other == self.run:
            self._doubt(Doubt("split-brain", by), knows_this, decided)

    def _place_as_opened(self, by: str, mine: SealPlace) -> SealPlace:
        """A process that did not come after this one had a file that this one should have opened, or a later one."""
        place = (self._opened or {}).get(by, self._opened_anew)
        return place if place[0] == mine[0] else mine  # the link, or the site, has begun another incarnation since

    def _doubt(self, found: Doubt, knows_this: bool, decided: int) -> None:
        is_first = self.doubt is None or self.doubt.why == "unconfirmed"
        if is_first and (knows_this or not self._is_fresh):
            self.first = decided
        if self.doubt is None or _RANK[found.why] > _RANK[self.doubt.why]:
            self.doubt = found

    def _is_known(self, most: Seal | None, key: bytes, by: str) -> bool:
        """Whether a seal shows that the neighbour knew this file before.

        One of a process that was not sure, or of this one, would only repeat what the file says.
        """
        is_other = most is not None and most.sure and (most.run not in self._runs or not self._is_fresh)
        return most is not None and is_other and is_genuine(most, key, by)

    def forget(self, neighbour: str) -> None:
        """A neighbour has left."""
        for known in (self._answered, self._confirmed_by, self.namesakes):
            known.discard(neighbour)
        self.others.pop(neighbour, None)
        self.last_incarnations.pop(neighbour, None)

    def is_waiting(self, neighbours: Collection[str]) -> Literal["for one", "for some", "for none", "no"]:
        """For whom a process waits before it releases: nobody knows its file, not all, or all have answered; or not."""
        if self.doubt is None or self.doubt.why != "unconfirmed":
            return "no"
        if self.waits_for(neighbours):
            return "for some"
        return "for none" if self._confirmed_by else "for one"

    def waits_for(self, neighbours: Collection[str]) -> tuple[str, ...]:
        """The neighbours that have not answered a process which waits."""
        is_waiting = self.doubt is not None and self.doubt.why == "unconfirmed"
        return tuple(name for name in neighbours if is_waiting and name not in self._answered)

    def go_on(self, neighbours: Collection[str]) -> None:
        """Every neighbour has answered, one knows the file, and the driver has waited for another process to speak."""
        if self.is_waiting(neighbours) == "for none":
            self._trust()

    def pause(self, run: int) -> None:
        """The process has stood still: another may have been started with its file meanwhile. It asks again."""
        if self.run and self.doubt is None:
            self._rename(run)
            self.doubt = Doubt("unconfirmed")
            self._answered.clear()
            self._confirmed_by.clear()

    # ---------------------------------------------------------------- the operator

    def confirm(self, run: int) -> None:
        """The operator says: this process lives, its file is the latest. It goes on as another run."""
        if self.doubt is None:
            return
        if self.doubt.why == "old":
            raise FileIsOld(
                f"the file is old: {self.doubt.proof}. 'fedbandit restore' begins a new incarnation with it"
            )
        self._rename(run)
        self._trust()

    def check_restore(self) -> None:
        """Refuse to begin a new incarnation with a file that is known to be current."""
        if self.run and self.doubt is None:
            raise FileIsCurrent("the file is current: there is nothing to restore")

    def renewed(self, run: int, incarnation: int) -> None:
        """A new incarnation has begun: all that it can release was collected by this process."""
        self._before = incarnation, self.doubt
        self._rename(run)
        self._trust()

    def _rename(self, run: int) -> None:
        if run in self._runs:
            raise InvalidArgument("run", run, "a number that was not used before")
        self.run = run
        self._runs.add(run)
        self.others.clear()
        self.namesakes.clear()


def _proof(seal: Seal, mine: SealPlace, by: str) -> str:
    """Why a seal shows that a file is old, in words."""
    incarnation, releases, _ = mine
    if seal.incarnation > incarnation:
        return f"{by} knows a later incarnation of this site, which began with this folder"
    if seal.releases > releases:
        return f"{by} knows of {seal.releases} releases, it has {releases}"
    return f"{by} has received a message of it from a later time"


# ---------------------------------------------------------------- a new incarnation with an old file


@dataclass(frozen=True)
class Restored:
    """What a new incarnation has dropped.

    * ``rewards``: that were acknowledged and are in no release of the file
    * ``decisions``: that were open, and whose reward can no longer be reported
    * ``kept``: decisions that no other process knows, whose rewards will count
    """

    rewards: int
    decisions: int
    kept: int

    def in_words(self) -> str:
        """For the log and the operator."""
        return (
            f"{self.rewards} rewards that may have been released are dropped, {self.decisions} open decisions "
            f"forgotten; {self.kept} decisions that only this process knows stay"
        )


def records_of_new_incarnation(
    stored: Stored, terms: Federation, incarnation: int, first: int, incarnations: Mapping[str, int]
) -> tuple[tuple[Record, ...], Restored]:
    """The records that begin it, and what they drop; decisions up to the number ``first`` are not this process's.

    ``incarnations``: the next one on each link, which may be later than the site's: what one neighbour says of it moves
    no other link.
    """
    unplayed = [it for it in stored.decisions.values() if it.is_open]
    doubtful = [it for it in unplayed if it.number <= first]
    known = dict(_known_by_releases(stored, terms))
    collected = sum(fields["n"] for arm, fields in stored.known.items() if arm != NO_ARM)
    dropped = collected - sum(fields["n"] for arm, fields in known.items() if arm != NO_ARM)
    records: list[Record] = [
        Renewed(),
        Numbering(incarnation, stored.numbering.decisions),
        *(Forgotten(it.id) for it in doubtful),
        *(Known(arm, fields) for arm, fields in known.items()),
        *(Released(arm, level, last) for (arm, level), last in stored.released.items() if arm in known),
        *(_without_flow(link, incarnations[link.neighbour]) for link in stored.links.values()),
    ]
    rewarded = sum(it.reward is not None for it in doubtful)
    kept = len(unplayed) - len(doubtful)
    return tuple(records), Restored(dropped + rewarded, len(doubtful) - rewarded, kept)


def _known_by_releases(stored: Stored, terms: Federation) -> Iterator[tuple[int, dict[str, Any]]]:
    """What the page knows by what was released alone.

    FedBatch: all but the open batch. A tree's later intervals would hold rewards of earlier ones again, and what pages
    of other authors keep is not known here: they begin anew. Where nothing is private, nothing is dropped.
    """
    if terms.page.noise_due is None:
        yield from stored.known.items()
    elif isinstance(terms.policy, FedBatch):
        for arm, fields in stored.known.items():
            yield arm, fields if arm == NO_ARM else {**fields, "n": fields["released"], "total": 0}


def _without_flow(link: Link, own_incarnation: int) -> Link:
    """The neighbour brings the flow back, as after a lost disk."""
    return Link(
        link.neighbour, link.incarnation, flow.empty(len(link.register[0]) // 2), link.left, own_incarnation, link.seals
    )
