"""Differential privacy of single examples: DP-SGD as the local training of every client."""

from __future__ import annotations

import math
from itertools import takewhile

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError
from fedparity.method import STRICT, Client, Context, Guarantee, Part, Plan, Tensors
from fedparity.method.privacy import ADDS_TO_GRADIENTS
from fedparity.parts.private import claim
from fedparity.parts.private.lots import lot_sizes, mechanism
from fedparity.toolbox.accounting import worst


@dataclass(frozen=True, config=STRICT)
class DPSGD(Part):
    r"""Clip the gradient of every example and add noise to their sum, at every local step.

    .. math:: g = \frac1L\Big(\sum_{j \in \text{lot}} g_j \min(1, C/\lVert g_j\rVert)
              + N(0, z^2C^2 I)\Big)

    with L the expected size of a lot.

    Parameters
    ----------
    clip
        The bound C on the Euclidean norm of an example's gradient; infinite does not clip.
    noise
        Standard deviation z of the noise, in bounds C.
    delta
        Probability with which epsilon may be exceeded; None is :math:`n^{-1.1}` for the n training
        examples of the largest client.
    budget
        Largest epsilon: the run stops before the round that would go over it.
    seeded
        Take the noise from the run's seed, so that a test has the same numbers twice. Whoever knows
        the seed can subtract it: there is no epsilon then, and a warning says so.

    Notes
    -----
    Sent: nothing more than FedAvg. The server learns an update that tells little of any one
    example; it need not be trusted. An epsilon wants the solver's ``lots="poisson"`` (one example
    more or less), ``lots="fixed"`` (one replaced) or full batches; numbers of examples are taken as
    public. It is of the client for whom it is largest, over all steps of the rounds in which it was
    asked. A part that reads losses or gradients of the examples on the client leaves no epsilon.
    Momentum, weight decay, a pull (prox) and control variates of option 2 are allowed: they go on
    from noisy gradients. Models with BatchNorm are refused, for there an example has no gradient of
    its own.

    Examples
    --------
    >>> DPSGD(noise=0.8).clip
    1.0

    References
    ----------
    Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang. Deep learning with differential
    privacy. CCS 2016.
    """

    clip: float = Field(default=1.0, gt=0, allow_inf_nan=True, description="bound on a gradient")
    noise: float = Field(default=1.0, ge=0, description="noise, in bounds")
    delta: float | None = Field(default=None, gt=0, lt=1, description="of the guarantee")
    budget: float | None = Field(default=None, gt=0, description="largest epsilon")
    seeded: bool = Field(default=False, description="noise of the run's seed: no privacy")

    name = "dp_sgd"
    paper = "Abadi et al. 2016 (DP-SGD)"
    learns = "its update, made of clipped gradients with noise"

    @property
    def hooks(self) -> frozenset[str]:
        unused = set() if math.isfinite(self.clip) else {"examples"}
        return super().hooks - (unused if self.noise else unused | {"grad"})

    def neutral(self) -> Part:
        return DPSGD(clip=math.inf, noise=0.0)

    def validate(self, ctx: Context) -> None:
        if self.noise and math.isinf(self.clip):
            raise InputError(f"'{self.name}' has noise in bounds 'clip', which is infinite")
        for part in ctx.parts:
            if not part.trains:
                raise InputError(f"'{part.name}' takes no local steps, which '{self.name}' makes")
        if self.seeded and self.noise:
            claim.warn_of_seed(self.name)
        because = self._obstacle(ctx)
        once = torch.ones(ctx.population, dtype=torch.int64)
        first = None if because else self._epsilon(once, ctx)
        claim.check_budget(self.name, self.budget, first, because)

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        return {"rounds": torch.zeros(ctx.population, dtype=torch.int64)}

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        """Count who is asked, whether an answer comes or not."""
        rounds = s["rounds"].clone()
        rounds[ctx.asked] += 1
        return Plan(each={"lot": lot_sizes(ctx).to(ctx.x.dtype)}, state={"rounds": rounds})

    def examples(self, grads: Tensor, c: Client) -> Tensor:
        shrink: Tensor = self.clip / grads.norm(dim=1, keepdim=True).clamp_min(self.clip)
        return grads * shrink

    def grad(self, g: Tensor, x: Tensor, c: Client) -> Tensor:
        return g + self.noise * self.clip / c.down["lot"] * c.noise(len(g), secret=not self.seeded)

    def guarantee(self, s: Tensors, ctx: Context) -> Guarantee:
        because, rounds = self._obstacle(ctx), s["rounds"]
        found = None if because else self._epsilon(rounds, ctx)
        following = None if because else self._epsilon(rounds + 1, ctx)
        against = "the server and whoever sees the models"
        return Guarantee(
            found, self._delta(ctx), "example", against, because, following, self.budget
        )

    def _delta(self, ctx: Context) -> float:
        return self.delta or claim.default_delta(int(ctx.sizes.max()))

    def _obstacle(self, ctx: Context) -> str:
        """Return why there is no epsilon; empty if there is one."""
        if not self.noise:
            return "gradients have no noise (noise=0)"
        if self.seeded:
            return claim.SEEDED
        if ctx.solver.batch is not None and ctx.solver.lots == "shuffled":
            return "batches are shuffled, not drawn anew at every step: lots='poisson'"
        if ctx.chance == "losses":
            return "the sampling asks clients for losses of their examples"
        for part in claim.others(self, ctx):
            reads = part.reads.union(*part.points.values()) - {"first_contact"}
            if reads:
                return f"'{part.name}' reads the examples' '{min(reads)}' without noise"
            if "tracks" in part.hooks and not part.everywhere:
                return f"'{part.name}' trains on the examples without noise"
            if "move" in part.hooks:
                return f"'{part.name}' asks clients for losses of their examples"
        for part in takewhile(lambda part: part.name != self.name, ctx.parts):
            adds = part.pull or ADDS_TO_GRADIENTS in part.traits
            if "grad" in part.hooks and not adds:
                return (
                    f"'{part.name}' changes clipped gradients before they have noise: write it "
                    f"behind '{self.name}'"
                )
        return ""

    def _epsilon(self, rounds: Tensor, ctx: Context) -> float:
        """Return the largest epsilon of an example, after so many rounds of each client."""
        steps = ctx.solver.lengths(ctx.sizes.numpy()) * rounds.numpy()
        most: dict[int, int] = {}
        for n, count in zip(ctx.sizes.tolist(), steps.tolist(), strict=True):
            most[n] = max(most.get(n, 0), count)
        spent = tuple((mechanism(ctx, n, self.noise), count) for n, count in sorted(most.items()))
        return worst(spent, self._delta(ctx))
