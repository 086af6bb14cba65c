"""Changes the state file of an agent that is not running."""

from fedbandit.agent.core.release_guard import Restored, records_of_new_incarnation
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.trail import Act, Deed, chained
from fedbandit.agent.disk.journal import STATE_FILE, JournalError, SqliteJournal
from fedbandit.agent.process.clock import new_incarnation
from fedbandit.agent.process.config import SiteConfig


def change_members(config: SiteConfig, name: str, excludes: bool, deed: Deed) -> None:
    """Exclude a member, or include it again."""
    journal = _opened(config)
    try:
        site, now = Site(config.name, config.terms, journal.load()), new_incarnation()
        step = site.exclude(name, now, deed.reason) if excludes else site.include(name)
        journal.commit([*step.records, *site.entries(step.records, deed, now)])
    finally:
        journal.close()


def restore(config: SiteConfig, deed: Deed) -> Restored:
    """Begin a new incarnation with a file that an agent refuses to open, since it is old or not whole.

    All that is not released is dropped: no decision is younger than the file. With one that an agent opens, the agent
    can ask its neighbours whether it is old, and keep what it collects meanwhile.
    """
    try:
        _opened(config).close()
    except JournalError:
        journal = _opened(config, accept_old=True)
    else:
        raise JournalError(
            f"{config.data / STATE_FILE} is whole, and {config.name}'s agent is not running: start it, and look at "
            "'held' in its state. If that is old, restore"
        )
    try:
        stored = journal.load()
        site = Site(config.name, config.terms, stored)
        own, everything = site.board.held(config.name), stored.numbering.decisions
        incarnation = max(new_incarnation(), site.presence.highest[0] + 1)
        told = None if own is None else own.bulletin
        names = site.arms.names
        records, restored = records_of_new_incarnation(stored, config.terms, names, incarnation, everything, told)
        acts = [Act("restore", "restore", detail=f"incarnation {incarnation}")]
        journal.commit([*records, *chained(stored.trail, acts, deed, new_incarnation())])
        journal.erase()
    finally:
        journal.close()
    return restored


def _opened(config: SiteConfig, accept_old: bool = False) -> SqliteJournal:
    path = config.data / STATE_FILE
    if not path.exists():
        raise JournalError(f"{path}: {config.name} has no state yet, and its agent is not running")
    return SqliteJournal(path, config.name, config.terms, incarnation=1, accept_old=accept_old)
