"""Matrix products of a stack of clients, by the library that is faster on this processor.

Torch multiplies float32 matrices with MKL, which on processors of AMD stays with AVX2. oneDNN,
which torch also brings and uses for convolutions, takes AVX-512: half the time on Zen 5, whose
servers compute registers of that width in one piece. It has no batched product of float32 in torch,
and a call costs ten microseconds, so only large products go to it, client by client. Which those
are depends on their shape and on the processor, never on a clock: a run can be repeated to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

LARGE = 1 << 22
"""Multiplications of a client's product from which it is worth a call of its own."""
REST: tuple[object, ...] = (None, "none", [], "")
"""No bias and nothing after the product."""


def product(left: Tensor, right: Tensor, more: Tensor | None = None) -> Tensor:
    r"""Return :math:`L R^\top` of every client, ``[m, r, k]`` and ``[m, c, k]`` to ``[m, r, c]``.

    Plus ``more``, of that shape or spread over it.
    """
    one = _worth_a_call(left, right)
    if one is None:
        turned = right.mT
        return torch.bmm(left, turned) if more is None else torch.baddbmm(more, left, turned)
    each = [one(*both, *REST) for both in zip(left, right, strict=True)]
    found = each[0][None] if len(each) == 1 else torch.stack(each)
    return found if more is None else found.add_(more)


def plus_product(
    start: Tensor, left: Tensor, right: Tensor, alpha: float, out: Tensor, keep: float = 1.0
) -> Tensor:
    r"""Write :math:`k S + \alpha L R^\top` of every client to ``out``, which may be ``start``."""
    one = _worth_a_call(left, right)
    if one is None:
        return torch.baddbmm(start, left, right.mT, beta=keep, alpha=alpha, out=out)
    for s, a, b, room in zip(start, left, right, out, strict=True):
        found = one(a, b, *REST)  # added while it is in the cache
        if keep == 1.0:
            torch.add(s, found, alpha=alpha, out=room)
        else:
            torch.add(found.mul_(alpha), s, alpha=keep, out=room)
    return out


def _worth_a_call(left: Tensor, right: Tensor) -> Callable[..., Tensor] | None:
    """Return what multiplies one client's matrices, if that is better than all at once."""
    large = left.shape[1] * left.shape[2] * right.shape[1] >= LARGE
    return onednn() if large and left.dtype is torch.float32 and faster() else None


@cache
def faster() -> bool:
    """Tell whether this is a processor on which oneDNN's products are faster than torch's."""
    capable: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    # Only AMD has sse4a; with it, avx_vnni came with Zen 5.
    return mkl and all(map(capable.get, ("sse4a", "avx_vnni", "avx512_f")))


@cache
def onednn() -> Callable[..., Tensor] | None:
    """Return oneDNN's product if this torch has it, and it is right."""
    some = torch.arange(6, dtype=torch.float32).view(2, 3)
    try:
        linear: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise.default
        return linear if torch.equal(linear(some, some, *REST), some @ some.mT) else None
    except (AttributeError, RuntimeError, TypeError):  # no such operation, or another one
        return None
