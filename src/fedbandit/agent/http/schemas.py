"""Request and response bodies of the HTTP API, except the state: a decision, a reward, an error.

Bodies are parsed strictly: a reward is never NaN or infinity, which some JSON allows, and ``true`` is not 1.
"""

import json
from collections.abc import Iterable
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from fedbandit.agent import strict_json
from fedbandit.agent.core.federation import Federation
from fedbandit.checks import closest, shortened

__all__ = [
    "EXAMPLE_ID",
    "MAX_BODY",
    "Alive",
    "Body",
    "Code",
    "DecisionBody",
    "ErrorBody",
    "ErrorDetail",
    "HttpError",
    "LateBody",
    "Ready",
    "RewardBody",
    "check_fields",
    "not_json",
    "read_nothing",
    "read_object",
    "read_reward",
    "reward_range",
    "reward_schema",
]

MAX_BODY = 256 * 1024
"""The most bytes of a body; a reward needs about twenty, and a thousand of them with their ids 100,000."""

EXAMPLE_ID = "42-5103c01bfc41c76b55d5ea909ecfe8e6"

Code = Literal[
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
    "not_a_neighbour",
    "not_found",
    "not_ready",
    "horizon_reached",
    "no_arm",
    "rewarded",
    "too_large",
    "unauthorised",
    "unavailable",
    "unknown_arm",
    "unknown_decision",
    "unsupported_type",
    "window_over",
    "wrong_host",
    "wrong_origin",
]


class Body(BaseModel):
    """A body: no other fields, no conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class DecisionBody(Body):
    """A decision: use this arm, and report its reward under this id."""

    id: str = Field(description="Report the reward under this id.", examples=[EXAMPLE_ID])
    arm: int = Field(ge=0, description="Number of the arm, from 0.", examples=[2])
    name: str = Field(description="Name of the arm.", examples=["glipizide"])
    propensity: float | None = Field(
        description="Probability with which this agent gives this arm to this request, given what it remembers: 1 "
        "where a subject keeps its arm. null: not known.",
        examples=[0.25],
    )


class RewardBody(Body):
    """The reward of a decision."""

    value: float = Field(allow_inf_nan=False, description="In the federation's range.", examples=[0.5])


class LateBody(Body):
    """The reward came after its window: it does not count, and need not be reported again."""

    counted: Literal[False] = False
    code: Literal["too_late"] = "too_late"
    message: str = "the reward window of this decision is over: the federation's default counts"


class Alive(Body):
    """The process is alive."""

    alive: Literal[True] = True


class Ready(Body):
    """The agent hands out decisions."""

    ready: Literal[True] = True


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
        body = ErrorBody(error=self.detail).model_dump_json()
        return Response(body, self.status, self.headers, media_type="application/json")


def reward_range(terms: Federation) -> str:
    """The accepted rewards, in words."""
    return f"a number from {terms.low:g} to {terms.high:g}"


def reward_schema(terms: Federation) -> dict[str, Any]:
    """The JSON schema of ``RewardBody``, with the range of this federation."""
    schema = RewardBody.model_json_schema()
    schema["properties"]["value"] |= {"minimum": terms.low, "maximum": terms.high, "examples": [terms.high]}
    return schema


def read_reward(raw: bytes, terms: Federation) -> float:
    """The value in a body; the site checks its range."""
    body = '{"value": a number}'
    read_object(raw, ("value",), body, only_twice=True)
    try:
        return RewardBody.model_validate_json(raw).value
    except ValidationError as error:
        raise _mistake(error, "value", reward_range(terms), body) from None


def read_object(raw: bytes, known: Iterable[str], body: str, only_twice: bool = False) -> dict[str, Any]:
    """The fields of a JSON object; refuses keys that stand twice, and unknown ones with the nearest that is known."""
    try:
        found = strict_json.parse(raw)
    except strict_json.DuplicateKey as error:
        says = f"{shortened(repr(error.key))} stands twice in the body"
        raise HttpError(422, "invalid", says, shortened(error.key), body) from None
    except (ValueError, RecursionError):
        if only_twice:
            return {}  # the caller says what else is wrong
        raise not_json(body) from None
    if only_twice:
        return {}
    if not isinstance(found, dict):
        raise HttpError(422, "invalid", f"the body must be {body}", "body", body)
    fields = cast("dict[str, Any]", found)
    check_fields(fields, known, "")
    return fields


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


def read_nothing(raw: bytes) -> None:
    """Refuse a non-empty body where none is expected."""
    if not raw:
        return
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError):
        raise not_json("no body, or {}") from None
    if said != {} or not isinstance(said, dict):
        raise HttpError(422, "invalid", "the body must be left out, or be {}", "body", "no body, or {}")


def _mistake(error: ValidationError, name: str, accepted: str, body: str) -> HttpError:
    """The first error in a body, in the words of this API; pydantic's are about Python."""
    first = error.errors(include_url=False)[0]
    kind, place = first["type"], first["loc"]
    if kind == "json_invalid":
        return not_json(body)
    if not place:
        return HttpError(422, "invalid", f"the body must be {body}", "body", body)
    if kind == "extra_forbidden":
        other = str(place[0])
        says = f"{shortened(repr(other))} is not a field; the only one is {name}"
        return HttpError(422, "invalid", says, other, body)
    if kind == "missing":
        return HttpError(422, "invalid", f"{name} is missing; it must be {accepted}", name, accepted)
    says = f"{name} must be {accepted}, not {shortened(repr(first['input']))}"
    return HttpError(422, "invalid", says, name, accepted)


def not_json(accepted: str) -> HttpError:
    """A body that is not JSON."""
    return HttpError(400, "invalid_json", f"the body is not JSON; it must be {accepted}", "body", accepted)
