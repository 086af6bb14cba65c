"""One process of a site: its run, and whether it may release.

A snapshot that is put back, a copied folder, an image that is rolled back: an old file would release its rewards a
second time, with other noise. So after a start nothing is released until a neighbour has confirmed that the file is
current, or the operator has. ``seals`` has what neighbours can prove. All of this is in memory alone: a process that
starts again asks again.
"""

from collections.abc import Callable, Collection
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

    ``by`` is that neighbour; ``told`` and ``here`` say how many releases its seal and this site count.
    """

    why: Literal["unconfirmed", "old", "twins"]
    by: str = ""
    told: int = 0
    here: int = 0


_RANK = {"unconfirmed": 0, "twins": 1, "old": 2}


class Presence:
    """What a process knows of itself. ``run`` is a random number; 0: nobody asks, as in a simulation without faults."""

    def __init__(self, run: int = 0) -> None:
        """A process that starts."""
        self.run = run
        self.doubt: Doubt | None = Doubt("unconfirmed") if run else None
        self.first: int | None = None
        """Decisions that were in the file at the start: another process may have released their rewards."""
        self.others: dict[str, int] = {}
        """Another process of this name, of which a neighbour has told."""
        self.namesakes: set[str] = set()
        """Neighbours that tell of a process with this name and another file. They may err, so nothing is held."""
        self.last_epoch = 0
        """The latest life in which a process is known to have used this file."""
        self._runs = {run}
        self._has_spoken = False
        self._confirmed_by: set[str] = set()
        self._answered: set[str] = set()
        self._heard = 0

    def begin(self, stored: Stored) -> None:
        """Look at the file when it is opened first; the process remembers the rest when it has to open it again."""
        if self.first is not None:
            return
        self.first = stored.life.decisions
        self._has_spoken = any(link.epoch > 0 for link in stored.links.values())
        if self.first == 0:  # nothing in it can have been released
            self.doubt = None

    def hear(
        self, message: Message, mine: tuple[int, int, int], key: bytes, neighbours: Callable[[], Collection[str]]
    ) -> None:
        """Take in what a neighbour shows; ``mine`` is the place of the seal that this site would give it now."""
        if self.run == 0:
            return
        by = message.sender
        if message.other is not None and message.other.run not in self._runs:
            self.others[by] = message.other.run
        for seal in (message.most, message.other):
            if seal is not None and seal.run not in self._runs:
                if is_genuine(seal, key, by):
                    self._examine(seal, mine, by)
                elif seal.other == self.run:
                    self.namesakes.add(by)
        if self.doubt is not None and self.doubt.why == "unconfirmed" and message.to_run == self.run:
            self._confirm(message, key, neighbours())

    def _examine(self, seal: Seal, mine: tuple[int, int, int], by: str) -> None:
        """A genuine seal of another process: is this file older, or does that process still live?"""
        self.last_epoch = max(self.last_epoch, seal.epoch)
        epoch, releases, _ = mine
        releases_ahead = (seal.epoch, seal.releases) > (epoch, releases)
        if releases_ahead or (seal.other not in self._runs and seal.place > mine):
            self._doubt(Doubt("old", by, seal.releases, releases))
        elif seal.other == self.run:
            self._doubt(Doubt("twins", by, seal.releases, releases))

    def _doubt(self, found: Doubt) -> None:
        if self.doubt is None or _RANK[found.why] > _RANK[self.doubt.why]:
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
                self.doubt = None

    def _is_known(self, most: Seal | None, key: bytes, by: str) -> bool:
        """Whether a seal shows that the neighbour knew this file before.

        One of a process that was not sure, or of this one, would only repeat what the file says.
        """
        return most is not None and most.sure and most.run not in self._runs and is_genuine(most, key, by)

    # ---------------------------------------------------------------- the operator

    def confirm(self, run: int) -> None:
        """The operator says: this process lives, its file is the latest. It goes on as another run."""
        if self.doubt is not None and self.doubt.why == "old":
            raise FileIsOld(
                f"the file is old: {self.doubt.by} knows of {self.doubt.told} releases, it has {self.doubt.here}. "
                "'fedbandit restore' begins a new life with it"
            )
        self._go_on(run)

    def check_restore(self) -> None:
        """Refuse to begin a new life with a file that is known to be current."""
        if self.run and self.doubt is None:
            raise FileIsCurrent("the file is current: there is nothing to restore")

    def renewed(self, run: int) -> None:
        """A new life has begun: all that it can release was collected by this process."""
        self._go_on(run)

    def _go_on(self, run: int) -> None:
        if run in self._runs:
            raise InvalidArgument("run", run, "a number that was not used before")
        self.run, self.doubt = run, None
        self._runs.add(run)
        self.others.clear()
        self.namesakes.clear()
