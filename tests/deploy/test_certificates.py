"""Certificates and keys for a trial."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "fedparity[flower]"')

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flwr.supercore.primitives.asymmetric import uses_nist_ec_curve

from fedparity.deploy import certificates
from fedparity.deploy.certificates import make_certificates
from fedparity.errors import InputError


def handshake(keys: Path, host: str) -> None:
    """Let a client that trusts ``ca.crt`` and the SuperLink meet, without a network."""
    there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    there.load_cert_chain(keys / "server.crt", keys / "server.key")
    here = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = here.wrap_bio(to_client, to_server, server_hostname=host)
    server = there.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(10):
        for side in [*waiting]:
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    assert not waiting


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "superlink.example.org"])
def test_a_client_accepts_the_superlink_under_each_of_its_names(keys, host):
    handshake(keys, host)


def test_a_client_refuses_the_superlink_under_another_name(keys):
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(keys, "elsewhere.example.org")


def test_a_client_of_another_federation_refuses_the_superlink(keys, tmp_path):
    make_certificates(tmp_path / "other", 1)
    (keys / "ca.crt").write_bytes((tmp_path / "other" / "ca.crt").read_bytes())
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(keys, "localhost")


def test_every_node_has_its_own_key_pair_as_flower_wants_it(keys):
    pairs = [keys / "node-1", keys / "node-2"]
    private = [load_ssh_private_key(path.read_bytes(), None) for path in pairs]
    public = [load_ssh_public_key(path.with_suffix(".pub").read_bytes()) for path in pairs]
    assert all(isinstance(key, ec.EllipticCurvePrivateKey) for key in private)
    assert all(uses_nist_ec_curve(key) for key in public)
    assert [key.public_key() for key in private] == public
    assert public[0] != public[1]


def test_secrets_are_readable_by_their_owner_only_and_the_authority_keeps_none(keys):
    modes = {path.name: path.stat().st_mode & 0o777 for path in keys.iterdir()}
    secret = {name for name, mode in modes.items() if mode == 0o600}
    assert secret == {"server.key", "node-1", "node-2"}
    assert set(modes) - secret == {"ca.crt", "server.crt", "node-1.pub", "node-2.pub"}
    assert keys.stat().st_mode & 0o077 == 0


def test_what_exists_is_not_overwritten(keys):
    before = {path.name: path.read_bytes() for path in keys.iterdir()}
    with pytest.raises(InputError, match="not an empty directory"):
        make_certificates(keys, 2)
    assert {path.name: path.read_bytes() for path in keys.iterdir()} == before


def test_a_failure_in_the_middle_leaves_nothing(tmp_path, monkeypatch):
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(certificates, "write_node_key", full)
    with pytest.raises(OSError, match="No space"):
        make_certificates(tmp_path / "keys", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["https://a.org", "a.org:8000", "", "ä.org", "-a.org", "a..org"])
def test_what_is_not_a_host_is_refused(tmp_path, host):
    with pytest.raises(InputError, match="neither a host name nor an address"):
        make_certificates(tmp_path / "keys", 1, [host])
