"""FedFV: conflicts among updates, present and remembered."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scripted import FIXTURE, PRE, Script, matrix, vector
from torch import Tensor

from fedparity.errors import InputError
from fedparity.learning.seeds import generator
from fedparity.parts import FedFV
from fedparity.parts.server import fedfv
from fedparity.recipes import algorithm
from fedparity.toolbox.products import gram_matrix

G = matrix((1, 0), (-1, 0.5), (0.2, -1))
LOSSES = (0.5, 1.0, 2.0)
ZERO = vector(0, 0)


def step(part: FedFV, updates: Tensor, losses: tuple[float, ...], x: Tensor | None = None):
    """Return the step of the first round from ``x``, as a pseudo-gradient."""
    x = torch.zeros_like(updates[0]) if x is None else x
    script = Script([part], x, n=[1] * len(updates))
    return x - script.play(-updates, loss=losses)


def projected(part: FedFV, updates: Tensor, losses: tuple[float, ...]) -> Tensor:
    script = Script([part], torch.zeros_like(updates[0]), n=[1] * len(updates))
    gram = gram_matrix(updates.numpy())
    found = [
        part._internal(gram, one, torch.tensor(losses), script.context) for one in np.eye(len(gram))
    ]
    return torch.from_numpy(np.stack(found)) @ updates


class Literal:
    """FedFV as its paper tells it: vectors, a dictionary of updates and one of rounds."""

    def __init__(self, part: FedFV, seed: int) -> None:
        self.part, self.seed = part, seed
        self.last: dict[int, Tensor] = {}
        self.seen: dict[int, int] = {}

    def step(self, t: int, updates: dict[int, Tensor], losses: dict[int, float]) -> Tensor:
        clients = sorted(updates)
        m, alpha = len(clients), self.part.alpha
        ascending = sorted(clients, key=lambda k: losses[k])
        count = 0 if alpha == 0 else m - math.ceil((m - 1) * (1 - alpha) - 1e-9)
        keep = ascending[m - count :]
        targets = list(ascending)
        if self.part.order == "reverse":
            targets.reverse()
        if self.part.order == "random":
            shuffle = generator(self.seed, "fedfv", t + 1).permutation(m)
            targets = [clients[i] for i in shuffle]
        total = torch.zeros_like(updates[clients[0]])
        for k in clients:
            p = updates[k]
            if k not in keep:
                for j in targets:
                    if j != k and p @ updates[j] < 0:
                        p = p - (p @ updates[j]) / (updates[j] @ updates[j]) * updates[j]
            total = total + p
        g = total / m
        for k in clients:
            self.last[k], self.seen[k] = updates[k], t
        tau = self.part.tau
        if tau and t >= (tau if self.part.window == "paper" else tau - 1):
            offsets = range(tau, 0, -1) if self.part.window == "paper" else range(tau - 1, -1, -1)
            for i in offsets:
                then = [k for k, when in self.seen.items() if when == t - i]
                against = [self.last[k] for k in then if g @ self.last[k] < 0]
                if against:
                    s = torch.stack(against).sum(0)
                    if g @ s < 0:
                        g = g - (g @ s) / (s @ s) * s
        mean = torch.stack([updates[k] for k in clients]).mean(0)
        return g * mean.norm() / g.norm()


# The sheet's fixture, alpha = 0, in ascending order of loss 1, 2, 3:
# P_1 = (1,0) meets G_2 (product -1, |G_2|^2 = 1.25): (1,0) + 0.8 (-1,.5) = (.2,.4); meets G_3
#       (product -.36, |G_3|^2 = 1.04): (.2,.4) + .346154 (.2,-1) = (.269231,.053846)
# P_2 = (-1,.5) meets G_1 (-1): (0,.5); meets G_3 (-.5): (0,.5) + .480769 (.2,-1)
#       = (.096154,.019231)
# P_3 = (.2,-1) meets G_2 (-.7): (.2,-1) + .56 (-1,.5) = (-.36,-.72)
def test_projected_updates_of_the_fixture():
    wanted = matrix((0.269231, 0.053846), (0.096154, 0.019231), (-0.36, -0.72))
    torch.testing.assert_close(projected(FedFV(alpha=0), G, LOSSES), wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("alpha", "wanted"),
    [
        # kept of 3: none; one (3 - ceil(2 * 2/3)); two (3 - ceil(2 * 1/3)); all
        (0.0, (0.001494, -0.179499)),
        (1 / 3, (0.093475, -0.153247)),
        (2 / 3, (-0.137409, -0.115503)),
        (1.0, (0.066667, -0.166667)),
    ],
)
def test_step_of_the_fixture(alpha, wanted):
    found = step(FedFV(alpha=alpha, tau=0), G, LOSSES)
    torch.testing.assert_close(found, vector(*wanted), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("alpha", "m", "kept"),
    # m - ceil((m-1)(1-alpha)): 10 - ceil(9 * .9) = 1, 10 - ceil(4.5) = 5, 4 - ceil(1) = 3
    [(0.1, 10, 1), (0.5, 10, 5), (2 / 3, 4, 3), (0.0, 10, 0), (1.0, 10, 10), (0.1, 1, 1)],
)
def test_number_of_updates_kept_as_they_are(alpha, m, kept):
    assert FedFV(alpha=alpha).kept(m) == kept


def test_without_conflicts_it_is_uniform_fedavg():
    updates = matrix((1, 0), (0.5, 2), (0, 1))  # all products are >= 0
    found = step(FedFV(alpha=0, tau=0), updates, LOSSES)
    torch.testing.assert_close(found, vector(0.5, 1.0))  # the mean of the rows


def test_keeping_every_update_without_memory_is_uniform_fedavg():
    script = Script([FedFV(alpha=1, tau=0)])  # sizes (50, 25, 25) do not count
    torch.testing.assert_close(script.play(FIXTURE, loss=PRE), vector(2.5 / 3, 1.9))


def test_a_single_client_moves_to_its_own_model():
    updates = matrix((3, -4))
    torch.testing.assert_close(step(FedFV(alpha=0, tau=0), updates, (1.0,)), updates[0])


def test_two_projected_updates_are_orthogonal_to_the_other_original():
    updates = matrix((1, 0, 2), (-2, 1, 0))
    p = projected(FedFV(alpha=0), updates, (1.0, 2.0))
    assert abs(float(p[0] @ updates[1])) < 1e-12
    assert abs(float(p[1] @ updates[0])) < 1e-12


def test_nobody_is_left_in_conflict_with_the_client_of_highest_loss():
    draw = torch.Generator().manual_seed(0)
    for _ in range(20):
        updates = torch.randn(6, 4, dtype=torch.float64, generator=draw)
        losses = torch.rand(6, generator=draw)
        worst = int(losses.argmax())
        p = projected(FedFV(alpha=0), updates, tuple(losses.tolist()))
        others = torch.arange(6) != worst
        assert float((p[others] @ updates[worst]).min()) > -1e-12


def test_the_step_has_the_length_of_the_plain_mean():
    found = step(FedFV(alpha=0, tau=0), G, LOSSES)
    assert float(found.norm()) == pytest.approx(float(G.mean(0).norm()))


def schedule(rounds: int, seed: int):
    """Cohorts of five of eight clients with updates and losses; some rounds nobody answers."""
    rng = np.random.Generator(np.random.Philox(seed))
    for t in range(rounds):
        clients = np.sort(rng.choice(8, 5, replace=False)).tolist()
        updates = torch.from_numpy(rng.standard_normal((5, 4)))
        losses = rng.random(5).round(1).tolist()  # ties happen
        yield t, [] if t in (4, 9) else clients, updates, losses


@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("order", ["loss", "reverse", "random"])
@pytest.mark.parametrize(
    ("tau", "window"),
    [(0, "paper"), (1, "paper"), (3, "paper"), (1, "code"), (3, "code")],
)
def test_fast_form_agrees_with_the_literal_one(tau, window, order, alpha):
    part = FedFV(alpha=alpha, tau=tau, window=window, order=order)
    script = Script([part], torch.zeros(4).double(), n=[1] * 8, cohort=5, seed=11)
    literal, x = Literal(part, seed=11), torch.zeros(4).double()
    for t, clients, updates, losses in schedule(16, seed=tau):
        if not clients:
            script.play(updates[:0], clients, loss=[])
            continue
        rows = dict(zip(clients, updates, strict=True))
        x = x - literal.step(t, rows, dict(zip(clients, losses, strict=True)))
        found = script.play(-updates, clients, loss=losses)
        torch.testing.assert_close(found, x, atol=1e-10, rtol=1e-10)


def test_a_remembered_absent_client_turns_the_step():
    script = Script([FedFV(alpha=1, tau=1)], ZERO, n=[1, 1], cohort=1)
    script.play(-matrix((1, 0)), clients=[0], loss=[1.0])
    before = script.server.x
    # g = (-1, 1) conflicts with (1, 0): g + (1, 0) = (0, 1), rescaled to |(-1, 1)| = sqrt 2
    after = script.play(-matrix((-1, 1)), clients=[1], loss=[1.0])
    torch.testing.assert_close(before - after, vector(0, math.sqrt(2)))


def test_a_client_that_came_back_is_not_remembered():
    script = Script([FedFV(alpha=1, tau=1)], ZERO, n=[1, 1], cohort=1)
    script.play(-matrix((1, 0)), clients=[0], loss=[1.0])
    before = script.server.x
    after = script.play(-matrix((-1, 1)), clients=[0], loss=[1.0])
    torch.testing.assert_close(before - after, vector(-1, 1))


@pytest.mark.parametrize(
    ("window", "wanted"),
    [
        # the mean of (3, 0) and (-1, 1)
        ("paper", (1, 0.5)),
        # g.G_2 = -1/2: g + (-1, 1) / 4 = (3/4, 3/4), rescaled to |(1, 1/2)|
        ("code", (math.sqrt(5 / 8), math.sqrt(5 / 8))),
    ],
)
def test_window_of_the_code_begins_with_round_tau(window, wanted):
    script = Script([FedFV(alpha=1, tau=1, window=window)], ZERO, n=[1, 1])
    after = script.play(-matrix((3, 0), (-1, 1)), loss=[1.0, 1.0])
    torch.testing.assert_close(-after, vector(*wanted))


def test_window_of_the_code_with_tau_1_ignores_absent_clients():
    script = Script([FedFV(alpha=1, tau=1, window="code")], ZERO, n=[1, 1], cohort=1)
    script.play(-matrix((1, 0)), clients=[0], loss=[1.0])
    before = script.server.x
    after = script.play(-matrix((-1, 1)), clients=[1], loss=[1.0])
    torch.testing.assert_close(before - after, vector(-1, 1))


@pytest.mark.parametrize("tau", [1, 3])
def test_memory_is_tau_rounds_of_a_cohort(tau):
    script = Script([FedFV(tau=tau)], torch.zeros(4).double(), n=[1] * 8, cohort=5)
    for _, clients, updates, losses in schedule(4, seed=0):
        script.play(-updates, clients, loss=losses)
    kept = [v for name, v in script.state("fedfv").items() if name.startswith("updates")]
    assert [v.shape for v in kept] == [(5, 4)] * tau
    assert sorted(script.state("fedfv")["when"].tolist()) == list(range(4 - tau, 4))


def test_without_memory_there_is_no_state():
    assert FedFV(tau=0).init_server(ZERO, Script([]).context) == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_updates_in_full_conflict_leave_the_model_where_it_is(dtype):
    # G_2 = -G_1 / 3: each is projected to zero, while the plain mean G_1 / 3 is not zero
    first = torch.randn(1000, dtype=dtype, generator=torch.Generator().manual_seed(0))
    updates = torch.stack([first, -first / 3])
    found = step(FedFV(alpha=0, tau=0), updates, (1.0, 2.0))
    assert torch.equal(found, torch.zeros_like(first))


def test_updates_that_cancel_leave_the_model_where_it_is():
    found = step(FedFV(alpha=0, tau=0), matrix((1, 0), (-1, 0)), (1.0, 2.0))
    assert torch.equal(found, ZERO)


def test_a_mean_that_is_rounding_leaves_the_model_where_it_is():
    # the first is kept, so the projected average is long, but the mean is half of 2^-52: a unit in
    # the last place of the second update, exact on any processor
    updates = matrix((1, 0), (-1 - 2**-52, 0))
    assert torch.equal(step(FedFV(alpha=0.5, tau=0), updates, (2.0, 1.0)), ZERO)


def test_updates_of_zero_change_nothing_and_are_no_target():
    assert torch.equal(step(FedFV(alpha=0, tau=1), matrix((0, 0), (0, 0)), (1.0, 2.0)), ZERO)
    found = step(FedFV(alpha=0, tau=0), matrix((0, 0), (1, 2)), (1.0, 2.0))
    torch.testing.assert_close(found, vector(0.5, 1.0))


def test_equal_losses_are_ordered_by_client():
    # one of three is kept, the last: the same as losses that ascend with the client
    tied = step(FedFV(alpha=1 / 3, tau=0), G, (1.0, 1.0, 1.0))
    torch.testing.assert_close(tied, step(FedFV(alpha=1 / 3, tau=0), G, (1.0, 2.0, 3.0)))


def test_numbering_clients_otherwise_changes_nothing():
    order = [2, 0, 1]
    other = step(FedFV(alpha=1 / 3, tau=0), G[order], tuple(LOSSES[i] for i in order))
    torch.testing.assert_close(other, step(FedFV(alpha=1 / 3, tau=0), G, LOSSES))


def test_given_mean_takes_the_weights_of_the_experiment():
    script = Script([FedFV(alpha=1, tau=0, mean="given")])
    torch.testing.assert_close(script.play(FIXTURE, loss=PRE), vector(0.825, 1.8))


@pytest.mark.parametrize("times", [1e-13, 1.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_given_weights_need_not_sum_to_one(times, dtype):
    part = FedFV(alpha=0.1, tau=0, mean="given")
    updates = torch.randn(6, 40, dtype=dtype, generator=torch.Generator().manual_seed(0))
    weights, up = torch.arange(1, 7, dtype=dtype) / 21, {"loss": torch.arange(6.0)}
    context = Script([part], updates[0], n=[1] * 6).context
    wanted, _ = part.combine(updates, weights, up, {}, context)
    found, _ = part.combine(updates, times * weights, up, {}, context)
    torch.testing.assert_close(found / times, wanted)
    opposite = torch.cat([updates[:3], -updates[:3]])  # in full conflict, two by two
    even = torch.full((6,), times / 6, dtype=dtype)
    nothing, _ = part.combine(opposite[[0, 3, 0, 3, 0, 3]], even, up, {}, context)
    assert not nothing.any()


def test_uniform_mean_refuses_weights_that_it_would_ignore():
    with pytest.raises(InputError, match="would be ignored"):
        algorithm("qffl+fedfv")
    assert algorithm("qffl+fedfv(mean=given)").parts


def test_window_of_the_code_needs_a_round():
    with pytest.raises(InputError, match="tau >= 1"):
        algorithm("fedfv(window=code, tau=0)")


@pytest.mark.parametrize(
    ("dtype", "tiny"),
    [
        *((torch.float64, tiny) for tiny in (1e-2, 1e-6, 1e-10)),
        *((torch.float32, tiny) for tiny in (1e-1, 5e-2, 1e-3)),
    ],
)
def test_updates_that_almost_cancel_keep_the_length_of_their_mean(dtype, tiny):
    draw = torch.Generator().manual_seed(0)
    half = torch.randn(2, 40, dtype=dtype, generator=draw)
    updates = torch.cat([half, tiny * torch.ones(2, 40, dtype=dtype) - half])
    found = step(FedFV(alpha=1, tau=0), updates, (1.0, 2.0, 3.0, 4.0))
    wanted = updates.double().mean(0).to(dtype)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dimension", [2, 3, 8])
def test_projections_in_turn_are_those_of_vectors(dimension):
    # few dimensions: updates are turned against themselves, and are still no target of their own
    rng = np.random.default_rng(dimension)
    turned = 0
    for _ in range(20):
        updates, targets = rng.normal(size=(30, dimension)), rng.permutation(30)
        found = fedfv.project(updates @ updates.T, targets)
        for k, update in enumerate(updates):
            left = update.copy()
            for j in targets:
                turned += j == k and left @ update < 0
                if j != k and left @ updates[j] < 0:
                    left -= (left @ updates[j]) / (updates[j] @ updates[j]) * updates[j]
            np.testing.assert_allclose(found[:, k] @ updates, left, rtol=0, atol=1e-12)
    assert turned > 0 or dimension > 3


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-12, 1.0, 1e25])
def test_float32_updates_of_any_length_are_averaged_as_in_float64(scale):
    draw = torch.Generator().manual_seed(0)
    updates = torch.randn(8, 500, dtype=torch.float64, generator=draw)
    losses = tuple(float(i) for i in range(8))
    wanted = step(FedFV(alpha=0.1, tau=0), updates, losses)
    found = step(FedFV(alpha=0.1, tau=0), (scale * updates).float(), losses)
    torch.testing.assert_close(found.double() / scale, wanted, rtol=1e-5, atol=1e-5)


def test_a_past_of_huge_float32_updates_is_projected_off():
    x = torch.zeros(2)
    script = Script([FedFV(alpha=1, tau=1)], x, n=[1, 1], cohort=1)
    script.play(-torch.tensor([[1e25, 0.0]]), clients=[0], loss=[1.0])
    before = script.server.x
    after = script.play(-torch.tensor([[-1e25, 1e25]]), clients=[1], loss=[1.0])
    torch.testing.assert_close((before - after) / 1e25, torch.tensor([0.0, math.sqrt(2)]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("m", [3, 10, 60])
def test_many_updates_along_one_line_leave_the_model_where_it_is(dtype, m):
    # all of one half are in conflict with all of the other: each is projected to zero
    draw = torch.Generator().manual_seed(m)
    line = torch.randn(800, dtype=torch.float64, generator=draw)
    lengths = (0.5 + torch.rand(m, dtype=torch.float64, generator=draw)) * (-1) ** torch.arange(m)
    updates = (lengths[:, None] * line).to(dtype)
    found = step(FedFV(alpha=0, tau=0), updates, tuple(float(k) for k in range(m)))
    assert torch.equal(found, torch.zeros_like(updates[0]))


def test_a_past_update_as_good_as_zero_is_no_target():
    script = Script([FedFV(alpha=1, tau=1)], vector(0, 0), n=[1, 1], cohort=1)
    script.play(-matrix((1e-170, 0)), clients=[0], loss=[1.0])
    before = script.server.x
    after = script.play(-matrix((-1, 1)), clients=[1], loss=[1.0])
    torch.testing.assert_close(before - after, vector(-1, 1))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("dtype", "huge"), [(torch.float32, 3e38), (torch.float64, 1e200)])
def test_updates_beyond_all_bounds_are_averaged_without_a_word_of_numpy(dtype, huge):
    updates = huge * torch.tensor([[1.0, 0.0], [-1.0, 0.5], [0.2, -1.0]], dtype=dtype)
    step(FedFV(alpha=0, tau=0, mean="given"), updates, LOSSES)


def test_opposite_updates_of_the_past_that_cancel_change_nothing():
    script = Script([FedFV(alpha=1, tau=1)], torch.zeros(2), n=[1, 1, 1], cohort=2)
    script.play(-torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), clients=[0, 1], loss=[1.0, 2.0])
    before = script.server.x
    after = script.play(-torch.tensor([[1e-30, 1.0]]), clients=[2], loss=[1.0])
    torch.testing.assert_close(before - after, torch.tensor([0.0, 1.0]))
