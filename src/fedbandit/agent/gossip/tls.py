"""Certificates as a site uses them: its files, the one name in a certificate, TLS contexts, why a handshake failed.

``read_tls`` reports at the start every error that shows in the files alone.

TLS libraries differ in what they take for a name: some stop at a NUL byte, some accept a wildcard or the common name.
So the name is read from the certificate itself, after TLS has checked its signature and its dates: one name (SAN), a
DNS name that a site can have.
"""

import os
import socket
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509 import (
    BasicConstraints,
    Certificate,
    CertificateSigningRequest,
    DNSName,
    DuplicateExtension,
    ExtendedKeyUsage,
    ExtensionNotFound,
    GeneralName,
    Name,
    SubjectAlternativeName,
    UnsupportedGeneralNameType,
    load_der_x509_certificate,
    load_pem_x509_certificates,
    load_pem_x509_crl,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from fedbandit.agent.disk.secret_files import read_public, read_secret
from fedbandit.agent.process.addresses import site_name
from fedbandit.agent.process.config import ConfigError, SiteConfig
from fedbandit.checks import FileError, InvalidArgument, shortened


@dataclass(frozen=True)
class TlsFiles:
    """Certificate, key and CA as PEM, and the list of certificates that the CA has revoked, if there is one."""

    certificate: bytes
    key: bytes = field(repr=False)
    ca: bytes
    until: datetime | None = None
    """When the certificate, or one of its chain, expires."""
    crl: bytes | None = None


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
    crl: bytes | None = None
    if tls.crl is not None and "ca" in found:
        try:
            crl = read_public(tls.crl)
            revoked_in(crl, found["ca"][1])
        except (FileError, InvalidArgument) as error:
            mistakes.append(
                f"tls.crl: {tls.crl} {error.accepted}" if isinstance(error, InvalidArgument) else f"tls.crl: {error}"
            )
    if mistakes:
        raise ConfigError("\n".join(f"{config.path}: {mistake}" for mistake in mistakes))
    until = min(certificate.not_valid_after_utc for certificate in found["certificate"][1])
    certificate, key, ca = (found[name][0] for name in ("certificate", "key", "ca"))
    return TlsFiles(certificate, key, ca, until, crl)


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
    except (DuplicateExtension, UnsupportedAlgorithm, UnsupportedGeneralNameType):  # a stranger's, not quite X.509
        return False
    return True


# ---------------------------------------------------------------- revoked certificates


Revoked = frozenset[tuple[Name, int]]
"""Issuer and serial number of each."""


def revoked_in(crl: bytes, cas: Iterable[Certificate]) -> Revoked:
    """The certificates that a file of revocation lists (PEM, one or several) names; a CA of ours has signed each list.

    A list that is overdue still counts: revoked is revoked.
    """
    blocks = [_CRL_BEGIN + it for it in crl.split(_CRL_BEGIN)[1:]]
    revoked: set[tuple[Name, int]] = set()
    for block in blocks:
        try:
            found = load_pem_x509_crl(block)
        except ValueError:
            raise InvalidArgument("crl", len(crl), "holds a list of revoked certificates that cannot be read") from None
        issuers = [ca for ca in cas if ca.subject == found.issuer]
        if not any(found.is_signature_valid(_public(ca)) for ca in issuers):
            raise InvalidArgument("crl", len(crl), "holds a list that no CA of tls.ca has signed")
        revoked |= {(found.issuer, it.serial_number) for it in found}
    if not blocks:
        raise InvalidArgument("crl", len(crl), "holds no list of revoked certificates (X509 CRL) in PEM form")
    return frozenset(revoked)


def _public(certificate: Certificate) -> Any:
    return certificate.public_key()


_CRL_BEGIN = b"-----BEGIN X509 CRL-----"


# ---------------------------------------------------------------- names


class WrongName(ValueError):
    """A certificate whose name no site can have; the message shows it with escapes."""


@dataclass(frozen=True)
class Certified:
    """Who is at the other end, until when its certificate says so, and what a list of revoked ones would name it by."""

    name: str
    until: datetime
    issued: tuple[Name, int]


def certified(der: bytes) -> Certified:
    """Who a certificate certifies. TLS has verified it."""
    try:
        certificate = load_der_x509_certificate(der)
        issued = certificate.issuer, certificate.serial_number
        return Certified(the_name_in(certificate), certificate.not_valid_after_utc, issued)
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


# ---------------------------------------------------------------- handshakes


_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no certificate",
    "CALLBACK_FAILED": "meant for another site",
    **dict.fromkeys(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNSUPPORTED_PROTOCOL"), "not TLS"),
}
_MEANT_FOR_ANOTHER = ssl.AlertDescription.ALERT_DESCRIPTION_UNRECOGNIZED_NAME


def server_context(tls: TlsFiles) -> ssl.SSLContext:
    """TLS for those who dial us: with a certificate of our CA, and meaning this site if they name one."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, tls)
    context.num_tickets = 0  # nobody resumes: every connection shows its certificate
    own = own_name(tls)

    def means_us(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> int | None:
        return None if name is None or means(name)[1] == own else _MEANT_FOR_ANOTHER

    context.sni_callback = means_us  # pyright: ignore[reportAttributeAccessIssue]
    return context


_WORD, _WORD_LENGTH, _LONGEST_SNI = "m-", 34, 253


def spoken_to(name: str, word: str) -> str:
    """What a dialler says in the clear (SNI): whom it means, and a word that only members of the federation know."""
    said = f"{_WORD}{word}.{name}"  # a word of 32 letters
    return said if len(said) <= _LONGEST_SNI else name


def means(said: str) -> tuple[str, str]:
    """The word, or nothing, and the site that is meant."""
    first, _, rest = said.partition(".")
    has_word = first.startswith(_WORD) and len(first) == _WORD_LENGTH and rest
    return (first.removeprefix(_WORD), rest) if has_word else ("", said)


def client_context(tls: TlsFiles) -> ssl.SSLContext:
    """TLS towards those whom we dial."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, tls)


def _context(side: int, tls: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # ``certified`` reads the name, more strictly
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # every CA in the file is one, as ``tls`` checks at the start
    context.load_verify_locations(cadata=tls.ca.decode("ascii", "ignore"))
    context.set_alpn_protocols(["http/1.1"])
    memory = os.memfd_create("tls")  # Python loads a key only from a file; this one is in memory
    try:
        os.write(memory, tls.certificate + b"\n" + tls.key)
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return context


def own_name(tls: TlsFiles) -> str:
    """The name in our own certificate, the first in its file."""
    return the_name_in(load_pem_x509_certificates(tls.certificate)[0])


def reason_of(error: Exception | None) -> str:
    """Why a handshake failed, for counting."""
    if isinstance(error, ssl.SSLCertVerificationError):
        found = {9: "certificate not yet valid", 10: "certificate expired"}
        return found.get(error.verify_code, "certificate of another CA")
    return _REASONS.get(getattr(error, "reason", None) or "", "handshake")


_CERTIFICATES = {
    9: "it is not valid yet, or this machine's clock is wrong",
    10: "it has expired, or this machine's clock is wrong",
    **dict.fromkeys(
        (2, 7, 18, 19, 20, 21), "another CA has signed it"
    ),  # X509_V_ERR_*: the issuer is missing, or none of ours
}
_IN_WORDS = {
    "TLSV1_ALERT_UNKNOWN_CA": "it refuses our certificate: another CA has signed it than those that it trusts",
    "TLSV1_ALERT_DECRYPT_ERROR": "it refuses our certificate: another CA has signed it, of the same name as its own",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it refuses our certificate: expired, or not valid yet, or its clock is wrong",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it refuses our certificate: not valid yet, or its clock is wrong, or not readable",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it refuses our certificate: revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it refuses our certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a certificate, and we have shown none",
    "TLSV1_UNRECOGNIZED_NAME": "another site answers at this address",
    "WRONG_VERSION_NUMBER": "the other end does not speak TLS",
}


def in_words(error: Exception) -> str:
    """Why a connection failed, for people; what OpenSSL calls it is in parentheses."""
    if isinstance(error, ssl.SSLCertVerificationError):
        words = _CERTIFICATES.get(error.verify_code)
        return error.verify_message if words is None else f"{words} ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        words, name = _IN_WORDS.get(error.reason or ""), (error.reason or str(error)).lower().replace("_", " ")
        return name if words is None else f"{words} ({name})"
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, socket.gaierror):  # its number is not one of the system's
        return f"the name has no address: {error.strerror}"
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
