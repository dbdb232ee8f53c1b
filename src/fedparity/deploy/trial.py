"""A trial of an app on one machine, from the first process to the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedparity.deploy.local import LocalFederation
from fedparity.errors import InputError

MOST = 20
"""SuperNodes on one machine."""


def trial(
    app: Path,
    clients: Sequence[str],
    out: Path,
    folder: Path,
    *,
    secure: bool,
    tell: Callable[[str], None],
) -> None:
    """Run an app with a SuperNode for each client; the run directory is ``out``.

    Logs, keys and the nodes' state go to ``folder``. What was started has ended afterwards.
    """
    if len(clients) > MOST:
        raise InputError(
            f"{app} has {len(clients)} clients, and more than {MOST} SuperNodes are too many for "
            f"one machine: --nodes {MOST}"
        )
    tell(f"starting a SuperLink and {len(clients)} SuperNodes, logs in {folder}")
    with LocalFederation(folder / "federation", secure=secure) as federation:
        names = {f"node-{number}": client for number, client in enumerate(clients, 1)}
        for name, client in names.items():
            state = federation.folder / name / "state"
            federation.add_node(name, {"client-id": client, "state-dir": str(state)})
        for name, client in names.items():
            federation.wait_node(name)
            tell(f"{name} is connected, for {client}")
        federation.run(app, {"clients": ",".join(clients), "out": str(out)}, tell)
