"""Checks the query parameters of a request: unknown ones are refused, since a caller who sent one expects an effect."""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from fedbandit.agent.http.schemas import HttpError
from fedbandit.checks import closest, shortened

__all__ = ["QUERY_OF", "query_of"]

QUERY_OF: Mapping[str, tuple[str, ...]] = {"log": ("after",)}
"""The query parameters of an operation, by its id; others take none."""

_IN_BODY: Mapping[str, tuple[str, ...]] = {
    "decide": ("eligible", "exclude", "key", "subject", "count"),
    "reward": ("value",),
    "rewards": ("rewards",),
}


def query_of(operation: str, query: bytes) -> dict[str, str]:
    """The parameters of a request; refuses those that the operation does not take, and any that stands twice."""
    known = QUERY_OF.get(operation, ())
    found: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in known:
            raise _unknown(operation, name, known)
        if name in found:
            raise HttpError(422, "invalid", f"{name} stands twice in the query", name, "one")
        found[name] = value
    return found


def _unknown(operation: str, name: str, known: tuple[str, ...]) -> HttpError:
    shown, fields = shortened(repr(name)), _IN_BODY.get(operation, ())
    accepted = ", ".join(known) if known else "no query parameters"
    says = f"{shown} is not a query parameter; this path takes {accepted}"
    if name in fields:
        says += f". {name} is a field of the body"
    elif hint := closest(name, (*known, *fields)):
        says += f". {hint}"
    return HttpError(422, "invalid", says, shortened(name), accepted)
