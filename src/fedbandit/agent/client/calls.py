"""The calls of an agent's HTTP API, each described once for both clients; what they return, and what can go wrong."""

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel, TypeAdapter, ValidationError

from fedbandit.agent.http.state import (
    ArmChangeBody,
    ArmsBody,
    AuditLogBody,
    EvidenceBody,
    FederationState,
    HistoryBody,
    MemberBody,
    RestoredBody,
    SiteState,
)
from fedbandit.checks import InvalidArgument, finite_number, instance, whole_number

# ---------------------------------------------------------------- what can go wrong


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


class UnknownMember(AgentError):
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
    "unknown_member": UnknownMember,
    "not_ready": Unavailable,
    "rewarded": TooLateToCancel,
    "too_large": InvalidRequest,
    "unauthorised": Unauthorised,
    "unavailable": Unavailable,
    "unknown_arm": InvalidRequest,
    "unknown_decision": UnknownDecision,
    "unknown_stratum": InvalidRequest,
    "window_over": TooLateToCancel,
}


class _Detail(BaseModel, strict=True):
    """As ``http.bodies.ErrorDetail``; an agent of a later version may know further codes."""

    code: str
    message: str
    field: str | None = None
    accepted: str | None = None


class _ErrorAnswer(BaseModel, strict=True):
    error: _Detail


def error_of(content: bytes) -> AgentError | None:
    """The error in the body of an unsuccessful response; None: no agent has written it."""
    try:
        said = _ErrorAnswer.model_validate_json(content).error
    except ValidationError:
        return None
    return _KINDS.get(said.code, AgentError)(said.message, said.code, said.field, said.accepted)


# ---------------------------------------------------------------- answers

_T = TypeVar("_T")
Arms = Iterable[str | int]

Context = Mapping[str, str | None]


@dataclass(frozen=True)
class Decision:
    """Use this arm, and report its reward under this id."""

    id: str
    arm: int
    name: str
    propensity: float | None = None
    """The probability with which the agent gives this arm to this request; None if it does not know."""


@dataclass(frozen=True, kw_only=True)
class _Remembered(Decision):
    number: int
    at: float
    """When it was handed out, in seconds since 1970."""
    rewarded: bool
    """A reward was reported in time."""
    counted: bool
    """It counts already, with its reward or the default."""
    late: bool
    """A reward came too late, and does not count."""
    cancelled: bool
    context: dict[str, str] | None
    """The level of each factor, as it counts; None: the terms have none."""


@dataclass(frozen=True, kw_only=True)
class KnownDecision(_Remembered):
    """A decision as it stands. Times are in seconds since 1970."""

    reward_until: float | None
    """Until when a reward counts; None: until the decision is forgotten."""
    remembered_until: float


@dataclass(frozen=True)
class Reported:
    """What came of one of many rewards."""

    id: str
    counted: bool
    code: str | None = None
    """Why it does not count; None: it does."""
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class LoggedDecision(_Remembered):
    """A decision of the log."""

    eligible: list[int] | None
    """Numbers of the arms among which it was chosen; None: all that there were."""
    deterministic: str | None
    """Why its arm was certain: ``index``, ``subject`` or ``one arm``; None: it was drawn."""
    subject: str | None
    """A keyed hash: the same text for the same subject."""
    reward: float | None
    """None, unless the site keeps rewards."""


@dataclass(frozen=True)
class ApiCall(Generic[_T]):
    """A request, and the parser of its answer."""

    method: str
    path: str
    read: Callable[[bytes], _T]
    body: bytes | None = None
    repeats: bool = True
    """It is safe to repeat. Other calls are repeated only if nobody accepted the connection."""


# ---------------------------------------------------------------- decisions


@dataclass(frozen=True)
class _DecisionList:
    decisions: list[Decision]


@dataclass(frozen=True)
class _Results:
    results: list[Reported]


@dataclass(frozen=True)
class _Counted:
    counted: bool


_DECISION, _DECISIONS, _KNOWN = TypeAdapter(Decision), TypeAdapter(_DecisionList), TypeAdapter(KnownDecision)
_COUNTED, _RESULTS, _LOGGED = TypeAdapter(_Counted), TypeAdapter(_Results), TypeAdapter(LoggedDecision)
_OBJECT = TypeAdapter(dict[str, Any])


def _nothing(_: bytes) -> None:
    return None


_Model = TypeVar("_Model", bound=BaseModel)


def _model(kind: type[_Model]) -> Callable[[bytes], _Model]:
    return lambda content: kind.model_validate(json.loads(content, parse_constant=_refuse))


def _refuse(constant: str) -> None:
    """An agent writes null for what is no number: NaN would surprise whoever shows it."""
    raise ValueError(f"{constant} is no number")


def _reader(kind: TypeAdapter[_T]) -> Callable[[bytes], _T]:
    return lambda content: kind.validate_json(content, strict=True)


def decide(
    eligible: Arms | None = None,
    exclude: Arms | None = None,
    key: str | None = None,
    subject: str | None = None,
    context: Context | None = None,
) -> ApiCall[Decision]:
    """Ask for an arm.

    * ``eligible``, or ``exclude``: names or numbers of the arms that may, or may not, be given to this request
    * ``key``: a repeated call with the same key gets the same decision. Without one the client makes one, so that it
      may repeat the call itself; give your own if *you* repeat calls, such as the id of the request that you serve
    * ``subject``: the same subject gets the same arm while its decision is remembered
    * ``context``: what is known of the patient, by factor of the terms, such as ``{"age": "over 65"}``
    """
    body = _request(eligible, exclude, key, subject, context)
    return ApiCall("POST", "/v1/decisions", _reader(_DECISION), body)


def decide_many(
    count: int,
    eligible: Arms | None = None,
    exclude: Arms | None = None,
    key: str | None = None,
    subject: str | None = None,
    context: Context | None = None,
) -> ApiCall[list[Decision]]:
    """Ask for several decisions at once: all of them, or none. Otherwise as ``decide``."""
    body = _request(eligible, exclude, key, subject, context, count=whole_number("count", count, 1, 1000))
    return ApiCall("POST", "/v1/decisions", lambda said: _DECISIONS.validate_json(said, strict=True).decisions, body)


def _request(
    eligible: Arms | None,
    exclude: Arms | None,
    key: str | None,
    subject: str | None,
    context: Context | None,
    **more: int,
) -> bytes:
    said: dict[str, Any] = {"key": secrets.token_hex(16) if key is None else _text("key", key, "a text")}
    for name, arms in (("eligible", eligible), ("exclude", exclude)):
        if arms is not None:
            if isinstance(arms, str):
                raise InvalidArgument(name, arms, "a list of names or numbers of arms")
            said[name] = list(arms)
    if subject is not None:
        said["subject"] = _text("subject", subject, "a text")
    if context is not None:
        if not isinstance(context, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            raise InvalidArgument("context", context, 'a mapping such as {"age": "over 65"}')
        said["context"] = dict(context)
    return _json({**said, **more})


def decision(decision: Decision | str) -> ApiCall[KnownDecision]:
    """Look at a decision: its arm, when it was made, its propensity, whether and until when it takes a reward."""
    return ApiCall("GET", _path_of(decision), _reader(_KNOWN))


def cancel(decision: Decision | str) -> ApiCall[None]:
    """Take a decision back that nobody has used: it is no longer pending, and no reward is expected. Idempotent."""
    return ApiCall("DELETE", _path_of(decision), _nothing)


def reward(decision: Decision | str, value: float) -> ApiCall[bool]:
    """Report the reward of a decision; it is on disk when this returns. Safe to repeat: the first report counts.

    False: the federation's reward window was over, and it does not count.
    """
    body = _json({"value": _value(value)})
    return ApiCall(
        "PUT", f"{_path_of(decision)}/reward", lambda said: not said or _reader(_COUNTED)(said).counted, body
    )


def rewards(reports: Iterable[tuple[Decision | str, float]]) -> ApiCall[list[Reported]]:
    """Report the rewards of up to 1,000 decisions at once. Safe to repeat. Returns what came of each, in order.

    One that is refused does not stop the others: its ``code`` says why.
    """
    said = [{"id": _id_of(decision), "value": _value(value)} for decision, value in reports]
    body = _json({"rewards": said})
    return ApiCall("POST", "/v1/rewards", lambda said: _RESULTS.validate_json(said, strict=True).results, body)


def _id_of(decision: Decision | str) -> str:
    name = decision.id if isinstance(decision, Decision) else decision
    return _text("decision", name, "a Decision or its id")


def _path_of(decision: Decision | str) -> str:
    return f"/v1/decisions/{quote(_id_of(decision), safe='')}"


def _value(value: float) -> float:
    try:
        return finite_number("value", value)
    except InvalidArgument as error:  # the agent would refuse it, but JSON has no such numbers
        raise InvalidRequest(str(error), "invalid", "value", error.accepted) from None


def _text(argument: str, value: str, accepted: str) -> str:
    instance(argument, value, str, accepted)
    return value


def _json(said: dict[str, Any]) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode()


# ---------------------------------------------------------------- what can be seen


def federation() -> ApiCall[FederationState]:
    """Read the terms that all sites share: arms, range, reward window. For whoever may decide."""
    return ApiCall("GET", "/v1/federation", _model(FederationState))


def state() -> ApiCall[SiteState]:
    """Read the agent's state."""
    return ApiCall("GET", "/v1/state", _model(SiteState))


def evidence(reference: str | None = None, stratum: str | None = None) -> ApiCall[EvidenceBody]:
    """Read every site's estimates beside the average.

    ``reference``: the arm with which the others are compared; by default the control arm, or the leading one.
    ``stratum``: the label of one of ``state().answer.strata``; by default all patients.
    """
    asked = {"reference": reference, "stratum": stratum}
    query = urlencode({name: value for name, value in asked.items() if value is not None}, quote_via=quote, safe="")
    return ApiCall("GET", f"/v1/evidence{'?' if query else ''}{query}", _model(EvidenceBody))


def audit_log(**wanted: str | int) -> ApiCall[AuditLogBody]:
    """Read who did what, when and why: at most 1,000 entries of the audit trail, oldest first.

    ``wanted``: ``since``, ``until``, ``person``, ``kind``, ``arm``, ``after`` a number, the ``last`` so many.
    """
    query = urlencode({name: str(value) for name, value in wanted.items()})
    return ApiCall("GET", f"/v1/audit-log{'?' if query else ''}{query}", _model(AuditLogBody))


def history() -> ApiCall[HistoryBody]:
    """Read how the estimates have moved."""
    return ApiCall("GET", "/v1/history", _model(HistoryBody))


def ready() -> ApiCall[None]:
    """Ask whether the agent serves; ``Unavailable`` says why it does not."""
    return ApiCall("GET", "/readyz", _nothing)


def arms() -> ApiCall[ArmsBody]:
    """Read the list of arms with its version: which are stopped, who changed what, and what waits to be accepted."""
    return ApiCall("GET", "/v1/arms", _model(ArmsBody))


def log(after: int = 0) -> ApiCall[LoggedDecision]:
    """Read the log from the decision after this number; the answer is a stream, of which this reads one line."""
    return ApiCall("GET", f"/v1/log?after={whole_number('after', after, 0, 2**62)}", _reader(_LOGGED))


# ---------------------------------------------------------------- operators


def change_arm(
    kind: Literal["add", "suspend", "resume", "retire"],
    name: str,
    reason: str = "",
    stratum: Mapping[str, str] | None = None,
) -> ApiCall[ArmChangeBody]:
    """Change the list of arms; a stop (``suspend``, ``retire``) takes effect at every site that hears of it.

    ``reason``: why, for people; every site shows it. Only ``add`` needs none. ``stratum``: to suspend or resume it for
    patients with these levels alone, such as ``{"age": "over 65"}``; None: for all.
    """
    said: dict[str, Any] = {"change": kind, "arm": _text("name", name, "the name of an arm")}
    said |= {"reason": reason} if reason else {}
    said |= {} if stratum is None else {"stratum": dict(stratum)}
    return ApiCall("POST", "/v1/arms", _model(ArmChangeBody), _json(said), repeats=False)


def accept_arm(name: str, retire: bool = False, reason: str = "") -> ApiCall[ArmsBody]:
    """Accept the changes of an arm that other sites have made and that wait; returns the arms as they are now.

    A retirement is final: it is accepted only with ``retire``.
    """
    said: dict[str, Any] = {"arm": _text("name", name, "the name of an arm")} | ({"retire": True} if retire else {})
    said |= {"reason": reason} if reason else {}
    return ApiCall("POST", "/v1/arms/accept", _model(ArmsBody), _json(said))


def member(name: str) -> ApiCall[MemberBody]:
    """Look at what a site has signed, as it was signed."""
    return ApiCall("GET", f"/v1/members/{_member(name)}", _model(MemberBody))


def exclude(name: str, reason: str) -> ApiCall[None]:
    """Exclude a member: its numbers, and its new changes of arms, no longer count at this site."""
    return ApiCall("PUT", f"/v1/excluded/{_member(name)}", _nothing, _because(reason))


def include(name: str, reason: str = "") -> ApiCall[None]:
    """Count an excluded member again."""
    return ApiCall("DELETE", f"/v1/excluded/{_member(name)}", _nothing, _because(reason) if reason else None)


def _because(reason: str) -> bytes:
    return _json({"reason": _text("reason", reason, "a text that says why")})


def _member(name: str) -> str:
    return quote(_text("name", name, "the name of a site"), safe="")


def confirm(reason: str) -> ApiCall[None]:
    """Confirm that the agent is the only one of its name, and that its data folder is the latest."""
    return ApiCall("POST", "/v1/confirm", _nothing, _because(reason))


def restore(reason: str) -> ApiCall[RestoredBody]:
    """Let the agent begin a new incarnation with an old data folder."""
    return ApiCall("POST", "/v1/restore", _model(RestoredBody), _because(reason), repeats=False)
