"""Checks that a request has the body that its path expects: none, or JSON."""

from starlette.requests import Request

from fedbandit.agent.http.access import read_body
from fedbandit.agent.http.schemas import HttpError, read_nothing

__all__ = ["check_type", "expect_nothing"]


async def expect_nothing(request: Request) -> None:
    """Refuse a body."""
    raw = await read_body(request.receive)
    if raw:
        check_type(request)
        read_nothing(raw)


def check_type(request: Request) -> None:
    """Refuse a body that does not say that it is JSON."""
    said = request.headers.get("content-type", "")
    if said.partition(";")[0].strip().lower() != "application/json":
        accepted = "application/json"
        message = f"the body must be {accepted}" + (f", not {said}" if said else ", and the request must say so")
        raise HttpError(415, "unsupported_type", message, "Content-Type", accepted)
