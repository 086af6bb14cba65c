"""Gives every error of the HTTP API the same form: which status and code each has."""

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from fedbandit.agent.core.events import HorizonReached, NoArm, NotANeighbour, NotNow, Refused, UnknownDecision
from fedbandit.agent.core.presence import FileIsCurrent, FileIsOld
from fedbandit.agent.disk.journal import JournalError
from fedbandit.agent.http.schemas import HttpError
from fedbandit.checks import InvalidArgument

__all__ = ["answer_errors"]


def answer_errors(app: FastAPI) -> None:
    """Give every error the same form."""

    def turned_away(_: Request, error: Exception) -> Response:
        return _told(error).response()

    for kind in (HttpError, Refused, InvalidArgument, JournalError, Exception):
        app.add_exception_handler(kind, turned_away)

    def not_routed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
        if error.status_code == 405:
            allowed = ", ".join(sorted(_methods(app, request)))  # the framework names those of only one route
            message = f"{request.method} is not allowed; this path accepts {allowed}"
            return HttpError(405, "method_not_allowed", message, None, allowed, {"Allow": allowed}).response()
        return HttpError(404, "not_found", f"there is nothing at {request.url.path}").response()

    app.add_exception_handler(HTTPException, not_routed)


def _told(error: Exception) -> HttpError:
    match error:
        case HttpError():
            return error
        case UnknownDecision():
            return HttpError(404, "unknown_decision", str(error), "decision_id")
        case NotANeighbour():
            return HttpError(404, "not_a_neighbour", str(error), "name")
        case FileIsOld():
            return HttpError(409, "file_is_old", str(error))
        case FileIsCurrent():
            return HttpError(409, "file_is_current", str(error))
        case NoArm():
            return HttpError(409, "no_arm", str(error))
        case NotNow():
            return HttpError(503, "unavailable", str(error), headers={"Retry-After": "1"})
        case HorizonReached():
            return HttpError(409, "horizon_reached", str(error))
        case InvalidArgument():
            return HttpError(422, "invalid", str(error), error.argument, error.accepted)
        case JournalError():
            # Its own message begins with the file's path, which HTTP must not reveal.
            reason = str(error.__cause__ or "it cannot be written")
            return HttpError(503, "unavailable", f"the agent's journal: {reason}", headers={"Retry-After": "1"})
        case _:
            return HttpError(500, "internal", "internal error; see the agent's log")


def _methods(app: FastAPI, request: Request) -> set[str]:
    found: set[str] = set()
    for route in app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return found
