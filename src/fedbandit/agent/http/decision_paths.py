"""The paths of an application: ask for arms, look at a decision or cancel it, report rewards.

They read and write their few bytes by hand, because the framework would cost more time than the agent; a test holds
them to the OpenAPI document.
"""

import json

from fastapi import FastAPI, Request
from starlette.responses import Response

from fedbandit.agent.core.decisions import Outcome
from fedbandit.agent.core.records import Decision
from fedbandit.agent.core.requests import ANY
from fedbandit.agent.http.access import read_body
from fedbandit.agent.http.decision_bodies import (
    DecisionsBody,
    KnownDecisionBody,
    ResultBody,
    ResultsBody,
    read_request,
    read_rewards,
    request_schema,
    rewards_schema,
)
from fedbandit.agent.http.error_answers import error_of
from fedbandit.agent.http.local_agent import LocalAgent
from fedbandit.agent.http.metrics import Metrics
from fedbandit.agent.http.openapi import errors, path_parameter
from fedbandit.agent.http.request_bodies import check_type, expect_nothing
from fedbandit.agent.http.schemas import EXAMPLE_ID, DecisionBody, LateBody, read_reward, reward_schema
from fedbandit.checks import InvalidArgument

__all__ = ["add_decisions"]


def add_decisions(app: FastAPI, agent: LocalAgent, metrics: Metrics) -> None:
    """Add them to an app; ``metrics`` measure how long decisions and rewards take."""
    terms = agent.terms
    names, late = [json.dumps(name) for name in terms.arms], LateBody().model_dump_json()

    def name_of(arm: int) -> str:
        if arm >= len(names):  # added behind the others; one whose addition is being written may still lose its number
            names.extend(json.dumps(name) for name in agent.arm_names[len(names) : arm + 1])
        return names[arm]

    link = {"operationId": "reward", "parameters": {"decision_id": "$response.body#/id"}}
    schema = request_schema()

    def told(it: Decision) -> str:
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
        responses=errors(400, 404, 409, 413, 415, 422, 503),
        openapi_extra={
            "requestBody": {"required": False, "content": {"application/json": {"schema": schema, "example": {}}}},
            "responses": {"201": {"links": {"reward": link}}},
        },
    )
    async def decide(request: Request) -> Response:
        raw = await read_body(request.receive)
        if raw:
            check_type(request)
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
        status_code=204,
        response_class=Response,
        response_description="On disk.",
        responses={
            200: {"model": LateBody, "description": "It came too late, and does not count; that is on disk."},
            **errors(400, 404, 409, 413, 415, 422, 503),
        },
        openapi_extra={
            "parameters": [path_parameter("decision_id", "The id of the decision.", EXAMPLE_ID)],
            "requestBody": {"required": True, "content": {"application/json": {"schema": reward_schema(terms)}}},
        },
    )
    async def reward(request: Request) -> Response:
        check_type(request)
        value = read_reward(await read_body(request.receive), terms)
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
        responses=errors(400, 413, 415, 422, 503),
        openapi_extra={
            "requestBody": {"required": True, "content": {"application/json": {"schema": rewards_schema(terms)}}},
        },
    )
    async def rewards(request: Request) -> Response:
        check_type(request)
        given = read_rewards(await read_body(request.receive), terms)
        with metrics.reward_seconds.time():
            outcomes = await agent.report_all(given)
        results = [_result(name, it) for (name, _), it in zip(given, outcomes, strict=True)]
        return Response(ResultsBody(results=results).model_dump_json(), media_type="application/json")

    _ = decide, reward, rewards  # the app keeps them


def _result(name: str, outcome: Outcome) -> ResultBody:
    if outcome is True:
        return ResultBody(id=name, counted=True)
    if outcome is False:
        return ResultBody(id=name, counted=False, code="too_late", message=LateBody().message)
    detail = error_of(outcome).detail
    return ResultBody(id=name, counted=False, code=detail.code, message=detail.message)


def _add_one(app: FastAPI, agent: LocalAgent) -> None:
    """Add the paths of one decision."""
    terms = agent.terms
    path = "/v1/decisions/{decision_id}"
    extra = {"parameters": [path_parameter("decision_id", "The id of the decision.", EXAMPLE_ID)]}

    @app.get(
        path,
        operation_id="decision",
        summary="What became of a decision",
        description="For whoever has its id and may report: it tells whether a reward came, and never which.",
        response_model=KnownDecisionBody,
        response_description="As it stands.",
        responses=errors(404, 422, 503),
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
            reward_until=it.at + window if window else None,
            remembered_until=it.at + window + agent.limits.expire_after,
        )
        return Response(body.model_dump_json(), media_type="application/json")

    @app.delete(
        path,
        operation_id="cancel",
        summary="Cancel a decision that was not used",
        description="It is no longer pending, and does not count as tried. Idempotent. Whether you cancel must not "
        "depend on the outcome: docs/privacy.md. 409: `rewarded`, its reward was reported; `window_over`, it counts "
        "already.",
        status_code=204,
        response_class=Response,
        response_description="On disk.",
        responses=errors(400, 404, 409, 413, 415, 422, 503),
        openapi_extra=extra,
    )
    async def cancel(request: Request) -> Response:
        await expect_nothing(request)
        await agent.cancel(request.path_params["decision_id"])
        return Response(status_code=204)

    _ = decision, cancel
