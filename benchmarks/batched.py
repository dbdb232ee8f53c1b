"""The arithmetic of a round and nothing else, in torch's usual operations.

The same forward pass, backward pass and SGD step as an engine's, on the same batches, written by
hand for each kind of model. Cohort and batches are fixed beforehand: choosing them is no
arithmetic. No method could be plugged in here; it is a measure, not an engine.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

import fedparity as fp
from fedparity.engines.reference.arranging import pool_first
from fedparity.learning.seeds import seeds_for


class Round:
    """Cohort, batches and aggregation weights of an experiment's first round."""

    def __init__(self, experiment: fp.Experiment) -> None:
        self.lr = experiment.solver.lr
        self.cohort = experiment.sample(1)
        data = experiment.federation.train
        sizes = data.sizes[self.cohort]
        self.shares = torch.from_numpy(sizes / sizes.sum()).float()
        keys = seeds_for(experiment.seed, "batches", 1, self.cohort)
        plan = experiment.solver.batches(keys, sizes)
        self.module = experiment.setup.module.train()
        self.x, self.y = data.x, data.y
        if plan is None:
            self.all_rows = [
                slice(int(data.offsets[k]), int(data.offsets[k] + data.sizes[k]))
                for k in self.cohort
            ]
            return
        self.rows = torch.from_numpy(plan.index + data.offsets[self.cohort][:, None, None])
        counts = plan.mask.sum(-1, keepdims=True)
        self.weights = torch.from_numpy(np.where(plan.mask, 1 / counts, 0.0)).float()

    def parameters(self) -> list[Tensor]:
        """Return the parameters, without gradients."""
        return [p.detach() for p in self.module.parameters()]


def arithmetic(experiment: fp.Experiment, model: str) -> Round:
    """Return the contestant for a model: stacked, one full batch each, or channels last."""
    if model == "cnn":
        return ChannelsLast(experiment)
    return FullBatches(experiment) if experiment.solver.batch is None else Stacked(experiment)


class Stacked(Round):
    """Linear layers and ReLU as batched matrix products over the clients of the round."""

    def __init__(self, experiment: fp.Experiment) -> None:
        super().__init__(experiment)
        m = len(self.cohort)
        self.flat = self.x.flatten(1)
        weights, biases = self.parameters()[::2], self.parameters()[1::2]
        self.w = [w.T.expand(m, *w.T.shape).contiguous() for w in weights]
        self.b = [b.expand(m, 1, len(b)).contiguous() for b in biases]

    @torch.inference_mode()
    def __call__(self) -> None:
        start = [(w[0].clone(), b[0].clone()) for w, b in zip(self.w, self.b, strict=True)]
        for step in range(self.rows.shape[1]):
            self._step(self.rows[:, step], self.weights[:, step])
        for layer, old in enumerate(start):
            for stack, before in zip((self.w[layer], self.b[layer]), old, strict=True):
                deltas = stack.flatten(1) - before.flatten()
                stack.copy_((before.flatten() + self.shares @ deltas).view(before.shape))

    def _step(self, rows: Tensor, weights: Tensor) -> None:
        ends = [self.flat[rows]]
        for layer, (w, b) in enumerate(zip(self.w, self.b, strict=True)):
            out = torch.baddbmm(b, ends[-1], w)
            ends.append(out if layer == len(self.w) - 1 else out.relu_())
        back = ends.pop().softmax(-1)
        target = self.y[rows][..., None]
        back.scatter_add_(-1, target, torch.full_like(target, -1, dtype=back.dtype))
        back.mul_(weights[..., None])
        for layer in range(len(self.w) - 1, -1, -1):
            below = ends[layer]
            if layer:
                further = torch.bmm(back, self.w[layer].mT).mul_(below > 0)
            self.w[layer].baddbmm_(below.mT, back, alpha=-self.lr)
            self.b[layer].sub_(back.sum(1, keepdim=True), alpha=self.lr)
            if layer:
                back = further


class FullBatches(Round):
    """One full-batch step of a linear model, client after client."""

    def __init__(self, experiment: fp.Experiment) -> None:
        super().__init__(experiment)
        self.w, self.b = (p.clone() for p in self.parameters())

    @torch.inference_mode()
    def __call__(self) -> None:
        w, b = self.w.clone(), self.b.clone()
        for rows, share in zip(self.all_rows, self.shares.tolist(), strict=True):
            x, y = self.x[rows], self.y[rows][:, None]
            back = torch.addmm(self.b, x, self.w.T).softmax(-1)
            back.scatter_add_(-1, y, torch.full_like(y, -1, dtype=back.dtype))
            step = self.lr / len(x)
            own = torch.addmm(self.w, back.T, x, alpha=-step)
            w.add_(own.sub_(self.w), alpha=share)
            b.sub_(back.sum(0), alpha=share * step)
        self.w, self.b = w, b


class ChannelsLast(Round):
    """Convolutions one client after another, in the order of memory and layers that is fastest."""

    def __init__(self, experiment: fp.Experiment) -> None:
        super().__init__(experiment)
        last = torch.channels_last
        self.x = self.x.contiguous(memory_format=last)
        self.module = pool_first(self.module).to(memory_format=last)
        self.loss = nn.CrossEntropyLoss()

    def __call__(self) -> None:
        live = list(self.module.parameters())
        start = [p.detach().clone() for p in live]
        total = [torch.zeros_like(p) for p in start]
        for client, share in enumerate(self.shares.tolist()):
            for p, old in zip(live, start, strict=True):
                p.data.copy_(old)
            for step in range(self.rows.shape[1]):
                rows = self.rows[client, step]
                grads = torch.autograd.grad(
                    self.loss(self.module(self.x[rows]), self.y[rows]), live
                )
                with torch.no_grad():
                    torch._foreach_sub_(live, grads, alpha=self.lr)
            torch._foreach_add_(total, [p.detach() for p in live], alpha=share)
        for p, new in zip(live, total, strict=True):
            p.data.copy_(new)
