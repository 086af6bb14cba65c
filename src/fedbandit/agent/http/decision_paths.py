"""The paths of an application: ask for an arm, report its reward.

They read and write their few bytes by hand, because the framework would cost more time than the agent; a test holds
them to the OpenAPI document.
"""

import json

from fastapi import FastAPI, Request
from starlette.responses import Response

from fedbandit.agent.http.access import read_body
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
        if arm >= len(names):  # arms are added behind the others, and keep their numbers
            names.extend(json.dumps(name) for name in agent.arms.names[len(names) :])
        return names[arm]

    nothing = {"type": "object", "additionalProperties": False, "maxProperties": 0}
    link = {"operationId": "reward", "parameters": {"decision_id": "$response.body#/id"}}

    @app.post(
        "/v1/decisions",
        operation_id="decide",
        summary="Ask for an arm",
        status_code=201,
        response_model=DecisionBody,
        response_description="Use this arm. Not idempotent: each call hands out another decision.",
        responses=errors(400, 409, 413, 415, 422, 503),
        openapi_extra={
            "requestBody": {"required": False, "content": {"application/json": {"schema": nothing, "example": {}}}},
            "responses": {"201": {"links": {"reward": link}}},
        },
    )
    async def decide(request: Request) -> Response:
        await expect_nothing(request)
        with metrics.decide_seconds.time():
            decision = await agent.decide()
        body = f'{{"id":{json.dumps(decision.id)},"arm":{decision.arm},"name":{name_of(decision.arm)}}}'
        return Response(body, 201, media_type="application/json")

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
            **errors(400, 404, 413, 415, 422, 503),
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

    _ = decide, reward  # the app keeps them
