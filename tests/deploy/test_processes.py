"""Processes of our own: they are waited for, and end with all they began."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "fedparity[flower]"')

from fedparity.cli.flower import _terminable
from fedparity.deploy.local import LocalFederation
from fedparity.deploy.processes import Child, end, environment, program, undisturbed, until
from fedparity.errors import FedparityError

pytestmark = pytest.mark.xdist_group("processes")  # one federation at a time

DETACHED = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                         start_new_session=True)
print("began", child.pid, flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


def python(tmp_path: Path, code: str) -> Child:
    return Child("script", [sys.executable, "-c", code], tmp_path / "script.log", os.environ)


@pytest.mark.parametrize("gently", [True, False])
def test_a_process_ends_with_the_detached_ones_it_began(tmp_path, gently):
    child = python(tmp_path, DETACHED)
    other = psutil.Process(int(child.said(r"began (\d+)", 30)[1]))
    end([child], gently=gently)
    assert child.code is not None
    assert not other.is_running() or other.status() == psutil.STATUS_ZOMBIE


def test_a_process_that_does_not_want_to_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("fedparity.deploy.processes.GRACE", 0.2)
    child = python(tmp_path, STUBBORN)
    child.said("ready", 30)
    end([child])
    assert child.code == -9


def test_waiting_for_a_process_that_failed_tells_its_last_words(tmp_path):
    child = python(tmp_path, "raise ValueError('no data here')")
    with pytest.raises(FedparityError, match="script ended with code 1: ValueError: no data here"):
        child.said("ready", 30)


def test_a_wait_is_bounded():
    with pytest.raises(FedparityError, match=r"waited 0\.1 s in vain for a miracle"):
        until("a miracle", lambda: None, 0.1)


def test_a_restarted_process_does_not_see_the_words_of_the_one_before(tmp_path):
    for word in ("one", "two"):
        child = python(tmp_path, f"print({word!r})")
        assert child.ended(30) == 0
        assert child.text() == f"{word}\n"
    assert child.log.read_text() == "one\ntwo\n"


def test_flower_sends_nothing_elsewhere(tmp_path):
    made = environment(tmp_path, [tmp_path / "first"])
    assert made["FLWR_TELEMETRY_ENABLED"] == "0"
    assert made["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert made["FLWR_HOME"] == str(tmp_path)
    assert made["PATH"].startswith(f"{tmp_path / 'first'}{os.pathsep}")


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
def test_a_request_to_end_interrupts_and_passes_while_processes_are_ended(asked):
    before = signal.signal(asked, signal.SIG_DFL)  # whatever started the tests may ignore it
    try:
        with _terminable():
            with undisturbed():
                os.kill(os.getpid(), asked)
            with pytest.raises(KeyboardInterrupt, match="stopped"):
                os.kill(os.getpid(), asked)
        assert signal.getsignal(asked) == signal.SIG_DFL
    finally:
        signal.signal(asked, before)


def test_a_hang_up_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _terminable():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_superlink_ends_even_if_a_node_does_not(tmp_path, monkeypatch):
    federation, ended = LocalFederation(tmp_path), []
    node, federation.superlink = (python(tmp_path, "import time; time.sleep(600)") for _ in "ab")
    federation._began = [node, federation.superlink]

    def failing(children):
        ended.extend(children)
        if node in children:
            raise FedparityError("waited in vain")

    monkeypatch.setattr("fedparity.deploy.local.end", failing)
    with pytest.raises(FedparityError, match="in vain"):
        federation.stop()
    end([node, federation.superlink])
    assert ended == [node, federation.superlink]


def test_a_command_of_flowers_that_does_not_end_is_told_in_one_line(tmp_path, monkeypatch):
    def hang(*args, timeout, **kwargs):
        raise subprocess.TimeoutExpired("flwr", timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(FedparityError, match="'flwr list' did not end within 60 s"):
        LocalFederation(tmp_path).flwr("list")


def test_a_program_is_found_beside_python_or_missed_by_name():
    assert Path(program("flwr")).name == "flwr"
    with pytest.raises(FedparityError, match="the program 'flwr-nothing' is not found"):
        program("flwr-nothing")
