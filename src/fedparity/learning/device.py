"""Where clients compute: the processor, or an accelerator that torch knows."""

from __future__ import annotations

import torch

from fedparity.errors import InputError

KINDS = ("cuda", "mps")
"""Accelerators, in the order in which ``auto`` looks for them."""


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
    """Return the type in which numbers of many examples are summed: MPS has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64
