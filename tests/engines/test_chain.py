"""The written-out chain of linear layers against its oracle, the lifted model with autograd."""

import pytest
import torch
from torch import nn

import fedparity as fp
from fedparity.engines.kernels import chain
from fedparity.engines.kernels.chain import Chain
from fedparity.engines.lane import Rule
from fedparity.engines.stacked.lane import Stack
from fedparity.learning.task import Classification, Regression, slope_of
from fedparity.method.messages import Down
from fedparity.parts.weights.eagle import Eagle
from fedparity.testing import unlike_clients

SOLVER = fp.Solver(lr=0.1, steps=3, batch=4)


def deep(shape, outputs):
    inner = nn.Sequential(nn.Linear(5, 4, bias=False), nn.Sigmoid(), nn.Identity())
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 5), nn.Tanh(), inner, nn.Linear(4, 3))


def setup(model, algorithm="fedavg"):
    federation = unlike_clients()
    made = fp.Experiment(federation, model, algorithm=algorithm, solver=SOLVER, dtype="float64")
    return made.setup


def down_of(setup):
    x, buffers = setup.layout.read(setup.module)
    return Down("train", 1, 0.1, x, buffers)


@pytest.mark.parametrize(
    "model",
    ["linear", "mlp(hidden=4)", "linear(softmax=true)", "mlp(hidden=4, softmax=true)", deep],
)
def test_its_gradient_and_its_step_are_those_of_autograd(model):
    made = setup(model)
    down, clients = down_of(made), torch.arange(len(made.federation)).numpy()
    found = Chain.of(made)
    assert found is not None
    plain, fast = (Stack(made, down, clients, chain=c) for c in (None, found))
    y = plain.spread(down.x) + 0.1 * torch.randn(
        len(clients), len(down.x), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    rule = Rule({}, made.layout, down, 1.0, {})
    for lane in (plain, fast):
        lane.begin(y, down.buffers)
    for step in range(3):
        slow = plain.gradient(y, step, rule)[0]
        torch.testing.assert_close(fast.gradient(y, step, rule)[0], slow, rtol=0, atol=1e-14)
    for lane in (plain, fast):
        lane.plain_step(0, rule, lane.fused(rule))
    torch.testing.assert_close(fast.read(), plain.read(), rtol=0, atol=1e-14)
    by_hand = y - 0.1 * plain.gradient(y, 0, rule)[0]
    torch.testing.assert_close(fast.read(), by_hand, rtol=0, atol=1e-14)
    for lane in (plain, fast):  # from now on in place
        lane.plain_step(1, rule, lane.fused(rule))
    twice = by_hand - 0.1 * plain.gradient(by_hand, 1, rule)[0]
    torch.testing.assert_close(fast.read(), twice, rtol=0, atol=1e-14)
    torch.testing.assert_close(plain.read(), twice, rtol=0, atol=1e-14)


def test_training_leaves_the_shared_model_as_it_is():
    made = setup("mlp(hidden=4)")
    down, clients = down_of(made), torch.arange(len(made.federation)).numpy()
    before = down.x.clone()
    lane = Stack(made, down, clients, chain=Chain.of(made))
    rule = Rule({}, made.layout, down, 1.0, {})
    end = lane.descend(lane.spread(down.x), down.buffers, rule, steps=2)
    assert torch.equal(down.x, before)
    assert not torch.equal(end.parameters()[0], before)


@pytest.mark.parametrize(
    "model",
    [
        lambda shape, outputs: nn.Linear(shape[0], outputs),
        lambda shape, outputs: nn.Sequential(nn.Linear(shape[0], outputs), nn.Softplus()),
        lambda shape, outputs: nn.Sequential(nn.LayerNorm(shape), nn.Linear(shape[0], outputs)),
        lambda shape, outputs: nn.Sequential(nn.Linear(shape[0], outputs), nn.Softmax(dim=1)),
    ],
)
def test_any_other_model_is_lifted(model):
    assert Chain.of(setup(model)) is None


def test_a_layer_that_stands_twice_is_no_chain():
    layer = nn.Linear(3, 3)
    assert chain.leaves(nn.Sequential(layer, layer)) is None


def tied(shape, outputs):
    one, other = nn.Linear(shape[0], shape[0]), nn.Linear(shape[0], shape[0])
    other.weight = one.weight
    return nn.Sequential(one, nn.ReLU(), other, nn.Linear(shape[0], outputs))


def test_tied_layers_are_lifted():
    assert Chain.of(setup(tied)) is None


def test_a_layer_with_a_hook_is_no_chain():
    layer = nn.Linear(3, 3)
    layer.register_forward_hook(lambda *_: None)
    assert chain.leaves(nn.Sequential(layer)) is None


def test_a_layer_with_another_forward_is_no_chain():
    class Scaled(nn.Flatten):
        def forward(self, x):
            return 2 * super().forward(x)

    layer = nn.Linear(3, 3)
    layer.forward = lambda x: x
    assert chain.leaves(nn.Sequential(layer)) is None
    assert chain.leaves(nn.Sequential(Scaled(), nn.Linear(3, 3))) is None


def test_parts_that_change_the_loss_are_lifted():
    assert Chain.of(setup("linear", "lsr")) is None
    assert Chain.of(setup("linear", "prox")) is not None


@pytest.mark.parametrize(
    ("kind", "outputs"), [(Classification, 3), (Classification, 20), (Regression, 1)]
)
def test_a_slope_is_the_derivative_of_its_loss(kind, outputs):
    task = kind("linear")
    draw = torch.Generator().manual_seed(0)
    output = torch.randn(5, outputs, generator=draw).double()
    target = (
        torch.randint(0, outputs, (5,), generator=draw)
        if kind is Classification
        else torch.randn(5, generator=draw).double()
    )
    output.requires_grad_()
    (slow,) = torch.autograd.grad(task.losses(output, target).sum(), output)
    slope = slope_of(task)
    assert slope is not None
    torch.testing.assert_close(slope(output.detach(), target), slow, rtol=0, atol=1e-15)
    other_way = output.detach().mT.contiguous().mT
    torch.testing.assert_close(slope(other_way, target), slow, rtol=0, atol=1e-15)
    stack = torch.stack([output.detach(), 2 * output.detach()])
    along = torch.stack([slow, slope(2 * output.detach(), target)])
    for laid in (stack, stack.mT.contiguous().mT):
        found = slope(laid, target.expand(2, -1))
        torch.testing.assert_close(found, along, rtol=0, atol=1e-15)


@pytest.mark.parametrize("classes", [2, 10, 16, 40])
@pytest.mark.parametrize("batch", [1, 12, 16, 37])
def test_a_slope_of_any_layout_is_that_of_float64(classes, batch):
    task, draw = Classification("linear"), torch.Generator().manual_seed(0)
    output = torch.randn(3, batch, classes, generator=draw)
    target = torch.randint(0, classes, (3, batch), generator=draw)
    wanted = output.double().softmax(-1) - torch.nn.functional.one_hot(target, classes)
    for laid in (output, output.mT.contiguous().mT):
        kept = laid.clone()
        found = task.slope(laid, target)
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-6)
        found.mul_(2)
        assert torch.equal(laid, kept)
    alone = task.slope(output[0, 0], target[0, 0])
    torch.testing.assert_close(alone.double(), wanted[0, 0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3, 40])
def test_outputs_that_lie_class_by_class_have_the_same_losses_and_metrics(classes):
    task, draw = Classification("linear"), torch.Generator().manual_seed(0)
    output = torch.randint(0, 4, (50, classes), generator=draw).double()  # with ties
    target = torch.randint(0, classes, (50,), generator=draw)
    other_way = output.mT.contiguous().mT
    assert not other_way.is_contiguous()
    torch.testing.assert_close(
        task.losses(other_way, target), task.losses(output, target), rtol=0, atol=1e-14
    )
    found, wanted = (task.metrics(laid, target)["accuracy"] for laid in (other_way, output))
    assert torch.equal(found, wanted)
    assert 0 < wanted.mean() < 1


def test_losses_of_places_in_an_image_are_not_taken_for_those_of_examples():
    task, draw = Classification("linear"), torch.Generator().manual_seed(0)
    output = torch.randn(4, 3, 5, generator=draw).mT.contiguous().mT  # [B, classes, places]
    target = torch.randint(0, 3, (4, 5), generator=draw)
    wanted = torch.nn.functional.cross_entropy(output, target, reduction="none")
    torch.testing.assert_close(task.losses(output, target), wanted)


class Viewing(Classification):
    """Has metrics of its own, which want examples side by side."""

    def metrics(self, output, target):
        return {
            "accuracy": (output.view(-1).unflatten(0, (-1, 3)).argmax(1) == target).to(output.dtype)
        }


def test_metrics_of_a_users_own_see_examples_side_by_side():
    frames = []
    for kind in (Classification, Viewing):
        made = fp.Experiment(
            unlike_clients(), kind("linear"), rounds=1, solver=SOLVER, engine="vmap"
        )
        assert Chain.of(made.setup) is not None
        frames.append(made.run().clients)
    assert frames[0]["test_accuracy"].equals(frames[1]["test_accuracy"])


def test_a_slope_is_not_inherited_by_another_loss():
    class Halved(Classification):
        def losses(self, output, target):
            return super().losses(output, target) / 2

    class Renamed(Classification):
        name = "renamed"

    assert slope_of(Halved("linear")) is None
    assert slope_of(Renamed("linear")) is not None


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_a_factor_does_what_the_gradient_hook_does(engine):
    """EAGLE told as a factor, against the same part that only has the hook."""

    class Plain(Eagle):
        scales = False

    found = [
        fp.Experiment(
            unlike_clients(),
            "mlp(hidden=4)",
            algorithm=[part],
            solver=SOLVER,
            rounds=3,
            engine=engine,
            dtype="float64",
        ).run()
        for part in (Eagle(lam=0.3), Plain(lam=0.3))
    ]
    one, other = (
        torch.cat([p.detach().flatten() for p in result.model().parameters()]) for result in found
    )
    torch.testing.assert_close(one, other, rtol=0, atol=1e-14)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("rows", "outputs"), [(9, 3), (2, 3), (100, 64), (100, 63)])
def test_a_product_is_the_same_whichever_way_it_is_taken(rows, outputs, bias):
    draw = torch.Generator().manual_seed(0)
    x, weight, b = (
        torch.randn(*shape, dtype=torch.float64, generator=draw)
        for shape in ((2, rows, 5), (2, outputs, 5), (2, outputs))
    )
    wanted = torch.einsum("mbi,moi->mbo", x, weight)
    if bias:
        wanted = wanted + b[:, None]
    found = chain.affine(x, weight, b if bias else None)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-13)
    assert found.is_contiguous() == (outputs >= min(chain.NARROW, rows))
