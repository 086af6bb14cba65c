"""The two messages between neighbours, an offer and its answer, validated when they are constructed.

``fedbandit.agent.gossip.wire`` turns them into bytes; ``site`` acts on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedbandit.agent.core.arm_changes import MAX_ADDED
from fedbandit.agent.core.arm_names import arm_name
from fedbandit.agent.core.seals import MAX_RUN, Seal
from fedbandit.agent.core.standings import MAX_N, Standing
from fedbandit.checks import LARGEST, InvalidArgument, finite_number, instance, whole_number
from fedbandit.rules.flow import Stamp

__all__ = ["MAX_COUNT", "MAX_N", "MAX_VERSION", "Answer", "Message", "Offer", "was_heard"]

MAX_COUNT = 2**62
"""The largest epoch. Which ones a site believes is ``bounds``'."""

MAX_VERSION = 10**15
"""The largest version of a link: an exchange in every millisecond for 30,000 years."""


@dataclass(frozen=True)
class Message:
    """One end's copy of a link on its way to the other.

    * ``epoch``: the life of the sender, which a lost disk ends
    * ``to_epoch``: the life of the receiver that it is meant for, 0 if the sender knows of none
    * ``federation``: the hash of the terms
    * ``flow``, ``stamp``: the register of the link (``fedbandit.rules.flow``)
    * ``n_max``: the most decisions for each arm by anyone, as far as the sender knows (Algorithm 1, line 5); empty for
      a policy without the consistency rule
    * ``standings``: how much each site has released, as far as the sender knows
    * ``seal``: how far the sender is, for the receiver to keep; None from the previous version
    * ``to_run``: the process of the receiver that the sender heard last, 0 if of none
    * ``arms``: the names of the arms that the sender knows besides those of the terms, in the order of its rows
    * ``arms_version``: how many changes of the arms the sender knows
    * ``other``, ``most``: seals that the receiver gave: the last of another run than that one, and the furthest
    """

    sender: str
    receiver: str
    epoch: int
    to_epoch: int
    federation: str
    flow: tuple[float, ...]
    stamp: Stamp
    n_max: tuple[int, ...] = field(default=(), kw_only=True)
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
        self._hold("epoch", self.epoch, whole_number("epoch", self.epoch, 1, MAX_COUNT))
        self._hold("to_epoch", self.to_epoch, whole_number("to_epoch", self.to_epoch, 0, MAX_COUNT))
        self._hold("flow", self.flow, _row("flow", self.flow))
        version, writer = self.stamp
        instance("stamp[1]", writer, str, "text")
        if writer not in ((self.sender, self.receiver) if version else ("",)):
            raise InvalidArgument("stamp[1]", writer, "an end of the link")
        if (checked := whole_number("stamp[0]", version, 0, MAX_VERSION)) is not version:
            self._hold("stamp", self.stamp, (checked, writer))
        self._hold("n_max", self.n_max, _counts("n_max", self.n_max))
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
class Answer(Message):
    """The end of an exchange: the register as the one who was asked holds it now, on its disk."""


def was_heard(offer: Offer, answer: Answer) -> bool:
    """Whether an exchange averaged anything: each end knew the life of the other."""
    return answer.to_epoch == offer.epoch and offer.to_epoch in (0, answer.epoch)


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


def _counts(name: str, row: Sequence[int]) -> tuple[int, ...]:
    for n in row:
        if type(n) is not int or not 0 <= n <= MAX_N:
            return tuple(whole_number(f"{name}[{k}]", n, 0, MAX_N) for k, n in enumerate(row))
    return tuple(row)
