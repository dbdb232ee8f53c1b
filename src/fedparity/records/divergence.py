"""When a run has diverged: one rule, and the words for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

TIMES = 2
"""A loss so many times the one before training: few clients a round make it rise by less."""
RULE = (
    "diverged: at the end the clients' mean loss is not finite, or more than twice what it was "
    "before the first round, on training and on validation examples alike"
)
"""Validation alone would call a run diverged that fits its training examples too well."""


def divergence(
    clients: pd.DataFrame,
    history: pd.DataFrame,
    untrained: Callable[[], npt.NDArray[np.float64]],
) -> str | None:
    """Return what shows that a run diverged, or None.

    Parameters
    ----------
    clients
        The losses at the end, one row a client. Where there are no validation examples, test
        examples stand in for them.
    history
        The run's history, from before the first round on.
    untrained
        Returns the clients' training losses before the first round; called only where the others
        have risen, which is seldom.
    """
    split = next((s for s in ("validation", "test") if (clients[f"n_{s}"] > 0).any()), "train")
    by_name = clients.set_index("client")
    losses = by_name.loc[by_name[f"n_{split}"] > 0, f"{split}_loss"]
    if split == "train" and losses.isna().all():  # nobody could be evaluated
        return None
    if not np.isfinite(losses.mean(skipna=split == "train")):
        return f"the mean {split} loss is not finite"
    if split != "train":
        rows = history[(history["round"] == 0) & (history["split"] == split)]
        rows = rows[(rows["model"] == "global") & (rows["metric"] == "loss")]
        if not _risen(losses, rows.set_index("client")["value"]):
            return None
    training = by_name["train_loss"]
    return _risen(training, pd.Series(untrained(), index=training.index))


def _risen(now: pd.Series[float], before: pd.Series[float]) -> str | None:
    """Say so if the mean over the clients that have both numbers is so many times larger."""
    both = pd.DataFrame({"now": now, "before": before}).dropna().mean()
    if not both["now"] - both["before"] > (TIMES - 1) * abs(both["before"]):
        return None
    return f"the mean loss is {both['now']:.3g}, and was {both['before']:.3g} before training"
