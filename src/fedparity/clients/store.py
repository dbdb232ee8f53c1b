"""What each client keeps between rounds."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedparity.engines.engine import Ids, rows_of
from fedparity.errors import FedparityError, InputError
from fedparity.learning.layout import Layout
from fedparity.method.algorithm import Algorithm
from fedparity.method.messages import Named


class ClientStore:
    """What each client keeps between rounds, created at first contact.

    Tensors of all clients met so far are rows of one slab a name, so that gathering a cohort is one
    indexing operation and memory grows with the clients met, not with the population. What a part
    keeps of every example has a place for each of the largest client's ``examples``.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        layout: Layout,
        x: Tensor,
        buffers: Tensor,
        population: int,
        local_buffers: bool = False,
        examples: int = 0,
    ) -> None:
        made: Named = {
            part.name: {
                key: value.expand(examples) if key in part.by_example else value
                for key, value in part.init_client(x, layout).items()
            }
            for part in algorithm.having("init_client")
        }
        if local_buffers and len(buffers):
            made["buffers"] = {"b": buffers}
        self.fresh: Named = {part: tensors for part, tensors in made.items() if tensors}
        self.row = np.full(population if self.fresh else 0, -1, dtype=np.int64)
        self.met = 0
        self.slabs: Named = {
            part: {key: value.new_zeros((0, *value.shape)) for key, value in tensors.items()}
            for part, tensors in self.fresh.items()
        }

    def gather(self, clients: Ids) -> Named:
        """Return the state of these clients, stacked; a client never met has the initial one."""
        if not self.fresh:
            return {}
        rows = torch.from_numpy(self.row[clients])
        known = rows >= 0
        if known.all():
            return rows_of(self.slabs, rows)
        result: Named = {}
        for part, tensors in self.fresh.items():
            result[part] = {}
            for key, value in tensors.items():
                out = value.expand(len(clients), *value.shape).clone()
                out[known] = self.slabs[part][key][rows[known]]
                result[part][key] = out
        return result

    def scatter(self, clients: Ids, states: Named) -> None:
        """Keep the new state of these clients."""
        for part, kept in states.items():
            made = self.fresh.get(part, {})
            if kept.keys() != made.keys():
                raise FedparityError(
                    f"part '{part}' keeps {sorted(kept)} on clients, but its init_client makes "
                    f"{sorted(made)}: the names must be the same"
                )
        if not self.fresh:
            return
        new = clients[self.row[clients] < 0]
        self.row[new] = np.arange(self.met, self.met + len(new))
        self.met += len(new)
        rows = torch.from_numpy(self.row[clients])
        for part, tensors in self.slabs.items():
            for key, slab in tensors.items():
                if self.met > len(slab):
                    room = min(len(self.row), max(self.met, 2 * len(slab)))
                    slab = torch.cat([slab, slab.new_zeros((room - len(slab), *slab.shape[1:]))])
                    tensors[key] = slab
                if part in states:
                    slab[rows] = states[part][key].to(slab.dtype)

    def tensors(self) -> dict[str, Tensor]:
        """Return the state of the clients met, by flat names."""
        if not self.met:
            return {}
        flat = {
            f"client/{part}/{key}": slab[: self.met].contiguous()
            for part, tensors in self.slabs.items()
            for key, slab in tensors.items()
        }
        met = np.flatnonzero(self.row >= 0)
        ordered = met[np.argsort(self.row[met])]
        return {**flat, "client": torch.from_numpy(ordered)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take the state of :meth:`tensors`."""
        if "client" not in tensors:
            return
        clients = tensors["client"].numpy()
        wanted = {
            f"client/{part}/{key}": (len(clients), *slab.shape[1:])
            for part, slabs in self.slabs.items()
            for key, slab in slabs.items()
        }
        if (
            {name for name in tensors if name.startswith("client/")} != set(wanted)
            or any(tuple(tensors[name].shape) != shape for name, shape in wanted.items())
            or len(np.unique(clients)) != len(clients)
            or not ((clients >= 0) & (clients < len(self.row))).all()
        ):
            raise InputError(
                "cannot resume: what the checkpoint keeps of clients has another schema"
            )
        self.scatter(
            clients,
            {
                part: {key: tensors[f"client/{part}/{key}"] for key in slabs}
                for part, slabs in self.slabs.items()
            },
        )
