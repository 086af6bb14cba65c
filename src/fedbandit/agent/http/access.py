"""Checks host, origin, token and size of every HTTP request before it is routed, then the caller's right and the query.

Loopback does not keep browsers out: a page from another server can resolve its own name to 127.0.0.1 (hence the
check of Host), can post to 127.0.0.1 without permission (hence the check of Origin), and can frame or link to any path
of it, which sends no Origin (hence the check of Sec-Fetch-Site, which browsers send and pages cannot change).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from fedbandit.agent.core.trail import FILTERS
from fedbandit.agent.http.bodies import MAX_BODY, HttpError, too_large
from fedbandit.agent.http.proxy import ProxyWord
from fedbandit.agent.http.server import is_page
from fedbandit.agent.http.sessions import CSRF_HEADER, Sessions, cookie_in
from fedbandit.agent.process.rights import ANYBODY, Caller, Right
from fedbandit.agent.process.tokens import is_token
from fedbandit.checks import InvalidArgument, closest, shortened

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Host names of a server on loopback."""

OPEN = ("/healthz", "/readyz")
"""Paths that need no token, as do those of the page: they reveal nothing about the site."""

RIGHT_FOR: Mapping[str, Right | None] = {
    "decide": "decide",
    "decision": "report",  # it tells whether a reward has come
    "cancel": "decide",
    "reward": "report",
    "rewards": "report",
    "log": "log",
    "federation": "decide",
    "exclude": "members",
    "include": "members",
    "member": "view",
    "arms": "view",
    "change_arm": "arms",
    "accept_arm": "arms",
    "confirm": "restore",
    "restore": "restore",
    "state": "view",
    "history": "view",
    "evidence": "view",
    "evidence_table": "view",
    "audit_log": "audit",
    "events": "view",
    "metrics": "view",
    "session": None,
    "sign_in": None,
    "sign_out": None,
    "page": None,
    "page_file": None,
    "openapi": None,
    "healthz": None,
    "readyz": None,
}
"""The right that each operation requires, by its id. An operation that is not listed here cannot be added."""

_ONCE = {
    name.lower().encode(): name
    for name in (
        *("Host", "Origin", "Authorization", "Cookie", "Content-Type", "Content-Length", CSRF_HEADER),
        *("Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"),
    )
}
"""Headers of which a request has one at most: of two, proxies, browsers and this agent might each believe another."""

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::[0-9]*)?")


SIGN_IN = "/v1/session"


class Admission(NamedTuple):
    """How a request was admitted.

    * ``secure``: whether it came to the agent's ``https://`` address
    * ``csrf``: what changes of this caller must repeat; None: nothing, since no browser adds a token by itself
    * ``secret``, ``lasts``: of the session, and the seconds that are left of it
    * ``still``: whether the caller would be admitted now
    """

    caller: Caller
    secure: bool
    csrf: str | None = None
    secret: str | None = None
    lasts: float | None = None
    still: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class Door:
    """By which names an agent is called, and who may say who calls.

    * ``hosts``: accepted host names, without port; IPv6 addresses in brackets. None: any, for a server that other
      machines reach: a web page that resolves its own name to it knows no token
    * ``url``: what browsers call it through a proxy; ``proxy``: one that is trusted to say who calls
    """

    hosts: tuple[str, ...] | None = LOOPBACK
    url: str | None = None
    proxy: ProxyWord = field(default_factory=ProxyWord)


class AccessControl:
    """Refuses requests before they are routed."""

    def __init__(self, app: ASGIApp, sessions: Sessions | None, door: Door) -> None:
        """Admit requests to a name of the door whose caller is known.

        By a token, or by a session that began with one (``sessions``; None: callers need neither), or by the word of
        the trusted proxy.
        """
        self._app = app
        self._sessions = sessions
        self._hosts = None if door.hosts is None else frozenset(host.lower() for host in door.hosts)
        self._url, self._at = door.url, None if door.url is None else door.url.partition("://")[2]
        self._proxy = door.proxy
        self._once = {**_ONCE, **self._proxy.headers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] == "http":
            try:
                self._check(scope)
            except HttpError as error:
                await error.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        found: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in self._once:
                if name in found:
                    header = self._once[name]
                    raise HttpError(400, "invalid", f"{header} appears twice in the request", header, "one, or none")
                found[name] = value
        length = found.get(b"content-length")
        self._check_host(found.get(b"host", b""), found.get(b"origin"))
        if found.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin") and not _opens_page(scope, found):
            accepted = "none or same-origin; others may open the page at / in a tab"
            raise HttpError(403, "wrong_origin", _FOREIGN_PAGE, "Sec-Fetch-Site", accepted)
        admission = self._admission(found, scope)
        if admission.csrf is not None:
            _check_page_of_ours(scope, found, admission.csrf)
        scope["caller"], scope["admission"] = admission.caller, admission
        if length is not None and length.isdigit() and int(length) > MAX_BODY:
            raise too_large()

    def _check_host(self, host: bytes, origin: bytes | None) -> None:
        called = host.decode("latin-1").lower()
        if called == self._at:
            if origin not in (None, str(self._url).encode()):
                raise HttpError(403, "wrong_origin", _FOREIGN_PAGE, "Origin", self._url)
            return
        name = _AUTHORITY.fullmatch(called)
        if name is None or (self._hosts is not None and name[1] not in self._hosts):
            ours = [*(self._hosts or ["HOST", "HOST:PORT"]), *([] if self._at is None else [self._at])]
            accepted = ", ".join(sorted(ours))
            raise HttpError(421, "wrong_host", f"{called!r} is not a name of this agent", "Host", accepted)
        if origin is not None and origin.decode("latin-1").lower().partition("://")[2] != called:
            raise HttpError(403, "wrong_origin", _FOREIGN_PAGE, "Origin", called)

    def _admission(self, found: Mapping[bytes, bytes], scope: Scope) -> Admission:
        """Who calls."""
        secure = (
            self._url is not None
            and self._url.startswith("https:")
            and self._at == found.get(b"host", b"").decode("latin-1").lower()
        )
        proxied = self._proxy.caller(found, scope)
        if proxied is not None:
            if self._sessions is None:
                return Admission(proxied, secure)
            csrf, still = self._sessions.csrf_of_proxied(proxied.name), self._sessions.for_a_while()
            return Admission(proxied, secure, csrf, still=still)
        if self._sessions is None:
            return Admission(ANYBODY, secure)
        if (authorization := found.get(b"authorization")) is not None:
            scheme, _, token = authorization.decode("latin-1").partition(" ")
            caller = self._sessions.whose(token) if scheme == "Bearer" else None
            if caller is not None:
                sessions = self._sessions
                return Admission(caller, secure, still=lambda: sessions.whose(token) == caller)
        secret = cookie_in(found.get(b"cookie", b""), self._sessions.cookie_name(secure))
        if _is_open(scope):
            return Admission(_STRANGER, secure, secret=secret)
        if authorization is not None:
            raise unauthorised("this agent does not know this token")
        if secret is None:
            raise unauthorised("this agent requires a token")
        known = self._sessions.known(secret)
        if known is None:
            gone = {"Set-Cookie": self._sessions.set_cookie("", secure)}
            raise unauthorised("this session has ended: sign in again", gone)
        sessions = self._sessions
        return Admission(
            known.caller, secure, known.csrf, secret, known.lasts, lambda: sessions.known(secret) is not None
        )


def unauthorised(says: str, headers: Mapping[str, str] = MappingProxyType({})) -> HttpError:
    """Nobody knows who calls."""
    accepted = "Bearer, and a token of this agent"
    known = {"WWW-Authenticate": 'Bearer realm="fedbandit"', **headers}
    return HttpError(401, "unauthorised", says, "Authorization", accepted, known)


def _is_open(scope: Scope) -> bool:
    """Whether a request needs no token."""
    is_sign_in = scope["path"] == SIGN_IN and scope["method"] == "POST"
    return is_sign_in or scope["path"] in OPEN or is_page(scope["path"])


_STRANGER = Caller("", frozenset())
"""Who sends no token: only ``OPEN`` paths and those of the page let him in."""

_FOREIGN_PAGE = "pages from other origins may not call this agent"


def _check_page_of_ours(scope: Scope, found: Mapping[bytes, bytes], csrf: str) -> None:
    """Refuse a change unless the page itself asks for it.

    A browser adds by itself what a person is known by, whichever page makes it call: without ``Origin``, nothing says
    which. That it is ours, it shows with what it alone has read.
    """
    if scope["method"] in ("GET", "HEAD"):
        return
    if b"origin" not in found and found.get(b"sec-fetch-site") != b"same-origin":
        raise HttpError(403, "wrong_origin", "a change must come from the page of this agent", "Origin", "its origin")
    if not compare_digest(found.get(CSRF_HEADER.lower().encode(), b""), csrf.encode()):
        says = f"a change must repeat in {CSRF_HEADER} what GET /v1/session says"
        raise HttpError(403, "wrong_origin", says, CSRF_HEADER, "csrf of GET /v1/session")


def _opens_page(scope: Scope, found: Mapping[bytes, bytes]) -> bool:
    """Whether a browser follows a link to the page: in a tab, not in a frame."""
    kind = found.get(b"sec-fetch-mode"), found.get(b"sec-fetch-dest")
    return scope["path"] == "/" and scope["method"] in ("GET", "HEAD") and kind == (b"navigate", b"document")


def caller_of(request: Request) -> Caller:
    """Who has sent a request that was admitted."""
    return request.scope["caller"]


def admission_of(request: Request) -> Admission:
    """How that is known."""
    return request.scope["admission"]


def check_right(right: Right | None, caller: Caller) -> None:
    """Refuse a caller without this right."""
    if right is not None and right not in caller.rights:
        if caller.way == "proxy":
            says = f"none of the groups of {caller.name} has the right {right!r}"
            raise HttpError(403, "forbidden", says, None, f"a member of a group with the right {right!r}")
        if caller.way == "session":
            says = f"{caller.name} lacks the right {right!r}"
            raise HttpError(403, "forbidden", says, None, f"somebody with the right {right!r}")
        raise HttpError(
            403,
            "forbidden",
            f"this token lacks the right {right!r}",
            "Authorization",
            f"Bearer, and a token with the right {right!r}",
        )


def check_tokens(tokens: Iterable[str]) -> None:
    """Refuse a token that no header can carry, without printing it."""
    if not all(is_token(token) for token in tokens):
        raise InvalidArgument("token", "(hidden)", "letters, digits and . _ ~ + / - without spaces")


# ---------------------------------------------------------------- query parameters

# Unknown parameters are refused: a caller who sends one expects an effect.
QUERY_OF: Mapping[str, tuple[str, ...]] = {
    "log": ("after",),
    "evidence": ("reference", "stratum"),
    "evidence_table": ("reference",),
    "audit_log": FILTERS,
}
"""The query parameters of an operation, by its id; others take none."""

_IN_BODY: Mapping[str, tuple[str, ...]] = {
    "decide": ("eligible", "exclude", "key", "subject", "count", "context"),
    "reward": ("value",),
    "rewards": ("rewards",),
}


def query_of(operation: str, query: bytes) -> dict[str, str]:
    """The parameters of a request; refuses those that the operation does not take, and any that stands twice."""
    known = QUERY_OF.get(operation, ())
    found: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in known:
            raise _unknown(operation, name, known)
        if name in found:
            raise HttpError(422, "invalid", f"{name} appears twice in the query", name, "one")
        found[name] = value
    return found


def _unknown(operation: str, name: str, known: tuple[str, ...]) -> HttpError:
    shown, fields = shortened(repr(name)), _IN_BODY.get(operation, ())
    accepted = ", ".join(known) if known else "no query parameters"
    says = f"{shown} is not a query parameter; this path takes {accepted}"
    if name in fields:
        says += f". {name} is a field of the body"
    elif hint := closest(name, (*known, *fields)):
        says += f". {hint}"
    return HttpError(422, "invalid", says, shortened(name), accepted)
