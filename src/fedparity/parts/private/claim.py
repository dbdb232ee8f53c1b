"""What stands in the way of an epsilon, told from what the parts declare of themselves."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

from fedparity.errors import InputError
from fedparity.method import Context, Gap, Loss, Part, Vector
from fedparity.toolbox.accounting import require

NOISY_LOSSES = "noisy_losses"
"""Trait of a part that puts noise on all losses that leave a client."""

PRIVATE_UPDATES = "private_updates"
"""Trait of a part that puts noise on the updates of clients."""


def default_delta(population: int) -> float:
    """Return the delta of a federation of so many clients, below one in as many.

    >>> round(default_delta(100), 4)
    0.0063
    """
    return float(max(population, 2) ** -1.1)


SEEDED = "noise follows from the run's seed (seeded=True): whoever knows it can subtract it"
"""Why noise that can be made again gives no privacy."""


def warn_of_seed(part: str) -> None:
    """Warn that noise which can be made again gives no privacy."""
    warnings.warn(f"'{part}' gives no privacy: {SEEDED}", stacklevel=2)


def others(part: Part, ctx: Context) -> list[Part]:
    """Return the other parts of the algorithm."""
    return [other for other in ctx.parts if other.name != part.name]


def without_noise(parts: Iterable[Part], ctx: Context, vectors: bool) -> Iterator[str]:
    """Yield what leaves clients without noise; ``vectors`` tells that vectors have theirs."""
    noisy = any(NOISY_LOSSES in part.traits for part in ctx.parts)
    if ctx.chance == "losses" and not noisy:
        yield "the sampling asks clients for their losses: add dp_losses"
    for part in parts:
        if "move" in part.hooks:
            yield f"'{part.name}' asks for losses as often as it likes"
        if part.group_kinds:
            yield f"'{part.name}' tells how many examples of each group a client has, without noise"
        for name, kind in part.reports.items():
            if isinstance(kind, Loss | Gap):
                if not noisy:
                    yield f"'{part.name}' reports its '{name}' without noise: add dp_losses"
            elif not isinstance(kind, Vector):
                yield f"'{part.name}' reports its '{name}', for which there is no noise"
            elif not vectors:
                yield (
                    f"'{part.name}' reports the vector '{name}', which noise of the server does "
                    "not reach: where='clients'"
                )


def exchanges(parts: Iterable[Part], kinds: tuple[type, ...]) -> int:
    """Return the exchanges of a round in which parts may report something of these kinds."""
    reporting = [p for p in parts if any(isinstance(k, kinds) for k in p.reports.values())]
    return sum(any(hook in p.hooks for p in reporting) for hook in ("probe", "finish"))


def check_budget(part: str, budget: float | None, first: float | None, because: str) -> None:
    """Refuse a budget that cannot be held, or that one round would break."""
    if first is not None or budget is not None:
        require(f"'{part}'")
    if budget is None:
        return
    if first is None:
        raise InputError(f"'{part}' has a budget, but there is no epsilon: {because}")
    if first > budget:
        raise InputError(
            f"'{part}' has a budget of {budget:g}, but the first round costs epsilon {first:.4g}: "
            "raise noise or budget"
        )
