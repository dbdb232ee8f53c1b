"""Rounds of larger models against the plain loop, and the memory that ResNet-18 takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import memory
import numpy as np
from contest import Contestant, Rounds, Times, experiment, turns
from plain import PlainLoop
from report import Bar, Section, number
from workloads import Workload

import fedparity as fp

TWO_CORES = 2
LETTERS = 90
COHORT = 10
"""Clients a round of ResNet-18 whose memory is measured."""
MB = 1e6


@dataclass(frozen=True)
class Model:
    """A model of the library, and the local work of a round."""

    work: Workload
    tokens: bool = False
    """Whether it tells the next of each of a sequence of tokens."""

    @property
    def task(self) -> fp.Task:
        kind = fp.NextToken if self.tokens else fp.Classification
        return kind(self.work.model)

    def federation(self) -> fp.Federation:
        """Return random examples, all for training."""
        x, y, client = self.work.arrays()
        kind = "classes"
        if self.tokens:
            x, kind = np.random.default_rng(1).integers(0, LETTERS, x.shape), "tokens"
            y = np.roll(x, -1, axis=1)
        split = np.full(len(y), "train")
        return fp.Federation.from_arrays(x, y, client, split, outputs=self.work.outputs, kind=kind)


def images(model: str, told: str, clients: int, steps: int, batch: int, side: int = 32) -> Model:
    """Return the work of a model on images of three colours, or of one if they are MNIST's."""
    shape = (1 if side == 28 else 3, side, side)
    name, examples = model.partition("(")[0], 2 * batch
    return Model(Workload(name, clients, clients, examples, shape, steps, batch, model, told))


MODELS = {
    "LeNet": images("lenet(padding=2)", "LeNet-5", 10, 10, 50, 28),
    "LSTM": Model(
        Workload(
            *("char_lstm", 4, 4, 20, (80,), 2, 10, "char_lstm"),
            "two-layer LSTM on 80 characters",
            outputs=LETTERS,
        ),
        tokens=True,
    ),
    "transformer": images("vit", "a small ViT", 10, 5, 20),
    "ResNet-18, GroupNorm": images("resnet18(norm=group)", "ResNet-18", 2, 4, 20),
    "ResNet-18, BatchNorm": images("resnet18", "ResNet-18", 2, 4, 20),
}


def measure(repeats: int, names: Sequence[str] = tuple(MODELS)) -> Section:
    """Time a round of each model and weigh those of ResNet-18, each in a process of its own."""
    section = Section(
        "Larger models",
        "Milliseconds a round of FedAvg of models that no arithmetic is written out for, against "
        "the plain loop with one thread inside an operation or two, whichever is faster. *Peak* is "
        f"the memory of a process that runs a round of {COHORT} clients of ResNet-18, above what "
        "imports take; *model* that of one set of its parameters.",
        ("model", "auto takes", "auto", "plain loop", "times as fast", "model, MB", "peak, MB"),
    )
    for name in names:
        times, engine = contest(MODELS[name], repeats)
        ratio = times.ratio("plain", "auto")
        shown = (number(times.median(who)) for who in ("auto", "plain"))
        weight = weights(MODELS[name].work.model) if name.startswith("ResNet") else ("", "")
        told = f"{name}: {MODELS[name].work}"
        section.rows.append((told, engine, *shown, f"{number(ratio)}x", *weight))
        claim = f"{name}: times as fast as the plain loop"
        section.bars.append(Bar(claim, ratio, 1.0, at_least=True))
    return section


def contest(model: Model, repeats: int) -> tuple[Times, str]:
    """Return the times of ours and of the plain loop, and which engine is ours."""
    data = model.federation()

    def made() -> fp.Experiment:
        return experiment(model.work, data=data, model=model.task)

    ours, plain = Rounds(made()), PlainLoop(made())
    times = turns(
        [
            Contestant("auto", ours),
            Contestant("plain, 2", plain, TWO_CORES),
            Contestant("plain, 1", plain),
        ],
        repeats,
    )
    ours.close()
    times["plain"] = times[times.fastest("plain, 1", "plain, 2")]
    return times, ours.run.experiment.choice.name


def weights(model: str) -> tuple[str, str]:
    """Return the megabytes of a model's parameters, and those at the peak of a round."""
    found = memory.ask("model", COHORT, model)
    return tuple(f"{found[key] / MB:.0f}" for key in ("model", "peak"))
