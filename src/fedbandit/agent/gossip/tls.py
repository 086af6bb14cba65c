"""Reads a site's certificate, key and CA, and checks them before the agent connects to anyone.

It reports at the start every error that shows in the files alone. The transport checks the other end's certificate
with every call.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509 import (
    BasicConstraints,
    Certificate,
    DNSName,
    ExtendedKeyUsage,
    ExtensionNotFound,
    SubjectAlternativeName,
    load_pem_x509_certificates,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from fedbandit.agent.disk.secret_files import read_public, read_secret
from fedbandit.agent.process.config import ConfigError, SiteConfig
from fedbandit.checks import FileError

__all__ = ["TlsFiles", "certificates_in", "is_issued", "key_in", "public_bytes", "read_tls"]


@dataclass(frozen=True)
class TlsFiles:
    """Certificate, key and CA for the transport, as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    ca: bytes
    until: datetime | None = None
    """When the certificate, or one of its chain, expires."""


def read_tls(config: SiteConfig, now: datetime) -> TlsFiles:
    """Read the files that ``[tls]`` names; each error is one line. ``now`` has a time zone."""
    tls = config.tls
    if tls is None:
        raise ConfigError(f"{config.path}: 'tls' is missing")
    mistakes: list[str] = []
    found: dict[str, tuple[bytes, Any]] = {}
    for name, path in (("certificate", tls.certificate), ("key", tls.key), ("ca", tls.ca)):
        try:
            content = read_secret(path) if name == "key" else read_public(path)
            found[name] = content, key_in(content, path) if name == "key" else certificates_in(content, path)
        except FileError as error:
            mistakes.append(f"tls.{name}: {error}")
    if "certificate" in found:
        chain: list[Certificate] = found["certificate"][1]
        mistakes += [f"tls.certificate: {tls.certificate} {it}" for it in _unfit(chain[0], config.name, now)]
        if "key" in found and public_bytes(chain[0].public_key()) != public_bytes(found["key"][1].public_key()):
            mistakes.append(f"tls.key: {tls.key} does not belong to {tls.certificate}")
        if "ca" in found:
            mistakes += [f"tls.ca: {tls.ca} {it}" for it in _unsigned(chain, found["ca"][1], tls.certificate, now)]
    if mistakes:
        raise ConfigError("\n".join(f"{config.path}: {mistake}" for mistake in mistakes))
    until = min(certificate.not_valid_after_utc for certificate in found["certificate"][1])
    certificate, key, ca = (found[name][0] for name in ("certificate", "key", "ca"))
    return TlsFiles(certificate, key, ca, until)


def certificates_in(content: bytes, path: Path) -> list[Certificate]:
    """The certificates in a PEM file, at least one."""
    try:
        return load_pem_x509_certificates(content)
    except ValueError:
        raise FileError(f"{path} holds no certificate in PEM form") from None


def key_in(content: bytes, path: Path) -> Any:
    """The private key in a PEM file."""
    try:
        return load_pem_private_key(content, password=None)
    except TypeError:
        raise FileError(f"{path} is locked with a password; an agent that starts by itself cannot use it") from None
    except ValueError:
        raise FileError(f"{path} holds no private key in PEM form") from None


def public_bytes(public_key: Any) -> bytes:
    """A public key as bytes, for comparison."""
    return public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _unfit(certificate: Certificate, name: str, now: datetime) -> Iterator[str]:
    """Errors of a site's certificate by itself."""
    names = _names(certificate)
    if names != [f"DNS:{name}"]:
        yield f"is for {', '.join(names) or 'no name (SAN)'}; it must be for DNS:{name} alone, the name of this site"
    yield from _untimely(certificate, now)
    try:
        uses = certificate.extensions.get_extension_for_class(ExtendedKeyUsage).value
    except ExtensionNotFound:
        return  # valid for every use
    for use, allowed in (("server", ExtendedKeyUsageOID.SERVER_AUTH), ("client", ExtendedKeyUsageOID.CLIENT_AUTH)):
        if allowed not in uses:
            yield f"is not for use as a TLS {use} (extended key usage); a site is both"


def _names(certificate: Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return []
    return [f"DNS:{it.value}" if isinstance(it, DNSName) else f"{type(it).__name__}:{it.value}" for it in names]


def _untimely(certificate: Certificate, now: datetime) -> Iterator[str]:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        yield f"has expired: it was valid until {end:%Y-%m-%d %H:%M} UTC"
    if now < begin:
        yield f"is not valid yet: it will be from {begin:%Y-%m-%d %H:%M} UTC on. Is this machine's clock right?"


def _unsigned(chain: list[Certificate], cas: list[Certificate], path: Path, now: datetime) -> Iterator[str]:
    """Errors in the chain from a site's certificate, through the intermediates in its file, to a CA."""
    last, between = chain[0], chain[1:]
    while True:
        issuers = [ca for ca in cas if is_issued(last, ca)]
        if issuers:
            late = [list(_untimely(ca, now)) for ca in issuers]
            if all(late):
                yield from late[0]
            return
        following = next((it for it in between if is_issued(last, it)), None)
        if following is None:
            yield f"did not sign {path}, which was signed by '{chain[0].issuer.rfc4514_string()}'"
            return
        between.remove(following)
        last = following


def is_issued(certificate: Certificate, issuer: Certificate) -> bool:
    """Whether a CA has issued a certificate; dates are not looked at."""
    try:
        if not issuer.extensions.get_extension_for_class(BasicConstraints).value.ca:
            return False
        certificate.verify_directly_issued_by(issuer)
    except (ExtensionNotFound, InvalidSignature, TypeError, ValueError):
        return False
    return True
