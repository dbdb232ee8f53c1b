"""A whole federation on this machine: SuperLink and SuperNodes on loopback."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal

from fedparity.deploy import warm as warm_start
from fedparity.deploy.certificates import CA, SERVER, SERVER_KEY, make_certificates, write_node_key
from fedparity.deploy.processes import (
    STEP,
    Child,
    end,
    environment,
    program,
    reason,
    undisturbed,
    until,
)
from fedparity.deploy.table import Value, toml
from fedparity.errors import FedparityError

HOST = "127.0.0.1"
NAME = "local"
"""What the SuperLink is called in Flower's configuration."""
START = 60.0
"""Seconds a program of Flower's has to start."""
FORGET = 90.0
"""Seconds until a SuperLink has noticed the death of a SuperNode, and lets it in again."""
KeyKind = Literal["registered", "unregistered", "none"]
BINARIES = Path(sys.executable).parent


@dataclass
class Node:
    """A SuperNode: what it is called, how it is started, and the process if it runs."""

    name: str
    folder: Path
    key: Path | None = None
    process: Child | None = field(default=None, repr=False)


class LocalFederation:
    """SuperLink and SuperNodes that this process starts, and that end with it.

    Parameters
    ----------
    folder
        A directory of its own, new or empty: logs, keys and the state of the nodes go there.
    secure
        TLS and node authentication, with certificates made for the occasion. ``False`` sends
        everything in the clear and lets any node in.
    warm
        Spare every app the seconds of importing torch, see :mod:`fedparity.deploy.warm`.

    Notes
    -----
    A context manager: what it started has ended when it is left, however it is left.
    """

    def __init__(
        self, folder: Path, *, secure: bool = True, warm: bool = sys.platform == "linux"
    ) -> None:
        self.folder, self.secure, self.warm = folder.absolute(), secure, warm
        self.keys = self.folder / "certificates"
        self.home = self.folder / "superlink"
        self.address = ""
        self.superlink: Child | None = None
        self.nodes: dict[str, Node] = {}
        self._programs = [BINARIES]
        self._began: list[Child] = []
        self._open = ExitStack()

    def __enter__(self) -> LocalFederation:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the SuperLink and wait until it answers."""
        self.home.mkdir(parents=True)
        self.folder.chmod(0o700)
        port = _free_port()
        self.address = f"{HOST}:{port}"
        connection: dict[str, Value] = {"address": self.address, "insecure": not self.secure}
        safety: list[str | Path] = ["--insecure"]
        if self.secure:
            make_certificates(self.keys, nodes=0)
            connection["root-certificates"] = str(self.keys / CA)
            safety = ["--ssl-ca-certfile", self.keys / CA, "--ssl-certfile", self.keys / SERVER]
            safety += ["--ssl-keyfile", self.keys / SERVER_KEY, "--enable-supernode-auth"]
        warm = self._warm() if self.warm else None
        (self.home / "config.toml").write_text(f"[superlink.{NAME}]\n{toml(connection)}")
        self.superlink = self._begin(
            "superlink",
            self.home,
            "flower-superlink",
            *safety,
            *("--host", HOST, "--port", str(port)),
            "--disable-runtime-dependency-installation",
        )
        self.superlink.said("Uvicorn running on", START)
        if warm is not None:
            warm.said(warm_start.READY, START)

    def add_node(self, name: str, config: Mapping[str, Value], key: KeyKind = "registered") -> Node:
        """Start another SuperNode; without a registered key a secure SuperLink will not let it in.

        It is not waited for, so that several can start at the same time: see :meth:`wait_node`.
        """
        folder = self.folder / name
        folder.mkdir()
        (folder / "node.toml").write_text(toml(config))
        node = self.nodes[name] = Node(name, folder)
        if self.secure and key != "none":
            node.key = self._key(node, "key", register=key == "registered")
        self._launch(node)
        return node

    def wait_node(self, name: str) -> int:
        """Wait until a SuperNode is connected, and return the id that the SuperLink gave it."""
        node = self.nodes[name]
        if node.process is None:
            raise FedparityError(f"the SuperNode {name} was not started")
        return int(node.process.said(r"SuperNode ID: (\d+)", START)[1])

    def kill_node(self, name: str) -> None:
        """End a SuperNode without a warning, as a power failure would."""
        process = self.nodes[name].process
        if process is not None:
            end([process], gently=False)

    def restart_node(self, name: str, *, new_key: bool = False) -> int:
        """Start a SuperNode again with the state it had, and wait until it is connected.

        A SuperLink lets a killed SuperNode in again only when it has missed it for a minute, so it
        is tried until then; with a new key, registered beside the old one, it is let in at once.
        """
        node = self.nodes[name]
        if new_key and node.key is not None:
            node.key = self._key(node, f"{node.key.name}-again", register=True)

        def attempt() -> int | None:
            self._launch(node)
            try:
                return self.wait_node(name)
            except FedparityError:
                if node.process is None or "Failed to activate" not in node.process.text():
                    raise
                return None

        return until(f"the SuperLink to take {name} back (see {node.folder})", attempt, FORGET, 3)

    def flwr(self, *words: str | Path) -> str:
        """Run a command of Flower's against this SuperLink and return what it printed."""
        asked = f"'flwr {' '.join(map(str, words))}'"
        try:
            done = subprocess.run(
                [program("flwr"), *map(str, words)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment(self.home, [BINARIES]),
                cwd=self.home,
                text=True,
                timeout=START,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise FedparityError(f"{asked} did not end within {START:g} s") from error
        if done.returncode != 0:
            raise FedparityError(f"{asked} failed: {reason(done.stdout + done.stderr)}")
        return done.stdout

    def start_run(self, app: Path, config: Mapping[str, Value]) -> Child:
        """Submit a run of an app and follow its log; ``config`` overrides the app's run config."""
        file = self.home / "run.toml"
        file.write_text(toml(config))
        return self._begin(
            "run",
            self.home,
            *("flwr", "run", app.absolute(), NAME, "--stream", "--run-config", file),
        )

    def status(self, run: int) -> tuple[str, str]:
        """Return the status of a run, such as ``finished:completed``, and what there is to say."""
        told = json.loads(self.flwr("list", "--run-id", str(run), NAME, "--format", "json"))
        (found,) = told["runs"]
        return str(found["status"]), str(found["status-details"])

    def run(
        self,
        app: Path,
        config: Mapping[str, Value],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Submit a run and wait for its end, calling ``meanwhile`` again and again."""
        child = self.start_run(app, config)
        while child.code is None:
            meanwhile()
            time.sleep(STEP)
        meanwhile()
        if child.code != 0:
            raise FedparityError(f"flwr run failed: {reason(child.text())} (see {child.log})")
        status, details = self.status(run_id(child))
        if status != "finished:completed":
            raise FedparityError(f"the run {status}: {details} (see {child.log})")

    def stop(self) -> None:
        """End all processes that were started here, whatever happens meanwhile."""
        running = [child for child in self._began if child.code is None]
        apart = [child for child in running if child is not self.superlink]
        with undisturbed(), self._open:
            try:
                end(apart)  # nodes take their leave of a SuperLink that still listens
            finally:
                end([child for child in running if child is self.superlink])

    def _warm(self) -> Child:
        """Start the process that forks for apps."""
        private = self._open.enter_context(tempfile.TemporaryDirectory(prefix="fedparity-"))
        door = Path(private) / "door"  # the path of a socket must be short
        programs = self.folder / "programs"
        warm_start.write_programs(programs, door)
        self._programs = [programs, BINARIES]
        return self._begin("warm", self.folder, sys.executable, "-m", warm_start.__name__, door)

    def _key(self, node: Node, file: str, *, register: bool) -> Path:
        path = node.folder / file
        write_node_key(path)
        if register:
            self.flwr("supernode", "register", f"{path}.pub", NAME, "--name", node.name)
        return path

    def _launch(self, node: Node) -> None:
        safety: list[str | Path] = ["--insecure"]
        if self.secure:
            safety = ["--root-certificates", self.keys / CA]
        if node.key is not None:
            safety += ["--auth-supernode-private-key", node.key]
        node.process = self._begin(
            node.name,
            node.folder,
            "flower-supernode",
            *safety,
            *("--superlink", self.address, "--host", HOST, "--port", str(_free_port())),
            *("--node-config", node.folder / "node.toml"),
        )

    def _begin(self, name: str, home: Path, what: str, *words: str | Path) -> Child:
        child = Child(
            name,
            [program(what), *words],
            home / f"{name}.log",
            environment(home, self._programs),
        )
        self._began.append(child)
        return child


def run_id(run: Child) -> int:
    """Return the id that the SuperLink gave to a submitted run."""
    return int(run.said(r"started run (\d+)", START)[1])


def _free_port() -> int:
    """Return a port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
