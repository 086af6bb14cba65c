"""Checks a state file and the files beside it: kind, owner, mode, their place, and that no commit is lost.

Raw rewards are in these files, so nobody else may read them. A file behind a link, or with two names, could be opened
twice under two logs. And what is written to a file that was deleted or replaced is lost: nobody may be told of it.

A small file beside the state file counts its commits. The number is written after each commit, when the commit is on
disk, and is itself not synced. So it can be behind the number in the state file, after a kill or a power cut, but never
ahead: a counter that is ahead proves that commits which were acknowledged are missing. A log that was cut or removed
does that, which SQLite takes for the end of an unfinished write, and so does an older copy of the file. Both files hold
the same random identity. The counter is there before the file: a file without one, or with another file's, was put
together by hand. It could be of any age, so it is refused, too.
"""

import os
import stat
import struct
from pathlib import Path
from zlib import crc32

from fedbandit.agent.disk.secret_files import LEFTOVERS, OWNER_ONLY, write_together
from fedbandit.checks import FileError

LOG, COUNTER = "-wal", "-commits"

INDEX = "-shm"
"""Of the log; SQLite makes it when the file is opened."""

_BESIDE = (LOG, INDEX, "-journal", COUNTER)

GONE = "the file is gone. Put it back, and the agent goes on; if it is lost, a restart begins a new incarnation"

REPLACED = "another file is in its place; a restart continues with that one, whatever it holds"

_LOG_GONE = "the file's log was removed or replaced"

_RECENT = 3_000_000_000
"""Nanoseconds within which two changes of a folder can have the same time: coarse clocks have steps of two seconds."""


class JournalError(RuntimeError):
    """The file cannot be used or written, and why."""


def beside(path: Path, suffix: str) -> Path:
    """The file beside a state file with this suffix."""
    return path.with_name(path.name + suffix)


def what_to_do(path: Path, is_readable: bool = True) -> str:
    """How an operator goes on with files that are refused because they are not whole or not the latest."""
    restore = " Or begin a new incarnation with what they hold: 'fedbandit restore'." if is_readable else ""
    return (
        f"Put back all files {path.name}* as they last were, of one time.{restore} Or begin with nothing: move "
        f"{path.parent} away, and start"
    )


def check_files(path: Path) -> None:
    """Refuse what others can read, what belongs to another user, links, an empty file, and a log without its file."""
    try:
        _check(path.parent, path.parent.stat(), is_folder=True)
    except OSError as error:
        raise JournalError(f"{path}: unable to open: {error.strerror}") from OSError(error.strerror)
    for file in (path, *(beside(path, suffix) for suffix in _BESIDE)):
        try:
            found = file.lstat()
        except FileNotFoundError:
            continue
        _check(file, found, is_folder=False)
        if file == path and found.st_size == 0:
            raise _refused(path, f"it is empty: 0 bytes. {what_to_do(path, is_readable=False)}")
    if not path.exists() and has_log(path):
        raise _refused(
            path, f"it is missing, but its log {path.name}{LOG} is here. {what_to_do(path, is_readable=False)}"
        )


def may_be_there(path: Path) -> bool:
    """Whether there is such a file, or this user may not look: an agent makes its folder for itself alone."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def has_log(path: Path) -> bool:
    """Whether there is a log with anything in it: the process before was killed, or still runs."""
    log = beside(path, LOG)
    return log.exists() and log.stat().st_size > 0


def _check(path: Path, found: os.stat_result, is_folder: bool) -> None:
    if not (stat.S_ISDIR if is_folder else stat.S_ISREG)(found.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "of another kind"
        raise _refused(path, f"it must be a {'folder' if is_folder else 'plain file'}, and is {kind}")
    if found.st_uid != os.geteuid():
        command = f"chown {os.geteuid()} {path}"
        raise _refused(
            path, f"it belongs to the user {found.st_uid}, and this process runs as {os.geteuid()}: {command}"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        command = f"chmod {'700' if is_folder else '600'} {path}"
        raise _refused(path, f"it has mode {mode:04o}, open to others than its owner, and holds raw rewards: {command}")


def _refused(path: Path, reason: str) -> JournalError:
    error = JournalError(f"{path}: {reason}")
    error.__cause__ = OSError(reason)
    return error


def write_secret(path: Path, content: bytes, replace: bool = False) -> None:
    """Let a file appear with all of its content, on disk, for its owner alone."""
    try:
        write_together({path: (content, OWNER_ONLY)}, replace)
    except FileError as error:
        raise JournalError(str(error)) from error
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from OSError(error.strerror)


def remove_leftovers(path: Path) -> None:
    """Remove what a crash or a refusal has left; refuse a file with a second name. For the file's one process."""
    for leftover in (*path.parent.glob(LEFTOVERS), beside(path, INDEX)):
        leftover.unlink(missing_ok=True)
    if path.stat().st_nlink > 1:
        raise _refused(path, "it has a second name, a hard link: two agents could open it with two logs. Copy it")


class Place:
    """Where an open file and its log are: whether writes still go to the files of these names.

    Whoever removes or replaces a file changes its folder. So it costs one look at the folder, unless that has changed
    so recently that another change could have the same time.
    """

    def __init__(self, path: Path) -> None:
        """For a file that has just been opened."""
        self._file, self._log = path, beside(path, LOG)
        self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._is_file, self._is_log = identity(self._file), identity(self._log)
        self._changed = 0

    def check(self) -> None:
        """Raise ``JournalError`` if the file or its log was removed or replaced. Call it after every commit."""
        changed = os.fstat(self._folder).st_ctime_ns
        if changed != self._changed:
            written = self._check_files()
            self._changed = changed if written - changed > _RECENT else 0

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._folder)

    def _check_files(self) -> int:
        """Look at both files; when the log was written, by the clock that dates the folder."""
        found = identity(self._file)
        if found != self._is_file or found is None:
            reason = GONE if found is None else REPLACED
            raise JournalError(f"{self._file}: {reason}") from FileNotFoundError(reason)
        log = identity(self._log)
        if self._is_log is None:
            self._is_log = log  # SQLite makes it with the first commit
        if log is None or log != self._is_log:
            raise JournalError(f"{self._file}: {_LOG_GONE}") from FileNotFoundError(_LOG_GONE)
        return self._log.stat().st_mtime_ns


def identity(path: Path) -> tuple[int, int] | None:
    """The identity of a file, independent of its name; None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


# ---------------------------------------------------------------- the counter of commits


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
