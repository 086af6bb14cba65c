"""Signs changes of the arms with a site's TLS key, and verifies those of others.

A change carries the signer's certificate: issued by the federation's CA, for the name that the change gives. Its dates
are not checked: a change must hold for years, and outlives the certificate that signed it.
"""

from functools import cached_property
from itertools import pairwise

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import Certificate, load_pem_x509_certificates

from fedbandit.agent.core.arm_changes import ArmChange, Proof
from fedbandit.agent.gossip.identity import WrongName, the_name_in
from fedbandit.agent.gossip.tls import TlsFiles, is_issued
from fedbandit.checks import InvalidArgument

__all__ = ["Signatures"]

LONGEST_CHAIN = 4
"""The most certificates of a signer, from its own on."""

_PSS = padding.PSS(padding.MGF1(SHA256()), padding.PSS.MAX_LENGTH)


class Signatures:
    """A site's key, and the CA that it trusts; without TLS nothing is signed, and only that is accepted."""

    def __init__(self, tls: TlsFiles | None) -> None:
        """Keys are read when they are first needed."""
        self._tls = tls

    def sign(self, content: bytes) -> Proof:
        """The site's certificates, and its signature of a change."""
        if self._tls is None:
            return b"", b""
        key = load_pem_private_key(self._tls.key, password=None)
        match key:
            case ec.EllipticCurvePrivateKey():
                signature = key.sign(content, ec.ECDSA(SHA256()))
            case rsa.RSAPrivateKey():
                signature = key.sign(content, _PSS, SHA256())
            case Ed25519PrivateKey():
                signature = key.sign(content)
            case _:
                kind = type(key).__name__.removesuffix("PrivateKey")
                raise InvalidArgument(
                    "tls.key", kind, "an elliptic curve, RSA or Ed25519 key, to sign a change of the arms"
                )
        chain = _in_order(load_pem_x509_certificates(self._tls.certificate))
        return b"".join(it.public_bytes(Encoding.PEM) for it in chain), signature

    def why_not(self, change: ArmChange) -> str | None:
        """Why a change is not genuine; None: it is."""
        if self._tls is None:
            return "it is signed, and this agent has no certificates" if change.signature else None
        try:
            chain = load_pem_x509_certificates(change.certificates)
        except ValueError:
            return "it has no certificate"
        try:
            name = the_name_in(chain[0])
        except (WrongName, ValueError) as error:
            return str(error)
        if name != change.by:
            return f"{name} has signed it"
        issued = len(chain) <= LONGEST_CHAIN and all(is_issued(it, by) for it, by in pairwise(chain))
        if not issued or not any(is_issued(chain[-1], ca) for ca in self._cas):
            return "its certificate is not of this federation's CA"
        return None if _is_good(chain[0], change) else "its signature is wrong"

    @cached_property
    def _cas(self) -> list[Certificate]:
        return [] if self._tls is None else load_pem_x509_certificates(self._tls.ca)


def _in_order(found: list[Certificate]) -> list[Certificate]:
    """A site's certificate, and those after it in its file that lead to the CA."""
    chain, others = found[:1], found[1:]
    while len(chain) < LONGEST_CHAIN and (issuer := next((it for it in others if is_issued(chain[-1], it)), None)):
        others.remove(issuer)
        chain.append(issuer)
    return chain


def _is_good(certificate: Certificate, change: ArmChange) -> bool:
    try:
        match key := certificate.public_key():
            case ec.EllipticCurvePublicKey():
                key.verify(change.signature, change.content, ec.ECDSA(SHA256()))
            case rsa.RSAPublicKey():
                key.verify(change.signature, change.content, _PSS, SHA256())
            case Ed25519PublicKey():
                key.verify(change.signature, change.content)
            case _:
                return False
    except (InvalidSignature, ValueError):
        return False
    return True
