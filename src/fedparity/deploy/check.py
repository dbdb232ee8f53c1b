"""What can be verified before a run: versions, certificates, keys, ids and the connection."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator, Sequence
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement

from fedparity.deploy.app import clients_of
from fedparity.deploy.certificates import CA
from fedparity.deploy.finding import Finding
from fedparity.deploy.keys import check_certificates, check_node_keys
from fedparity.errors import InputError

PATIENCE = 10.0
"""Seconds that a connection may take."""


def check_all(
    directory: Path | None,
    app: Path | None,
    client_ids: Sequence[str],
    address: str | None,
    *,
    insecure: bool,
) -> list[Finding]:
    """Return what was verified; what is not there to verify is left out.

    Parameters
    ----------
    directory
        Of the SuperLink: ``ca.crt``, ``server.crt``, ``server.key`` and the nodes' public keys. Of
        a site: ``ca.crt`` and its private key.
    app
        The Flower app.
    client_ids
        One id: of this site. Several: of all sites.
    address
        Host and port of the SuperLink.
    insecure
        Whether to go without certificates.
    """
    if directory is None and not insecure:
        raise InputError(
            "name the directory of certificates and keys ('fedparity flower certificates DIR "
            "--nodes 3' makes one), or ask for --insecure"
        )
    if client_ids and app is None:
        raise InputError("--client-id is compared with the app's clients: add --app DIR")
    host, port = _parse(address) if address is not None else (None, 0)
    found = [flwr_version()]
    if directory is not None:
        found += check_certificates(directory, host)
        found += check_node_keys(directory)
    if app is not None:
        found += check_ids(clients_of(app), client_ids)
    if host is not None:
        found.append(reach(host, port, None if directory is None else directory / CA))
    return found


def flwr_version() -> Finding:
    """Tell whether the installed Flower is one that fedparity works with."""
    wanted = next(
        one for one in map(Requirement, requires("fedparity") or ()) if one.name == "flwr"
    ).specifier
    installed = version("flwr")
    fine = wanted.contains(installed)
    return Finding("flwr", installed if fine else f"{installed}, but it must be {wanted}", fine)


def check_ids(clients: Sequence[str], given: Sequence[str]) -> Iterator[Finding]:
    """Compare the ids that sites use with those that the run expects."""
    twice = sorted({name for name in clients if clients.count(name) > 1})
    if not clients:
        yield Finding("clients of the app", "none: 'clients' of its run config is empty", False)
    elif twice:
        yield Finding("clients of the app", f"{', '.join(twice)} stands there twice", False)
    else:
        yield Finding("clients of the app", ", ".join(clients), True)
    if not given:
        return
    problems = [f"'{name}' is not among them" for name in given if name not in clients]
    problems += [f"'{name}' is used twice" for name in sorted(set(given)) if given.count(name) > 1]
    if len(given) > 1:
        problems += [f"'{name}' has no site" for name in clients if name not in given]
    yield Finding("ids of the sites", "; ".join(problems) or ", ".join(given), not problems)


def reach(host: str, port: int, ca: Path | None) -> Finding:
    """Connect as a SuperNode would and ask whether a SuperLink is there."""
    what = f"SuperLink at {host}:{port}"
    connection: http.client.HTTPConnection
    try:
        if ca is None:
            connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
        else:
            context = ssl.create_default_context(cafile=str(ca))
            connection = http.client.HTTPSConnection(host, port, timeout=PATIENCE, context=context)
        connection.request("GET", "/health")
        status = connection.getresponse().status
        connection.close()
    except (OSError, http.client.HTTPException) as error:
        return Finding(what, f"no connection: {_cause(error)}", False)
    if status != http.client.OK:
        return Finding(what, f"something answers, but not a SuperLink (status {status})", False)
    return Finding(what, "answers" if ca is None else "answers, its certificate is right", True)


def _cause(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    return str(error) or type(error).__name__


def _parse(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"--address '{address}' is not HOST:PORT, such as 127.0.0.1:8000")
    return host.strip("[]"), int(port)
