"""Tells whether a disk that failed can be written again, and names its errors without paths."""

import os
import tempfile
from pathlib import Path

from fedbandit.agent.core.events import Step
from fedbandit.agent.core.records import Decision, Forgotten, Life
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import JournalError

__all__ = ["ROOM", "check_room", "in_words", "written_again"]

ROOM = 65_536
"""Bytes that must be free before a full disk counts as writable again."""


def check_room(folder: Path) -> None:
    """Raise ``JournalError`` if there is room for only a few more writes."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM)
    except OSError as error:
        reason = error.strerror or str(error)
        raise JournalError(f"{folder}: {reason}") from OSError(reason)


def written_again(site: Site) -> Step[None]:
    """An event that writes where a decision does, and changes nothing."""
    nobody = Decision("", 0, 0, 0.0)
    return Step(None, (nobody, Life(site.epoch, site.decided), Forgotten(nobody.id)))


def in_words(error: JournalError) -> str:
    """The disk's error, without the file's path, which HTTP must not reveal."""
    return f"the agent's journal: {error.__cause__ or 'it cannot be written'}"
