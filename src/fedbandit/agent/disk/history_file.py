"""Keeps lines of text in a small file of a site's data folder: how its numbers moved, so that a restart forgets little.

It is a convenience, and no promise rests on it. A line has a checksum: one that a crash has cut off, or that is
damaged, is left out. New lines are appended; the file is written anew, as a whole, only when many of its lines are not
needed any more. What cannot be read or written is said, and an agent runs without it.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from fedbandit.agent.disk.secret_files import OWNER_ONLY, write_together

__all__ = ["HISTORY_FILE", "HistoryFile"]

HISTORY_FILE = "history.jsonl"
"""Its name in a site's data folder."""

LARGEST = 64 * 2**20
"""Bytes of a file that is read: an agent's own stays far below."""


class HistoryFile:
    """A heading and lines, all of them without line breaks."""

    def __init__(self, path: Path) -> None:
        """Of this file, which need not be there."""
        self._path = path
        self.num_lines = 0
        """Lines in the file, as far as known."""

    def read(self) -> tuple[str, list[str]]:
        """The heading and the lines that are whole; nothing if there is no file. ``OSError`` if it cannot be read."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return "", []
        with os.fdopen(descriptor, "rb") as file:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode) or seen.st_size > LARGEST:
                raise OSError(None, "it is no plain file, or far too large", str(self._path))
            content = file.read()
        whole = [_whole(line) for line in content.split(b"\n")]
        self.num_lines = len(whole) - 1
        heading = whole[0]
        return ("", []) if heading is None else (heading, [line for line in whole[1:] if line is not None])

    def append(self, lines: Sequence[str]) -> None:
        """Add lines to a file that has its heading; they are on disk when this returns."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            # The first line break ends what a crash may have cut off.
            file.write(b"\n" + b"\n".join(map(_checked, lines)))
            file.flush()
            os.fsync(descriptor)
        self.num_lines += len(lines)

    def replace(self, heading: str, lines: Sequence[str]) -> None:
        """Write it anew; a crash leaves the old file or the new one."""
        if not self._path.parent.is_dir():
            raise FileNotFoundError(None, "its folder is gone", str(self._path))
        content = b"\n".join(map(_checked, (heading, *lines)))
        write_together({self._path: (content, OWNER_ONLY)}, replace=True)
        self.num_lines = len(lines)


def _checked(line: str) -> bytes:
    content = line.encode()
    return b"%08x %s" % (crc32(content), content)


def _whole(line: bytes) -> str | None:
    """What stands in a line with a checksum; None if it is not whole."""
    checksum, _, content = line.partition(b" ")
    try:
        return content.decode() if int(checksum, 16) == crc32(content) else None
    except ValueError:
        return None
