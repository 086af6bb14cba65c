"""Completes the agent's OpenAPI document: the meaning of every status, and the errors common to all paths."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from fedbandit.agent.http.access import OPEN, RIGHT_FOR
from fedbandit.agent.http.schemas import ErrorBody
from fedbandit.agent.rights import Right

__all__ = ["describe", "errors", "path_parameter"]

_MEANINGS = {
    400: "The body is not JSON, or is incomplete; or a header stands twice.",
    401: "The token is missing or wrong.",
    403: "The token lacks the right, or a web page from another origin called.",
    404: "Not found, or no longer there.",
    405: "The path does not accept this method.",
    409: "The state of the agent does not allow it; the message says why.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    421: "The Host header does not name this agent.",
    422: "The body is JSON, but is not accepted here; or a query parameter is not.",
    500: "Internal error; see the agent's log.",
    503: "The agent cannot serve now. Nothing has changed; try again.",
}

_TAGS: dict[Right | None, str] = {
    "decide": "application",
    "report": "application",
    "view": "viewer",
    "neighbours": "operator",
    "lives": "operator",
    "arms": "operator",
    "log": "operator",
    None: "health",
}
"""Whose operations they are, by the right that they require."""


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of an operation."""
    return {status: {"model": ErrorBody, "description": _MEANINGS[status]} for status in statuses}


def path_parameter(name: str, says: str, example: str) -> dict[str, Any]:
    """A path parameter."""
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "description": says, "schema": schema, "example": example}


def describe(app: FastAPI, with_token: bool) -> None:
    """Fix an application's document, including the answers of access control and router on every path."""
    routes = app.routes
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=routes)
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
    for path, operations in document["paths"].items():
        is_open = path in OPEN
        for operation in operations.values():
            for status in (400, 401, 403, 405, 413, 421, 422, 500):
                if status != 401 or (with_token and not is_open):
                    operation["responses"][str(status)] = {"description": _MEANINGS[status], "content": error}
            right = RIGHT_FOR[operation["operationId"]]
            operation["tags"] = [_TAGS[right] if is_open or right is not None else "viewer"]
            if with_token and not is_open:
                operation["security"] = [{"token": [] if right is None else [right]}]
    if with_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    app.openapi = lambda: document
