"""Tasks with an output for each of several yes-or-no questions, or for one alone."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedparity.errors import InputError
from fedparity.learning.task import Task


class Binary(Task):
    r"""Logistic loss of two classes from a model with one output; metric ``accuracy``.

    .. math:: \ell(z, y) = \ln(1 + e^z) - y z

    A model of one output ``z`` has half the parameters of the last layer that cross-entropy on two
    outputs needs, and the same probabilities where those differ by ``z``.
    """

    name, predicts = "binary", "classes"

    def build(
        self, shape: tuple[int, ...], outputs: int, seed: int, dtype: torch.dtype
    ) -> nn.Module:
        if outputs != 2:
            raise InputError(f"task 'binary' needs two classes, and the data have {outputs}")
        return super().build(shape, 1, seed, dtype)

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        score = output.reshape(target.shape)
        return F.binary_cross_entropy_with_logits(score, target.to(score.dtype), reduction="none")

    def slope(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the derivative of each loss in its output: probability minus label."""
        return output.sigmoid() - target.reshape(output.shape)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        guess = output.reshape(target.shape) > 0
        return {"accuracy": (guess == (target > 0)).to(output.dtype)}

    def predictions(self, output: Tensor) -> Tensor:
        """Return the probability of each of the two classes, ``[B, 2]``."""
        second = output.reshape(-1).sigmoid()
        return torch.stack([1 - second, second], -1)


class MultiLabel(Task):
    """Logistic loss, averaged over the labels that an example may have; targets ``[B, L]``.

    Metrics ``accuracy``, the share of its labels that are told rightly, and ``exact``, whether all
    are.
    """

    name = "multi_label"

    def losses(self, output: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(output, target, reduction="none").mean(-1)

    def slope(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the derivative of each loss in its outputs."""
        return (output.sigmoid() - target) / output.shape[-1]

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, Tensor]:
        right = (output > 0) == (target > 0)
        return {
            "accuracy": right.to(output.dtype).mean(-1),
            "exact": right.all(-1).to(output.dtype),
        }

    def predictions(self, output: Tensor) -> Tensor:
        """Return the probability of each label, ``[B, L]``."""
        return output.sigmoid()
