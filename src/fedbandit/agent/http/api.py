"""The HTTP API of an agent: puts its paths together, and the checks that stand before all of them.

Paths are in ``decision_paths`` and ``operator_paths``, bodies in ``schemas``, access control in ``access``.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response

from fedbandit.agent.http.access import LOOPBACK, RIGHT_FOR, AccessControl, check_right, check_tokens
from fedbandit.agent.http.arm_paths import add_arms
from fedbandit.agent.http.decision_paths import add_decisions
from fedbandit.agent.http.error_answers import answer_errors
from fedbandit.agent.http.event_stream import EventStream
from fedbandit.agent.http.local_agent import LocalAgent
from fedbandit.agent.http.log_path import add_log
from fedbandit.agent.http.metrics import CONTENT_TYPE, Metrics
from fedbandit.agent.http.openapi import describe, errors
from fedbandit.agent.http.operator_paths import add_lives, add_neighbours
from fedbandit.agent.http.page_files import add_page
from fedbandit.agent.http.query import query_of
from fedbandit.agent.http.schemas import Alive, HttpError, Ready
from fedbandit.agent.http.state import FederationState, HistoryBody, RightsBody, SiteState
from fedbandit.agent.rights import Rights

__all__ = ["make_app"]


def make_app(
    agent: LocalAgent, tokens: Mapping[str, Rights] | None = None, hosts: Iterable[str] | None = LOOPBACK
) -> FastAPI:
    """The HTTP API of an agent.

    * ``tokens``: every call but ``/healthz``, ``/readyz`` and the files of the page requires one of them, and its
      right; None: anyone has all rights
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
        openapi_url=None,  # below, as a path like the others
        redirect_slashes=False,
        # Spans and error logs would carry rewards to whatever collector the environment names.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.router.route_class = _Direct
    app.add_middleware(AccessControl, tokens=tokens, hosts=None if hosts is None else tuple(hosts))
    metrics = Metrics()
    answer_errors(app)
    add_decisions(app, agent, metrics)
    add_log(app, agent)
    add_neighbours(app, agent)
    add_lives(app, agent)
    add_arms(app, agent)
    _add_views(app, agent, metrics)
    _add_watching(app, agent)
    add_page(app)
    describe(app, tokens is not None)
    return app


class _Direct(APIRoute):
    """A route that checks the caller's right and query and calls its function, without injection or conversion."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function, for callers with the right that it requires."""
        operation, answer = self.operation_id or "", self.endpoint
        right = RIGHT_FOR[operation]

        async def checked(request: Request) -> Response:
            check_right(right, request.scope["rights"])
            if query := request.scope["query_string"]:
                query_of(operation, query)
            return await answer(request)

        return checked


_DESCRIPTION = """Ask for an arm, use it, report the reward.

Every unsuccessful response is an `ErrorBody`, and has changed nothing. Decisions and rewards are on disk when they
are acknowledged."""


# ---------------------------------------------------------------- views


def _add_views(app: FastAPI, agent: LocalAgent, metrics: Metrics) -> None:
    @app.get("/v1/state", operation_id="state", summary="The agent's state", response_model=SiteState)
    async def state(_: Request) -> Response:
        return Response((await agent.state()).model_dump_json(), media_type="application/json")

    @app.get(
        "/v1/federation",
        operation_id="federation",
        summary="The terms that all sites share, and how many sites take part",
        response_model=FederationState,
    )
    async def federation(_: Request) -> Response:
        return Response((await agent.state()).federation.model_dump_json(), media_type="application/json")

    @app.get("/openapi.json", operation_id="openapi", include_in_schema=False)
    async def document(_: Request) -> Response:
        return JSONResponse(app.openapi())

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
        reason = await agent.not_ready()
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
        return Response(
            metrics.text(await agent.state(), await agent.not_ready() is None), headers={"Content-Type": CONTENT_TYPE}
        )

    _ = state, federation, document, healthz, readyz, show_metrics


def _add_watching(app: FastAPI, agent: LocalAgent) -> None:
    @app.get(
        "/v1/history",
        operation_id="history",
        summary="How the state moved since the process started",
        response_model=HistoryBody,
    )
    async def history(_: Request) -> Response:
        return Response((await agent.history()).model_dump_json(), media_type="application/json")

    @app.get(
        "/v1/events",
        operation_id="events",
        summary="A stream of the state and of exchanges",
        description="Server-sent events: `state` (a SiteState) at once, and when it has changed; `point` (a "
        "HistoryPoint); `exchange`; `problem` while the state cannot be read. A comment every 10 s.",
        response_class=Response,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}, **errors(503)},
    )
    async def events(_: Request) -> Response:
        return EventStream(agent.feed, agent.feed.open())

    @app.get("/v1/rights", operation_id="rights", summary="What this token allows", response_model=RightsBody)
    async def rights(request: Request) -> Response:
        body = RightsBody(rights=sorted(request.scope["rights"]))
        return Response(body.model_dump_json(), media_type="application/json")

    _ = history, events, rights
