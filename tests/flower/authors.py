"""Parts of an author's own that between them say everything a part may say."""

from __future__ import annotations

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from fedparity.method import (
    STRICT,
    Finish,
    Loss,
    Norm,
    Part,
    Plan,
    Served,
    Share,
    Vector,
)


def confidence(losses: Tensor, output: Tensor, target: Tensor) -> Tensor:
    return output.softmax(-1).amax(-1)


@dataclass(frozen=True, config=STRICT)
class Everything(Part):
    """Nothing of it makes sense, and all of it has to be the same wherever it is computed."""

    strength: float = 0.1
    name = "everything"
    reports = {"loss": Loss(), "apart": Norm(), "right": Share(), "own": Vector()}
    reads = frozenset({"loss", "grad", "accuracy", "label_counts", "confidence", "first_contact"})
    own_facts = {"confidence": confidence}
    points = {"between": frozenset({"loss", "grad", "accuracy"})}

    def init_server(self, x, ctx):
        return {"last": torch.zeros_like(x), "factor": x.new_ones(())}

    def init_client(self, x, layout):
        return {"own": x + 0.1, "rounds": x.new_zeros(())}

    def plan(self, s, probe, ctx):
        return Plan(shared={"last": s["last"]}, each={"size": ctx.n / ctx.n.sum()})

    def start(self, x, c):
        return x + self.strength * (c.state["own"] - x)

    def at(self, c):
        return {"between": 0.5 * (c.x + c.state["own"])}

    def tracks(self, c):
        return {"side": c.state["own"]}

    def carry(self, y, c):
        past = c.carried["past"] if c.step else torch.zeros_like(y)
        return {"past": 0.5 * past + y - c.x}

    def loss(self, losses, output, target, c):
        if c.track == "side":
            return losses * (1 + self.strength * output.square().mean(-1))
        whole = c.mean(losses)
        return (whole + self.strength * whole.square()).expand_as(losses)

    def grad(self, g, x, c):
        pulled = g + self.strength * (x - c.x + 0.1 * c.carried["past"])
        pulled = pulled + 0.01 * c.down["size"] * c.down["last"]
        return pulled + 0.01 * c.noise(len(g)) if c.track == "side" else pulled

    def finish(self, delta, c):
        between = c.points["between"]
        report = {
            "loss": between["loss"] + 0.01 * c.first_contact,
            "apart": (c.grad - between["grad"]).norm(),
            "right": 0.5 * (c.accuracy + between["accuracy"]),
            "own": c.ends["side"] - c.state["own"],
        }
        share = c.label_counts.amax() / c.n
        kept = {"own": c.ends["side"], "rounds": c.state["rounds"] + 1}
        return Finish(delta * (share + c.confidence), report, kept)

    def seal(self, reply, c):
        mine = dict(reply.reports.get(self.name, {}))
        if "own" in mine:
            mine["own"] = mine["own"] / (1 + mine["own"].norm())
        return reply._replace(delta=0.9 * reply.delta, reports={**reply.reports, self.name: mine})

    def weigh(self, w, up, s, ctx):
        found = w * (1 + up["right"] + up["apart"])
        return found / found.sum(), s

    def clean(self, deltas, w, s, ctx):
        return deltas.clamp(-0.5, 0.5), w, s

    def combine(self, deltas, w, up, s, ctx):
        return w @ (deltas + self.strength * up["own"]), s

    def step(self, direction, up, s, ctx):
        return direction + self.strength * s["last"], {**s, "last": direction}

    def move(self, direction, losses_at, s, ctx):
        factors = [0.25, 0.5, 1.0]
        factor = factors[int(losses_at(factors).values.mean(0).argmin())]
        return factor * direction, {**s, "factor": direction.new_tensor(factor)}

    def tell(self, s):
        return {"factor": float(s["factor"])}

    def serve(self, x, s):
        return Served(x, {"last": s["last"]})

    def personal(self, x, c):
        return 0.5 * (x + c.state["own"]) + 0.01 * c.down["last"]


@dataclass(frozen=True, config=STRICT)
class Asking(Part):
    """Asks before it plans, at two points; also for the first gradient."""

    name = "asking"
    reports = {"loss": Loss(), "apart": Norm()}
    reads = frozenset({"loss", "grad", "first_grad"})
    points = {"back": frozenset({"loss"})}

    def init_client(self, x, layout):
        return {"last": x}

    def at(self, c):
        return {"back": c.state["last"]}

    def probe(self, c):
        return {"loss": c.loss, "apart": (c.grad - c.first_grad).norm() + c.points["back"]["loss"]}

    def plan(self, s, probe, ctx):
        ahead = probe["loss"] - probe["loss"].mean() + probe["apart"]
        return Plan(each={"factor": 1 / (1 + ahead.square())})

    def grad(self, g, x, c):
        return c.down["factor"] * g

    def finish(self, delta, c):
        return Finish(delta, state={"last": c.end})
