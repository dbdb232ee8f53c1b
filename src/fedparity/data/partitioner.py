"""Partitions by the partitioners of flwr-datasets."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedparity.data.split import Ints
from fedparity.errors import InputError


@runtime_checkable
class Partitioner(Protocol):
    """What flwr-datasets calls a partitioner, such as its ``DirichletPartitioner``."""

    def load_partition(self, partition_id: int) -> Any:
        """Return the rows of a client."""


@dataclass(frozen=True)
class Dealt:
    """A partition by a partitioner of flwr-datasets.

    It is given a dataset with the columns ``label``, ``client`` (the natural one, where there is
    one) and ``row``, so ``partition_by`` names one of the first two. It has a seed of its own.
    """

    partitioner: Any
    text: str

    def assign(
        self,
        labels: npt.NDArray[Any],
        natural: Ints | None,
        clients: int | None,
        rng: np.random.Generator,
    ) -> Ints:
        """Return the client of each example."""
        try:
            import datasets
        except ImportError as error:
            raise InputError(
                "a partitioner needs Hugging Face's datasets: 'fedparity[hf]'"
            ) from error
        columns = {"label": labels, "row": np.arange(len(labels))}
        columns |= {} if natural is None else {"client": natural}
        made = copy.deepcopy(self.partitioner)  # one takes a dataset once
        made.dataset = datasets.Dataset.from_dict(columns)
        owner = np.full(len(labels), -1, dtype=np.int64)
        count = int(made.num_partitions)
        if clients not in (None, count):
            raise InputError(f"the partitioner makes {count} clients: leave out clients={clients}")
        for client in range(count):
            rows = made.load_partition(client).with_format("numpy")["row"][:]
            owner[np.asarray(rows, dtype=np.int64)] = client
        return owner
