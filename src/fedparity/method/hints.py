"""Optional: what a part may tell so that an engine computes its hooks faster.

No part needs any of this, and none of it changes a number: the loop engine, the oracle of the
others, does not look at it, and the check ``engines`` compares the two.

- :func:`stacked` marks a ``finish`` whose lines hold for a stack of clients as they stand.
- :func:`of_losses` marks a function of ``own_facts`` that looks at nothing but the losses.
- A method ``affine(c) -> Affine`` stands for a ``grad`` that is an affine function of gradient and
  parameters, with coefficients that do not change within a round.
- A method ``by_slot(c)`` returns what stands for a ``grad`` that looks at nothing but the gradient
  and of no gradient makes none: a function of the gradient slot by slot, ``[..., *shape]`` each,
  that holds for a stack; or None where the settings ask for more.
- A method ``loss_weights(losses, share)`` stands for a ``loss`` that looks at nothing but losses
  and shares, ``[..., B]`` each: it returns the derivative of ``c.mean`` of the new losses by each
  old one, ``[..., B]``, and holds for a stack. It is written in the class that has the ``loss``.
- A method ``example_weights(target, c)`` stands for a ``loss`` that multiplies losses by numbers
  which look at no loss and no output: it returns these, ``[..., B]``, and holds for a stack. It is
  written in the class that has the ``loss``.
- A class attribute ``overwrites`` names server state that hooks may write to and hand on, too large
  to copy every round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

Hook = TypeVar("Hook", bound=Callable[..., object])


class Affine(NamedTuple):
    """The correction ``g -> scale * g + pull * y + shift``.

    All tensors may have a leading dimension of clients, or none where they are the same for all.
    """

    scale: Tensor | float = 1.0
    """A number a client."""
    pull: float = 0.0
    shift: Tensor | None = None
    """``[..., d - start]``: added from the index ``start`` on."""
    start: int = 0

    def then(self, other: Affine) -> Affine:
        """Return this correction followed by another.

        >>> Affine(scale=2.0, pull=1.0).then(Affine(scale=3.0, pull=0.5))[:2]
        (6.0, 3.5)
        """
        if isinstance(other.scale, Tensor) and self.pull:
            raise ValueError("a pull cannot be scaled client by client")
        shift, start = other.shift, other.start
        if self.shift is not None:
            mine = self.shift * _column(other.scale)
            if shift is None:
                shift, start = mine, self.start
            elif start == self.start:
                shift = shift + mine
            else:
                raise ValueError("two shifts of unlike length")
        factor = other.scale if isinstance(other.scale, float | int) else 1.0
        return Affine(self.scale * other.scale, self.pull * factor + other.pull, shift, start)


def stacked(hook: Hook) -> Hook:
    """Mark a ``finish`` whose lines hold for a whole stack of clients as they stand.

    They are written for the tensors of one client and are as true where each has one more
    dimension in front: differences, products, sums over the last dimension. ``c.x`` and what a plan
    sends to all have no such dimension; what is reported must have it; nothing may be drawn at
    random. Any other hook is lifted by vmap, which takes longer than a few numbers take to compute.
    """
    if hook.__name__ != "finish":
        raise TypeError(f"only 'finish' can be stacked, not '{hook.__name__}'")
    hook.stacked = True  # type: ignore[attr-defined]
    return hook


def is_stacked(hook: Callable[..., object]) -> bool:
    """Tell whether a hook is marked as true of a stack."""
    return hasattr(hook, "stacked")


def of_losses(function: Hook) -> Hook:
    """Mark a function of ``own_facts`` that looks at losses alone: outputs may lie as they come."""
    function.of_losses = True  # type: ignore[attr-defined]
    return function


def looks_at_losses(function: Callable[..., object]) -> bool:
    """Return whether a function of ``own_facts`` is marked as one of losses alone."""
    return hasattr(function, "of_losses")


def loss_weights_of(part: Any) -> Callable[[Tensor, Tensor], Tensor] | None:
    """Return a part's ``loss_weights``, if they are written beside the very ``loss`` it has."""
    return _beside_loss(part, "loss_weights")


def example_weights_of(part: Any) -> Callable[[Tensor, Any], Tensor] | None:
    """Return a part's ``example_weights``, if they are written beside the very ``loss`` it has."""
    return _beside_loss(part, "example_weights")


def _beside_loss(part: Any, name: str) -> Callable[..., Tensor] | None:
    for kind in type(part).__mro__:
        if "loss" in vars(kind):
            return getattr(part, name, None) if name in vars(kind) else None
    return None


def overwritten(part: Any) -> frozenset[str]:
    """Return the server state that a part's hooks may write to."""
    found: frozenset[str] = getattr(part, "overwrites", frozenset())
    return found


def _column(scale: Tensor | float) -> Tensor | float:
    return scale[..., None] if isinstance(scale, Tensor) and scale.dim() else scale
