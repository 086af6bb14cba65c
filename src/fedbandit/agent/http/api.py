"""The HTTP API of an agent: maps paths to calls of the agent, and their results to statuses.

Bodies are in ``schemas``, access control in ``access``. The two paths of every decision read and write their few bytes
by hand, because the framework would cost more time than the agent; a test holds them to the OpenAPI document.
"""

import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, Protocol

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Decision
from fedbandit.agent.core.restore import Restored
from fedbandit.agent.http.access import LOOPBACK, RIGHT_FOR, AccessControl, check_right, check_tokens, read_body
from fedbandit.agent.http.error_answers import answer_errors
from fedbandit.agent.http.metrics import CONTENT_TYPE, Metrics
from fedbandit.agent.http.openapi import describe, errors, path_parameter
from fedbandit.agent.http.schemas import (
    EXAMPLE_ID,
    Alive,
    DecisionBody,
    HttpError,
    LateBody,
    Ready,
    read_nothing,
    read_reward,
    reward_schema,
)
from fedbandit.agent.http.snapshot import federation_state
from fedbandit.agent.http.state import FederationState, RestoredBody, SiteState
from fedbandit.agent.rights import Rights
from fedbandit.checks import InvalidArgument

__all__ = ["LocalAgent", "make_app"]


class LocalAgent(Protocol):
    """The methods of an agent that the API calls. Each may raise ``JournalError``; then nothing has changed."""

    async def decide(self) -> Decision:
        """Hand out a decision; it is on disk when this returns."""
        ...

    async def report(self, decision_id: str, reward: float) -> bool:
        """Accept a reward; False: too late. Raises ``UnknownDecision`` or ``InvalidArgument``."""
        ...

    async def leave(self, neighbour: str) -> None:
        """Record that a neighbour has left for good; raises ``NotANeighbour``."""
        ...

    async def rejoin(self, neighbour: str) -> None:
        """Accept a neighbour that had left; raises ``NotANeighbour`` if the configuration does not list it."""
        ...

    async def confirm(self) -> None:
        """The operator says that this process lives, and its file is the latest; raises ``FileIsOld``."""
        ...

    async def restore(self) -> Restored:
        """Begin a new life with an old file; raises ``FileIsCurrent``."""
        ...

    def state(self) -> SiteState:
        """The agent's state."""
        ...

    def not_ready(self) -> str | None:
        """Why it cannot serve now; None if it can."""
        ...

    @property
    def terms(self) -> Federation:
        """The terms that all sites share."""
        ...


def make_app(
    agent: LocalAgent, tokens: Mapping[str, Rights] | None = None, hosts: Iterable[str] | None = LOOPBACK
) -> FastAPI:
    """The HTTP API of an agent.

    * ``tokens``: every call but ``/healthz`` and ``/readyz`` requires one of them, and its right; None: anyone has all
      rights
    * ``hosts``: accepted host names, without port; IPv6 addresses in brackets. None: any, for a server that other
      machines reach: a web page that resolves its own name to it knows no token
    """
    check_tokens(tokens or ())  # now: the framework builds the middleware at the first request
    # No pages for the OpenAPI document: they load scripts from other servers.
    app = FastAPI(
        title="fedbandit agent",
        version=version("fedbandit"),
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Spans and error logs would carry rewards to whatever collector the environment names.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.router.route_class = _Direct
    app.add_middleware(AccessControl, tokens=tokens, hosts=None if hosts is None else tuple(hosts))
    metrics = Metrics(agent.state, agent.not_ready)
    answer_errors(app)
    _add_decisions(app, agent, metrics)
    _add_neighbours(app, agent)
    _add_lives(app, agent)
    _add_views(app, agent, metrics)
    describe(app, tokens is not None)
    return app


class _Direct(APIRoute):
    """A route that checks the caller's right and calls its function directly, without injection or conversion."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function, for callers with the right that it requires."""
        right, answer = RIGHT_FOR[self.operation_id or ""], self.endpoint

        async def checked(request: Request) -> Response:
            check_right(right, request.scope["rights"])
            return await answer(request)

        return checked


_DESCRIPTION = """Ask for an arm, use it, report the reward.

Every unsuccessful response is an `ErrorBody`, and has changed nothing. Decisions and rewards are on disk when they
are acknowledged."""


# ---------------------------------------------------------------- decisions


def _add_decisions(app: FastAPI, agent: LocalAgent, metrics: Metrics) -> None:
    terms = agent.terms
    names, late = [json.dumps(name) for name in terms.arms], LateBody().model_dump_json()
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
        await _expect_nothing(request)
        with metrics.decide_seconds.time():
            decision = await agent.decide()
        body = f'{{"id":{json.dumps(decision.id)},"arm":{decision.arm},"name":{names[decision.arm]}}}'
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
        _check_type(request)
        value = read_reward(await read_body(request.receive), terms)
        with metrics.reward_seconds.time():
            try:
                counts = await agent.report(request.path_params["decision_id"], value)
            except InvalidArgument as error:  # as the application knows it
                raise InvalidArgument("value", error.value, error.accepted, error.hint) from None
        return Response(status_code=204) if counts else Response(late, media_type="application/json")

    _ = decide, reward  # the app keeps them


async def _expect_nothing(request: Request) -> None:
    raw = await read_body(request.receive)
    if raw:
        _check_type(request)
        read_nothing(raw)


def _check_type(request: Request) -> None:
    said = request.headers.get("content-type", "")
    if said.partition(";")[0].strip().lower() != "application/json":
        accepted = "application/json"
        message = f"the body must be {accepted}" + (f", not {said}" if said else ", and the request must say so")
        raise HttpError(415, "unsupported_type", message, "Content-Type", accepted)


# ---------------------------------------------------------------- neighbours


def _add_neighbours(app: FastAPI, agent: LocalAgent) -> None:
    name = path_parameter("name", "The neighbour's name, as in the configuration.", "east")
    path, extra = "/v1/neighbours/{name}", {"parameters": [name]}
    refusals = errors(400, 404, 413, 415, 422, 503)

    @app.delete(
        path,
        operation_id="leave",
        summary="Drop a neighbour that has left for good",
        description="Drops its flow; the others converge to the mean of the remaining sites. Tell all its neighbours.",
        status_code=204,
        response_class=Response,
        response_description="On disk.",
        responses=refusals,
        openapi_extra=extra,
    )
    async def leave(request: Request) -> Response:
        await _expect_nothing(request)
        await agent.leave(request.path_params["name"])
        return Response(status_code=204)

    @app.put(
        path,
        operation_id="rejoin",
        summary="Accept a neighbour that had left",
        status_code=204,
        response_class=Response,
        response_description="On disk.",
        responses=refusals,
        openapi_extra=extra,
    )
    async def rejoin(request: Request) -> Response:
        await _expect_nothing(request)
        await agent.rejoin(request.path_params["name"])
        return Response(status_code=204)

    _ = leave, rejoin


# ---------------------------------------------------------------- lives


def _add_lives(app: FastAPI, agent: LocalAgent) -> None:
    refusals = errors(400, 409, 413, 415, 422, 503)

    @app.post(
        "/v1/confirm",
        operation_id="confirm",
        summary="Say that this process lives, and that its data folder is the latest",
        description="When no neighbour is there to confirm it, or after a second process of this name was stopped.",
        status_code=204,
        response_class=Response,
        response_description="Releases go on.",
        responses=refusals,
    )
    async def confirm(request: Request) -> Response:
        await _expect_nothing(request)
        await agent.confirm()
        return Response(status_code=204)

    @app.post(
        "/v1/restore",
        operation_id="restore",
        summary="Begin a new life with an old data folder",
        description="Drops what another process may have released. What only this process has decided stays.",
        response_model=RestoredBody,
        response_description="On disk.",
        responses=refusals,
    )
    async def restore(request: Request) -> Response:
        await _expect_nothing(request)
        body = RestoredBody(**asdict(await agent.restore()))
        return Response(body.model_dump_json(), media_type="application/json")

    _ = confirm, restore


# ---------------------------------------------------------------- views


def _add_views(app: FastAPI, agent: LocalAgent, metrics: Metrics) -> None:
    @app.get("/v1/state", operation_id="state", summary="The agent's state", response_model=SiteState)
    async def state(_: Request) -> Response:
        return Response(agent.state().model_dump_json(), media_type="application/json")

    terms = federation_state(agent.terms).model_dump_json()

    @app.get(
        "/v1/federation",
        operation_id="federation",
        summary="The terms that all sites share",
        response_model=FederationState,
    )
    async def federation(_: Request) -> Response:
        return Response(terms, media_type="application/json")

    @app.get("/healthz", operation_id="healthz", summary="The process is alive", response_model=Alive)
    async def healthz(_: Request) -> Response:
        return Response(Alive().model_dump_json(), media_type="application/json")

    @app.get(
        "/readyz",
        operation_id="readyz",
        summary="The agent hands out decisions",
        response_model=Ready,
        responses=errors(503),
    )
    async def readyz(_: Request) -> Response:
        reason = agent.not_ready()
        if reason is not None:
            raise HttpError(503, "not_ready", reason)
        return Response(Ready().model_dump_json(), media_type="application/json")

    @app.get(
        "/metrics",
        operation_id="metrics",
        summary="Prometheus metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def show_metrics(_: Request) -> Response:
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    _ = state, federation, healthz, readyz, show_metrics
