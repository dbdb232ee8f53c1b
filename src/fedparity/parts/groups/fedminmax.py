"""FedMinMax: the mixture of groups the model does worst on, wherever their examples lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import (
    STRICT,
    ByGroup,
    Client,
    Context,
    Finish,
    Loss,
    Plan,
    Tensors,
    stacked,
)
from fedparity.parts.groups.weighted import OfGroups, of_clients, over_mean
from fedparity.toolbox.simplex import project


@dataclass(frozen=True, config=STRICT)
class FedMinMax(OfGroups):
    r"""Minimise the loss of the worst mixture of groups: :math:`\min_x \max_\mu \sum_a \mu_a L_a`.

    Groups lie across clients. With :math:`n_{ka}` examples of group a at client k, an example of
    that group counts :math:`w_a = \mu_a n / n_a` times in training, and

    .. math:: \mu \leftarrow \mathrm{Proj}(\mu + \eta L), \qquad
              L_a = \frac{1}{n_a} \sum_k n_{ka} F_{ka}(x_t), \qquad
              x \leftarrow x + \sum_k p_k D_k

    where :math:`\mu` begins at the groups' shares of all examples.

    Parameters
    ----------
    group
        The kind of group, such as ``sex``.
    eta
        Step of the group weights.
    apply
        ``update``: clients train with :math:`w_a` over its mean at the client, and
        :math:`p_k \propto \sum_a \mu_a n_{ka} / n_a`, so that no learning rate grows. ``loss`` is
        the paper's: clients train with :math:`w_a` itself, and :math:`p_k \propto n_k`. One local
        step on all examples is the same in both.

    Notes
    -----
    Sent down: a float a group more than FedAvg, the weights. Sent up: a float a group, the sum of
    the training losses of its examples before local training over all the client's examples. The
    server learns each client's number of training examples and loss by group. With partial
    participation the losses are those of the clients that answer; the weights of groups without an
    example among them stay. The weights that the experiment or parts before this one give have no
    say. The authors' text and code were not at hand: the rule is that of two public codes, which
    agree.

    Examples
    --------
    >>> FedMinMax(eta=0.5).ascended(torch.tensor([0.8, 0.2]), torch.tensor([0.3, 0.7]))
    tensor([0.7000, 0.3000])

    References
    ----------
    Papadaki, Martinez, Bertran, Sapiro, Rodrigues. Minimax demographic group fairness in federated
    learning. FAccT 2022.
    """

    group: str = Field(default="group", min_length=1, description="kind of group, such as sex")
    eta: float = Field(default=0.1, ge=0, description="step of the group weights")
    apply: Literal["update", "loss"] = "update"

    name = "fedminmax"
    paper = "Papadaki et al. 2022 (FedMinMax)"
    equalises = "worst group (loss)"
    learns = "its update, and its training examples and loss by group"
    reports = {"loss": Loss()}

    @property
    def own_facts(self) -> Mapping[str, ByGroup]:
        return {"loss_by_group": ByGroup(self.group, lambda losses, output, target: losses)}

    @property
    def softens(self) -> str:
        return "lower eta"

    def init_server(self, x: Tensor, ctx: Context) -> Tensors:
        sizes = ctx.groups[self.group].counts.sum(0).double()
        return {"mu": sizes / sizes.sum()}

    def plan(self, s: Tensors, probe: Tensors, ctx: Context) -> Plan:
        weights = self._of_groups(s, ctx).expand(len(ctx.clients), -1)
        if self.apply == "update":
            weights = over_mean(weights, self._means(s, ctx)[:, None])
        return Plan(each={"weights": weights.to(ctx.x.dtype)})

    def loss(self, losses: Tensor, output: Tensor, target: Tensor, c: Client) -> Tensor:
        return losses * self.example_weights(target, c)

    def example_weights(self, target: Tensor, c: Client) -> Tensor:
        return c.down["weights"].gather(-1, c.groups[self.group])

    @stacked
    def finish(self, delta: Tensor, c: Client) -> Finish:
        return Finish(delta, {"loss": c.loss_by_group})

    def weigh(self, w: Tensor, up: Tensors, s: Tensors, ctx: Context) -> tuple[Tensor, Tensors]:
        by_size = self.apply == "loss"
        means = torch.ones(len(ctx.n)) if by_size else self._means(s, ctx)
        drawn = ctx.drawn.double()
        there = drawn @ ctx.groups[self.group].counts[ctx.clients].double()
        summed = (drawn * ctx.n) @ up["loss"].double()
        some = there > 0
        mu = s["mu"].clone()
        mu[some] = self.ascended(mu[some], summed[some] / there[some])
        return of_clients(w, ctx.n, means, ctx), {"mu": mu}

    def tell(self, s: Tensors) -> dict[str, float]:
        return {"largest_group_weight": float(s["mu"].max())}

    def ascended(self, mu: Tensor, losses: Tensor) -> Tensor:
        """Return the group weights after a step along the groups' losses; their sum stays."""
        return project(mu + self.eta * losses, mass=mu.sum())

    def _of_groups(self, s: Tensors, ctx: Context) -> Tensor:
        """Return how often an example of each group counts, ``[G]``."""
        sizes = ctx.groups[self.group].counts.sum(0).double()
        return torch.where(sizes > 0, s["mu"] * sizes.sum() / sizes.clamp_min(1), 0)

    def _means(self, s: Tensors, ctx: Context) -> Tensor:
        """Return the mean of that over the examples of each client, ``[m]``."""
        counts = ctx.groups[self.group].counts[ctx.clients].double()
        return counts @ self._of_groups(s, ctx) / counts.sum(1)
