"""A small certificate authority for development and for federations without one.

Time is an argument. Keys and serial numbers use the system's randomness.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedbandit.agent.disk.secret_files import OWNER_ONLY, READABLE, read_public, read_secret, write_together
from fedbandit.agent.gossip.tls import WrongName, certificates_in, key_in, public_bytes, the_name_in
from fedbandit.agent.process.addresses import site_name
from fedbandit.checks import FileError, InvalidArgument, whole_number

__all__ = ["CA_CERTIFICATE", "CA_KEY", "CertsError", "Signed", "Written", "init", "issue", "sign"]

CA_CERTIFICATE, CA_KEY = "ca.crt", "ca.key"
CLOCKS_DIFFER = timedelta(minutes=5)  # a certificate is valid at once, even where the clock is slow
MAX_DAYS = 36_500
LONGEST_COMMON_NAME = 64
LEAST_CURVE, LEAST_RSA = 256, 2048


class CertsError(FileError):
    """Certificates that cannot be created or written."""


@dataclass(frozen=True)
class Written:
    """The paths of a new certificate and its key, and the certificate's expiry."""

    certificate: Path
    key: Path
    until: datetime


@dataclass(frozen=True)
class Signed:
    """The path of a certificate for a key that stays elsewhere, and its expiry."""

    certificate: Path
    until: datetime


PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


def init(folder: Path, name: str, days: int, now: datetime) -> Written:
    """Create a CA: ``ca.crt`` and ``ca.key`` in a folder that has none."""
    if not 1 <= len(name) <= LONGEST_COMMON_NAME or not name.isprintable():
        raise InvalidArgument("--name", name, f"1 to {LONGEST_COMMON_NAME} characters that can be printed")
    until = now + timedelta(days=whole_number("--days", days, 1, MAX_DAYS))
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _common_name(name)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(subject, subject, key.public_key(), now, until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _write(folder / CA_CERTIFICATE, folder / CA_KEY, certificate, key, renew=False)


def issue(
    folder: Path, name: str, days: int, now: datetime, output: Path | None = None, renew: bool = False
) -> Written:
    """Issue a site's certificate and key, signed by the CA in ``folder``; its only name is the site's.

    ``renew`` replaces existing ones, with a new key.
    """
    days = _checked(name, days)
    target = folder if output is None else output
    paths = target / f"{name}.crt", target / f"{name}.key"
    for path in paths:
        if path.exists() and not renew:
            raise CertsError(f"{path} exists already; --renew replaces certificate and key")
    key = ec.generate_private_key(ec.SECP256R1())
    return _write(*paths, _signed(folder, name, key.public_key(), days, now), key, renew)


def sign(
    folder: Path, request: Path, name: str, days: int, now: datetime, output: Path | None = None, renew: bool = False
) -> Signed:
    """Issue a certificate for the key in a site's request; the request must be for this name and no other.

    Only the key is taken from the request: name, dates and uses are ours.
    """
    days = _checked(name, days)
    path = (folder if output is None else output) / f"{name}.crt"
    if path.exists() and not renew:
        raise CertsError(f"{path} exists already; --renew replaces it")
    certificate = _signed(folder, name, _requested_key(request, name), days, now)
    write_together({path: (certificate.public_bytes(Encoding.PEM), READABLE)}, replace=renew)
    return Signed(path, certificate.not_valid_after_utc)


def _checked(name: str, days: int) -> int:
    site_name(name, "NAME")
    if name == Path(CA_KEY).stem:
        raise InvalidArgument("NAME", name, f"different from '{name}': {CA_CERTIFICATE} and {CA_KEY} are the CA's")
    return whole_number("--days", days, 1, MAX_DAYS)


def _requested_key(path: Path, name: str) -> PublicKey:
    """The public key in a request, if its owner made the request, for this name alone."""
    content = read_public(path)
    try:
        request = x509.load_pem_x509_csr(content)
        requested = the_name_in(request)
    except WrongName as error:
        raise CertsError(f"{path}: {error}") from None
    except ValueError:
        raise CertsError(f"{path} holds no certificate request in PEM form") from None
    if requested != name:
        raise CertsError(f"{path} asks for a certificate for {requested}, not for {name}")
    if not request.is_signature_valid:
        raise CertsError(f"{path} is not signed by the key in it: whoever sent it need not have that key")
    key = request.public_key()
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.key_size >= LEAST_CURVE:
        return key
    if isinstance(key, rsa.RSAPublicKey) and key.key_size >= LEAST_RSA:
        return key
    raise CertsError(f"{path} has a key that is neither EC of {LEAST_CURVE} bits nor RSA of {LEAST_RSA}, or more")


def _signed(folder: Path, name: str, key: PublicKey, days: int, now: datetime) -> x509.Certificate:
    ca, ca_key = _ca(folder, now)
    subject = _common_name(name) if len(name) <= LONGEST_COMMON_NAME else x509.Name([])
    until = min(now + timedelta(days=days), ca.not_valid_after_utc)
    ca_identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        _builder(subject, ca.subject, key, now, until)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=not list(subject))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_identifier), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _ca(folder: Path, now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    paths = folder / CA_CERTIFICATE, folder / CA_KEY
    if not any(path.exists() for path in paths):
        raise CertsError(f"{folder} has no CA: make one with 'fedbandit certs init --folder {folder}'")
    certificate = certificates_in(read_public(paths[0]), paths[0])[0]
    key = key_in(read_secret(paths[1]), paths[1])
    if not isinstance(key, ec.EllipticCurvePrivateKey) or public_bytes(certificate.public_key()) != public_bytes(
        key.public_key()
    ):
        raise CertsError(f"{paths[1]} does not belong to {paths[0]}")
    try:
        certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        authority = False
    if not authority:
        raise CertsError(f"{paths[0]} is not the certificate of a CA as 'fedbandit certs init' makes it")
    if now > certificate.not_valid_after_utc:
        raise CertsError(f"{paths[0]} has expired: make a new CA in another folder")
    return certificate, key


def _write(
    path: Path, key_path: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, renew: bool
) -> Written:
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    files = {key_path: (pem, OWNER_ONLY), path: (certificate.public_bytes(Encoding.PEM), READABLE)}
    write_together(files, replace=renew)
    return Written(path, key_path, certificate.not_valid_after_utc)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(until)
    )


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
