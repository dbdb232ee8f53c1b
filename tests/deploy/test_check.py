"""Checks before a run: each thing that can be wrong is found and named."""

from __future__ import annotations

import datetime
import http.server
import os
import shutil
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "fedparity[flower]"')

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from fedparity.deploy import certificates
from fedparity.deploy.certificates import make_certificates
from fedparity.deploy.check import check_all, check_ids, reach
from fedparity.errors import InputError


def wrong(keys: Path, host: str | None = None) -> dict[str, str]:
    address = None if host is None else f"{host}:1"
    found = check_all(keys, None, (), address, insecure=False)
    return {one.what: one.found for one in found if not one.fine and "SuperLink at" not in one.what}


def test_what_was_just_made_is_fine(keys):
    assert wrong(keys) == {}
    assert wrong(keys, "superlink.example.org") == {}


def test_a_site_needs_only_the_authority_and_its_key(keys):
    for name in ("server.crt", "server.key", "node-1.pub", "node-2", "node-2.pub"):
        (keys / name).unlink()
    assert wrong(keys) == {}
    (key,) = (
        one for one in check_all(keys, None, (), None, insecure=False) if one.what == "node-1"
    )
    assert key.found == "private key, secp384r1, readable by its owner only"


def test_a_site_whose_private_key_is_bad_is_told_so(keys):
    for name in ("server.crt", "server.key", "node-1.pub", "node-2.pub"):
        (keys / name).unlink()
    (keys / "node-1").chmod(0o644)
    (keys / "node-2").write_bytes((keys / "node-2").read_bytes()[:200])
    found = wrong(keys)
    assert found["node-1"].startswith("others can read it: chmod 600")
    assert found["node-2"].startswith("cannot be read")
    assert set(found) == {"node-1", "node-2"}


def test_the_coordinator_needs_only_the_public_keys_of_nodes(keys):
    (keys / "node-1").unlink()
    assert wrong(keys) == {}


def test_a_directory_without_any_key_is_wrong(keys):
    for path in keys.iterdir():
        if path.name != "ca.crt":
            path.unlink()
    assert "neither server.crt nor" in wrong(keys)["keys"]


def test_a_missing_authority_is_wrong(keys):
    (keys / "ca.crt").unlink()
    assert wrong(keys) == {"ca.crt": "No such file or directory"}


def test_a_file_that_is_no_certificate_is_wrong(keys):
    (keys / "server.crt").write_text("hello")
    assert wrong(keys)["server.crt"].startswith("cannot be read")


def test_certificates_of_the_past_are_wrong(tmp_path, monkeypatch):
    class Past(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime(2020, 1, 1, tzinfo=tz)

    with monkeypatch.context() as patch:
        patch.setattr(certificates.datetime, "datetime", Past)
        make_certificates(tmp_path / "old", 1, days=30)
    found = wrong(tmp_path / "old")
    assert (
        found["ca.crt"] == found["server.crt"] == "no longer valid since 2020-01-30: make new ones"
    )


def test_a_certificate_of_another_authority_is_wrong(keys, tmp_path):
    make_certificates(tmp_path / "other", 1)
    shutil.copy(tmp_path / "other" / "ca.crt", keys / "ca.crt")
    assert "does not follow from ca.crt" in wrong(keys)["server.crt, signature and names"]


def test_a_host_that_the_certificate_does_not_name_is_wrong(keys):
    found = wrong(keys, "elsewhere.example.org")
    assert "not for elsewhere.example.org" in found["server.crt, signature and names"]


def test_a_key_of_another_certificate_is_wrong(keys, tmp_path):
    make_certificates(tmp_path / "other", 1)
    shutil.copy(tmp_path / "other" / "server.key", keys / "server.key")
    assert wrong(keys) == {"server.key": "does not belong to server.crt"}


@pytest.mark.parametrize("name", ["server.key", "node-1"])
def test_a_secret_that_others_can_read_is_wrong(keys, name):
    os.chmod(keys / name, 0o640)
    assert wrong(keys) == {name: f"others can read it: chmod 600 {keys / name}"}


def test_a_private_key_beside_another_public_key_is_wrong(keys):
    shutil.copy(keys / "node-2", keys / "node-1")
    assert wrong(keys) == {"node-1": "does not belong to node-1.pub"}


def test_two_nodes_with_one_key_are_wrong(keys):
    shutil.copy(keys / "node-1.pub", keys / "node-3.pub")
    assert wrong(keys) == {"node-3.pub": "the same key as node-1.pub: a key for each node"}


def test_a_kind_of_key_that_flower_does_not_take_is_wrong(keys):
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    formats = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    (keys / "node-1.pub").write_bytes(key.public_bytes(*formats))
    (keys / "node-2.pub").write_text("-----BEGIN SOMETHING")
    found = wrong(keys)
    assert "is not one of secp256r1" in found["node-1.pub"]
    assert "cannot be read" in found["node-2.pub"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], None),
        (["a"], None),
        (["b", "a"], None),
        (["c"], "'c' is not among them"),
        (["a", "a"], "'a' is used twice; 'b' has no site"),
        (["a", "c"], "'c' is not among them; 'b' has no site"),
    ],
)
def test_ids_must_be_those_of_the_run(given, found):
    problems = [one.found for one in check_ids(["a", "b"], given) if not one.fine]
    assert problems == ([] if found is None else [found])


@pytest.mark.parametrize("clients", [[], ["a", "b", "a"]])
def test_clients_of_a_run_must_be_some_and_different(clients):
    assert [one.fine for one in check_ids(clients, [])] == [False]


def test_going_without_certificates_must_be_asked_for_by_name():
    with pytest.raises(InputError, match="or ask for --insecure"):
        check_all(None, None, (), None, insecure=False)
    assert all(one.fine for one in check_all(None, None, (), None, insecure=True))


@pytest.mark.parametrize("address", ["127.0.0.1", "a:b", ":80", "a:0", "a:70000"])
def test_an_address_has_a_host_and_a_port(address):
    with pytest.raises(InputError, match="not HOST:PORT"):
        check_all(None, None, (), address, insecure=True)


class Health(http.server.BaseHTTPRequestHandler):
    """Answers as a SuperLink does."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def server(keys: Path | None) -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health) as made:
        if keys is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(keys / "server.crt", keys / "server.key")
            made.socket = context.wrap_socket(made.socket, server_side=True)
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made.server_address[1]
        finally:
            made.shutdown()
            thread.join()


def test_a_superlink_with_the_right_certificate_is_reached(keys):
    with server(keys) as port:
        assert reach("localhost", port, keys / "ca.crt").fine


def test_a_superlink_with_a_strange_certificate_is_not_trusted(keys, tmp_path):
    make_certificates(tmp_path / "other", 1)
    with server(keys) as port:
        found = reach("localhost", port, tmp_path / "other" / "ca.crt")
    assert not found.fine
    assert "its certificate is not accepted" in found.found


def test_a_superlink_without_tls_is_reached_only_without_tls(keys):
    with server(None) as port:
        assert reach("127.0.0.1", port, None).fine
        assert not reach("127.0.0.1", port, keys / "ca.crt").fine


def test_nobody_at_the_address_is_wrong(keys):
    with server(None) as port:
        pass
    found = reach("127.0.0.1", port, keys / "ca.crt")
    assert not found.fine
    assert "refused" in found.found
