"""Products client by client, where a library is faster so, against all at once."""

import pytest
import torch
from torch import nn

import fedparity as fp
from fedparity.engines.kernels import chain
from fedparity.testing import unlike_clients


def plain(left, right, *_):
    return left @ right.mT


@pytest.fixture(params=["onednn", "plain"])
def one(request, monkeypatch):
    """Make every product one of a client's own, and return the list of calls."""
    by = chain.onednn() if request.param == "onednn" else plain
    if by is None:
        pytest.skip("no oneDNN in this torch")
    calls = []

    def watched(left, right, *rest):
        calls.append((tuple(left.shape), tuple(right.shape)))
        return by(left, right, *rest)

    monkeypatch.setattr(chain, "LARGE", 1)
    monkeypatch.setattr(chain, "faster", lambda: True)
    monkeypatch.setattr(chain, "onednn", lambda: watched)
    return calls


def stacks(m=3):
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(m, *s, generator=draw) for s in [(5, 7), (4, 7), (1, 4), (5, 1), (5, 4)]]


@pytest.mark.parametrize("m", [1, 3])
def test_a_product_a_client_is_that_of_all_at_once(one, m):
    left, right, row, column, start = stacks(m)
    wanted = left @ right.mT
    close = torch.testing.assert_close
    close(chain.product(left, right), wanted)
    close(chain.product(left, right, row), wanted + row)
    close(chain.product(left, right, column), wanted + column)
    turned = left.mT.contiguous().mT, right.mT.contiguous().mT
    close(chain.product(*turned), wanted)
    room = torch.empty_like(start)
    assert chain.plus_product(start, left, right, -0.5, out=room) is room
    close(room, start - 0.5 * wanted)
    chain.plus_product(start, left, right, -0.5, out=start)
    close(start, room)
    assert len(one) == 6 * m


def test_what_all_share_is_left_as_it_is(one):
    left, right, *_, start = stacks()
    shared = start[:1].expand(3, -1, -1)
    before, room = shared.clone(), torch.empty_like(start)
    chain.plus_product(shared, left, right, 1.0, out=room)
    assert torch.equal(shared, before)
    torch.testing.assert_close(room, before + left @ right.mT)


def test_small_products_those_of_float64_and_other_processors_are_taken_at_once(monkeypatch):
    def never():
        raise AssertionError("a call of its own")

    monkeypatch.setattr(chain, "faster", lambda: True)
    monkeypatch.setattr(chain, "onednn", never)
    left, right, *_ = stacks()
    chain.product(left, right)
    monkeypatch.setattr(chain, "LARGE", 1)
    chain.product(left.double(), right.double())
    with pytest.raises(AssertionError, match="of its own"):
        chain.product(left, right)
    monkeypatch.setattr(chain, "faster", lambda: False)
    chain.product(left, right)


ZEN_5 = {"sse4a": True, "avx_vnni": True, "avx512_f": True, "cpu_name": "AMD"}


@pytest.mark.parametrize(
    ("capable", "wanted"),
    [
        (ZEN_5, True),
        (ZEN_5 | {"avx_vnni": False}, False),  # Zen 4
        (ZEN_5 | {"avx512_f": False}, False),
        ({"avx_vnni": True, "avx512_f": True}, False),  # Intel's
        ({}, False),
    ],
)
def test_it_is_faster_from_zen_5_on(monkeypatch, capable, wanted):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capable, raising=False)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert chain.faster.__wrapped__() is wanted
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    assert not chain.faster.__wrapped__()


class Operation:
    def __init__(self, found):
        self._linear_pointwise = self
        self.default = lambda left, right, *_: found(left, right)


def no_such(left, right):
    raise RuntimeError("no such operation")


@pytest.mark.parametrize(
    ("found", "there"),
    [(plain, True), (lambda left, right: left @ right.mT + 1, False), (no_such, False)],
)
@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_an_operation_that_is_missing_or_wrong_is_not_taken(monkeypatch, found, there, default):
    monkeypatch.setattr(torch.ops, "mkldnn", Operation(found))
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        assert (chain.onednn.__wrapped__() is not None) is there
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("batch", [4, None])
def test_a_run_so_is_the_run_of_the_reference_engine(one, batch):
    def small(shape, outputs):
        return nn.Sequential(nn.Linear(shape[0], 6), nn.ReLU(), nn.Linear(6, outputs))

    def run(engine):
        return (
            fp.Experiment(
                unlike_clients(),
                small,
                algorithm="qffl",
                rounds=3,
                solver=fp.Solver(lr=0.1, steps=3 if batch else 1, batch=batch),
                engine=engine,
                lstar="none",
            )
            .run()
            .model()
            .parameters()
        )

    slow = run("loop")
    assert not one
    fast = run("vmap")
    assert one
    torch.testing.assert_close(list(fast), list(slow), rtol=1e-5, atol=1e-6)
