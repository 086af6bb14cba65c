"""One running agent: site, journal and links in one asyncio loop, from start to stop.

Clocks, random draws and files enter the pure site here. ``serve`` puts the HTTP API in front of it.
"""

import asyncio
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from fedbandit.agent.core.arms import ArmChange, Arms, ChangeKind
from fedbandit.agent.core.bulletin import MAX_RUN
from fedbandit.agent.core.decisions import Outcome, Request, Retention, SiteDraws, draws_for
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.history import notes_of_history
from fedbandit.agent.core.records import (
    AnotherRuns,
    ArmChanged,
    DecisionRecord,
    EvaluationReleased,
    Forgotten,
    Numbering,
    Record,
    Released,
    Renewed,
    Step,
    Stored,
)
from fedbandit.agent.core.release_guard import Mark, Presence, Restored
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.trail import Act, Deed, Entry, Filter, Head
from fedbandit.agent.disk.durable_site import DurableSite
from fedbandit.agent.disk.history_file import HISTORY_FILE, HistoryFile
from fedbandit.agent.disk.journal import STATE_FILE, JournalError, SqliteJournal
from fedbandit.agent.disk.secret_files import read_public
from fedbandit.agent.disk.state_files import GONE, REPLACED, identity
from fedbandit.agent.disk.witness import LASTS as WITNESS_LASTS
from fedbandit.agent.disk.witness import Witness, memory_folder
from fedbandit.agent.gossip.links import TWIN, Links
from fedbandit.agent.gossip.listener import Listener, Refusals
from fedbandit.agent.gossip.tls import TlsFiles
from fedbandit.agent.http.bodies import error_of
from fedbandit.agent.http.events import Feed, timed
from fedbandit.agent.http.evidence import evidence_body, evidence_of_all
from fedbandit.agent.http.past import Past, Whose
from fedbandit.agent.http.snapshot import (
    arms_body,
    certificate_warning,
    change_body,
    member_body,
    point_of,
    site_state,
)
from fedbandit.agent.http.state import ArmChangeBody, ArmsBody, EvidenceBody, HistoryBody, MemberBody, SiteState
from fedbandit.agent.process.clock import LASTS, PatientClock, SteadyClock, both_clocks, new_incarnation
from fedbandit.agent.process.config import ConfigError, SiteConfig, changed_at, check_insecure, read_config
from fedbandit.agent.process.logs import ForgottenDecisions, RestartLog, WarningLog
from fedbandit.agent.process.rights import Caller, acts_of_rights, deed_here, rights_in_words
from fedbandit.checks import FileError, InvalidArgument
from fedbandit.privacy.noise import measurement_of

FREE_SPACE = 65_536
"""Bytes that must be free before a full disk counts as writable again."""

EXPIRY_EVERY = 1.0
"""Seconds between checks for decisions that are due or have expired; then raw rewards that counted leave the disk."""

WATCH_EVERY = 1.0
"""Seconds between checks for a changed configuration file, or list of revoked certificates."""

WRONG_TOKENS_EVERY = 60.0
"""Seconds between two entries of the audit trail about people who could not sign in."""

PUBLISHED_EVERY = 1.0
"""Seconds between two bulletins that say nothing but how many decisions were made."""

SAVED_EVERY = 3.0
"""Seconds between two writes of the board: what is lost of it, neighbours send again."""

HISTORY_EVERY = 60.0
"""Seconds between two writes of the history: what a crash may lose of it, which nobody but people read."""

SETTLES = 2.0
"""Seconds that an agent waits after all neighbours have answered, and after the time in which the witness of another
process may count: every process publishes at least once in that time if it has anything to say."""

CLAIM_LASTS = 15.0
"""Seconds that a neighbour has to show the bulletin of this site that it claims to have: an honest one sends it at
once. Until then nothing of this site is shown to anybody."""

LONGEST_PAUSE = 5.0
"""Seconds without a turn of the loop after which the file must be confirmed again: a machine may have been paused."""

_GUARDRAILS = Deed("", "guardrails of the terms")

_LOG = logging.getLogger("fedbandit.agent")


class Agent:
    """A running site.

    What the HTTP API calls raises ``Refused`` with the reason, ``InvalidArgument`` with what is accepted, or
    ``JournalError`` if the disk fails; then nothing has changed.
    """

    def __init__(self, config: SiteConfig, tls: TlsFiles | None, tokens: Mapping[str, Caller] | None = None) -> None:
        """Open the state; raises ``JournalError`` or ``OSError`` with the reason if that fails.

        ``tokens``: who calls with each; None: anybody may do all. Here they are for the audit trail alone.
        """
        self.config, self._tls, self._tokens = config, tls, tokens
        self.refusals = Refusals(_LOG, time.monotonic)
        self.refused_callers = Refusals(_LOG, time.monotonic)
        self._wrong_tokens, self._told_of_wrong = 0, float("-inf")
        self._listener: Listener | None = None
        self._random, self._started, self._began = secrets.SystemRandom(), time.time(), time.monotonic()
        self._problem: str | None = "starting"
        self._software = version("fedbandit")
        self._changed, self._crl_changed = changed_at(config.path), self._crl_time(config)
        self._state_file: tuple[int, int] | None = None
        self._said_of_certificate: str | None = None
        try:
            config.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise JournalError(f"{config.data}: the data folder cannot be created: {error.strerror}") from None
        self._clock, self._patient = SteadyClock(), PatientClock(min(LASTS, 0.1 * config.expire_after))
        self.limits = Retention(config.keep, config.expire_after)
        self._forgotten = ForgottenDecisions(_LOG, self.limits, config.terms.reward_window > 0.0)
        self._presence = Presence(self._new_run())
        self._witness = Witness(memory_folder(config.witness), config.data / STATE_FILE)
        self._said, self._restarts = WarningLog(_LOG, config.terms.arms), RestartLog(_LOG)
        self._confirmed: float | None = None
        self._challenged: float | None = None
        self._awake = both_clocks()
        self._refused: Callable[[], Collection[str]] = lambda: self.config.refuse
        self._is_revoked: Callable[[bytes], bool] = lambda _: False  # until there are links, a few lines below
        self.site = DurableSite(self._open_journal, self._make_site, self._now)
        self.site.on_records = self._notice_news
        self._news = asyncio.Event()
        measurement_of(1.0)  # loads the noise library now, not during the first release
        self.feed = Feed(self._watched, self._trouble, "state")
        self._past = Past(self._started, self.feed, HistoryFile(config.data / HISTORY_FILE))
        self._load_history()
        refused = self.refusals.count
        self.links = Links(config.name, config.terms, self.site, tls, time.time, self._random, self._noted, refused)
        self._is_revoked = self.links.is_revoked
        self._tasks: list[asyncio.Task[None]] = []

    def _open_journal(self) -> SqliteJournal:
        path = self.config.data / STATE_FILE
        is_new = not path.exists()
        if is_new and self._state_file is not None:  # a new incarnation within this process would lack its links
            raise JournalError(f"{path}: {GONE}") from FileNotFoundError(GONE)
        if self._state_file not in (None, identity(path)):  # an older copy would release rewards a second time
            raise JournalError(f"{path}: {REPLACED}") from FileNotFoundError(REPLACED)
        journal = SqliteJournal(path, self.config.name, self.terms, new_incarnation())
        if is_new:
            _LOG.info("%s: no state yet: a new incarnation begins, with fresh batches of every arm", path)
        elif self._state_file is None:
            self._presence.is_vouched = self._witness.vouches_for(journal.mark)
        journal.tell = self._tell_witness
        self._state_file = identity(path)
        return journal

    def _tell_witness(self, mark: Mark) -> None:
        """What is on disk now may be sent next: the next process must find it in its file, or ask."""
        if self._presence.doubt is None:
            self._witness.write(mark)
        else:
            self._witness.forget()

    def _make_site(self, stored: Stored) -> Site:
        site = Site(
            self.config.name,
            self.terms,
            stored,
            presence=self._presence,
            keeps_rewards=self.config.keep_rewards,
            software=self._software,
            accepts=self.config.accepts,
            refused=self._refused(),
        )
        site.revoke({it for it in site.board.signers if self._is_revoked(it)})
        self._clock.catch_up(site.clock)
        return site

    # ---------------------------------------------------------------- the application

    @property
    def terms(self) -> Federation:
        """The terms of the federation."""
        return self.config.terms

    async def decide(self) -> DecisionRecord:
        """Hand out an arm; the decision is on disk when this returns."""
        now = self._clock.now()  # before anything is settled: at this time nothing is due any more
        return await self.site.do(lambda site: site.decide(now, self._draws(site)))

    async def request(self, request: Request) -> tuple[DecisionRecord, ...]:
        """Hand out the decisions of a request."""
        now = self._clock.now()
        return await self.site.do(
            lambda site: site.decide(now, [self._draws(site) for _ in range(request.count)], request)
        )

    def _draws(self, site: Site) -> SiteDraws:
        return draws_for(self.terms, self._random, len(site.arms.names))

    async def report(self, decision_id: str, reward: float) -> bool:
        """Accept a reward; False if it came too late."""
        self._before_report()
        return await self.site.take(lambda site: site.report(decision_id, reward))

    async def report_all(self, rewards: Sequence[tuple[str, float]]) -> tuple[Outcome, ...]:
        """Accept several rewards, in one transaction."""
        self._before_report()
        return await self.site.take(lambda site: site.report_all(rewards))

    def _before_report(self) -> None:
        """Without a window a report may release, so a pause must be noticed first. With one it looks at no clock.

        Else a report in the moment in which a clock is wrong would stop releases, and others would see that it came.
        """
        if not self.terms.reward_window:
            self._notice_pause()

    async def cancel(self, decision_id: str) -> None:
        """Take back a decision that was not used."""
        now = self._clock.now()
        await self.site.do(lambda site: site.cancel(decision_id, now))

    async def decision(self, decision_id: str) -> DecisionRecord:
        """A decision that is remembered; it is on disk."""
        return await self.site.shown(lambda site: site.decision(decision_id))

    async def log(self, after: int) -> tuple[list[DecisionRecord], Mapping[str, float]]:
        """All decisions beyond a number, and the rewards that are kept."""
        return await self.site.shown(lambda site: site.log(after))

    @property
    def arm_names(self) -> tuple[str, ...]:
        """The names of the arms, in the order of their numbers."""
        return self.site.arm_names

    async def arms(self) -> Arms:
        """The arms, and what became of them; all of it is on disk."""
        return await self.site.shown(lambda site: site.arms)

    async def arms_body(self) -> ArmsBody:
        """The response of ``GET /v1/arms``."""
        return await self.site.shown(arms_body)

    async def change_body(self, change: ArmChange) -> ArmChangeBody:
        """One change, and who has it."""
        return await self.site.shown(lambda site: change_body(site, change))

    async def change_arm(
        self, kind: ChangeKind, arm: str, deed: Deed, levels: Mapping[str, str] | None = None
    ) -> ArmChange:
        """Change an arm, for all patients or those with these levels, and say so at once."""
        at = int(1000 * time.time())
        change = await self.site.do(lambda site: site.change_arm(kind, arm, at, deed.reason, levels), deed)
        _LOG.warning("%s; %s", change.in_words(self.terms.context), deed.in_words())
        await self._publish()
        return change

    async def accept_arm(self, arm: str, retire: bool, deed: Deed) -> tuple[ArmChange, ...]:
        """Accept the changes of an arm that wait; a retirement only with ``retire``."""
        accepted = await self.site.do(lambda site: site.accept_arm(arm, retire), deed)
        for change in accepted:
            _LOG.warning("%s: accepted %s", change.in_words(self.terms.context), deed.in_words())
        return accepted

    async def member(self, name: str) -> MemberBody:
        """The response of ``GET /v1/members/NAME``."""
        return await self.site.shown(lambda site: member_body(site, name))

    async def exclude(self, name: str, deed: Deed) -> None:
        """A member's numbers no longer count here."""
        at = int(1000 * time.time())
        await self.site.do(lambda site: site.exclude(name, at, deed.reason), deed)
        _LOG.warning("%s is excluded %s", name, deed.in_words())

    async def include(self, name: str, deed: Deed) -> None:
        """They count again."""
        await self.site.do(lambda site: site.include(name), deed)
        _LOG.warning("%s counts again: included %s", name, deed.in_words())

    async def confirm(self, deed: Deed) -> None:
        """Take the operator's word that this process is the only one of its name, and its file the latest."""
        if (twin := self._twin) is not None and self._presence.doubt is not None:
            raise AnotherRuns(f"another process runs as this site: stop it first. {twin}")
        await self.site.do(lambda site: site.confirm(self._new_run()), deed)
        _LOG.warning("that this data folder is the latest is confirmed %s", deed.in_words())

    async def restore(self, deed: Deed) -> Restored:
        """Begin a new incarnation with an old file."""
        restored = await self.site.do(lambda site: site.restore(new_incarnation(), self._new_run()), deed)
        _LOG.warning(
            "a new incarnation has begun with an old data folder: %s; %s", restored.in_words(), deed.in_words()
        )
        return restored

    async def note(self, act: Act, deed: Deed) -> None:
        """Write to the audit trail what changes nothing of the site; on disk when this returns."""
        await self.site.do(lambda site: site.note(act), deed)

    async def _note_rights(self, config: SiteConfig) -> None:
        """Write what has changed of rights."""
        now = rights_in_words(self._tokens, self.site.in_memory.stored.key)
        if config.proxy is not None:
            now |= {("rights", f"group {name}"): ", ".join(sorted(it)) for name, it in config.proxy.groups.items()}
        if config.accepts:
            said = "anyone" if config.accepts == "anyone" else ", ".join(sorted(config.accepts))
            now["rights", "arms.accept_from"] = said
        now |= {("member", name): "members.refuse" for name in config.refuse}
        acts = [*acts_of_rights(now, await self.site.rights())]
        if acts:
            await self.site.do(lambda site: site.note(*acts), _by_file(config))

    async def trail(self, wanted: Filter) -> tuple[list[Entry], Head]:
        """Entries of the audit trail, and its head; all of it is on disk."""
        return await self.site.trail(wanted)

    async def note_login(self, what: Literal["sign in", "sign out", "refuse"], deed: Deed) -> None:
        """Somebody has signed in or out at the page, or could not; nothing of a token is in ``deed``.

        Whoever guesses must not fill the disk: of those that could not it says how many there were, once a minute.
        """
        if what != "refuse":
            await self.note(Act("login", what), deed)
            _LOG.info("%s: %s", what, deed.who)
            return
        self.refused_callers.count("sign-in", deed.how)
        self._wrong_tokens += 1
        if time.monotonic() - self._told_of_wrong >= WRONG_TOKENS_EVERY:
            count, self._wrong_tokens, self._told_of_wrong = self._wrong_tokens, 0, time.monotonic()
            await self.note(Act("login", what, detail=f"{count} wrong token{'' if count == 1 else 's'}"), deed)

    async def note_tokens(self) -> None:
        """Write what has changed of rights because a token has."""
        await self._note_rights(self.config)

    def _new_run(self) -> int:
        return 1 + self._random.randrange(MAX_RUN)

    async def not_ready(self) -> str | None:
        """Why the agent cannot serve now; None if it can."""
        if self._problem is not None:
            return self._problem
        try:
            await self.site.shown(lambda _: None)
        except JournalError as error:
            return error_of(error).detail.message
        return None if self.site.problem is None else error_of(self.site.problem).detail.message

    # ---------------------------------------------------------------- running

    async def start(self) -> None:
        """Listen for neighbours, dial them, expire old decisions, watch the configuration."""
        self._awake = both_clocks()
        if self.config.gossip is not None:
            self._listener = self.links.listen(self.config.gossip)
        await self.site.do(lambda site: site.open())
        await self.note(Act("start", "start", detail=f"fedbandit {self._software}"), deed_here(""))
        await self._note_rights(self.config)
        await self._accept(self.config)
        await self.links.refuse(self.config.refuse, None)
        self._refused = lambda: self.links.refused
        await self.links.use(self.config.neighbours)
        if self._listener is not None:  # only now: a neighbour that calls before it is known here would be refused
            self._listener.start()
        work = self._keep_house(), self._watch_configuration(), self._keep_publishing(), self._keep_board()
        self._tasks = [asyncio.create_task(it) for it in (*work, self._keep_history())]
        self._said.notice(await self.site.shown(self._warnings))
        self._problem = None

    @property
    def gossip_port(self) -> int | None:
        """Where neighbours can dial this agent."""
        return None if self._listener is None else self._listener.port

    async def hang_up(self) -> None:
        """Close all links, once."""
        if self._problem == "stopping":
            return
        self._problem = "stopping"
        self.feed.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.links.close()

    async def stop(self) -> None:
        """Stop all tasks, answer waiting callers, close the file."""
        await self.hang_up()
        with suppress(JournalError):
            await self._save_board()
            if self._tasks:  # it had started
                await self.note(Act("stop", "stop"), deed_here(""))
        with suppress(JournalError, OSError):
            self._past.save(self._whose, self._past.points)
        self.site.close()
        self._witness.close()

    async def _keep_house(self) -> None:
        """Expire decisions, settle what is due, erase old values, watch neighbours, certificate and disk."""
        said = None
        while True:
            self._notice_pause()
            self._awake = both_clocks()  # whatever fails below: the process does not stand still
            try:
                await self._look_at_disk()
                if self._presence.doubt is None:
                    self._witness.touch()
                else:
                    self._witness.forget()
                self.links.notice_silence()
                self._notice_expiry()
                await self._wait_for_neighbours()
                await self._enter_history()
                self._said.notice(await self.site.shown(self._warnings))
                self._past.note(
                    *await self.site.shown(lambda site: (point_of(site, self._clock.peek()), site.reported))
                )
                await self._forget_old()
                await self.site.erase()
                if said is not None:
                    _LOG.info("resolved: %s", said)
                said = None
            except Exception as error:  # this task must survive any error
                if str(error) != said:
                    said = str(error)
                    _LOG.error("%s", error, exc_info=not isinstance(error, JournalError))
            await asyncio.sleep(EXPIRY_EVERY)

    # ---------------------------------------------------------------- bulletins

    def _notice_news(self, records: Sequence[Record]) -> None:
        """A release, or a change of arms, goes out at once."""
        if any(isinstance(it, Released | EvaluationReleased | ArmChanged | Renewed) for it in records):
            self._news.set()

    async def _keep_publishing(self) -> None:
        """Publish what is new at once; how many decisions were made, at most once a second."""
        said = None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(PUBLISHED_EVERY):
                    await self._news.wait()
            self._news.clear()
            try:
                await self._publish()
                said = None
            except Exception as error:  # this task must survive any error
                if str(error) != said:
                    said = str(error)
                    _LOG.error("no bulletin: %s", error, exc_info=not isinstance(error, JournalError))

    async def _publish(self) -> None:
        """Write this site's next bulletin, if there is anything new in it, then send it."""
        now = time.time()
        await self._guard(now)
        if not self.site.in_memory.has_news(now):
            return
        signed = await self.site.do(lambda site: site.publish(self.links.sign, now))
        if signed is not None:
            self.links.announce(signed)

    async def _guard(self, now: float) -> None:
        """Suspend what the guardrails of the terms do not allow."""
        if self.site.in_memory.needs_guarding():
            for change in await self.site.do(lambda site: site.guard(int(1000 * now)), _GUARDRAILS):
                _LOG.warning("%s", change.in_words(self.terms.context))

    async def _keep_board(self) -> None:
        """Write what has come of other sites; where the disk fails, it comes again."""
        said = None
        while True:
            await asyncio.sleep(SAVED_EVERY)
            try:
                await self._save_board()
                said = None
            except JournalError:
                continue  # house-keeping says so
            except Exception as error:  # this task must survive any error
                if str(error) != said:
                    said = str(error)
                    _LOG.exception("the board was not written")

    async def _save_board(self) -> None:
        await self.site.take(lambda site: site.board_rows())

    # ---------------------------------------------------------------- the history

    @property
    def _whose(self) -> Whose:
        return Whose(self.config.name, self.terms.digest(), self.site.arm_names)

    def _load_history(self) -> None:
        try:
            self._past.load(self._whose, self._clock.peek())
        except OSError as error:
            _LOG.error("%s: the history cannot be read, and begins anew: %s", HISTORY_FILE, error.strerror or error)

    async def _keep_history(self) -> None:
        """Write what is new of the history, in a thread: nobody waits for it."""
        said = None
        while True:
            await asyncio.sleep(HISTORY_EVERY)
            try:
                await asyncio.to_thread(self._past.save, self._whose, self._past.points)
                said = None
            except JournalError:
                continue  # house-keeping says so
            except Exception as error:  # this task must survive any error
                if str(error) != said:
                    said = str(error)
                    words = getattr(error, "strerror", None) or error
                    _LOG.error("the history was not written: %s", words, exc_info=not isinstance(error, OSError))

    # ---------------------------------------------------------------- bulletins on their way

    def _noted(self, neighbour: str, at: float, sent: bool, site: str) -> None:
        """A bulletin has gone over a link."""
        self.feed.bulletin(neighbour, at, sent, site)

    # ---------------------------------------------------------------- the house

    async def _forget_old(self) -> None:
        """By age only once the time is sure; before, because of ``keep`` alone."""
        now, limits = self._patient.now(), self.limits
        before = 0.0 if now is None else now - limits.expire_after
        while (expired := await self.site.do(lambda site: site.expire(before, limits.keep))).total:
            self._forgotten.count(expired)
        self._forgotten.say(time.monotonic())

    async def _look_at_disk(self) -> None:
        if self._state_file not in (None, identity(self.config.data / STATE_FILE)):
            self.site.close()  # writes to a deleted file are lost: acknowledge nothing
        if self.site.problem is not None:
            check_free_space(self.config.data)
            await self.site.do(_written_again)
            self.site.problem = None

    async def _watch_configuration(self) -> None:
        """Apply changed neighbours, members to refuse, consent, and revoked certificates."""
        said = None
        while True:
            await asyncio.sleep(WATCH_EVERY)
            changed, crl_changed = changed_at(self.config.path), self._crl_time(self.config)
            if (changed, crl_changed) == (self._changed, self._crl_changed):
                continue
            try:
                await self._take_over()
            except Exception as error:  # this task must survive any error
                if (changed, str(error)) != said:
                    said = changed, str(error)
                    known = isinstance(error, FileError | InvalidArgument | OSError | JournalError)
                    _LOG.error("the changed configuration was not applied: %s", error, exc_info=not known)
                if not isinstance(error, ConfigError):
                    continue  # not the file's fault: try again
            else:
                if said is not None:
                    _LOG.info("%s is in order again", self.config.path.name)
                said = None
            self._changed, self._crl_changed = changed, crl_changed

    async def _take_over(self) -> None:
        config, path = read_config(self.config.path), self.config.path
        if config.name != self.config.name:
            raise ConfigError(f"{path}: name is {config.name!r}, but {self.config.name!r} is running; restart to apply")
        if self._tls is None:
            check_insecure(config, insecure=True)
        files = None if self._tls is None else self.config.tls
        await self._note_rights(config)  # first: after a kill the file is applied at the next start
        await self.links.refuse(config.refuse, None if files is None or files.crl is None else read_public(files.crl))
        if config.refuse != self.config.refuse:
            _LOG.warning(
                "applied [members] in %s: refused: %s", path.name, ", ".join(sorted(config.refuse)) or "nobody"
            )
        await self.links.use(config.neighbours)
        if config.neighbours != self.config.neighbours:
            _LOG.info("applied the neighbours in %s", path.name)
        if config.accepts != self.config.accepts:
            await self._accept(config)
            _LOG.info("applied [arms] in %s", path.name)
        taken = replace(
            self.config,
            neighbours=config.neighbours,
            accepts=config.accepts,
            refuse=config.refuse,
            not_linked=config.not_linked,
        )
        self._restarts.notice(taken, config)
        self.config = taken

    @staticmethod
    def _crl_time(config: SiteConfig) -> tuple[int, int, int]:
        return changed_at(config.tls.crl) if config.tls is not None and config.tls.crl is not None else (0, 0, 0)

    async def _accept(self, config: SiteConfig) -> None:
        """Accept what waits, and comes from whom the configuration trusts."""
        for change in await self.site.do(lambda site: site.accept_from(config.accepts), _by_file(config)):
            _LOG.warning("%s: accepted", change.in_words(self.terms.context))

    async def _wait_for_neighbours(self) -> None:
        """Release again some time after all neighbours have answered: another process would speak meanwhile.

        A neighbour that claims to have a bulletin of this site has ``CLAIM_LASTS`` to show it.
        """
        if not self.site.in_memory.presence.is_challenged:
            self._challenged = None
        elif self._challenged is None:
            self._challenged = time.monotonic()
        elif time.monotonic() - self._challenged >= CLAIM_LASTS:
            await self.site.do(lambda site: site.dismiss_claims())
        if self.site.in_memory.waits != "for none":
            self._confirmed = None
            return
        self._confirmed = time.monotonic() if self._confirmed is None else self._confirmed
        now = time.monotonic()
        if now - self._confirmed >= SETTLES and now - self._began >= WITNESS_LASTS + SETTLES:
            await self.site.do(lambda site: site.go_on())

    async def _enter_history(self) -> None:
        """Once for ever, as soon as this site may release."""
        history, now = self.config.history, self._clock.now()
        if history is not None and self.site.in_memory.lacks(history):
            for name in await self.site.do(lambda site: site.enter_history(history, now)):
                _LOG.info("[history]: %d rewards of %s are entered", history.arms[name].rewards, name)

    def _now(self) -> float:
        """The time of an event; before any, a pause is noticed."""
        self._notice_pause()
        return self._clock.now()

    def _notice_pause(self) -> None:
        """A process that stood still does not know whether another was started with its file meanwhile."""
        if max(now - then for now, then in zip(both_clocks(), self._awake, strict=True)) > LONGEST_PAUSE:
            self._awake = both_clocks()
            with suppress(JournalError):  # then nothing is released, either
                self.site.in_memory.pause(self._new_run())

    # ---------------------------------------------------------------- what is shown

    async def state(self) -> SiteState:
        """The response of ``GET /v1/state``; everything in it is on disk."""
        return await self.site.shown(self._shown)

    async def _watched(self) -> tuple[SiteState, float]:
        """The same for streams, and how long it took."""
        return await self.site.shown(lambda site: timed(lambda: self._shown(site)))

    def _shown(self, site: Site) -> SiteState:
        seen = site, self._tls, self.links.statuses, self.refusals.counts(), self._started, time.time(), self.limits
        return site_state(*seen, dict(self._forgotten.counts), self._warnings(site), self._past.per_minute)

    def _trouble(self, error: Exception | None) -> str | None:
        """What streams are told besides the state."""
        problem = self.site.problem if error is None else error
        return self._problem if problem is None else error_of(problem).detail.message

    async def history(self) -> HistoryBody:
        """The response of ``GET /v1/history``."""
        return self._past.history((await self.arms()).names)

    async def evidence(self, reference: str | None, stratum: str | None = None) -> EvidenceBody:
        """The response of ``GET /v1/evidence``."""
        return await self.site.shown(lambda site: evidence_body(site, reference, time.time(), stratum))

    async def evidence_of_all(self, reference: str | None) -> list[EvidenceBody]:
        """That of all patients, and of each stratum."""
        return await self.site.shown(lambda site: evidence_of_all(site, reference, time.time()))

    def _warnings(self, site: Site) -> list[str]:
        said = [*site.warnings(), *site.warnings_of_forgetting(self.limits, self._clock.peek())]
        said += notes_of_history(self.config.history, site.arms.names, site.history)
        if (twin := self._twin) is None:
            return said
        words = f"another process runs as this site: stop it first, or this one. {twin}"
        if site.doubt is not None and site.doubt.why == "unconfirmed":
            said = said[1:]  # it offers to confirm, which is refused
        return [words, *said]

    @property
    def _twin(self) -> str | None:
        """Which neighbours are linked with another process of this name, in words: they refuse this one for that."""
        words = TWIN.format(self.config.name)
        found = [name for name, it in self.links.statuses.items() if not it.linked and words in (it.last_error or "")]
        if not found:
            return None
        return f"{', '.join(found)} {'is' if len(found) == 1 else 'are'} linked with it, and it answers"

    def _notice_expiry(self) -> None:
        """Log once a day that the certificate expires soon."""
        warning = certificate_warning(self._tls, time.time())
        if warning is not None and warning != self._said_of_certificate:
            _LOG.warning("%s", warning)
        self._said_of_certificate = warning


def _by_file(config: SiteConfig) -> Deed:
    """Of what the configuration says: who has written it is not known."""
    return Deed("", config.path.name)


def check_free_space(folder: Path) -> None:
    """Raise ``JournalError`` if there is room for only a few more writes."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, FREE_SPACE)
    except OSError as error:
        reason = error.strerror or str(error)
        raise JournalError(f"{folder}: {reason}") from OSError(reason)


def _written_again(site: Site) -> Step[None]:
    """An event that writes where a decision does, and changes nothing."""
    nobody = DecisionRecord("", 0, 0, 0.0)
    return Step(None, (nobody, Numbering(site.incarnation, site.decided), Forgotten(nobody.id)))
