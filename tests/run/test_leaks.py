"""What a run leaves behind: its result, and nothing else."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading

import numpy as np
import psutil
import pytest
import torch
from threadpoolctl import ThreadpoolController

import fedparity as fp
from fedparity.engines.engine import intraop
from fedparity.run.experiment import Experiment
from fedparity.run.watching import Silent
from fedparity.testing import unlike_clients

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def images() -> fp.Federation:
    """Four clients whose updates are large enough that a leak of one a round shows."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 1, 28, 28), dtype=np.float32)
    return fp.Federation.from_arrays(x, np.arange(64) % 10, np.arange(64) % 4)


class Weighing(Silent):
    """Notes the memory of the process at some rounds."""

    def __init__(self, *rounds: int) -> None:
        self.at, self.used = rounds, []

    def advance(self, done: int, note: str = "") -> None:
        if done in self.at:
            gc.collect()
            self.used.append(psutil.Process().memory_info().rss)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_memory_is_flat_over_rounds(images, tmp_path, engine):
    weighing = Weighing(60, 260)
    made = Experiment(
        images,
        "linear",
        "momentum",
        rounds=260,
        solver=fp.Solver(lr=0.01, steps=1, batch=8),
        lstar="none",
        engine=engine,
        evaluate_every=20,
        checkpoint_every=50,
    )
    made.run(out=tmp_path / "run", watch=weighing)
    before, after = weighing.used
    # One update of one client kept a round would be 200 * 31 kB = 6 MB, all four 25 MB.
    assert after - before < 5 * MEGABYTE


def blas_threads() -> list[int]:
    libraries = ThreadpoolController().select(user_api="blas")
    return [library["num_threads"] for library in libraries.info()]


def footprint() -> dict[str, object]:
    process = psutil.Process()
    return {
        "python threads": threading.active_count(),
        "threads": process.num_threads(),
        "files": len(process.open_files()),
        "descriptors": process.num_fds() if hasattr(process, "num_fds") else 0,
        "intra-op threads": torch.get_num_threads(),
        "threads of numpy": blas_threads(),
        "torch generator": torch.get_rng_state().tolist(),
        "numpy generator": np.random.get_state()[1].tolist(),  # noqa: NPY002
        "handler": signal.getsignal(signal.SIGINT),
        "default dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
    }


def test_ten_runs_in_one_process_leave_nothing_behind(tmp_path):
    federation = unlike_clients((8, 8, 8, 8))
    algorithms = ["fedavg", "eagle(lam=0.01)", "qffl+momentum", "local", "afl+prox"]

    def run(number: int) -> None:
        algorithm = algorithms[number % len(algorithms)]
        Experiment(
            federation,
            "mlp(hidden=400)" if number % 4 == 1 else "linear",  # the wide one takes threads
            algorithm,
            rounds=2,
            solver=fp.Solver(lr=0.01, steps=1),
            engine="loop" if number % 2 else "vmap",
            lstar="best_validation(rounds=1)",
        ).run(out=tmp_path / str(number))

    torch.set_num_threads(2)
    try:
        for number in range(4):
            run(number)
        gc.collect()
        before, used = footprint(), psutil.Process().memory_info().rss
        for number in range(4, 14):
            run(number)
        gc.collect()
        assert footprint() == before
        assert psutil.Process().memory_info().rss - used < 30 * MEGABYTE
    finally:
        torch.set_num_threads(1)


def test_a_run_that_fails_leaves_nothing_behind_either():
    class Failing(fp.Part):
        name = "failing"

        def finish(self, delta, c):
            raise RuntimeError("no")

    made = Experiment(
        unlike_clients(), "linear", [Failing()], rounds=2, lstar="none", engine="loop"
    )
    torch.set_num_threads(2)
    try:
        before = footprint()
        with pytest.raises(fp.ClientError):
            made.run()
        assert footprint() == before
    finally:
        torch.set_num_threads(1)


def test_numpy_has_one_thread_in_a_run_and_its_own_number_after():
    before = blas_threads()
    entered, leave = threading.Event(), threading.Event()

    def beside() -> None:
        with intraop(1):
            entered.set()
            leave.wait(10)

    other = threading.Thread(target=beside)
    with intraop(1):
        other.start()
        assert entered.wait(10)
        assert set(blas_threads()) == {1}
    leave.set()  # this one is over, the other is not
    other.join(10)
    assert blas_threads() == before


def test_numpy_has_its_own_number_again_after_an_error():
    before = blas_threads()
    with pytest.raises(RuntimeError), intraop(1), intraop(1):
        raise RuntimeError
    assert blas_threads() == before


def test_workers_do_not_change_the_threads_of_who_hires_them():
    hiring = (
        "from fedparity.workers import Crew\n"
        "crew = Crew([None, None])\n"
        "crew.run(4, lambda piece, workspace: None)\n"
        "crew.close()\n"
    )
    told = "import torch; print(torch.get_num_threads())"
    alone, after = (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
        for code in (told, hiring + told)
    )
    assert after == alone
