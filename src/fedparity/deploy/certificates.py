"""Certificates and keys for a trial federation.

One self-signed authority signs one certificate, the SuperLink's; its own key is never written, so
that nothing else can be signed with it. Each SuperNode gets a key pair, whose public half is
registered with the SuperLink.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedparity.errors import InputError

CA, SERVER, SERVER_KEY = "ca.crt", "server.crt", "server.key"
LOOPBACK = ("localhost", "127.0.0.1")
LONGEST = 825
"""Days; some clients refuse a server certificate that is valid for longer."""


def node_key(number: int) -> str:
    """Return the name of a node's private key; the public one ends in ``.pub``."""
    return f"node-{number}"


def make_certificates(
    directory: Path, nodes: int, hosts: Sequence[str] = (), days: int = 90
) -> list[Path]:
    """Write a new directory with all that a federation of ``nodes`` needs, and return its files.

    The directory appears complete or not at all, and nothing that exists is changed.
    """
    if not 1 <= days <= LONGEST:
        raise InputError(f"--days must be between 1 and {LONGEST}, not {days}")
    names = [_general_name(host) for host in dict.fromkeys((*LOOPBACK, *hosts))]
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(f"{directory} is not an empty directory: choose another one")
    directory.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        _fill(beside, nodes, names, days)
        beside.rename(directory)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return sorted(directory.iterdir())


def _fill(folder: Path, nodes: int, names: list[x509.GeneralName], days: int) -> None:
    ca_key, server_key = _key(), _key()
    ca = _authority(ca_key, days)
    server = _server(server_key, ca, ca_key, names, days)
    _write(folder / CA, ca.public_bytes(serialization.Encoding.PEM), secret=False)
    _write(folder / SERVER, server.public_bytes(serialization.Encoding.PEM), secret=False)
    pkcs8 = serialization.PrivateFormat.PKCS8
    _write(folder / SERVER_KEY, _private(server_key, pkcs8), secret=True)
    for number in range(1, nodes + 1):
        write_node_key(folder / node_key(number))


def write_node_key(path: Path) -> None:
    """Write a new key pair of a SuperNode: ``path`` and ``path.pub``, as OpenSSH writes them."""
    key = _key()
    _write(path, _private(key, serialization.PrivateFormat.OpenSSH), secret=True)
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    _write(path.with_name(f"{path.name}.pub"), public + b"\n", secret=False)


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _private(key: ec.EllipticCurvePrivateKey, kind: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())


def _write(path: Path, content: bytes, *, secret: bool) -> None:
    """Write a new file; a secret one is never readable by others, not even for a moment."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(path, flags, 0o600 if secret else 0o644), "wb") as file:
        file.write(content)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    labels = host.split(".")
    fine = all(
        label.isascii() and label.replace("-", "").isalnum() and label.strip("-") == label
        for label in labels
    )
    if not fine or len(host) > 253:
        raise InputError(
            f"--host '{host}' is neither a host name nor an address: write superlink.example.org, "
            "without protocol and port"
        )
    return x509.DNSName(host)


def _builder(subject: x509.Name, issuer: x509.Name, days: int) -> x509.CertificateBuilder:
    start = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=5)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _authority(key: ec.EllipticCurvePrivateKey, days: int) -> x509.Certificate:
    name = _name("fedparity trial authority")
    return (
        _builder(name, name, days)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )


def _server(
    key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    names: list[x509.GeneralName],
    days: int,
) -> x509.Certificate:
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _builder(_name("fedparity trial SuperLink"), ca.subject, days)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(issuer, critical=False)
        .sign(ca_key, hashes.SHA384())
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
