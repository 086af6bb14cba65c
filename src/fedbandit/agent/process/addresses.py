"""Names of sites and addresses, as a site's file, certificates and links have them."""

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from fedbandit.agent.core.bulletin import MAX_NAME
from fedbandit.checks import InvalidArgument

__all__ = ["Address", "address", "listening_address", "site_name"]

_NAME_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

_HOST_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")  # container names have underscores


@dataclass(frozen=True)
class Address:
    """A host (IPv6 without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether this is the machine itself; name servers are not asked."""
        if ":" in self.host:
            return IPv6Address(self.host) == IPv6Address("::1")
        return self.host.lower() == "localhost" or (
            _is_ip(self.host, IPv4Address) and IPv4Address(self.host).is_loopback
        )


def site_name(value: str, argument: str = "name") -> str:
    """The name of a site, as in its certificate: a lower-case DNS name."""
    labels = value.split(".")
    # A TLS verifier takes 10.0.0.1, and even a bare 7, for an address, and does not compare it with names.
    if len(value) > MAX_NAME or not all(map(_NAME_LABEL.fullmatch, labels)) or labels[-1].isdigit():
        accepted = (
            "a DNS name of lower-case letters, digits and hyphens, 63 at most between dots, not ending in .NUMBER"
        )
        raise InvalidArgument(argument, value, accepted)
    return value


def address(value: str) -> Address:
    """An address to dial, from host:port."""
    return _parsed(value, 1, "host:port with a port from 1 to 65535, an IPv6 host in brackets")


def listening_address(value: str) -> Address:
    """An address to listen on; port 0 lets the system choose one."""
    return _parsed(value, 0, "host:port with a port from 0 to 65535 (0: any free one), an IPv6 host in brackets")


def _parsed(value: str, lowest: int, accepted: str) -> Address:
    parts = re.fullmatch(r"(?:\[([^\]]*)\]|([^:\[\]]*)):([0-9]{1,5})", value)
    if parts is None:
        raise InvalidArgument("address", value, accepted)
    six, host, port = parts.groups()
    if not lowest <= int(port) <= 65535 or not (_is_ip(six, IPv6Address) if host is None else _is_host(host)):
        raise InvalidArgument("address", value, accepted)
    return Address(six if host is None else host, int(port))


def _is_host(host: str) -> bool:
    labels = host.split(".")
    if labels[-1].isdigit():
        return _is_ip(host, IPv4Address)
    return len(host) <= MAX_NAME and all(map(_HOST_LABEL.fullmatch, labels))


def _is_ip(host: str, kind: type[IPv4Address] | type[IPv6Address]) -> bool:
    try:
        kind(host)
    except AddressValueError:
        return False
    return "%" not in host  # a zone is meaningful only on one machine
