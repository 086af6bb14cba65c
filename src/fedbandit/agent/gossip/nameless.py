"""Listening sockets without a name, which only this process reaches: there gRPC listens and dials."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["Nameless", "nameless"]

Made = TypeVar("Made")


class Nameless:
    """A listening socket in no folder: the way to it is a handle of this process."""

    def __init__(self, handle: int) -> None:
        """Keep a handle to the socket's file, which has been removed."""
        self._handle = handle
        self.path = f"/proc/self/fd/{handle}"

    def close(self) -> None:
        """Forget it."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


def nameless(listen: Callable[[str], Made]) -> tuple[Made, Nameless]:
    """Let ``listen`` make a socket at a path, and remove the path at once: a killed process leaves nothing behind."""
    folder = tempfile.mkdtemp(prefix="fedbandit-")  # nobody else may enter it
    inside = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    path = f"/proc/self/fd/{inside}/door"  # short, wherever the folder is: the path of a socket has 107 bytes at most
    try:
        made = listen(path)
        return made, Nameless(os.open(path, os.O_PATH))
    finally:
        Path(path).unlink(missing_ok=True)
        os.close(inside)
        Path(folder).rmdir()
