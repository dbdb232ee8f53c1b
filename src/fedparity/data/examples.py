"""The examples of many clients: what is known of them, and what can be asked and changed."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from typing_extensions import Self

from fedparity.arguments import checked, named
from fedparity.data import build, doctor, show
from fedparity.data.build import Kind
from fedparity.data.doctor import Finding
from fedparity.data.noise import Noise, as_noise, noise_text
from fedparity.data.prepare import Preparation
from fedparity.data.split import Split
from fedparity.errors import InputError, unknown
from fedparity.learning.seeds import generator
from fedparity.learning.unpacking import Fields, shapes

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@named
@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Clients with their train, validation and test examples, however they were made.

    Parameters
    ----------
    names
        One name a client, all different.
    train, validation, test
        The three splits, over the same clients in the same order.
    outputs
        The number of classes, of values to tell, of labels, of different tokens, or of intervals
        of time.
    kind
        ``"classes"``: a class, ``[N]``. ``"values"``: numbers, ``[N]`` or several, ``[N, R]``.
        ``"labels"``: 0 or 1 for each of several labels, ``[N, L]``. ``"tokens"``: the token that
        follows each of a sequence, ``[N, T]``. ``"survival"``: ``(time, event)``, ``[N, 2]``; see
        :class:`~fedparity.learning.survival.Survival`.
    classes
        The names of the classes, where the labels were text.
    recipe
        How the federation was made from a named dataset, in values that YAML and JSON can hold;
        ``None`` for a user's own arrays.
    about
        More numbers of the clients by name, one a client, such as the best loss that each is known
        to reach alone.
    groups
        The names of the groups inside clients, by kind, such as ``{"sex": ("f", "m")}``; which
        example is of which stands in the splits. See :meth:`group_table`.
    columns
        Of a table the input columns and what each holds: ``number`` or ``category``.
    preparation
        How a table's columns became inputs.
    findings
        What was odd about the table; :meth:`check` tells it with the rest.
    fields
        Where each tensor stands in an input that was given as a dict; empty for plain inputs.
    whole
        The federation that these clients were taken from, where the others never train.
    """

    names: tuple[str, ...]
    train: Split
    validation: Split
    test: Split
    outputs: int
    kind: Kind = "classes"
    classes: tuple[str, ...] = ()
    recipe: Mapping[str, Any] | None = None
    about: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    columns: tuple[tuple[str, str], ...] = ()
    preparation: Preparation | None = None
    findings: tuple[Finding, ...] = ()
    fields: Fields = ()
    whole: Examples | None = None

    def __post_init__(self) -> None:
        if not self.names:
            raise InputError("a federation needs at least one client")
        if len(set(self.names)) < len(self.names):
            twice = pd.Series(self.names)
            raise InputError(f"two clients are called '{twice[twice.duplicated()].iloc[0]}'")
        if any(len(split.offsets) != len(self) + 1 for split in self._splits().values()):
            raise InputError(f"not every split is over the same {len(self)} clients")
        empty = np.flatnonzero(self.train.sizes == 0)
        if len(empty):
            more = f" (nor have {len(empty) - 1} others)" if len(empty) > 1 else ""
            raise InputError(
                f"client '{self.names[empty[0]]}' has no training example{more}: "
                "give it one or leave the client out"
            )
        for part, split in self._splits().items():
            self._check(part, split)

    def _check(self, part: str, split: Split) -> None:
        if len(split) == 0:
            return
        if not torch.isfinite(torch.stack(torch.aminmax(split.x))).all():
            wrong = ~torch.isfinite(split.x.reshape(len(split), -1)).all(dim=1)
            owner = int(split.owner[wrong][0])
            raise InputError(
                f"client '{self.names[owner]}' has an input that is not finite in {part}: "
                "fill in or drop missing values first"
            )
        if self.kind in build.WHOLE:
            lowest, highest = (int(end) for end in torch.aminmax(split.y))
            if lowest < 0 or highest >= self.outputs:
                raise InputError(
                    f"labels {lowest} to {highest} in {part}, not 0 to {self.outputs - 1}"
                )
        elif not torch.isfinite(split.y).all():
            raise InputError(
                f"a target in {part} is not finite: fill in or drop missing values first"
            )

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        parts = " + ".join(f"{len(split)} {part}" for part, split in self._splits().items())
        what = build.told(self.kind, self.outputs)
        clients = f"{len(self)} client" + "s" * (len(self) != 1)
        inputs = shapes(self.fields, self.shape)
        return f"{type(self).__name__}({clients}, {parts} examples, {what}, inputs {inputs})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train.x.shape[1:])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of names, offsets, inputs and targets: equal data, equal fingerprint."""
        digest = hashlib.sha256()
        about: list[Any] = [self.kind, self.outputs, self.shape, self.names, self.classes]
        about += [self.fields] if self.fields else []
        digest.update(json.dumps(about).encode())
        for split in self._splits().values():
            for values in (split.offsets, split.x.numpy(), split.y.numpy()):
                digest.update(f"{values.dtype}{values.shape}".encode())
                digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
            for kind, codes in sorted(split.groups.items()):
                digest.update(json.dumps([kind, self.groups[kind]]).encode())
                digest.update(np.ascontiguousarray(codes).data)
        return digest.hexdigest()

    def sizes(self) -> pd.DataFrame:
        """Return one row a client: client, n_train, n_validation, n_test."""
        counts = {f"n_{part}": split.sizes for part, split in self._splits().items()}
        return pd.DataFrame({"client": list(self.names), **counts})

    def label_counts(self) -> pd.DataFrame:
        """Return how many examples each client (row) has of each class (column), all splits."""
        if self.kind != "classes":
            raise InputError(f"label_counts is for classes; this federation has {self.kind}")
        counts = np.zeros(len(self) * self.outputs, dtype=np.int64)
        for split in self._splits().values():
            cell = split.owner * self.outputs + split.y
            counts += np.bincount(cell.numpy(), minlength=len(counts))
        return pd.DataFrame(
            counts.reshape(len(self), self.outputs),
            index=pd.Index(list(self.names), name="client"),
            columns=list(self.classes) or range(self.outputs),
        )

    def group_table(self, split: str) -> pd.DataFrame:
        """Return one row an example of a split, in its order: its client and its groups, by name.

        Examples
        --------
        >>> from fedparity.data import Federation
        >>> made = Federation.from_arrays(
        ...     [[0.0], [1.0]], y=[0, 1], client=["a", "a"], groups={"sex": ["f", "m"]}
        ... )
        >>> made.group_table("train")
          client sex
        0      a   f
        1      a   m
        """
        if split not in self._splits():
            raise unknown("split", split, self._splits())
        rows = self._splits()[split]
        columns: dict[str, Any] = {"client": (rows.owner.numpy(), list(self.names))}
        columns |= {kind: (rows.groups[kind], list(names)) for kind, names in self.groups.items()}
        return pd.DataFrame(
            {name: pd.Categorical.from_codes(*column) for name, column in columns.items()}
        )

    def group_counts(self, kind: str) -> pd.DataFrame:
        """Return how many training examples each client (row) has of each group (column).

        Examples
        --------
        >>> from fedparity.data import Federation
        >>> made = Federation.from_arrays(
        ...     [[0.0], [1.0]], y=[0, 1], client=["a", "a"], groups={"sex": ["f", "m"]}
        ... )
        >>> made.group_counts("sex").loc["a", "f"].item()
        1
        """
        if kind not in self.groups:
            raise unknown("kind of groups", kind, self.groups)
        names = self.groups[kind]
        cells = self.train.owner.cpu().numpy() * len(names) + self.train.groups[kind]
        counts = np.bincount(cells, minlength=len(self) * len(names)).reshape(-1, len(names))
        clients = pd.Index(list(self.names), name="client")
        return pd.DataFrame(counts, index=clients, columns=list(names))

    def check(self) -> tuple[Finding, ...]:
        """Return what is odd about the data: of the table, of clients, classes and inputs.

        Examples
        --------
        >>> from fedparity.data import Federation
        >>> made = Federation.from_arrays([[0.0], [1.0]], y=[0, 1], client=["a", "b"])
        >>> print(made.check()[0])
        clients a, b have one example each: it trains and is never judged: collect more
        """
        return (*self.findings, *doctor.federation(self))

    @checked
    def describe(self, console: Console | None = None, limit: int = 20) -> None:
        """Print sizes and labels of the first ``limit`` clients, and a line on all of them."""
        if not isinstance(console, Console | None):
            raise InputError(f"console is a {type(console).__name__}: give one of rich")
        show.table(self, console or Console(), limit)

    @checked
    def plot(self, limit: int = 200) -> Figure:
        """Draw sizes and labels of the first ``limit`` clients as a plotly figure."""
        return show.figure(self, limit)

    def to(self, dtype: torch.dtype, whole: bool = False) -> Self:
        """Return the same federation in another floating point type.

        ``whole`` leaves integer inputs as they are.
        """
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise InputError(f"a federation cannot be held in {dtype}: take a floating point type")
        changed = self._splits().values()
        if all(split.held_in(dtype, whole) for split in changed):
            return self
        train, validation, test = (split.to(dtype, whole) for split in changed)
        return replace(self, train=train, validation=validation, test=test)

    def on(self, device: torch.device) -> Self:
        """Return the same federation with its examples on a device; they are not checked again."""
        found = copy.copy(self)
        for name, split in self._splits().items():
            object.__setattr__(found, name, split.on(device))
        return found

    def only(self, *names: str) -> Self:
        """Return the federation of these clients alone, in the order given."""
        if not names:
            raise InputError("only: name at least one client")
        for name in set(names).difference(self.names):
            raise unknown("client", name, self.names)
        chosen = [self.names.index(name) for name in names]
        train, validation, test = (split.only(chosen) for split in self._splits().values())
        about = {name: tuple(column[k] for k in chosen) for name, column in self.about.items()}
        return replace(
            self,
            names=names,
            train=train,
            validation=validation,
            test=test,
            recipe=None,
            about=about,
            whole=None,
        )

    def with_label_noise(
        self, noise: Noise | str, seed: int = 0, clients: Sequence[str] | None = None
    ) -> Self:
        """Return a federation whose train and validation labels are partly wrong.

        Test labels stay as they are. ``clients`` names those concerned, by default all.
        """
        if self.kind != "classes" or self.outputs < 2:
            raise InputError("label noise needs at least two classes")
        noise = as_noise(noise)
        if clients is not None and not isinstance(clients, list | tuple):
            raise InputError("clients of label noise: give a list of names")
        for name in set(clients or ()).difference(self.names):
            raise unknown("client", name, self.names)
        chosen = np.isin(np.asarray(self.names), list(self.names if clients is None else clients))

        def noisy(split: Split, part: str) -> Split:
            flipped = noise.flip(split.y.numpy(), self.outputs, generator(seed, f"noise {part}"))
            y = np.where(chosen[split.owner.numpy()], flipped, split.y.numpy())
            return replace(split, y=torch.from_numpy(y))

        return replace(
            self,
            train=noisy(self.train, "train"),
            validation=noisy(self.validation, "validation"),
            recipe=self._noisy_recipe(noise, seed, clients),
        )

    def _noisy_recipe(
        self, noise: Noise, seed: int, clients: Sequence[str] | None
    ) -> Mapping[str, Any] | None:
        if self.recipe is None:
            return None
        chosen = None if clients is None else list(clients)
        step = {"noise": noise_text(noise), "seed": seed, "clients": chosen}
        return {**self.recipe, "noise": [*self.recipe.get("noise", ()), step]}

    def _splits(self) -> dict[str, Split]:
        return {"train": self.train, "validation": self.validation, "test": self.test}
