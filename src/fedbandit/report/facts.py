"""Gathers what a report says: from a running agent over HTTP, or from the data folder of a site that has stopped."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbandit.agent.core.decisions import Retention
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.trail import MOST_SHOWN, Entry, Filter
from fedbandit.agent.disk.history_file import HISTORY_FILE, HistoryFile
from fedbandit.agent.disk.journal import STATE_FILE, JournalError, SqliteJournal, entries_of, look_at
from fedbandit.agent.http.evidence import evidence_of_all
from fedbandit.agent.http.past import Whose, points_in
from fedbandit.agent.http.snapshot import arms_body, site_state
from fedbandit.agent.http.state import ArmsBody, EvidenceBody, HistoryPoint, SiteState
from fedbandit.agent.process.config import SiteConfig

if TYPE_CHECKING:
    from fedbandit.agent.client import Client
    from fedbandit.agent.core.records import Stored

__all__ = ["Facts", "of_agent", "of_folder"]


@dataclass(frozen=True)
class Facts:
    """What one site knows of its federation; nothing in it is a raw reward.

    * ``at``: when, in seconds since 1970
    * ``evidence``: of all patients; ``strata``: of each stratum that the policy tells apart
    * ``is_running``: whether an agent has answered; else it is what the data folder holds
    * ``deeds``: what the site's audit trail has about arms; empty where the caller may not read it
    """

    at: float
    is_running: bool
    state: SiteState
    evidence: EvidenceBody
    arms: ArmsBody
    points: tuple[HistoryPoint, ...]
    strata: tuple[EvidenceBody, ...] = ()
    deeds: tuple[Entry, ...] = ()

    def who_made(self, change: str) -> str:
        """The person, or role, that made this change of an arm here; empty: not known."""
        return next((it.who for it in self.deeds if it.detail == change and it.what != "accept"), "")

    def who_accepted(self, change: str) -> str:
        """Who accepted it here; empty: nobody, or not known."""
        return next((it.who or it.how for it in self.deeds if it.detail == change and it.what == "accept"), "")


def of_agent(client: "Client", reference: str | None, at: float) -> Facts:
    """Ask a running agent; its errors are those of the client."""
    state, evidence = client.state(), client.evidence(reference)
    strata = tuple(client.evidence(evidence.reference, it.label) for it in state.answer.strata)
    points = tuple(client.history().points)
    return Facts(at, True, state, evidence, client.arms(), points, strata, _deeds(client))


def _deeds(client: "Client") -> tuple[Entry, ...]:
    from fedbandit.agent.client import AgentError

    try:
        found = client.audit_log(kind="arm", last=MOST_SHOWN).entries
    except AgentError as error:
        if error.code != "forbidden":
            raise
        return ()
    return tuple(Entry(**it.model_dump()) for it in found)


def of_folder(config: SiteConfig, reference: str | None, at: float) -> Facts:
    """Look into the folder of a stopped site; raises ``JournalError`` if an agent would refuse it."""
    stored = _stored(config)
    site = Site(config.name, config.terms, stored, keeps_rewards=config.keep_rewards, refused=config.refuse)
    limits = Retention(config.keep, config.expire_after)
    state = site_state(site, None, {}, {}, at, at, limits, {}, [], (0.0, 0.0))
    whose = Whose(site.name, config.terms.digest(), site.arms.names)
    try:
        points = points_in(HistoryFile(config.data / HISTORY_FILE), whose)
    except OSError:
        points = []
    deeds = entries_of(config.data / STATE_FILE, Filter(kind="arm"))
    evidence, *strata = evidence_of_all(site, reference, at)
    return Facts(at, False, state, evidence, arms_body(site), tuple(points), tuple(strata), tuple(deeds))


def _stored(config: SiteConfig) -> "Stored":
    """What the file of a stopped site holds; where a killed process has left a log, that is written to the file."""
    path = config.data / STATE_FILE
    if not path.exists():
        raise JournalError(f"{path}: {config.name} has no state yet, and its agent is not running")
    stored = look_at(path, config.name, config.terms)
    if stored is not None:
        return stored
    journal = SqliteJournal(path, config.name, config.terms, incarnation=1)
    try:
        return journal.load()
    finally:
        journal.close()
