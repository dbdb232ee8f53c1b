"""A dataset that is a table: it is prepared when it is dealt, from training examples alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedparity.data import build, doctor, frame
from fedparity.data.build import Parts
from fedparity.data.dataset import Dataset
from fedparity.data.split import Ints, Split
from fedparity.spec import Spec

Way = Literal["federated", "client", "none"]


@dataclass(frozen=True, eq=False, repr=False)
class TableDataset(Dataset):
    """A table with its own clients, whose columns become inputs when it is dealt.

    Parameters
    ----------
    table
        The input columns; ``x`` holds nothing.
    prepare
        How they become inputs, as in :meth:`Federation.from_frame`.
    """

    table: pd.DataFrame = field(default_factory=pd.DataFrame)
    prepare: str = "federated"

    def __repr__(self) -> str:
        what = f"{self.outputs} classes" if self.kind == "classes" else "regression"
        columns = f"{self.table.shape[1]} columns"
        return f"Dataset('{self.name}', {len(self)} examples, {what}, {columns})"

    def _dealt(
        self, owner: Ints, names: Sequence[str], part: Parts
    ) -> tuple[tuple[Split, Split, Split], dict[str, Any]]:
        kinds = {str(name): doctor.kind_of(self.table[name]) for name in self.table}
        told = {"classes": self.classes}
        made = frame.prepared(self.table, kinds, owner, names, part, self.prepare, told)
        three = frame.dealt(self.table, made, self.y, owner, names, part, self.groups)
        return three, {"preparation": made, "columns": tuple(kinds.items())}


def of(
    name: str,
    table: pd.DataFrame,
    y: Any,
    client: Any,
    settings: Mapping[str, Any],
    *,
    groups: Mapping[str, Any] | None = None,
    held_out: Any = None,
    values: bool = False,
) -> TableDataset:
    """Return the dataset of a table.

    Parameters
    ----------
    name, settings
        What it is called, and the settings that load it again.
    table, y, client
        Input columns, targets and the name of each row's own client.
    groups
        Groups inside clients; those of the settings' ``protected`` are inputs too.
    held_out
        Which rows the publisher calls test.
    values
        Whether targets are values rather than classes.
    """
    target, kind, outputs, classes = build.targets(y, "values" if values else None, None)
    owner, names = build.owners(client)
    codes, called = build.groups(groups or {}, len(table))
    if settings.get("protected"):
        table = table.assign(
            **{k: pd.Categorical(np.asarray(v)) for k, v in (groups or {}).items()}
        )
    return TableDataset(
        name,
        np.empty((len(table), 0), dtype=np.uint8),
        target,
        outputs,
        kind,
        classes,
        natural=owner,
        natural_names=names,
        held_out=held_out,
        recipe=str(Spec(name, dict(settings))),
        groups=codes,
        group_names=called,
        table=table.reset_index(drop=True),
        prepare=str(settings["prepare"]),
    )
