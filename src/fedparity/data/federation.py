"""A federation: the examples of many clients, in train, validation and test."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console

from fedparity.data import build, doctor, frame, show, torchsets
from fedparity.data.build import Kind
from fedparity.data.doctor import Finding
from fedparity.data.noise import Noise, as_noise, noise_text
from fedparity.data.prepare import Preparation
from fedparity.data.sequences import windows
from fedparity.data.source import USUAL, TableRecipe
from fedparity.data.split import Split
from fedparity.data.table import CLIENT, Table, read_tables
from fedparity.errors import InputError, unknown
from fedparity.learning.seeds import generator

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Fractions = tuple[float, float, float]


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """Clients with their train, validation and test examples.

    Make one with :meth:`from_arrays`, :meth:`from_frame`, :meth:`from_datasets`, or by splitting
    a named dataset.

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

    Examples
    --------
    >>> x = [[0.0], [1.0], [2.0], [3.0]]
    >>> Federation.from_arrays(x, y=[0, 1, 0, 1], client=["a", "a", "b", "b"])
    Federation(2 clients, 4 train + 0 validation + 0 test examples, 2 classes, inputs (1,))
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

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        client: Any,
        part: Any = None,
        *,
        fractions: Sequence[float] = USUAL,
        seed: int = 0,
        outputs: int | None = None,
        kind: Kind | None = None,
        groups: Mapping[str, Any] | None = None,
    ) -> Federation:
        """Make a federation from one row an example.

        Parameters
        ----------
        x
            Inputs ``[N, ...]``. float64 and integers are kept, bytes and other numbers become
            float32. A model that takes no integers is given them as floating point numbers.
        y
            Targets ``[N]``: whole numbers or text are classes, other numbers are values; or
            ``[N, ...]`` of another kind.
        client
            The name or number of each example's client; clients are put in natural order, client-2
            before client-10.
        part
            ``"train"``, ``"validation"`` or ``"test"`` for each example. By default each client's
            examples are split by ``fractions`` and ``seed``.
        fractions
            Train, validation, test. The last two are rounded down, so that a client with one
            example trains.
        outputs
            The number of classes, where not every class occurs.
        kind
            What the targets are, as of :class:`Federation`, where the numbers leave it open.
        groups
            Kinds of groups that are told apart inside clients, such as ``{"sex": [...]}`` with
            one value an example. They are kept beside the examples; the model does not see them.
        """
        values = build.inputs(x)
        target, kind, outputs, classes = build.targets(y, kind, outputs)
        owner, names = build.owners(client)
        lengths = {"x": len(values), "y": len(target), "client": len(owner)}
        if part is not None:
            lengths["part"] = len(part)
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            raise InputError(f"one row an example is expected: {said}")
        parts = build.drawn(owner, names, fractions, seed) if part is None else build.marked(part)
        codes, called = build.groups(groups or {}, len(values))
        three = build.splits(
            lambda rows: build.numbers(values[rows]), target, owner, parts, len(names), codes
        )
        return cls(names, *three, outputs=outputs, kind=kind, classes=classes, groups=called)

    @classmethod
    def from_frame(
        cls,
        df: pd.DataFrame | Table | str | Path | Sequence[str | Path],
        client: str | None,
        target: str,
        part: str | None = None,
        *,
        features: Sequence[str] | None = None,
        without: Sequence[str] = (),
        categories: Sequence[str] = (),
        groups: Sequence[str] = (),
        about: Sequence[str] = (),
        prepare: frame.Prepare = "federated",
        fractions: Sequence[float] = USUAL,
        seed: int = 0,
        outputs: int | None = None,
        kind: Kind | None = None,
    ) -> Federation:
        """Make a federation from a table with a row an example: a DataFrame, or files.

        Parameters
        ----------
        df
            The table; or the path of a CSV or parquet file, a pattern such as ``"sites/*.csv"``, or
            a list of paths. Of files the experiment can be run again from its directory.
        client
            The column that names the client; None where each file is one, called as the file.
        target, part
            The columns of what is predicted, and of ``train``, ``validation`` or ``test``.
        features, without
            The input columns, by default all that are nothing else; and those left out.
        categories
            Columns of numbers that are codes: they are encoded as words are.
        groups
            Columns of groups inside clients, such as ``["sex", "age_band"]``. They are kept beside
            the examples; the model sees them only if ``features`` names them too.
        about
            Columns of one number a client, the same in all its rows; no inputs.
        prepare
            How gaps are filled, words encoded as 0 and 1, and numbers brought to mean 0 and
            deviation 1: ``"federated"``, with the numbers of all clients' training examples
            together, computed from counts, means and squares that each client tells of its own;
            ``"client"``, with each client's own numbers; ``"none"``, for numbers that are ready;
            a fitted :class:`~fedparity.data.Preparation` or its file; or a transformer of
            scikit-learn, which is fitted on all training examples in one place.

        See :meth:`from_arrays` for the rest.

        Examples
        --------
        >>> table = pd.DataFrame(
        ...     {"site": ["a", "b"], "age": [50, 70], "smokes": ["no", "yes"], "ill": [0, 1]}
        ... )
        >>> made = Federation.from_frame(table, client="site", target="ill")
        >>> made.train.x.tolist(), made.preparation.outputs
        ([[-1.0, 0.0], [1.0, 1.0]], ('age', 'smokes=yes'))
        """
        read = df if isinstance(df, pd.DataFrame | Table) else read_tables(df, client)
        roles = frame.Roles(
            client if client is not None else CLIENT,
            target,
            part,
            None if features is None else _names(features),
            _names(without),
            _names(categories),
            _names(groups),
            _names(about),
        )
        if isinstance(read, pd.DataFrame):
            if client is None:
                raise InputError("name the column that tells clients apart: client='hospital'")
            study = frame.Study.of(read, roles, frame.way_of(prepare))
        else:
            study = frame.Study.of(read.frame, roles, frame.way_of(prepare), read.odd)
        found = study.federation(prepare, build.checked(fractions), seed, outputs, kind)
        recipe = None
        if isinstance(read, Table) and isinstance(prepare, str):
            recipe = TableRecipe(
                **{**vars(roles), "client": client},
                table=read.pattern,
                prepare=prepare,
                fractions=build.checked(fractions),
                seed=seed,
                outputs=outputs,
                kind=kind,
                sha256=read.told,
            ).told()
        return cls.of(found, recipe)

    @classmethod
    def of(cls, made: frame.Made, recipe: Mapping[str, Any] | None = None) -> Federation:
        """Return the federation that was made of a table."""
        return cls(
            made.names,
            *made.splits,
            outputs=made.outputs,
            kind=made.kind,
            classes=made.classes,
            recipe=recipe,
            about=made.about,
            groups=made.groups,
            columns=made.columns,
            preparation=made.preparation,
            findings=made.findings,
        )

    @classmethod
    def from_datasets(
        cls,
        train: Sequence[Any],
        *,
        validation: Sequence[Any] | None = None,
        test: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
        fractions: Sequence[float] = USUAL,
        seed: int = 0,
        outputs: int | None = None,
        kind: Kind | None = None,
    ) -> Federation:
        """Make a federation from a list of torch datasets, one a client.

        Each gives ``(x, y)`` pairs. Without ``validation`` and ``test``, each client's examples
        are split by ``fractions`` and ``seed``; with either, the lists are taken as they are.
        """
        names = tuple(names) if names is not None else numbered(len(train))
        x, y, owner, part = torchsets.stacked(names, train, validation, test)
        target, kind, outputs, classes = build.targets(y, kind, outputs)
        if validation is None and test is None:
            part = build.drawn(owner, names, fractions, seed)
        three = build.splits(lambda rows: build.numbers(x[rows]), target, owner, part, len(names))
        return cls(names, *three, outputs=outputs, kind=kind, classes=classes)

    @classmethod
    def from_sequences(
        cls,
        sequences: Mapping[str, Any],
        length: int = 80,
        *,
        vocabulary: str | int | None = None,
        fractions: Sequence[float] = USUAL,
        seed: int = 0,
    ) -> Federation:
        """Make a federation in which the next token of sequences is to be told.

        Parameters
        ----------
        sequences
            The text of each client, whose tokens are its characters, or the numbers of its tokens;
            or a list of several such.
        length
            Tokens in a window; they do not overlap. The target is the window one token later.
        vocabulary
            The characters there are, or the number of different tokens, where not all occur.
        fractions, seed
            As of :meth:`from_arrays`, over the windows of each client.

        Examples
        --------
        >>> Federation.from_sequences({"a": "abcabcabc", "b": "cbacbacba"}, length=2)
        Federation(2 clients, 8 train + 0 validation + 0 test examples, 3 tokens, inputs (2,))
        """
        cut, names = windows(sequences, length, vocabulary), tuple(map(str, sequences))
        part = build.drawn(cut.owner, names, fractions, seed)
        three = build.splits(
            lambda rows: build.numbers(cut.x[rows]), cut.y, cut.owner, part, len(names)
        )
        return cls(names, *three, outputs=cut.outputs, kind="tokens", classes=cut.letters)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        parts = " + ".join(f"{len(split)} {part}" for part, split in self._splits().items())
        what = build.told(self.kind, self.outputs)
        clients = f"{len(self)} client" + "s" * (len(self) != 1)
        return f"Federation({clients}, {parts} examples, {what}, inputs {self.shape})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train.x.shape[1:])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of names, offsets, inputs and targets: equal data, equal fingerprint."""
        digest = hashlib.sha256()
        about = [self.kind, self.outputs, self.shape, self.names, self.classes]
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

    def check(self) -> tuple[Finding, ...]:
        """Return what is odd about the data: of the table, of clients, classes and inputs.

        Examples
        --------
        >>> made = Federation.from_arrays([[0.0], [1.0]], y=[0, 1], client=["a", "b"])
        >>> print(made.check()[0])
        clients a, b have one example each: it trains and is never judged: collect more
        """
        return (*self.findings, *doctor.federation(self))

    def describe(self, console: Console | None = None, limit: int = 20) -> None:
        """Print sizes and labels of the first ``limit`` clients, and a line on all of them."""
        show.table(self, console or Console(), limit)

    def plot(self, limit: int = 200) -> Figure:
        """Draw sizes and labels of the first ``limit`` clients as a plotly figure."""
        return show.figure(self, limit)

    def to(self, dtype: torch.dtype, whole: bool = False) -> Federation:
        """Return the same federation in another floating point type.

        ``whole`` leaves integer inputs as they are.
        """
        if not dtype.is_floating_point:
            raise InputError(f"a federation cannot be held in {dtype}: take a floating point type")
        changed = self._splits().values()
        if all(_is(split, dtype, whole) for split in changed):
            return self
        train, validation, test = (_to(split, dtype, whole) for split in changed)
        return replace(self, train=train, validation=validation, test=test)

    def only(self, *names: str) -> Federation:
        """Return the federation of these clients alone, in the order given."""
        for name in set(names).difference(self.names):
            raise unknown("client", name, self.names)
        chosen = [self.names.index(name) for name in names]
        train, validation, test = (_only(split, chosen) for split in self._splits().values())
        about = {name: tuple(column[k] for k in chosen) for name, column in self.about.items()}
        return replace(
            self,
            names=names,
            train=train,
            validation=validation,
            test=test,
            recipe=None,
            about=about,
        )

    def with_label_noise(
        self, noise: Noise | str, seed: int = 0, clients: Sequence[str] | None = None
    ) -> Federation:
        """Return a federation whose train and validation labels are partly wrong.

        Test labels stay as they are. ``clients`` names those concerned, by default all.
        """
        if self.kind != "classes" or self.outputs < 2:
            raise InputError("label noise needs at least two classes")
        noise = as_noise(noise)
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


def _names(given: Sequence[str] | str) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def numbered(clients: int) -> tuple[str, ...]:
    """Return ``client-0``, ``client-1``, ..., padded so that names sort in their order.

    >>> numbered(11)[:2]
    ('client-00', 'client-01')
    """
    width = len(str(max(clients - 1, 0)))
    return tuple(f"client-{k:0{width}d}" for k in range(clients))


def _only(split: Split, clients: Sequence[int]) -> Split:
    pairs = [split.client(k) for k in clients]
    offsets = np.concatenate([[0], np.cumsum(split.sizes[list(clients)])])
    spans = [slice(*split.offsets[k : k + 2]) for k in clients]
    groups = {
        kind: np.concatenate([codes[span] for span in spans])
        for kind, codes in split.groups.items()
    }
    x, y = torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])
    return Split(x, y, offsets, groups)


def _is(split: Split, dtype: torch.dtype, whole: bool) -> bool:
    """Tell whether a split is held in a floating point type already."""
    x, y = split.x.dtype, split.y.dtype
    integers = whole and not x.is_floating_point
    return (integers or x == dtype) and (not y.is_floating_point or y == dtype)


def _to(split: Split, dtype: torch.dtype, whole: bool) -> Split:
    y = split.y.to(dtype) if split.y.is_floating_point() else split.y
    integers = whole and not split.x.is_floating_point()
    return replace(split, x=split.x if integers else split.x.to(dtype), y=y)
