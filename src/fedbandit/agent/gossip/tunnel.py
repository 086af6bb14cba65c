"""TLS between two sites in front of gRPC: handshake, the other end's certificate, then plain bytes to and from gRPC.

gRPC's own TLS neither limits unfinished handshakes nor reads names strictly, and says nowhere why a handshake failed.
gRPC itself listens and dials on sockets without a name, which only this process can reach.
"""

import asyncio
import os
import ssl
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from cryptography.x509 import load_pem_x509_certificates

from fedbandit.agent.gossip.farewell import Farewell
from fedbandit.agent.gossip.identity import the_name_in
from fedbandit.agent.gossip.tls import TlsFiles

__all__ = ["Nameless", "PlainEnd", "TlsEnd", "client_context", "in_words", "nameless", "own_name", "reason_of", "server_context"]

SIZE = 32_768
"""Bytes read at once; nearly every message is smaller."""

NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNSUPPORTED_PROTOCOL", "RECORD_LAYER_FAILURE")
_REASONS = {"PEER_DID_NOT_RETURN_A_CERTIFICATE": "no certificate", "CALLBACK_FAILED": "meant for another site"}
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
    reason = getattr(error, "reason", None) or ""
    if reason in NOT_TLS:
        return "not TLS"
    return _REASONS.get(reason, "handshake")


def in_words(error: Exception) -> str:
    """Why a connection failed, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    if isinstance(error, TimeoutError):
        return "no answer"
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


class TlsEnd(asyncio.BufferedProtocol):
    """The TLS end of a tunnel.

    * ``secure``: is given the other's certificate after the handshake; ``failed``: is told why there was none
    * ``lost``: is told when the connection has ended, and of the error if there was one
    """

    transport: asyncio.Transport

    def __init__(
        self,
        context: ssl.SSLContext,
        dialled: str | None,
        secure: Callable[["TlsEnd", bytes], None],
        failed: Callable[["TlsEnd", ssl.SSLError], None],
        lost: Callable[[Exception | None], None],
    ) -> None:
        """``dialled``: whom we dial; None: we were dialled."""
        self._secure, self._failed, self.lost = secure, failed, lost
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, dialled is None, dialled)
        self._buffer, self._plain = memoryview(bytearray(SIZE)), memoryview(bytearray(SIZE))
        self._connected = self._is_secure = self._refused = False
        self._expiry: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        self._partner: PlainEnd | None = None
        self._farewell: Farewell | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, if we dialled."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream
        self.transport, self._connected = transport, True
        self._shake_hands()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self._refused:
            return
        self._received.write(self._buffer[:nbytes])
        if self._is_secure:
            self._decrypt()
        else:
            self._shake_hands()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._error = error
            self._failed(self, error)
            return
        self._flush()
        self._is_secure = True
        self.transport.pause_reading()
        certificate = self._tls.getpeercert(binary_form=True)
        assert certificate is not None  # noqa: S101 - CERT_REQUIRED
        self._secure(self, certificate)

    def join(self, partner: "PlainEnd", until: datetime) -> None:
        """Pass bytes on to and from the other end of the tunnel, until the certificate expires."""
        self._partner = partner
        left = (until - datetime.now(UTC)).total_seconds()
        self._expiry = asyncio.get_running_loop().call_later(max(0.0, left), self.close)
        self.transport.resume_reading()
        self._decrypt()  # some may have come with the handshake
        partner.join(self)

    def _decrypt(self) -> None:
        tls = self._tls
        try:
            while self._received.pending or tls.pending():
                count = tls.read(SIZE, self._plain)  # pyright: ignore[reportArgumentType]
                if count == 0:  # it has said goodbye
                    self.close()
                    return
                self._pass_on(bytes(self._plain[:count]))
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._error = error
            self.close()
        self._flush()

    def _pass_on(self, data: bytes) -> None:
        if self._partner is not None:
            self._partner.transport.write(data)
        elif self._farewell is not None and (answer := self._farewell.answer(data)):
            self._tls.write(answer)
            self.hang_up()

    def send(self, data: memoryview) -> None:
        """Encrypt and send."""
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            self._error = error
            self.close()
        self._flush()

    def refuse(self, told: str) -> None:
        """Tell the other end why it is refused, when it calls, and end the connection."""
        self._farewell = Farewell(told)
        self._tls.write(Farewell.GREETING)
        self._flush()
        self.transport.resume_reading()
        self._decrypt()

    def hang_up(self) -> None:
        """Send what is left and wait for the other end to close: a reset would overtake the reason."""
        self._refused = True
        self._flush()
        if not self.transport.is_closing():
            self.transport.write_eof()
            self.transport.resume_reading()

    def _flush(self) -> None:
        if self._to_send.pending:
            self.transport.write(self._to_send.read())

    def close(self) -> None:
        """End the tunnel."""
        if not self.transport.is_closing():
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # the other end's goodbye is not awaited
            self._flush()
            self.transport.close()
        if self._partner is not None:
            self._partner.transport.close()

    def abort(self) -> None:
        """End the tunnel at once, whatever is left to send."""
        if self._connected:
            self.transport.abort()

    def pause_writing(self) -> None:
        """The network is slow: gRPC waits."""
        if self._partner is not None:
            self._partner.transport.pause_reading()

    def resume_writing(self) -> None:
        """The network has caught up."""
        if self._partner is not None:
            self._partner.transport.resume_reading()

    def eof_received(self) -> bool:
        """The other end has closed."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._partner is not None:
            self._partner.transport.close()
        self.lost(self._error or exc)


class PlainEnd(asyncio.BufferedProtocol):
    """gRPC's end of a tunnel."""

    transport: asyncio.Transport
    _tls: TlsEnd | None = None

    def __init__(self, made: Callable[["PlainEnd"], None] | None = None) -> None:
        """``made`` is called when gRPC has connected."""
        self._made, self._buffer = made, memoryview(bytearray(SIZE))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the other end."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream
        self.transport = transport
        transport.pause_reading()
        if self._made is not None:
            self._made(self)

    def join(self, tls: TlsEnd) -> None:
        """Pass bytes on from now on."""
        self._tls = tls
        if self.transport.is_closing():
            tls.close()
        else:
            self.transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what gRPC says."""
        if self._tls is not None:
            self._tls.send(self._buffer[:nbytes])

    def pause_writing(self) -> None:
        """Wait for gRPC."""
        if self._tls is not None:
            self._tls.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on: gRPC has caught up."""
        if self._tls is not None:
            self._tls.transport.resume_reading()

    def eof_received(self) -> bool:
        """Let gRPC close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other end with it."""
        if self._tls is not None:
            self._tls.close()


Made = TypeVar("Made")


class Nameless:
    """A listening socket in no folder: whoever has not inherited this handle cannot reach it."""

    def __init__(self, handle: int) -> None:
        """Keep a handle to the socket's file, which has been removed."""
        self._handle = handle
        self.path = f"/proc/self/fd/{handle}"

    def close(self) -> None:
        """Forget it."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


def nameless(listen: Callable[[str], Made]) -> tuple[Made, Nameless]:
    """Let ``listen`` make a socket at a path, and remove the path at once: nothing is left when the process is killed."""
    folder = tempfile.mkdtemp(prefix="fedbandit-")  # nobody else may enter it
    inside = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    path = f"/proc/self/fd/{inside}/door"  # short, wherever the folder is: the path of a socket has 107 bytes at most
    try:
        made = listen(path)
        return made, Nameless(os.open(path, os.O_PATH))
    finally:
        Path(path).unlink(missing_ok=True)
        os.close(inside)
        Path(folder).rmdir()
