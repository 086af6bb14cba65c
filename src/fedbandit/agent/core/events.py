"""The result of an event at a site: records to commit and a value, or a refusal that changes nothing."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from fedbandit.agent.core.records import Record

__all__ = [
    "HorizonReached",
    "NoArm",
    "NotANeighbour",
    "NotNow",
    "OtherFederation",
    "Refused",
    "Step",
    "UnknownDecision",
]

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Step(Generic[_Result]):
    """What to do after an event: commit the records in one transaction, then use the result."""

    result: _Result
    records: tuple[Record, ...] = ()


class Refused(RuntimeError):
    """An event that changed nothing."""


class UnknownDecision(Refused):
    """The application's mistake: no decision has this id, or it has expired."""


class HorizonReached(Refused):
    """Nobody's mistake: the privacy of the terms is spent, since an arm's tree takes no more rewards."""


class NoArm(Refused):
    """Nobody's mistake: no arm may be given now."""


class NotNow(Refused):
    """Nobody's mistake: it may be asked again later."""


class NotANeighbour(Refused):
    """The sender's mistake: there is no link between it and this site, or no longer."""


class OtherFederation(Refused):
    """The sender's mistake: its terms are not ours."""
