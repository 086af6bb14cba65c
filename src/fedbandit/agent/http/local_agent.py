"""What the HTTP API calls of an agent."""

from typing import Protocol

from fedbandit.agent.core.arm_changes import ArmChange, ChangeKind
from fedbandit.agent.core.arms import Arms
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Decision
from fedbandit.agent.core.restore import Restored
from fedbandit.agent.http.state import SiteState

__all__ = ["LocalAgent"]


class LocalAgent(Protocol):
    """The methods of an agent that the API calls. Each may raise ``JournalError``; then nothing has changed."""

    async def decide(self) -> Decision:
        """Hand out a decision; it is on disk when this returns."""
        ...

    async def report(self, decision_id: str, reward: float) -> bool:
        """Accept a reward; False: too late. Raises ``UnknownDecision`` or ``InvalidArgument``."""
        ...

    @property
    def arms(self) -> Arms:
        """The arms, and what became of them."""
        ...

    async def change_arm(self, kind: ChangeKind, arm: str) -> ArmChange:
        """Change an arm; raises ``InvalidArgument``, which names the arms that there are."""
        ...

    async def accept_arm(self, arm: str) -> tuple[ArmChange, ...]:
        """Accept the changes of an arm that wait; raises ``InvalidArgument`` if none do."""
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

    def state(self) -> SiteState:
        """The agent's state."""
        ...

    def not_ready(self) -> str | None:
        """Why it cannot serve now; None if it can."""
        ...

    @property
    def terms(self) -> Federation:
        """The terms that all sites share."""
        ...
