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

Example = Tensor | dict[str, Tensor]
BATCH = "n"
"""What the size of a batch is called in a file."""


def to_onnx(module: nn.Module, example: Example, file: Path) -> None:
    """Write the module as ONNX: input ``x`` ``[n, ...]``, output ``output`` ``[n, ...]``.

    The inputs of a module that reads a dict are called as its tensors are.
    The outputs are those of the module: of classes, softmax makes probabilities of them.
    """
    if importlib.util.find_spec("onnxscript") is None:
        raise InputError("ONNX needs a package more: pip install 'fedparity[export]'")
    with _quietly():
        program = torch.onnx.export(
            _program(module, example),
            input_names=list(example) if isinstance(example, dict) else ["x"],
            output_names=["output"],
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        beside = file.with_name(file.name + ".part")
        program.save(str(beside), external_data=False)
    beside.replace(file)


def to_pt2(module: nn.Module, example: Example, file: Path) -> None:
    """Write the module as a program of ``torch.export``.

    ``torch.export.load(file).module()`` reads it without the code that made the module, and takes
    what the module took, a tensor or a dict of tensors. It takes the place of TorchScript, which
    torch has given up.
    """
    with _quietly():
        program = _program(module, example)
        beside = file.with_name(file.name + ".part.pt2")
        torch.export.save(program, beside)
    beside.replace(file)


def shape_of(example: Example) -> list[int] | dict[str, list[int]]:
    """Return the shape of one input, or of each of its tensors."""
    if isinstance(example, dict):
        return {name: list(tensor.shape[1:]) for name, tensor in example.items()}
    return list(example.shape[1:])


def _program(module: nn.Module, example: Example) -> torch.export.ExportedProgram:
    """Return what the module does with inputs like the example, in a batch of any size."""
    first = {0: torch.export.Dim(BATCH)}
    sizes = dict.fromkeys(example, first) if isinstance(example, dict) else first
    return torch.export.export(module.eval(), (example,), dynamic_shapes=(sizes,))


@contextmanager
def _quietly() -> Iterator[None]:
    """Leave out what torch says of its own code and of packages that nobody asked for.

    What it says of a model that it cannot export becomes one line; it says it by many errors.
    """
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise InputError(
            f"torch cannot export this model ({type(error).__name__}: {reason[:200]}): "
            "it must not branch on the values of its inputs"
        ) from error
    finally:
        logger.setLevel(before)
