"""What an agent must not forget, as records, and the state that they add up to.

Here belong the rows that a journal keeps and how they follow each other; files are ``journal``'s. A site changes its
own state through ``Stored.apply``, and a journal hands back what the same records add up to: so memory and disk cannot
tell different stories.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fedbandit.privacy.mechanism import Release
from fedbandit.rules.flow import Register

__all__ = ["Batch", "Decision", "Forgotten", "Life", "Link", "Record", "Release", "Stored"]


@dataclass(frozen=True)
class Life:
    """The epoch of this agent, which a lost disk ends, and how many decisions it has handed out."""

    epoch: int
    decisions: int


@dataclass(frozen=True)
class Decision:
    """An arm that was handed out at a time, and its reward once it is known."""

    epoch: int
    number: int
    arm: int
    at: float
    reward: float | None = None

    @property
    def id(self) -> str:
        """Its name, also among decisions of lives whose disk was lost."""
        return f"{self.epoch:x}-{self.number}"


@dataclass(frozen=True)
class Forgotten:
    """A decision that has expired: with or without a reward, it is no longer known."""

    id: str


@dataclass(frozen=True)
class Batch:
    """What an arm has collected for its next release, in steps of the grid. Raw: for the agent's own disk alone."""

    arm: int
    count: int
    total: int


@dataclass(frozen=True)
class Link:
    """One end of a link: the register, and the least epoch of the neighbour whose messages are heard.

    ``left`` if the neighbour has left for good: its flow is dropped, the epoch stays, so that its old messages do.
    """

    neighbour: str
    epoch: int
    register: Register
    left: bool = False


Record = Life | Decision | Forgotten | Batch | Release | Link


@dataclass
class Stored:
    """All that survives: the last record of everything that has a name."""

    life: Life
    decisions: dict[str, Decision] = field(default_factory=dict[str, Decision])
    batches: dict[int, Batch] = field(default_factory=dict[int, Batch])
    releases: list[Release] = field(default_factory=list[Release])
    links: dict[str, Link] = field(default_factory=dict[str, Link])

    def apply(self, records: Iterable[Record]) -> None:
        """Take in records, in their order."""
        for record in records:
            match record:
                case Life():
                    self.life = record
                case Decision():
                    self.decisions[record.id] = record
                case Forgotten():
                    del self.decisions[record.id]
                case Batch():
                    self.batches[record.arm] = record
                case Release():
                    self.releases.append(record)
                case Link():
                    self.links[record.neighbour] = record
