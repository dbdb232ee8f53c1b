"""A trial of an app on one machine, from the first process to the last."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

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
        federation.run(
            app, {"clients": ",".join(clients), "out": str(out)}, _Rounds(out / "log.jsonl", tell)
        )


class _Rounds:
    """Tells of each round in one line, as soon as the run directory knows of it."""

    def __init__(self, log: Path, tell: Callable[[str], None]) -> None:
        self.log, self.tell, self.told = log, tell, 0

    def __call__(self) -> None:
        if not self.log.exists():
            return
        lines = self.log.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        for line in whole[self.told :]:
            self.tell(round_line(json.loads(line)))
        self.told = len(whole)


def round_line(told: Mapping[str, Any]) -> str:
    """Return what the log tells of a round, or of an evaluation, in one line.

    >>> round_line({"round": 2, "asked": 3, "answered": 2, "failed": {"va": "no answer in 9 s"}})
    'round 2: 2 of 3 answered; va: no answer in 9 s'
    >>> round_line({"round": 3, "asked": 3, "answered": 1, "failed": {}, "skipped": True})
    'round 3: 1 of 3 answered, too few: skipped'
    """
    counts = f"{told['answered']} of {told['asked']} answered" if "asked" in told else "evaluation"
    counts += ", too few: skipped" if told.get("skipped") else ""
    failed = [f"; {client}: {why}" for client, why in told.get("failed", {}).items()]
    return f"round {told['round']}: {counts}{''.join(failed)}"
