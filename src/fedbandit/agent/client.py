"""Python client of an agent's HTTP API, blocking and for asyncio.

It imports only the state model of the server. A reward is idempotent and is retried freely. A decision is
not: a request that arrived has handed one out. So it is retried only if no server accepted the connection.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError

from fedbandit.agent.http.state import ArmChangeBody, ArmsBody, FederationState, RestoredBody, SiteState
from fedbandit.checks import InvalidArgument, finite_number, instance, number_above

try:
    import httpx
except ImportError as error:
    raise ImportError("the client of an agent needs httpx: pip install 'fedbandit[agent]'", name="httpx") from error

__all__ = [
    "AgentError",
    "AsyncClient",
    "Client",
    "Decision",
    "Forbidden",
    "InvalidRequest",
    "NoArm",
    "NotANeighbour",
    "Unauthorised",
    "Unavailable",
    "UnknownDecision",
    "Unreachable",
]

_T = TypeVar("_T")
_WAITS = (0.05, 0.2, 0.5, 1.0)  # seconds between attempts: an agent is back in less than a second
_IDLE = 2.0  # seconds; the server closes idle connections after 5, and a request must not race with that


class AgentError(RuntimeError):
    """A failed call, with the agent's message; ``code`` is for programs."""

    code: str | None = None


class UnknownDecision(AgentError):
    """No decision has this id, or it has expired."""


class InvalidRequest(AgentError):
    """The agent refused the request, and says what it accepts."""


class NotANeighbour(AgentError):
    """There is no such neighbour, or it has left."""


class NoArm(AgentError):
    """No arm may be given now: all are stopped."""


class Unauthorised(AgentError):
    """The token is missing or wrong."""


class Forbidden(AgentError):
    """The token lacks a right, which the message names."""


class Unavailable(AgentError):
    """The agent cannot serve now; nothing has changed."""


class Unreachable(AgentError):
    """No answer. A reward may or may not have arrived; reporting it again is safe."""


_KINDS: dict[str, type[AgentError]] = {
    "arm_refused": InvalidRequest,
    "forbidden": Forbidden,
    "invalid": InvalidRequest,
    "invalid_json": InvalidRequest,
    "no_arm": NoArm,
    "not_a_neighbour": NotANeighbour,
    "not_ready": Unavailable,
    "too_large": InvalidRequest,
    "unauthorised": Unauthorised,
    "unavailable": Unavailable,
    "unknown_arm": InvalidRequest,
    "unknown_decision": UnknownDecision,
}


@dataclass(frozen=True)
class Decision:
    """Use this arm, and report its reward under this id."""

    id: str
    arm: int
    name: str


class _DecisionBody(BaseModel):
    model_config = ConfigDict(strict=True)
    id: str
    arm: int
    name: str


class _RewardBody(BaseModel):
    model_config = ConfigDict(strict=True)
    counted: bool


@dataclass(frozen=True)
class _Call(Generic[_T]):
    """A request, the parser of its answer, and the errors after which it may be retried."""

    method: str
    path: str
    read: Callable[[bytes], _T]
    again_after: tuple[type[Exception], ...]
    body: dict[str, float] | dict[str, str] | None = None


_NOT_SENT = (httpx.ConnectError,)
_NO_HARM = (httpx.TransportError, Unavailable)


def _nothing(_: bytes) -> None:
    return None


def _read_counted(content: bytes) -> bool:
    return not content or _RewardBody.model_validate_json(content).counted


def _read_decision(content: bytes) -> Decision:
    return Decision(**_DecisionBody.model_validate_json(content).model_dump())


_DECIDE = _Call("POST", "/v1/decisions", _read_decision, _NOT_SENT)
_FEDERATION = _Call("GET", "/v1/federation", FederationState.model_validate_json, _NO_HARM)
_ARMS = _Call("GET", "/v1/arms", ArmsBody.model_validate_json, _NO_HARM)
_CONFIRM = _Call("POST", "/v1/confirm", _nothing, _NO_HARM)
_RESTORE = _Call("POST", "/v1/restore", RestoredBody.model_validate_json, _NOT_SENT)
_STATE = _Call("GET", "/v1/state", SiteState.model_validate_json, _NO_HARM)


def _reward(decision: Decision | str, value: float) -> _Call[bool]:
    name = decision.id if isinstance(decision, Decision) else decision
    instance("decision", name, str, "a Decision or its id")
    try:
        body = {"value": finite_number("value", value)}
    except InvalidArgument as error:  # the agent would refuse it, but JSON has no such numbers
        raise InvalidRequest(str(error)) from None
    return _Call("PUT", f"/v1/decisions/{quote(name, safe='')}/reward", _read_counted, _NO_HARM, body)


def _neighbour(method: str, name: str) -> _Call[None]:
    instance("name", name, str, "the name of a neighbour")
    return _Call(method, f"/v1/neighbours/{quote(name, safe='')}", _nothing, _NO_HARM)


def _change_arm(change: str, arm: str) -> _Call[ArmChangeBody]:
    body = {"change": change, "arm": arm}
    return _Call("POST", "/v1/arms", ArmChangeBody.model_validate_json, _NOT_SENT, body)


def _accept_arm(arm: str) -> _Call[ArmsBody]:
    return _Call("POST", "/v1/arms/accept", ArmsBody.model_validate_json, _NOT_SENT, {"arm": arm})


class _Settings:
    """Settings shared by both clients."""

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        instance("url", url, str, "an address such as http://127.0.0.1:8400")
        if not url.startswith(("http://", "https://")):
            raise InvalidArgument("url", url, "an address such as http://127.0.0.1:8400")
        self.url = url.rstrip("/")
        token = None if token is None else token.strip()  # as a file ends with a newline
        if token is not None and (not token.isascii() or not token.isprintable() or not token):
            raise InvalidArgument("token", "what was given", "visible ASCII characters")  # never shown
        self.options: dict[str, Any] = {
            "base_url": self.url,
            "timeout": number_above("timeout", timeout, 0.0),
            "headers": {} if token is None else {"Authorization": f"Bearer {token}"},
            "limits": httpx.Limits(keepalive_expiry=_IDLE),
            "trust_env": False,  # an agent is beside the application: no proxy
        }

    def value(self, call: _Call[_T], answer: httpx.Response) -> _T:
        """The value of an answer; raises the error that it carries."""
        try:
            if answer.is_success:
                return call.read(answer.content)
            detail = answer.json()["error"]
            told, code = str(detail["message"]), str(detail["code"])
        except (ValidationError, ValueError, KeyError, TypeError):
            raise AgentError(f"{self.url} does not answer like an agent (status {answer.status_code})") from None
        error = _KINDS.get(code, AgentError)(told)
        error.code = code
        raise error

    def told(self, error: Exception) -> AgentError:
        """The error that the caller sees."""
        if isinstance(error, AgentError):
            return error
        return Unreachable(f"no answer from {self.url}: {error or type(error).__name__}")


class Client:
    """A blocking client. Usable from several threads."""

    def __init__(self, url: str = "http://127.0.0.1:8400", token: str | None = None, timeout: float = 5.0) -> None:
        """``timeout``: seconds per attempt."""
        self._settings = _Settings(url, token, timeout)
        self._http = httpx.Client(**self._settings.options)

    def decide(self) -> Decision:
        """Ask for an arm."""
        return self._run(_DECIDE)

    def reward(self, decision: Decision | str, value: float) -> bool:
        """Report the reward of a decision; it is on disk when this returns. Safe to repeat: the first report counts.

        False: the federation's reward window was over, and it does not count.
        """
        return self._run(_reward(decision, value))

    def federation(self) -> FederationState:
        """The terms that all sites share: arms, range, reward window. For whoever may decide."""
        return self._run(_FEDERATION)

    def state(self) -> SiteState:
        """The agent's state."""
        return self._run(_STATE)

    def arms(self) -> ArmsBody:
        """The arms, which of them are stopped, and who changed what."""
        return self._run(_ARMS)

    def change_arm(self, change: str, arm: str) -> ArmChangeBody:
        """Add, suspend, resume or retire an arm. Signed by this site, and told to all others."""
        return self._run(_change_arm(change, arm))

    def accept_arm(self, arm: str) -> ArmsBody:
        """Accept the changes of an arm that wait."""
        return self._run(_accept_arm(arm))

    def leave(self, name: str) -> None:
        """Tell the agent that a neighbour has left for good."""
        self._run(_neighbour("DELETE", name))

    def rejoin(self, name: str) -> None:
        """Tell the agent to accept a neighbour that had left."""
        self._run(_neighbour("PUT", name))

    def confirm(self) -> None:
        """Tell the agent that it is the one that lives, and that its data folder is the latest."""
        self._run(_CONFIRM)

    def restore(self) -> RestoredBody:
        """Let the agent begin a new life with an old data folder."""
        return self._run(_RESTORE)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, call: _Call[_T]) -> _T:
        for wait in (*_WAITS, None):
            try:
                return self._settings.value(call, self._http.request(call.method, call.path, json=call.body))
            except (httpx.TransportError, AgentError) as error:
                if wait is None or not isinstance(error, call.again_after):
                    raise self._settings.told(error) from None
            time.sleep(wait)
        raise AssertionError("the last attempt returns or raises")


class AsyncClient:
    """A client for asyncio, with the methods of ``Client`` as coroutines."""

    def __init__(self, url: str = "http://127.0.0.1:8400", token: str | None = None, timeout: float = 5.0) -> None:
        """``timeout``: seconds per attempt."""
        self._settings = _Settings(url, token, timeout)
        self._http = httpx.AsyncClient(**self._settings.options)

    async def decide(self) -> Decision:
        """Ask for an arm."""
        return await self._run(_DECIDE)

    async def reward(self, decision: Decision | str, value: float) -> bool:
        """Report the reward of a decision; it is on disk when this returns. Safe to repeat: the first report counts.

        False: the federation's reward window was over, and it does not count.
        """
        return await self._run(_reward(decision, value))

    async def federation(self) -> FederationState:
        """The terms that all sites share: arms, range, reward window. For whoever may decide."""
        return await self._run(_FEDERATION)

    async def state(self) -> SiteState:
        """The agent's state."""
        return await self._run(_STATE)

    async def arms(self) -> ArmsBody:
        """The arms, which of them are stopped, and who changed what."""
        return await self._run(_ARMS)

    async def change_arm(self, change: str, arm: str) -> ArmChangeBody:
        """Add, suspend, resume or retire an arm. Signed by this site, and told to all others."""
        return await self._run(_change_arm(change, arm))

    async def accept_arm(self, arm: str) -> ArmsBody:
        """Accept the changes of an arm that wait."""
        return await self._run(_accept_arm(arm))

    async def leave(self, name: str) -> None:
        """Tell the agent that a neighbour has left for good."""
        await self._run(_neighbour("DELETE", name))

    async def rejoin(self, name: str) -> None:
        """Tell the agent to accept a neighbour that had left."""
        await self._run(_neighbour("PUT", name))

    async def confirm(self) -> None:
        """Tell the agent that it is the one that lives, and that its data folder is the latest."""
        await self._run(_CONFIRM)

    async def restore(self) -> RestoredBody:
        """Let the agent begin a new life with an old data folder."""
        return await self._run(_RESTORE)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: _Call[_T]) -> _T:
        for wait in (*_WAITS, None):
            try:
                return self._settings.value(call, await self._http.request(call.method, call.path, json=call.body))
            except (httpx.TransportError, AgentError) as error:
                if wait is None or not isinstance(error, call.again_after):
                    raise self._settings.told(error) from None
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")
