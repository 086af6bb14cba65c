"""Sessions: whoever has shown a token at the page is known by a cookie, until he signs out or the token ends.

A cookie goes with every request of its browser, whichever page has made it. So a change needs more: a word that only
the page has read. Sessions are in memory, by the hash of their secret: a restart ends them all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac
from ipaddress import IPv4Address, IPv6Address, ip_address
from secrets import token_bytes, token_urlsafe
from typing import NamedTuple

from fedbandit.agent.http.bodies import HttpError
from fedbandit.agent.process.rights import Caller

__all__ = ["CSRF_HEADER", "LASTS", "Attempts", "Known", "Sessions", "cookie_in"]

CSRF_HEADER = "X-CSRF-Token"
"""In which a page repeats what ``GET /v1/session`` has told it, with every change."""

LASTS = 8 * 3600.0
"""Seconds that a session lasts: a shift."""

PROXY_LASTS = 600.0
"""Seconds after which a stream through a proxy ends, and its reader asks again."""

MOST_PEOPLE = 10_000
"""People whom the proxy knows, and of whom it is remembered that they came."""

MOST = 20
"""Sessions of one token; the oldest ends."""


@dataclass(frozen=True)
class _Session:
    """One of them; the token is there as its hash."""

    caller: Caller
    token: bytes
    until: float


class Known(NamedTuple):
    """Who is known by a cookie, the word that his changes need, and how many seconds are left."""

    caller: Caller
    csrf: str
    lasts: float


class Sessions:
    """The sessions of one agent."""

    def __init__(self, site: str, tokens: Mapping[str, Caller] | None, clock: Callable[[], float]) -> None:
        """No sessions. ``tokens`` may change later: those of a token that has gone end."""
        self._name, self._tokens, self._clock = f"fedbandit-{site}", tokens, clock
        self._sessions: dict[bytes, _Session] = {}
        self._key = token_bytes()
        self._came: dict[str, float] = {}

    def cookie_name(self, secure: bool) -> str:
        """By site: cookies do not know ports. With ``__Host-`` no other host, and nothing without TLS, can set it."""
        return f"__Host-{self._name}" if secure else self._name

    def set_cookie(self, secret: str, secure: bool) -> str:
        """The header that gives a browser its cookie, until it is closed; without a secret, that takes it away."""
        more = ("; Secure" if secure else "") + ("" if secret else "; Max-Age=0")
        return f"{self.cookie_name(secure)}={secret}; Path=/; HttpOnly; SameSite=Strict{more}"

    def whose(self, token: str) -> Caller | None:
        """Who calls with this token."""
        found = None
        for known, caller in (self._tokens or {}).items():  # all of them: how long it takes tells nothing
            if compare_digest(token.encode(errors="replace"), known.encode()):
                found = caller
        return found

    def begin(self, token: str, caller: Caller) -> str:
        """Begin one; returns its secret, which is always new."""
        now, held = self._clock(), sha256(token.encode()).digest()
        self._sessions = {key: it for key, it in self._sessions.items() if it.until > now}
        mine = [key for key, it in self._sessions.items() if it.token == held]
        for key in mine[: max(0, len(mine) - MOST + 1)]:
            del self._sessions[key]
        secret = token_urlsafe(32)
        self._sessions[_key_of(secret)] = _Session(replace(caller, way="session"), held, now + LASTS)
        return secret

    def known(self, secret: str) -> Known | None:
        """Who has this secret, if the session lasts and its token is valid, with the same rights."""
        found, left = self._sessions.get(_key_of(secret)), 0.0
        if found is not None:
            left = found.until - self._clock()
            whose = self._tokens or {}
            held = [caller for token, caller in whose.items() if sha256(token.encode()).digest() == found.token]
            if left <= 0.0 or [replace(it, way="session") for it in held] != [found.caller]:
                self.end(secret)
                found = None
        return None if found is None else Known(found.caller, self._csrf(b"session", secret), left)

    def end(self, secret: str) -> None:
        """End one, if it is there."""
        self._sessions.pop(_key_of(secret), None)

    def csrf_of_proxied(self, name: str) -> str:
        """The word that changes of a person need whom the proxy knows."""
        return self._csrf(b"proxy", name)

    def for_a_while(self) -> Callable[[], bool]:
        """Whether the word of a proxy is fresh: a stream that goes on would outlast the login there."""
        until = self._clock() + PROXY_LASTS
        return lambda: self._clock() < until

    def is_first(self, name: str) -> bool:
        """Whether somebody whom the proxy knows comes anew: for the first time in ``LASTS``."""
        now = self._clock()
        self._came = {it: at for it, at in self._came.items() if at > now - LASTS}
        is_new = name not in self._came and len(self._came) < MOST_PEOPLE
        if is_new:
            self._came[name] = now
        return is_new

    def _csrf(self, kind: bytes, of: str) -> str:
        return hmac(self._key, kind + b" " + of.encode(), sha256).hex()


def _key_of(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def cookie_in(header: bytes, name: str) -> str | None:
    """The value of a cookie; of two with one name, somebody else may have set one."""
    parts = (part.strip().partition("=") for part in header.decode("latin-1").split(";"))
    found = [value for key, _, value in parts if key == name]
    if len(found) > 1:
        raise HttpError(400, "invalid", f"the cookie {name} appears twice in the request", "Cookie", "one, or none")
    return found[0] if found and found[0] else None


# ---------------------------------------------------------------- attempts

BURST, EVERY = 10, 6.0
"""Wrong tokens that one address may send at once, and seconds until it may send another."""

MOST_ADDRESSES = 1000
"""Addresses that are remembered; beyond them, no new one may try."""


class Attempts:
    """How often an address has sent a wrong token to sign in with."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Nobody has."""
        self._clock = clock
        self._ready: dict[object, float] = {}  # when all that an address has used up is there again

    def wait(self, address: object) -> float:
        """Seconds until this address may try; 0: now."""
        now, place = self._clock(), _place(address)
        if place not in self._ready and len(self._ready) >= MOST_ADDRESSES:
            self._ready = {it: ready for it, ready in self._ready.items() if ready > now}
            if len(self._ready) >= MOST_ADDRESSES:
                return EVERY
        return max(0.0, self._ready.get(place, now) - now - (BURST - 1) * EVERY)

    def failed(self, address: object) -> None:
        """It has sent a wrong one."""
        now, place = self._clock(), _place(address)
        self._ready[place] = max(now, self._ready.get(place, now)) + EVERY


_LOOPBACK = "loopback"


def _place(address: object) -> object:
    """All addresses that one machine has anyway are one."""
    if not isinstance(address, IPv4Address | IPv6Address):
        return address
    if address.is_loopback:
        return _LOOPBACK
    return address if isinstance(address, IPv4Address) else ip_address(int(address) >> 64 << 64)
