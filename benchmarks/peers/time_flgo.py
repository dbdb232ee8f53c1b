"""FedAvg rounds of FLGo, clients one after another: its pools are made anew each round."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import flgo
import flgo.algorithm.fedavg
import flgo.benchmark.toolkits.visualization as pictures
import torch
import work
from flgo.benchmark.toolkits.cv.classification import FromDatasetPipe

CONFIG = """
import sys
sys.path[:0] = {paths!r}
import torch, work
workload = work.WORKLOADS[{name!r}]
pairs = work.client_data(workload.name)
train_data = torch.utils.data.TensorDataset(
    torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])
)
train_data.classes = list(range(workload.outputs))
train_data.num_classes = workload.outputs
test_data = torch.utils.data.TensorDataset(*train_data[:10])
test_data.classes, test_data.num_classes = train_data.classes, train_data.num_classes
val_data = None
def get_model():
    return work.network(workload)
"""

workload = work.WORKLOADS[work.asked().workload]
pictures.visualize_by_class = lambda *about, **more: None  # drawn for a minute otherwise
FromDatasetPipe.TaskDataset.__getitems__ = lambda self, rows: [self[i] for i in rows]  # torch asks
if workload.uneven:
    raise SystemExit("this driver deals the examples evenly: lin, mlp or cnn")
torch.set_num_threads(int(os.environ.get("THREADS", "1")))
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    sys.path.insert(0, folder)
    here = Path(__file__).parent
    Path("config.py").write_text(
        CONFIG.format(paths=[str(here), str(here.parent)], name=workload.name)
    )
    benchmark = flgo.gen_benchmark_from_file("even_rounds", "config.py", target_path=folder)
    partitioner = {"name": "IIDPartitioner", "para": {"num_clients": workload.clients}}
    flgo.gen_task({"benchmark": {"name": benchmark}, "partitioner": partitioner}, task_path="task")
    server = flgo.init(
        "task",
        flgo.algorithm.fedavg,
        {
            "num_rounds": 10_000,
            "num_steps": workload.steps,
            "batch_size": workload.batch,
            "learning_rate": work.LR,
            "proportion": workload.cohort / workload.clients,
            "sample": "uniform",
            "train_holdout": 0.0,
            "eval_interval": 0,
            "no_tqdm": True,
            "gpu": [],
        },
    )

    def round() -> None:
        server.gv.clock.step()
        server.iterate()
        assert len(server.received_clients) == workload.cohort

    work.Turns("flgo", f"{torch.get_num_threads()} thread").take(round)
