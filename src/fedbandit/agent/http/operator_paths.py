"""The paths of an operator: neighbours that leave and come back, files that are old or copied."""

from dataclasses import asdict

from fastapi import FastAPI, Request
from starlette.responses import Response

from fedbandit.agent.http.local_agent import LocalAgent
from fedbandit.agent.http.openapi import errors, path_parameter
from fedbandit.agent.http.request_bodies import expect_nothing
from fedbandit.agent.http.state import RestoredBody

__all__ = ["add_lives", "add_neighbours"]

# ---------------------------------------------------------------- neighbours


def add_neighbours(app: FastAPI, agent: LocalAgent) -> None:
    """Add the paths that drop and readmit a neighbour."""
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
        await expect_nothing(request)
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
        await expect_nothing(request)
        await agent.rejoin(request.path_params["name"])
        return Response(status_code=204)

    _ = leave, rejoin


# ---------------------------------------------------------------- lives


def add_lives(app: FastAPI, agent: LocalAgent) -> None:
    """Add the paths that confirm a file, or begin a new life with an old one."""
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
        await expect_nothing(request)
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
        await expect_nothing(request)
        body = RestoredBody(**asdict(await agent.restore()))
        return Response(body.model_dump_json(), media_type="application/json")

    _ = confirm, restore
