"""The paths that show and change the arms."""

from typing import Literal, TypeVar

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from fedbandit.agent import strict_json
from fedbandit.agent.http.access import read_body
from fedbandit.agent.http.local_agent import LocalAgent
from fedbandit.agent.http.openapi import errors
from fedbandit.agent.http.request_bodies import check_type
from fedbandit.agent.http.schemas import HttpError
from fedbandit.agent.http.snapshot import arms_body, change_body
from fedbandit.agent.http.state import ArmChangeBody, ArmsBody
from fedbandit.checks import InvalidArgument, closest, shortened

__all__ = ["AcceptRequest", "ChangeRequest", "add_arms"]


class _Asked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ChangeRequest(_Asked):
    """What to do with which arm."""

    change: Literal["add", "suspend", "resume", "retire"] = Field(description="What to do.", examples=["suspend"])
    arm: str = Field(description="Name of the arm.", examples=["glipizide"])


class AcceptRequest(_Asked):
    """The arm whose changes are accepted."""

    arm: str = Field(description="Name of the arm.", examples=["glipizide"])
    retire: bool = Field(default=False, description="Accept a retirement, too: that is final.")


_T = TypeVar("_T", bound=_Asked)


async def _asked(request: Request, kind: type[_T], body: str) -> _T:
    """The body of a request, or the first mistake in it."""
    check_type(request)
    raw = await read_body(request.receive)
    try:
        strict_json.parse(raw)
        return kind.model_validate_json(raw)
    except strict_json.DuplicateKey as error:
        raise HttpError(
            422, "invalid", f"{shortened(repr(error.key))} stands twice in the body", "body", body
        ) from None
    except ValidationError as error:
        raise _mistake(error, kind, body) from None
    except (ValueError, RecursionError):
        raise HttpError(400, "invalid_json", f"the body is not JSON; it must be like {body}", "body", body) from None


def _mistake(error: ValidationError, kind: type[_Asked], body: str) -> HttpError:
    first = error.errors(include_url=False)[0]
    if not first["loc"]:
        return HttpError(422, "invalid", f"the body must be like {body}", "body", body)
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        known = ", ".join(kind.model_fields)
        says = f"{shortened(repr(name))} is not a field; there are {known}. {closest(name, kind.model_fields)}"
        return HttpError(422, "invalid", says.strip(), shortened(name), known)
    accepted = {"change": "add, suspend, resume or retire", "retire": "true or false"}.get(name, "the name of an arm")
    if first["type"] == "missing":
        return HttpError(422, "invalid", f"{name} is missing; it must be {accepted}", name, accepted)
    says = f"{name} must be {accepted}, not {shortened(repr(first['input']))}"
    return HttpError(422, "invalid", says, name, accepted)


def add_arms(app: FastAPI, agent: LocalAgent) -> None:
    """Add the paths that show the arms, change one, and accept others' changes."""
    refusals = errors(400, 404, 409, 413, 415, 422, 503)

    @app.get(
        "/v1/arms",
        operation_id="arms",
        summary="The arms, and who changed them",
        response_model=ArmsBody,
        responses=errors(503),
    )
    async def arms(_: Request) -> Response:
        return _json(arms_body(await agent.arms()))

    @app.post(
        "/v1/arms",
        operation_id="change_arm",
        summary="Add, suspend, resume or retire an arm",
        description="Signed by this site and told to all others. A stop counts at each as soon as it has heard of it; "
        "to add or resume an arm counts at sites that accept this one's changes, or whose operator accepts it.",
        status_code=201,
        response_model=ArmChangeBody,
        response_description="On disk, and on its way to the neighbours.",
        responses=refusals,
        openapi_extra=_takes(ChangeRequest),
    )
    async def change_arm(request: Request) -> Response:
        asked = await _asked(request, ChangeRequest, '{"change": "suspend", "arm": "glipizide"}')
        try:
            change = await agent.change_arm(asked.change, asked.arm)
        except InvalidArgument as error:
            is_known = asked.change == "add" or asked.arm in (await agent.arms()).names
            raise _refusal(error, *((409, "arm_refused") if is_known else (404, "unknown_arm"))) from None
        return _json(change_body(await agent.arms(), change), 201)

    @app.post(
        "/v1/arms/accept",
        operation_id="accept_arm",
        summary="Accept the changes of an arm that wait",
        description="A retirement is final, and is accepted only with `retire`; until then it suspends.",
        response_model=ArmsBody,
        response_description="On disk; the arms as they are now.",
        responses=refusals,
        openapi_extra=_takes(AcceptRequest),
    )
    async def accept_arm(request: Request) -> Response:
        asked = await _asked(request, AcceptRequest, '{"arm": "glipizide"}')
        try:
            await agent.accept_arm(asked.arm, asked.retire)
        except InvalidArgument as error:
            raise _refusal(
                error, *((404, "unknown_arm") if error.argument == "arm" else (409, "arm_refused"))
            ) from None
        return _json(arms_body(await agent.arms()))

    _ = arms, change_arm, accept_arm


def _refusal(error: InvalidArgument, status: int, code: Literal["arm_refused", "unknown_arm"]) -> HttpError:
    """Which names are accepted depends on the arms that there are, not on the request alone."""
    return HttpError(status, code, str(error), error.argument, error.accepted)


def _takes(kind: type[BaseModel]) -> dict[str, object]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": kind.model_json_schema()}}}}


def _json(body: BaseModel, status: int = 200) -> Response:
    return Response(body.model_dump_json(), status, media_type="application/json")
