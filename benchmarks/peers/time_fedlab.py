"""FedAvg rounds of FedLab's standalone pipeline: clients one after another."""

from __future__ import annotations

import os
import sys
from unittest.mock import MagicMock

import torch
import work
from torch.utils.data import DataLoader, TensorDataset

for name in ("torchvision", "torchvision.datasets", "torchvision.transforms"):
    # FedLab imports it for datasets of its own, which have no part in this.
    sys.modules[name] = MagicMock()

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # noqa: E402
from fedlab.contrib.algorithm.basic_server import SyncServerHandler  # noqa: E402

workload = work.WORKLOADS[work.asked().workload]
torch.set_num_threads(int(os.environ.get("THREADS", "1")))


class Clients:
    """What FedLab asks for a client's batches."""

    def __init__(self) -> None:
        self.data = [TensorDataset(x, y) for x, y in work.client_data(workload.name)]

    def get_dataloader(self, client: int, batch_size: int) -> DataLoader:
        data = self.data[client]
        draws = workload.steps * min(batch_size, len(data))
        return DataLoader(
            data,
            batch_size=min(batch_size, len(data)),
            sampler=torch.utils.data.RandomSampler(data, num_samples=draws),
        )


class Quiet:
    def info(self, text: str) -> None: ...


model = work.network(workload)
trainer = SGDSerialClientTrainer(model, workload.clients, logger=Quiet())
trainer.setup_dataset(Clients())
trainer.setup_optim(1, workload.batch or int(workload.sizes().max()), work.LR)
handler = SyncServerHandler(model, 10_000, workload.cohort / workload.clients, logger=Quiet())
handler.num_clients = workload.clients


def round() -> None:
    trainer.local_process(handler.downlink_package, handler.sample_clients())
    for package in trainer.uplink_package:
        handler.load(package)


work.Turns("fedlab", f"{torch.get_num_threads()} thread").take(round)
