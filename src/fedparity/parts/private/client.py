"""Differential privacy of whole clients: clipped updates, and noise on their mean."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import FedparityError, InputError
from fedparity.method import (
    STRICT,
    Client,
    Context,
    Gap,
    Guarantee,
    Loss,
    Part,
    Plan,
    Reply,
    Report,
    Tensors,
    Vector,
    Weights,
)
from fedparity.parts.private import claim
from fedparity.parts.private.losses import DPLosses
from fedparity.toolbox.accounting import Mechanism, epsilon, jointly


@dataclass(frozen=True, config=STRICT)
class DPClient(Part):
    r"""Clip everything of the model's size that leaves a client, and add noise to the sum.

    .. math:: \bar D_k = D_k \min(1, C/\lVert D_k\rVert), \qquad
              x \leftarrow x + \frac1m\Big(\sum_{k \in S} \bar D_k + N(0, z^2C^2 I)\Big)

    with m the clients asked, however many answer.

    Parameters
    ----------
    clip
        The bound C on the Euclidean norm of all vectors of a reply together; with ``quantile``
        that of the first round. Infinite does not clip.
    noise
        Standard deviation z of the noise, in bounds C.
    where
        ``server``: the noise is added to the sum of the updates, by a server that is trusted.
        ``clients``: every client adds the whole noise to all that it sends, and the server need not
        be trusted; the mean then has the square root of m times the noise.
    cap
        Take the weights of the experiment or of other parts, none above ``cap / m``. None weighs
        all clients alike.
    delta
        Probability with which epsilon may be exceeded; None is :math:`K^{-1.1}` for K clients.
    budget
        Largest epsilon: the run stops before the round that would go over it.
    quantile, rate, counted
        Adaptive clipping: C moves towards this quantile of the clients' norms,
        :math:`C \leftarrow C e^{-\text{rate}(b - \text{quantile})}`, with b the share of clients
        inside the bound. The noise on their number has the standard deviation ``counted`` and is
        part of epsilon. None leaves C as it is.
    seeded
        Take the noise from the run's seed, so that a test has the same numbers twice. Whoever knows
        the seed can subtract it: there is no epsilon then, and a warning says so.

    Notes
    -----
    Sent: nothing more than FedAvg; with ``quantile`` one float down and one up. Neighbours are
    federations in which one client is replaced by any other, so that one reply changes by up to 2C
    and the accountant counts with a multiplier of z/2. Cohorts are drawn without replacement; they
    amplify the privacy of ``where="server"`` as long as nothing but the sum is made of the replies.
    Numbers of examples are taken as public. With control variates (SCAFFOLD) the vectors of a
    reply are clipped jointly, so that the server's mean is no more that of the clients' states.
    Losses, gaps and norms that other parts report get no noise here: see :class:`DPLosses`. Of the
    adaptive rule of Andrew et al. the noise on the count is accounted by itself, not taken from z.

    Examples
    --------
    >>> DPClient(noise=2.0).where
    'server'

    References
    ----------
    McMahan, Ramage, Talwar, Zhang. Learning differentially private recurrent language models.
    ICLR 2018.
    Andrew, Thakkar, McMahan, Ramaswamy. Differentially private learning with adaptive clipping.
    NeurIPS 2021.
    """

    clip: float = Field(default=1.0, gt=0, allow_inf_nan=True, description="bound on a reply")
    noise: float = Field(default=1.0, ge=0, description="noise, in bounds")
    where: Literal["server", "clients"] = "server"
    cap: float | None = Field(default=None, ge=1, description="largest weight, in equal shares")
    delta: float | None = Field(default=None, gt=0, lt=1, description="of the guarantee")
    budget: float | None = Field(default=None, gt=0, description="largest epsilon")
    quantile: float | None = Field(default=None, gt=0, lt=1, description="of norms to clip at")
    rate: float = Field(default=0.2, gt=0, description="of adaptive clipping")
    counted: float = Field(default=10.0, gt=0, description="noise on the clients inside")
    seeded: bool = Field(default=False, description="noise of the run's seed: no privacy")

    name = "dp_client"
    paper = "McMahan et al. 2018 (DP-FedAvg)"
    learns = "its clipped update; with where='clients' only with noise"
    reports = {"inside": Report()}

    @property
    def hooks(self) -> frozenset[str]:
        unused = set() if self.noise and self.where == "server" else {"combine"}
        unused |= {"seal"} if math.isinf(self.clip) else set()
        return super().hooks - (unused if self.quantile else unused | {"step", "tell"})

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({claim.PRIVATE_UPDATES} if self.noise else set())

    @property
    def own_weights(self) -> Weights | None:
        return "uniform" if self.cap is None else None

    def neutral(self) -> Part:
        return DPClient(clip=math.inf, noise=0.0)

    def validate(self, ctx: Context) -> None:
        if math.isinf(self.clip) and (self.noise or self.quantile):
            raise InputError(f"'{self.name}' has noise in bounds 'clip', which is infinite")
        if ctx.layout.buffers and not ctx.local_buffers:
            raise InputError(
                f"'{self.name}' cannot clip the model's buffers (BatchNorm): use buffers='local' "
                "or a model without them"
            )
        weighing = [part.name for part in claim.others(self, ctx) if "weigh" in part.hooks]
        if weighing and self.cap is None:
            raise InputError(
                f"'{self.name}' weighs clients alike, so the weights of '{weighing[0]}' would be "
                f"ignored: write {self.name}(cap=3) for weights up to three equal shares"
            )
        if ctx.chance == "replaced" and self.cap is None:
            raise InputError(
                f"'{self.name}' weighs clients alike, so a client drawn twice would count once: "
                f"write {self.name}(cap=3), or sample without replacement"
            )
        if self.seeded and self.noise:
            claim.warn_of_seed(self.name)
        because = self._obstacle(ctx)
        first = None if because else self._epsilon(1, ctx)
        claim.check_budget(self.name, self.budget, first, because)

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        kept = {"rounds": torch.zeros(ctx.population, dtype=torch.int64)}
        return {**kept, "clip": x.new_tensor(self.clip)} if self.quantile else kept

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        """Count who is asked, whether an answer comes or not, and send the bound."""
        asked = slice(None) if self.where == "server" or ctx.chance == "losses" else ctx.asked
        rounds = s["rounds"].clone()
        rounds[asked] += 1
        return Plan({"clip": s["clip"]} if self.quantile else {}, state={**s, "rounds": rounds})

    def seal(self, reply: Reply, c: Client) -> Reply:
        places = [
            (part, name)
            for part, report in reply.reports.items()
            for name in report
            if isinstance(self._kind(part, name, c), Vector)
        ]
        vectors = [reply.delta, *(reply.reports[part][name] for part, name in places)]
        whole = reply.delta
        if places:
            whole = torch.cat([vector.reshape(-1) for vector in vectors])
        bound = c.down["clip"] if "clip" in c.down else whole.new_full((), self.clip)
        norm = whole.norm()
        sealed = whole * (bound / torch.maximum(norm, bound))
        drawn = self.noise > 0 and self.where == "clients"
        if drawn:
            sealed = sealed + self.noise * bound * c.noise(len(whole), secret=not self.seeded)
        pieces = sealed.split_with_sizes([vector.numel() for vector in vectors])
        reports = {part: dict(report) for part, report in reply.reports.items()}
        for (part, name), piece in zip(places, pieces[1:], strict=True):
            reports[part][name] = piece.reshape(reply.reports[part][name].shape)
        if self.quantile and len(reply.delta):
            inside = (norm <= bound).to(whole.dtype)
            told = (
                inside + self.counted * c.noise(1, 1, secret=not self.seeded)[0]
                if drawn
                else inside
            )
            reports[self.name] = {"inside": told}
        return Reply(pieces[0], reply.buffers, reports)

    @staticmethod
    def _kind(part: str, name: str, c: Client) -> Report:
        """Return the kind of a report; what nobody declared might leave without noise."""
        found = c.kinds.get(part, {}).get(name)
        if found is None:
            raise FedparityError(f"part '{part}' reports '{name}', which its `reports` do not list")
        return found

    def clean(
        self, deltas: Tensor, w: Tensor, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensor, Tensors]:
        if self.cap is None:
            return deltas, torch.full_like(w, 1 / ctx.cohort), s
        most = self.cap / ctx.cohort
        return deltas, w.clamp(-most, most), s

    def combine(
        self, deltas: Tensor, w: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        bound = float(s["clip"]) if self.quantile else self.clip
        scale = self.noise * bound * (self.cap or 1.0) / ctx.cohort
        drawn = ctx.noise(self.name, deltas.shape[1], secret=not self.seeded).to(deltas.dtype)
        return w @ deltas + scale * drawn, s

    def step(
        self, direction: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        """Move the bound towards the quantile."""
        assert self.quantile is not None
        inside = up["inside"].sum()
        if self.where == "server":
            noise = ctx.noise(f"{self.name}.inside", 1, secret=not self.seeded)
            drawn = noise[0].to(inside.dtype)
            inside = inside + self.counted * drawn
        share = inside / len(up["inside"])
        moved = s["clip"] * torch.exp(-self.rate * (share - self.quantile))
        return direction, {**s, "clip": moved.to(s["clip"].dtype)}

    def tell(self, s: Tensors) -> dict[str, float]:
        return {"clip": float(s["clip"])}

    def guarantee(self, s: Tensors, ctx: Context) -> Guarantee:
        because, rounds = self._obstacle(ctx), int(s["rounds"].max())
        found = None if because else self._epsilon(rounds, ctx)
        following = None if because else self._epsilon(rounds + 1, ctx)
        delta = self.delta or claim.default_delta(ctx.population)
        against = "whoever sees the models" if self.where == "server" else "the server"
        return Guarantee(found, delta, "client", against, because, following, self.budget)

    def _obstacle(self, ctx: Context) -> str:
        """Return why there is no epsilon; empty if there is one."""
        if not self.noise:
            return "updates leave without noise (noise=0)"
        if self.seeded or any(p.seeded for p in ctx.parts if isinstance(p, DPLosses)):
            return claim.SEEDED
        parts = claim.others(self, ctx)
        for reason in claim.without_noise(parts, ctx, vectors=self.where == "clients"):
            return reason
        for part in parts:
            if self.where == "server" and "clean" in part.hooks:
                return f"'{part.name}' changes updates before they are summed: where='clients'"
        return ""

    def _epsilon(self, rounds: int, ctx: Context) -> float:
        """Return the epsilon after so many rounds."""
        parts = claim.others(self, ctx)
        # Replaced by another, a client changes a clipped reply by up to twice the bound.
        released = [self.noise / 2]
        if self.where == "clients":
            released += [self.noise / 2] * any(
                "probe" in p.hooks and any(isinstance(k, Vector) for k in p.reports.values())
                for p in parts
            )
        if self.quantile:
            released.append(self.counted)
        losses = claim.exchanges(parts, (Loss, Gap)) + (ctx.chance == "losses")
        noisy = [part.noise for part in parts if isinstance(part, DPLosses)]
        released += noisy * losses
        amplified = self.where == "server" and ctx.chance == "uniform" and not losses
        cohort = (ctx.cohort, ctx.population) if amplified and ctx.cohort < ctx.population else None
        once = Mechanism(jointly(released), cohort=cohort)
        return epsilon(((once, rounds),), self.delta or claim.default_delta(ctx.population))
