"""What can go wrong when an application calls an agent: one class for each case that it would catch."""

from pydantic import BaseModel, ConfigDict, ValidationError

__all__ = [
    "AgentError",
    "ArmStopped",
    "Cancelled",
    "Forbidden",
    "InvalidRequest",
    "KeyReused",
    "NoArm",
    "NotANeighbour",
    "TooLateToCancel",
    "Unauthorised",
    "Unavailable",
    "UnknownDecision",
    "Unreachable",
    "error_of",
]


class AgentError(RuntimeError):
    """A failed call, with the agent's message.

    For programs: ``code``; ``field``, the part of the request that was wrong; ``accepted``, what it accepts. Each is
    None where the agent did not say it.
    """

    def __init__(
        self, message: str, code: str | None = None, field: str | None = None, accepted: str | None = None
    ) -> None:
        """Carry what the agent said."""
        super().__init__(message)
        self.code, self.field, self.accepted = code, field, accepted


class UnknownDecision(AgentError):
    """No decision has this id, or it has expired."""


class NoArm(AgentError):
    """No arm is left for this request: all that are eligible are stopped, or none is eligible."""


class KeyReused(AgentError):
    """Another request had this key. A key belongs to one request, and to its repetitions."""


class ArmStopped(AgentError):
    """This key had a decision, which the message names, and its arm was stopped meanwhile. Ask with another key."""


class Cancelled(AgentError):
    """The decision was cancelled: it takes no reward, and its key gives no other."""


class TooLateToCancel(AgentError):
    """The decision has had a reward, or counts already."""


class InvalidRequest(AgentError):
    """The agent refused the request, and says what it accepts."""


class NotANeighbour(AgentError):
    """There is no such neighbour, or it has left."""


class Unauthorised(AgentError):
    """The token is missing or wrong."""


class Forbidden(AgentError):
    """The token lacks a right, which the message names."""


class Unavailable(AgentError):
    """The agent cannot serve now; nothing has changed."""


class Unreachable(AgentError):
    """No answer in time. The call may or may not have arrived: repeat it, a decision with the same key."""


_KINDS: dict[str, type[AgentError]] = {
    "arm_refused": InvalidRequest,
    "arm_stopped": ArmStopped,
    "cancelled": Cancelled,
    "forbidden": Forbidden,
    "invalid": InvalidRequest,
    "invalid_json": InvalidRequest,
    "key_reused": KeyReused,
    "no_arm": NoArm,
    "not_a_neighbour": NotANeighbour,
    "not_ready": Unavailable,
    "rewarded": TooLateToCancel,
    "too_large": InvalidRequest,
    "unauthorised": Unauthorised,
    "unavailable": Unavailable,
    "unknown_arm": InvalidRequest,
    "unknown_decision": UnknownDecision,
    "window_over": TooLateToCancel,
}


class _Detail(BaseModel):
    """As ``http.schemas.ErrorDetail``; an agent of a later version may know further codes."""

    model_config = ConfigDict(strict=True)
    code: str
    message: str
    field: str | None = None
    accepted: str | None = None


class _Body(BaseModel):
    model_config = ConfigDict(strict=True)
    error: _Detail


def error_of(content: bytes) -> AgentError | None:
    """The error in the body of an unsuccessful response; None: no agent has written it."""
    try:
        said = _Body.model_validate_json(content).error
    except ValidationError:
        return None
    return _KINDS.get(said.code, AgentError)(said.message, said.code, said.field, said.accepted)
