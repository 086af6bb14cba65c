"""The small CA, its certificates in real handshakes, and what a site checks before it starts."""

import base64
import os
import re
import shlex
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from typer.testing import CliRunner

from fedbandit.agent.disk import secret_files
from fedbandit.agent.gossip.tls import read_tls, revoked_in
from fedbandit.agent.process.certificates import CertsError, init, issue, sign
from fedbandit.agent.process.config import ConfigError, read_config
from fedbandit.checks import FileError, InvalidArgument
from fedbandit.cli import app

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "certs"
    init(made, "test CA", 3650, NOW)
    return made


def certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def extension(of, kind):
    return of.extensions.get_extension_for_class(kind)


class TestMaking:
    def test_a_ca(self, folder):
        assert sorted(path.name for path in folder.iterdir()) == ["ca.crt", "ca.key"], "nothing else is left behind"
        assert mode(folder / "ca.key") == 0o600
        assert mode(folder / "ca.crt") == 0o644
        ca = certificate(folder / "ca.crt")
        assert ca.subject == ca.issuer == x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
        assert ca.not_valid_before_utc == NOW - timedelta(minutes=5)
        assert ca.not_valid_after_utc == NOW + 3650 * DAY
        assert extension(ca, x509.BasicConstraints).critical
        assert extension(ca, x509.BasicConstraints).value == x509.BasicConstraints(ca=True, path_length=0)
        assert extension(ca, x509.KeyUsage).value.key_cert_sign
        assert not extension(ca, x509.KeyUsage).value.digital_signature

    def test_a_site(self, folder):
        written = issue(folder, "north.example", 825, NOW)
        assert (written.certificate, written.key) == (folder / "north.example.crt", folder / "north.example.key")
        assert mode(written.key) == 0o600
        assert mode(written.certificate) == 0o644
        assert len(list(folder.iterdir())) == 4
        site, ca = certificate(written.certificate), certificate(folder / "ca.crt")
        key = load_pem_private_key(written.key.read_bytes(), None)
        assert isinstance(key.curve, ec.SECP256R1)
        assert site.public_key() == key.public_key()
        assert site.not_valid_before_utc == NOW - timedelta(minutes=5)
        assert site.not_valid_after_utc == written.until == NOW + 825 * DAY
        assert list(extension(site, x509.SubjectAlternativeName).value) == [x509.DNSName("north.example")]
        assert extension(site, x509.BasicConstraints).value == x509.BasicConstraints(ca=False, path_length=None)
        assert extension(site, x509.KeyUsage).value.digital_signature
        assert not extension(site, x509.KeyUsage).value.key_cert_sign
        assert set(extension(site, x509.ExtendedKeyUsage).value) == {
            ExtendedKeyUsageOID.SERVER_AUTH,
            ExtendedKeyUsageOID.CLIENT_AUTH,
        }
        assert (
            extension(site, x509.AuthorityKeyIdentifier).value.key_identifier
            == extension(ca, x509.SubjectKeyIdentifier).value.digest
        )
        assert extension(site, x509.SubjectKeyIdentifier).value == x509.SubjectKeyIdentifier.from_public_key(
            key.public_key()
        )

    @pytest.mark.parametrize("name", ["north", "a.b.example", ".".join(["a" * 49] * 5)])
    def test_both_profiles_verify(self, folder, name):
        """Also where the name is too long for the subject, which holds 64 characters."""
        site = certificate(issue(folder, name, 30, NOW).certificate)
        policy = PolicyBuilder().store(Store([certificate(folder / "ca.crt")])).time(NOW)
        assert len(policy.build_server_verifier(x509.DNSName(name)).verify(site, [])) == 2
        seen = policy.build_client_verifier().verify(site, [])
        assert list(seen.subjects) == [x509.DNSName(name)]
        with pytest.raises(VerificationError):
            policy.build_server_verifier(x509.DNSName("other.example")).verify(site, [])

    def test_a_ca_is_never_replaced(self, folder):
        before = (folder / "ca.key").read_bytes()
        with pytest.raises(FileError, match=r"ca\.key exists already"):
            init(folder, "another", 10, NOW)
        (folder / "ca.key").unlink()
        with pytest.raises(FileError, match=r"ca\.crt exists already"):
            init(folder, "another", 10, NOW)
        assert [path.name for path in folder.iterdir()] == ["ca.crt"], "neither a new key nor a leftover"
        (folder / "ca.key").write_bytes(before)

    def test_renewing(self, folder):
        first = issue(folder, "north", 10, NOW)
        before = first.key.read_bytes(), first.certificate.read_bytes()
        with pytest.raises(CertsError, match=r"north\.crt exists already; --renew replaces certificate and key"):
            issue(folder, "north", 10, NOW)
        assert (first.key.read_bytes(), first.certificate.read_bytes()) == before
        again = issue(folder, "north", 20, NOW + DAY, renew=True)
        assert again.until == NOW + 21 * DAY
        assert mode(again.key) == 0o600
        assert again.key.read_bytes() != before[0]
        assert certificate(again.certificate).serial_number != x509.load_pem_x509_certificate(before[1]).serial_number
        assert len(list(folder.iterdir())) == 4

    def test_another_folder(self, folder, tmp_path):
        written = issue(folder, "north", 10, NOW, output=tmp_path / "to" / "north")
        assert written.key == tmp_path / "to" / "north" / "north.key"
        assert mode(tmp_path / "to" / "north") == 0o700
        assert len(list(folder.iterdir())) == 2

    def test_no_site_outlives_the_ca(self, folder):
        assert issue(folder, "north", 36500, NOW).until == NOW + 3650 * DAY
        with pytest.raises(CertsError, match=r"ca\.crt has expired"):
            issue(folder, "east", 10, NOW + 3651 * DAY)

    def test_what_is_refused(self, folder, tmp_path):
        for name in ("ca", "North", "*.example", "../north", "10.0.0.1", ""):
            with pytest.raises(InvalidArgument, match="NAME must be"):
                issue(folder, name, 10, NOW, renew=True)
        for days in (0, -1, 36501):
            with pytest.raises(InvalidArgument, match="--days must be"):
                issue(folder, "north", days, NOW)
            with pytest.raises(InvalidArgument, match="--days must be"):
                init(tmp_path / "new", "CA", days, NOW)
        for name in ("", "x" * 65, "a\nb"):
            with pytest.raises(InvalidArgument, match="--name must be"):
                init(tmp_path / "new", name, 10, NOW)
        assert not (tmp_path / "new").exists()
        assert len(list(folder.iterdir())) == 2

    def test_a_ca_that_is_none(self, folder, tmp_path):
        with pytest.raises(CertsError, match=r"none has no CA: make one with 'fedbandit certs init --folder .*none'"):
            issue(tmp_path / "none", "north", 10, NOW)
        (folder / "ca.key").chmod(0o640)
        with pytest.raises(FileError, match=r"ca\.key has mode 0640, open to others than its owner: chmod 600 "):
            issue(folder, "north", 10, NOW)
        site = issue(init(tmp_path / "b", "b", 9, NOW).key.parent, "north", 10, NOW)
        (folder / "ca.key").chmod(0o600)
        (folder / "ca.key").write_bytes(site.key.read_bytes())
        with pytest.raises(CertsError, match=r"ca\.key does not belong to .*ca\.crt"):
            issue(folder, "east", 10, NOW)
        (folder / "ca.crt").write_bytes(site.certificate.read_bytes())
        with pytest.raises(CertsError, match=r"ca\.crt is not the certificate of a CA"):
            issue(folder, "east", 10, NOW)


class TestSigning:
    """A certificate for a key that never travels."""

    def request(self, path, *names, key=None, more=()):
        key = key or ec.generate_private_key(ec.SECP256R1())
        builder = x509.CertificateSigningRequestBuilder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "north")]))
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        for extension in more:
            builder = builder.add_extension(extension, critical=True)
        path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
        return key

    def test_only_the_key_is_taken(self, folder, tmp_path):
        key = self.request(
            tmp_path / "csr", x509.DNSName("north"), more=[x509.BasicConstraints(ca=True, path_length=None)]
        )
        signed = sign(folder, tmp_path / "csr", "north", 825, NOW)
        found, as_issued = certificate(signed.certificate), certificate(issue(folder, "east", 825, NOW).certificate)
        assert found.public_key() == key.public_key()
        assert found.subject == x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "north")])
        assert found.not_valid_after_utc == signed.until == NOW + 825 * DAY
        assert {it.oid for it in found.extensions} == {it.oid for it in as_issued.extensions}
        for kind in (x509.BasicConstraints, x509.KeyUsage, x509.ExtendedKeyUsage):
            assert extension(found, kind) == extension(as_issued, kind)
        assert mode(signed.certificate) == 0o644

    @pytest.mark.parametrize(
        ("names", "told"),
        [
            (["north\0.evil"], r"not DNSName 'north\\x00\.evil'"),
            (["north\n"], r"not DNSName 'north\\n'"),
            (["*.north"], r"not DNSName '\*\.north'"),
            (["NORTH"], "not DNSName 'NORTH'"),
            ([], "one name .* not none"),
            (["north", "east"], "one name .* not DNSName 'north', DNSName 'east'"),
            (["east"], "asks for a certificate for east, not for north"),
        ],
    )
    def test_other_names_are_not_signed(self, folder, tmp_path, names, told):
        self.request(tmp_path / "csr", *map(x509.DNSName, names))
        with pytest.raises(CertsError, match=told):
            sign(folder, tmp_path / "csr", "north", 825, NOW)
        assert len(list(folder.iterdir())) == 2

    def test_what_else_is_refused(self, folder, tmp_path):
        path = tmp_path / "csr"
        with pytest.raises(InvalidArgument, match="NAME must be"):
            sign(folder, path, "north\0.evil", 825, NOW)
        path.write_bytes(b"nonsense")
        with pytest.raises(CertsError, match="holds no certificate request in PEM form"):
            sign(folder, path, "north", 825, NOW)
        self.request(path, x509.DNSName("north"), key=rsa.generate_private_key(65537, 1024))  # noqa: S505
        with pytest.raises(CertsError, match="has a key that is neither EC of 256 bits nor RSA of 2048"):
            sign(folder, path, "north", 825, NOW)
        self.request(path, x509.DNSName("north"))
        der = bytearray(x509.load_pem_x509_csr(path.read_bytes()).public_bytes(Encoding.DER))
        der[-1] ^= 1
        lines = base64.encodebytes(der).decode()
        path.write_text(f"-----BEGIN CERTIFICATE REQUEST-----\n{lines}-----END CERTIFICATE REQUEST-----\n")
        with pytest.raises(CertsError, match="is not signed by the key in it"):
            sign(folder, path, "north", 825, NOW)
        self.request(path, x509.DNSName("north"))
        sign(folder, path, "north", 825, NOW)
        with pytest.raises(CertsError, match=r"north\.crt exists already; --renew replaces it"):
            sign(folder, path, "north", 825, NOW)
        sign(folder, path, "north", 825, NOW, renew=True)


class TestWriting:
    def test_nothing_is_half_written(self, tmp_path, monkeypatch):
        """The second file cannot be put in its place: the first goes away again."""
        files = {tmp_path / "a": (b"1", 0o600), tmp_path / "b": (b"2", 0o644)}
        real = secret_files._written_beside

        def somebody_was_faster(path, content, mode):
            beside = real(path, content, mode)
            if path.name == "b":
                path.write_bytes(b"theirs")
            return beside

        monkeypatch.setattr(secret_files, "_written_beside", somebody_was_faster)
        with pytest.raises(FileExistsError):
            secret_files.write_together(files)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"b": b"theirs"}

    def test_a_secret_is_never_readable_for_others(self, tmp_path, monkeypatch):
        seen = []
        real = os.fchmod

        def watched(descriptor, mode):
            seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
            real(descriptor, mode)

        monkeypatch.setattr(os, "fchmod", watched)
        before = os.umask(0)
        try:
            secret_files.write_together({tmp_path / "a": (b"1", 0o600)})
        finally:
            os.umask(before)
        assert seen == [0o600]
        assert mode(tmp_path / "a") == 0o600


def context(side, folder, name, ca):
    made = ssl.SSLContext(side)
    made.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    made.load_verify_locations(ca)
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def shake_hands(server, client, server_name):
    """What each end sees of the other over a real connection, or the error of the end that refused."""
    outcome = {}

    def serve(listener):
        connection, _ = listener.accept()
        with connection:
            try:
                with server.wrap_socket(connection, server_side=True) as secured:
                    outcome["server"] = secured.getpeercert()["subjectAltName"]
                    secured.sendall(b"x")
            except OSError as error:
                outcome["server"] = error

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname(), timeout=10) as connection,
                client.wrap_socket(connection, server_hostname=server_name) as secured,
            ):
                secured.recv(1)  # under TLS 1.3 a client hears here that it is refused
                outcome["client"] = secured.getpeercert()["subjectAltName"]
        except OSError as error:
            outcome["client"] = error
        thread.join()
    return outcome


class TestHandshakes:
    @pytest.fixture
    def sites(self, folder):
        for name in ("north", "east"):
            issue(folder, name, 10, NOW)
        return folder

    def test_two_sites(self, sites):
        server = context(ssl.PROTOCOL_TLS_SERVER, sites, "north", sites / "ca.crt")
        client = context(ssl.PROTOCOL_TLS_CLIENT, sites, "east", sites / "ca.crt")
        assert shake_hands(server, client, "north") == {"server": (("DNS", "east"),), "client": (("DNS", "north"),)}

    def test_a_foreign_client_is_refused(self, sites, tmp_path):
        """Its CA has even the same name."""
        init(tmp_path / "foreign", "test CA", 10, NOW)
        issue(tmp_path / "foreign", "east", 10, NOW)
        server = context(ssl.PROTOCOL_TLS_SERVER, sites, "north", sites / "ca.crt")
        client = context(ssl.PROTOCOL_TLS_CLIENT, tmp_path / "foreign", "east", sites / "ca.crt")
        found = shake_hands(server, client, "north")
        assert isinstance(found["server"], ssl.SSLCertVerificationError)
        assert isinstance(found["client"], OSError)

    def test_a_foreign_server_is_refused(self, sites, tmp_path):
        init(tmp_path / "foreign", "test CA", 10, NOW)
        issue(tmp_path / "foreign", "north", 10, NOW)
        server = context(ssl.PROTOCOL_TLS_SERVER, tmp_path / "foreign", "north", sites / "ca.crt")
        client = context(ssl.PROTOCOL_TLS_CLIENT, sites, "east", sites / "ca.crt")
        assert isinstance(shake_hands(server, client, "north")["client"], ssl.SSLCertVerificationError)

    def test_a_server_of_another_name_is_refused(self, sites):
        server = context(ssl.PROTOCOL_TLS_SERVER, sites, "east", sites / "ca.crt")
        client = context(ssl.PROTOCOL_TLS_CLIENT, sites, "north", sites / "ca.crt")
        assert isinstance(shake_hands(server, client, "north")["client"], ssl.SSLCertVerificationError)

    def test_while_the_ca_changes_both_are_trusted(self, sites, tmp_path):
        """A file with the old and the new CA, of the same name, lets sites of both talk."""
        init(tmp_path / "new", "test CA", 10, NOW)
        issue(tmp_path / "new", "east", 10, NOW)
        both = tmp_path / "both.crt"
        both.write_bytes((sites / "ca.crt").read_bytes() + (tmp_path / "new" / "ca.crt").read_bytes())
        server = context(ssl.PROTOCOL_TLS_SERVER, sites, "north", both)
        client = context(ssl.PROTOCOL_TLS_CLIENT, tmp_path / "new", "east", both)
        assert shake_hands(server, client, "north") == {"server": (("DNS", "east"),), "client": (("DNS", "north"),)}


SITE = """
name = "north"
data = "data"
[federation]
name = "diabetes"
max_agents = 3
arms = ["insulin", "metformin"]
rewards = [0, 1]
policy.epsilon = 1.0
[tls]
certificate = "certs/north.crt"
key = "certs/north.key"
ca = "certs/ca.crt"
"""


def crl(ca, key, *revoked, ends=NOW + DAY):
    """A list of revoked certificates, PEM."""
    builder = x509.CertificateRevocationListBuilder(certificate(ca).subject, ends - 2 * DAY, ends)
    for it in revoked:
        one = x509.RevokedCertificateBuilder(it.serial_number, revocation_date=NOW)
        builder = builder.add_revoked_certificate(one.build())
    return builder.sign(load_pem_private_key(key.read_bytes(), None), hashes.SHA256()).public_bytes(Encoding.PEM)


class TestReading:
    @pytest.fixture
    def config(self, folder):
        issue(folder, "north", 825, NOW)
        path = folder.parent / "site.toml"
        path.write_text(SITE)
        return read_config(path)

    def mistakes(self, config, now=NOW):
        with pytest.raises(ConfigError) as error:
            read_tls(config, now)
        lines = str(error.value).split("\n")
        assert all(line.startswith(f"{config.path}: tls.") for line in lines)
        folder = f"{config.path.parent}/certs/"
        return [line.removeprefix(f"{config.path}: ").replace(folder, "") for line in lines]

    def own(self, config, names=None, issuer=None, uses=None, ca=False):
        """A certificate as another PKI might make it, in place of north's."""
        key = load_pem_private_key(config.tls.key.read_bytes(), None)
        ca_certificate, ca_key = issuer or (
            certificate(config.tls.ca),
            load_pem_private_key((config.tls.ca.parent / "ca.key").read_bytes(), None),
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "north")]))
            .issuer_name(ca_certificate.subject)
            .public_key(key.public_key())
            .serial_number(7)
            .not_valid_before(NOW)
            .not_valid_after(NOW + DAY)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if names is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if uses is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        made = builder.sign(ca_key, hashes.SHA256())
        config.tls.certificate.write_bytes(made.public_bytes(Encoding.PEM))
        return made, key

    def test_good_files(self, config):
        found = read_tls(config, NOW)
        assert found.certificate == config.tls.certificate.read_bytes()
        assert found.key == config.tls.key.read_bytes()
        assert found.ca == config.tls.ca.read_bytes()
        assert "PRIVATE" not in repr(found)

    def test_all_files_are_missing(self, config):
        for path in (config.tls.certificate, config.tls.key, config.tls.ca):
            path.unlink()
        assert self.mistakes(config) == [
            "tls.certificate: north.crt: no such file",
            "tls.key: north.key: no such file",
            "tls.ca: ca.crt: no such file",
        ]

    def test_no_file_is_pem(self, config):
        for path in (config.tls.certificate, config.tls.key, config.tls.ca):
            path.write_bytes(b"-----BEGIN nonsense\xff")
        assert self.mistakes(config) == [
            "tls.certificate: north.crt holds no certificate in PEM form",
            "tls.key: north.key holds no private key in PEM form",
            "tls.ca: ca.crt holds no certificate in PEM form",
        ]

    def test_files_are_swapped(self, config):
        config.tls.certificate.write_bytes(config.tls.key.read_bytes())
        config.tls.key.write_bytes(config.tls.ca.read_bytes())
        assert self.mistakes(config) == [
            "tls.certificate: north.crt holds no certificate in PEM form",
            "tls.key: north.key holds no private key in PEM form",
        ]

    @pytest.mark.parametrize("wrong", [0o640, 0o604, 0o644, 0o660])
    def test_a_key_that_others_can_read(self, config, wrong):
        config.tls.key.chmod(wrong)
        assert self.mistakes(config) == [
            f"tls.key: north.key has mode {wrong:04o}, open to others than its owner: chmod 600 north.key"
        ]

    def test_a_key_with_a_password(self, config):
        key = load_pem_private_key(config.tls.key.read_bytes(), None)
        locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
        config.tls.key.write_bytes(locked)
        assert self.mistakes(config) == [
            "tls.key: north.key is locked with a password; an agent that starts by itself cannot use it"
        ]

    def test_the_key_of_another(self, config):
        """Of another kind even, and every other check is still made."""
        other = rsa.generate_private_key(65537, 2048)
        config.tls.key.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        end = NOW + 825 * DAY
        assert self.mistakes(config, end + DAY) == [
            f"tls.certificate: north.crt has expired: it was valid until {end:%Y-%m-%d %H:%M} UTC",
            "tls.key: north.key does not belong to north.crt",
        ]

    def test_time(self, config):
        read_tls(config, NOW - timedelta(minutes=5))
        read_tls(config, NOW + 825 * DAY)
        assert self.mistakes(config, NOW - timedelta(minutes=6)) == [
            f"tls.{name} is not valid yet: it will be from {NOW - timedelta(minutes=5):%Y-%m-%d %H:%M} UTC on. "
            "Is this machine's clock right?"
            for name in ("certificate: north.crt", "ca: ca.crt")
        ]
        late = NOW + 825 * DAY + timedelta(seconds=1)
        assert self.mistakes(config, late) == [
            f"tls.certificate: north.crt has expired: it was valid until {NOW + 825 * DAY:%Y-%m-%d %H:%M} UTC"
        ]

    @pytest.mark.parametrize(
        ("names", "told"),
        [
            (None, "no name (SAN)"),
            ([x509.DNSName("east")], "DNS:east"),
            ([x509.DNSName("*.north")], "DNS:*.north"),
            ([x509.DNSName("north"), x509.DNSName("east")], "DNS:north, DNS:east"),
            ([x509.DNSName("north"), x509.IPAddress(ip_address("10.0.0.1"))], "DNS:north, IPAddress:10.0.0.1"),
            ([x509.UniformResourceIdentifier("north")], "UniformResourceIdentifier:north"),
        ],
    )
    def test_the_name(self, config, names, told):
        """The common name, which is right, does not count."""
        self.own(config, names)
        assert self.mistakes(config) == [
            f"tls.certificate: north.crt is for {told}; it must be for DNS:north alone, the name of this site"
        ]

    def test_the_uses(self, config):
        names = [x509.DNSName("north")]
        self.own(config, names)
        read_tls(config, NOW)
        self.own(config, names, uses=[ExtendedKeyUsageOID.SERVER_AUTH])
        assert self.mistakes(config) == [
            "tls.certificate: north.crt is not for use as a TLS client (extended key usage); a site is both"
        ]

    def test_a_foreign_ca(self, config, tmp_path):
        """Not even one of the same name."""
        config.tls.ca.write_bytes(init(tmp_path / "foreign", "test CA", 10, NOW).certificate.read_bytes())
        assert self.mistakes(config) == ["tls.ca: ca.crt did not sign north.crt, which was signed by 'CN=test CA'"]

    def test_a_site_is_no_ca(self, config):
        """A neighbour's key cannot make certificates."""
        east = issue(config.tls.ca.parent, "east", 10, NOW)
        signer = certificate(east.certificate), load_pem_private_key(east.key.read_bytes(), None)
        self.own(config, [x509.DNSName("north")], issuer=signer)
        with config.tls.certificate.open("ab") as file:
            file.write(east.certificate.read_bytes())
        assert self.mistakes(config) == ["tls.ca: ca.crt did not sign north.crt, which was signed by 'CN=east'"]

    def test_several_cas_and_a_ca_between(self, config, tmp_path):
        """An own PKI: the file of the CA holds another one first, the site's own an intermediate CA."""
        between, between_key = self.own(config, ca=True)
        self.own(config, [x509.DNSName("north")], issuer=(between, between_key))
        assert self.mistakes(config) == ["tls.ca: ca.crt did not sign north.crt, which was signed by 'CN=north'"]
        with config.tls.certificate.open("ab") as file:
            file.write(between.public_bytes(Encoding.PEM))
        read_tls(config, NOW)
        other = init(tmp_path / "foreign", "other", 10, NOW).certificate.read_bytes()
        config.tls.ca.write_bytes(other + config.tls.ca.read_bytes())
        read_tls(config, NOW)

    def test_a_list_of_revoked_certificates(self, config, tmp_path):
        """Of one CA, or of several one after the other; each is signed by a CA that the site trusts."""
        path = config.path.parent / "revoked.pem"
        config = replace(config, tls=replace(config.tls, crl=path))
        east = certificate(issue(config.tls.ca.parent, "east", 10, NOW).certificate)
        assert self.mistakes(config) == [f"tls.crl: {path}: no such file"]
        path.write_bytes(b"nonsense")
        assert self.mistakes(config) == [
            f"tls.crl: {path} holds no list of revoked certificates (X509 CRL) in PEM form"
        ]
        foreign = init(tmp_path / "foreign", "test CA", 10, NOW)
        path.write_bytes(crl(foreign.certificate, foreign.key, east))
        assert self.mistakes(config) == [f"tls.crl: {path} holds a list that no CA of tls.ca has signed"]
        ours = config.tls.ca, config.tls.ca.with_name("ca.key")
        path.write_bytes(crl(*ours, east, ends=NOW - DAY))  # overdue: revoked is revoked
        found = read_tls(config, NOW)
        assert revoked_in(found.crl, [certificate(config.tls.ca)]) == {(east.issuer, east.serial_number)}
        config.tls.ca.write_bytes(config.tls.ca.read_bytes() + foreign.certificate.read_bytes())
        path.write_bytes(crl(*ours) + crl(foreign.certificate, foreign.key, east))
        found = read_tls(config, NOW)
        cas = x509.load_pem_x509_certificates(config.tls.ca.read_bytes())
        assert revoked_in(found.crl, cas) == {(east.issuer, east.serial_number)}


class TestCommands:
    def invoke(self, *arguments):
        return CliRunner().invoke(app, ["certs", *map(str, arguments)])

    def test_from_nothing_to_a_site(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        made = self.invoke("init", "--name", "diabetes CA", "--days", 1000)
        assert made.exit_code == 0, made.output
        until = datetime.now(UTC) + timedelta(days=1000)
        assert made.output.splitlines() == [
            f"wrote certs/ca.crt, valid until {until:%Y-%m-%d}: every site needs a copy",
            "wrote certs/ca.key: anyone who has it can impersonate any site. No site needs it; keep it offline",
        ]
        issued = self.invoke("issue", "north")
        until = datetime.now(UTC) + timedelta(days=825)
        assert issued.output.splitlines() == [
            f"wrote certs/north.crt and certs/north.key, valid until {until:%Y-%m-%d}",
            "site north needs both and certs/ca.crt. Copy the key nowhere else, and keep certs/ca.key offline",
        ]
        (tmp_path / "site.toml").write_text(SITE)
        read_tls(read_config(tmp_path / "site.toml"), datetime.now(UTC))
        assert certificate(tmp_path / "certs" / "north.crt").issuer.rfc4514_string() == "CN=diabetes CA"
        assert self.invoke("issue", "north", "--renew", "--days", 1).exit_code == 0
        assert self.invoke("issue", "north", "-o", "elsewhere").exit_code == 0
        assert (tmp_path / "elsewhere" / "north.key").exists()

    def test_the_documents_commands(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        text = (Path(__file__).parents[1] / "docs" / "certificates.md").read_text(encoding="utf-8")
        blocks = re.findall(r"```sh\n(fedbandit certs (?!sign).*?)```", text, re.DOTALL)
        commands = [line for block in blocks for line in block.splitlines()]
        assert len(commands) == 4
        for command in commands:
            program, *arguments = shlex.split(command)
            assert program == "fedbandit"
            ran = CliRunner().invoke(app, arguments)
            assert ran.exit_code == 0, ran.output
        assert {path.name for path in (tmp_path / "certs").iterdir()} == {
            *("ca.crt", "ca.key", "north.crt", "north.key", "east.crt", "east.key")
        }

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
    def test_the_documents_way_in_which_no_key_travels(self, tmp_path, monkeypatch):
        """The site's commands and the CA's, as printed: what comes out is what an agent accepts."""
        monkeypatch.chdir(tmp_path)
        text = (Path(__file__).parents[1] / "docs" / "certificates.md").read_text(encoding="utf-8")
        (ours,) = re.findall(r"```sh\n(openssl req .*?)```", text, re.DOTALL)
        (theirs,) = re.findall(r"```sh\nfedbandit (certs sign .*?)\n```", text)
        assert self.invoke("init").exit_code == 0
        subprocess.run(["/bin/sh", "-ec", ours], capture_output=True, check=True)
        signed = CliRunner().invoke(app, shlex.split(theirs))
        until = datetime.now(UTC) + timedelta(days=825)
        assert signed.output.splitlines() == [
            f"wrote certs/north.crt, valid until {until:%Y-%m-%d}",
            "site north needs it and certs/ca.crt; it has its key already",
        ]
        (tmp_path / "north.key").rename(tmp_path / "certs" / "north.key")
        (tmp_path / "site.toml").write_text(SITE)
        read_tls(read_config(tmp_path / "site.toml"), datetime.now(UTC))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["init"], "certs/ca.key exists already"),
            (["issue", "north"], "certs/north.crt exists already; --renew replaces certificate and key"),
            (["issue", "ca"], "NAME must be different from 'ca': ca.crt and ca.key are the CA's, not 'ca'"),
            (["issue", "x", "--folder", "none"], "none has no CA: make one with 'fedbandit certs init --folder none'"),
            (["issue", "x", "--days", "0"], "--days must be a whole number from 1 to 36500, not 0"),
            (
                ["issue", "x", "-o", "/dev/null/x"],
                "--output must be a folder that this user can write to, not '/dev/null/x'",
            ),
        ],
    )
    def test_mistakes_are_one_line(self, tmp_path, monkeypatch, arguments, message):
        monkeypatch.chdir(tmp_path)
        self.invoke("init")
        self.invoke("issue", "north")
        refused = self.invoke(*arguments)
        assert refused.exit_code == 2
        assert refused.output == f"error: {message}\n"

    def test_help_loads_nothing_heavy(self):
        code = (
            "import sys\n"
            "from typer.testing import CliRunner\n"
            "from fedbandit.cli import app\n"
            "assert 'certs' in CliRunner().invoke(app, ['--help']).output\n"
            "assert 'issue' in CliRunner().invoke(app, ['certs', '--help']).output\n"
            "print(*sorted({'cryptography', 'fedbandit.toml_files', 'numpy', 'numba'} & set(sys.modules)))\n"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == ""
