"""Where clients compute: the processor, or an accelerator that torch knows."""

from __future__ import annotations

import torch

from fedparity.errors import InputError

KINDS = ("cuda", "mps")
"""Accelerators, in the order in which ``auto`` looks for them."""
WITHOUT_FLOAT64 = frozenset({"mps"})
"""Accelerators that have no float64."""


def available(kind: str) -> bool:
    """Tell whether this machine, and the torch on it, have an accelerator of this kind."""
    if kind == "mps":
        return bool(torch.backends.mps.is_available())
    return torch.cuda.is_available()


def chosen(asked: str) -> str:
    """Return the device of a name; ``auto`` is an accelerator if there is one.

    >>> chosen("cpu")
    'cpu'
    """
    if asked == "auto":
        return next((kind for kind in KINDS if available(kind)), "cpu")
    if asked in KINDS and not available(asked):
        raise InputError(
            f"device '{asked}': torch {torch.__version__} finds none here: take 'cpu' or 'auto', "
            "or install the torch that is made for it"
        )
    return asked


def wide(device: torch.device) -> torch.dtype:
    """Return the widest floating point type of a device: numbers of many examples are so summed."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def check_dtype(device: str, dtype: torch.dtype) -> None:
    """Refuse a floating point type that a device does not have.

    >>> check_dtype("cuda", torch.float64)
    """
    if dtype is torch.float64 and device in WITHOUT_FLOAT64:
        raise InputError(f"device '{device}' has no float64: take dtype 'float32', or device 'cpu'")
