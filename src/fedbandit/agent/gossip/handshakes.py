"""TLS as a site speaks it: the contexts for both directions, and why a handshake failed."""

import os
import socket
import ssl

from cryptography.x509 import load_pem_x509_certificates

from fedbandit.agent.gossip.identity import the_name_in
from fedbandit.agent.gossip.tls import TlsFiles

__all__ = ["client_context", "in_words", "own_name", "reason_of", "server_context"]

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
        return None if name in (None, own) else _MEANT_FOR_ANOTHER

    context.sni_callback = means_us  # pyright: ignore[reportAttributeAccessIssue]
    return context


def client_context(tls: TlsFiles) -> ssl.SSLContext:
    """TLS towards those whom we dial."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, tls)


def _context(side: int, tls: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # ``identity`` reads the name, more strictly
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # every CA in the file is one, as ``tls`` checks at the start
    context.load_verify_locations(cadata=tls.ca.decode("ascii", "ignore"))
    context.set_alpn_protocols(["h2"])
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
    "TLSV1_UNRECOGNIZED_NAME": "another site answers at this address",
    "WRONG_VERSION_NUMBER": "the other end does not speak TLS",
}


def in_words(error: Exception) -> str:
    """Why a connection failed, for people; what OpenSSL calls it is in parentheses."""
    if isinstance(error, ssl.SSLCertVerificationError):
        told = _CERTIFICATES.get(error.verify_code)
        return error.verify_message if told is None else f"{told} ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        told, name = _IN_WORDS.get(error.reason or ""), (error.reason or str(error)).lower().replace("_", " ")
        return name if told is None else f"{told} ({name})"
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, socket.gaierror):  # its number is not one of the system's
        return f"the name has no address: {error.strerror}"
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
