"""The trained module of a finished run."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor, nn

from fedparity.arguments import checked
from fedparity.errors import DamagedError, InputError
from fedparity.imports import Allowed
from fedparity.learning.models import build
from fedparity.learning.seeds import seed_for
from fedparity.learning.task import DTYPES, Factory
from fedparity.learning.unpacking import fields_of, shapes, unpacking
from fedparity.records.rundir import RunDir
from fedparity.records.settings import federation_of, task_of


@checked
def load_model(
    directory: str | Path,
    *,
    factory: Factory | None = None,
    allow_import: str | Iterable[str] = (),
    file: Path | None = None,
) -> nn.Module:
    """Return the trained module of a finished run.

    Parameters
    ----------
    directory
        Of the run.
    factory
        Makes the module, ``(shape, outputs) -> nn.Module``, instead of what the directory names.
    allow_import
        Packages whose code the directory may name.
    file
        Of the parameters in the directory, by default those of the model that was kept.
    """
    folder = RunDir(directory)
    if not folder.model.exists():
        raise InputError(f"the run in {directory} has no model yet")
    module = _module(folder.settings(), Allowed.by(allow_import), factory)
    return load_module(module, folder, file)


def _module(settings: Mapping[str, Any], allowed: Allowed, factory: Factory | None) -> nn.Module:
    """Return a fresh module of a run, without its data where the run recorded their shape."""
    record = settings.get("record") or {}
    seed = seed_for(settings.get("seed", 0), "model")
    dtype = DTYPES[settings.get("dtype", "float32")]
    if "inputs" not in record or "task" not in settings:
        federation = federation_of(settings, allowed=allowed)
        kind, shape, outputs = federation.kind, federation.shape, federation.outputs
        fields = federation.fields
    else:
        kind, shape, outputs = "classes", tuple(record["inputs"]), record["outputs"]
        fields = fields_of(record.get("fields"))
    shape = shapes(fields, shape)
    if factory is not None:
        return unpacking(build(factory, shape, outputs, seed, dtype), fields)
    return unpacking(task_of(settings, kind, allowed).build(shape, outputs, seed, dtype), fields)


def save_module(module: nn.Module, file: Path) -> None:
    """Write a module's state_dict beside and rename it."""
    save_tensors(module.state_dict(), file)


def save_tensors(tensors: Mapping[str, Tensor], file: Path) -> None:
    """Write tensors by name beside and rename the file."""
    beside = file.with_name(file.name + ".part")
    save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()}, beside)
    beside.replace(file)


def load_personal(folder: RunDir) -> dict[str, Tensor]:
    """Read the clients' own models, by name, with one row a client in the order of the run."""
    folder.checksums.warn_if_absent()
    try:
        return load(folder.read(folder.personal))
    except SafetensorError as error:
        raise DamagedError(f"{folder.personal} is damaged: {error}") from error


def with_tensors(module: nn.Module, tensors: Mapping[str, Tensor], row: int) -> nn.Module:
    """Return a copy of a module with one client's own tensors; others stay as they are."""
    own, known = copy.deepcopy(module), module.state_dict()
    for name, values in tensors.items():
        if name not in known or values.shape[1:] != known[name].shape or row >= len(values):
            raise DamagedError(f"the clients' own '{name}' does not fit the model")
    own.load_state_dict({name: values[row] for name, values in tensors.items()}, strict=False)
    return own


def load_module(module: nn.Module, folder: RunDir, file: Path | None = None) -> nn.Module:
    """Read the model of a run directory into a module."""
    folder.checksums.warn_if_absent()
    file = file or folder.model
    content = folder.read(file)
    try:
        module.load_state_dict(load(content))
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{file} does not fit the model: {reason}") from error
    return module
