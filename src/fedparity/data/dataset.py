"""A dataset before it is dealt to clients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedparity import spec
from fedparity.arguments import checked, named
from fedparity.data import build
from fedparity.data.build import Kind, Parts
from fedparity.data.federation import Federation, numbered
from fedparity.data.noise import Noise
from fedparity.data.partition import (
    Natural,
    Partition,
    as_partition,
    deal_alike,
    partition_text,
)
from fedparity.data.source import USUAL
from fedparity.data.split import Groups, Ints, Split, room_for
from fedparity.errors import InputError
from fedparity.learning.seeds import generator
from fedparity.workers import Crew, cores

AT_ONCE = 1024
"""Images that become numbers at once: as bytes they are in no memory but the cache."""


@named
@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Inputs and targets of one dataset, ready to be split into a federation.

    Parameters
    ----------
    name
        What it is called.
    x
        Inputs ``[N, ...]`` as stored. Bytes with ``pixels=True`` are divided by 255 when a
        federation is made, so that a large dataset is held in floating point only once.
    y
        Targets ``[N]`` or ``[N, ...]``.
    outputs, kind, classes
        As in :class:`Federation`.
    natural, natural_names
        The dataset's own client of each example, as a place in the names.
    held_out
        Which examples the publisher calls test.
    pixels
        Whether ``x`` holds bytes of images.
    moments
        Mean and standard deviation of each channel ``[C, 1, 1]`` or pixel ``[C, H, W]``, to be
        subtracted and divided by.
    recipe
        The text that loads it again; ``None`` for a user's own arrays.
    groups, group_names
        Groups inside clients, as in :class:`Split` and :class:`Federation`.
    """

    name: str
    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    outputs: int
    kind: Kind = "classes"
    classes: tuple[str, ...] = ()
    natural: Ints | None = None
    natural_names: tuple[str, ...] = ()
    held_out: npt.NDArray[np.bool_] | None = None
    pixels: bool = False
    moments: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None
    recipe: str | None = None
    groups: Groups = field(default_factory=dict)
    group_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any, *, outputs: int | None = None, kind: Kind | None = None
    ) -> Dataset:
        """Make a dataset of your own arrays, to be dealt to clients by any scheme.

        Examples
        --------
        >>> data = Dataset.from_arrays(np.zeros((100, 3)), np.arange(100) % 2)
        >>> data.split("dirichlet(alpha=0.3)", clients=3, seed=0).names
        ('client-0', 'client-1', 'client-2')
        """
        values = build.inputs(x)
        target, kind, outputs, classes = build.targets(y, kind, outputs)
        if len(values) != len(target):
            raise InputError(f"x has {len(values)} rows and y has {len(target)}")
        return cls("arrays", values, target, outputs, kind, classes)

    def named(self, name: str, **settings: spec.Value) -> Dataset:
        """Return the dataset with the text that loads it again: a name with settings."""
        return replace(self, recipe=str(spec.Spec(name, settings)))

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        what = build.told(self.kind, self.outputs)
        return f"Dataset('{self.name}', {len(self)} examples, {what}, inputs {self.x.shape[1:]})"

    @checked
    def split(
        self,
        scheme: Partition | str,
        clients: int | None = None,
        seed: int = 0,
        fractions: Sequence[float] = USUAL,
        official: bool = False,
        noise: Noise | str | None = None,
    ) -> Federation:
        """Deal the examples to clients and split each client's into train, validation and test.

        Parameters
        ----------
        scheme
            A partition, or its text such as ``"dirichlet(alpha=0.1)"``.
        clients
            How many. ``natural`` and ``by_class`` know by themselves.
        seed
            Of the partition, the split and the noise.
        fractions
            Train, validation, test of each client.
        official
            Keep the publisher's test examples for test: the scheme deals the training examples,
            of which each client sets ``fractions[1]`` aside for validation, and the test examples
            of a class are dealt in proportion to the training examples of it that clients hold.
            By default the publisher's two parts are pooled first.
        noise
            Label noise on train and validation.
        """
        scheme = as_partition(scheme)
        fractions = build.checked(fractions)
        rng = generator(seed, "partition")
        if official:
            owner = self._official(scheme, clients, rng)
        else:
            owner = self._assign(scheme, np.arange(len(self)), clients, rng)
        count = clients if clients is not None else int(owner.max()) + 1
        names = self._names(scheme, owner, count)
        part = self._parts(owner, names, fractions, seed, official)
        three, more = self._dealt(owner, names, part)
        made = Federation(
            names,
            *three,
            outputs=self.outputs,
            kind=self.kind,
            classes=self.classes,
            groups=self.group_names,
            **more,
            recipe=self._recipe(scheme, clients, seed, fractions, official),
        )
        return made if noise is None else made.with_label_noise(noise, seed)

    @property
    def _labels(self) -> npt.NDArray[Any]:
        """What schemes deal by: the class of each example, 0 where it has none."""
        return self.y if self.kind == "classes" else np.zeros(len(self), dtype=np.float64)

    def _dealt(
        self, owner: Ints, names: Sequence[str], part: Parts
    ) -> tuple[tuple[Split, Split, Split], dict[str, Any]]:
        """Return the three splits, and what else is known of the federation."""
        return build.splits(self._take, self.y, owner, part, len(names), self.groups), {}

    def _assign(
        self, scheme: Partition, rows: Ints, clients: int | None, rng: np.random.Generator
    ) -> Ints:
        natural = None if self.natural is None else self.natural[rows]
        label = self._labels if self.y.ndim > 1 else self.y
        owner = np.asarray(scheme.assign(label[rows], natural, clients, rng))
        most = len(rows) if clients is None else clients
        if owner.shape != rows.shape or owner.min() < -1 or not 0 <= owner.max() < most:
            raise InputError(f"{scheme} did not name a client, or -1, for each example")
        return owner.astype(np.int64)

    def _official(self, scheme: Partition, clients: int | None, rng: np.random.Generator) -> Ints:
        if self.held_out is None:
            raise InputError(f"{self.name} has no official test part: leave official=False")
        train, test = np.flatnonzero(~self.held_out), np.flatnonzero(self.held_out)
        owner = np.full(len(self), -1, dtype=np.int64)
        owner[train] = self._assign(scheme, train, clients, rng)
        if isinstance(scheme, Natural) and self.natural is not None:
            client_of = np.full(len(self.natural_names), -1, dtype=np.int64)
            client_of[self.natural[train]] = owner[train]
            owner[test] = client_of[self.natural[test]]
        else:
            label = self._labels
            owner[test] = deal_alike(label[train], owner[train], label[test], rng)
        return owner

    def _parts(
        self,
        owner: Ints,
        names: Sequence[str],
        fractions: Sequence[float],
        seed: int,
        official: bool,
    ) -> Parts:
        part = np.full(len(self), 2, dtype=np.int8)
        dealt = owner >= 0
        if official and self.held_out is not None:
            dealt &= ~self.held_out
            fractions = (1 - fractions[1], fractions[1], 0.0)
        part[dealt] = build.drawn(owner[dealt], names, fractions, seed)
        return part

    def _names(self, scheme: Partition, owner: Ints, clients: int) -> tuple[str, ...]:
        if not isinstance(scheme, Natural) or self.natural is None:
            return numbered(clients)
        held = owner >= 0
        name_of = np.zeros(clients, dtype=np.int64)
        name_of[owner[held]] = self.natural[held]
        return tuple(self.natural_names[k] for k in name_of)

    def _take(self, rows: Ints) -> Tensor:
        if not self.pixels:
            return build.numbers(self.x[rows])
        x = room_for((len(rows), *self.x.shape[1:]), torch.float32)
        values = x.numpy()
        mean = deviation = None
        if self.moments is not None:
            mean, deviation = (m.astype(np.float32) for m in self.moments)

        def fill(block: int, _: None) -> None:
            these = slice(block * AT_ONCE, (block + 1) * AT_ONCE)
            some = values[these]
            np.copyto(some, self.x[rows[these]])
            some /= np.float32(255)
            if mean is not None and deviation is not None:
                some -= mean
                some /= deviation

        with closing(Crew([None] * cores())) as crew:
            crew.run(math.ceil(len(rows) / AT_ONCE), fill)
        return x

    def _recipe(
        self,
        scheme: Partition,
        clients: int | None,
        seed: int,
        fractions: Sequence[float],
        official: bool,
    ) -> dict[str, Any] | None:
        if self.recipe is None:
            return None
        return {
            "dataset": self.recipe,
            "partition": partition_text(scheme),
            "clients": clients,
            "seed": seed,
            "fractions": list(fractions),
            "official": official,
            "noise": [],
        }
