"""Wrong labels on purpose, for the study of robust methods.

References
----------
Patrini et al. Making deep neural networks robust to label noise. CVPR 2017.
Jiang et al. Towards federated learning against noisy labels via local self-regularization.
CIKM 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from fedparity import imports, spec
from fedparity.arguments import Settings
from fedparity.data.split import Ints
from fedparity.errors import InputError
from fedparity.imports import Allowed


@runtime_checkable
class Noise(Protocol):
    """Anything that returns labels of which some are wrong."""

    def flip(self, labels: Ints, classes: int, rng: np.random.Generator) -> Ints:
        """Return new labels in ``range(classes)``."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Symmetric(metaclass=Settings):
    r"""Each label becomes one of the other classes with probability ``rate``.

    .. math:: P(\tilde y = c) = \text{rate} / (C - 1) \quad (c \ne y)
    """

    rate: float = Field(default=0.5, ge=0, le=1, description="share of labels that become wrong")

    def flip(self, labels: Ints, classes: int, rng: np.random.Generator) -> Ints:
        """Return the noisy labels."""
        wrong = rng.random(len(labels)) < self.rate
        other = (labels + rng.integers(1, classes, len(labels))) % classes
        return np.where(wrong, other, labels)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Pair(metaclass=Settings):
    r"""Each label becomes the class before it with probability ``rate``.

    .. math:: P(\tilde y = y - 1 \bmod C) = \text{rate}
    """

    rate: float = Field(default=0.5, ge=0, le=1, description="share of labels that become wrong")

    def flip(self, labels: Ints, classes: int, rng: np.random.Generator) -> Ints:
        """Return the noisy labels."""
        wrong = rng.random(len(labels)) < self.rate
        return np.where(wrong, (labels - 1) % classes, labels)


NOISES: Mapping[str, Callable[..., Noise]] = {"symmetric": Symmetric, "pair": Pair}


def as_noise(noise: Noise | str) -> Noise:
    """Return the noise a text such as ``"symmetric(rate=0.3)"`` names; an object is kept."""
    made = read(noise, Allowed.by(named=noise)) if isinstance(noise, str) else noise
    if isinstance(made, type) or not isinstance(made, Noise):
        raise InputError(f"{made!r} is no label noise: give 'pair', or an object such as Pair()")
    return made


def read(text: str, allowed: Allowed) -> Noise:
    """Return the noise a text names, which may name the code that is allowed."""
    return imports.make("label noise", spec.parse_one(text), NOISES, allowed, Noise)


def noise_text(noise: Noise) -> str:
    """Return the text of a noise, with all settings."""
    for name, kind in NOISES.items():
        if type(noise) is kind:
            return str(spec.written(name, noise))
    return imports.text_of(noise)
