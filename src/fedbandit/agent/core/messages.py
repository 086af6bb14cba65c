"""What neighbours exchange: an offer and its reply, checked when they are constructed, with the seals they carry.

``fedbandit.agent.gossip.wire`` turns messages into bytes; ``site`` acts on them.

With seals neighbours can show a site that its file is old, or that another process has its name: with every message a
site says how far it is, sealed with the key in its file. Its neighbour keeps the seals and returns them. It can neither
check nor forge one: so it can withhold what it has received, but not invent it.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TypeVar

from fedbandit.agent.core.arms import MAX_ADDED, arm_name
from fedbandit.agent.core.standings import MAX_N, Standing
from fedbandit.checks import LARGEST, InvalidArgument, finite_number, instance, whole_number
from fedbandit.rules.flow import Register, Stamp

__all__ = [
    "MAX_COUNT",
    "MAX_N",
    "MAX_RUN",
    "MAX_VERSION",
    "NO_SEALS",
    "TAG_SIZE",
    "HeldSeals",
    "Message",
    "Offer",
    "Reply",
    "Seal",
    "aligned",
    "as_text",
    "check_lengths",
    "from_text",
    "has_averaged",
    "is_genuine",
    "sealed",
    "widened",
]


# ---------------------------------------------------------------- seals


TAG_SIZE = 16

MAX_RUN = 2**63 - 1
"""Runs are drawn from 1 to this; 0: none."""

_NUMBERS = struct.Struct("<qqqqqqq?")


@dataclass(frozen=True, slots=True)
class Seal:
    """How far a site was when it sent a message over a link.

    * ``incarnation``: its own, on this link
    * ``releases``: how often it had released anything
    * ``version``: how often the link had been written, as it knew
    * ``run``: the process that sent it
    * ``other``: another process of the site's name, as the neighbour said; 0: none
    * ``parent``: the process that had opened the file before it; 0: none
    * ``opened``: how often its file had released anything when it opened it
    * ``sure``: its file had been confirmed, so that it may have released
    * ``tag``: 128 bits that only the site's key tells
    """

    incarnation: int
    releases: int
    version: int
    run: int
    other: int
    parent: int
    opened: int
    sure: bool
    tag: bytes

    def __post_init__(self) -> None:
        """Refuse what no site seals."""
        whole_number("seal.incarnation", self.incarnation, 1, MAX_RUN)
        whole_number("seal.releases", self.releases, 0, MAX_RUN)
        whole_number("seal.version", self.version, 0, MAX_RUN)
        whole_number("seal.run", self.run, 1, MAX_RUN)
        whole_number("seal.other", self.other, 0, MAX_RUN)
        whole_number("seal.parent", self.parent, 0, MAX_RUN)
        whole_number("seal.opened", self.opened, 0, MAX_RUN)
        if len(self.tag) != TAG_SIZE:
            raise InvalidArgument("seal.tag", f"{len(self.tag)} bytes", f"{TAG_SIZE} bytes")

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it lies in the history of a file: each number only grows."""
        return self.incarnation, self.releases, self.version

    @property
    def numbers(self) -> tuple[int, ...]:
        """All that the tag is for."""
        return self.incarnation, self.releases, self.version, self.run, self.other, self.parent, self.opened, self.sure


def sealed(
    key: bytes, neighbour: str, place: tuple[int, int, int], run: int, other: int, parent: int, opened: int, sure: bool
) -> Seal:
    """The seal for a message to a neighbour."""
    numbers = run, other, parent, opened, sure
    return Seal(*place, *numbers, _tag(key, neighbour, (*place, *numbers)))


def is_genuine(seal: Seal, key: bytes, neighbour: str) -> bool:
    """Whether this file's key made a seal, for this neighbour."""
    return seal.tag == _tag(key, neighbour, seal.numbers)


def _tag(key: bytes, neighbour: str, numbers: tuple[int, ...]) -> bytes:
    content = _NUMBERS.pack(*numbers) + neighbour.encode()
    return blake2b(content, digest_size=TAG_SIZE, key=key, person=b"seal").digest()


@dataclass(frozen=True, slots=True)
class HeldSeals:
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

    def drawn_twice(self, seal: Seal) -> bool:
        """Whether a process has released although its file, as it opened it, lacked releases that another has shown."""
        shown = [it for it in (self.latest, self.other, self.most) if it is not None and it.run != seal.run]
        lacks = any(it.incarnation == seal.incarnation and it.releases > seal.opened for it in shown)
        return lacks and seal.releases > seal.opened

    def receive(self, seal: Seal) -> "HeldSeals":
        """After one more. One that was overtaken by a later one of its run changes nothing."""
        latest, other = self.latest, self.other
        if latest is not None and latest.run != seal.run:
            other = latest
        elif latest is not None and seal.place < latest.place:
            return self
        return HeldSeals(seal, other, self.receive_late(seal).most)

    def receive_late(self, seal: Seal) -> "HeldSeals":
        """After one of a process that another has followed."""
        is_most = seal.sure and (self.most is None or seal.place > self.most.place)
        return HeldSeals(self.latest, self.other, seal) if is_most else self


NO_SEALS = HeldSeals()


def as_text(seals: HeldSeals) -> str:
    """Seals for a file: three of them in hexadecimal, with commas; empty where there is none."""
    return ",".join(map(_as_text, (seals.latest, seals.other, seals.most)))


def from_text(text: str) -> HeldSeals:
    """What ``as_text`` wrote."""
    return HeldSeals(*map(_from_text, text.split(","))) if text else NO_SEALS


def _as_text(seal: Seal | None) -> str:
    if seal is None:
        return ""
    return (_NUMBERS.pack(*seal.numbers) + seal.tag).hex()


def _from_text(text: str) -> Seal | None:
    if not text:
        return None
    content = bytes.fromhex(text)
    if len(content) != _NUMBERS.size + TAG_SIZE:
        raise InvalidArgument("seals", f"{len(content)} bytes", f"{_NUMBERS.size + TAG_SIZE} bytes")
    *numbers, sure = _NUMBERS.unpack(content[: _NUMBERS.size])
    incarnation, releases, version, run, other, parent, opened = numbers
    return Seal(incarnation, releases, version, run, other, parent, opened, sure, content[_NUMBERS.size :])


# ---------------------------------------------------------------- messages


MAX_COUNT = 2**62
"""The largest incarnation. Which ones a site believes is ``bounds``'."""

MAX_VERSION = 10**15
"""The largest version of a link: an exchange in every millisecond for 30,000 years."""


@dataclass(frozen=True)
class Message:
    """One end's copy of a link on its way to the other.

    * ``incarnation``: the sender's, which a lost disk ends
    * ``to_incarnation``: that of the receiver for which it is meant, 0 if the sender knows of none
    * ``federation``: the hash of the terms
    * ``flow``, ``stamp``: the register of the link (``fedbandit.rules.flow``)
    * ``standings``: how much each site has released, or decided where the consistency rule holds (Algorithm 1, line 5),
      as far as the sender knows
    * ``seal``: how far the sender is, for the receiver to keep; None in a simulation without faults
    * ``to_run``: the process of the receiver that last sent anything to the sender; 0: none
    * ``arms``: the names of the arms that the sender knows besides those of the terms, in the order of its rows
    * ``arms_version``: how many changes of the arms the sender knows
    * ``other``, ``most``: seals that the receiver gave: the last of another run than that one, and the furthest
    """

    sender: str
    receiver: str
    incarnation: int
    to_incarnation: int
    federation: str
    flow: tuple[float, ...]
    stamp: Stamp
    standings: tuple[Standing, ...] = field(default=(), kw_only=True)
    seal: Seal | None = field(default=None, kw_only=True)
    to_run: int = field(default=0, kw_only=True)
    other: Seal | None = field(default=None, kw_only=True)
    most: Seal | None = field(default=None, kw_only=True)
    arms: tuple[str, ...] = field(default=(), kw_only=True)
    arms_version: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what no honest neighbour sends."""
        for name, value in (("sender", self.sender), ("receiver", self.receiver), ("federation", self.federation)):
            instance(name, value, str, "text")
        self._hold("incarnation", self.incarnation, whole_number("incarnation", self.incarnation, 1, MAX_COUNT))
        self._hold(
            "to_incarnation", self.to_incarnation, whole_number("to_incarnation", self.to_incarnation, 0, MAX_COUNT)
        )
        self._hold("flow", self.flow, _row("flow", self.flow))
        version, writer = self.stamp
        instance("stamp[1]", writer, str, "text")
        if writer not in ((self.sender, self.receiver) if version else ("",)):
            raise InvalidArgument("stamp[1]", writer, "an end of the link")
        if (checked := whole_number("stamp[0]", version, 0, MAX_VERSION)) is not version:
            self._hold("stamp", self.stamp, (checked, writer))
        self._hold("to_run", self.to_run, whole_number("to_run", self.to_run, 0, MAX_RUN))
        whole_number("arms_version", self.arms_version, 0, MAX_COUNT)
        if self.arms:
            self._check_arms()

    def _check_arms(self) -> None:
        if len(self.arms) > MAX_ADDED:
            raise InvalidArgument("arms", f"{len(self.arms)} names", f"at most {MAX_ADDED} names")
        for name in self.arms:
            arm_name(name)
        if len(set(self.arms)) < len(self.arms):
            raise InvalidArgument("arms", self.arms, "different names")

    def _hold(self, name: str, given: object, checked: object) -> None:
        if checked is not given:
            object.__setattr__(self, name, checked)


@dataclass(frozen=True)
class Offer(Message):
    """The beginning of an exchange: also what the sender gossips now."""

    gossiped: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what no honest neighbour sends."""
        super().__post_init__()
        self._hold("gossiped", self.gossiped, _row("gossiped", self.gossiped))
        if len(self.gossiped) != len(self.flow):
            raise InvalidArgument(
                "gossiped", f"{len(self.gossiped)} columns", f"{len(self.flow)} columns, as in the flow"
            )


@dataclass(frozen=True)
class Reply(Message):
    """The end of an exchange: the register as the one who was asked holds it now, on its disk."""


def has_averaged(offer: Offer, answer: Reply) -> bool:
    """Whether an exchange averaged anything: each end knew the incarnation of the other."""
    return answer.to_incarnation == offer.incarnation and offer.to_incarnation in (0, answer.incarnation)


def _row(name: str, row: Sequence[float]) -> tuple[float, ...]:
    if not row:
        raise InvalidArgument(name, "nothing", "a value and a weight for each arm")
    for x in row:
        if type(x) is not float or not -LARGEST <= x <= LARGEST:
            break  # hardly ever: no name is made for nothing
    else:
        return tuple(row)
    checked = tuple(finite_number(f"{name}[{c}]", x) for c, x in enumerate(row))
    for c, x in enumerate(checked):
        if abs(x) > LARGEST:
            raise InvalidArgument(f"{name}[{c}]", x, f"at most {LARGEST:g} in size")
    return checked


# ---------------------------------------------------------------- the order of arms


_M = TypeVar("_M", bound=Message)


def aligned(message: _M, num_initial: int, added: Sequence[str], rest: Sequence[float]) -> _M:
    """The message as it would be if its sender knew the arms that are known here, in the same order.

    Both ends know the arms of the terms; of those that were added, each may know some that the other does not, in
    another order. An arm that one end does not know has no flow on their link and is not averaged there: what the
    sender says of arms that are unknown here is left out, and where it says nothing of an arm that is known here, the
    flow is 0 and it gossips the same as this site does without the link, so that averaging moves nothing.

    ``added``: the names of those that are not in the terms; ``rest``: what this site gossips without the link.
    """
    if message.arms == tuple(added):
        return message
    place = {name: num_initial + k for k, name in enumerate(message.arms)}
    here = [*range(num_initial), *(place.get(name, -1) for name in added)]
    zeros = (0.0,) * len(rest)
    rows = {"flow": _arranged(message.flow, here, zeros)}
    if isinstance(message, Offer):
        rows["gossiped"] = _arranged(message.gossiped, here, rest)
    return replace(
        message,
        **rows,
        standings=tuple(_standing(it, num_initial + len(message.arms), here) for it in message.standings),
        arms=tuple(added),
    )


def widened(register: Register, num_arms: int) -> Register:
    """A register from when there were fewer arms: nothing has flowed of the others."""
    flow, stamp = register
    more = num_arms - len(flow) // 2
    if more == 0:
        return register
    if more < 0 or len(flow) % 2:
        raise InvalidArgument("flow", f"{len(flow)} columns", f"at most {2 * num_arms} columns")
    half, zeros = len(flow) // 2, (0.0,) * more
    return (*flow[:half], *zeros, *flow[half:], *zeros), stamp


def check_lengths(message: Message, num_initial: int) -> None:
    """Refuse rows that have not one value and one weight for each arm that the sender knows."""
    num_arms = num_initial + len(message.arms)
    rows = (
        {"flow": message.flow, "gossiped": message.gossiped} if isinstance(message, Offer) else {"flow": message.flow}
    )
    for name, row in rows.items():
        if len(row) != 2 * num_arms:
            raise InvalidArgument(name, f"{len(row)} columns", f"{2 * num_arms} columns")


def _arranged(row: Sequence[float], here: Sequence[int], absent: Sequence[float]) -> tuple[float, ...]:
    """Values, then weights; ``here``: the place of each arm in the sender's order, -1: none."""
    half, ours = len(row) // 2, len(here)
    values = (row[k] if k >= 0 else absent[c] for c, k in enumerate(here))
    weights = (row[half + k] if k >= 0 else absent[ours + c] for c, k in enumerate(here))
    return *values, *weights


def _picked(counts: Sequence[int], here: Sequence[int]) -> tuple[int, ...]:
    return tuple(counts[k] if k >= 0 else 0 for k in here)


def _standing(it: Standing, num_arms: int, here: Sequence[int]) -> Standing:
    """One of another length stays as it is, and is left out."""
    return it if len(it.released) != num_arms else replace(it, released=_picked(it.released, here))
