"""Signs a site's bulletins with its TLS key, and says whether another's are genuine.

A bulletin is genuine if its bytes are signed with the key of a certificate that names its site alone, was issued by the
federation's CA, has not been revoked, and was valid when the bulletin was first seen here. A site that has renewed its
key signs the next bulletin with it; what the old one has signed stays.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import Certificate, load_pem_x509_certificates

from fedbandit.agent.core.bulletin import Signed
from fedbandit.agent.gossip.tls import Revoked, TlsFiles, WrongName, is_issued, revoked_in, the_name_in
from fedbandit.checks import InvalidArgument

__all__ = ["Forged", "NotAccepted", "Signatures", "fingerprint"]

LONGEST_CHAIN, MOST_SIGNERS = 4, 10_000
"""The most certificates of a signer, from its own on; so many signers are remembered."""

QUICK_CURVE = 256  # bits of an elliptic curve with which verifying is quick

_PSS = padding.PSS(padding.MGF1(SHA256()), padding.PSS.MAX_LENGTH)

_Value = TypeVar("_Value")


class NotAccepted(ValueError):
    """A bulletin that is not accepted here; the neighbour that passed it on may have accepted it in good faith."""


class Forged(ValueError):
    """A bulletin whose signature is wrong: no site passes on what it has not verified."""


@dataclass(frozen=True)
class _Signer:
    """What a chain of certificates says, whoever looks at it; dates and revocation are looked at each time."""

    name: str
    key: Any
    chain: tuple[Certificate, ...]


def fingerprint(signer: bytes) -> bytes:
    """The sha256 of a signer's certificate, the first in its chain (PEM); nothing for nobody."""
    return load_pem_x509_certificates(signer)[0].fingerprint(SHA256()) if signer else b""


class Signatures:
    """A site's key, the CA that it trusts, and the certificates that it has seen.

    Without TLS nothing is signed, and only that is accepted.
    """

    def __init__(self, tls: TlsFiles | None, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds since 1970."""
        self._tls, self._clock = tls, clock
        self._cas = [] if tls is None else load_pem_x509_certificates(tls.ca)
        self._signers: dict[bytes, _Signer] = {}
        self._fingerprints: dict[bytes, bytes] = {}
        self._chains: dict[bytes, bytes] = {b"": b""}
        self.revoked: Revoked = frozenset()
        if tls is not None and tls.crl is not None:
            self.revoke(tls.crl)

    # ---------------------------------------------------------------- this site

    def sign(self, body: bytes) -> tuple[bytes, bytes]:
        """The signature of a body, and this site's certificate with its intermediates, PEM."""
        if self._tls is None:
            return b"", b""
        match key := self._key:
            case ec.EllipticCurvePrivateKey():
                signature = key.sign(body, ec.ECDSA(SHA256()))
            case rsa.RSAPrivateKey():
                signature = key.sign(body, _PSS, SHA256())
            case Ed25519PrivateKey():
                signature = key.sign(body)
            case _:
                kind = type(key).__name__.removesuffix("PrivateKey")
                raise InvalidArgument("tls.key", kind, "an elliptic curve, RSA or Ed25519 key, to sign bulletins")
        return signature, self._chain(self._tls)

    @cached_property
    def _key(self) -> Any:
        return None if self._tls is None else load_pem_private_key(self._tls.key, password=None)

    def _chain(self, tls: TlsFiles) -> bytes:
        """The site's certificate, and those after it in its file that lead to the CA."""
        if not self._own:
            first, *others = load_pem_x509_certificates(tls.certificate)
            chain = [first]
            while len(chain) < LONGEST_CHAIN and (by := next((it for it in others if is_issued(chain[-1], it)), None)):
                others.remove(by)
                chain.append(by)
            self._own = b"".join(it.public_bytes(Encoding.PEM) for it in chain)
        return self._own

    _own = b""

    # ---------------------------------------------------------------- others

    def revoke(self, crl: bytes) -> None:
        """Take over a list of revoked certificates; ``InvalidArgument`` if none of our CAs has signed it."""
        self.revoked = revoked_in(crl, self._cas)

    def is_revoked(self, signer: bytes) -> bool:
        """Whether one of a signer's certificates has been revoked; who has issued them is not looked at."""
        return bool(self.revoked and signer) and self._has_revoked(load_pem_x509_certificates(signer))

    def _has_revoked(self, chain: Iterable[Certificate]) -> bool:
        return any((it.issuer, it.serial_number) in self.revoked for it in chain)

    def fingerprint(self, signer: bytes) -> bytes:
        """The same as the function, remembered: for those on the board."""
        return self._fingerprints.get(signer) or _keep(self._fingerprints, signer, fingerprint(signer))

    def known(self, signer: bytes) -> bytes | None:
        """The chain of the certificate with this fingerprint, if it has been accepted here."""
        return self._chains.get(signer)

    def cost(self, signer: bytes) -> float:
        """About how many seconds it takes to verify a bulletin."""
        found = self._signers.get(signer)
        if found is None:
            return 0.002 if signer else 0.0  # its chain is verified, too
        is_quick = isinstance(found.key, Ed25519PublicKey | rsa.RSAPublicKey) or found.key.key_size == QUICK_CURVE
        return 0.0001 if is_quick else 0.001

    def verify(self, site: str, signed: Signed) -> None:
        """Raise ``NotAccepted`` or ``Forged`` with the reason; nothing if it is genuine. May run in a thread."""
        if self._tls is None:
            if signed.signature or signed.signer:
                raise NotAccepted("it is signed, and this agent has no certificates")
            return
        signer = self._signers.get(signed.signer) or self._accepted(signed.signer)
        if signer.name != site:
            raise Forged(f"{signer.name} has signed it")
        now = datetime.fromtimestamp(self._clock(), UTC)
        if not all(it.not_valid_before_utc <= now <= it.not_valid_after_utc for it in signer.chain):
            raise NotAccepted("its certificate is not valid today: it has expired, or is not valid yet")
        if self._has_revoked(signer.chain):
            raise NotAccepted("its certificate has been revoked")
        if not _is_good(signer.key, signed):
            raise Forged("its signature is wrong")

    def _accepted(self, signer: bytes) -> _Signer:
        """Who a chain of certificates certifies."""
        try:
            chain = load_pem_x509_certificates(signer)
            name = the_name_in(chain[0])
        except WrongName as error:
            raise NotAccepted(str(error)) from None
        except ValueError:
            raise NotAccepted("it has no certificate that can be read") from None
        issued = len(chain) <= LONGEST_CHAIN and all(is_issued(it, by) for it, by in pairwise(chain))
        if not issued or not any(is_issued(chain[-1], ca) for ca in self._cas):
            raise NotAccepted("its certificate is not of this federation's CA")
        _keep(self._chains, chain[0].fingerprint(SHA256()), signer)
        return _keep(self._signers, signer, _Signer(name, chain[0].public_key(), tuple(chain)))


def _keep(kept: dict[bytes, _Value], key: bytes, value: _Value) -> _Value:
    while len(kept) >= MOST_SIGNERS:
        del kept[next(iter(kept))]
    kept[key] = value
    return value


def _is_good(key: Any, signed: Signed) -> bool:
    try:
        match key:
            case ec.EllipticCurvePublicKey():
                key.verify(signed.signature, signed.body, ec.ECDSA(SHA256()))
            case rsa.RSAPublicKey():
                key.verify(signed.signature, signed.body, _PSS, SHA256())
            case Ed25519PublicKey():
                key.verify(signed.signature, signed.body)
            case _:
                return False
    except (InvalidSignature, ValueError):
        return False
    return True
