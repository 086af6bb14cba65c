"""Checks a state file and the files beside it: their kind, owner and mode, and that they stay in their place.

Raw rewards are in these files, so nobody else may read them. A file behind a link, or with two names, could be opened
twice under two logs. And what is written to a file that was deleted or replaced is lost: nobody may be told of it.
"""

import os
import stat
from pathlib import Path

from fedbandit.agent.disk.secret_files import LEFTOVERS, OWNER_ONLY, write_together
from fedbandit.checks import FileError

__all__ = [
    "COUNTER",
    "GONE",
    "LOG",
    "REPLACED",
    "JournalError",
    "Place",
    "beside",
    "check_files",
    "has_log",
    "identity",
    "may_be_there",
    "remove_leftovers",
    "what_to_do",
    "write_secret",
]

LOG, COUNTER = "-wal", "-commits"

_INDEX = "-shm"

_BESIDE = (LOG, _INDEX, "-journal", COUNTER)

GONE = "the file is gone. Put it back, and the agent goes on; if it is lost, a restart begins a new life"

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
    restore = " Or begin a new life with what they hold: 'fedbandit restore'." if is_readable else ""
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
    for leftover in (*path.parent.glob(LEFTOVERS), beside(path, _INDEX)):
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
