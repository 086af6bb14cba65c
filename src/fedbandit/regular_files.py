"""Reads a file only if it is a regular one of reasonable size: a pipe or a device would make a running agent wait."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from fedbandit.checks import FileError

__all__ = ["read_regular"]

MOST = 2**24
"""The most bytes of a file."""


def read_regular(path: Path, check: Callable[[os.stat_result], None] | None = None) -> bytes:
    """The content of a file; ``check`` may refuse it by what the system knows of it. Never blocks on a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            kind = _KINDS.get(stat.S_IFMT(seen.st_mode), "something else")
            raise FileError(f"{path} is not a regular file, but {kind}")
        if seen.st_size > MOST:
            raise FileError(f"{path} has {seen.st_size} bytes; at most {MOST} are read")
        if check is not None:
            check(seen)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MOST)
    finally:
        os.close(descriptor)


_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
