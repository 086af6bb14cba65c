"""The records that a site stores, and the state they add up to.

A site changes its own state through ``Stored.apply``, and a journal returns what the same records add up to: so memory
and disk cannot disagree.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fedbandit.privacy.mechanism import Release
from fedbandit.rules.flow import Register

__all__ = [
    "ArmSum",
    "ArmTree",
    "Batch",
    "Decision",
    "Forgotten",
    "Heard",
    "Life",
    "Link",
    "Record",
    "Release",
    "Stored",
]


@dataclass(frozen=True)
class Life:
    """The epoch of this agent, which a lost disk ends, and how many decisions it has handed out."""

    epoch: int
    decisions: int


@dataclass(frozen=True, slots=True)
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
class ArmSum:
    """All rewards of an arm, for a policy without privacy: one record, however many they are."""

    arm: int
    count: int
    total: float


@dataclass(frozen=True)
class ArmTree:
    """The tree of an arm after so many pulls: one record, however many they are.

    * ``sums``: of the newest interval of each level, in steps of the grid. Raw: for the agent's own disk alone
    * ``slots``: the noisy sums of prefixes that later ones are made of (``rules.mean.pull_tree_add``)

    The intervals that have been released follow from ``pulls``, which only ever counts up by one: a journal refuses
    anything else, so that no interval has two releases.
    """

    arm: int
    pulls: int
    sums: tuple[int, ...]
    slots: tuple[float, ...]


@dataclass(frozen=True)
class Heard:
    """The most decisions for each arm by anyone that this agent has heard of (Algorithm 1, line 5)."""

    n_max: tuple[int, ...]


@dataclass(frozen=True)
class Link:
    """One end of a link: the register, and the least epoch of the neighbour whose messages are heard.

    ``left`` if the neighbour has left for good: its flow is dropped, the epoch stays, so that its old messages do.
    """

    neighbour: str
    epoch: int
    register: Register
    left: bool = False


Record = Life | Decision | Forgotten | Batch | Release | ArmSum | ArmTree | Link | Heard


@dataclass
class Stored:
    """All that survives: the last record of everything that has a name.

    ``born`` is the epoch with which the file was made: the one time that no neighbour can move.
    """

    life: Life
    born: int
    decisions: dict[str, Decision] = field(default_factory=dict[str, Decision])
    batches: dict[int, Batch] = field(default_factory=dict[int, Batch])
    releases: list[Release] = field(default_factory=list[Release])
    sums: dict[int, ArmSum] = field(default_factory=dict[int, ArmSum])
    trees: dict[int, ArmTree] = field(default_factory=dict[int, ArmTree])
    links: dict[str, Link] = field(default_factory=dict[str, Link])
    n_max: tuple[int, ...] = ()

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
                case ArmSum():
                    self.sums[record.arm] = record
                case ArmTree():
                    self.trees[record.arm] = record
                case Link():
                    self.links[record.neighbour] = record
                case Heard():
                    self.n_max = record.n_max
