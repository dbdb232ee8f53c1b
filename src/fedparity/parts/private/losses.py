"""Noise on the losses that clients report."""

from __future__ import annotations

import math

from pydantic import Field
from pydantic.dataclasses import dataclass

from fedparity.errors import InputError
from fedparity.method import STRICT, Client, Context, Gap, Guarantee, Loss, Part, Reply, Tensors
from fedparity.parts.private import claim


@dataclass(frozen=True, config=STRICT)
class DPLosses(Part):
    r"""Clip the losses that leave a client to a range and add noise to them.

    .. math:: \tilde F_k = \operatorname{clip}_{[0, F_{max}]}
              \big(\operatorname{clip}_{[0, F_{max}]}(F_k) + N(0, r z_F^2 F_{max}^2)\big)

    with r the losses of the reply; loss gaps are clipped to :math:`[-F_{max}, F_{max}]` and count
    as four losses.

    Parameters
    ----------
    most
        The largest loss :math:`F_{max}`; infinite does not clip.
    noise
        Standard deviation :math:`z_F` of the noise, over what one client can change of the losses
        of a reply.
    seeded
        Take the noise from the run's seed, so that a test has the same numbers twice. Whoever knows
        the seed can subtract it: there is no epsilon then, and a warning says so.

    Notes
    -----
    Sent: nothing more. The server learns losses with noise, of every part and in every exchange,
    those of a sampling too. By itself there is no epsilon, because updates leave without noise:
    ``dp_client+dp_losses`` counts both together. The weights that a method makes of noisy losses
    need nothing more; ``dp_client(cap=...)`` bounds them. A loss after noise is clipped once more,
    which tells nothing new and keeps it a loss.

    Examples
    --------
    >>> DPLosses().most
    5.0

    References
    ----------
    Dwork, Roth. The algorithmic foundations of differential privacy. 2014.
    """

    most: float = Field(default=5.0, gt=0, allow_inf_nan=True, description="largest loss")
    noise: float = Field(default=1.0, ge=0, description="noise, in largest losses")
    seeded: bool = Field(default=False, description="noise of the run's seed: no privacy")

    name = "dp_losses"
    paper = "Dwork, Roth 2014"
    learns = "its update, and its losses with noise"

    @property
    def hooks(self) -> frozenset[str]:
        return super().hooks - (set() if self.noise or math.isfinite(self.most) else {"seal"})

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({claim.NOISY_LOSSES} if self.noise else set())

    def neutral(self) -> Part:
        return DPLosses(most=math.inf, noise=0.0)

    def validate(self, ctx: Context) -> None:
        if self.noise and math.isinf(self.most):
            raise InputError(f"'{self.name}' has noise in losses 'most', which is infinite")
        if self.seeded and self.noise:
            claim.warn_of_seed(self.name)

    def seal(self, reply: Reply, c: Client) -> Reply:
        found = [
            (part, name, -self.most if isinstance(kind, Gap) else 0.0)
            for part, report in reply.reports.items()
            for name in report
            if isinstance(kind := c.kinds.get(part, {}).get(name), Loss | Gap)
        ]
        reports = {part: dict(report) for part, report in reply.reports.items()}
        scale = 0.0
        if self.noise:
            squares = ((self.most - low) ** 2 * reports[p][name].numel() for p, name, low in found)
            scale = self.noise * math.sqrt(sum(squares))
        for draw, (part, name, low) in enumerate(found):
            value = reports[part][name].clamp(low, self.most)
            if scale:
                drawn = c.noise(value.numel(), draw, not self.seeded).reshape(value.shape)
                value = (value + scale * drawn).clamp(low, self.most)
            reports[part][name] = value
        return reply._replace(reports=reports)

    def guarantee(self, s: Tensors, ctx: Context) -> Guarantee | None:
        if any(claim.PRIVATE_UPDATES in part.traits for part in ctx.parts):
            return None
        delta = claim.default_delta(ctx.population)
        return Guarantee(None, delta, "client", "", "updates leave without noise: add dp_client")
