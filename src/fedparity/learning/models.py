"""The models of the papers, and how to name one of your own.

A model factory is a function ``name(shape, outputs, **settings) -> nn.Module``: ``shape`` is that
of one example, without the batch, and ``outputs`` the number of classes or of targets.
None of these models has BatchNorm or Dropout.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_type_hints

import torch
from pydantic import BaseModel, ConfigDict, Field, create_model, validate_call
from torch import nn

from fedparity import spec
from fedparity.errors import InputError, unknown
from fedparity.imports import Allowed, ImportPath, look_up

Shape = tuple[int, ...]
Factory = Callable[[Shape, int], nn.Module]


@validate_call
def linear(
    shape: Shape, outputs: int, *, softmax: bool = False, zero_bias: bool = False
) -> nn.Module:
    """One linear layer on the flattened example, ``W x + b``: logistic or linear regression.

    ``zero_bias`` starts at ``b = 0``. ``softmax`` gives probabilities in place of logits: their
    cross-entropy takes the softmax twice, so its slope is bounded. That is how the tables of the
    FedFV paper were made; for anything else leave it out.
    """
    out = nn.Linear(_flat_features("linear", shape), outputs)
    if zero_bias:
        nn.init.zeros_(out.bias)
    return _sequence(flatten=nn.Flatten(), out=out, **_end(softmax))


@validate_call
def mlp(
    shape: Shape,
    outputs: int,
    *,
    hidden: Annotated[int, Field(ge=1)] = 200,
    layers: Annotated[int, Field(ge=1)] = 2,
    softmax: bool = False,
) -> nn.Module:
    """``layers`` hidden layers of ``hidden`` units with ReLU, two of 200 as in the papers.

    ``softmax`` as for :func:`linear`.
    """
    sizes = [_flat_features("mlp", shape), *[hidden] * layers]
    modules: dict[str, nn.Module] = {"flatten": nn.Flatten()}
    for number in range(1, layers + 1):
        modules[f"hidden{number}"] = nn.Linear(sizes[number - 1], sizes[number])
        modules[f"relu{number}"] = nn.ReLU()
    return _sequence(**modules, out=nn.Linear(hidden, outputs), **_end(softmax))


@validate_call
def lenet(
    shape: Shape,
    outputs: int,
    *,
    activation: Literal["relu", "tanh"] = "relu",
    padding: Annotated[int, Field(ge=0)] = 0,
) -> nn.Module:
    """LeNet-5: 5x5 convolutions to 6 and 16 channels, linear layers of 120 and 84 units.

    Each convolution is followed by the activation and a 2x2 max pooling. The original reads
    32x32 images; MNIST's 28x28 become such by ``padding=2``.
    """
    act = nn.ReLU if activation == "relu" else nn.Tanh
    features = _conv_features("lenet", shape, channels=16, padding=padding)
    return _sequence(
        conv1=nn.Conv2d(shape[0], 6, 5, padding=padding),
        act1=act(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(6, 16, 5),
        act2=act(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        hidden1=nn.Linear(features, 120),
        act3=act(),
        hidden2=nn.Linear(120, 84),
        act4=act(),
        out=nn.Linear(84, outputs),
    )


def cnn(shape: Shape, outputs: int) -> nn.Module:
    """The network of the FedEBA+ paper: two 5x5 convolutions of 64 channels, 384 and 192 units.

    Each convolution is followed by ReLU and a 2x2 max pooling; a 3x32x32 image gives 1600
    features, other images what their size gives.
    """
    features = _conv_features("cnn", shape, channels=64)
    return _sequence(
        conv1=nn.Conv2d(shape[0], 64, 5),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(64, 64, 5),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        hidden1=nn.Linear(features, 384),
        relu3=nn.ReLU(),
        hidden2=nn.Linear(384, 192),
        relu4=nn.ReLU(),
        out=nn.Linear(192, outputs),
    )


MODELS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "lenet": lenet,
    "cnn": cnn,
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


def _conv_features(model: str, shape: Shape, *, channels: int, padding: int = 0) -> int:
    """Return what two 5x5 convolutions, each before a 2x2 pooling, leave of an image."""
    if len(shape) != 3:
        raise InputError(f"{model} reads images (channels, height, width), not shape {shape}")
    sides = [((side + 2 * padding - 4) // 2 - 4) // 2 for side in shape[1:]]
    if min(sides) < 1:
        least, given = 16 - 2 * padding, "x".join(map(str, shape[1:]))
        raise InputError(f"{model} reads images of at least {least}x{least} pixels, not {given}")
    return channels * math.prod(sides)


def _flat_features(model: str, shape: Shape) -> int:
    if not shape:
        raise InputError(f"{model} reads examples of one dimension or more, not single numbers")
    return math.prod(shape)


def _end(softmax: bool) -> dict[str, nn.Module]:
    """Return what follows the last layer."""
    return {"softmax": nn.Softmax(dim=-1)} if softmax else {}


def _sequence(**modules: nn.Module) -> nn.Module:
    return nn.Sequential(OrderedDict(modules))


def _name(make: object) -> str:
    inner = make.func if isinstance(make, functools.partial) else make
    return getattr(inner, "__qualname__", None) or type(inner).__name__
