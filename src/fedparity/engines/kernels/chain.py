r"""A chain of linear layers and activations: batched matrix products, written out.

Such models (linear, mlp, and a user's own of the same kind) are the ones for which stacking pays
most and for which lifting and recording cost most: one product of matrices a layer, a direction and
a client is all there is to do. With :math:`X` what a layer reads and :math:`G` the slope of the
losses in what it gives,

.. math:: \nabla W = G^\top X, \qquad \nabla b = G^\top 1, \qquad G \leftarrow G W

The lifted model with autograd is the oracle of these lines.

Products are left to the library that is faster on this processor.
Torch multiplies float32 matrices with MKL, which on processors of AMD stays with AVX2. oneDNN,
which torch also brings and uses for convolutions, takes AVX-512: half the time on Zen 5, whose
servers compute registers of that width in one piece. It has no batched product of float32 in torch,
and a call costs ten microseconds, so only large products go to it, client by client. Which those
are depends on their shape and on the processor, never on a clock: a run can be repeated to the bit.

Shapes: ``m`` clients of a stack, ``B`` examples, ``i`` inputs and ``o`` outputs of a layer. All of
this runs on the thread of the worker that calls, and a chain keeps nothing between two calls, so
workers may share one. Only :meth:`Chain.step` with ``in_place`` and :func:`plus_product` write to a
tensor that they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from fedparity.engines.engine import Setup, altered
from fedparity.engines.lane import Pieces
from fedparity.learning.frozen import trainable
from fedparity.learning.task import Slope, slope_of, takes_any_layout
from fedparity.method.hints import example_weights_of, loss_weights_of

aten = torch.ops.aten
BACKWARD: dict[type[nn.Module], Callable[[Tensor, Tensor], Tensor]] = {
    nn.ReLU: lambda g, out: aten.threshold_backward(g, out, 0),
    nn.Tanh: lambda g, out: aten.tanh_backward(g, out),
    nn.Sigmoid: lambda g, out: aten.sigmoid_backward(g, out),
    nn.Softmax: lambda g, out: aten._softmax_backward_data(g, out, -1, out.dtype),
}
"""Activations whose slope is known from what they give."""
Share = Tensor | Callable[[Tensor, Tensor], Tensor] | None
"""The factor ``[m, B]`` of each example's loss in the sum, or None for ones.

Or a function of outputs ``[m, B, o]`` and targets ``[m, B]`` that returns the factors.
"""
NARROW = 64
"""Outputs below which a product is faster the other way round, with examples along its rows."""


class Chain:
    """The layers of a model that is a chain, for a stack of ``m`` clients.

    Inputs are ``[m, B, ...]``, targets ``[m, B, ...]``, and parameters come slot by slot of the
    layout, ``[m, o, i]`` of a weight and ``[m, o]`` of a bias.
    """

    def __init__(self, layers: list[nn.Module], slope: Slope, as_it_lies: bool = False) -> None:
        self.layers, self.slope, self.as_it_lies = layers, slope, as_it_lies

    @staticmethod
    def of(setup: Setup) -> Chain | None:
        """Return the chain of an experiment, or None if model, loss or parts want more."""
        slope = slope_of(setup.task)
        layers = leaves(setup.module)
        hooked = any(map(setup.algorithm.having, ("second", "judge", "examples")))
        if slope is None or layers is None or hooked or not _weighs(setup):
            return None
        own = [id(p) for layer in layers for p in layer.parameters()]
        if own != [id(p) for _, p in trainable(setup.module)]:  # tied, frozen, or not of a layer
            return None
        if len(setup.federation.shape) > 1 and not isinstance(layers[0], nn.Flatten):
            return None
        return Chain(layers, slope, takes_any_layout(setup.task))

    @torch.no_grad()
    def outputs(self, parameters: Pieces, x: Tensor) -> Tensor:
        """Return the outputs ``[m, B, o]`` of every client at its own parameters."""
        return self._through(parameters, x)[-1]

    @torch.no_grad()
    def gradient(self, parameters: Pieces, x: Tensor, target: Tensor, share: Share) -> Pieces:
        """Return the gradient of the sum of losses by slot, each times its ``share [m, B]``."""
        found = list(parameters)
        for place, bias, g, read in self._backward(parameters, x, target, share):
            found[place] = product(g.mT, read.mT)
            if bias:
                found[place + 1] = g.sum(1)
        return tuple(found)

    @torch.no_grad()
    def step(
        self,
        parameters: Pieces,
        x: Tensor,
        target: Tensor,
        share: Share,
        lr: float,
        in_place: bool = True,
        keep: float = 1.0,
    ) -> Pieces:
        """Return ``keep * y - lr * gradient`` by slot, without storing the gradient.

        With ``in_place`` it overwrites ``parameters``. Without, it makes new tensors, so that the
        parameters may be a view of one model that all clients share.
        """
        found = list(parameters)
        for place, bias, g, read in self._backward(parameters, x, target, share):
            weight = parameters[place]
            found[place] = weight if in_place else weight.new_empty(weight.shape)
            plus_product(weight, g.mT, read.mT, -lr, found[place], keep)
            if bias:
                out = parameters[place + 1] if in_place else None
                before = parameters[place + 1] if keep == 1.0 else parameters[place + 1] * keep
                found[place + 1] = torch.sub(before, g.sum(1), alpha=lr, out=out)
        return tuple(found)

    def _backward(
        self, parameters: Pieces, x: Tensor, target: Tensor, share: Share
    ) -> Iterator[tuple[int, bool, Tensor, Tensor]]:
        """Yield, last layer first, the slot of its weight, whether a bias follows, G and X.

        G is ``[m, B, o]`` and X is ``[m, B, i]``, both to be read only. A layer's weight may be
        overwritten once it is yielded: what lies below has been computed with it.
        """
        seen = self._forward(parameters, x)
        g = self.slope(seen[-1], target)
        if callable(share) and not isinstance(share, Tensor):
            share = share(seen[-1], target)
        if share is not None:
            g.mul_(share[..., None])
        place = len(parameters)
        for depth in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[depth]
            if isinstance(layer, nn.Linear):
                bias = layer.bias is not None
                place -= 2 if bias else 1
                below = product(g, parameters[place].mT) if place else g
                yield place, bias, g, seen[depth]
                g = below
            elif type(layer) in BACKWARD and place:
                g = BACKWARD[type(layer)](g, seen[depth + 1])

    def _forward(self, parameters: Pieces, x: Tensor) -> list[Tensor]:
        """Return what a step's backward pass needs; kept apart so that the profiler can time it."""
        return self._through(parameters, x)

    def _through(self, parameters: Pieces, x: Tensor) -> list[Tensor]:
        """Return what every layer reads, ``[m, B, ...]``, and what the last one gives."""
        seen, place = [x], 0
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                bias = None if layer.bias is None else parameters[place + 1]
                x = affine(x, parameters[place], bias)
                place += 1 if bias is None else 2
            elif isinstance(layer, nn.Flatten):
                x = x if x.dim() == 3 else x.flatten(2)
            else:
                x = layer(x)
            seen.append(x)
        return seen


def _weighs(setup: Setup) -> bool:
    """Tell whether no part changes the losses, or one does that tells their weights."""
    parts = setup.algorithm.having("loss")
    told = [loss_weights_of(part) or example_weights_of(part) for part in parts]
    return not parts or (len(parts) == 1 and told[0] is not None)


class ChainModel(nn.Module):
    """A chain with one model's parameters ``[o, i]`` and ``[o]``, as a model to evaluate.

    It takes inputs ``[B, ...]`` and keeps nothing of them, so all workers may call it at once.
    """

    def __init__(self, chain: Chain, parameters: Pieces) -> None:
        super().__init__()
        self.chain, self.at = chain, tuple(parameter[None] for parameter in parameters)

    def forward(self, x: Tensor) -> Tensor:
        found = self.chain.outputs(self.at, x[None])[0]
        return found if self.chain.as_it_lies else found.contiguous()


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``x W^T + b`` of every client: ``[m, B, i]`` and ``[m, o, i]`` to ``[m, B, o]``."""
    if weight.shape[1] < min(NARROW, x.shape[1]):
        return product(weight, x, None if bias is None else bias[:, :, None]).mT
    return product(x, weight, None if bias is None else bias[:, None])


def leaves(module: nn.Module) -> list[nn.Module] | None:
    """Return the layers of a sequence of known ones in the order they apply, else None."""
    if type(module) is not nn.Sequential or altered(module):
        return None
    found: list[nn.Module] = []
    for child in module:
        inner = leaves(child) if type(child) is nn.Sequential else [child]
        if inner is None or not all(map(_known, inner)):
            return None
        found += inner
    return found if len({id(layer) for layer in found}) == len(found) > 0 else None


def _known(layer: nn.Module) -> bool:
    if altered(layer):
        return False
    if type(layer) is nn.Flatten:
        return (layer.start_dim, layer.end_dim) == (1, -1)
    if type(layer) is nn.Softmax:
        return layer.dim == -1
    return type(layer) in (nn.Linear, nn.Identity, *BACKWARD)


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
    r"""Write :math:`k S + \alpha L R^\top` of every client to ``out``, and return that.

    ``start`` and ``out`` are ``[m, r, c]`` and may be the same tensor.
    """
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
    fits = large and left.dtype is torch.float32 and left.device.type == "cpu"
    return onednn() if fits and faster() else None


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
