"""Verification of certificates and keys on disk."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from fedparity.deploy.certificates import CA, SERVER, SERVER_KEY
from fedparity.deploy.finding import Finding

CURVES = ("secp256r1", "secp384r1", "secp521r1")
"""The curves that Flower takes."""
PRIVATE = b"-----BEGIN OPENSSH PRIVATE KEY-----"
UNREADABLE = (OSError, ValueError, TypeError, UnsupportedAlgorithm)


def check_certificates(directory: Path, host: str | None) -> Iterator[Finding]:
    """Verify the authority, and the SuperLink's certificate and key where they are here."""
    try:
        ca = x509.load_pem_x509_certificate((directory / CA).read_bytes())
    except UNREADABLE as error:
        yield Finding(CA, _unreadable(error), False)
        return
    yield _dates(CA, ca)
    certificate, key = directory / SERVER, directory / SERVER_KEY
    if certificate.exists() or key.exists():
        yield from _server(certificate, key, ca, host)


def check_node_keys(directory: Path) -> Iterator[Finding]:
    """Verify the key pairs, public keys and private keys of SuperNodes that are here."""
    seen: dict[bytes, str] = {}
    publics = sorted(directory.glob("*.pub"))
    lonely = [
        path for path in _privates(directory) if path.with_name(f"{path.name}.pub") not in publics
    ]
    if not publics and not lonely and not (directory / SERVER).exists():
        yield Finding("keys", f"neither {SERVER} nor the key of a SuperNode is here", False)
    for private in lonely:
        try:
            found = serialization.load_ssh_private_key(private.read_bytes(), None)
        except UNREADABLE as error:
            yield Finding(private.name, _unreadable(error), False)
            continue
        yield _alone(private, found.public_key())
    for public in publics:
        try:
            key = serialization.load_ssh_public_key(public.read_bytes())
        except UNREADABLE as error:
            yield Finding(public.name, _unreadable(error), False)
            continue
        text = _text(key)
        if text in seen:
            yield Finding(public.name, f"the same key as {seen[text]}: a key for each node", False)
            continue
        seen[text] = public.name
        yield _node(public, key)


def _privates(directory: Path) -> list[Path]:
    """Return the files that are private keys as SuperNodes have them."""
    found = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if path.is_file():
            with path.open("rb") as file:
                if file.read(len(PRIVATE)) == PRIVATE:
                    found.append(path)
    return found


def _server(
    certificate: Path, key: Path, ca: x509.Certificate, host: str | None
) -> Iterator[Finding]:
    try:
        leaf, *between = x509.load_pem_x509_certificates(certificate.read_bytes())
    except UNREADABLE as error:
        yield Finding(SERVER, _unreadable(error), False)
        return
    yield _dates(SERVER, leaf)
    yield _chain(leaf, between, ca, host)
    try:
        private = serialization.load_pem_private_key(key.read_bytes(), None)
    except UNREADABLE as error:
        yield Finding(SERVER_KEY, _unreadable(error), False)
        return
    yield _secret(key, _text(private.public_key()) == _text(leaf.public_key()), SERVER)


def _chain(
    leaf: x509.Certificate, between: list[x509.Certificate], ca: x509.Certificate, host: str | None
) -> Finding:
    names = _names(leaf)
    asked = host or next(iter(names), "localhost")
    try:
        subject: x509.DNSName | x509.IPAddress = x509.IPAddress(ipaddress.ip_address(asked))
    except ValueError:
        subject = x509.DNSName(asked)
    try:
        verifier = PolicyBuilder().store(Store([ca])).build_server_verifier(subject)
        verifier.verify(leaf, between)
    except VerificationError as error:
        if host is not None and host not in names:
            why = f"it is for {', '.join(names)}, not for {host}: make another with --host {host}"
        else:
            why = f"it does not follow from {CA}: {error}"
        return Finding(f"{SERVER}, signature and names", why, False)
    return Finding(f"{SERVER}, signature and names", f"signed by {CA}, {', '.join(names)}", True)


def _names(leaf: x509.Certificate) -> list[str]:
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = found.get_values_for_type(x509.IPAddress)
    return [*found.get_values_for_type(x509.DNSName), *map(str, addresses)]


def _dates(what: str, certificate: x509.Certificate) -> Finding:
    now = datetime.datetime.now(datetime.timezone.utc)
    begin, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begin:
        return Finding(what, f"not valid before {begin:%Y-%m-%d}", False)
    if now > last:
        return Finding(what, f"no longer valid since {last:%Y-%m-%d}: make new ones", False)
    return Finding(what, f"valid until {last:%Y-%m-%d}", True)


def _strange(path: Path, key: PublicKeyTypes) -> Finding | None:
    """Return what is wrong with the kind of a key."""
    kind = _kind(key)
    if kind in CURVES:
        return None
    return Finding(
        path.name, f"{kind} is not one of {', '.join(CURVES)}, which Flower takes", False
    )


def _kind(key: PublicKeyTypes) -> str:
    return key.curve.name if isinstance(key, ec.EllipticCurvePublicKey) else type(key).__name__


def _alone(private: Path, key: PublicKeyTypes) -> Finding:
    strange = _strange(private, key) or _open(private)
    told = f"private key, {_kind(key)}, readable by its owner only"
    return strange or Finding(private.name, told, True)


def _node(public: Path, key: PublicKeyTypes) -> Finding:
    if strange := _strange(public, key):
        return strange
    path = public.with_suffix("")
    if not path.exists():
        return Finding(public.name, f"public key, {_kind(key)}", True)
    try:
        private = serialization.load_ssh_private_key(path.read_bytes(), None)
    except UNREADABLE as error:
        return Finding(path.name, _unreadable(error), False)
    return _secret(path, _text(private.public_key()) == _text(key), public.name)


def _secret(path: Path, matches: bool, other: str) -> Finding:
    if not matches:
        return Finding(path.name, f"does not belong to {other}", False)
    return _open(path) or Finding(
        path.name, f"belongs to {other}, readable by its owner only", True
    )


def _open(path: Path) -> Finding | None:
    """Tell of a secret that others can read."""
    if path.stat().st_mode & 0o077:
        return Finding(path.name, f"others can read it: chmod 600 {path}", False)
    return None


def _text(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _unreadable(error: Exception) -> str:
    if isinstance(error, OSError):
        return str(error.strerror)
    return f"cannot be read: {' '.join(str(error).split())[:120]}"
