"""A change of the arms: a site adds, suspends, resumes or retires one, and signs that.

Changes are a set that only grows; sites pass them on. What they add up to at a site is in ``arms``. Signatures are made
and verified at the edge (``gossip.signatures``): a site is told of genuine changes alone.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Literal, get_args

from fedbandit.agent.core.arm_names import arm_name
from fedbandit.checks import InvalidArgument, whole_number

__all__ = [
    "KEPT_FOR_STOPS",
    "MAX_ADDED",
    "MAX_CHANGES",
    "MAX_LIFTED",
    "Accepts",
    "ArmChange",
    "ChangeKind",
    "Proof",
    "Sign",
    "change_from",
]

ChangeKind = Literal["add", "suspend", "resume", "retire"]

Accepts = frozenset[str] | Literal["anyone"]
"""From whom a site accepts changes without asking its operator."""

Proof = tuple[bytes, bytes]
"""The certificates of a signer, from its own to the CA's, as PEM; and its signature. Both empty without TLS."""

Sign = Callable[[bytes], Proof]
"""Signs the content of a change with the site's own key."""

MAX_CHANGES = 500
"""The most changes of one site that others keep: messages name all that a site knows, in 16 bytes each."""

KEPT_FOR_STOPS = 100
"""Of these, so many are a site's stops: one that has changed much can still stop an arm."""

MAX_ADDED = 100
"""The most arms that are added to those of the terms: messages have a column for each."""

MAX_LIFTED = 100
"""The most stops that one change lifts."""

MAX_VERSION, MAX_TIME, LONGEST = 2**40, 2**62, 1000
MAX_CERTIFICATES, MAX_SIGNATURE = 16_384, 1024
_ID = 16


@dataclass(frozen=True)
class ArmChange:
    """One change.

    * ``version``: how many changes its site knew, this one counted: for people to read; nothing depends on it
    * ``by``: the site that made it; ``at``: when, in milliseconds since 1970 by its clock
    * ``federation``: the hash of the terms
    * ``lifts``: the ids of the stops that a *resume* ends: those that its site knew. So nobody undoes a stop that he
      has not heard of
    * ``certificates``, ``signature``: its proof
    """

    version: int
    kind: ChangeKind
    arm: str
    by: str
    at: int
    federation: str
    lifts: tuple[str, ...] = ()
    certificates: bytes = b""
    signature: bytes = b""

    def __post_init__(self) -> None:
        """Refuse what no honest site signs."""
        object.__setattr__(self, "version", whole_number("version", self.version, 1, MAX_VERSION))
        object.__setattr__(self, "at", whole_number("at", self.at, 0, MAX_TIME))
        if self.kind not in get_args(ChangeKind):
            raise InvalidArgument("change", self.kind, ", ".join(get_args(ChangeKind)))
        if self.kind == "add":
            arm_name(self.arm)
        for name, most in (("arm", LONGEST), ("by", LONGEST), ("federation", 64)):
            value: object = getattr(self, name)
            if not isinstance(value, str) or len(value) > most or not value.isprintable():
                raise InvalidArgument(name, value, f"a text of at most {most} printable characters")
        if len(self.lifts) > (MAX_LIFTED if self.kind == "resume" else 0):
            raise InvalidArgument("lifts", f"{len(self.lifts)} stops", f"at most {MAX_LIFTED}, of a resume alone")
        if not all(_is_id(it) for it in self.lifts):
            raise InvalidArgument("lifts", self.lifts, "ids of changes")
        if len(self.certificates) > MAX_CERTIFICATES or len(self.signature) > MAX_SIGNATURE:
            raise InvalidArgument("proof", "a longer one", f"at most {MAX_CERTIFICATES} and {MAX_SIGNATURE} bytes")

    @cached_property
    def content(self) -> bytes:
        """What is signed."""
        fields = self.federation, self.version, self.kind, self.arm, self.by, self.at, list(self.lifts)
        return json.dumps(["fedbandit arm change", *fields]).encode()

    @cached_property
    def id(self) -> str:
        """A hash of the content: two changes with one id are the same change."""
        return blake2b(self.content, digest_size=_ID).hexdigest()

    @cached_property
    def key(self) -> bytes:
        """A hash of content and proof: another may have the same content, and a forged proof."""
        proof = len(self.certificates).to_bytes(4, "big") + self.certificates + self.signature
        return blake2b(self.content + b"\0" + proof, digest_size=_ID).digest()

    @property
    def is_stop(self) -> bool:
        """Whether it takes an arm away: that needs nobody's consent."""
        return self.kind in ("suspend", "retire")

    @property
    def order(self) -> tuple[int, str, str]:
        """In which changes are shown."""
        return self.version, self.by, self.id

    def signed(self, sign: Sign) -> "ArmChange":
        """The same change with a proof."""
        certificates, signature = sign(self.content)
        return ArmChange(**{**self._fields(), "certificates": certificates, "signature": signature})  # pyright: ignore[reportArgumentType]

    def _fields(self) -> dict[str, object]:
        names = "version", "kind", "arm", "by", "at", "federation", "lifts"
        return {name: getattr(self, name) for name in names}

    def in_words(self) -> str:
        """For the log."""
        return f"{self.by} {_DONE[self.kind]} the arm {self.arm!r} (version {self.version}, {self.id[:8]})"


_DONE: dict[ChangeKind, str] = {"add": "adds", "suspend": "suspends", "resume": "resumes", "retire": "retires"}


def _is_id(text: object) -> bool:
    return isinstance(text, str) and len(text) == 2 * _ID and not set(text) - set("0123456789abcdef")


def change_from(content: bytes, certificates: bytes, signature: bytes) -> ArmChange:
    """The change with this content; refuses bytes that are not exactly what a site signs."""
    try:
        said, federation, version, kind, arm, by, at, lifts = json.loads(content)
        change = ArmChange(version, kind, arm, by, at, federation, tuple(lifts), certificates, signature)
    except InvalidArgument:
        raise
    except (ValueError, TypeError, RecursionError):
        raise InvalidArgument("content", f"{len(content)} bytes", "that of an arm change") from None
    if said != "fedbandit arm change" or change.content != content:
        raise InvalidArgument("content", f"{len(content)} bytes", "that of an arm change")
    return change
