"""What one track of local training does at every step: the parts' step hooks, for one client.

Engines call these functions on the tensors of one client, or lift them to a stack of clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedparity.learning.layout import Layout
from fedparity.method.client import SHARED, Client
from fedparity.method.messages import SERVER, Down
from fedparity.method.part import Part

Tree = Mapping[str, Any]
"""The tensors of one client, or of a stack, by what they are: each, state, facts, points, n, ..."""
Batch = Mapping[str, Any]
"""In ``loss``: inputs, share, predict and augment of :class:`~fedparity.method.client.Client`."""


@dataclass(frozen=True)
class Rule:
    """The steps of one track.

    ``acting`` are the parts whose hooks act on this track, by hook; ``wants`` are the facts of the
    steps that are asked for.
    """

    acting: Mapping[str, list[Part]]
    layout: Layout
    down: Down
    progress: float
    tree: Tree
    wants: frozenset[str] = frozenset()
    track: str = SHARED
    corrects: bool = True
    """Whether parts change the gradient."""

    @property
    def lr(self) -> float:
        return self.down.lr

    def having(self, hook: str) -> list[Part]:
        """Return the parts of this track that use a hook, in order."""
        if hook == "grad" and not self.corrects:
            return []
        return self.acting.get(hook, [])

    def view(self, part: Part, hook: str, tree: Tree, **more: object) -> Client:
        """Return what a part sees of the client in ``tree``."""
        mine = f"{part.name}/"
        track = self.track.removeprefix(mine) if self.track.startswith(mine) else self.track
        purpose = f"{part.name}.{hook}" + ("" if self.track == SHARED else f"@{self.track}")
        down = self.down
        if hook == "seal":  # two replies of a round with the same noise would tell their difference
            purpose += f"@{down.phase}" + (f".{down.search}" if down.search else "")
        return Client(
            down.lr,
            down.round,
            self.layout,
            x=down.x,
            anchor=tree.get("anchor", down.x),
            track=track,
            down={**down.shared.get(part.name, {}), **tree["each"].get(part.name, {})},
            state=tree["state"].get(part.name, {}),
            points=tree.get("points", {}).get(part.name, {}),
            ends=tree.get("ends", {}).get(part.name, {}),
            n=tree["n"],
            steps=tree["steps"],
            progress=self.progress,
            seed=tree["seed"],
            secret=tree.get("secret"),
            purpose=purpose,
            _facts={**tree["facts"], **tree["each"].get(SERVER, {})},
            **more,
        )

    def losses(
        self, tree: Tree, losses: Tensor, output: Tensor, target: Tensor, batch: Batch, step: int
    ) -> Tensor:
        """Return a batch's losses ``[B]`` as the parts want them."""
        for part in self.having("loss"):
            c = self.view(part, "loss", tree, step=step, **batch)
            losses = part.loss(losses, output, target, c)
        return losses

    def second(self, tree: Tree, losses: Tensor, step: int) -> Tensor:
        """Return the losses ``[B]`` whose gradient is asked for besides."""
        (part,) = self.having("second")
        return part.second(losses, self.view(part, "second", tree, step=step))

    def examples(self, tree: Tree, grads: Tensor, step: int) -> Tensor:
        """Return the gradients of examples ``[B, d]`` as the part that asks for them wants them."""
        (part,) = self.having("examples")
        return part.examples(grads, self.view(part, "examples", tree, step=step))

    def gradient(self, tree: Tree, g: Tensor, second: Tensor, y: Tensor, step: int) -> Tensor:
        """Return the gradient ``[d]`` as the parts correct it."""
        for part in self.having("grad"):
            c = self.view(part, "grad", tree, second=second, step=step)
            g = part.grad(g, y, c)
        return g
