"""Callers that a site must not let in, with real certificates, and the one check that holds for all of them."""

import contextlib
import selectors
import socket
import ssl
import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from math import nan
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from fedbandit.agent.core.records import Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.gossip import wire
from fedbandit.agent.gossip.certificates import init
from processes import dump, terms, wait_until

DAY = timedelta(days=1)
TERMS = terms()


@dataclass
class Certificates:
    """Certificates of any kind, signed by the CA of a folder."""

    folder: Path

    def __post_init__(self):
        self.ca = (self.folder / "ca.crt").read_bytes()
        self._certificate = x509.load_pem_x509_certificate(self.ca)
        self._key = load_pem_private_key((self.folder / "ca.key").read_bytes(), None)

    def make(self, *names, common_name="somebody", begins=-DAY, ends=DAY):
        """Key and certificate as gRPC takes them."""
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = x509.CertificateBuilder(self._certificate.subject, subject, key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now + begins).not_valid_after(now + ends)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return pem, made.public_bytes(Encoding.PEM)


def dns(name):
    return x509.DNSName(name)


@dataclass
class Door:
    """The gossip door of a site called north, whose one neighbour is east, and what can be seen from outside."""

    port: int
    certificates: Certificates
    state_file: Path
    refused: Any  # () -> counts by reason
    log: Any  # () -> text

    def call(self, data, pair=None, secure=True, method="Exchange", means="north"):
        """One call, by somebody with this key and certificate; the answer, or ``grpc.RpcError``."""
        address = f"127.0.0.1:{self.port}"
        options = (("grpc.ssl_target_name_override", means), ("grpc.max_send_message_length", -1))
        if secure:
            credentials = grpc.ssl_channel_credentials(self.certificates.ca, *(pair or (None, None)))
            channel = grpc.secure_channel(address, credentials, options)
        else:
            channel = grpc.insecure_channel(address, options)
        with channel:
            return channel.unary_unary(f"/fedbandit.v1.Gossip/{method}")(data, timeout=10.0)

    @cached_property
    def east(self):
        """The neighbour itself: a real site whose link to north begins now, with a certificate that is right."""
        now = time.time_ns() // 1_000_000
        site = Site("east", TERMS, Stored(Numbering(now, 0), now))
        site.join("north")
        return site

    @cached_property
    def pair(self):
        """East's key and certificate."""
        return self.certificates.make(dns("east"))

    def exchange(self):
        """East exchanges with north; the bytes of its offer."""
        data = wire.encode(self.east.offer("north").result)
        self.east.receive_reply(wire.decode_reply(self.call(data, self.pair)))
        return data


@dataclass
class Stranger:
    """Somebody who calls with an offer that would be good if it came from east."""

    reason: str  # as it is counted
    code: grpc.StatusCode
    pair: Any = None
    secure: bool = True
    data: bytes | None = None
    method: str = "Exchange"
    means: str = "north"


def assert_turned_away(door, stranger):
    """Refused with this code, nothing changed on disk, counted, and logged."""
    data = wire.encode(door.east.offer("north").result) if stranger.data is None else stranger.data
    before, counted = dump(door.state_file), door.refused().get(stranger.reason, 0)
    code = None
    try:
        door.call(data, stranger.pair, stranger.secure, stranger.method, stranger.means)
    except grpc.RpcError as error:
        code = error.code()
    assert dump(door.state_file) == before, "a stranger has changed the state"
    assert code == stranger.code, "a stranger was answered" if code is None else code
    wait_until(lambda: door.refused().get(stranger.reason, 0) > counted, within=3.0)
    assert f"refused ({stranger.reason})" in door.log()


def without_a_good_certificate(folder, certificates):
    """Those whom the handshake refuses, by what is wrong with them."""
    for name, title in (("other", "other CA"), ("namesake", "trial CA")):
        init(folder / name, title, 30, datetime.now(UTC))
    other, namesake = Certificates(folder / "other"), Certificates(folder / "namesake")
    closed = grpc.StatusCode.UNAVAILABLE
    return {
        "no certificate": Stranger("no certificate", closed),
        "another CA": Stranger("certificate of another CA", closed, other.make(dns("east"))),
        "a CA of the same name": Stranger("certificate of another CA", closed, namesake.make(dns("east"))),
        "expired": Stranger("certificate expired", closed, certificates.make(dns("east"), begins=-2 * DAY, ends=-DAY)),
        "not yet valid": Stranger("certificate not yet valid", closed, certificates.make(dns("east"), begins=DAY / 2)),
        "plain text": Stranger("not TLS", closed, secure=False),
        "who means another": Stranger("meant for another site", closed, certificates.make(dns("east")), means="west"),
    }


def with_a_wrong_name(certificates):
    """Those whom our CA knows, but not by the name of a neighbour alone. The handshake lets them through."""
    denied = grpc.StatusCode.PERMISSION_DENIED
    make = certificates.make
    return {
        "not a neighbour": Stranger("not a neighbour", denied, make(dns("south"))),
        "the site itself": Stranger("not a neighbour", denied, make(dns("north"))),
        "upper case": Stranger("certificate", denied, make(dns("EAST"))),
        "wildcard": Stranger("certificate", denied, make(dns("*.east"))),
        "a NUL byte": Stranger("certificate", denied, make(dns("east\0.evil"))),
        "a line": Stranger("certificate", denied, make(dns("east\n"))),
        "two names": Stranger("certificate", denied, make(dns("east"), dns("south"))),
        "the same name twice": Stranger("certificate", denied, make(dns("east"), dns("east"))),
        "a URI": Stranger("certificate", denied, make(x509.UniformResourceIdentifier("spiffe://trial/east"))),
        "an e-mail address": Stranger("certificate", denied, make(x509.RFC822Name("east@trial.example"))),
        "a name and a URI": Stranger(
            "certificate", denied, make(dns("east"), x509.UniformResourceIdentifier("x:east"))
        ),
        "common name only": Stranger("certificate", denied, make(common_name="east")),
    }


def with_a_wrong_message(door):
    """East itself, or somebody with its key, says what is no good offer."""
    offer = door.east.offer("north").result
    good, bad, pair = wire.encode(offer), grpc.StatusCode.INVALID_ARGUMENT, door.pair

    def changed(**fields):
        form = wire.pb.Offer.FromString(good)
        form.link.version, form.link.writer = 0, ""  # so that this is not what it is refused for
        for field, value in fields.items():
            if field == "gossiped":
                form.gossiped[:] = value
            else:
                setattr(form, field, value)
        return form.SerializeToString()

    others = replace(offer, federation=terms(epsilon=2.0).digest())
    return {
        "garbage": Stranger("message", bad, pair, data=b"\xff\x00garbage" * 100),
        "nothing": Stranger("message", bad, pair, data=b""),
        "truncated": Stranger("message", bad, pair, data=good[: len(good) // 2]),
        "another wire version": Stranger("message", bad, pair, data=changed(wire=7)),
        "100 MB": Stranger("message", grpc.StatusCode.RESOURCE_EXHAUSTED, pair, data=bytes(100_000_000)),
        "for another site": Stranger("message", bad, pair, data=changed(receiver="west")),
        "sent by another": Stranger("message", bad, pair, data=changed(sender="south")),
        "not a number": Stranger("message", bad, pair, data=changed(gossiped=[nan] * len(offer.gossiped))),
        "terms that are none": Stranger("message", bad, pair, data=b"\xff", method="Compare"),
        "other terms": Stranger("other terms", grpc.StatusCode.FAILED_PRECONDITION, pair, data=wire.encode(others)),
    }


class Crowd:
    """So many connections, each opened again when it is closed; ``says`` is what each sends, byte by byte."""

    def __init__(self, port, count, says=b""):
        self._port, self._count, self._says, self.opened = port, count, says, 0
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
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=10.0)
        connection.setblocking(False)
        self.opened += 1
        waiting.register(connection, selectors.EVENT_READ, [bytes((byte,)) for byte in self._says])

    @staticmethod
    def _is_closed(connection):
        try:
            return not connection.recv(1000)
        except BlockingIOError:
            return False
        except OSError:
            return True

    @staticmethod
    def _say(connection, byte):
        with contextlib.suppress(OSError):
            connection.send(byte)


def client_hello():
    """What a TLS client says first."""
    said = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    return said.read()


@contextlib.contextmanager
def silent_calls(port, certificates, pair, channels, means="north"):
    """Calls that say nothing, 16 on each of so many connections."""
    credentials = grpc.ssl_channel_credentials(certificates.ca, *pair)
    options = (("grpc.ssl_target_name_override", means), ("grpc.use_local_subchannel_pool", 1))
    opened = [grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) for _ in range(channels)]
    said = threading.Event()

    def nothing():
        said.wait(60.0)
        yield from ()

    try:
        yield [
            channel.stream_unary("/fedbandit.v1.Gossip/Exchange").future(nothing())
            for channel in opened
            for _ in range(16)
        ]
    finally:
        said.set()
        for channel in opened:
            channel.close()
