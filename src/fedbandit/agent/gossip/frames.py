"""What neighbours send each other over a link, as bytes: ``Have``, ``Bulletin``, ``Certificate``, ``Refusal``.

A frame is one binary message. Its first byte is its kind; numbers are big-endian. Decoding checks lengths and names,
and no signature: ``signatures`` does that.
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedbandit.agent.core.board import Have as Versions
from fedbandit.agent.core.board import Version
from fedbandit.agent.core.bulletin import LARGE_BODY, Place
from fedbandit.agent.process.addresses import site_name
from fedbandit.checks import InvalidArgument
from fedbandit.strict_json import parse_json

MAX_FRAME = 2**20
"""Bytes of a frame; a longer one ends the link before it is read."""

MAX_SIGNATURE, MAX_CHAIN, MAX_WORDS = 1024, 2**14, 1000
DIGEST, FINGERPRINT, FEDERATION = 16, 32, 32

_HAVE, _BULLETIN, _CERTIFICATE, _REFUSAL = 1, 2, 3, 4
_PLACE = struct.Struct(">QQ")


class FrameError(ValueError):
    """A frame that no site of this version sends."""


@dataclass(frozen=True)
class Have:
    """What a site has of every site, with the hash of its terms; ``run`` tells its processes apart; 0: it only asks."""

    site: str
    federation: str
    run: int
    versions: Versions


@dataclass(frozen=True)
class Bulletin:
    """A site's bulletin, byte for byte as it was signed; ``signer`` is the sha256 of the signer's certificate."""

    signer: bytes
    signature: bytes
    body: bytes


@dataclass(frozen=True)
class Certificate:
    """A signer's certificate with its intermediates, PEM; sent once on a link, before the first bulletin it signed."""

    chain: bytes


@dataclass(frozen=True)
class Refusal:
    """Why the sender ends the link, in words; its terms if the other's differ."""

    words: str
    terms: bytes = b""


Frame = Have | Bulletin | Certificate | Refusal


def encode(frame: Frame) -> bytes:
    """A frame as bytes."""
    match frame:
        case Have():
            parts = [bytes((_HAVE,)), _name(frame.site), bytes.fromhex(frame.federation), struct.pack(">Q", frame.run)]
            for site, version in frame.versions.items():
                parts += [_name(site), _PLACE.pack(*version.place), version.digest]
                parts.append(b"\0" if version.conflict is None else b"\1" + _PLACE.pack(*version.conflict))
            return b"".join(parts)
        case Bulletin():
            return bytes((_BULLETIN,)) + _bytes(frame.signer) + _bytes(frame.signature) + frame.body
        case Certificate():
            return bytes((_CERTIFICATE,)) + frame.chain
        case Refusal():
            words = frame.words[:MAX_WORDS].encode()
            return bytes((_REFUSAL,)) + _bytes(words) + frame.terms


def decode(data: bytes) -> Frame:
    """A frame from a stranger's bytes; ``FrameError`` if it is none."""
    reader = _Reader(data)
    kind = reader.take(1)[0]
    if kind == _HAVE:
        return _have(reader)
    if kind == _BULLETIN:
        signer = reader.bytes(FINGERPRINT)
        if len(signer) not in (0, FINGERPRINT):
            raise FrameError(f"a bulletin's signer has {len(signer)} bytes")
        return Bulletin(signer, reader.bytes(MAX_SIGNATURE), reader.rest(LARGE_BODY))
    if kind == _CERTIFICATE:
        return Certificate(reader.rest(MAX_CHAIN))
    if kind == _REFUSAL:
        words = reader.bytes(4 * MAX_WORDS).decode(errors="replace")[:MAX_WORDS]
        return Refusal(words, reader.rest(MAX_FRAME))
    raise FrameError(f"a frame of an unknown kind, {kind}")


_HEAD = re.compile(
    rb'\{"fedbandit":\d{1,9},"federation":"[^"\\]{1,64}","site":"([a-z0-9.-]{1,253})",'
    rb'"incarnation":(\d{1,16}),"number":(\d{1,16}),'
)


def place_in(body: bytes) -> tuple[str, Place]:
    """Whose bulletin it is, and its place, before anything is verified: one that is known is dropped unread.

    There is one text for each bulletin (``core.bulletin``), so its head says the same as the whole.
    """
    head = _HEAD.match(body)
    if head is None:
        raise FrameError("a bulletin that does not begin as one does")
    return head[1].decode("ascii"), (int(head[2]), int(head[3]))


def terms_in(refusal: Refusal, most: int) -> Mapping[str, Any]:
    """The terms in a refusal, unchecked; of ``most`` bytes at most, since comparing them must not delay decisions."""
    if len(refusal.terms) > most:
        raise FrameError(f"terms must have at most {most} bytes, not {len(refusal.terms)}")
    try:
        terms = parse_json(refusal.terms)
    except ValueError as error:
        raise FrameError(f"terms must be JSON: {error}") from None
    if not isinstance(terms, dict):
        raise FrameError("terms must be a JSON object")
    return terms  # pyright: ignore[reportUnknownVariableType]


def _have(reader: "_Reader") -> Have:
    site, federation = reader.name(), reader.take(FEDERATION).hex()
    run: int = struct.unpack(">Q", reader.take(8))[0]
    versions: dict[str, Version] = {}
    while reader.left:
        name, place, digest = reader.name(), reader.place(), reader.take(DIGEST)
        conflict = reader.place() if reader.take(1) != b"\0" else None
        if name in versions:
            raise FrameError(f"{name} appears twice")
        versions[name] = Version(place, digest, conflict)
    return Have(site, federation, run, versions)


def _name(name: str) -> bytes:
    return bytes((len(name),)) + name.encode("ascii")


def _bytes(content: bytes) -> bytes:
    return struct.pack(">H", len(content)) + content


class _Reader:
    """Takes pieces from the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if self.left < count:
            raise FrameError("a frame that is too short")
        self._at += count
        return self._data[self._at - count : self._at]

    def rest(self, most: int) -> bytes:
        if self.left > most:
            raise FrameError(f"a frame with {self.left} bytes where {most} are the most")
        return self.take(self.left)

    def bytes(self, most: int) -> bytes:
        count: int = struct.unpack(">H", self.take(2))[0]
        if count > most:
            raise FrameError(f"a frame with {count} bytes where {most} are the most")
        return self.take(count)

    def place(self) -> Place:
        return _PLACE.unpack(self.take(_PLACE.size))

    def name(self) -> str:
        try:
            return site_name(self.take(self.take(1)[0]).decode("ascii"), "site")
        except (UnicodeDecodeError, InvalidArgument):
            raise FrameError("a frame with a name that no site can have") from None
