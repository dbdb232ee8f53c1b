"""LSR: local self-regularisation against noisy labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.learning.augmentation import DRAWS
from fedparity.method import STRICT, Client, Part


@dataclass(frozen=True, config=STRICT)
class LSR(Part):
    r"""Train on sharpened predictions of two views of a batch, and make the views agree.

    With :math:`z_1 = f(x)`, :math:`z_2 = f(A(x))` and :math:`\lambda` uniform in [0, 1) a batch,

    .. math:: P = \lambda\,\mathrm{softmax}(z_1) + (1-\lambda)\,\mathrm{softmax}(z_2), \qquad
              L = -\log P_s[y] + \gamma_t\, \mathrm{JS}(q_1, q_2),

    where :math:`P_s \propto P^{1/T_s}`, :math:`q_i = \mathrm{softmax}(z_i/T_d)` and
    :math:`\gamma_t = \gamma \min(1, t/(w T))` in round t of T.

    Parameters
    ----------
    gamma
        Strength of the agreement.
    warmup
        Share :math:`w` of the run's rounds over which it grows; 0 has it whole from the start. A
        run that is resumed with more rounds counts them all from then on, and so grows more slowly
        than it did.
    sharpen, distil
        Temperatures :math:`T_s` and :math:`T_d`.
    form
        ``paper`` as above; ``code`` as the authors' code: a second log-softmax on :math:`P_s`,
        :math:`q_i` of at least 1e-6, the divergence also averaged over classes, and 0.6 times the
        entropy of :math:`\mathrm{softmax}(q_1)`.

    Notes
    -----
    Sent: nothing more than its host. Losses that a client reports (FedEBA's, FedFV's) are this
    robust loss of the round with :math:`\lambda = 1/2` and a fixed view: deterministic. The
    view A is the task's ``augment``. For classification only.

    Examples
    --------
    >>> LSR().gamma
    0.4

    References
    ----------
    Jiang et al. Towards federated learning against noisy labels via local self-regularization.
    CIKM 2022.
    """

    gamma: float = Field(default=0.4, ge=0, description="strength of the agreement")
    warmup: float = Field(default=0.2, ge=0, le=1, description="share of rounds gamma grows over")
    sharpen: float = Field(default=0.5, gt=0, description="temperature of the sharpened labels")
    distil: float = Field(default=1 / 3, gt=0, description="temperature of the agreement")
    form: Literal["paper", "code"] = "paper"

    name = "lsr"
    paper = "Jiang et al. 2022 (FedLSR)"
    everywhere = True

    def loss(self, losses: Tensor, output: Tensor, target: Tensor, c: Client) -> Tensor:
        view = c.predict(c.augment(c.inputs, c.uniform(DRAWS, draw=1)))
        mix = c.uniform(1, draw=0)[0]
        return self.robust(output, view, target, mix, self._gamma(c.progress))

    def judge(
        self,
        losses: Tensor,
        output: Tensor,
        target: Tensor,
        view: Callable[[Tensor], Tensor],
        progress: float,
    ) -> Tensor:
        still = torch.full((DRAWS,), 0.75, dtype=output.dtype)
        mix = torch.full((), 0.5, dtype=output.dtype)
        return self.robust(output, view(still), target, mix, self._gamma(progress))

    def _gamma(self, progress: float) -> float:
        return self.gamma * (min(1.0, progress / self.warmup) if self.warmup else 1.0)

    def robust(
        self, first: Tensor, second: Tensor, target: Tensor, mix: Tensor, gamma: float
    ) -> Tensor:
        """Return the loss of every example from the logits of its two views."""
        mixed = mix * first.softmax(-1) + (1 - mix) * second.softmax(-1)
        sharp = (mixed.clamp_min(1e-12).log() / self.sharpen).log_softmax(-1)
        q1 = (first / self.distil).log_softmax(-1)
        q2 = (second / self.distil).log_softmax(-1)
        if self.form == "code":
            q1, q2 = q1.clamp_min(math.log(1e-6)), q2.clamp_min(math.log(1e-6))
        middle = torch.logaddexp(q1, q2) - torch.log(torch.full((), 2.0, dtype=first.dtype))
        apart = 0.5 * (q1.exp() * (q1 - middle) + q2.exp() * (q2 - middle))
        if self.form == "paper":
            wrong = F.nll_loss(sharp, target, reduction="none")
            return wrong + gamma * apart.sum(-1)
        wrong = F.cross_entropy(sharp.exp(), target, reduction="none")
        certain = q1.exp().log_softmax(-1)
        entropy = -(certain.exp() * certain).sum(-1)
        return wrong + gamma * apart.mean(-1) + 0.6 * entropy
