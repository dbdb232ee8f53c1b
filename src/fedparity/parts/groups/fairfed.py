"""FairFed: clients whose own group gap is like the whole federation's count more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.errors import InputError, unknown
from fedparity.method import (
    STRICT,
    ByGroup,
    Client,
    Context,
    Finish,
    Share,
    Tensors,
    stacked,
)
from fedparity.parts.groups.weighted import OfAnswers
from fedparity.toolbox.classes import predicted
from fedparity.toolbox.simplex import project


@dataclass(frozen=True, config=STRICT)
class FairFed(OfAnswers):
    r"""Lower the weight of clients whose group gap is far from that of all examples together.

    .. math:: p_k \leftarrow p_k - \beta (d_k - \bar d), \qquad
              d_k = \begin{cases} |M_k - M| & \text{where } M_k \text{ is defined} \\
              |ACC_k - ACC| & \text{else} \end{cases}

    with :math:`M` the rate of yes in the one group minus that in the other, of the received model
    on the training examples of all who answer, :math:`M_k` on those of client k, and :math:`ACC`
    the share that is right. Weights begin by size and are kept from falling below 0.

    Parameters
    ----------
    group
        The kind of group, such as ``sex``.
    versus
        The group that is compared with all others together; of two groups either will do, so that
        it is needed where there are more.
    beta
        How much the gap counts; 0 is FedAvg by size.
    metric
        ``equal_opportunity``: the rate of yes among those whose answer is yes;
        ``statistical_parity``: among all.
    positive
        The class that is yes.

    Notes
    -----
    Sent up: two floats a group and one more, the client's shares of examples in question and of
    those told yes by group, and its accuracy, before local training. The server learns them; the
    paper has them added up under encryption. :math:`M_k` is undefined where a client lacks one of
    the two groups; where nobody has both, all go by accuracy. With partial participation only the
    weights of those who answer move, and keep their sum. Weights below 0 are projected to the
    simplex, of which the paper says nothing. The paper was at hand in part: the rule is that of a
    public code which follows it, without local debiasing.

    Examples
    --------
    >>> apart = torch.tensor([0.0, 0.3])
    >>> FairFed(beta=1.0).shifted(torch.tensor([0.5, 0.5]), apart)
    tensor([0.6500, 0.3500])

    References
    ----------
    Ezzeldin, Yan, He, Ferrara, Avestimehr. FairFed: enabling group fairness in federated learning.
    AAAI 2023.
    """

    group: str = Field(default="group", min_length=1, description="kind of group, such as sex")
    versus: str | None = Field(default=None, description="group compared with all others")
    beta: float = Field(default=1.0, ge=0, description="how much the gap counts")
    metric: Literal["equal_opportunity", "statistical_parity"] = "equal_opportunity"
    positive: int = Field(default=1, ge=0, description="class that is yes")

    name = "fairfed"
    paper = "Ezzeldin et al. 2023 (FairFed)"
    equalises = "rates of yes in two groups, by clients that are like the whole"
    learns = "its update, its accuracy, and its training examples and rates of yes by group"
    reports = {"rates": Share(), "accuracy": Share()}

    @property
    def own_facts(self) -> Mapping[str, ByGroup]:
        def told(losses: Tensor, output: Tensor, target: Tensor) -> Tensor:
            asked = torch.ones_like(target, dtype=torch.bool)
            if self.metric == "equal_opportunity":
                asked = target == self.positive
            yes = asked & (predicted(output, target) == self.positive)
            return torch.stack([asked, yes], -1).to(losses.dtype)

        return {"told_yes_by_group": ByGroup(self.group, told)}

    @property
    def reads(self) -> frozenset[str]:
        return super().reads | {"accuracy"}

    @property
    def softens(self) -> str:
        return "lower beta"

    def validate(self, ctx: Context) -> None:
        super().validate(ctx)
        names = ctx.groups[self.group].names
        if self.versus is not None and self.versus not in names:
            raise unknown(f"group of '{self.group}'", self.versus, names)
        if len(names) < 2 or (self.versus is None and len(names) > 2):
            there = ", ".join(names[:10])
            remedy = f"name one to compare with all others (versus={names[0]})"
            raise InputError(
                f"'fairfed' compares two groups, and '{self.group}' has {len(names)} ({there}): "
                + (remedy if len(names) > 2 else "take another kind of groups")
            )

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        weights = ctx.sizes.double() / ctx.sizes.sum()
        return {"weights": weights, "gap": torch.zeros((), dtype=torch.float64)}

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, {"rates": c.told_yes_by_group, "accuracy": c.accuracy})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        n = (ctx.drawn * ctx.n).double()
        names = ctx.groups[self.group].names
        one = names.index(self.versus) if self.versus is not None else 0
        asked, yes = up["rates"].double().unbind(1)  # [m, G] each
        both = torch.stack([asked, yes], 1)
        mine, rest = both[..., one], both.sum(-1) - both[..., one]
        own = self._gap(mine, rest)
        whole = self._gap((n @ mine)[None], (n @ rest)[None])[0]
        accuracy = up["accuracy"].double()
        mean = n @ accuracy / n.sum()
        defined = own.isfinite() & whole.isfinite()
        apart = torch.where(defined, (own - whole).abs(), (accuracy - mean).abs())
        old = s["weights"][ctx.clients]
        new = self.shifted(old, apart)
        kept = {
            "weights": s["weights"].index_copy(0, ctx.clients, new),
            "gap": whole.nan_to_num(0.0),
        }
        used = new * ctx.drawn
        return (used / used.sum()).to(w.dtype) if used.sum() > 0 else w, kept

    def tell(self, s: Tensors) -> dict[str, float]:
        return {"group_gap": float(s["gap"])}

    def shifted(self, weights: Tensor, apart: Tensor) -> Tensor:
        """Return the weights after a round; their sum stays."""
        lowered = weights - self.beta * (apart - apart.mean())
        return project(lowered, mass=weights.sum())

    @staticmethod
    def _gap(mine: Tensor, rest: Tensor) -> Tensor:
        """Return the differences of two rates ``[m]``; NaN where one is undefined."""

        def rate(found: Tensor) -> Tensor:
            asked, yes = found.unbind(-1)
            return torch.where(asked > ROUNDING, yes / asked, torch.nan)

        return rate(mine) - rate(rest)


ROUNDING = 1e-7
"""A share below this is a group that the client does not have."""
