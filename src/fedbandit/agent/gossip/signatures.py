"""Signs a site's bulletins with its TLS key, and says whether another's are genuine.

A bulletin is genuine if its bytes are signed with the key of a certificate that names its site alone, was issued by the
federation's CA, has not been revoked, and was valid when the bulletin was first seen here. A site that has renewed its
key signs the next bulletin with it; what the old one has signed stays.
"""

from collections.abc import Callable, Collection, Mapping
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

from fedbandit.agent.gossip.tls import Revoked, TlsFiles, WrongName, is_issued, revoked_in, the_name_in
from fedbandit.checks import InvalidArgument

__all__ = ["Forged", "NotAccepted", "Signatures", "fingerprint"]

LONGEST_CHAIN = 4
"""The most certificates of a signer, from its own on."""

MOST_SIGNERS = 10_000
"""So many certificates are remembered."""

QUICK_CURVE = 256

_Value = TypeVar("_Value")

_PSS = padding.PSS(padding.MGF1(SHA256()), padding.PSS.MAX_LENGTH)


class NotAccepted(ValueError):
    """A bulletin that is not accepted here; the neighbour that passed it on may have accepted it in good faith."""


class Forged(ValueError):
    """A bulletin whose signature is wrong: no site passes on what it has not verified."""


@dataclass(frozen=True)
class Signer:
    """What a chain of certificates says, whoever looks at it; dates and revocation are looked at each time."""

    name: str
    key: Any
    chain: tuple[Certificate, ...]


def fingerprint(signer: bytes) -> bytes:
    """The sha256 of a signer's certificate, the first in its chain; nothing for nobody."""
    return load_pem_x509_certificates(signer)[0].fingerprint(SHA256()) if signer else b""


class Signatures:
    """A site's key, the CA that it trusts, and the certificates that it has seen.

    Without TLS nothing is signed, and only that is accepted.
    """

    def __init__(self, tls: TlsFiles | None, clock: Callable[[], float]) -> None:
        """``clock`` gives seconds since 1970."""
        self._tls, self._clock = tls, clock
        self._cas = [] if tls is None else load_pem_x509_certificates(tls.ca)
        self._signers: dict[bytes, tuple[bytes, Signer]] = {}
        self._fingerprints: dict[bytes, bytes] = {b"": b""}
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
        return signature, self._chain

    @cached_property
    def _key(self) -> Any:
        return None if self._tls is None else load_pem_private_key(self._tls.key, password=None)

    @cached_property
    def _chain(self) -> bytes:
        """The site's certificate, and those after it in its file that lead to the CA."""
        if self._tls is None:
            return b""
        chain, *others = load_pem_x509_certificates(self._tls.certificate)
        found = [chain]
        while len(found) < LONGEST_CHAIN and (issuer := next((it for it in others if is_issued(found[-1], it)), None)):
            others.remove(issuer)
            found.append(issuer)
        return b"".join(it.public_bytes(Encoding.PEM) for it in found)

    # ---------------------------------------------------------------- others

    def revoke(self, crl: bytes) -> None:
        """Take over a list of revoked certificates; ``InvalidArgument`` if none of our CAs has signed it."""
        self.revoked = revoked_in(crl, self._cas)

    def fingerprint(self, signer: bytes) -> bytes:
        """The same as the function, remembered."""
        found = self._fingerprints.get(signer)
        if found is None:
            found = _remembered(self._fingerprints, signer, fingerprint(signer))
        return found

    def known(self, wanted: bytes) -> bytes | None:
        """The chain of the certificate with this fingerprint, if it has been seen and accepted here."""
        if not wanted:
            return b""
        found = self._signers.get(wanted)
        return None if found is None else found[0]

    def verify(self, site: str, body: bytes, signature: bytes, signer: bytes) -> None:
        """Raise ``NotAccepted`` or ``Forged`` with the reason; nothing if it is genuine. May run in a thread."""
        if self._tls is None:
            if signature or signer:
                raise NotAccepted("it is signed, and this agent has no certificates")
            return
        found = self._signer(signer)
        if found.name != site:
            raise Forged(f"{found.name} has signed it")
        now = datetime.fromtimestamp(self._clock(), UTC)
        for it in found.chain:
            if not it.not_valid_before_utc <= now <= it.not_valid_after_utc:
                raise NotAccepted("its certificate is not valid today: it has expired, or is not valid yet")
        if self._is_revoked(found):
            raise NotAccepted("its certificate has been revoked")
        if not _is_good(found.key, signature, body):
            raise Forged("its signature is wrong")

    def cost(self, signer: bytes) -> float:
        """About how many seconds it takes to verify a bulletin."""
        found = self._signers.get(self._fingerprints.get(signer, b""))
        if not signer:
            return 0.0
        if found is None:
            return 0.002  # its chain is verified, too
        key = found[1].key
        is_quick = isinstance(key, Ed25519PublicKey | rsa.RSAPublicKey) or getattr(key, "key_size", 0) == QUICK_CURVE
        return 0.0001 if is_quick else 0.001

    def is_revoked(self, signer: bytes) -> bool:
        """Whether one of a signer's certificates has been revoked."""
        if not signer or not self.revoked:
            return False
        try:
            return self._is_revoked(self._signer(signer))
        except (NotAccepted, Forged):
            return True

    def _is_revoked(self, signer: Signer) -> bool:
        return any((it.issuer, it.serial_number) in self.revoked for it in signer.chain)

    def _signer(self, signer: bytes) -> Signer:
        """Who a chain of certificates certifies."""
        key = self.fingerprint_or(signer)
        found = self._signers.get(key)
        if found is not None and found[0] == signer:
            return found[1]
        chain = load_pem_x509_certificates(signer)
        try:
            name = the_name_in(chain[0])
        except (WrongName, ValueError) as error:
            raise NotAccepted(str(error)) from None
        issued = len(chain) <= LONGEST_CHAIN and all(is_issued(it, by) for it, by in pairwise(chain))
        if not issued or not any(is_issued(chain[-1], ca) for ca in self._cas):
            raise NotAccepted("its certificate is not of this federation's CA")
        made = Signer(name, chain[0].public_key(), tuple(chain))
        _remembered(self._signers, key, (signer, made))
        return made

    def fingerprint_or(self, signer: bytes) -> bytes:
        """The fingerprint of a stranger's chain; ``NotAccepted`` if there is no certificate in it."""
        try:
            return self.fingerprint(signer)
        except ValueError:
            raise NotAccepted("it has no certificate") from None


def revoked_sites(signatures: Signatures, signers: Mapping[str, bytes]) -> Collection[str]:
    """The sites whose bulletins are signed with a revoked certificate."""
    return {site for site, signer in signers.items() if signatures.is_revoked(signer)}


def _remembered(kept: dict[bytes, _Value], key: bytes, value: _Value) -> _Value:
    while len(kept) >= MOST_SIGNERS:
        del kept[next(iter(kept))]
    kept[key] = value
    return value


def _is_good(key: Any, signature: bytes, body: bytes) -> bool:
    try:
        match key:
            case ec.EllipticCurvePublicKey():
                key.verify(signature, body, ec.ECDSA(SHA256()))
            case rsa.RSAPublicKey():
                key.verify(signature, body, _PSS, SHA256())
            case Ed25519PublicKey():
                key.verify(signature, body)
            case _:
                return False
    except (InvalidSignature, ValueError):
        return False
    return True
