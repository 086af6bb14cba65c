"""Request bodies and errors of the HTTP API: how a body is read, and what a refusal looks like.

Bodies are parsed strictly: no key twice, no unknown field, no conversions; ``true`` is not 1, and NaN is no number.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive

from fedbandit import strict_json
from fedbandit.agent.core import records
from fedbandit.agent.core.release_guard import FileIsCurrent, FileIsOld
from fedbandit.agent.disk.journal import JournalError
from fedbandit.checks import InvalidArgument, closest, shortened

# ---------------------------------------------------------------- errors

Code = Literal[
    "another_process",
    "arm_stopped",
    "busy",
    "cancelled",
    "arm_refused",
    "file_is_current",
    "file_is_old",
    "forbidden",
    "internal",
    "invalid",
    "invalid_json",
    "key_reused",
    "method_not_allowed",
    "no_arm",
    "not_found",
    "not_ready",
    "horizon_reached",
    "rewarded",
    "signed_in",
    "too_large",
    "too_many_attempts",
    "unauthorised",
    "unavailable",
    "unknown_arm",
    "unknown_decision",
    "unknown_member",
    "unknown_stratum",
    "unsupported_type",
    "untrusted_proxy",
    "window_over",
    "wrong_host",
    "wrong_origin",
]


class Body(BaseModel):
    """A body: no other fields, no conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ErrorDetail(Body):
    """What was wrong."""

    code: Code = Field(description="For programs.")
    message: str = Field(description="For people.", examples=["value must be a number from 0 to 1, not 2.0"])
    field: str | None = Field(default=None, description="The part of the request that was wrong.", examples=["value"])
    accepted: str | None = Field(default=None, description="What it accepts.", examples=["a number from 0 to 1"])


class ErrorBody(Body):
    """The body of every unsuccessful response. Nothing has changed."""

    error: ErrorDetail


class HttpError(Exception):
    """A refused request, with its response."""

    def __init__(
        self,
        status: int,
        code: Code,
        message: str,
        field: str | None = None,
        accepted: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Carry a code for programs and a message for people."""
        super().__init__(message)
        self.status, self.headers = status, headers
        self.detail = ErrorDetail(code=code, message=message, field=field, accepted=accepted)

    def response(self) -> Response:
        """The HTTP response."""
        return json_response(ErrorBody(error=self.detail), self.status, self.headers)


def json_response(body: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response with a body."""
    return Response(body.model_dump_json(), status, headers, media_type="application/json")


def answer_errors(app: Starlette) -> None:
    """Give every error the same form."""

    def turned_away(_: Request, error: Exception) -> Response:
        return error_of(error).response()

    for kind in (HttpError, records.Refused, InvalidArgument, JournalError, Exception):
        app.add_exception_handler(kind, turned_away)

    def not_routed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
        if error.status_code == 405:
            allowed = ", ".join(sorted(_methods(app, request)))  # the framework names those of only one route
            message = f"{request.method} is not allowed; this path accepts {allowed}"
            return HttpError(405, "method_not_allowed", message, None, allowed, {"Allow": allowed}).response()
        return HttpError(404, "not_found", f"there is nothing at {request.url.path}").response()

    app.add_exception_handler(HTTPException, not_routed)


def _methods(app: Starlette, request: Request) -> set[str]:
    found: set[str] = set()
    for route in app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return found


_ERRORS: dict[type[Exception], tuple[int, Code, str | None, str | None]] = {
    records.DecisionNotFound: (404, "unknown_decision", "decision_id", None),
    records.NoArmLeft: (409, "no_arm", "eligible", None),
    records.KeyTaken: (409, "key_reused", "key", "another key for another request"),
    records.StoppedMeanwhile: (409, "arm_stopped", "key", "another key: a new decision"),
    records.DecisionCancelled: (409, "cancelled", None, None),
    records.Rewarded: (409, "rewarded", "decision_id", None),
    records.WindowOver: (409, "window_over", "decision_id", None),
    records.AnotherRuns: (409, "another_process", None, None),
    FileIsOld: (409, "file_is_old", None, None),
    FileIsCurrent: (409, "file_is_current", None, None),
    records.HorizonReached: (409, "horizon_reached", None, None),
}
"""Status, code, field and what is accepted, for the refusals of a site."""


def error_of(error: Exception) -> HttpError:
    """The error of the API for an exception."""
    match error:
        case HttpError():
            return error
        case InvalidArgument():
            return HttpError(422, "invalid", str(error), error.argument, error.accepted)
        case JournalError():
            # Its own message begins with the file's path, which HTTP must not reveal.
            reason = str(error.__cause__ or "it cannot be written")
            return HttpError(503, "unavailable", f"the agent's journal: {reason}", headers={"Retry-After": "1"})
        case _ if type(error) in _ERRORS:
            status, code, field, accepted = _ERRORS[type(error)]
            return HttpError(status, code, str(error), field, accepted)
        case _:
            return HttpError(500, "internal", "internal error; see the agent's log")


MEANINGS = {
    400: "The body is not JSON, or is incomplete; or a header appears twice.",
    401: "The token is missing or wrong.",
    403: "The caller lacks the right, a web page from another origin called, or no trusted proxy says who calls.",
    404: "Not found, or no longer there.",
    405: "The path does not accept this method.",
    409: "The state of the agent does not allow it; the message says why.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    421: "The Host header does not name this agent.",
    422: "The body is JSON, but is not accepted here; or a query parameter is not.",
    429: "Too many wrong tokens: wait.",
    500: "Internal error; see the agent's log.",
    503: "The agent cannot serve now. Nothing has changed; try again.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of an operation."""
    return {status: {"model": ErrorBody, "description": MEANINGS[status]} for status in statuses}


ON_DISK: dict[str, Any] = {"status_code": 204, "response_class": Response, "response_description": "On disk."}
"""Of an operation without an answer."""


def takes(schema: dict[str, Any], required: bool = True, **more: Any) -> dict[str, Any]:
    """The description of a body."""
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema, **more}}}}


def path_parameter(name: str, says: str, example: str) -> dict[str, Any]:
    """A path parameter."""
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "description": says, "schema": schema, "example": example}


# ---------------------------------------------------------------- bodies

MAX_BODY = 256 * 1024
"""The most bytes of a body; a reward needs about twenty, and a thousand of them with their ids 100,000."""


async def read_body(receive: Receive) -> bytes:
    """The body of a request; without a declared length, reading stops at the limit."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError(400, "invalid", "the request ended before its body was complete", "body")
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            raise too_large()
        if not message.get("more_body", False):
            return body


def too_large() -> HttpError:
    """Close the connection, because the rest of the body is not read."""
    accepted = f"at most {MAX_BODY} bytes"
    return HttpError(
        413, "too_large", f"the body is too large; it must be {accepted}", "body", accepted, {"Connection": "close"}
    )


def check_type(request: Request) -> None:
    """Refuse a body that does not say that it is JSON."""
    said = request.headers.get("content-type", "")
    if said.partition(";")[0].strip().lower() != "application/json":
        accepted = "application/json"
        message = f"the body must be {accepted}" + (f", not {said}" if said else ", and the request must say so")
        raise HttpError(415, "unsupported_type", message, "Content-Type", accepted)


_NO_BODY = "left out, or {}"


async def expect_nothing(request: Request) -> None:
    """Refuse a body, unless it is an empty object."""
    raw = await read_body(request.receive)
    if raw:
        check_type(request)
        if _parsed(raw, _NO_BODY):
            raise HttpError(422, "invalid", f"the body must be {_NO_BODY}", "body", _NO_BODY)


def without_body(act: Callable[[Request], Awaitable[object]]) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """The function of a path that takes no body, and answers 204 when it is done."""

    async def answer(request: Request) -> Response:
        await expect_nothing(request)
        await act(request)
        return Response(status_code=204)

    return answer


def read_object(raw: bytes, known: Iterable[str], body: str) -> dict[str, Any]:
    """The fields of a JSON object; refuses unknown ones. ``body``: what is accepted, in words."""
    fields = _parsed(raw, body)
    check_fields(fields, known, "")
    return fields


def _parsed(raw: bytes, body: str) -> dict[str, Any]:
    try:
        found = strict_json.parse_json(raw)
    except strict_json.DuplicateKey as error:
        says = f"{shortened(repr(error.key))} appears twice in the body"
        raise HttpError(422, "invalid", says, shortened(error.key), body) from None
    except ValueError as error:
        is_deep = isinstance(error, strict_json.TooDeep)
        says = f"{f'in the body, {error}' if is_deep else 'the body is not JSON'}; it must be {body}"
        raise HttpError(400, "invalid_json", says, "body", body) from None
    if not isinstance(found, dict):
        raise HttpError(422, "invalid", f"the body must be {body}", "body", body)
    return cast("dict[str, Any]", found)


_Model = TypeVar("_Model", bound=Body)


def read_model(raw: bytes, kind: type[_Model], body: str, accepted: Mapping[str, str]) -> _Model:
    """A body as a model, or the first mistake in the words of this API: those of pydantic are about Python.

    ``accepted``: what each field must be.
    """
    fields = read_object(raw, kind.model_fields, body)
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    is_or_must = "is missing; it must be" if first["type"] == "missing" else "must be"
    given = "" if first["type"] == "missing" else f", not {shortened(repr(first['input']))}"
    raise HttpError(422, "invalid", f"{name} {is_or_must} {accepted[name]}{given}", name, accepted[name])


def check_fields(fields: Iterable[str], known: Iterable[str], where: str) -> None:
    """Refuse unknown fields of an object, with the nearest one that is known."""
    names = tuple(known)
    for name in fields:
        if name not in names:
            says = f"{shortened(repr(name))} is not a field{f' of {where}' if where else ''}; {_known(name, names)}"
            raise HttpError(422, "invalid", says, shortened(f"{where}.{name}" if where else name), ", ".join(names))


def _known(name: str, names: tuple[str, ...]) -> str:
    hint = closest(name.lower(), names)
    listed = f"the only one is {names[0]}" if len(names) == 1 else f"there are {', '.join(names)}"
    return f"{listed}. {hint}" if hint and len(names) > 1 else listed
