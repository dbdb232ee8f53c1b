"""A model by its text, by a function of one's own, or by a class."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import torch
from pydantic import BaseModel, ConfigDict, create_model
from torch import nn

from fedparity import spec
from fedparity.errors import InputError, unknown
from fedparity.imports import Allowed, ImportPath, look_up
from fedparity.learning.models.convolutional import cnn, cnn5, lenet
from fedparity.learning.models.dense import linear, mlp
from fedparity.learning.models.mobilenet import mobilenet_v2
from fedparity.learning.models.recurrent import char_lstm, pair_lstm
from fedparity.learning.models.resnet import resnet18
from fedparity.learning.models.shapes import Shape
from fedparity.learning.models.transformer import vit, vit_b32

Factory = Callable[[Shape, int], nn.Module]
MODELS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "lenet": lenet,
    "cnn": cnn,
    "cnn5": cnn5,
    "resnet18": resnet18,
    "mobilenet_v2": mobilenet_v2,
    "vit": vit,
    "vit_b32": vit_b32,
    "char_lstm": char_lstm,
    "pair_lstm": pair_lstm,
}


def resolve(text: str, allowed: Allowed) -> Factory:
    """Return the factory that a text names, its settings checked and filled in.

    The text is a model of :data:`MODELS` with settings, ``mlp(hidden=50)``, or the import path of
    a factory, ``mypackage.nets:small``, which may have settings too. The module is looked for
    where Python looks for modules, if it is ``allowed``; the text itself is never executed.
    """
    path = ImportPath.read(text)
    term = spec.parse_one(text) if path is None else spec.Spec(str(path), path.settings)
    make = look_up("model", term, MODELS, allowed, nn.Module)
    if term.name not in MODELS:
        known = inspect.signature(make).parameters
        for setting in term.settings:
            if setting not in known:
                raise unknown(f"setting of {_name(make)}", setting, known)
        return adapt(functools.partial(make, **term.settings) if term.settings else make)
    settings = spec.call(term.name, _settings_of(make), term.settings).model_dump()
    return functools.partial(make, **settings) if term.settings else make


def adapt(make: Callable[..., nn.Module]) -> Factory:
    """Return a factory ``(shape, outputs) -> nn.Module`` that calls ``make`` as it can be called.

    ``shape`` and ``outputs`` are given by name to parameters so named, else by position to a
    function with exactly two required parameters. A function or an ``nn.Module`` class without
    required parameters is called with nothing.
    """
    name = _name(make)
    if isinstance(make, nn.Module) or not callable(make):
        raise InputError(f"{name} is not a model factory: give a function that makes the model")
    parameters = inspect.signature(make).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in _VARIABLE]
    named = {p.name for p in parameters if p.kind in _BY_NAME} & {"shape", "outputs"}
    positional = [p.name for p in parameters if p.kind in _BY_POSITION]
    if required == positional[:2] and len(required) == 2 and named in (set(), set(required)):
        return make
    if not set(required) <= named:
        asked = ", ".join(required)
        raise InputError(f"{name} asks for ({asked}): a factory takes (shape, outputs) or nothing")

    def factory(shape: Shape, outputs: int) -> nn.Module:
        given: dict[str, Any] = {"shape": shape, "outputs": outputs}
        return make(**{key: given[key] for key in named})

    factory.__module__, factory.__qualname__ = make.__module__, name
    return factory


def build(
    factory: Callable[..., nn.Module],
    shape: Shape,
    outputs: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
) -> nn.Module:
    """Make a model with the initial parameters of a seed; the global generator is left as it was.

    The factory is called as :func:`adapt` says.
    The parameters are drawn in torch's default dtype and then converted, so that a float64 model
    starts where the float32 one does.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = adapt(factory)(shape, outputs)
    if not isinstance(model, nn.Module):
        raise InputError(f"{_name(factory)} made a {type(model).__name__}, not an nn.Module")
    return model.to(dtype=dtype)


_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_BY_POSITION = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


def _settings_of(make: Callable[..., nn.Module]) -> type[BaseModel]:
    """Return the settings of a model of the table as a class, to check them without building."""
    hints = get_type_hints(inspect.unwrap(make), include_extras=True)
    fields: dict[str, Any] = {
        p.name: (hints[p.name], p.default)
        for p in inspect.signature(make).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    }
    return create_model(make.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def _name(make: object) -> str:
    inner = make.func if isinstance(make, functools.partial) else make
    return getattr(inner, "__qualname__", None) or type(inner).__name__
