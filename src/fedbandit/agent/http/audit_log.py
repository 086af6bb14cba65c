"""The audit trail over HTTP: ``GET /v1/audit-log``, filtered."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from fedbandit.agent.core.trail import KINDS, MOST_SHOWN, filter_from
from fedbandit.agent.http import bodies
from fedbandit.agent.http import state as models
from fedbandit.agent.http.access import query_of

if TYPE_CHECKING:
    from fedbandit.agent.process.runtime import Agent

__all__ = ["add_audit_log"]

_TIME = "such as 2026-01-31, or 2026-01-31T14:00Z; UTC unless it says otherwise."


def _parameter(name: str, description: str, **schema: Any) -> dict[str, Any]:
    about = schema if "anyOf" in schema else {"type": "string"} | schema
    return {"name": name, "in": "query", "required": False, "description": description, "schema": about}


_WHEN: dict[str, Any] = {"anyOf": [{"type": "string", "format": it} for it in ("date", "date-time")]}
_NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 10**15 - 1}
_PARAMETERS = [
    _parameter("since", f"Not those before this time, {_TIME}", **_WHEN),
    _parameter("until", f"Only those before this time, or up to the end of this day, {_TIME}", **_WHEN),
    _parameter("person", "Only what this person did, or this role."),
    _parameter("kind", "Only entries of this kind.", enum=list(KINDS)),
    _parameter("arm", "Only entries about the arm of this name."),
    _parameter("after", "Only entries with a larger number.", **_NUMBER),
    _parameter("last", "Only so many of the newest of these; 0: the first.", **_NUMBER),
]


def add_audit_log(app: FastAPI, agent: "Agent") -> None:
    """Add its path to an app."""

    async def audit_log(request: Request) -> Response:
        wanted = filter_from(query_of("audit_log", request.scope["query_string"]))
        entries, head = await agent.trail(replace(wanted, most=MOST_SHOWN))
        shown = [models.AuditEntryBody(**asdict(it)) for it in entries]
        return bodies.json_response(models.AuditLogBody(entries=shown, number=head.number, hash=head.hash))

    app.get(
        "/v1/audit-log",
        operation_id="audit_log",
        summary="Who did what, when and why",
        description="The audit trail: changes of arms, members and rights, releases, restores, starts, stops and "
        "logins, in a chain of hashes. Whoever asks with `after` until there are no more has all of it.",
        response_model=models.AuditLogBody,
        responses=bodies.errors(422, 503),
        openapi_extra={"parameters": _PARAMETERS},
    )(audit_log)
