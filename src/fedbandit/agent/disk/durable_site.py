"""Runs events on a site and returns each result only after its records are on disk.

Events that arrive together share a transaction: while one is being written, the next requests queue up. So a slow disk
costs latency, not throughput.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from fedbandit.agent.core.events import Refused, Step
from fedbandit.agent.core.records import Record, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import JournalError, SqliteJournal
from fedbandit.checks import InvalidArgument

__all__ = ["DurableSite"]

_Result = TypeVar("_Result")


class DurableSite:
    """Runs the events of one site in order of arrival, in one asyncio loop.

    If the disk fails, none of the affected events has happened: the site is discarded, and reloaded
    from the file at the next event. So a full disk requires no restart.
    """

    def __init__(
        self,
        open_journal: Callable[[], SqliteJournal],
        make_site: Callable[[Stored], Site],
        now: Callable[[], float],
    ) -> None:
        """Open the file and load the site; raises ``JournalError`` if that fails. ``now`` tells what is due."""
        self._open_journal, self._make_site, self._now = open_journal, make_site, now
        self._waiting: list[tuple[tuple[Record, ...], asyncio.Future[None] | None]] = []
        self._journal: SqliteJournal | None = None
        self._site: Site | None = None
        self.problem: JournalError | None = None
        """Why a write failed; the runtime clears it when the disk accepts writes again."""
        self._loaded()

    async def do(self, event: Callable[[Site], Step[_Result]]) -> _Result:
        """Run an event and return its result. ``Refused`` and ``InvalidArgument`` mean that nothing has changed.

        All that is due is settled before it, so that no decision or message depends on how many events there were.
        """
        now = self._now()
        while self._loaded().is_due(now):
            self._wait(self._stepped(lambda site: site.settle(now)), None)
        return await self.take(event)

    async def take(self, event: Callable[[Site], Step[_Result]]) -> _Result:
        """The same, and nothing is settled before it: for a reward, whose time must not show."""
        step = self._stepped(event)
        if not step.records and not self._waiting:
            return step.result  # all that it can tell of is on disk
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait(step, written)
        await written
        return step.result

    def _stepped(self, event: Callable[[Site], Step[_Result]]) -> Step[_Result]:
        site = self._loaded()
        try:
            return event(site)
        except (Refused, InvalidArgument):
            self._commit()  # the reason of a refusal must survive a crash
            raise
        except BaseException:
            self._commit()
            self._forget()  # half of the event may be in memory
            raise

    def _wait(self, step: Step[Any], written: asyncio.Future[None] | None) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._commit_quietly)
        self._waiting.append((step.records, written))

    def look(self) -> Site:
        """The site, for reading: everything it shows is on disk."""
        self._commit()
        return self._loaded()

    def erase(self) -> None:
        """Write pending records, then remove old values from the files: played rewards, and sums that were released."""
        self._commit()
        if self._journal is not None:
            self._journal.erase()

    def close(self) -> None:
        """Write pending records, remove old values, and close the file."""
        with suppress(JournalError):  # the waiting callers have received it
            self.erase()
        self._forget()

    def _loaded(self) -> Site:
        if self._site is None:
            self._journal = self._open_journal()
            try:
                self._site = self._make_site(self._journal.load())
            except BaseException:
                self._forget()
                raise
        return self._site

    def _forget(self) -> None:
        journal, self._journal, self._site = self._journal, None, None
        if journal is not None:
            journal.close()

    def _commit(self) -> None:
        """Write all pending records in one transaction, then resume the waiting callers, with an error if it fails."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            if self._journal is None:
                raise JournalError("the file was closed after an error")
            self._journal.commit([record for records, _ in waiting for record in records])
        except BaseException as error:
            self._forget()
            self.problem = _told(error)
            for _, written in waiting:
                if written is not None and not written.done():
                    written.set_exception(_told(error))
            raise
        for _, written in waiting:
            if written is not None and not written.done():
                written.set_result(None)

    def _commit_quietly(self) -> None:
        with suppress(JournalError):  # the waiting callers have received it
            self._commit()


def _told(error: BaseException) -> JournalError:
    """The error for one waiting caller, with the disk's error as its cause."""
    told = JournalError(str(error))
    told.__cause__ = error.__cause__ or error
    return told
