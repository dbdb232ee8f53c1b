"""The vmap engine agrees with the loop, whatever the model, the batch and the step rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nets import Tied, conv, normed

import fedparity as fp
from fedparity.engines.stacked import engine as vmapped
from fedparity.run.experiment import Experiment
from fedparity.testing import Bench, unlike_clients

PARTS = "qffl(q=1)+prox+momentum"


def moved(federation, model, solver, engine, algorithm=PARTS, rounds=3, **more) -> Bench:
    known = {"dtype": "float64", "lstar": "none", "engine": engine, **more}
    made = Bench(Experiment(federation, model, algorithm, solver=solver, **known))
    for _ in range(rounds):
        made.advance()
    return made


def agree(federation, model, solver, **more) -> None:
    loop, vmap = (moved(federation, model, solver, e, **more).tensors() for e in ("loop", "vmap"))
    assert loop.keys() == vmap.keys()
    for name, value in loop.items():
        scale = max(1.0, float(value.abs().max())) if value.numel() else 1.0
        torch.testing.assert_close(vmap[name], value, rtol=0, atol=1e-12 * scale)


@pytest.fixture(scope="module")
def images() -> fp.Federation:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 1, 6, 6))
    client = np.repeat([0, 1, 2], [4, 10, 16])
    return fp.Federation.from_arrays(x, rng.integers(0, 3, 30), client, outputs=3)


SOLVERS = {
    "full batch": fp.Solver(lr=0.1, steps=3),
    "batch smaller than clients": fp.Solver(lr=0.1, steps=4, batch=2),
    "batch larger than some": fp.Solver(lr=0.1, steps=4, batch=5),
    "batch larger than all": fp.Solver(lr=0.1, steps=2, batch=64),
    "epochs of unlike steps": fp.Solver(lr=0.1, epochs=2, batch=3),
    "momentum": fp.Solver(lr=0.05, epochs=2, batch=3, momentum=0.9),
    "adam": fp.Solver(lr=0.01, epochs=2, batch=3, optimizer="adam"),
    "weight decay": fp.Solver(lr=0.1, steps=3, batch=3, weight_decay=0.1),
    "clipping": fp.Solver(lr=0.1, epochs=1, batch=3, clip=0.1),
    "decay": fp.Solver(lr=0.1, steps=2, batch=3, decay=0.5),
}


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_every_solver(unlike, solver):
    agree(unlike, "mlp(hidden=4)", solver)


@pytest.mark.parametrize("model", ["linear", "mlp(hidden=6, layers=1)", conv])
def test_every_kind_of_model(images, model):
    agree(images, model, fp.Solver(lr=0.1, epochs=1, batch=4))


@pytest.mark.parametrize("algorithm", ["fedavg", "fedeba_plus(alpha=0.5)"])
def test_tied_parameters(unlike, algorithm):
    agree(unlike, Tied, fp.Solver(lr=0.1, steps=2, batch=3), algorithm=algorithm)


@pytest.mark.parametrize("buffers", ["average", "local"])
@pytest.mark.parametrize(
    "algorithm", ["fedavg", "qffl(q=1)", "local", "scaffold(option=1)", "fedpgvc(layers=1)"]
)
@pytest.mark.parametrize(
    "solver", [fp.Solver(lr=0.1, steps=2), fp.Solver(lr=0.1, epochs=2, batch=4)], ids=["full", "4"]
)
def test_batchnorm_with_even_batches(alike, buffers, algorithm, solver):
    agree(alike, normed, solver, buffers=buffers, algorithm=algorithm)


@pytest.mark.parametrize("chunk", [1, 2, None])
@pytest.mark.parametrize("buffers", ["average", "local"])
def test_batchnorm_with_even_batches_of_unlike_clients(buffers, chunk):
    # One client is done after one step, another after three: nothing is padded.
    solver = fp.Solver(lr=0.1, epochs=1, batch=4)
    agree(unlike_clients((12, 4, 8)), normed, solver, buffers=buffers, chunk=chunk)


@pytest.mark.filterwarnings("ignore:eagle")
@pytest.mark.parametrize("chunk", [1, 2, None])
@pytest.mark.parametrize(
    "algorithm",
    [
        "fedavg",
        "local",
        "eagle(weights=fresh)",
        "eagle(weights=stale)",
        "scaffold",
        "fedsgd",
        "fedpgvc",
        "fedpgvc(mode=penalty, layers=[0, 2], rho=previous)",
    ],
)
def test_chunks_of_a_cohort_that_is_not_in_the_order_of_sizes(algorithm, chunk):
    federation, solver = unlike_clients((9, 4, 12, 7)), fp.Solver(lr=0.1, epochs=1, batch=3)
    lstar = "best_validation(rounds=2)" if "eagle" in algorithm else "none"
    agree(
        federation, "mlp(hidden=4)", solver, algorithm=algorithm, lstar=lstar, chunk=chunk, cohort=3
    )


@pytest.mark.filterwarnings("ignore:eagle")
@pytest.mark.parametrize("buffers", ["average", "local"])
def test_gaps_with_batchnorm(alike, buffers):
    for weights in ("stale", "fresh"):
        agree(
            alike,
            normed,
            fp.Solver(lr=0.1, steps=1),
            algorithm=f"eagle(weights={weights})",
            buffers=buffers,
            lstar="best_validation(rounds=2)",
        )


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_chunks_of_any_size(unlike, chunk):
    solver = fp.Solver(lr=0.1, epochs=1, batch=3)
    whole = moved(unlike, "mlp(hidden=4)", solver, "vmap", PARTS + "+scaffold(option=1)")
    parts = moved(
        unlike, "mlp(hidden=4)", solver, "vmap", PARTS + "+scaffold(option=1)", chunk=chunk
    )
    for name, value in whole.tensors().items():
        torch.testing.assert_close(parts.tensors()[name], value, rtol=1e-12, atol=1e-13)


def test_regression(unlike):
    values = fp.Federation.from_arrays(
        unlike.train.x.numpy(), unlike.train.x.sum(1).numpy(), unlike.train.owner.numpy()
    )
    agree(values, "mlp(hidden=4)", fp.Solver(lr=0.01, steps=3, batch=3))


def test_sequences():
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 5, (12, 4))

    class Tokens(torch.nn.Module):
        """One embedding a token, read out to the next."""

        def __init__(self, shape, outputs):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 25).view(5, 5))

        def forward(self, x):
            return self.weight[x.long()]

    split = fp.data.Split
    y = torch.from_numpy(np.roll(tokens, -1, axis=1))
    train = split(torch.from_numpy(tokens).double(), y, np.asarray([0, 3, 12]))
    none = split(train.x[:0], train.y[:0], np.zeros(3, dtype=np.int64))
    federation = fp.Federation(("a", "b"), train, none, none, outputs=5)
    agree(federation, fp.NextToken(Tokens), fp.Solver(lr=0.5, steps=2, batch=2))
    # Groups of which one is narrower than the plan of both.
    agree(federation, fp.NextToken(Tokens), fp.Solver(lr=0.5, epochs=2, batch=5), chunk=1)


@pytest.mark.parametrize("algorithm", ["fedavg", "local"])
def test_evaluations_agree(unlike, algorithm):
    tables = [
        Experiment(
            unlike,
            "mlp(hidden=4)",
            algorithm,
            rounds=2,
            dtype="float64",
            engine=engine,
            lstar="best_validation(rounds=5)",
        )
        .run()
        .clients.select_dtypes("float")
        .to_numpy()
        for engine in ("loop", "vmap")
    ]
    np.testing.assert_allclose(*tables, rtol=1e-11, equal_nan=True)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_replies_do_not_depend_on_the_order_of_asking(unlike, engine):
    solver = fp.Solver(lr=0.1, steps=2, batch=3)
    made = moved(unlike, "mlp(hidden=4)", solver, engine, rounds=1)
    from fedparity.method.messages import Down

    down = Down("train", 5, 0.1, made.server.x, made.server.buffers)
    one = made.door.ask(down, torch.tensor([0, 1, 3]))
    other = made.door.ask(down, torch.tensor([3, 0, 1]))
    assert one.clients.tolist() == other.clients.tolist() == [0, 1, 3]
    assert torch.equal(one.deltas, other.deltas)


def test_a_clients_update_does_not_depend_on_who_else_is_asked(unlike):
    solver = fp.Solver(lr=0.1, steps=2, batch=3)
    together = moved(unlike, "mlp(hidden=4)", solver, "loop", "fedavg", rounds=0).advance()
    for k in range(4):
        alone = moved(unlike, "mlp(hidden=4)", solver, "loop", "fedavg", rounds=0).advance([k])
        assert torch.equal(alone.deltas[0], together.deltas[k])


@pytest.mark.parametrize("solver", [fp.Solver(lr=0.1, steps=5, batch=3), fp.Solver(batch=4)])
@pytest.mark.parametrize("limit", ["PLANNED", "VIEWS"])
def test_it_does_not_matter_who_plans_the_batches(unlike, solver, limit, monkeypatch):
    laid_out: list[bool] = []

    def works(self, *args):
        found = original(self, *args)
        laid_out.extend(work.batches is not None for work in found)
        return found

    original = vmapped.VmapEngine._works
    monkeypatch.setattr(vmapped.VmapEngine, "_works", works)
    together = moved(unlike, "linear", solver, "vmap", chunk=2)
    assert laid_out
    assert all(laid_out)
    laid_out.clear()
    monkeypatch.setattr(vmapped, limit, 0)  # every chunk its own
    apart = moved(unlike, "linear", solver, "vmap", chunk=2)
    assert laid_out
    assert not any(laid_out)
    assert torch.equal(together.server.x, apart.server.x)


def test_a_loss_of_the_whole_batch_beside_a_scaled_gradient(unlike):
    """What scales the gradient leaves the shares alone that a loss sees."""
    few = fp.Solver(lr=0.1, steps=2, batch=3)
    both = "eagle(lam=0.2, apply='gradient', v_min=None)+propfair(M=3)"
    agree(unlike, "linear", few, algorithm=both, lstar=[0.1, 0.5, 0.3, 0.2])
