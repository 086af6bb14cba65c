"""Signs a site's bulletins with its TLS key, and says whether another's are genuine.

A bulletin is genuine if its bytes are signed with the key of a certificate that names its site alone, was issued by the
federation's CA, has not been revoked, and was valid when the bulletin was first seen here. A site that has renewed its
key signs the next bulletin with it; what the old one has signed stays.

What is remembered of certificates is what they say, never the text around them: exactly the chain that leads to the CA.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from threading import Lock
from typing import Any, Generic, TypeVar

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import (
    Certificate,
    DuplicateExtension,
    UnsupportedGeneralNameType,
    load_pem_x509_certificates,
)

from fedbandit.agent.core.bulletin import Signed
from fedbandit.agent.gossip.tls import Revoked, TlsFiles, WrongName, is_issued, own_name, revoked_in, the_name_in
from fedbandit.checks import InvalidArgument

LONGEST_CHAIN, OF_ONE_NAME = 4, 8
"""The most certificates of a signer, from its own on; so many chains of one site are remembered."""

MOST_BYTES = 2**24
"""Bytes of chains that are remembered: of 10,000 sites."""

QUICK_CURVE = 256  # bits of an elliptic curve with which verifying is quick

_PSS = padding.PSS(padding.MGF1(SHA256()), padding.PSS.MAX_LENGTH)

_Value = TypeVar("_Value")


class NotAccepted(ValueError):
    """A bulletin that is not accepted here; the neighbour that passed it on may have accepted it in good faith."""


class Forged(ValueError):
    """A bulletin whose signature or certificate is wrong: no site passes on what it has not verified."""


@dataclass(frozen=True)
class _Signer:
    """What a chain of certificates says, whoever looks at it; dates and revocation are looked at each time."""

    name: str
    key: Any
    chain: tuple[Certificate, ...]
    pem: bytes
    fingerprint: bytes
    cost: float


class _Memory(Generic[_Value]):
    """Remembers by bytes; of more than ``MOST_BYTES`` it forgets what was used longest ago. Threads may share it."""

    def __init__(self) -> None:
        self._kept: dict[bytes, tuple[_Value, int]] = {}
        self._bytes, self._lock = 0, Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes) -> _Value | None:
        with self._lock:
            if key not in self._kept:
                return None
            found = self._kept[key] = self._kept.pop(key)
            return found[0]

    def keep(self, key: bytes, value: _Value, size: int, of: Callable[[_Value], bool] | None = None) -> _Value:
        """``size`` in bytes; only ``OF_ONE_NAME`` are kept for which ``of`` is true."""
        with self._lock:
            if key in self._kept:
                self._forget(key)
            self._kept[key] = value, size
            self._bytes += size
            alike = [] if of is None else [it for it, (kept, _) in self._kept.items() if of(kept)]
            for it in alike[:-OF_ONE_NAME]:
                self._forget(it)
            while self._bytes > MOST_BYTES:
                self._forget(next(iter(self._kept)))
        return value

    def _forget(self, key: bytes) -> None:
        self._bytes -= self._kept.pop(key)[1]


def canonical(signer: bytes) -> tuple[bytes, bytes]:
    """The fingerprint of a signer's certificate, and its chain without text around it; ``ValueError`` if it is none."""
    chain = load_pem_x509_certificates(signer)
    if len(chain) > LONGEST_CHAIN:
        raise ValueError(f"{len(chain)} certificates, of at most {LONGEST_CHAIN}")
    return chain[0].fingerprint(SHA256()), _pem(chain)


def _pem(chain: Iterable[Certificate]) -> bytes:
    return b"".join(it.public_bytes(Encoding.PEM) for it in chain)


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
        self._signers: _Memory[_Signer] = _Memory()  # by chain
        self._fingerprints: _Memory[bytes] = _Memory()  # by chain
        self._chains: _Memory[bytes] = _Memory()  # by fingerprint
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
            while not self._is_of_ca(chain[-1]) and len(chain) < LONGEST_CHAIN:
                by = next((it for it in others if is_issued(chain[-1], it)), None)
                if by is None:
                    break
                others.remove(by)
                chain.append(by)
            self._own = _pem(chain)
        return self._own

    _own = b""

    @cached_property
    def _name(self) -> str:
        return "" if self._tls is None else own_name(self._tls)

    # ---------------------------------------------------------------- others

    def revoke(self, crl: bytes) -> None:
        """Take over a list of revoked certificates; ``InvalidArgument`` if none of our CAs has signed it."""
        self.revoked = revoked_in(crl, self._cas)

    def is_revoked(self, signer: bytes) -> bool:
        """Whether one of a signer's certificates has been revoked; who has issued them is not looked at."""
        if not self.revoked or not signer:
            return False
        found = self._signers.get(signer)
        return self._has_revoked(load_pem_x509_certificates(signer) if found is None else found.chain)

    def _has_revoked(self, chain: Iterable[Certificate]) -> bool:
        return any((it.issuer, it.serial_number) in self.revoked for it in chain)

    def fingerprint(self, signer: bytes) -> bytes:
        """The same as the function, remembered: for those on the board."""
        found = self._fingerprints.get(signer)
        return self._fingerprints.keep(signer, fingerprint(signer), len(signer)) if found is None else found

    def known(self, signer: bytes) -> bytes | None:
        """The chain of the certificate with this fingerprint, if a bulletin was accepted with it here."""
        return self._chains.get(signer) if signer else b""

    def cost(self, signer: bytes) -> float:
        """About how many seconds it takes to verify a bulletin."""
        found = self._signers.get(signer)
        if found is None:
            return 0.002 if signer else 0.0  # its chain is verified, too
        return found.cost

    def verify(self, site: str, signed: Signed) -> Signed:
        """Raise ``NotAccepted`` or ``Forged`` with the reason; if it is genuine, as it is kept. May run in a thread.

        It is kept with exactly the certificates that lead to the CA. Of this site's own name neither dates nor
        revocation matter: what its old key has signed, whoever had it, tells above which place it goes on.
        """
        if self._tls is None:
            if signed.signature or signed.signer:
                raise NotAccepted("it is signed, and this agent has no certificates")
            return signed
        signer = self._signers.get(signed.signer) or self._accepted(signed.signer)
        if signer.name != site:
            raise Forged(f"{signer.name} has signed it")
        if site != self._name:
            now = datetime.fromtimestamp(self._clock(), UTC)
            if not all(it.not_valid_before_utc <= now <= it.not_valid_after_utc for it in signer.chain):
                raise NotAccepted("its certificate is not valid today: it has expired, or is not valid yet")
            if self._has_revoked(signer.chain):
                raise NotAccepted("its certificate has been revoked")
        if not _is_good(signer.key, signed):
            raise Forged("its signature is wrong")
        self._chains.keep(signer.fingerprint, signer.pem, len(signer.pem))
        return signed if signed.signer == signer.pem else Signed(signed.body, signed.signature, signer.pem)

    def _accepted(self, signer: bytes) -> _Signer:
        """Who a chain of certificates certifies."""
        try:
            given = load_pem_x509_certificates(signer)
            name, key = the_name_in(given[0]), given[0].public_key()
        except WrongName as error:
            raise Forged(str(error)) from None
        except (ValueError, DuplicateExtension, UnsupportedGeneralNameType, UnsupportedAlgorithm):
            raise Forged("it has no certificate that can be read") from None
        chain, is_ours = given[:1], self._is_of_ca(given[0])
        for it in given[1:LONGEST_CHAIN]:
            if is_ours or not is_issued(chain[-1], it):
                break
            chain.append(it)
            is_ours = self._is_of_ca(it)
        if not is_ours:
            raise Forged("its certificate is not of this federation's CA")
        pem = _pem(chain)
        is_quick = isinstance(key, Ed25519PublicKey | rsa.RSAPublicKey) or getattr(key, "key_size", 0) == QUICK_CURVE
        cost = 0.0001 if is_quick else 0.001
        made = _Signer(name, key, tuple(chain), pem, chain[0].fingerprint(SHA256()), cost)
        return self._signers.get(pem) or self._signers.keep(pem, made, len(pem), lambda it: it.name == name)

    def _is_of_ca(self, certificate: Certificate) -> bool:
        return any(is_issued(certificate, ca) for ca in self._cas)


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
