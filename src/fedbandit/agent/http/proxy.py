"""Takes a reverse proxy's word for who calls: from that proxy alone, and refuses anybody else who says so.

What a proxy says is a header, and everybody can write headers. So a request that has one is refused unless it comes
from the proxy; none is ever ignored, since whoever has set up a proxy wrongly would not notice.
"""

from collections.abc import Callable, Mapping
from hmac import compare_digest
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from starlette.types import Scope

from fedbandit.agent.http.bodies import HttpError
from fedbandit.agent.http.server import CONNECTION
from fedbandit.agent.process.config import GROUPS_HEADER, USER_HEADER, TrustedProxy
from fedbandit.agent.process.rights import LONGEST_NAME, Caller, Right, person_name, taken_names
from fedbandit.checks import InvalidArgument

__all__ = ["SECRET_HEADER", "ProxyWord", "address_of"]

SECRET_HEADER = "X-Proxy-Secret"  # noqa: S105 - a name
"""In which a proxy on loopback shows that it is the proxy."""


class ProxyWord:
    """What the headers of a proxy say."""

    def __init__(
        self,
        proxy: TrustedProxy | None = None,
        secret: str | None = None,
        refused: Callable[[str, str], None] = lambda reason, message: None,
    ) -> None:
        """Trust this proxy (``None``: no proxy) if it sends this secret; ``refused`` is told of others."""
        self._proxy = proxy
        self._secret = None if secret is None else secret.encode()
        self.sign_out = None if proxy is None else proxy.sign_out
        self._user, self._groups = (
            (USER_HEADER, GROUPS_HEADER) if proxy is None else (proxy.user_header, proxy.groups_header)
        )
        self._refused = refused
        self.headers: Mapping[bytes, str] = {
            name.lower().encode(): name for name in (self._user, self._groups, SECRET_HEADER)
        }

    def caller(self, found: Mapping[bytes, bytes], scope: Scope) -> Caller | None:
        """Who calls, if a proxy says so."""
        said = {name: found[key] for key, name in self.headers.items() if key in found}
        if not said:
            return None
        if (why := self._distrust(said, scope)) is not None:
            header = next(iter(said))
            self._refused("untrusted proxy", f"{address_of(scope)} sent {header}: {why}")
            raise HttpError(403, "untrusted_proxy", f"{why}; {header} was refused", header, "left out")
        assert self._proxy is not None  # noqa: S101 - else it was refused
        if self._user not in said:
            if self._groups in said:
                raise HttpError(400, "invalid", f"{self._groups} without {self._user}", self._user, _NAME)
            return None
        if b"authorization" in found:
            says = f"{self._user} and Authorization say who calls: the proxy must send one of them"
            raise HttpError(400, "invalid", says, "Authorization", f"left out beside {self._user}")
        groups = _text(self._groups, said.get(self._groups, b""))
        rights: set[Right] = set()
        for group in groups.split(","):
            rights |= self._proxy.groups.get(group.strip(), frozenset())
        return Caller(self._name(said[self._user]), frozenset(rights), "proxy")

    def _name(self, given: bytes) -> str:
        name = _text(self._user, given)
        try:
            if name in taken_names():
                raise InvalidArgument("", name, _NAME)
            return person_name(name)
        except InvalidArgument:
            says = f"{self._user} must be {_NAME}, not {name[:LONGEST_NAME]!r}"
            raise HttpError(400, "invalid", says, self._user, _NAME) from None

    def _distrust(self, said: Mapping[str, bytes], scope: Scope) -> str | None:
        """Why this is not the proxy; None: it is."""
        if self._proxy is None:
            return "this agent trusts no proxy: [http.trusted_proxy] in its site.toml"
        peer = address_of(scope)
        if peer != (self._proxy.peer if not isinstance(self._proxy.peer, Path) else _SOCKET):
            return "only the trusted proxy of this agent may say who calls"
        if self._secret is not None and not compare_digest(said.get(SECRET_HEADER, b""), self._secret):
            return f"{SECRET_HEADER} is not that of the trusted proxy"
        return None


_SOCKET = "the proxy's socket"

_NAME = f"a name of 1 to {LONGEST_NAME} printable characters, in UTF-8, and not that of a role"


def address_of(scope: Scope) -> object:
    """Where a request comes from.

    The server says whether it came over the socket: an address that is missing says nothing, since that of a caller who
    has hung up is missing, too.
    """
    if scope.get("extensions", {}).get(CONNECTION, {}).get("over_socket", False):
        return _SOCKET
    try:
        found = ip_address((scope.get("client") or ("",))[0])
    except ValueError:
        return "somebody who has gone"
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return found if mapped is None else mapped


def _text(header: str, value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise HttpError(400, "invalid", f"{header} is not UTF-8", header, "UTF-8") from None
