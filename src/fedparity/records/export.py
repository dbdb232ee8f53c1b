"""The trained module in formats that other programs read."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from fedparity.errors import InputError

BATCH = "n"
"""What the size of a batch is called in a file."""


def to_onnx(module: nn.Module, example: Tensor, file: Path) -> None:
    """Write the module as ONNX: input ``x`` ``[n, ...]``, output ``output`` ``[n, ...]``.

    The outputs are those of the module: of classes, softmax makes probabilities of them.
    """
    if importlib.util.find_spec("onnxscript") is None:
        raise InputError("ONNX needs a package more: pip install 'fedparity[export]'")
    with _quietly():
        program = torch.onnx.export(
            module.eval(),
            (example,),
            input_names=["x"],
            output_names=["output"],
            dynamic_shapes=({0: torch.export.Dim(BATCH)},),
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        beside = file.with_name(file.name + ".part")
        program.save(str(beside), external_data=False)
    beside.replace(file)


def to_pt2(module: nn.Module, example: Tensor, file: Path) -> None:
    """Write the module as a program of ``torch.export``.

    ``torch.export.load(file).module()`` reads it without the code that made the module. It takes
    the place of TorchScript, which torch has given up.
    """
    with _quietly():
        program = torch.export.export(
            module.eval(), (example,), dynamic_shapes=({0: torch.export.Dim(BATCH)},)
        )
        beside = file.with_name(file.name + ".part.pt2")
        torch.export.save(program, beside)
    beside.replace(file)


@contextmanager
def _quietly() -> Iterator[None]:
    """Leave out what torch says of its own code and of packages that nobody asked for."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
