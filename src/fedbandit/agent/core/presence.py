"""One process of a site: its run, and whether it may release.

A snapshot that is put back, a copied folder, an image that is rolled back: an old file would release its rewards a
second time, with other noise. So after a start nothing is released until a neighbour has confirmed that the file is
current, or the operator has. ``seals`` has what neighbours can prove. All of this is in memory alone: a process that
starts again asks again.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from fedbandit.agent.core.events import Refused
from fedbandit.agent.core.messages import Message
from fedbandit.agent.core.records import Stored
from fedbandit.agent.core.seals import Seal, is_genuine
from fedbandit.checks import InvalidArgument

__all__ = ["ENOUGH", "Doubt", "FileIsCurrent", "FileIsOld", "Presence"]

ENOUGH = 10
"""Messages, for each neighbour, after which the others are no longer waited for once one has confirmed: of links with
the same rate, one that was silent in the meantime is down (it would be by chance with probability e^-10)."""


class FileIsOld(Refused):
    """Refused: the file is proven to be old, and confirming it would release rewards a second time."""


class FileIsCurrent(Refused):
    """Refused: nothing says that the file is old."""


@dataclass(frozen=True)
class Doubt:
    """Why nothing is released now.

    * ``unconfirmed``: no neighbour has confirmed the file since the start
    * ``old``: a neighbour has shown a seal of this file from a later time
    * ``twins``: another process of this name has spoken to a neighbour since this one started

    ``by`` is that neighbour; ``proof`` says in words what it has shown.
    """

    why: Literal["unconfirmed", "old", "twins"]
    by: str = ""
    proof: str = ""


_RANK = {"unconfirmed": 0, "twins": 1, "old": 2}


def _proof(seal: Seal, mine: Seal, by: str) -> str:
    """Why a seal shows that a file is old, in words."""
    if seal.epoch > mine.epoch:
        return f"{by} has heard a later life of this site, which began with this folder"
    if seal.releases > mine.releases:
        return f"{by} knows of {seal.releases} releases, it has {mine.releases}"
    return f"{by} has heard from it at a later time"


class Presence:
    """What a process knows of itself. ``run`` is a random number; 0: nobody asks, as in a simulation without faults."""

    def __init__(self, run: int = 0) -> None:
        """A process that starts."""
        self.run = run
        self.doubt: Doubt | None = Doubt("unconfirmed") if run else None
        self.first: int | None = None
        """Decisions up to this number may be in another process's file, too, and released by it."""
        self.others: dict[str, int] = {}
        """Another process of this name, of which a neighbour has told."""
        self.namesakes: set[str] = set()
        """Neighbours that tell of a process with this name and another file. They may err, so nothing is held."""
        self.last_epoch = 0
        """The latest life in which a process is known to have used this file."""
        self._runs = {run}
        self._is_fresh = True  # it has been in doubt since its start
        self._before: tuple[int, Doubt | None] = 0, None  # the last new life, and the doubt that it ended
        self._has_spoken = False
        self._confirmed_by: set[str] = set()
        self._answered: set[str] = set()
        self._heard = 0

    def begin(self, stored: Stored) -> None:
        """Look at the file when it is opened first; the process remembers the rest when it has to open it again."""
        if self.first is not None:
            epoch, doubt = self._before
            if stored.life.epoch < epoch:  # a new life that could not be written has not begun
                self.doubt, self._before = doubt, (0, None)
            return
        self.first = stored.life.decisions
        self._has_spoken = any(link.epoch > 0 for link in stored.links.values())
        if self.first == 0:  # nothing in it can have been released
            self._trust()

    def trust_migrated(self) -> None:
        """The file is of the version before, whose neighbours have no seals of it: it is taken for the latest."""
        if self.first is None:
            self._trust()

    def _trust(self) -> None:
        self.doubt, self._is_fresh = None, False

    def hear(self, message: Message, mine: Seal, key: bytes, neighbours: Collection[str], decided: int) -> None:
        """Take in what a neighbour shows; ``mine`` is the seal that this site would give it now."""
        if self.run == 0:
            return
        by = message.sender
        if message.other is not None and message.other.run not in self._runs:
            self.others[by] = message.other.run
        for seal in (message.most, message.other):
            if seal is None or (seal.run in self._runs and seal.place <= mine.place):
                continue
            if is_genuine(seal, key, by):
                self._examine(seal, mine, by, decided)
            elif seal.other == self.run and seal.run not in self._runs:
                self.namesakes.add(by)
        if self.doubt is not None and self.doubt.why == "unconfirmed" and message.to_run == self.run:
            self._confirm(message, key, neighbours)

    def _examine(self, seal: Seal, mine: Seal, by: str, decided: int) -> None:
        """A genuine seal of another process, or of this one from a time that it does not know.

        The second is of a machine whose memory was rolled back, too. If the other process was told of this one, or this
        one was sure already, its file may be a copy of this one as it was a moment ago.
        """
        self.last_epoch = max(self.last_epoch, seal.epoch)
        releases_ahead = (seal.epoch, seal.releases) > (mine.epoch, mine.releases)
        knows_this = seal.run in self._runs or seal.other in self._runs
        if releases_ahead or (seal.place > mine.place and (seal.run in self._runs or not knows_this)):
            self._doubt(Doubt("old", by, _proof(seal, mine, by)), knows_this, decided)
        elif seal.other == self.run:
            self._doubt(Doubt("twins", by), knows_this, decided)

    def _doubt(self, found: Doubt, knows_this: bool, decided: int) -> None:
        if self.doubt is None or _RANK[found.why] > _RANK[self.doubt.why]:
            if knows_this or not self._is_fresh:
                self.first = decided
            self.doubt = found

    def _confirm(self, message: Message, key: bytes, neighbours: Collection[str]) -> None:
        """The neighbour has answered this process: it knows this file and nothing later, or the file never spoke."""
        by = message.sender
        if self._is_known(message.most, key, by) or not self._has_spoken:
            self._confirmed_by.add(by)
        self._answered.add(by)
        if self._confirmed_by:
            self._heard += 1
            if self._answered.issuperset(neighbours) or self._heard >= ENOUGH * len(neighbours):
                self._trust()

    def _is_known(self, most: Seal | None, key: bytes, by: str) -> bool:
        """Whether a seal shows that the neighbour knew this file before.

        One of a process that was not sure, or of this one, would only repeat what the file says.
        """
        return most is not None and most.sure and most.run not in self._runs and is_genuine(most, key, by)

    # ---------------------------------------------------------------- the operator

    def confirm(self, run: int) -> None:
        """The operator says: this process lives, its file is the latest. It goes on as another run."""
        if self.doubt is not None and self.doubt.why == "old":
            raise FileIsOld(f"the file is old: {self.doubt.proof}. 'fedbandit restore' begins a new life with it")
        self._go_on(run)

    def check_restore(self) -> None:
        """Refuse to begin a new life with a file that is known to be current."""
        if self.run and self.doubt is None:
            raise FileIsCurrent("the file is current: there is nothing to restore")

    def renewed(self, run: int, epoch: int) -> None:
        """A new life has begun: all that it can release was collected by this process."""
        self._before = epoch, self.doubt
        self._go_on(run)

    def _go_on(self, run: int) -> None:
        if run in self._runs:
            raise InvalidArgument("run", run, "a number that was not used before")
        self.run = run
        self._runs.add(run)
        self._trust()
        self.others.clear()
        self.namesakes.clear()
