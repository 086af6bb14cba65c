"""Encodes and decodes messages: the only file that parses a neighbour's bytes.

Any bytes decode to a legal message or raise ``WireError``. ``exchange.proto`` defines the format.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from google.protobuf.message import DecodeError

from fedbandit.agent.core.arms import MAX_ADDED, MAX_ARM_NAME, ArmChange, change_from
from fedbandit.agent.core.messages import Message, Offer, Reply, Seal
from fedbandit.agent.core.standings import Standing
from fedbandit.agent.gossip import exchange_pb2 as pb
from fedbandit.checks import InvalidArgument

__all__ = [
    "MAX_BYTES",
    "MOST_CHANGES",
    "WIRE",
    "ArmDelta",
    "DuplicateKey",
    "WireError",
    "decode_arm_delta",
    "decode_offer",
    "decode_reply",
    "decode_terms",
    "encode",
    "encode_arm_delta",
    "encode_terms",
    "most_bytes",
    "parse_json",
]


WIRE = 2
"""The version of the format."""

MAX_BYTES = 2**20
"""The largest message; one with 10,000 arms has about 500,000 bytes."""


MOST_CHANGES = 50
"""The most changes of the arms in one message: each signature takes a tenth of a millisecond to verify."""


def most_bytes(num_arms: int, num_agents: int) -> int:
    """The most bytes of an honest offer: longer ones would take long to read, and are refused unread.

    Numbers have at most 10 bytes, and a standing for each site and the sender's, of a name and as many counts as arms.
    The sender may know arms that the receiver does not, and sends their names.
    """
    num_arms += MAX_ADDED
    return min(
        MAX_BYTES, 4096 + 60 * num_arms + 5 * MAX_ARM_NAME * MAX_ADDED + (num_agents + 1) * (512 + 12 * num_arms)
    )


_Form = TypeVar("_Form", pb.Offer, pb.Reply, pb.Terms, pb.ArmDelta)


class WireError(ValueError):
    """The sender's mistake: bytes that are not a legal message."""


def encode(message: Offer | Reply) -> bytes:
    """A message as bytes."""
    form = pb.Offer(gossiped=message.gossiped) if isinstance(message, Offer) else pb.Reply()
    form.wire = WIRE
    form.sender, form.receiver, form.federation = message.sender, message.receiver, message.federation
    form.incarnation, form.to_incarnation, form.to_run = message.incarnation, message.to_incarnation, message.to_run
    form.link.flow.extend(message.flow)  # in place: a message that is assigned is copied
    form.link.version, form.link.writer = message.stamp
    form.arms.extend(message.arms)
    form.arms_version = message.arms_version
    for it in message.standings:
        form.standings.add(
            site=it.site, incarnation=it.incarnation, version=it.version, weight=it.weight, released=it.released
        )
    if message.seal is not None:
        _encode(message.seal, form.seal)
    if message.other is not None:
        _encode(message.other, form.other)
    if message.most is not None:
        _encode(message.most, form.most)
    return form.SerializeToString()


def _encode(seal: Seal, form: pb.Seal) -> None:
    form.incarnation, form.releases, form.version = seal.place
    form.run, form.other, form.parent, form.opened = seal.run, seal.other, seal.parent, seal.opened
    form.sure, form.tag = seal.sure, seal.tag


def _decoded(form: pb.Offer | pb.Reply, name: Literal["seal", "other", "most"]) -> Seal | None:
    if not form.HasField(name):
        return None
    it: pb.Seal = getattr(form, name)
    return Seal(it.incarnation, it.releases, it.version, it.run, it.other, it.parent, it.opened, it.sure, it.tag)


def decode_offer(data: bytes, most: int = MAX_BYTES) -> Offer:
    """Decode an offer of at most so many bytes."""
    form = _parsed(pb.Offer(), data, most)
    return _legal(Offer, form, gossiped=tuple(form.gossiped))


def decode_reply(data: bytes, most: int = MAX_BYTES) -> Reply:
    """Decode an answer of at most so many bytes."""
    return _legal(Reply, _parsed(pb.Reply(), data, most))


def encode_terms(terms: Mapping[str, Any]) -> bytes:
    """The terms of a federation as bytes."""
    return pb.Terms(wire=WIRE, terms=json.dumps(terms)).SerializeToString()


def decode_terms(data: bytes, most: int = MAX_BYTES) -> dict[str, Any]:
    """Decode another site's terms, of ``most`` bytes at most: names and values, unchecked."""
    if len(data) > most:
        raise WireError(f"terms must have at most {most} bytes, not {len(data)}")
    form = _parsed(pb.Terms(), data)
    try:
        terms = parse_json(form.terms)
    except (ValueError, RecursionError) as error:
        raise WireError(f"terms must be JSON: {error}") from None
    if not isinstance(terms, dict):
        raise WireError("terms must be a JSON object")
    return terms  # pyright: ignore[reportUnknownVariableType]


@dataclass(frozen=True)
class ArmDelta:
    """Changes of the arms on their way.

    ``known``: hashes (``ArmChange.key``) of all that the sender has; ``refused``: of those that it does not want.
    """

    sender: str
    federation: str
    known: frozenset[bytes]
    refused: frozenset[bytes]
    changes: tuple[ArmChange, ...]


def encode_arm_delta(delta: ArmDelta) -> bytes:
    """Changes as bytes."""
    form = pb.ArmDelta(
        wire=WIRE, sender=delta.sender, federation=delta.federation, known=delta.known, refused=delta.refused
    )
    for it in delta.changes:
        form.changes.add(content=it.content, certificates=it.certificates, signature=it.signature)
    return form.SerializeToString()


def decode_arm_delta(data: bytes) -> ArmDelta:
    """Decode changes; their signatures are not checked here. One that makes no sense is left out."""
    form = _parsed(pb.ArmDelta(), data)
    changes: list[ArmChange] = []
    for it in form.changes[:MOST_CHANGES]:
        with suppress(InvalidArgument):
            changes.append(change_from(it.content, it.certificates, it.signature))
    return ArmDelta(form.sender, form.federation, frozenset(form.known), frozenset(form.refused), tuple(changes))


def _parsed(form: _Form, data: bytes, most: int = MAX_BYTES) -> _Form:
    if len(data) > most:
        raise WireError(f"a message must have at most {most} bytes, not {len(data)}")
    try:
        form.ParseFromString(data)
    except DecodeError as error:
        raise WireError(f"not a message of this format: {error}") from None
    if form.wire != WIRE:
        raise WireError(f"wire must be {WIRE}, the version that this agent speaks, not {form.wire}")
    return form


_Kind = TypeVar("_Kind", bound=Message)


def _legal(kind: type[_Kind], form: pb.Offer | pb.Reply, **more: Any) -> _Kind:
    try:
        return kind(
            sender=form.sender,
            receiver=form.receiver,
            incarnation=form.incarnation,
            to_incarnation=form.to_incarnation,
            federation=form.federation,
            flow=tuple(form.link.flow),
            stamp=(form.link.version, form.link.writer),
            standings=tuple(
                Standing(it.site, it.incarnation, it.version, it.weight, tuple(it.released)) for it in form.standings
            ),
            seal=_decoded(form, "seal"),
            to_run=form.to_run,
            other=_decoded(form, "other"),
            most=_decoded(form, "most"),
            arms=tuple(form.arms),
            arms_version=form.arms_version,
            **more,
        )
    except InvalidArgument as error:
        raise WireError(str(error)) from None


# ---------------------------------------------------------------- JSON of strangers


class DuplicateKey(ValueError):
    """An object has this key more than once."""

    def __init__(self, key: str) -> None:
        """Name the key."""
        self.key = key
        super().__init__(f"the key {key!r} appears twice")


def parse_json(text: str | bytes) -> Any:
    """The value, in which no object has a key twice: two readers could take different ones of the two values.

    Raises ``DuplicateKey``, or another ``ValueError`` or ``RecursionError`` as ``json.loads`` does.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")  # json would take other encodings, too
    value = json.loads(text, object_pairs_hook=_once)
    if "\\ud" in text or "\\uD" in text:
        _check_text(json.dumps(value, ensure_ascii=False))
    return value


def _check_text(text: str) -> None:
    """Refuse half of a character, which no answer or file could hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a text has half of a character") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if not key.isascii():
            _check_text(key)
        if key in found:
            raise DuplicateKey(key)
        found[key] = value
    return found
