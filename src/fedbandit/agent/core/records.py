"""The records that a site stores, the state they add up to, and what comes of an event: records, or a refusal.

A site changes its state through ``Stored.apply``, and a journal returns what the same records add up to: so memory and
disk cannot disagree. What the policy knows is the exception: a running site has it in its mechanism alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fedbandit.agent.core.arms import ArmChanged
from fedbandit.agent.core.board import BoardRow
from fedbandit.agent.core.bulletin import Signed
from fedbandit.agent.core.trail import BEGINNING, Act, Entry, Head

__all__ = [
    "EVALUATION",
    "DecisionCancelled",
    "DecisionNotFound",
    "DecisionRecord",
    "Evaluating",
    "EvaluationReleased",
    "Excluded",
    "Forgotten",
    "HistoryEntered",
    "HorizonReached",
    "Included",
    "Kept",
    "KeyTaken",
    "Known",
    "Neighbour",
    "NoArmLeft",
    "Numbering",
    "Opened",
    "Overruled",
    "OwnBulletin",
    "Record",
    "Refused",
    "Released",
    "Renewed",
    "Rewarded",
    "SiteTimes",
    "Step",
    "StoppedMeanwhile",
    "Stored",
    "Unlinked",
    "WindowOver",
]


@dataclass(frozen=True)
class Numbering:
    """The incarnation of this agent, which a lost disk ends, and the number of its last decision."""

    incarnation: int
    decisions: int


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """An arm that was handed out at a time.

    * ``id``: for the application alone: whoever knows it can report the reward
    * ``reward``: from its report until it is played, and no longer
    * ``played``: the page has observed its reward, or the default
    * ``late``: a reward came after the window, and does not count
    * ``rewarded``: a reward came in time, and counts
    * ``cancelled``: it was not used: it has no slot any more, and takes no reward
    * ``propensity``: the probability with which its request got this arm; None: not known
    * ``key``, ``subject``: hashes of those of its request (``decisions.key_tag``); empty: it had none
    * ``eligible``: the arms among which it was chosen (``decisions.as_bits``); empty: all that there were
    * ``stratum``: that of the patient (``context.Factors``); None: the terms have no factors
    * ``deterministic``: why its arm was certain (``decisions.Certain``); None: it was drawn, or its chance is not known
    """

    id: str
    number: int
    arm: int
    at: float
    reward: float | None = None
    played: bool = False
    late: bool = False
    rewarded: bool = False
    cancelled: bool = False
    propensity: float | None = None
    key: bytes = b""
    subject: bytes = b""
    eligible: bytes = b""
    stratum: int | None = None
    deterministic: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has yet to count."""
        return not self.played and not self.cancelled

    def after_reward(self, reward: float) -> "DecisionRecord":
        """Its reward has come in time."""
        return self._with(reward, self.played, True)

    def after_play(self) -> "DecisionRecord":
        """The page has observed it."""
        return self._with(None, True, self.rewarded)

    def _with(self, reward: float | None, played: bool, rewarded: bool) -> "DecisionRecord":
        """By hand: ``dataclasses.replace`` takes several times as long, twice for every decision."""
        seen = self.id, self.number, self.arm, self.at, reward, played, self.late, rewarded, self.cancelled
        asked = self.propensity, self.key, self.subject, self.eligible, self.stratum, self.deterministic
        return DecisionRecord(*seen, *asked)


@dataclass(frozen=True)
class SiteTimes:
    """The last time at which anything was settled, how many rewards came too late, and the first decision's time."""

    clock: float
    late: int
    since: float | None = None


@dataclass(frozen=True)
class Forgotten:
    """A decision that has expired: with or without a reward, it is no longer known."""

    id: str


@dataclass(frozen=True)
class Kept:
    """A reward that a site keeps for its log until the decision is forgotten; None: it is kept no longer."""

    id: str
    number: int
    reward: float | None


@dataclass(frozen=True)
class Known:
    """What the page of the policy knows of an arm, by name: one record, however many rewards there were.

    It holds raw sums: for the agent's own disk alone.
    """

    arm: int
    fields: dict[str, Any]


@dataclass(frozen=True)
class Released:
    """The last pull of an arm that a release of this level holds.

    It only ever grows: a journal refuses anything else, so that no interval has two releases.
    """

    arm: int
    level: int
    last: int


@dataclass(frozen=True)
class OwnBulletin:
    """The newest bulletin that this site has signed: on disk before anybody sees it.

    ``doubt``: why it could not be sure that its file was the latest (``release_guard.Doubt``); empty: it was
    """

    signed: Signed
    doubt: str = ""


@dataclass(frozen=True)
class Neighbour:
    """A site with which this one has a link. ``has_heard``: it has shown that it knows bulletins of this one."""

    name: str
    has_heard: bool


@dataclass(frozen=True)
class Unlinked:
    """A site with which this one has no link any more."""

    name: str


@dataclass(frozen=True)
class Excluded:
    """A member that does not count here, by the word of this site's operator, ``at`` a time in milliseconds."""

    name: str
    at: int
    reason: str


@dataclass(frozen=True)
class Included:
    """A member that had been excluded counts again."""

    name: str


@dataclass(frozen=True)
class Overruled:
    """By how much an arm was certainly worse than the reference when a person resumed it; 0: within the limit."""

    arm: str
    deficit: float


@dataclass(frozen=True)
class HistoryEntered:
    """So many rewards of an arm, of before the federation, were entered: never again, whatever becomes of them."""

    arm: int
    rewards: int


EVALUATION = -2
"""Where an arm's number stands of what belongs to the evaluation of other policies; -1 is ``plain.NO_ARM``."""


@dataclass(frozen=True)
class Evaluating:
    """What a site adds up for other policies (``core.evaluation``): raw sums, for the agent's own disk alone."""

    fields: dict[str, Any]


@dataclass(frozen=True)
class EvaluationReleased:
    """The last decision that a release for other policies holds; it only ever grows, as with ``Released``."""

    last: int


@dataclass(frozen=True)
class Opened:
    """The process that has opened the file."""

    run: int


@dataclass(frozen=True)
class Renewed:
    """A new incarnation begins with an old file: the records that follow say anew what is known and released."""


Record = (
    (Numbering | SiteTimes | DecisionRecord | Forgotten | Kept | Known | Released | Renewed | Opened | ArmChanged)
    | (Evaluating | EvaluationReleased)
    | (OwnBulletin | BoardRow | Neighbour | Unlinked | Excluded | Included | Overruled | HistoryEntered | Act | Entry)
)


@dataclass
class Stored:
    """All that survives: the last record of everything that has a name.

    * ``key``: makes the ids of decisions; each file has its own, and only one in memory may do without
    * ``run``: the process that opened the file last; 0: none of this version
    * ``kept``: rewards that the site keeps for its log, by the id of the decision
    * ``known``: the fields of each arm; ``released``: the last pull released of each arm and level
    * ``own``: the newest own bulletin of a process that was sure; ``doubtful``: a later one of one that was not
    * ``board``: what is stored of the board, own bulletins of other processes among it
    * ``neighbours``: those with a link, and whether they have ever shown that they know this site
    * ``overruled``: of arms that were resumed, by how much each was worse than the reference then
    * ``history``: how many rewards of each arm are of before the federation
    * ``evaluating``: sums for other policies; ``evaluated``: the last decision that a release of them holds
    * ``trail``: of the audit trail, which stays on disk
    """

    numbering: Numbering
    times: SiteTimes = SiteTimes(0.0, 0)
    key: bytes = b""
    run: int = 0
    decisions: dict[str, DecisionRecord] = field(default_factory=dict[str, DecisionRecord])
    kept: dict[str, float] = field(default_factory=dict[str, float])
    known: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    released: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    arm_changes: dict[str, ArmChanged] = field(default_factory=dict[str, ArmChanged])
    own: Signed | None = None
    doubtful: OwnBulletin | None = None
    board: dict[str, BoardRow] = field(default_factory=dict[str, BoardRow])
    neighbours: dict[str, bool] = field(default_factory=dict[str, bool])
    excluded: dict[str, Excluded] = field(default_factory=dict[str, Excluded])
    overruled: dict[str, float] = field(default_factory=dict[str, float])
    history: dict[int, int] = field(default_factory=dict[int, int])
    evaluating: dict[str, Any] | None = None
    evaluated: int = 0
    trail: Head = BEGINNING

    def apply(self, records: Iterable[Record]) -> None:
        """Take in records, in their order."""
        for record in records:
            match record:
                case Numbering():
                    self.numbering = record
                case SiteTimes():
                    self.times = record
                case DecisionRecord():
                    self.decisions[record.id] = record
                case Forgotten():
                    del self.decisions[record.id]
                    self.kept.pop(record.id, None)
                case Kept(name, _, reward):
                    self.kept.pop(name, None)
                    if reward is not None:
                        self.kept[name] = reward
                case Known():
                    self.known[record.arm] = record.fields
                case Released():
                    self.released[record.arm, record.level] = record.last
                case Evaluating(fields):
                    self.evaluating = fields
                case EvaluationReleased(last):
                    self.evaluated = last
                case OwnBulletin(signed, doubt):
                    self.own, self.doubtful = (self.own, record) if doubt else (signed, None)
                case BoardRow(site):
                    self.board[site] = record
                case Neighbour(name, has_heard):
                    self.neighbours[name] = has_heard
                case Unlinked(name):
                    self.neighbours.pop(name, None)
                case Excluded(name):
                    self.excluded[name] = record
                case Included(name):
                    self.excluded.pop(name, None)
                case HistoryEntered(arm, rewards):
                    self.history[arm] = rewards
                case Overruled(arm, deficit):
                    self.overruled[arm] = deficit
                case Opened(run):
                    self.run = run
                case ArmChanged(change):
                    self.arm_changes[change.id] = record
                case Renewed():
                    self.known, self.released, self.doubtful = {}, {}, None
                    self.evaluating, self.evaluated = None, 0
                case Entry():
                    self.trail = Head(record.number, record.hash)
                case Act():
                    pass  # for the audit trail alone


# ---------------------------------------------------------------- results and refusals


_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Step(Generic[_Result]):
    """What to do after an event: commit the records in one transaction, then use the result."""

    result: _Result
    records: tuple[Record, ...] = ()


class Refused(RuntimeError):
    """An event that changed nothing."""


class AnotherRuns(Refused):
    """Refused: a neighbour is linked with another process of this name, and it answers."""


class DecisionNotFound(Refused):
    """The application's mistake: no decision has this id, or it has expired."""


class NoArmLeft(Refused):
    """Nobody's mistake: no arm is left for this request."""


class KeyTaken(Refused):
    """The application's mistake: the key belongs to another request."""


class StoppedMeanwhile(Refused):
    """Nobody's mistake: the arm of the decision that the key belongs to was stopped meanwhile."""


class DecisionCancelled(Refused):
    """The application's mistake: the decision was cancelled."""


class Rewarded(Refused):
    """The application's mistake: the decision has a reward, and cannot be cancelled."""


class WindowOver(Refused):
    """Nobody's mistake: the decision counts already, with the default, and cannot be cancelled."""


class HorizonReached(Refused):
    """Nobody's mistake: the privacy of the terms is spent, since an arm's tree takes no more rewards."""
