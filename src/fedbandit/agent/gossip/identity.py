"""Reads the name in the other end's certificate, strictly: one name (SAN), a DNS name that a site can have.

TLS libraries differ in what they take for a name: some stop at a NUL byte, some accept a wildcard or the common name.
So the name is read from the certificate itself, after TLS has checked its signature and its dates.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cryptography.x509 import (
    Certificate,
    CertificateSigningRequest,
    DNSName,
    ExtensionNotFound,
    GeneralName,
    SubjectAlternativeName,
    load_der_x509_certificate,
)

from fedbandit.agent.process.config import site_name
from fedbandit.checks import InvalidArgument, shortened

__all__ = ["Certified", "WrongName", "certified", "the_name_in"]


class WrongName(ValueError):
    """A certificate whose name no site can have; the message shows it with escapes."""


@dataclass(frozen=True)
class Certified:
    """Who is at the other end, and until when its certificate says so."""

    name: str
    until: datetime


def certified(der: bytes) -> Certified:
    """Who a certificate certifies. TLS has verified it."""
    try:
        certificate = load_der_x509_certificate(der)
        return Certified(the_name_in(certificate), certificate.not_valid_after_utc)
    except WrongName:
        raise
    except ValueError as error:  # OpenSSL reads some certificates that are not quite DER
        raise WrongName(f"a certificate that cannot be read: {shortened(repr(str(error)))}") from None


def the_name_in(signed: Certificate | CertificateSigningRequest) -> str:
    """The only name in a certificate or in a request for one."""
    try:
        names = list(signed.extensions.get_extension_for_class(SubjectAlternativeName).value)
    except ExtensionNotFound:
        names = []
    if len(names) != 1 or not isinstance(names[0], DNSName):
        raise WrongName(f"a certificate must have one name (SAN), a DNS name, not {_shown(names)}")
    try:
        return site_name(names[0].value)
    except InvalidArgument as error:
        raise WrongName(f"the name in a certificate must be {error.accepted}, not {_shown(names)}") from None


def _shown(names: Iterable[GeneralName]) -> str:
    """Names as they are, one line whatever they hold."""
    return shortened(", ".join(f"{type(it).__name__} {it.value!r}" for it in names) or "none", 200)
