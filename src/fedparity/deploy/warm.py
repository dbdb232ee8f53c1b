"""Quick starts for a trial: a process that has imported everything, and forks for each app.

Flower starts a fresh process for every message to a ClientApp, which spends seconds on importing
torch. On one machine with few cores this is nearly all the time of a run. So a trial puts small
programs of the same name before Flower's on the path; each hands its arguments to the warm process,
which forks. The app still runs in a process of its own, which ends when the small program ends, and
the other way round. A real site has none of this.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import threading
import traceback
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from fedparity.deploy.processes import program as find

PROGRAMS = ("flwr-clientapp", "flwr-serverapp")
MODULES = (
    "fedparity.flower.client_app",
    "fedparity.flower.server_app",
    "fedparity.reports.html",
)
READY = "ready to fork"
FDS = 3
PROGRAM = """#!{python} -SE
import json, os, socket, sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
    try:
        door.connect({door!r})
    except OSError:
        os.execv({real!r}, [{real!r}, *sys.argv[1:]])
    request = [{name!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]
    socket.send_fds(door, [json.dumps(request).encode()], [0, 1, 2])
    door.recv(1)
"""


def write_programs(folder: Path, door: Path) -> None:
    """Write the small programs that ask at ``door``, or do it themselves if nobody is there."""
    folder.mkdir()
    for name in PROGRAMS:
        program = folder / name
        text = PROGRAM.format(python=sys.executable, door=str(door), name=name, real=find(name))
        program.write_text(text)
        program.chmod(0o700)


def main() -> None:
    """Import everything, then fork for each request until the end."""
    door = sys.argv[1]
    apps = {e.name: e for e in entry_points(group="console_scripts") if e.name in PROGRAMS}
    for name in MODULES:
        import_module(name)
    for app in apps.values():
        app.load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(door)
        server.listen()
        print(READY, flush=True)
        while True:
            asked, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _serve(asked, apps)
            asked.close()


def _serve(asked: socket.socket, apps: dict[str, EntryPoint]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, fds, _, _ = socket.recv_fds(asked, 1 << 20, FDS)
    for fd, place in zip(fds, range(FDS), strict=True):
        os.dup2(fd, place)
        os.close(fd)
    name, arguments, folder, environment = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    threading.Thread(target=_end_with, args=(asked,), daemon=True).start()
    sys.argv = [name, *arguments]
    try:
        apps[name].load()()
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _end_with(asked: socket.socket) -> None:
    """End this process when the small program that asked for it has ended."""
    asked.recv(1)
    os._exit(1)


if __name__ == "__main__":
    main()
