"""What the HTTP API calls of an agent."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from fedbandit.agent.core.arm_changes import ArmChange, ChangeKind
from fedbandit.agent.core.arms import Arms
from fedbandit.agent.core.decisions import Outcome
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.forgetting import Limits
from fedbandit.agent.core.records import Decision
from fedbandit.agent.core.requests import Request
from fedbandit.agent.core.restore import Restored
from fedbandit.agent.http.feed import Feed
from fedbandit.agent.http.state import HistoryBody, SiteState

__all__ = ["LocalAgent"]


class LocalAgent(Protocol):
    """The methods of an agent that the API calls. Each may raise ``JournalError``; then nothing has changed."""

    async def decide(self) -> Decision:
        """Hand out a decision; it is on disk when this returns."""
        ...

    async def report(self, decision_id: str, reward: float) -> bool:
        """Accept a reward; False: too late. Raises ``UnknownDecision`` or ``InvalidArgument``."""
        ...

    async def request(self, request: Request) -> tuple[Decision, ...]:
        """Hand out the decisions of a request; raises ``NoArm``, ``KeyReused``, ``ArmStopped`` or ``Cancelled``."""
        ...

    async def report_all(self, rewards: Sequence[tuple[str, float]]) -> tuple[Outcome, ...]:
        """Accept several rewards in one transaction: what came of each."""
        ...

    async def cancel(self, decision_id: str) -> None:
        """Take back a decision; raises ``UnknownDecision``, ``Rewarded`` or ``WindowOver``."""
        ...

    async def decision(self, decision_id: str) -> Decision:
        """A decision that is remembered; raises ``UnknownDecision``."""
        ...

    async def log(self, after: int) -> tuple[list[Decision], Mapping[str, float]]:
        """All decisions beyond a number, and the rewards that are kept; neither changes any more."""
        ...

    @property
    def limits(self) -> Limits:
        """How much is remembered, and for how long."""
        ...

    @property
    def arm_names(self) -> tuple[str, ...]:
        """The names of the arms, in the order of their numbers."""
        ...

    async def arms(self) -> Arms:
        """The arms, and what became of them."""
        ...

    async def change_arm(self, kind: ChangeKind, arm: str) -> ArmChange:
        """Change an arm; raises ``InvalidArgument``, which names the arms that there are."""
        ...

    async def accept_arm(self, arm: str, retire: bool) -> tuple[ArmChange, ...]:
        """Accept the changes of an arm that wait, a retirement only if told; raises ``InvalidArgument`` if none do."""
        ...

    async def leave(self, neighbour: str) -> None:
        """Record that a neighbour has left for good; raises ``NotANeighbour``."""
        ...

    async def rejoin(self, neighbour: str) -> None:
        """Accept a neighbour that had left; raises ``NotANeighbour`` if the configuration does not list it."""
        ...

    async def confirm(self) -> None:
        """The operator says that this process lives, and its file is the latest; raises ``FileIsOld``."""
        ...

    async def restore(self) -> Restored:
        """Begin a new life with an old file; raises ``FileIsCurrent``."""
        ...

    async def state(self) -> SiteState:
        """The agent's state."""
        ...

    async def history(self) -> HistoryBody:
        """How the state moved since the process started; all of it is on disk."""
        ...

    @property
    def feed(self) -> Feed:
        """The open streams."""
        ...

    async def not_ready(self) -> str | None:
        """Why it cannot serve now; None if it can."""
        ...

    @property
    def terms(self) -> Federation:
        """The terms that all sites share."""
        ...
