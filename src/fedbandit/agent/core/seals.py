"""Seals: with them neighbours can show a site that its file is old, or that another process has its name.

With every message a site says how far it is, sealed with the key in its file. Its neighbour keeps the seals and returns
them. It can neither check nor forge one: so it can withhold what it has heard, but not invent it.
"""

import struct
from dataclasses import dataclass
from hashlib import blake2b

from fedbandit.checks import InvalidArgument, whole_number

__all__ = ["MAX_RUN", "NOTHING_TOLD", "TAG_SIZE", "Seal", "Told", "as_text", "from_text", "is_genuine", "sealed"]

TAG_SIZE = 16

MAX_RUN = 2**63 - 1
"""Runs are drawn from 1 to this; 0: none."""

_NUMBERS = struct.Struct("<qqqqqq?")


@dataclass(frozen=True, slots=True)
class Seal:
    """How far a site was when it sent a message over a link.

    * ``epoch``: its life on this link
    * ``releases``: how often it had released anything
    * ``version``: how often the link had been written, as it knew
    * ``run``: the process that sent it
    * ``other``: another process of the site's name, of which the neighbour had told it; 0: of none
    * ``parent``: the process that had opened the file before it; 0: none
    * ``sure``: its file had been confirmed, so that it may have released
    * ``tag``: 128 bits that only the site's key tells
    """

    epoch: int
    releases: int
    version: int
    run: int
    other: int
    parent: int
    sure: bool
    tag: bytes

    def __post_init__(self) -> None:
        """Refuse what no site seals."""
        whole_number("seal.epoch", self.epoch, 1, MAX_RUN)
        whole_number("seal.releases", self.releases, 0, MAX_RUN)
        whole_number("seal.version", self.version, 0, MAX_RUN)
        whole_number("seal.run", self.run, 1, MAX_RUN)
        whole_number("seal.other", self.other, 0, MAX_RUN)
        whole_number("seal.parent", self.parent, 0, MAX_RUN)
        if len(self.tag) != TAG_SIZE:
            raise InvalidArgument("seal.tag", f"{len(self.tag)} bytes", f"{TAG_SIZE} bytes")

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it lies in the life of a file: each number only grows."""
        return self.epoch, self.releases, self.version

    @property
    def numbers(self) -> tuple[int, ...]:
        """All that the tag is for."""
        return self.epoch, self.releases, self.version, self.run, self.other, self.parent, self.sure


def sealed(
    key: bytes, neighbour: str, place: tuple[int, int, int], run: int, other: int, parent: int, sure: bool
) -> Seal:
    """The seal for a message to a neighbour."""
    return Seal(*place, run, other, parent, sure, _tag(key, neighbour, (*place, run, other, parent, sure)))


def is_genuine(seal: Seal, key: bytes, neighbour: str) -> bool:
    """Whether this file's key made a seal, for this neighbour."""
    return seal.tag == _tag(key, neighbour, seal.numbers)


def _tag(key: bytes, neighbour: str, numbers: tuple[int, ...]) -> bytes:
    content = _NUMBERS.pack(*numbers) + neighbour.encode()
    return blake2b(content, digest_size=TAG_SIZE, key=key, person=b"seal").digest()


@dataclass(frozen=True, slots=True)
class Told:
    """The seals that a neighbour has given: the latest, the last one of another run, and the furthest sure one."""

    latest: Seal | None = None
    other: Seal | None = None
    most: Seal | None = None

    @property
    def run(self) -> int:
        """The process of the neighbour that spoke last; 0: none has."""
        return 0 if self.latest is None else self.latest.run

    def beside(self, run: int) -> Seal | None:
        """The last seal of another run than this one."""
        return self.other if self.run == run else self.latest

    def hear(self, seal: Seal) -> "Told":
        """After one more. One that was overtaken by a later one of its run changes nothing."""
        latest, other = self.latest, self.other
        if latest is not None and latest.run != seal.run:
            other = latest
        elif latest is not None and seal.place < latest.place:
            return self
        return Told(seal, other, self.hear_late(seal).most)

    def hear_late(self, seal: Seal) -> "Told":
        """After one of a process that another has followed."""
        is_most = seal.sure and (self.most is None or seal.place > self.most.place)
        return Told(self.latest, self.other, seal) if is_most else self


NOTHING_TOLD = Told()


def as_text(told: Told) -> str:
    """What a neighbour told, for a file: three seals in hexadecimal, with commas; empty where there is none."""
    return ",".join(map(_as_text, (told.latest, told.other, told.most)))


def from_text(text: str) -> Told:
    """What ``as_text`` wrote."""
    return Told(*map(_from_text, text.split(","))) if text else NOTHING_TOLD


def _as_text(seal: Seal | None) -> str:
    if seal is None:
        return ""
    return (_NUMBERS.pack(*seal.numbers) + seal.tag).hex()


def _from_text(text: str) -> Seal | None:
    if not text:
        return None
    content = bytes.fromhex(text)
    if len(content) != _NUMBERS.size + TAG_SIZE:
        raise InvalidArgument("told", f"{len(content)} bytes", f"{_NUMBERS.size + TAG_SIZE} bytes")
    epoch, releases, version, run, other, parent, sure = _NUMBERS.unpack(content[: _NUMBERS.size])
    return Seal(epoch, releases, version, run, other, parent, sure, content[_NUMBERS.size :])
