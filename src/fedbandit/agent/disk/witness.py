"""Remembers, in memory that no disk carries, how far a state file was: a process that starts again need ask nobody.

A small file on a memory file system (tmpfs) holds the ``Mark`` of a process that may release. It is written after every
commit and before anybody is told of it, without a sync. So it never says less than what was sent, and a process that
was killed between the two finds its file ahead of it. Whoever puts a disk back, or copies it, cannot put this back with
it: then the witness is ahead of the file, or is not there, or is another file's.

It counts for the same file in the same place, in the same boot, and for ``LASTS`` seconds after it was last written: in
a longer absence another process may have been started elsewhere with a copy. Without a memory file system there is no
witness, and neighbours are asked.
"""

import os
import stat
import struct
import time  # noqa: TID251  # how long ago it was written
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from zlib import crc32

from fedbandit.agent.core.release_guard import Mark
from fedbandit.agent.disk.secret_files import OWNER_ONLY
from fedbandit.agent.disk.state_files import identity

LASTS = 15.0
"""Seconds for which a witness counts that is not written any more. Whoever has none waits at least as long before it
releases (``runtime``): so a copy that is started elsewhere hears of a process that goes on with its witness."""

_IN_MEMORY = ("tmpfs", "ramfs")

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS = Path("/proc/self/mountinfo")

_PREFIX = "fedbandit-"

_CONTENT = struct.Struct("<8s36s16sqqQQdd")  # magic, boot, identity, run, commits, device, inode, both clocks
_CHECKSUM = struct.Struct("<I")
_MAGIC = b"witness1"


def memory_folder(wanted: Path | None) -> Path | None:
    """The folder for witnesses: the one that is wanted, or one that this user has; None if it is not in memory."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    candidates = [wanted] if wanted is not None else [*([Path(own)] if own else []), Path("/dev/shm")]  # noqa: S108
    usable = (it for it in candidates if _is_in_memory(it) and os.access(it, os.W_OK | os.X_OK))
    return next(usable, None) if _boot() else None


def _is_in_memory(folder: Path) -> bool:
    """Whether the kernel says so; a link to a disk, or a disk that was mounted there, is none."""
    try:
        device = folder.stat().st_dev
        mounts = _MOUNTS.read_text()
    except OSError:
        return False
    name = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        fields = line.split(" ")
        if fields[2] == name and fields[fields.index("-") + 1] in _IN_MEMORY:
            return folder.is_dir()
    return False


def _boot() -> bytes:
    """Which boot this is; empty where the system does not say."""
    try:
        return _BOOT.read_bytes().strip()[:36]
    except OSError:
        return b""


def _clocks() -> tuple[float, float]:
    """Since the boot, and the system's: a machine that was paused or rolled back may not notice by one of them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME), time.time()


class Witness:
    """The witness of one state file, for a journal's thread and the loop's."""

    def __init__(self, folder: Path | None, file: Path) -> None:
        """``folder``: in memory; None: there is no witness."""
        self._folder, self._state, self._boot = folder, file, _boot()
        self._lock = Lock()
        self._open: int | None = None
        self._mark: Mark | None = None
        self._where = 0, 0

    def vouches_for(self, file: Mark) -> bool:
        """Whether it knows a file as the latest, in the place where it is now."""
        found = None if self._folder is None else _read(self._folder / _name(file))
        if found is None:
            return False
        is_here = found.where == identity(self._state) and found.boot == self._boot
        return is_here and found.age <= LASTS and found.mark.vouches_for(file)

    def write(self, mark: Mark) -> None:
        """Say how far the file is: all of it is on disk, and nobody has been told yet."""
        with self._lock:
            self._write(mark)

    def touch(self) -> None:
        """The process lives."""
        with self._lock:
            if self._mark is not None:
                self._write(self._mark)

    def forget(self) -> None:
        """The process may not release any more: what it has said counts no longer."""
        with self._lock:
            self._forget()

    def close(self) -> None:
        """Let go of the file, and leave it to the next process."""
        with self._lock:
            self._close()

    def _write(self, mark: Mark) -> None:
        if self._folder is None:
            return
        self._mark = mark
        try:
            if self._open is None:
                self._where = identity(self._state) or self._where
                self._open = self._made(self._folder / _name(mark), mark)
            else:
                os.pwrite(self._open, self._encoded(mark), 0)
        except OSError:
            self._forget()  # or it would say less than what is sent

    def _forget(self) -> None:
        mark, self._mark = self._mark, None
        self._close()
        if mark is not None and self._folder is not None:
            (self._folder / _name(mark)).unlink(missing_ok=True)

    def _close(self) -> None:
        file, self._open = self._open, None
        if file is not None:
            os.close(file)

    def _made(self, path: Path, mark: Mark) -> int:
        """Let it appear whole, for its owner alone, in place of what an earlier process has left."""
        _sweep(path.parent)
        beside = path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)
        file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, OWNER_ONLY)
        try:
            os.pwrite(file, self._encoded(mark), 0)
            beside.replace(path)
        except BaseException:
            os.close(file)
            beside.unlink(missing_ok=True)
            raise
        return file

    def _encoded(self, mark: Mark) -> bytes:
        content = _CONTENT.pack(_MAGIC, self._boot, mark.identity, mark.run, mark.commits, *self._where, *_clocks())
        return content + _CHECKSUM.pack(crc32(content))


class _Found(NamedTuple):
    """What a witness says: how far its file was, where it was, in which boot, and how many seconds ago."""

    mark: Mark
    where: tuple[int, int]
    boot: bytes
    age: float


def _name(file: Mark) -> str:
    return f"{_PREFIX}{file.identity.hex()}"


def _read(path: Path) -> _Found | None:
    """What a witness of this user says; None if there is none that can be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        seen = os.fstat(file)
        is_own = stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid()
        if not is_own or stat.S_IMODE(seen.st_mode) != OWNER_ONLY:
            return None
        content = os.pread(file, _CONTENT.size + _CHECKSUM.size + 1, 0)
    except OSError:
        return None
    finally:
        os.close(file)
    body = content[: _CONTENT.size]
    if len(content) != _CONTENT.size + _CHECKSUM.size or content != body + _CHECKSUM.pack(crc32(body)):
        return None
    magic, boot, identity_of_file, run, commits, device, inode, *written = _CONTENT.unpack(body)
    age = max(now - then for now, then in zip(_clocks(), written, strict=True))
    return None if magic != _MAGIC else _Found(Mark(identity_of_file, run, commits), (device, inode), boot, age)


def _sweep(folder: Path) -> None:
    """Remove what agents of this user have left, and what no longer counts."""
    for path in folder.glob(f"{_PREFIX}*"):
        found = _read(path)
        if found is not None and found.age > LASTS:
            path.unlink(missing_ok=True)
