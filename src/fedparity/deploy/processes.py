"""A process of our own: its log, a bounded wait for what it says, and its end with all it began."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil

from fedparity.errors import FedparityError

STEP = 0.05
GRACE = 5.0
"""Seconds a process has to end by itself before it is killed."""
AFTER = 1.0
"""Seconds that what it began has after that."""
ENDINGS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if os.name == "posix" else []))
"""What asks a process to end."""
Found = TypeVar("Found")


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let requests to end pass while what was started is being ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, signal.SIG_IGN) for one in ENDINGS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler if handler is not None else signal.SIG_DFL)


def program(name: str) -> str:
    """Return where a program is: beside this Python, or on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which(name, path=path)
    if found is None:
        raise FedparityError(f"the program '{name}' is not found: pip install 'fedparity[flower]'")
    return found


def until(what: str, look: Callable[[], Found | None], seconds: float, step: float = STEP) -> Found:
    """Return what ``look`` finds, as soon as it finds something."""
    end = time.monotonic() + seconds
    while (found := look()) is None:
        if time.monotonic() > end:
            raise FedparityError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(step)
    return found


class Child:
    """A process in a session of its own, whose output goes to a file.

    What it starts in turn is ended with it, also where that has detached itself.
    """

    def __init__(
        self, name: str, command: Sequence[str | Path], log: Path, env: Mapping[str, str]
    ) -> None:
        self.name, self.log = name, log
        with log.open("ab") as file:
            self._begin = file.tell()
            self.process = psutil.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=dict(env),
                cwd=log.parent,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The id of the process."""
        return int(self.process.pid)

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        code: int | None = self.process.poll()
        return code

    def text(self) -> str:
        """Return what this process wrote so far."""
        with self.log.open("rb") as file:
            file.seek(self._begin)
            return file.read().decode("utf-8", errors="replace")

    def said(self, pattern: str, seconds: float) -> re.Match[str]:
        """Wait until the process says something that matches; it must not end before."""

        def look() -> re.Match[str] | None:
            code = self.code
            found = re.search(pattern, self.text())
            if found is None and code is not None:
                why = reason(self.text())
                raise FedparityError(f"{self.name} ended with code {code}: {why} (see {self.log})")
            return found

        return until(f"{self.name} (see {self.log})", look, seconds)

    def ended(self, seconds: float) -> int:
        """Wait for the end of the process and return its exit code."""
        return until(f"the end of {self.name} (see {self.log})", lambda: self.code, seconds)

    def descendants(self) -> list[psutil.Process]:
        """Return the processes that this one began, directly or not, and that still run."""
        try:
            return list(self.process.children(recursive=True))
        except psutil.NoSuchProcess:
            return []


def end(children: Sequence[Child], *, gently: bool = True) -> None:
    """End processes and all that they began; gently: they are asked to, and have some seconds."""
    leaders = [child.process for child in children]
    family = [process for child in children for process in child.descendants()]
    if gently:
        _each(leaders, psutil.Process.terminate)
        psutil.wait_procs(leaders, timeout=GRACE)
        psutil.wait_procs(family, timeout=AFTER)
    _each([*leaders, *family], psutil.Process.kill)
    psutil.wait_procs([*leaders, *family], timeout=GRACE)
    for child in children:
        child.ended(GRACE)


def _each(family: Sequence[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    """Signal processes; psutil knows one by its start too, so a reused id is left alone."""
    for process in family:
        try:
            act(process)
        except psutil.NoSuchProcess:
            continue


def reason(text: str, most: int = 400) -> str:
    """Return what a program of Flower's gave as the reason of its end, else its last line.

    >>> reason("started\\nValueError: no data\\n\\n")
    'ValueError: no data'
    >>> reason("ERROR: Exit Code: 305\\nNot connected.\\nFor more information, visit\\nStopped.")
    'Not connected.'
    """
    plain = re.sub(r"\x1b\[[0-9;]*m|[\u2500-\u257f]", "", text)
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    codes = [place for place, line in enumerate(lines) if "Exit Code:" in line]
    if codes:
        told = itertools.takewhile(
            lambda line: not line.startswith("For more"), lines[codes[0] + 1 :]
        )
        return " ".join(told)[:most]
    return lines[-1][-most:] if lines else "it said nothing"


def environment(home: Path, programs: Sequence[Path]) -> dict[str, str]:
    """Return the environment of Flower's programs: a home of their own, nothing sent elsewhere."""
    path = os.pathsep.join([*map(str, programs), os.environ.get("PATH", os.defpath)])
    loopback = "127.0.0.1,localhost"
    return {
        **os.environ,
        "PATH": path,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",
        "NO_PROXY": loopback,
        "no_proxy": loopback,
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
    }
