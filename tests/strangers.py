"""Callers that a site must not let in, with real certificates, and what each of them is told."""

import asyncio
import contextlib
import selectors
import socket
import ssl
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from fedbandit.agent.gossip import frames
from fedbandit.agent.gossip.connection import Connection, dial
from fedbandit.agent.gossip.tls import TlsFiles, client_context, in_words
from fedbandit.agent.process.addresses import Address
from fedbandit.agent.process.certificates import init

DAY = timedelta(days=1)


@dataclass
class Certificates:
    """Certificates of any kind, signed by the CA of a folder."""

    folder: Path

    def __post_init__(self):
        self.ca = (self.folder / "ca.crt").read_bytes()
        self._certificate = x509.load_pem_x509_certificate(self.ca)
        self._key = load_pem_private_key((self.folder / "ca.key").read_bytes(), None)

    def make(self, *names, common_name="somebody", begins=-DAY, ends=DAY):
        """A certificate and its key, with the CA."""
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = x509.CertificateBuilder(self._certificate.subject, subject, key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now + begins).not_valid_after(now + ends)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return TlsFiles(made.public_bytes(Encoding.PEM), pem, self.ca)


def dns(name):
    return x509.DNSName(name)


@dataclass
class Stranger:
    """Somebody who calls north. ``told``: a part of what it is told; ``says``: its frames, if it gets so far."""

    reason: str  # as it is counted
    told: str
    tls: TlsFiles | None = None
    means: str = "north"
    says: tuple[bytes, ...] = ()
    begins: Any = None  # instead of a websocket


class LetIn(AssertionError):
    """A stranger was not refused."""


def context_of(tls, ca):
    """TLS of a caller; without a certificate where it has none."""
    if tls is not None:
        return client_context(TlsFiles(tls.certificate, tls.key, ca))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def call(port, stranger, ca, within=10.0):
    """What a stranger is told: by an alert of TLS, by HTTP, or by a frame."""
    address, told = Address("127.0.0.1", port), []
    context = None if stranger.reason == "not TLS" else context_of(stranger.tls, ca)
    connection = Connection(context, (address, stranger.means))
    over = asyncio.get_running_loop().create_future()

    def opened(_):
        connection.received = received
        connection.lost = lambda _, error: over.done() or over.set_result(in_words(error))
        for frame in stranger.says:
            connection.send(frame)

    def received(_, data):
        frame = frames.decode(data)
        if isinstance(frame, frames.Refusal):
            told.append(frame.words)
        elif not stranger.says:
            raise LetIn(f"it was answered: {frame}")

    connection.opened = opened
    try:
        await dial(connection, address, None)
        words = await asyncio.wait_for(over, within)
        return told[0] if told else words
    except TimeoutError:
        raise LetIn("a stranger is still connected") from None
    except OSError as error:
        return in_words(error)
    finally:
        connection.abort()


def without_a_good_certificate(folder, certificates):
    """Those whom the handshake refuses, by what is wrong with them."""
    for name, title in (("other", "other CA"), ("namesake", "trial CA")):
        init(folder / name, title, 30, datetime.now(UTC))
    other, namesake = Certificates(folder / "other"), Certificates(folder / "namesake")
    make = certificates.make
    expired, early = make(dns("east"), begins=-2 * DAY, ends=-DAY), make(dns("east"), begins=DAY / 2)
    another = "it refuses our certificate: another CA has signed it"
    return {
        "no certificate": Stranger("no certificate", "it asks for a certificate, and we have shown none"),
        "another CA": Stranger("certificate of another CA", another, other.make(dns("east"))),
        "a CA of the same name": Stranger(
            "certificate of another CA", "it refuses our certificate", namesake.make(dns("east"))
        ),
        "expired": Stranger("certificate expired", "it refuses our certificate: expired", expired),
        "not yet valid": Stranger("certificate not yet valid", "it refuses our certificate: not valid yet", early),
        "plain text": Stranger("not TLS", ""),
        "who means another": Stranger(
            "meant for another site", "another site answers at this address", make(dns("east")), means="west"
        ),
    }


def with_a_wrong_name(certificates):
    """Those whom our CA knows, but not by the name of a neighbour alone. The handshake lets them through."""
    make = certificates.make
    wrong, one = "the name in a certificate must be", "a certificate must have one name"
    return {
        "not a neighbour": Stranger("not a neighbour", "south is no neighbour of north", make(dns("south"))),
        "the site itself": Stranger("not a neighbour", "north is no neighbour of north", make(dns("north"))),
        "upper case": Stranger("certificate", wrong, make(dns("EAST"))),
        "wildcard": Stranger("certificate", wrong, make(dns("*.east"))),
        "a NUL byte": Stranger("certificate", r"not DNSName 'east\x00.evil'", make(dns("east\0.evil"))),
        "a line": Stranger("certificate", wrong, make(dns("east\n"))),
        "two names": Stranger("certificate", one, make(dns("east"), dns("south"))),
        "the same name twice": Stranger("certificate", one, make(dns("east"), dns("east"))),
        "a URI": Stranger("certificate", one, make(x509.UniformResourceIdentifier("spiffe://trial/east"))),
        "an e-mail address": Stranger("certificate", one, make(x509.RFC822Name("east@trial.example"))),
        "a name and a URI": Stranger("certificate", one, make(dns("east"), x509.UniformResourceIdentifier("x:east"))),
        "common name only": Stranger("certificate", one, make(common_name="east")),
    }


def with_a_wrong_frame(terms, tls):
    """East itself, or somebody with its key, says what no site says."""

    def have(site="east", federation=None):
        return frames.encode(frames.Have(site, (federation or terms).digest(), 1, {}))

    other = type(terms)(terms.name, terms.arms, terms.low, terms.high, type(terms.policy)(epsilon=2.0))
    message = {
        "garbage": (b"\xff\0garbage" * 100,),
        "nothing": (b"",),
        "a frame cut short": (have()[:30],),
        "100 frames of garbage": (bytes(100),) * 100,
        "no greeting": (frames.encode(frames.Certificate(tls.certificate)),),
        "another's greeting": (have("south"),),
        "half a bulletin": (have(), frames.encode(frames.Bulletin(bytes(32), b"", b'{"fedbandit":1,'))),
        "a certificate that is none": (have(), frames.encode(frames.Certificate(b"\xff" * 100))),
        "a bulletin too long": (have(), b"\2\0\0\0\0" + bytes(2**17 + 1)),
        "the greeting twice over": (have(), have() + b"x"),
    }
    wrong = {name: Stranger("message", "it refuses", tls, says=says) for name, says in message.items()}
    return wrong | {"other terms": Stranger("other terms", "follows other terms", tls, says=(have(federation=other),))}


class Crowd:
    """So many connections, each opened again when it is closed; ``says`` is what each sends, in bytes or at once."""

    def __init__(self, port, count, says=b"", at_once=False):
        self._port, self._count, self.opened = port, count, 0
        self._says = [says] if at_once and says else [bytes((byte,)) for byte in says]
        self._over, self._thread = threading.Event(), threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self):
        with selectors.DefaultSelector() as waiting:
            for _ in range(self._count):
                self._open(waiting)
            while not self._over.is_set():
                for key, _ in waiting.select(0.05):
                    if self._is_closed(key.fileobj):
                        waiting.unregister(key.fileobj)
                        key.fileobj.close()
                        self._open(waiting)
                for key in waiting.get_map().values():
                    if key.data:
                        self._say(key.fileobj, key.data.pop(0))
            for key in list(waiting.get_map().values()):
                key.fileobj.close()

    def _open(self, waiting):
        with contextlib.suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", self._port), timeout=10.0)
            connection.setblocking(False)
            self.opened += 1
            waiting.register(connection, selectors.EVENT_READ, list(self._says))

    @staticmethod
    def _is_closed(connection):
        try:
            return not connection.recv(1000)
        except BlockingIOError:
            return False
        except OSError:
            return True

    @staticmethod
    def _say(connection, said):
        with contextlib.suppress(OSError):
            connection.send(said)


def client_hello(means=None):
    """What a TLS client says first."""
    said = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said, server_hostname=means).do_handshake()
    return said.read()
