"""Counts the commits of a state file in a small file beside it, so that lost ones are noticed.

The number is written after each commit, when the commit is on disk, and is itself not synced. So it can be behind the
number in the state file, after a kill or a power cut, but never ahead: a counter that is ahead proves that commits
which were acknowledged are missing. A log that was cut or removed does that, which SQLite takes for the end of an
unfinished write, and so does an older copy of the file. Both files hold the same random identity.

The counter is there before the file: a file without one, or with another file's, was put together by hand. It could
be of any age, so it is refused, too.
"""

import os
import struct
from pathlib import Path
from zlib import crc32

from fedbandit.agent.disk.state_files import COUNTER, JournalError, beside, what_to_do, write_secret

__all__ = ["IDENTITY_SIZE", "CommitCounter"]

IDENTITY_SIZE = 16

_CONTENT = struct.Struct("<8s16sQ")
_CHECKSUM = struct.Struct("<I")
_MAGIC = b"commits1"


class CommitCounter:
    """The counter beside the state file at ``path``."""

    def __init__(self, path: Path) -> None:
        """Read it, if there is one."""
        self._state, self._path = path, beside(path, COUNTER)
        self._file: int | None = None
        self.identity = b""
        """Of the file whose commits it counts."""
        self.commits: int | None = None
        """The number at the start; None without a counter that can be read."""
        self._is_damaged = False
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._refuse(f"{self._path.name}: {error.strerror}") from error
        is_whole = len(content) == _CONTENT.size + _CHECKSUM.size and content == _sealed(content[: _CONTENT.size])
        if is_whole and content.startswith(_MAGIC):
            _, self.identity, self.commits = _CONTENT.unpack_from(content)
        else:
            self._is_damaged = True

    def _refuse(self, reason: str) -> JournalError:
        reason = f"{reason}. {what_to_do(self._state)}"
        error = JournalError(f"{self._state}: {reason}")
        error.__cause__ = OSError(reason)
        return error

    def check_new(self, present: str) -> None:
        """For a file that has no counter yet: refuse one that has counted, since a later file was here."""
        if self._is_damaged or self.commits:
            number = "some" if self.commits is None else self.commits
            raise self._refuse(f"{present}, but {self._path.name} has counted {number} commits of a later file")

    def check(self, identity: bytes, commits: int) -> None:
        """Refuse a file that is not this counter's, or lacks commits."""
        if self.commits is None:
            state = "damaged" if self._is_damaged else "missing"
            raise self._refuse(f"{self._path.name} is {state}: nothing tells whether the file lacks commits")
        if self.identity != identity:
            raise self._refuse(f"{self._path.name} is that of another file")
        if self.commits > commits:
            raise self._refuse(
                f"{self.commits - commits} commits that were acknowledged are missing: it has {commits}, and "
                f"{self._path.name} has counted {self.commits}. The log {self._state.name}-wal was removed or cut, or "
                "an older copy was put in place"
            )

    def make(self, identity: bytes, replace: bool) -> None:
        """Write a counter that has counted nothing, on disk before the file that it is for."""
        write_secret(self._path, _encoded(identity, 0), replace)
        self.identity, self.commits, self._is_damaged = identity, 0, False

    def open(self) -> None:
        """Get ready to count."""
        try:
            self._file = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise self._refuse(f"{self._path.name}: {error.strerror}") from error

    def count(self, commits: int) -> None:
        """Write the number of commits, all of which are on disk: not at the start, when the log may not be synced."""
        if self._file is not None:
            os.pwrite(self._file, _encoded(self.identity, commits), 0)

    def close(self) -> None:
        """Let go of the file."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def _encoded(identity: bytes, commits: int) -> bytes:
    return _sealed(_CONTENT.pack(_MAGIC, identity, commits))


def _sealed(content: bytes) -> bytes:
    return content + _CHECKSUM.pack(crc32(content))
