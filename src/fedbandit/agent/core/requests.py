"""What an application may ask of a decision, and how its repetitions and its subjects are recognised.

Keys and subjects are stored as keyed hashes, with the key of the site's file: nobody without the file can tell what
they were, or compare those of two sites.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from fedbandit.agent.core.records import Decision
from fedbandit.checks import InvalidArgument, whole_number

__all__ = [
    "ANY",
    "MAX_DECISIONS",
    "MAX_TEXT",
    "Request",
    "RequestIndex",
    "arms_in",
    "as_bits",
    "key_tag",
    "subject_tag",
]

MAX_DECISIONS = 1000
"""The most decisions of one request."""

MAX_TEXT = 200
"""The most characters of a key or a subject."""

_KEY_SIZE, _REQUEST_SIZE, _SUBJECT_SIZE = 12, 4, 16  # bytes


@dataclass(frozen=True, slots=True)
class Request:
    """What an application asks for.

    * ``eligible``: numbers of the arms that may be given; None: all. ``exclude``: those that may not
    * ``key``: the same key gets the same decisions again
    * ``subject``: the same subject gets the same arm again
    * ``count``: so many decisions
    """

    eligible: tuple[int, ...] | None = None
    key: str | None = None
    subject: str | None = None
    count: int = 1
    exclude: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields; arms are sorted, so that equal requests are equal."""
        whole_number("count", self.count, 1, MAX_DECISIONS)
        for name in ("key", "subject"):
            text = getattr(self, name)
            if text is not None and not (isinstance(text, str) and 0 < len(text) <= MAX_TEXT and text.isprintable()):
                raise InvalidArgument(name, text, f"1 to {MAX_TEXT} printable characters")
        if self.eligible is not None:
            if self.exclude:
                raise InvalidArgument("exclude", self.exclude, "left out where eligible is given")
            object.__setattr__(self, "eligible", tuple(sorted(set(self.eligible))))
        object.__setattr__(self, "exclude", tuple(sorted(set(self.exclude))))

    def arms(self, num_arms: int, stopped: frozenset[int]) -> tuple[int, ...] | None:
        """The arms that may be given, of those that there are; None: all of them."""
        if self.eligible is None and not self.exclude and not stopped:
            return None
        for name, given in (("eligible", self.eligible or ()), ("exclude", self.exclude)):
            for arm in given:
                whole_number(name, arm, 0, num_arms - 1)
        asked = range(num_arms) if self.eligible is None else self.eligible
        return tuple(k for k in asked if k not in self.exclude and k not in stopped)


ANY = Request()
"""One decision for any arm."""


def key_tag(secret: bytes, request: Request) -> bytes:
    """What is stored of a request's key: a hash of the key, then one of all else that it asks for."""
    rest = repr((request.eligible, request.exclude, request.subject, request.count)).encode()
    return _hash(secret, b"key", (request.key or "").encode(), _KEY_SIZE) + _hash(
        secret, b"request", rest, _REQUEST_SIZE
    )


def subject_tag(secret: bytes, subject: str) -> bytes:
    """What is stored of a subject."""
    return _hash(secret, b"subject", subject.encode(), _SUBJECT_SIZE)


def _hash(secret: bytes, person: bytes, text: bytes, size: int) -> bytes:
    return blake2b(text, digest_size=size, key=secret, person=person).digest()


def as_bits(arms: Iterable[int]) -> bytes:
    """A set of arms, a bit for each."""
    bits = sum(1 << arm for arm in arms)
    return bits.to_bytes(max(-(-bits.bit_length() // 8), 1), "little")


def arms_in(bits: bytes) -> list[int]:
    """The arms of such a set, in order."""
    number = int.from_bytes(bits, "little")
    return [k for k in range(number.bit_length()) if number >> k & 1]


class RequestIndex:
    """Finds decisions that are remembered by their key, and the newest one of a subject."""

    def __init__(self, decisions: Iterable[Decision]) -> None:
        """For these decisions, oldest first."""
        self._keys: dict[bytes, str | tuple[str, ...]] = {}  # nearly every key has one decision: no tuple for that
        self._subjects: dict[bytes, str] = {}
        for decision in decisions:
            self.add(decision)

    def add(self, decision: Decision) -> None:
        """A decision was handed out."""
        if decision.key:
            key = decision.key[:_KEY_SIZE]
            before = self.with_key(key)
            self._keys[key] = (*before, decision.id) if before else decision.id
        if decision.subject:
            self._subjects[decision.subject] = decision.id

    def drop(self, decision: Decision) -> None:
        """A decision was forgotten."""
        if decision.key:
            key = decision.key[:_KEY_SIZE]
            left = tuple(name for name in self.with_key(key) if name != decision.id)
            self._keys.pop(key, None)
            if left:
                self._keys[key] = left
        if decision.subject and self._subjects.get(decision.subject) == decision.id:
            del self._subjects[decision.subject]

    def with_key(self, tag: bytes) -> tuple[str, ...]:
        """The ids of the decisions that were handed out for a key, in order; of whatever request."""
        found = self._keys.get(tag[:_KEY_SIZE], ())
        return (found,) if isinstance(found, str) else found

    def newest_of(self, subject: bytes) -> str | None:
        """The id of the newest decision of a subject."""
        return self._subjects.get(subject)
