"""What this process has observed of one neighbour: reachability, counts, errors, and the log lines about them."""

import asyncio
import logging
from dataclasses import dataclass, field

from fedbandit.agent.gossip.refusals import Pace
from fedbandit.agent.process.config import Neighbour

__all__ = ["SILENT_AFTER", "NeighbourStatus"]

SILENT_AFTER = 60.0
"""Seconds after its last exchange for which a neighbour that dials us counts as reachable."""

UNHEARD = 3
"""Exchanges in turn that average nothing, and are then called failures: a new life is understood after two."""

QUIET = 100
"""Exchanges in turn after which a neighbour that spoke from an earlier life is no longer suspected."""

_LOG = logging.getLogger("fedbandit.gossip")


@dataclass
class NeighbourStatus:
    """What this process has observed of one neighbour."""

    neighbour: Neighbour
    began: float = 0.0
    reachable: bool = False
    last_exchange: float | None = None
    exchanges: int = 0
    failures: int = 0
    refusals: int = 0
    unheard: int = 0
    """Exchanges in which one end did not know the life of the other, so that nothing was averaged."""
    unheard_in_turn: int = 0
    heard_in_turn: int = 0
    last_error: str | None = None
    differs: str | None = None
    """The terms in which it differs, if it has told us."""
    life: int | None = None
    """The epoch of its last message."""
    suspicion: str | None = None
    """A warning for the operator; it ends after ``QUIET`` exchanges in turn with one life."""
    arms_version: int = 0
    """How many changes of the arms it knew when it was last heard; 0 also from an agent of an older version."""
    silent: bool = False
    pace: Pace | None = field(default=None, repr=False)
    clock: "asyncio.Task[None] | None" = field(default=None, repr=False)
    hang_up: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def answered(self, heard: bool, now: float) -> None:
        """An exchange was answered. One in which the ends did not hear each other averaged nothing, and is none."""
        if heard:
            self.unheard_in_turn = 0
            self.heard_in_turn += 1
            if self.heard_in_turn >= QUIET:
                self.suspicion = None
            self.succeeded(now)
            return
        self.heard_in_turn = 0
        self.unheard += 1
        self.unheard_in_turn += 1
        if self.unheard_in_turn >= UNHEARD:
            self.failed("its exchanges average nothing: one end speaks of another life")

    def succeeded(self, now: float) -> None:
        """An exchange succeeded."""
        if self.last_error is not None or self.exchanges == 0:
            self._log(logging.INFO, "exchanges succeed")
        self.reachable, self.last_exchange, self.last_error, self.differs = True, now, None, None
        self.exchanges += 1
        self.silent = False
        _LOG.debug("%s: exchange %d completed", self.neighbour.name, self.exchanges)

    def failed(self, reason: str) -> None:
        """An exchange that we began failed. Logged when failures begin or the reason changes."""
        if reason != self.last_error:
            self._log(logging.WARNING, f"no exchange: {reason}")
        self.reachable, self.last_error = False, reason
        self.failures += 1

    def refused(self, reason: str) -> None:
        """We refused a call from it; the refusal is logged elsewhere."""
        self.last_error = reason
        self.refusals += 1

    def differs_in(self, difference: str) -> None:
        """It has told us its terms, and they differ from ours."""
        if difference != self.differs:
            self._log(logging.WARNING, difference)
        self.differs = self.last_error = difference

    def heard_from(self, epoch: int) -> None:
        """A message came from this life. A lost disk begins a new life; no honest site returns to an earlier one."""
        if self.life is not None and epoch > self.life:
            why = "its disk was lost, or it was restored, or has rejoined"
            self._log(logging.WARNING, f"began a new life: {why}; its old numbers are replaced")
        elif self.life is not None and epoch < self.life:
            told = (
                "spoke from an earlier life: two agents have this name, or an old copy of its data folder was started"
            )
            self.suspicion, self.heard_in_turn = f"{self.neighbour.name} {told}", 0
            self._log(logging.WARNING, told)
        self.life = epoch

    def notice_silence(self, now: float) -> None:
        """Mark a neighbour that dials us as unreachable after ``SILENT_AFTER`` seconds without a call."""
        last = self.began if self.last_exchange is None else self.last_exchange
        if now - last >= SILENT_AFTER and not self.silent:
            self.silent, self.reachable = True, False
            self.last_error = self.last_error or f"has not called for {SILENT_AFTER:.0f} s"
            self._log(logging.WARNING, f"has not called for {SILENT_AFTER:.0f} s")

    def _log(self, level: int, line: str) -> None:
        if self.pace is None or self.pace.allows():
            _LOG.log(level, "%s: %s", self.neighbour.name, line)
