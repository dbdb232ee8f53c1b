"""What is kept of the models at the end: what they say of every validation and test example."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from fedparity.clients.door import Door, Simulation
from fedparity.data import Federation, Split
from fedparity.engines.evaluation import OUTPUT
from fedparity.method.messages import Down, Own
from fedparity.metrics.groups import GROUP
from fedparity.run.alone import Alone
from fedparity.run.experiment import Experiment

MOST_NUMBERS = 1 << 23
"""Numbers kept of predictions; of larger federations, the first examples of every client."""
MOST_PERSONAL = 1 << 25
"""Numbers kept of the clients' own models; those of more are not kept."""
SPLITS: tuple[Literal["validation", "test"], ...] = ("validation", "test")
COLUMNS = ("client", "split", "index", "target", "loss", "model")


def predictions(
    experiment: Experiment, door: Door, down: Down, alone: Alone | None
) -> tuple[pd.DataFrame, str]:
    """Return what the final models say of every example, and a word where some are left out.

    It is empty where nobody wants it, and where the examples are at sites.
    """
    empty = pd.DataFrame(columns=list(COLUMNS))
    if not experiment.predictions or not isinstance(door, Simulation):
        return empty, ""
    own = None if alone is None else alone.own
    models = 1 + door.personal + (own is not None)
    most, whole = _most(experiment, models)
    tables = [
        examples_table(experiment.federation, split, data, model, values)
        for split in SPLITS
        if len(data := _first(getattr(experiment.federation, split), most))
        for model, values in _said(door, down, own, data)
    ]
    cut = "" if whole else f"of the first {most} validation and test examples of every client"
    return (pd.concat(tables, ignore_index=True) if tables else empty), cut


def personal_models(
    experiment: Experiment, door: Door, down: Down
) -> tuple[dict[str, Tensor], str]:
    """Return the clients' own models, a row a client, and a word where they are not kept.

    It is empty where nobody wants them or has any, and where they are at sites.
    """
    if not experiment.personal or not isinstance(door, Simulation) or not door.personal:
        return {}, ""
    layout = experiment.setup.layout
    if len(experiment.federation) * (layout.size + layout.buffer_size) > MOST_PERSONAL:
        return {}, f"they are more than {MOST_PERSONAL:,} numbers"
    pieces: dict[str, list[Tensor]] = {}
    for _, own in door.own_models(down):
        if own.shares is not None:
            return {}, "each client mixes the predictions of several models"
        views = zip(layout.slots, layout.views(own.parameters), strict=True)
        named = {slot.name: view.to(slot.dtype) for slot, view in views}
        for slot in layout.buffers:
            rows = own.buffers[:, slot.start : slot.stop]
            named[slot.name] = rows.reshape(len(rows), *slot.shape).to(slot.dtype)
        for name, tensor in named.items():
            pieces.setdefault(name, []).append(tensor)
    return {name: torch.cat(each) for name, each in pieces.items()}, ""


def with_metrics_alone(clients: pd.DataFrame, door: Door, alone: Alone | None) -> pd.DataFrame:
    """Return the clients with the metrics of the models that they trained alone."""
    own = None if alone is None else alone.own
    for split in SPLITS:
        found = door.metrics_alone(split, own)
        clients = clients.assign(**{f"{split}_alone_{m}": v for m, v in found.items()})
    return clients


def _said(
    door: Simulation, down: Down, own: Own | None, data: Split
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield each kind of model with loss, metrics and outputs of every example."""
    yield "global", door.engine.evaluate_each(down.x, down.buffers, data, outputs=True)
    if door.personal:
        yield "personal", door.each_personal(down, data)
    if own is not None:
        yield "alone", door.each_own(data, own)


def _most(experiment: Experiment, models: int) -> tuple[int, bool]:
    """Return how many examples a client are kept, and whether these are all."""
    setup, numbers = experiment.setup, len(COLUMNS)
    with torch.no_grad():
        numbers += int(setup.module.eval()(experiment.federation.train.x[:1]).numel())
    sizes = [getattr(experiment.federation, split).sizes for split in SPLITS]
    most = int(max(each.max() for each in sizes))
    rows = MOST_NUMBERS // (models * numbers)
    fits = most
    while fits > 1 and sum(int(np.minimum(each, fits).sum()) for each in sizes) > rows:
        fits //= 2
    return fits, fits == most


def _first(split: Split, most: int) -> Split:
    """Return the first so many examples of every client."""
    sizes = np.minimum(split.sizes, most)
    if (sizes == split.sizes).all():
        return split
    rows = torch.from_numpy(np.repeat(split.offsets[:-1], sizes) + _places(sizes))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    groups = {kind: codes[rows.numpy()] for kind, codes in split.groups.items()}
    return replace(split, x=split.x[rows], y=split.y[rows], offsets=offsets, groups=groups)


def _places(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return 0, 1, ... for the examples of every client."""
    starts = np.cumsum(sizes) - sizes
    places: npt.NDArray[np.int64] = np.arange(sizes.sum()) - np.repeat(starts, sizes)
    return places


def examples_table(
    federation: Federation, split: str, data: Split, model: str, values: dict[str, Tensor]
) -> pd.DataFrame:
    """Return one row an example of a split: whose it is, and what a kind of model says of it."""
    kind = values["loss"].dtype
    said = values[OUTPUT].to(kind)
    everyone = pd.Index(federation.names)
    names = pd.Categorical.from_codes(data.owner.numpy(), categories=everyone)
    columns: dict[str, Any] = {
        "client": names,
        "split": pd.Categorical([split] * len(data), categories=SPLITS),
        "index": _places(data.sizes),
    }
    for group, called in federation.groups.items():
        columns[f"{GROUP}{group}"] = pd.Categorical.from_codes(
            data.groups[group], categories=pd.Index(called)
        )
    if data.y.dim() == 1:
        columns["target"] = data.y.numpy()
    if said.dim() == 1:
        columns["output"] = said.numpy()
    elif said.dim() == 2:
        columns |= {f"output_{place}": said[:, place].numpy() for place in range(said.shape[1])}
    columns["loss"] = values["loss"].numpy()
    columns["model"] = pd.Categorical(
        [model] * len(data), categories=("global", "personal", "alone")
    )
    return pd.DataFrame(columns)
