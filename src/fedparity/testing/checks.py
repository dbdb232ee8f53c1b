"""The checks: each raises AssertionError with the part and what it breaks."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from fedparity.engines.engine import intraop
from fedparity.errors import InputError
from fedparity.method import Part
from fedparity.method.hints import overwritten
from fedparity.method.messages import Down, Replies
from fedparity.run.experiment import Experiment
from fedparity.run.watching import Silent
from fedparity.testing.bench import Bench, Flat, Trial

Check = Callable[[Part, Trial], None]


def check_part(part: Part, **options: object) -> None:
    """Raise AssertionError if the part breaks the contract.

    Parameters
    ----------
    part
        The part, with the settings to check.
    **options
        Fields of :class:`Trial`: ``federation``, ``task``, ``solver``, ``rounds``, ``seed``,
        ``tolerance``.
    """
    trial = Trial(**options)  # type: ignore[arg-type]
    for check in CHECKS.values():
        check(part, trial)


def check_settings(part: Part, trial: Trial) -> None:
    """Settings are the fields of a frozen dataclass and hide no attribute of Part."""
    if not dataclasses.is_dataclass(part):
        return
    names = {f.name for f in dataclasses.fields(part)}
    _claim(not names & set(dir(Part)), part, f"settings hide {sorted(names & set(dir(Part)))}")
    for name in names:
        try:
            setattr(part, name, getattr(part, name))
        except dataclasses.FrozenInstanceError:
            continue
        _claim(False, part, "is not frozen")


def check_neutral(part: Part, trial: Trial) -> None:
    """The neutral setting is uniform FedAvg: to the bit, or to rounding if it computes weights.

    The vmap engine takes a plain step without storing the gradient that a part would correct, so
    there it is to rounding.
    """
    neutral = part.neutral()
    if neutral is None:
        return
    computes = {"weigh", "combine"} & neutral.hooks
    for engine in ("loop", "vmap"):
        made = _after(trial, [neutral], engine=engine)["x"]
        fedavg = _after(trial, [], engine=engine)["x"]
        tolerance = trial.tolerance if computes or engine == "vmap" else 0.0
        _same(part, f"its neutral setting is not FedAvg ({engine})", made, fedavg, tolerance)


def check_engines(part: Part, trial: Trial) -> None:
    """The vmap engine agrees with the loop, in float64, to rounding."""
    loop, vmap = (_after(trial, [part], engine=engine) for engine in ("loop", "vmap"))
    _claim(loop.keys() == vmap.keys(), part, "keeps other state under vmap")
    for name, value in loop.items():
        _same(part, f"vmap differs from loop in {name}", vmap[name], value, trial.tolerance)


def check_resume(part: Part, trial: Trial) -> None:
    """A run that is interrupted and resumed ends where an uninterrupted one does, to the bit."""
    with tempfile.TemporaryDirectory() as folder, _quiet():
        with patch.dict(os.environ, FEDPARITY_CACHE=folder):
            experiment = trial.experiment([part], checkpoint_every=1)
            experiment.run(out=Path(folder, "whole"))
            try:
                experiment.run(out=Path(folder, "parts"), watch=_Stop(trial.rounds // 2))
            except _Interrupted:
                experiment.resume(Path(folder, "parts"))
        whole, parts = (
            load_file(Path(folder, run, "checkpoint", "state.safetensors"))
            for run in ("whole", "parts")
        )
    _claim(whole.keys() == parts.keys(), part, "has other state after a resume")
    for name, value in whole.items():
        _same(part, f"a resume changes {name}", parts[name], value, 0.0)


def check_order(part: Part, trial: Trial) -> None:
    """Numbering the clients otherwise changes nothing but the order of sums."""
    before = _after(trial, [part], engine="loop")
    count = len(trial.federation)
    order = np.arange(count)[::-1].copy()
    with _quiet():
        other = trial.experiment([part], engine="loop")
    other.federation = other.federation.only(*(other.federation.names[k] for k in order))
    other.setup = replace(other.setup, federation=other.federation, places=order)
    after = _moved(other, trial.rounds)
    _same(part, "depends on the order of clients", after["x"], before["x"], trial.tolerance)
    for name in (name for name in before if name.startswith("client/")):
        mine = before[name][torch.from_numpy(order)]
        _same(part, f"{name} depends on the order of clients", after[name], mine, trial.tolerance)


def check_replies(part: Part, trial: Trial) -> None:
    """Any non-empty subset of replies works, or partial participation is refused clearly."""
    if "full_participation" in part.needs:
        try:
            trial.experiment([part], cohort=1)
        except InputError:
            return
        _claim(False, part, "needs full participation, yet a cohort of one is not refused")
    everyone = range(len(trial.federation))
    with _quiet():
        bench = Bench(trial.experiment([part], engine="loop"))
        for size in {1, 2, len(everyone) - 1} - {0}:
            for answering in combinations(everyone, size):
                for probed in {False, "probe" in part.hooks}:
                    bench.restart()
                    bench.advance(answering, probed)
                    bench.advance()
                    _finite(part, bench.tensors(), f"after replies of {answering} alone")


def check_schema(part: Part, trial: Trial) -> None:
    """State has the same names, shapes and types before and after every round."""
    with _quiet():
        bench = Bench(trial.experiment([part], engine="loop"))
        first = {name: (value.shape, value.dtype) for name, value in bench.tensors().items()}
        for _ in range(trial.rounds):
            bench.advance()
            now = {name: (value.shape, value.dtype) for name, value in bench.tensors().items()}
            _claim(now == first, part, f"state changed its schema from {first} to {now}")


def check_dtype(part: Part, trial: Trial) -> None:
    """Parameters and updates keep the floating type of the experiment."""
    for dtype in (torch.float32, torch.float64):
        for engine in ("loop", "vmap"):
            with _quiet():
                experiment = trial.experiment([part], dtype=str(dtype)[6:], engine=engine)
                bench = Bench(experiment)
                updates = bench.advance().deltas
            for name, value in (("parameters", bench.server.x), ("updates", updates)):
                _claim(value.dtype == dtype, part, f"{name} became {value.dtype} ({engine})")


def check_finite(part: Part, trial: Trial) -> None:
    """Everything is finite once all clients were met, with weights by size too."""
    for weighting in ("uniform", "size"):
        _finite(part, _after(trial, [part], weighting=weighting), f"weighting {weighting}")


def check_pure(part: Part, trial: Trial) -> None:
    """Hooks change nothing they are given, and the same round twice gives the same bits.

    What a part says it overwrites may change.
    """
    own = {f"server/{part.name}/{key}" for key in overwritten(part)}
    with _quiet():
        bench, again = (Bench(trial.experiment([part], engine="loop")) for _ in range(2))
        for _ in range(trial.rounds):
            old = {n: v for n, v in bench.tensors().items() if n not in own}
            kept = {name: value.clone() for name, value in old.items()}
            asked = bench.door.ask
            seen: list[tuple[Flat, Flat]] = []

            def watched(down: Down, cohort: Tensor) -> Replies:
                sent = _contents(down)
                before = {name: value.clone() for name, value in sent.items()}
                replies = asked(down, cohort)  # noqa: B023
                seen.append((sent, before))  # noqa: B023
                given = {"deltas": replies.deltas, **_named(replies.reports)}
                seen.append((given, {n: v.clone() for n, v in given.items()}))  # noqa: B023
                return replies

            with patch.object(bench.door, "ask", watched):
                bench.advance()
            again.advance()
            for now, before in [(old, kept), *seen]:
                for name, value in before.items():
                    _same(part, f"a hook writes into {name}", now[name], value, 0.0)
    for name, value in bench.tensors().items():
        _same(part, f"{name} is not repeatable", again.tensors()[name], value, 0.0)


CHECKS: dict[str, Check] = {
    "settings": check_settings,
    "neutral": check_neutral,
    "engines": check_engines,
    "resume": check_resume,
    "order": check_order,
    "replies": check_replies,
    "schema": check_schema,
    "dtype": check_dtype,
    "finite": check_finite,
    "pure": check_pure,
}
"""All checks by name."""


class _Interrupted(Exception):
    pass


class _Stop(Silent):
    """Interrupts the rounds of a run, not the search for L* before them."""

    def __init__(self, at: int) -> None:
        self.at, self.stages = at, 0

    def stage(self, text: str, total: int) -> None:
        self.stages += 1

    def advance(self, done: int, note: str = "") -> None:
        if self.stages == 2 and done == self.at:
            raise _Interrupted


@contextmanager
def _quiet() -> Iterator[None]:
    """Let parts warn: here only their numbers matter."""
    with warnings.catch_warnings(), intraop(1):
        warnings.simplefilter("ignore", UserWarning)
        yield


def _moved(experiment: Experiment, rounds: int) -> Flat:
    with _quiet():
        bench = Bench(experiment)
        for _ in range(rounds):
            bench.advance()
    return bench.tensors()


def _after(trial: Trial, parts: Sequence[Part], **conditions: object) -> Flat:
    with _quiet():
        return _moved(trial.experiment(parts, **conditions), trial.rounds)


def _named(tree: dict[str, dict[str, Tensor]]) -> Flat:
    return {f"{part}/{key}": value for part, sent in tree.items() for key, value in sent.items()}


def _contents(down: Down) -> Flat:
    shared = _named({part: dict(sent) for part, sent in down.shared.items()})
    each = _named({part: dict(sent) for part, sent in down.each.items()})
    return {"x": down.x, **shared, **{f"each/{name}": value for name, value in each.items()}}


def _finite(part: Part, tensors: Flat, when: str) -> None:
    for name, value in tensors.items():
        _claim(bool(value.isfinite().all()), part, f"{name} is not finite, {when}")


def _same(part: Part, claim: str, value: Tensor, wanted: Tensor, tolerance: float) -> None:
    """Compare to the bit, or to a tolerance relative to the largest entry."""
    if value.shape == wanted.shape and bool(
        ((value == wanted) | (value.isnan() & wanted.isnan())).all()
    ):
        return
    apart = (value - wanted).abs().nan_to_num(torch.inf).max()
    bound = tolerance * max(1.0, float(wanted.abs().max()))
    _claim(float(apart) <= bound, part, f"{claim}, by {float(apart):.3g} (allowed {bound:.3g})")


def _claim(holds: bool, part: Part, otherwise: str) -> None:
    if not holds:
        raise AssertionError(f"part '{part.name}': {otherwise}")
