"""The gradients of every layer at a run's final model, client by client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedparity.engines.engine import intraop
from fedparity.engines.evaluation import blocks
from fedparity.errors import FedparityError
from fedparity.imports import Allowed
from fedparity.learning.frozen import trainable
from fedparity.metrics import gradient_norms
from fedparity.records.result import Result
from fedparity.run.file import experiment


def layer_norms(
    result: Result,
    settings: Mapping[str, Any],
    data_dir: str | Path | None,
    allowed: Allowed,
) -> pd.DataFrame:
    """Return, layer by layer, ``mean``, ``variance`` and ``max`` over the clients of the L2 norm.

    The gradients are those of the mean training loss of each client at the final shared model, in
    evaluation mode; see :func:`fedparity.metrics.gradient_norms`.
    """
    made = experiment(settings, data_dir=data_dir, allowed=allowed)
    layout, task = made.setup.layout, made.setup.task
    x, buffers = layout.read(result.model(allow_import=allowed.packages))
    module = layout.write(made.setup.module, x, buffers).eval()
    parameters = [parameter for _, parameter in trainable(module)]
    rows, data = [], made.setup.federation.train
    with intraop(1):  # as runs are, and faster on small models where others compute too
        for client in range(len(data.sizes)):
            inputs, targets = data.client(client)
            if not len(targets):
                continue
            total = torch.zeros_like(x, dtype=torch.float64)
            for part in blocks(inputs):
                losses = task.losses(module(inputs[part]), targets[part])
                found = torch.autograd.grad(losses.sum() / len(targets), parameters)
                total += layout.join(found, torch.Size()).double()
            rows.append(total.numpy())
    if not rows:
        raise FedparityError("no client has training examples, so no gradient")
    sizes: dict[str, int] = {}
    for slot in layout.slots:
        sizes[slot.layer] = sizes.get(slot.layer, 0) + slot.stop - slot.start
    return gradient_norms(rows, sizes)
