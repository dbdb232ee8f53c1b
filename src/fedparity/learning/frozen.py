"""Parts of a model that stay as they are: what is trained of it, and what it starts from."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedparity.errors import InputError, unknown


class Still:
    """Mixed into the class of a layer that is frozen: it never trains, nor do its statistics."""

    def train(self, mode: bool = True) -> Any:
        """Stay in eval mode, whatever the model around it does."""
        return super().train(False)  # type: ignore[misc]


def trainable(module: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
    """Yield the parameters that are trained, by name."""
    return ((name, p) for name, p in module.named_parameters() if p.requires_grad)


def moving(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """Yield the buffers that training may change, by name: those of layers that are not frozen."""
    for name, owner in module.named_modules():
        if not isinstance(owner, Still):
            for own, buffer in owner.named_buffers(recurse=False):
                yield f"{name}.{own}" if name else own, buffer


def fingerprint(module: nn.Module) -> str | None:
    """Return a digest of the parameters and buffers that stay as they are; None if all move."""
    moves = {name for name, _ in (*trainable(module), *moving(module))}
    everything = (*module.named_parameters(), *module.named_buffers())
    still = [(name, tensor) for name, tensor in everything if name not in moves]
    if not still:
        return None
    found = hashlib.sha256()
    for name, tensor in still:
        found.update(name.encode() + tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def freeze(module: nn.Module, pattern: str | None = None) -> nn.Module:
    """Freeze the parameters that do not match the pattern, and the layers that are wholly frozen.

    Patterns are those of file names, on the names of parameters, several joined by commas. Without
    one, what the module's author froze stays so.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    >>> [name for name, _ in trainable(freeze(model, "1.*"))]
    ['1.weight', '1.bias']
    """
    if pattern is not None:
        wanted = [each.strip() for each in pattern.split(",")]
        names = [name for name, _ in module.named_parameters()]
        for each in wanted:
            if not any(fnmatchcase(name, each) for name in names):
                raise InputError(
                    f"trainable='{pattern}': no parameter is called '{each}', "
                    f"they are {', '.join(names[:3])}, ..., {names[-1]}"
                )
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(any(fnmatchcase(name, each) for each in wanted))
    if all(parameter.requires_grad for parameter in module.parameters()):
        return module
    for owner in module.modules():
        own = list(owner.parameters())
        if own and not any(parameter.requires_grad for parameter in own):
            for layer in owner.modules():
                _hold(layer)
    return module


def load_weights(module: nn.Module, file: str | Path) -> nn.Module:
    """Copy the tensors of a safetensors file into the parameters and buffers of their names.

    What the file leaves out stays as it was made.
    """
    path = Path(file).expanduser()
    if not path.is_file():
        raise InputError(f"pretrained: there is no file {path}")
    try:
        found = load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"pretrained: {path} is no safetensors file ({error})") from error
    own = module.state_dict()
    for name, tensor in found.items():
        if name not in own:
            raise InputError(f"pretrained: {unknown(f'tensor of {path.name}', name, own)}")
        if tensor.shape != own[name].shape:
            raise InputError(
                f"pretrained: '{name}' of {path.name} has shape {tuple(tensor.shape)}, not "
                f"{tuple(own[name].shape)}: leave it out of the file if it is to be trained anew"
            )
    missing = [n for n, p in module.named_parameters() if not p.requires_grad and n not in found]
    if missing:
        raise InputError(f"pretrained: {path.name} lacks '{missing[0]}', which is not trained")
    with torch.no_grad():
        for name, tensor in found.items():
            own[name].copy_(tensor)
    return module


def digest_of(file: str | Path) -> str:
    """Return the sha256 of a file of weights; it is read once, unless it changes."""
    path = Path(file).expanduser().resolve()
    return _digest(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _digest(path: Path, changed: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Copies:
    """A factory that gives copies of a module, with its parameters as they are."""

    module: nn.Module

    def __call__(self) -> nn.Module:
        return copy.deepcopy(self.module)


def _hold(layer: nn.Module) -> None:
    """Let a layer stay in eval mode."""
    if not isinstance(layer, Still):
        kind = type(layer)
        layer.__class__ = type(f"Frozen{kind.__name__}", (Still, kind), {})
    layer.train(False)
