"""A report that its part says cannot be is told by the simulator, in words that Flower shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import fedparity as fp
from fedparity.errors import ClientError
from fedparity.method import Client, Count, Finish, Gap, Loss, Norm, Part, Report, Share
from fedparity.testing import unlike_clients


@dataclass(frozen=True)
class Telling(Part):
    """Report a number; only the client of six examples says what cannot be."""

    value: float
    name = "telling"

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({"loss"})

    def finish(self, delta: Tensor, c: Client) -> Finish:
        odd = torch.as_tensor(c.n == 6)
        told = torch.where(odd, torch.full_like(c.loss, self.value), torch.zeros_like(c.loss))
        return Finish(delta, {"loss": told})


def run(part: Part, engine: str, **conditions: object) -> fp.Result:
    known: dict[str, object] = {"lstar": "none", **conditions}
    net = fp.Classification("linear")
    return fp.Experiment(unlike_clients(), net, [part], rounds=1, engine=engine, **known).run()


def telling(value: float, kind: Report | None = None) -> Part:
    """Return the part, its report declared as of a kind, or not at all."""
    declared: Mapping[str, Report] = {} if kind is None else {"loss": kind}
    return type("Telling", (Telling,), {"reports": declared})(value)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (Loss(), -1.0, "-1: a loss is not negative"),
        (Loss(), 1e7, "1e[+]07: no loss is that large"),
        (Norm(), -1.0, "-1: a norm is not negative"),
        (Count(), -1.0, "-1: a count is not negative"),
        (Share(), 1.5, "1.5: a share is not above 1"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Report) else None,
)
def test_what_a_part_declares_holds_in_the_simulator(engine, kind, value, told):
    with pytest.raises(ClientError, match="client '3', round 1, phase train: its 'tell.*" + told):
        run(telling(value, kind), engine)


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_a_gap_is_held_against_the_clients_own_lstar(engine):
    known = {"lstar": [0.5] * 4}
    with pytest.raises(ClientError, match=r"plus its L\* -0.2[\d]*: a loss is not negative"):
        run(telling(-0.75, Gap()), engine, **known)  # -0.75 + 0.5 = -0.25, and a rounding
    assert run(telling(-0.25, Gap()), engine, **known).rounds == 1
    assert run(telling(-0.75, Gap()), engine).rounds == 1  # without L* nothing is known against it


def test_what_nobody_declared_may_be_any_number_whatever_it_is_called():
    assert run(telling(-1.0), "loop").rounds == 1
