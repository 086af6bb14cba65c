"""The paths of an application: ask for arms, look at a decision or cancel it, report rewards; and the site's log.

Decisions and rewards read and write their few bytes by hand, because the framework would cost more time than the agent;
a test holds them to the OpenAPI document. Arms are named or numbered here; the site knows their numbers.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from fastapi import FastAPI
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from fedbandit.agent.core.context import UNKNOWN, Factors
from fedbandit.agent.core.decisions import ANY, MAX_DECISIONS, MAX_TEXT, Outcome, arms_in
from fedbandit.agent.core.decisions import Request as ArmRequest
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import DecisionRecord
from fedbandit.agent.http import bodies
from fedbandit.agent.http.access import query_of
from fedbandit.agent.http.metrics import Metrics
from fedbandit.checks import InvalidArgument, closest, shortened, whole_number

if TYPE_CHECKING:
    from fedbandit.agent.process.runtime import Agent

# ---------------------------------------------------------------- what is sent

EXAMPLE_ID = "42-5103c01bfc41c76b55d5ea909ecfe8e6"


class DecisionBody(bodies.Body):
    """A decision: use this arm, and report its reward under this id."""

    id: str = Field(description="Report the reward under this id.", examples=[EXAMPLE_ID])
    arm: int = Field(ge=0, description="Number of the arm, from 0.", examples=[2])
    name: str = Field(description="Name of the arm.", examples=["glipizide"])
    propensity: float | None = Field(
        description="Probability with which this agent gives this arm to this request, given what it remembers: 1 "
        "where a subject keeps its arm. null: not known.",
        examples=[0.25],
    )


class DecisionsBody(bodies.Body):
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
    context: dict[str, str] | None = Field(
        description="The level of each factor of the terms, as it counts; null: the terms have none.",
        examples=[{"age": "over 65"}],
    )
    reward_until: float | None = Field(
        description="Until when a reward counts, in seconds since 1970; null: until it is forgotten."
    )
    remembered_until: float = Field(
        description="When it is forgotten, in seconds since 1970, unless `decisions.keep` is reached before."
    )


class LateBody(bodies.Body):
    """The reward came after its window: it does not count, and need not be reported again."""

    counted: Literal[False] = False
    code: Literal["too_late"] = "too_late"
    message: str = "the reward window of this decision is over: the federation's default counts"


class ResultBody(bodies.Body):
    """What came of one reward."""

    id: str = Field(description="The decision's id.", examples=[EXAMPLE_ID])
    counted: bool = Field(description="A reward of this decision was accepted in time; the first one counts.")
    code: bodies.Code | Literal["too_late"] | None = Field(default=None, description="Why it does not count.")
    message: str | None = Field(default=None, description="The same, for people.")


class ResultsBody(bodies.Body):
    """What came of each reward, in the order of the request."""

    results: list[ResultBody]


# ---------------------------------------------------------------- requests for decisions

_FIELDS = ("eligible", "exclude", "key", "subject", "count", "context")

_REQUEST = f"no body, or an object with some of {', '.join(_FIELDS)}"


def read_request(raw: bytes, names: Callable[[], Sequence[str]]) -> tuple[ArmRequest, bool]:
    """What a body asks for, and whether the answer is a list: where ``count`` is given. ``names``: of the arms."""
    if not raw:
        return ANY, False
    fields = bodies.read_object(raw, _FIELDS, _REQUEST)
    if not fields:
        return ANY, False
    if "eligible" in fields and "exclude" in fields:
        says = "eligible and exclude are both given; one of them is enough"
        raise bodies.HttpError(422, "invalid", says, "exclude", "left out where eligible is given")
    for name in ("key", "subject"):
        if name in fields and fields[name] is None:
            raise InvalidArgument(name, None, f"1 to {MAX_TEXT} printable characters")
    if "context" in fields and not isinstance(fields["context"], dict):
        raise InvalidArgument("context", fields["context"], "an object with a level of each factor, by name")
    request = ArmRequest(
        _arms("eligible", fields["eligible"], names()) if "eligible" in fields else None,
        fields.get("key"),
        fields.get("subject"),
        whole_number("count", fields.get("count", 1), 1, MAX_DECISIONS),
        _arms("exclude", fields["exclude"], names()) if "exclude" in fields else (),
        fields.get("context"),
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
        raise bodies.HttpError(404, "unknown_arm", str(error), place, accepted)
    raise error


def request_schema(terms: Federation) -> dict[str, Any]:
    """The JSON schema of a request under these terms; it names no arms, since they come and go."""
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
    rest: dict[str, Any] = {"not": {"required": ["eligible", "exclude"]}}
    if terms.context is not None:
        properties["context"], is_needed = _context_schema(terms.context)
        rest |= {"required": ["context"]} if is_needed else {}
    return {"type": "object", "additionalProperties": False, "properties": properties, **rest}


def _context_schema(factors: Factors) -> tuple[dict[str, Any], bool]:
    """That of a context, and whether it must be given."""
    needed = [it.name for it in factors.factors if UNKNOWN not in it.levels]
    values = {it.name: {"enum": list(it.levels)} if it.name in needed else _TEXT_OR_NULL for it in factors.factors}
    schema = {
        "type": "object",
        "description": "What is known of the patient: a level of each factor in [federation.context], the same for all "
        "decisions of the request. What is missing, or no level, counts as `unknown` where the factor has that level, "
        "and is refused where it has not.",
        "properties": values,
        "additionalProperties": False,
        **({"required": needed} if needed else {}),
    }
    return schema, bool(needed)


def _example(terms: Federation) -> dict[str, Any]:
    """The shortest body that these terms accept."""
    factors = () if terms.context is None else terms.context.factors
    needed = {it.name: it.levels[0] for it in factors if UNKNOWN not in it.levels}
    return {"context": needed} if needed else {}


_TEXT_OR_NULL: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "null"}]}


# ---------------------------------------------------------------- reports of rewards

MAX_REWARDS = 1000
"""The most rewards of one body."""

_REWARDS = '{"rewards": [{"id": a decision\'s id, "value": a number}, ...]}'


class RewardBody(bodies.Body):
    """The reward of a decision."""

    value: float = Field(allow_inf_nan=False, description="In the federation's range.", examples=[0.5])


def reward_range(terms: Federation) -> str:
    """The accepted rewards, in words."""
    return f"a number from {terms.low:g} to {terms.high:g}"


def read_reward(raw: bytes, terms: Federation) -> float:
    """The value in a body; the site checks its range."""
    return bodies.read_model(raw, RewardBody, '{"value": a number}', {"value": reward_range(terms)}).value


def read_rewards(raw: bytes, terms: Federation) -> list[tuple[str, float]]:
    """Ids and values of a body; the site checks ranges."""
    fields = bodies.read_object(raw, ("rewards",), _REWARDS)
    given = fields.get("rewards")
    if not isinstance(given, list) or not 1 <= len(cast("list[Any]", given)) <= MAX_REWARDS:
        accepted = f"a list of 1 to {MAX_REWARDS} objects with id and value"
        raise bodies.HttpError(422, "invalid", f"rewards must be {accepted}", "rewards", accepted)
    return [_reward(f"rewards[{i}]", it, terms) for i, it in enumerate(cast("list[Any]", given))]


def _reward(place: str, given: Any, terms: Federation) -> tuple[str, float]:
    if not isinstance(given, dict):
        raise InvalidArgument(place, given, "an object with id and value")
    fields = cast("dict[str, Any]", given)
    bodies.check_fields(fields, ("id", "value"), place)
    name, value = fields.get("id"), fields.get("value")
    if not isinstance(name, str):
        raise InvalidArgument(f"{place}.id", name, "the id of a decision")
    if type(value) not in (int, float) or not abs(cast("float", value)) < float("inf"):
        raise InvalidArgument(f"{place}.value", value, reward_range(terms))
    return name, cast("float", value)


def reward_schema(terms: Federation) -> dict[str, Any]:
    """The JSON schema of ``RewardBody``, with the range of this federation."""
    schema = RewardBody.model_json_schema()
    schema["properties"]["value"] |= {"minimum": terms.low, "maximum": terms.high, "examples": [terms.high]}
    return schema


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


# ---------------------------------------------------------------- paths

_ID = bodies.path_parameter("decision_id", "The id of the decision.", EXAMPLE_ID)


def add_decisions(app: FastAPI, agent: "Agent", metrics: Metrics) -> None:
    """Add them to an app; ``metrics`` measure how long decisions and rewards take."""
    terms = agent.terms
    names, late = [json.dumps(name) for name in terms.arms], LateBody().model_dump_json()

    def name_of(arm: int) -> str:
        if arm >= len(names):  # added behind the others; one whose addition is being written may still lose its number
            names.extend(json.dumps(name) for name in agent.arm_names[len(names) : arm + 1])
        return names[arm]

    example = _example(terms)
    link = {"operationId": "reward", "parameters": {"decision_id": "$response.body#/id"}}

    def told(it: DecisionRecord) -> str:
        chance = "null" if it.propensity is None else repr(it.propensity)
        return f'{{"id":"{it.id}","arm":{it.arm},"name":{name_of(it.arm)},"propensity":{chance}}}'

    @app.post(
        "/v1/decisions",
        operation_id="decide",
        summary="Ask for an arm, or for several",
        description="With `key` a call may be repeated: it gets the same decisions again. Without one each call hands "
        "out others. `subject` keeps its arm, `eligible` and `exclude` say which arms may be given, `count` how many "
        "decisions are wanted. 409: `no_arm`, nothing is left for this request; `key_reused`, the key belongs to "
        "another request; `arm_stopped` and `cancelled`, what became of the key's decision meanwhile.",
        status_code=201,
        response_model=DecisionBody | DecisionsBody,
        response_description="Use this arm. With `count`: these, in order.",
        responses=bodies.errors(400, 404, 409, 413, 415, 422, 503),
        openapi_extra=bodies.takes(request_schema(terms), "context" in example, example=example)
        | {"responses": {"201": {"links": {"reward": link}}}},
    )
    async def decide(request: Request) -> Response:
        raw = await bodies.read_body(request.receive)
        if raw:
            bodies.check_type(request)
        asked, is_list = read_request(raw, lambda: agent.arm_names)
        with metrics.decide_seconds.time():
            made = [await agent.decide()] if asked is ANY else await agent.request(asked)
        body = ",".join(map(told, made))
        if is_list:
            body = f'{{"decisions":[{body}]}}'
        return Response(body, 201, media_type="application/json")

    _add_one(app, agent)

    @app.put(
        "/v1/decisions/{decision_id}/reward",
        operation_id="reward",
        summary="Report the reward of a decision",
        description="Within the federation's reward window, if it has one. Idempotent: the first report counts. A "
        "repetition changes nothing, and is answered alike whatever its value.",
        responses={
            200: {"model": LateBody, "description": "It came too late, and does not count; that is on disk."},
            **bodies.errors(400, 404, 409, 413, 415, 422, 503),
        },
        openapi_extra={"parameters": [_ID], **bodies.takes(reward_schema(terms))},
        **bodies.ON_DISK,
    )
    async def reward(request: Request) -> Response:
        bodies.check_type(request)
        value = read_reward(await bodies.read_body(request.receive), terms)
        with metrics.reward_seconds.time():
            try:
                counts = await agent.report(request.path_params["decision_id"], value)
            except InvalidArgument as error:  # as the application knows it
                raise InvalidArgument("value", error.value, error.accepted, error.hint) from None
        return Response(status_code=204) if counts else Response(late, media_type="application/json")

    @app.post(
        "/v1/rewards",
        operation_id="rewards",
        summary="Report the rewards of many decisions",
        description="In one transaction. A body of the wrong shape is refused as a whole, with the name of the entry. "
        "A reward that is refused (`unknown_decision`, `cancelled`, `invalid`: out of range) or too late does not stop "
        "the others. Idempotent: repeat it if the answer was lost.",
        response_model=ResultsBody,
        response_description="On disk: what came of each, in order.",
        responses=bodies.errors(400, 413, 415, 422, 503),
        openapi_extra=bodies.takes(rewards_schema(terms)),
    )
    async def rewards(request: Request) -> Response:
        bodies.check_type(request)
        given = read_rewards(await bodies.read_body(request.receive), terms)
        with metrics.reward_seconds.time():
            outcomes = await agent.report_all(given)
        results = [_result(name, it) for (name, _), it in zip(given, outcomes, strict=True)]
        return bodies.json_response(ResultsBody(results=results))

    _ = decide, reward, rewards  # the app keeps them


def _add_one(app: FastAPI, agent: "Agent") -> None:
    """Add the paths of one decision."""
    terms, path, extra = agent.terms, "/v1/decisions/{decision_id}", {"parameters": [_ID]}

    @app.get(
        path,
        operation_id="decision",
        summary="What became of a decision",
        description="For whoever has its id and may report: it tells whether a reward came, and never which.",
        response_model=KnownDecisionBody,
        response_description="As it stands.",
        responses=bodies.errors(404, 422, 503),
        openapi_extra=extra,
    )
    async def decision(request: Request) -> Response:
        it, window = await agent.decision(request.path_params["decision_id"]), terms.reward_window
        body = KnownDecisionBody(
            id=it.id,
            arm=it.arm,
            name=agent.arm_names[it.arm],
            propensity=it.propensity,
            number=it.number,
            at=it.at,
            rewarded=it.rewarded,
            counted=it.played,
            late=it.late,
            cancelled=it.cancelled,
            context=_levels(terms, it),
            reward_until=it.at + window if window else None,
            remembered_until=it.at + window + agent.limits.expire_after,
        )
        return bodies.json_response(body)

    app.delete(
        path,
        operation_id="cancel",
        summary="Cancel a decision that was not used",
        description="It is no longer pending, and does not count as tried. Idempotent. Whether you cancel must not "
        "depend on the outcome: docs/privacy.md. 409: `rewarded`, its reward was reported; `window_over`, it counts "
        "already.",
        responses=bodies.errors(400, 404, 409, 413, 415, 422, 503),
        openapi_extra=extra,
        **bodies.ON_DISK,
    )(bodies.without_body(lambda request: agent.cancel(request.path_params["decision_id"])))
    _ = decision


def _levels(terms: Federation, it: DecisionRecord) -> dict[str, str] | None:
    return None if terms.context is None or it.stratum is None else terms.context.levels(it.stratum)


def _result(name: str, outcome: Outcome) -> ResultBody:
    if outcome is True:
        return ResultBody(id=name, counted=True)
    if outcome is False:
        return ResultBody(id=name, counted=False, code="too_late", message=LateBody().message)
    detail = bodies.error_of(outcome).detail
    return ResultBody(id=name, counted=False, code=detail.code, message=detail.message)


# ---------------------------------------------------------------- the log

_CHUNK = 200
"""Lines that are made at once: about a millisecond, in which the agent does nothing else."""

_MOST = 2**62

_LINE = """One JSON object per line, oldest first, all as of one moment:

* `id`, `number`, `at` (seconds since 1970), `arm`, `name`
* `propensity`: the probability of this arm for this request; null: not known
* `deterministic`: why the arm was certain: `index`, the policy gives the highest one; `subject`, who keeps the arm;
  `one arm`, no other was possible. Null: it was drawn. A key that is asked again gets the same decision, in one line
* `eligible`: numbers of the arms among which it was chosen; null: all that there were
* `context`: the level of each factor of the terms, as it counts; null: the terms have none
* `subject`: the same text for the same subject, a keyed hash; null: it had none
* `rewarded`: a reward came in time. `late`: one came too late. `cancelled`: it was not used
* `counted`: it counts already, with its reward or the default
* `reward`: null, unless the site keeps rewards (`[decisions] keep_rewards = true`)
"""


def add_log(app: FastAPI, agent: "Agent") -> None:
    """Add it to an app."""
    after = {
        "name": "after",
        "in": "query",
        "required": False,
        "description": "Only decisions with a larger number.",
        "schema": {"type": "integer", "minimum": 0, "maximum": _MOST},
    }
    content = {"application/x-ndjson": {"schema": {"type": "string"}}}

    @app.get(
        "/v1/log",
        operation_id="log",
        summary="Decisions that are remembered, for evaluation",
        description=_LINE,
        response_class=Response,
        responses={200: {"description": "JSON lines.", "content": content}, **bodies.errors(422, 503)},
        openapi_extra={"parameters": [after]},
    )
    async def log(request: Request) -> Response:
        first = _number(query_of("log", request.scope["query_string"]).get("after", "0"))
        decisions, rewards = await agent.log(first)
        lines = _lines(decisions, rewards, agent)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    _ = log


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= _MOST):
        raise InvalidArgument("after", text, "the number of a decision, or 0")
    return int(text)


async def _lines(
    decisions: Sequence[DecisionRecord], rewards: Mapping[str, float], agent: "Agent"
) -> AsyncIterator[bytes]:
    terms, arms = agent.terms, agent.arm_names
    for start in range(0, len(decisions), _CHUNK):
        yield b"".join(
            _line(it, rewards.get(it.id), arms[it.arm], _levels(terms, it)) for it in decisions[start : start + _CHUNK]
        )
        await asyncio.sleep(0)  # the application's turn


def _line(it: DecisionRecord, reward: float | None, name: str, context: dict[str, str] | None) -> bytes:
    fields = {
        "id": it.id,
        "number": it.number,
        "at": it.at,
        "arm": it.arm,
        "name": name,
        "propensity": it.propensity,
        "deterministic": it.deterministic,
        "eligible": arms_in(it.eligible) if it.eligible else None,
        "subject": it.subject.hex() or None,
        "context": context,
        "rewarded": it.rewarded,
        "late": it.late,
        "cancelled": it.cancelled,
        "counted": it.played,
        "reward": reward,
    }
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
