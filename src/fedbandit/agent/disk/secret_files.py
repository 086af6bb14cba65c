"""Reads secret files only if nobody else can read them, and writes files atomically.

Their content never appears in a message.
"""

import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedbandit.checks import FileError
from fedbandit.toml_files import read_regular

OWNER_ONLY, READABLE = 0o600, 0o644

_UNFINISHED = ".new-"

LEFTOVERS = f"{_UNFINISHED}*"
"""The names of files that a crash has left unfinished."""


def read_public(path: Path) -> bytes:
    """The content of a public file."""
    return _read(path, secret=False)


def read_secret(path: Path) -> bytes:
    """The content of a file that only its owner can access; refuses any other mode."""
    return _read(path, secret=True)


def _read(path: Path, secret: bool) -> bytes:
    def check(seen: os.stat_result) -> None:
        mode = stat.S_IMODE(seen.st_mode)
        if secret and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise FileError(f"{path} has mode {mode:04o}, open to others than its owner: chmod 600 {path}")

    try:
        return read_regular(path, check)
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None


def write_together(files: Mapping[Path, tuple[bytes, int]], replace: bool = False) -> None:
    """Write files, each with its content and mode.

    Every file appears atomically, and all are on disk when this returns. If a file exists, none is written; with
    ``replace``, existing files are replaced one after the other.
    """
    waiting: dict[Path, Path] = {}
    placed: list[Path] = []
    try:
        for path, (content, mode) in files.items():
            if not replace and path.exists():
                raise FileError(f"{path} exists already")
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            waiting[path] = _written_beside(path, content, mode)
        for path, beside in waiting.items():
            if replace:
                beside.replace(path)
            else:
                path.hardlink_to(beside)  # unlike a rename, this never replaces a file
                placed.append(path)
    except BaseException:
        _remove(placed)
        raise
    finally:
        _remove(waiting.values())
    for folder in {path.parent for path in files}:
        _sync(folder)


def _written_beside(path: Path, content: bytes, mode: int) -> Path:
    """Write the content to a temporary file in the same folder, never readable by others."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=_UNFINISHED)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(name).unlink()
        raise
    return Path(name)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
