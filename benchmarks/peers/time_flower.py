"""FedAvg rounds in Flower's simulation: one Ray actor a core, one thread in each."""

from __future__ import annotations

import os

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import torch
import work
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

workload = work.WORKLOADS[work.asked().workload]
client_app, server_app = ClientApp(), ServerApp()
turns = work.Turns("flwr", "one actor a core")


@client_app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    model = work.network(workload)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = work.client_data(workload.name)[int(context.node_config["partition-id"])]
    work.train(model, x, y, workload)
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(x)}),
    }
    return Message(content=RecordDict(content), reply_to=message)


class Timed(FedAvg):
    """FedAvg that says when a round begins, which is when the last one ends."""

    def configure_train(self, server_round, arrays, config, grid):  # type: ignore[no-untyped-def]
        turns.next()
        return super().configure_train(server_round, arrays, config, grid)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = Timed(
        fraction_train=workload.cohort / workload.clients,
        fraction_evaluate=0.0,
        min_train_nodes=workload.cohort,
        min_available_nodes=workload.clients,
    )
    start = ArrayRecord(work.network(workload).state_dict())
    strategy.start(grid=grid, initial_arrays=start, num_rounds=turns.total + 1)


if __name__ == "__main__":
    run_simulation(
        server_app,
        client_app,
        num_supernodes=workload.clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
