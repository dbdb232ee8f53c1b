"""Where one client after another is computed: a module that can be set to any parameters."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from fedparity.core.layout import Layout


class Desk:
    """A module of one's own, to be set to any parameters.

    Convolutions read and keep their numbers channels last, where they are faster.
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        self.module = copy.deepcopy(module)
        self.layout = layout
        if any(isinstance(layer, nn.Conv2d) for layer in self.module.modules()):
            for parameter in (p for p in self.module.parameters() if p.dim() == 4):
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
            self.module.register_forward_pre_hook(_channels_last)
        self.parameters = tuple(self.module.parameters())
        self.buffers = [b for _, b in self.module.named_buffers()]

    @torch.no_grad()
    def place(self, x: Tensor) -> None:
        """Set the parameters."""
        torch._foreach_copy_(self.parameters, self.layout.views(x))

    @torch.no_grad()
    def copy(self, parameters: tuple[Tensor, ...]) -> None:
        """Set the parameters to those of another desk."""
        torch._foreach_copy_(self.parameters, parameters)

    @torch.no_grad()
    def read(self) -> Tensor:
        """Return the parameters as one vector."""
        return self.layout.join(self.parameters, torch.Size())

    def place_buffers(self, b: Tensor) -> None:
        """Set the buffers."""
        if self.buffers:
            for mine, new in zip(self.buffers, self.layout.buffer_tensors(b).values(), strict=True):
                mine.copy_(new)

    def read_buffers(self) -> Tensor:
        """Return the buffers as one vector."""
        if not self.buffers:
            return self.parameters[0].new_zeros(0)
        return self.layout.pack_buffers(dict(self.module.named_buffers()), self.parameters[0])


def _channels_last(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    images = isinstance(args[0], Tensor) and args[0].dim() == 4
    return (args[0].contiguous(memory_format=torch.channels_last), *args[1:]) if images else args
