"""The noise of the FedEBA+ paper, which is no differential privacy."""

from __future__ import annotations

import math

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError
from fedparity.method import STRICT, Client, Context, Guarantee, Part, Plan, Tensors
from fedparity.parts.private import claim
from fedparity.parts.private.lots import lot_sizes


@dataclass(frozen=True, config=STRICT)
class PaperDP(Part):
    r"""Clip the gradient of every batch as a whole and add noise to it.

    .. math:: g \leftarrow g \min(1, C/\lVert g\rVert) + N(0, (\sigma_2 C/L)^2 I)

    with L the size of a batch.

    Parameters
    ----------
    clip
        The bound C on the Euclidean norm of a batch's gradient; infinite does not clip.
    noise
        The paper's :math:`\sigma_2`, which it sets to 0, 2, 5, 10 and 50.

    Notes
    -----
    Sent: nothing more than FedAvg. There is never an epsilon: one example changes the mean of a
    clipped batch by up to 2C, not by C/L, so that the noise is L times too small for what it is
    compared with. Use ``dp_sgd`` for privacy. The paper adds the noise to an "intermediate
    variable" and leaves open which tensor that is and whether it is clipped; here it is the
    gradient of a step, behind the corrections of the parts written before (with FedEBA+ its aligned
    gradient). Its Table 15 does not change with :math:`\sigma_2` from 2 to 50.

    Examples
    --------
    >>> PaperDP().noise
    2.0

    References
    ----------
    Wang, Wang, Karimireddy, Tang. FedEBA+: towards fair and effective federated learning via
    entropy-based model. arXiv:2301.12407, 2023. Appendix N.5.
    """

    clip: float = Field(default=1.0, gt=0, allow_inf_nan=True, description="bound on a gradient")
    noise: float = Field(default=2.0, ge=0, description="the paper's sigma_2")

    name = "paper_dp"
    paper = "Wang et al. 2023 (FedEBA+), appendix N.5"
    learns = "its update, made of gradients with noise"

    @property
    def hooks(self) -> frozenset[str]:
        off = math.isinf(self.clip) and not self.noise
        return super().hooks - ({"grad", "plan"} if off else set())

    def neutral(self) -> Part:
        return PaperDP(clip=math.inf, noise=0.0)

    def validate(self, ctx: Context) -> None:
        if self.noise and math.isinf(self.clip):
            raise InputError(f"'{self.name}' has noise in bounds 'clip', which is infinite")
        for part in ctx.parts:
            if not part.trains:
                raise InputError(f"'{part.name}' takes no local steps, which '{self.name}' makes")

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        return Plan(each={"lot": lot_sizes(ctx).to(ctx.x.dtype)})

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        shrink: Tensor = self.clip / g.norm().clamp_min(self.clip)
        if not self.noise:
            return g * shrink
        return g * shrink + self.noise * self.clip / c.down["lot"] * c.noise(len(g))

    def guarantee(self, s: Tensors, ctx: Context) -> Guarantee:
        because = "'paper_dp' clips the gradient of a batch, not of each example: use dp_sgd"
        return Guarantee(None, claim.default_delta(ctx.population), "example", "", because)
