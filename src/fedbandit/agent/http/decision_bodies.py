"""Bodies of requests for decisions and of many rewards, and of their answers.

Arms are named or numbered here; the site knows their numbers.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

from pydantic import Field

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.requests import ANY, MAX_DECISIONS, MAX_TEXT, Request
from fedbandit.agent.http.schemas import (
    EXAMPLE_ID,
    Body,
    Code,
    DecisionBody,
    HttpError,
    check_fields,
    read_object,
    reward_range,
)
from fedbandit.checks import InvalidArgument, closest, shortened, whole_number

__all__ = [
    "MAX_REWARDS",
    "DecisionsBody",
    "KnownDecisionBody",
    "ResultBody",
    "ResultsBody",
    "read_request",
    "read_rewards",
    "request_schema",
    "rewards_schema",
]

MAX_REWARDS = 1000
"""The most rewards of one body."""

_FIELDS = ("eligible", "exclude", "key", "subject", "count")
_REQUEST = f"no body, or an object with some of {', '.join(_FIELDS)}"
_REWARDS = '{"rewards": [{"id": a decision\'s id, "value": a number}, ...]}'


class DecisionsBody(Body):
    """The decisions of a request with ``count``, in the order in which they were drawn."""

    decisions: list[DecisionBody]


class KnownDecisionBody(DecisionBody):
    """A decision as it stands. It never tells the reward."""

    number: int = Field(ge=1, description="Its number at this site, from 1.", examples=[42])
    at: float = Field(description="When it was handed out, in seconds since 1970.")
    rewarded: bool = Field(description="A reward was reported in time.")
    counted: bool = Field(description="It counts already, with its reward or the default.")
    late: bool = Field(description="A reward came too late, and does not count.")
    cancelled: bool = Field(description="It was cancelled: it takes no reward, and does not count.")
    reward_until: float | None = Field(
        description="Until when a reward counts, in seconds since 1970; null: until it is forgotten."
    )
    remembered_until: float = Field(
        description="When it is forgotten, in seconds since 1970, unless `decisions.keep` is reached before."
    )


class ResultBody(Body):
    """What came of one reward."""

    id: str = Field(description="The decision's id.", examples=[EXAMPLE_ID])
    counted: bool = Field(description="A reward of this decision was accepted in time; the first one counts.")
    code: Code | Literal["too_late"] | None = Field(default=None, description="Why it does not count.")
    message: str | None = Field(default=None, description="The same, for people.")


class ResultsBody(Body):
    """What came of each reward, in the order of the request."""

    results: list[ResultBody]


def read_request(raw: bytes, names: Callable[[], Sequence[str]]) -> tuple[Request, bool]:
    """What a body asks for, and whether the answer is a list: where ``count`` is given. ``names``: of the arms."""
    if not raw:
        return ANY, False
    fields = read_object(raw, _FIELDS, _REQUEST)
    if not fields:
        return ANY, False
    if "eligible" in fields and "exclude" in fields:
        says = "eligible and exclude are both given; one of them is enough"
        raise HttpError(422, "invalid", says, "exclude", "left out where eligible is given")
    for name in ("key", "subject"):
        if name in fields and fields[name] is None:
            raise InvalidArgument(name, None, f"1 to {MAX_TEXT} printable characters")
    request = Request(
        _arms("eligible", fields["eligible"], names()) if "eligible" in fields else None,
        fields.get("key"),
        fields.get("subject"),
        whole_number("count", fields.get("count", 1), 1, MAX_DECISIONS),
        _arms("exclude", fields["exclude"], names()) if "exclude" in fields else (),
    )
    return request, "count" in fields


def _arms(field: str, given: Any, names: Sequence[str]) -> tuple[int, ...]:
    """The numbers of arms that are named or numbered."""
    if not isinstance(given, list):
        raise InvalidArgument(field, given, "a list of names or numbers of arms")
    return tuple(_arm(f"{field}[{i}]", arm, names) for i, arm in enumerate(cast("list[Any]", given)))


def _arm(place: str, given: Any, names: Sequence[str]) -> int:
    if type(given) in (int, float) and 0 <= given < len(names) and given == int(given):
        return int(given)
    if isinstance(given, str) and given in names:
        return names.index(given)
    hint = closest(given, names) if isinstance(given, str) else ""
    accepted = f"an arm: {shortened(', '.join(names), 400)}; or its number, from 0 to {len(names) - 1}"
    error = InvalidArgument(place, given, accepted, hint)
    is_whole = type(given) in (int, float) and float(given).is_integer() and float(given) >= 0.0
    if isinstance(given, str) or is_whole:  # it might be an arm elsewhere, or tomorrow
        raise HttpError(404, "unknown_arm", str(error), place, accepted)
    raise error


def read_rewards(raw: bytes, terms: Federation) -> list[tuple[str, float]]:
    """Ids and values of a body; the site checks ranges."""
    fields = read_object(raw, ("rewards",), _REWARDS)
    given = fields.get("rewards")
    if not isinstance(given, list) or not 1 <= len(cast("list[Any]", given)) <= MAX_REWARDS:
        accepted = f"a list of 1 to {MAX_REWARDS} objects with id and value"
        raise HttpError(422, "invalid", f"rewards must be {accepted}", "rewards", accepted)
    return [_reward(f"rewards[{i}]", it, terms) for i, it in enumerate(cast("list[Any]", given))]


def _reward(place: str, given: Any, terms: Federation) -> tuple[str, float]:
    if not isinstance(given, dict):
        raise InvalidArgument(place, given, "an object with id and value")
    fields = cast("dict[str, Any]", given)
    check_fields(fields, ("id", "value"), place)
    name, value = fields.get("id"), fields.get("value")
    if not isinstance(name, str):
        raise InvalidArgument(f"{place}.id", name, "the id of a decision")
    if type(value) not in (int, float) or not abs(cast("float", value)) < float("inf"):
        raise InvalidArgument(f"{place}.value", value, reward_range(terms))
    return name, cast("float", value)


def request_schema() -> dict[str, Any]:
    """The JSON schema of a request; it names no arms, since they come and go."""
    arms = {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]}}
    text = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT, "pattern": "^[ -~]+$"}
    properties = {
        "eligible": arms | {"description": "Arms that may be given, by name or number. The default: all."},
        "exclude": arms | {"description": "Arms that may not be given. Not together with eligible."},
        "key": text
        | {
            "description": "Makes the call idempotent: the same key gets the same decisions again while they are "
            "remembered, also after a restart. With another request: 409. Any printable characters."
        },
        "subject": text
        | {
            "description": "The same subject gets the same arm while its newest decision is remembered and the arm may "
            "be given. Only a keyed hash is stored, at this site. Any printable characters."
        },
        "count": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_DECISIONS,
            "description": "So many decisions, in one transaction; the answer is then a list.",
        },
    }
    neither = {"not": {"required": ["eligible", "exclude"]}}
    return {"type": "object", "additionalProperties": False, "properties": properties, **neither}


def rewards_schema(terms: Federation) -> dict[str, Any]:
    """The JSON schema of many rewards."""
    value = {"type": "number", "description": f"{reward_range(terms)}; another is refused alone.".capitalize()}
    properties: dict[str, Any] = {"id": {"type": "string"}, "value": value}
    one = {"type": "object", "additionalProperties": False, "properties": properties, "required": ["id", "value"]}
    rewards: dict[str, Any] = {"type": "array", "items": one, "minItems": 1, "maxItems": MAX_REWARDS}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {"rewards": rewards},
        "required": ["rewards"],
    }
