"""Vectors of several clients with their views slot by slot, made once for all lanes.

A view costs little, but workers side by side that make many wait for each other.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from fedparity.engines.kernels.gradients import Pieces
from fedparity.learning.layout import Layout


class Slotted(NamedTuple):
    """Vectors ``[m, d]`` of a lane's clients, and their views ``[m, *shape]``, slot by slot."""

    flat: Tensor
    pieces: Pieces

    @staticmethod
    def of(layout: Layout, flat: Tensor) -> Slotted:
        """Return the vectors with their views."""
        return Slotted(flat, tuple(layout.views(flat)))

    def split(self, widths: list[int]) -> list[Slotted]:
        """Return the vectors of so many clients each, one group behind the other."""
        if len(widths) == 1:
            return [self]
        pieces = zip(*(piece.split_with_sizes(widths) for piece in self.pieces), strict=True)
        flat = self.flat.split_with_sizes(widths)
        return [Slotted(*both) for both in zip(flat, pieces, strict=True)]
