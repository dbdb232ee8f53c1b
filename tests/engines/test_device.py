"""On an accelerator no tensor strays; here is none, and torch's ``meta`` device stands for it.

Every call that an engine gets in a round on the processor is made once more on that device, with
tensors that have shape, type and device, and no numbers: torch raises where two devices meet in a
sum, and where a number is read. A torch without CUDA has no autograd on fake ``cuda`` tensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import fedparity as fp
from fedparity.engines import device as place
from fedparity.engines.device import DeviceEngine
from fedparity.engines.reference.engine import LoopEngine
from fedparity.engines.stacked.batches import even_weights
from fedparity.engines.stacked.engine import VmapEngine
from fedparity.learning.device import chosen
from fedparity.method.messages import Down
from fedparity.parts import PARTS
from fedparity.testing.bench import Bench, Trial

COUNTED = {"bn", "fedrep"}
"""Parts that look up which parameters are theirs by counting marks: that reads numbers, on any
device, so they are not shown here."""
KINDS = {"loop": LoopEngine, "vmap": VmapEngine}


@pytest.fixture
def came(monkeypatch) -> list[tuple[torch.Size, torch.dtype, str]]:
    """Return shape, type and device of every tensor that comes home; it stays where it is."""
    found: list[tuple[torch.Size, torch.dtype, str]] = []

    def home(tensor: Tensor) -> Tensor:
        found.append((tensor.shape, tensor.dtype, tensor.device.type))
        return tensor

    monkeypatch.setattr(place, "home", home)
    return found


@pytest.fixture(scope="module", autouse=True)
def forgotten():
    """Forget what was kept of a device that has no numbers."""
    yield
    even_weights.cache_clear()


def bench_of(part, engine: str) -> Bench:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Bench(Trial(rounds=2).experiment([part] if part else [], engine=engine))


def asked_of(bench: Bench) -> list[tuple[str, tuple, object]]:
    """Return what the engine is asked in a round and at an evaluation, with its answers."""
    calls: list[tuple[str, tuple, object]] = []

    def note(name, call):
        def noted(*args, **named):
            said = call(*args, **named)
            calls.append((name, args, said))
            return said

        return noted

    for name in ("ask", "personal", "evaluate_each"):
        setattr(bench.engine, name, note(name, getattr(bench.engine, name)))
    bench.advance()
    x, shared = bench.setup.algorithm.served(bench.server)
    down = Down("evaluate", bench.round, 0.1, x, bench.server.buffers, shared)
    bench.door.evaluate(down, "validation")
    return calls


def shapes(found: Mapping[str, object]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Return shape and type of every tensor among values by name."""
    return {key: (v.shape, v.dtype) for key, v in found.items() if isinstance(v, Tensor)}


def replayed(bench: Bench, came: list) -> None:
    """Ask the same of an engine elsewhere: answers are there, and like those of the processor."""
    calls = asked_of(bench)
    there = DeviceEngine(replace(bench.setup, device="meta"), KINDS[bench.engine.name])
    there.there.pooled = lambda *_: None  # it reads numbers at its end, which here are none
    for name, args, before in calls:
        after = getattr(there, name)(*args)
        if name == "ask":
            assert after.reports.keys() == before.reports.keys()
            assert after.states.keys() == before.states.keys()
            assert (after.deltas is None) == (before.deltas is None)
            if before.deltas is not None:
                assert after.deltas.shape == before.deltas.shape
        elif name == "evaluate_each":
            assert shapes(after) == shapes(before)
        else:
            assert shapes(after._asdict()) == shapes(before._asdict())
    assert {device for *_, device in came} == {"meta"}


@pytest.mark.parametrize("engine", KINDS)
@pytest.mark.parametrize("name", [None, *(name for name in PARTS if name not in COUNTED)])
def test_no_tensor_of_a_part_strays(name, engine, came):
    replayed(bench_of(None if name is None else PARTS[name](), engine), came)


class Strays(fp.Part):
    """A part that makes a tensor on the processor, whatever the device."""

    name = "strays"

    def grad(self, g, y, c):
        return g + torch.ones(g.shape, dtype=g.dtype, device="cpu")


@pytest.mark.parametrize("engine", KINDS)
def test_a_tensor_that_strays_is_found(engine, came):
    with pytest.raises(Exception, match="cpu is not on the expected device meta"):
        replayed(bench_of(Strays(), engine), came)


def test_the_door_to_a_device_changes_no_bit():
    """The processor may stand behind the door too."""
    bench = bench_of(PARTS["pgvc"](), "vmap")
    calls = asked_of(bench)
    there = DeviceEngine(bench.setup, VmapEngine)
    for name, args, before in calls:
        after = getattr(there, name)(*args)
        if name == "evaluate_each":
            assert all(torch.equal(after[key], before[key]) for key in before)
        elif name == "ask" and before.deltas is not None:
            assert torch.equal(after.deltas, before.deltas)


def test_a_device_that_is_not_there_is_refused_in_one_line():
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    with pytest.raises(fp.InputError, match=r"device 'cuda': torch .* finds none here"):
        Trial().experiment([], device="cuda")
    assert chosen("auto") in ("cpu", "mps")
