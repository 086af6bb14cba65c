"""The HTTP API of an agent: its paths, and its OpenAPI document.

``decisions`` has the paths of an application; here are those of operators and viewers. ``access`` stands before all of
them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from math import ceil
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fedbandit.agent.core.arms import MAX_REASON
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.trail import REASON, Deed, checked_reason, needs_reason
from fedbandit.agent.http import bodies
from fedbandit.agent.http import state as models
from fedbandit.agent.http.access import (
    OPEN,
    RIGHT_FOR,
    SIGN_IN,
    AccessControl,
    Admission,
    Door,
    admission_of,
    caller_of,
    check_right,
    check_tokens,
    query_of,
    unauthorised,
)
from fedbandit.agent.http.audit_log import add_audit_log
from fedbandit.agent.http.decisions import add_decisions, add_log
from fedbandit.agent.http.events import EventStream
from fedbandit.agent.http.evidence import add_evidence
from fedbandit.agent.http.metrics import CONTENT_TYPE, Metrics
from fedbandit.agent.http.proxy import ProxyWord, address_of
from fedbandit.agent.http.server import add_page
from fedbandit.agent.http.sessions import Attempts, Sessions
from fedbandit.agent.process.rights import Caller, Right
from fedbandit.checks import InvalidArgument

if TYPE_CHECKING:
    from fedbandit.agent.process.runtime import Agent


def make_app(agent: "Agent", tokens: Mapping[str, Caller] | None = None, door: Door | None = None) -> FastAPI:
    """The HTTP API of an agent.

    ``tokens``: every call but ``/healthz``, ``/readyz`` and the files of the page requires one of them, and its right;
    None: anyone has all rights. Without a ``door`` it is called on loopback alone.
    """
    door = Door() if door is None else door
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
    sessions = None if tokens is None else Sessions(agent.config.name, tokens, _seconds)
    app.add_middleware(AccessControl, sessions=sessions, door=door)
    metrics = Metrics()
    bodies.answer_errors(app)
    add_decisions(app, agent, metrics)
    add_log(app, agent)
    _add_members(app, agent)
    _add_restoring(app, agent)
    _add_arms(app, agent)
    _add_views(app, agent, metrics)
    _add_watching(app, agent)
    _add_sessions(app, agent, sessions, door.proxy)
    add_evidence(app, agent)
    add_audit_log(app, agent)
    add_page(app)
    _describe(app, tokens is not None)
    return app


_DESCRIPTION = """Ask for an arm, use it, report the reward.

Every unsuccessful response is an `ErrorBody`, and has changed nothing. Decisions and rewards are on disk when they
are acknowledged."""


class _Direct(APIRoute):
    """A route that checks the caller's right and query and calls its function, without injection or conversion."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function, for callers with the right that it requires."""
        operation, answer = self.operation_id or "", self.endpoint
        right = RIGHT_FOR[operation]

        async def checked(request: Request) -> Response:
            check_right(right, caller_of(request))
            if query := request.scope["query_string"]:
                query_of(operation, query)
            return await answer(request)

        return checked


# ---------------------------------------------------------------- what can be seen


class Alive(bodies.Body):
    """The process is alive."""

    alive: Literal[True] = True


class Ready(bodies.Body):
    """The agent hands out decisions."""

    ready: Literal[True] = True


def _add_views(app: FastAPI, agent: "Agent", metrics: Metrics) -> None:
    view = partial(_add_view, app)

    async def federation(_: Request) -> models.FederationState:
        return (await agent.state()).federation

    async def document(_: Request) -> Response:
        return JSONResponse(app.openapi())

    async def alive(_: Request) -> Alive:
        return Alive()

    async def ready(_: Request) -> Ready:
        reason = await agent.not_ready()
        if reason is not None:
            raise bodies.HttpError(503, "not_ready", reason)
        return Ready()

    view("/v1/state", "state", "The agent's state", models.SiteState, lambda _: agent.state())
    terms = "The terms that all sites share, and how many sites take part"
    view("/v1/federation", "federation", terms, models.FederationState, federation)
    app.get("/openapi.json", operation_id="openapi", include_in_schema=False)(document)
    view("/healthz", "healthz", "The process is alive", Alive, alive)
    view("/readyz", "readyz", "The agent hands out decisions", Ready, ready, 503)

    @app.get(
        "/metrics",
        operation_id="metrics",
        summary="Prometheus metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def show_metrics(_: Request) -> Response:
        text = metrics.text(await agent.state(), await agent.not_ready() is None)
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    _ = show_metrics


def _add_view(
    app: FastAPI,
    path: str,
    operation: str,
    summary: str,
    model: type[BaseModel],
    read: Callable[[Request], Awaitable[BaseModel]],
    *refusals: int,
) -> None:
    """Add a path that shows something, and takes nothing."""

    async def answer(request: Request) -> Response:
        return bodies.json_response(await read(request))

    said = bodies.errors(*refusals)
    app.get(path, operation_id=operation, summary=summary, response_model=model, responses=said)(answer)


def _add_watching(app: FastAPI, agent: "Agent") -> None:
    history = "How the state moved since the process started"
    _add_view(app, "/v1/history", "history", history, models.HistoryBody, lambda _: agent.history())

    @app.get(
        "/v1/events",
        operation_id="events",
        summary="A stream of the state and of bulletins",
        description="Server-sent events: `state` (a SiteState) at once, and when it has changed; `point` (a "
        "HistoryPoint); `bulletin`; `problem` while the state cannot be read. A comment every 10 s.",
        response_class=Response,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}, **bodies.errors(503)},
    )
    async def events(request: Request) -> Response:
        return EventStream(agent.feed, agent.feed.open(), admission_of(request).still)

    _ = events


# ---------------------------------------------------------------- sessions


def _seconds() -> float:
    return asyncio.get_running_loop().time()


class SignInRequest(bodies.Body):
    """The token of a person, or of a role."""

    token: str = Field(description="A token of this agent.", examples=["0123456789abcdef"])


def _add_sessions(app: FastAPI, agent: "Agent", sessions: Sessions | None, proxy: ProxyWord) -> None:
    """Add the paths that say who calls, and with which a person signs in and out at the page."""
    attempts = Attempts(_seconds)

    def body_of(admission: Admission) -> models.SessionBody:
        caller, is_proxied = admission.caller, admission.caller.way == "proxy"
        return models.SessionBody(
            name=caller.name,
            way=caller.way,
            rights=sorted(caller.rights),
            csrf=admission.csrf,
            lasts=admission.lasts,
            sign_out=proxy.sign_out if is_proxied else None,
        )

    async def session(request: Request) -> models.SessionBody:
        admission = admission_of(request)
        caller = admission.caller
        if sessions is not None and caller.way == "proxy" and sessions.is_first(caller.name):
            await agent.note_login("sign in", caller.deed(""))
        return body_of(admission)

    _add_view(app, SIGN_IN, "session", "Who the caller is, and may do what", models.SessionBody, session)

    @app.post(
        SIGN_IN,
        operation_id="sign_in",
        summary="Sign in with a token: a cookie says from now on who calls",
        description="For browsers; the cookie is HttpOnly and SameSite=Strict, and `Secure` at an `https://` address. "
        "The session ends after eight hours, when the caller signs out, when the token is changed, and when the agent "
        "restarts.",
        status_code=201,
        response_model=models.SessionBody,
        response_description="Signed in. `Set-Cookie` has the cookie.",
        responses=bodies.errors(400, 401, 409, 413, 415, 422, 429, 503),
        openapi_extra=bodies.takes(SignInRequest.model_json_schema()),
    )
    async def sign_in(request: Request) -> Response:
        before = admission_of(request)
        bodies.check_type(request)
        accepted = "a token of this agent"
        example = 'an object such as {"token": "0123456789abcdef"}'
        asked = bodies.read_model(await bodies.read_body(request.receive), SignInRequest, example, {"token": accepted})
        if sessions is None or before.caller.way == "proxy":
            who = f"the proxy says that you are {before.caller.name}"
            why = "this agent requires no token" if sessions is None else who
            raise bodies.HttpError(409, "signed_in", f"there is nothing to sign in to: {why}")
        address = address_of(request.scope)
        if (wait := attempts.wait(address)) > 0.0:
            says = f"too many wrong tokens from {address}: wait {ceil(wait)} s"
            agent.refused_callers.count("sign-in", says)
            raise bodies.HttpError(429, "too_many_attempts", says, headers={"Retry-After": str(ceil(wait))})
        if (caller := sessions.whose(asked.token)) is None:
            attempts.failed(address)
            await agent.note_login("refuse", Deed("", f"a wrong token from {address}"))
            raise unauthorised("this agent does not know this token")
        await agent.note_login("sign in", caller.deed(""))
        if before.secret is not None:
            sessions.end(before.secret)
        secret = sessions.begin(asked.token, caller)
        if (known := sessions.known(secret)) is None:
            raise unauthorised("this token has been changed in this moment")
        now = Admission(known.caller, before.secure, known.csrf, secret, known.lasts)
        return bodies.json_response(body_of(now), 201, {"Set-Cookie": sessions.set_cookie(secret, before.secure)})

    @app.delete(
        SIGN_IN,
        operation_id="sign_out",
        summary="Sign out: the session ends, and its streams with it",
        status_code=204,
        response_class=Response,
        response_description="Signed out.",
        responses=bodies.errors(409, 503),
    )
    async def sign_out(request: Request) -> Response:
        await bodies.expect_nothing(request)
        admission = admission_of(request)
        if sessions is None or admission.secret is None or admission.caller.way != "session":
            raise bodies.HttpError(409, "signed_in", "this caller has no session: nothing ends")
        sessions.end(admission.secret)
        await agent.note_login("sign out", admission.caller.deed(""))
        return Response(status_code=204, headers={"Set-Cookie": sessions.set_cookie("", admission.secure)})

    _ = sign_in, sign_out


# ---------------------------------------------------------------- members, and which file is the latest


_REASON: dict[str, Any] = {"min_length": 1, "max_length": MAX_REASON}
_NO_REASON: dict[str, Any] = {"default": "", "max_length": MAX_REASON}
_Asked = TypeVar("_Asked", "ExcludeRequest", "IncludeRequest", "ConfirmRequest", "RestoreRequest")


class ExcludeRequest(bodies.Body):
    """Why a member is excluded."""

    reason: str = Field(description="Why, for this site's own people.", examples=["its data are wrong"], **_REASON)


class IncludeRequest(bodies.Body):
    """Why a member counts again."""

    reason: str = Field(description="Why, for this site's own people.", **_NO_REASON)


class ConfirmRequest(bodies.Body):
    """Why the caller is sure that no other process has this name, and that this data folder is the latest."""

    reason: str = Field(description="Why.", examples=["the other machine is switched off"], **_REASON)


class RestoreRequest(bodies.Body):
    """Why a new incarnation begins."""

    reason: str = Field(description="Why.", examples=["the disk failed; this is the backup of Monday"], **_REASON)


async def _reason(request: Request, kind: type[_Asked], example: str) -> Deed:
    """Who asks, and why, of a body that has nothing but a reason."""
    said = await bodies.read_body(request.receive)
    is_required = kind.model_fields["reason"].is_required()
    body = f'an object such as {{"reason": "{example}"}}' if is_required else f'left out, or {{"reason": "{example}"}}'
    asked = kind.model_validate({}) if not said and not is_required else None
    if asked is None:
        bodies.check_type(request)
        asked = bodies.read_model(said, kind, body, {"reason": REASON})
    return caller_of(request).deed(checked_reason(asked.reason, is_required))


def _add_members(app: FastAPI, agent: "Agent") -> None:
    """Add the paths that show what a member has signed, exclude it, and include it again."""
    name = bodies.path_parameter("name", "Name of the site.", "east")
    common: dict[str, Any] = {"responses": bodies.errors(400, 404, 413, 415, 422, 503)}

    async def member(request: Request) -> Response:
        return bodies.json_response(await agent.member(request.path_params["name"]))

    app.get(
        "/v1/members/{name}",
        operation_id="member",
        summary="What a site has signed",
        description="Its newest bulletin, two with one number if there are such, and the certificates of the keys that "
        "signed them: a proof that anybody can check.",
        response_model=models.MemberBody,
        responses=bodies.errors(404, 503),
        openapi_extra={"parameters": [name]},
    )(member)

    async def exclude(request: Request) -> Response:
        deed = await _reason(request, ExcludeRequest, "its data are wrong")
        try:
            await agent.exclude(request.path_params["name"], deed)
        except InvalidArgument as error:
            if error.argument != "name":
                raise
            raise bodies.HttpError(404, "unknown_member", str(error), "name", error.accepted) from None
        return Response(status_code=204)

    path = "/v1/excluded/{name}"
    app.put(
        path,
        operation_id="exclude",
        summary="Exclude a member",
        description="Its numbers no longer count at this site, and its new changes of arms are not taken. Stops that "
        "are known stay. Its bulletins are still passed on.",
        **common,
        openapi_extra={"parameters": [name], **bodies.takes(ExcludeRequest.model_json_schema())},
        **bodies.ON_DISK,
    )(exclude)

    async def include(request: Request) -> Response:
        deed = await _reason(request, IncludeRequest, "its data are right again")
        await agent.include(request.path_params["name"], deed)
        return Response(status_code=204)

    app.delete(
        path,
        operation_id="include",
        summary="Count an excluded member again",
        **common,
        openapi_extra={"parameters": [name], **bodies.takes(IncludeRequest.model_json_schema(), required=False)},
        **bodies.ON_DISK,
    )(include)


def _add_restoring(app: FastAPI, agent: "Agent") -> None:
    """Add the paths that confirm a file, or begin a new incarnation with an old one."""
    refusals = bodies.errors(400, 409, 413, 415, 422, 503)

    @app.post(
        "/v1/confirm",
        operation_id="confirm",
        summary="Confirm that no other process has this name, and that this data folder is the latest",
        description="When no neighbour is there to confirm it, or after a second process of this name was stopped.",
        status_code=204,
        response_class=Response,
        response_description="Releases resume.",
        responses=refusals,
        openapi_extra=bodies.takes(ConfirmRequest.model_json_schema()),
    )
    async def confirm(request: Request) -> Response:
        await agent.confirm(await _reason(request, ConfirmRequest, "the other machine is switched off"))
        return Response(status_code=204)

    @app.post(
        "/v1/restore",
        operation_id="restore",
        summary="Begin a new incarnation with an old data folder",
        description="Drops what another process may have released. What only this process has decided stays.",
        response_model=models.RestoredBody,
        response_description="On disk.",
        responses=refusals,
        openapi_extra=bodies.takes(RestoreRequest.model_json_schema()),
    )
    async def restore(request: Request) -> Response:
        deed = await _reason(request, RestoreRequest, "the disk failed; this is the backup of Monday")
        return bodies.json_response(models.RestoredBody(**asdict(await agent.restore(deed))))

    _ = confirm, restore


# ---------------------------------------------------------------- arms


class ChangeRequest(bodies.Body):
    """What to do with which arm."""

    change: Literal["add", "suspend", "resume", "retire"] = Field(description="What to do.", examples=["suspend"])
    arm: str = Field(description="Name of the arm.", examples=["glipizide"])
    reason: str = Field(
        description="Why, in 1 to 200 printable characters; every site shows it. Only `add` needs none.",
        examples=["recalled"],
        **_NO_REASON,
    )
    stratum: dict[str, str] | None = Field(
        default=None,
        description="To suspend or resume the arm for patients with these levels alone; left out: for all.",
        examples=[{"age": "over 65"}],
    )


def _change_schema(terms: Federation) -> dict[str, Any]:
    """The schema of ``ChangeRequest``: all changes but an addition need a reason, two may be for some patients."""
    schema, accepted = ChangeRequest.model_json_schema(), list[dict[str, Any]]([{"type": "null"}])
    if terms.context is not None:
        levels = {it.name: {"enum": list(it.levels)} for it in terms.context.factors}
        accepted.append({"type": "object", "properties": levels, "additionalProperties": False, "minProperties": 1})
    schema["properties"]["stratum"]["anyOf"] = accepted
    needed = {"required": ["reason"], "properties": {"reason": {"minLength": 1}}}
    for_all = {"properties": {"stratum": {"type": "null"}}}
    return {
        **schema,
        "allOf": [
            {"if": {"properties": {"change": {"const": "add"}}}, "else": needed},
            {"if": {"properties": {"change": {"enum": ["add", "retire"]}}}, "then": for_all},
        ],
    }


def _check_stratum(terms: Federation, asked: ChangeRequest) -> None:
    """Raise ``InvalidArgument`` where a change cannot be for these patients, whatever the arms are."""
    if asked.stratum is None:
        return
    if asked.change in ("add", "retire"):
        raise InvalidArgument("stratum", asked.stratum, f"left out: to {asked.change} an arm is for all patients")
    if terms.context is None:
        raise InvalidArgument("stratum", asked.stratum, "left out: the terms have no [federation.context]")
    terms.context.with_levels("stratum", asked.stratum)


class AcceptRequest(bodies.Body):
    """The arm whose changes are accepted."""

    arm: str = Field(description="Name of the arm.", examples=["glipizide"])
    retire: bool = Field(default=False, description="Accept a retirement, too: that is final.")
    reason: str = Field(description="Why, for this site's own people.", **_NO_REASON)


_ACCEPTED = {
    "change": "add, suspend, resume or retire",
    "arm": "the name of an arm",
    "reason": REASON,
    "retire": "true or false",
    "stratum": "left out, or an object of factors and levels",
}


def _add_arms(app: FastAPI, agent: "Agent") -> None:
    """Add the paths that show the arms, change one, and accept others' changes."""
    refusals = bodies.errors(400, 404, 409, 413, 415, 422, 503)

    async def arms(_: Request) -> models.ArmsBody:
        return await agent.arms_body()

    _add_view(app, "/v1/arms", "arms", "The arms, and who changed them", models.ArmsBody, arms, 503)

    @app.post(
        "/v1/arms",
        operation_id="change_arm",
        summary="Add, suspend, resume or retire an arm",
        description="In this site's next bulletin, at once. A stop takes effect at each site as soon as it "
        "arrives. An arm that is added or resumed is given at sites that accept this one's changes, or whose operator "
        "accepts it.",
        status_code=201,
        response_model=models.ArmChangeBody,
        response_description="On disk, and in a bulletin that is on its way.",
        responses=refusals,
        openapi_extra=bodies.takes(_change_schema(agent.terms)),
    )
    async def change_arm(request: Request) -> Response:
        bodies.check_type(request)
        body = 'an object such as {"change": "suspend", "arm": "glipizide", "reason": "recalled"}'
        asked = bodies.read_model(await bodies.read_body(request.receive), ChangeRequest, body, _ACCEPTED)
        deed = caller_of(request).deed(checked_reason(asked.reason, needs_reason(asked.change)))
        _check_stratum(agent.terms, asked)
        try:
            change = await agent.change_arm(asked.change, asked.arm, deed, asked.stratum)
        except InvalidArgument as error:
            if error.argument == "reason":
                raise
            is_known = asked.change == "add" or asked.arm in (await agent.arms()).names
            raise _refusal(error, *((409, "arm_refused") if is_known else (404, "unknown_arm"))) from None
        return bodies.json_response(await agent.change_body(change), 201)

    @app.post(
        "/v1/arms/accept",
        operation_id="accept_arm",
        summary="Accept the changes of an arm that wait",
        description="A retirement is final, and is accepted only with `retire`; until then it suspends.",
        response_model=models.ArmsBody,
        response_description="On disk; the arms as they are now.",
        responses=refusals,
        openapi_extra=bodies.takes(AcceptRequest.model_json_schema()),
    )
    async def accept_arm(request: Request) -> Response:
        bodies.check_type(request)
        body = 'an object such as {"arm": "glipizide"}'
        asked = bodies.read_model(await bodies.read_body(request.receive), AcceptRequest, body, _ACCEPTED)
        deed = caller_of(request).deed(checked_reason(asked.reason, required=False))
        try:
            await agent.accept_arm(asked.arm, asked.retire, deed)
        except InvalidArgument as error:
            raise _refusal(
                error, *((404, "unknown_arm") if error.argument == "arm" else (409, "arm_refused"))
            ) from None
        return bodies.json_response(await agent.arms_body())

    _ = change_arm, accept_arm


def _refusal(error: InvalidArgument, status: int, code: Literal["arm_refused", "unknown_arm"]) -> bodies.HttpError:
    """Which names are accepted depends on the arms that there are, not on the request alone."""
    return bodies.HttpError(status, code, str(error), error.argument, error.accepted)


# ---------------------------------------------------------------- the OpenAPI document

_TAGS: dict[Right | None, str] = {
    "decide": "application",
    "report": "application",
    "view": "viewer",
    "members": "operator",
    "restore": "operator",
    "arms": "operator",
    "log": "operator",
    "audit": "operator",
    None: "health",
}
"""Whose operations they are, by the right that they require."""


def _describe(app: FastAPI, with_token: bool) -> None:
    """Fix an application's document, including the answers of access control and router on every path."""
    routes = app.routes
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=routes)
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
    for path, operations in document["paths"].items():
        is_open = path in OPEN
        for operation in operations.values():
            for status in (400, 401, 403, 405, 413, 421, 422, 500):
                if status != 401 or (with_token and not is_open):
                    operation["responses"][str(status)] = {"description": bodies.MEANINGS[status], "content": error}
            right = RIGHT_FOR[operation["operationId"]]
            operation["tags"] = [_TAGS[right] if is_open or right is not None else "viewer"]
            if with_token and not is_open:
                operation["security"] = [{"token": [] if right is None else [right]}]
    if with_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    app.openapi = lambda: document
