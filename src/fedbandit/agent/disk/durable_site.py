"""Runs events on a site and returns each result only after its records are on disk.

Events that arrive together share a transaction. A fast disk is written to at once. While a slow one is being written
to, in a thread, the next events run and gather: so a hundred callers wait for two commits at most, not for a hundred.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from time import monotonic, time  # noqa: TID251  # how long a commit takes; when what the audit trail tells of was done
from typing import NamedTuple, TypeVar

from fedbandit.agent.core.records import Record, Refused, Step, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.trail import UNSAID, Deed, Entry, Filter, Head
from fedbandit.agent.disk.journal import JournalError, SqliteJournal
from fedbandit.checks import InvalidArgument

_Result = TypeVar("_Result")

SLOW = 0.003
"""Seconds: where the last commit took longer, the next is written in a thread. To wake one up costs a tenth of that."""


class _Waiting(NamedTuple):
    """The records of an event, and who waits until they are on disk."""

    records: tuple[Record, ...]
    written: "asyncio.Future[None] | None"


class _Writing(NamedTuple):
    """Events whose records a thread is writing; or none, and it erases."""

    group: list[_Waiting]
    done: "Future[float]"
    erases: bool = False


class DurableSite:
    """Runs the events of one site in order of arrival, in one asyncio loop.

    The site is ahead of the disk, and nobody may see that. If the disk fails, none of the events has happened that
    were being written, and none that ran after them: the site is discarded, and reloaded from the file at the next
    event. So a full disk requires no restart.
    """

    def __init__(
        self,
        open_journal: Callable[[], SqliteJournal],
        make_site: Callable[[Stored], Site],
        now: Callable[[], float],
    ) -> None:
        """Open the file and load the site; raises ``JournalError`` if that fails. ``now``: by which anything is due."""
        self._open_journal, self._make_site, self._now = open_journal, make_site, now
        self._waiting: list[_Waiting] = []
        self._writing: _Writing | None = None
        self._thread = ThreadPoolExecutor(1, "journal")
        self._pace = 0.0  # seconds that the last commit took
        self._journal: SqliteJournal | None = None
        self._site: Site | None = None
        self.on_records: Callable[[tuple[Record, ...]], None] | None = None
        """Whom to tell of the records of each event that has any; they are not on disk yet."""
        self.problem: JournalError | None = None
        """Why a write failed; the runtime clears it when the disk accepts writes again."""
        self._loaded()

    # ---------------------------------------------------------------- events

    async def do(self, event: Callable[[Site], Step[_Result]], deed: Deed = UNSAID) -> _Result:
        """Run an event and return its result. ``Refused`` and ``InvalidArgument`` mean that nothing has changed.

        ``deed``: whose it is, for the audit trail, whose entries are part of the event.

        All that is due is settled before it, so that no decision or message depends on how many events there were.
        """
        now = self._now()
        while self._loaded().is_due(now):
            self._wait(self._stepped(lambda site: site.settle(now)).records, None)
        return await self.take(event, deed)

    async def take(self, event: Callable[[Site], Step[_Result]], deed: Deed = UNSAID) -> _Result:
        """The same, and nothing is settled before it: for a reward, whose time must not show."""
        try:
            step = self._stepped(event, deed)
        except (Refused, InvalidArgument):
            await self._on_disk(())  # the reason of a refusal must survive a crash
            raise
        await self._on_disk(step.records)
        return step.result

    def at_once(self, event: Callable[[Site], Step[_Result]]) -> _Result:
        """Run an event, and write its records with those of the next: for what shows nobody anything of this site.

        So what comes over a link does not wait for the disk.
        """
        step = self._stepped(event)
        if step.records:
            self._wait(step.records, None)
        return step.result

    def _stepped(self, event: Callable[[Site], Step[_Result]], deed: Deed = UNSAID) -> Step[_Result]:
        site = self._loaded()
        try:
            step = event(site)
            if not step.records:
                return step
            told = site.entries(step.records, deed, int(1000 * time()))
            return Step(step.result, (*step.records, *told)) if told else step
        except (Refused, InvalidArgument):
            raise
        except BaseException:
            self._commit()
            self._forget()  # half of the event may be in memory
            raise

    async def _on_disk(self, records: tuple[Record, ...]) -> None:
        """Wait until these records are on disk, and all from before them."""
        if not records and not self._waiting and self._writing is None:
            return  # all that the event can show is on disk
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait(records, written)
        await written

    def _wait(self, records: tuple[Record, ...], written: "asyncio.Future[None] | None") -> None:
        if not self._waiting and self._writing is None:
            asyncio.get_running_loop().call_soon(self._write_next)
        self._waiting.append(_Waiting(records, written))
        if records and self.on_records is not None:
            self.on_records(records)

    # ---------------------------------------------------------------- what is shown

    async def shown(self, read: Callable[[Site], _Result]) -> _Result:
        """What ``read`` finds now, once all that it may show is on disk. Others go on meanwhile.

        To look changes nothing: it writes no record, and opens no file that was closed after an error.
        """
        if self._site is None:
            raise _as_journal_error(self.problem or JournalError("the file is closed"))
        try:
            return read(self._site)
        finally:
            await self._on_disk(())  # also the reason of a refusal must survive a crash

    async def trail(self, wanted: Filter) -> tuple[list[Entry], Head]:
        """Entries of the audit trail, and its head; all of it is on disk."""
        journal = await self._idle()
        return journal.trail(wanted), journal.head

    async def rights(self) -> dict[tuple[str, str], Entry]:
        """What the audit trail knows last of everybody's rights, by kind and subject."""
        return (await self._idle()).rights()

    async def _idle(self) -> SqliteJournal:
        """The journal, once nothing is being written: it is for one thread at a time."""
        await self._on_disk(())
        while self._writing is not None:  # others have come meanwhile
            await self._on_disk(())
        if self._journal is None:
            raise _as_journal_error(self.problem or JournalError("the file is closed"))
        return self._journal

    @property
    def in_memory(self) -> Site:
        """The site as it is, ahead of the disk: to act upon, and not to show anybody."""
        return self._loaded()

    @property
    def arm_names(self) -> tuple[str, ...]:
        """Also of an arm whose addition is being written: a decision for it is written after that."""
        return self._loaded().arms.names

    async def erase(self) -> None:
        """Write pending records, then remove old values from the files: played rewards, and sums that were released.

        Where the disk is slow, others go on meanwhile. If it fails, nothing has changed.
        """
        await self._on_disk(())
        while self._writing is not None:  # others have come: the journal is for one thread at a time
            await self._on_disk(())
        if self._journal is None or self._pace <= SLOW:
            self._erase()
            return
        erased: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_thread([_Waiting((), erased)], self._erase, erases=True)
        await erased

    def _erase(self) -> float:
        if self._journal is not None:
            self._journal.erase()
        return self._pace

    def close(self) -> None:
        """Write pending records, remove old values, and close the file."""
        with suppress(JournalError):  # the waiting callers have received it
            self._commit()
            self._erase()
        self._forget()

    def _loaded(self) -> Site:
        if self._site is None:
            try:
                self._journal = self._open_journal()
                self._site = self._make_site(self._journal.load())
            except BaseException as error:
                self._forget()
                if isinstance(error, JournalError):
                    self.problem = error
                raise
        return self._site

    def _forget(self) -> None:
        journal, self._journal, self._site = self._journal, None, None
        if journal is not None:
            journal.close()

    # ---------------------------------------------------------------- the disk

    def _write_next(self) -> None:
        """Write what has gathered: here if the disk is fast, else in the thread."""
        if self._writing is not None or not self._waiting:
            return  # ``erase`` is at work, or an error has written it meanwhile
        if self._pace <= SLOW:
            with suppress(JournalError):  # the waiting callers have received it
                self._commit()
            return
        group = self._gathered()
        self._in_thread(group, lambda: self._written(group))

    def _in_thread(self, group: list[_Waiting], work: Callable[[], float], erases: bool = False) -> None:
        loop, done = asyncio.get_running_loop(), self._thread.submit(work)
        self._writing = _Writing(group, done, erases)
        done.add_done_callback(lambda _: _soon(loop, lambda: self._finish(done)))

    def _finish(self, done: "Future[float]") -> None:
        """The thread has written: resume the callers, and go on with what has gathered."""
        if self._writing is not None and self._writing.done is done:
            with suppress(JournalError):
                self._join()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._write_next)

    def _commit(self) -> None:
        """Write all pending records now, then resume the waiting callers, with an error if it fails."""
        self._join()
        if self._waiting:
            group = self._gathered()
            try:
                self._pace = self._written(group)
            except BaseException as error:
                self._fail(group, error)
                raise
            _resume(group)

    def _join(self) -> None:
        """Wait for the thread. The journal is nobody's but this loop's afterwards."""
        if self._writing is None:
            return
        error = self._writing.done.exception()
        (group, done, erases), self._writing = self._writing, None
        if error is not None and erases:
            _fail_waiting(group, error)  # and nobody else: no event depends on it
            return
        if error is not None:
            self._fail([*group, *self._gathered()], error)  # those that ran after it have not happened, either
            raise error
        self._pace = done.result()
        _resume(group)

    def _gathered(self) -> list[_Waiting]:
        group, self._waiting = self._waiting, []
        return group

    def _written(self, group: list[_Waiting]) -> float:
        """Write the records of some events in one transaction; how long the last one took."""
        if self._journal is None:
            raise JournalError("the file was closed after an error")
        records = [record for records, _ in group for record in records]
        began = monotonic()
        self._journal.commit(records)
        return monotonic() - began if records else self._pace

    def _fail(self, group: list[_Waiting], error: BaseException) -> None:
        self._forget()
        self.problem = _as_journal_error(error)
        _fail_waiting(group, error)


def _soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop was closed; ``close`` joins the thread
        loop.call_soon_threadsafe(callback)


def _resume(group: list[_Waiting]) -> None:
    for _, written in group:
        if written is not None and not written.done():
            written.set_result(None)


def _fail_waiting(group: list[_Waiting], error: BaseException) -> None:
    for _, written in group:
        if written is not None and not written.done():
            written.set_exception(_as_journal_error(error))


def _as_journal_error(error: BaseException) -> JournalError:
    """The error for one waiting caller, with the disk's error as its cause."""
    failed = JournalError(str(error))
    failed.__cause__ = error.__cause__ or error
    return failed
