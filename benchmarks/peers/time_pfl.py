"""FedAvg rounds of pfl in two processes (torch.distributed, gloo), one thread in each."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import torch
import work
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

PROCESSES = 2
workload = work.WORKLOADS[work.asked().workload]
if "LOCAL_RANK" not in os.environ:
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={PROCESSES}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *start, *sys.argv]
    raise SystemExit(subprocess.run(command, env=environment, check=False).returncode)

set_framework_module(pytorch_ops)
torch.set_num_threads(1)
torch.manual_seed(0)
data = work.client_data(workload.name)
network = work.network(workload)
entropy = torch.nn.CrossEntropyLoss()
network.loss = lambda x, y: entropy(network(x), y)
network.metrics = lambda x, y: {}
draws = np.random.default_rng(0)
turns = work.Turns("pfl", f"{PROCESSES} processes")
if not (first := os.environ["LOCAL_RANK"] == "0"):
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 -- one of them tells


def user(client: int) -> Dataset:
    x, y = data[client]
    rows = torch.randperm(len(x))[: workload.steps * (workload.batch or len(x))]
    return Dataset([x[rows], y[rows]], user_id=str(client))


class Clock(TrainingProcessCallback):
    """Says when a round ends, which is when the next one begins."""

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):  # type: ignore[no-untyped-def]
        return not turns.next(together), Metrics()


def together() -> None:
    """Wait for a line; all processes begin the round at once."""
    if first:
        work.asked_for()
    torch.distributed.barrier()


turns.next()
users = FederatedDataset(user, lambda: int(draws.integers(workload.clients)))
FederatedAveraging().run(
    NNAlgorithmParams(
        central_num_iterations=turns.total,
        evaluation_frequency=10**6,
        train_cohort_size=workload.cohort,
        val_cohort_size=None,
    ),
    SimulatedBackend(users, users),
    PyTorchModel(
        network,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    ),
    NNTrainHyperParams(
        local_num_epochs=1,
        local_learning_rate=work.LR,
        local_batch_size=workload.batch,
    ),
    callbacks=[Clock()],
)
