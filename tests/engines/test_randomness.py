"""Layers that draw random numbers draw from the client's own seed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nets import dropping, rarely_dropping

import fedparity as fp
from fedparity.engines.reference.engine import LoopEngine
from fedparity.method.messages import Down
from fedparity.run.experiment import Experiment
from fedparity.testing import Bench

SOLVER = fp.Solver(lr=0.1, steps=3, batch=4)


def experiment(federation, model=dropping, **more) -> Experiment:
    return Experiment(federation, model, solver=SOLVER, lstar="none", rounds=3, **more)


def parameters(made: Experiment) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(made.run().model().parameters()).detach()


@pytest.mark.parametrize("model", [dropping, rarely_dropping])
def test_the_same_seed_gives_the_same_bits_whatever_was_drawn_before(unlike, model):
    made = experiment(unlike, model)
    torch.manual_seed(1)
    first = parameters(made)
    torch.manual_seed(2)
    assert torch.equal(parameters(made), first)
    assert not torch.equal(parameters(experiment(unlike, model, seed=1)), first)


def test_the_global_generator_is_left_where_it_was(unlike):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    parameters(experiment(unlike))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_clients_numbers_do_not_depend_on_who_else_is_asked(unlike):
    together = Bench(experiment(unlike)).advance().deltas
    for k in range(4):
        alone = Bench(experiment(unlike)).advance([k]).deltas
        assert torch.equal(alone[0], together[k])


def test_every_round_drops_others(unlike):
    made = Bench(experiment(unlike))
    x = made.server.x
    first = made.advance().deltas
    made.server = made.server._replace(x=x)
    second = made.advance().deltas
    assert not torch.equal(first, second)


def test_losses_are_measured_without_dropout(unlike):
    made = Experiment(unlike, dropping, "qffl", solver=SOLVER, lstar="none", dtype="float64")
    bench = Bench(made)
    x = bench.server.x
    reported = bench.advance().reports["qffl"]["loss"]
    module = bench.setup.layout.write(bench.setup.module, x).eval()
    inputs, target = unlike.train.client(0)
    loss = torch.nn.functional.cross_entropy(module(inputs), target).detach()
    assert float(reported[0]) == pytest.approx(float(loss), rel=1e-12)


@pytest.mark.parametrize("model", ["mlp(hidden=4)", dropping])
def test_the_number_of_workers_changes_no_bit(unlike, model):
    setup = experiment(unlike, model, engine="loop").setup
    x, buffers = setup.layout.read(setup.module)
    found = []
    for workers in (1, 2, 3):
        engine = LoopEngine(setup, workers, random=model is dropping)
        try:
            down = Down("train", 1, 0.1, x, buffers)
            found.append(engine.ask(down, np.arange(4), buffers, {}).deltas)
        finally:
            engine.close()
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


class Searches(fp.Part):
    """Asks twice for losses where the model stands."""

    name = "searches"

    def init_server(self, x, ctx):
        return {"seen": x.new_zeros(2, ctx.cohort)}

    def move(self, direction, losses_at, s, ctx):
        once, again = losses_at([0.0]).values[:, 0], losses_at([0.0, 1.0]).values[:, 0]
        return direction, {"seen": torch.stack([once, again])}


class Blurs(fp.Part):
    """Puts noise on the losses that leave a client."""

    name = "blurs"

    def seal(self, reply, c):
        told = {k: v + c.noise(v.numel()) for k, v in reply.reports.get("", {}).items()}
        return reply._replace(reports={**reply.reports, "": told} if told else reply.reports)


def test_the_boundary_draws_other_noise_whenever_losses_are_asked_for(unlike):
    def seen(*parts: fp.Part, engine: str) -> torch.Tensor:
        known = {"lstar": "none", "dtype": "float64", "engine": engine}
        bench = Bench(Experiment(unlike, "linear", list(parts), **known))
        bench.advance()
        return bench.server.parts["searches"]["seen"]

    plain = seen(Searches(), engine="loop")
    assert torch.equal(plain[0], plain[1])
    loop, vmap = (seen(Searches(), Blurs(), engine=engine) - plain for engine in ("loop", "vmap"))
    assert bool(((loop[0] - loop[1]).abs() > 1e-3).all())
    torch.testing.assert_close(loop, vmap, rtol=0, atol=1e-12)
