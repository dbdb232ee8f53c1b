"""Reports are held against what their parts declare, the same for every door."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedparity.engines.engine import Setup
from fedparity.learning.tasks import TASKS
from fedparity.method.messages import Named
from fedparity.method.reports import Gap, Loss, LossAlong, Report, kind_of, wrong_loss


def wrong_reports(setup: Setup, reports: Named, lstar: Tensor) -> Iterator[tuple[str, str]]:
    """Yield the reports of one client that cannot be: ``part/name``, and why.

    ``lstar`` is the client's L*, NaN if nobody computed it.
    """
    declared = setup.algorithm.declared
    for part, report in reports.items():
        for name, value in report.items():
            kind = kind_of(declared.get(part, {}).get(name), value)
            found = kind.wrong(value) or _wrong_loss(kind, value, setup, float(lstar))
            if found is not None:
                yield f"{part}/{name}".lstrip("/"), found


def _wrong_loss(kind: Report, value: Tensor, setup: Setup, lstar: float) -> str | None:
    """Return why a loss, or the loss behind a gap, is none of the task's."""
    if type(setup.task) not in TASKS.values() or not isinstance(kind, Loss | Gap):
        return None
    if any("noisy_losses" in part.traits for part in setup.algorithm.parts):
        return None
    least, most, rounding = float(value.min()), float(value.max()), 0.0
    if isinstance(kind, Gap):
        if lstar != lstar:
            return None
        rounding = 1e-5 * (abs(least) + abs(lstar))
        least, most = least + lstar, most + lstar
    bounded = setup.task.name != "regression" and not isinstance(kind, LossAlong)
    found = wrong_loss(least + rounding, most, bounded)
    return found if found is None or isinstance(kind, Loss) else f"plus its L* {found}"


def suspicious(setup: Setup, reports: Named, lstar: Tensor) -> Tensor:
    """Tell quickly which clients ``[m]`` of a stack may have a report that cannot be.

    Only they are looked at one by one. ``lstar`` is their L* ``[m]``, NaN where nobody knows it.
    """
    found = torch.zeros(0, dtype=torch.bool)
    for part in setup.algorithm.parts:
        for name, value in reports.get(part.name, {}).items():
            kind = kind_of(part.reports.get(name), value[0])
            if kind.vector:
                continue
            flat = value.reshape(len(value), -1)
            low: float | Tensor = 0.0 if isinstance(kind, Loss) else kind.low
            if isinstance(kind, Gap):
                low = -lstar.to(flat.dtype)[:, None].nan_to_num(-torch.inf)
            odd = ((flat < low) | (flat > min(kind.high, 1e6))).any(1)
            found = odd if not len(found) else found | odd
    return found
