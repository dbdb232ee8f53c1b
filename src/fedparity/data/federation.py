"""A federation: the examples of many clients, in train, validation and test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedparity.arguments import checked, named
from fedparity.data import build, frame, own, torchsets
from fedparity.data.build import Kind
from fedparity.data.examples import Examples
from fedparity.data.inputs import packed
from fedparity.data.sequences import windows
from fedparity.data.source import USUAL, TableRecipe
from fedparity.data.table import CLIENT, Table, read_tables
from fedparity.errors import InputError
from fedparity.imports import Allowed

if TYPE_CHECKING:
    pass

Fractions = tuple[float, float, float]


@named
@dataclass(frozen=True, eq=False, repr=False)
class Federation(Examples):
    """Clients with their train, validation and test examples.

    Make one with :meth:`from_arrays`, :meth:`from_frame`, :meth:`from_datasets`, or by splitting
    a named dataset.

    Its fields are those of :class:`~fedparity.data.examples.Examples`.

    Examples
    --------
    >>> x = [[0.0], [1.0], [2.0], [3.0]]
    >>> Federation.from_arrays(x, y=[0, 1, 0, 1], client=["a", "a", "b", "b"])
    Federation(2 clients, 4 train + 0 validation + 0 test examples, 2 classes, inputs (1,))
    """

    @classmethod
    @checked
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
            Inputs ``[N, ...]``, or a dict of such by name, as ``{"ids": ..., "mask": ...}``, which
            the model is given as a dict of tensors. float64 and integers are kept, bytes and other
            numbers become float32. A model that takes no integers is given them as floating point
            numbers.
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
        values, fields = packed(x) if isinstance(x, Mapping) else (build.inputs(x), ())
        target, kind, outputs, classes = build.targets(y, kind, outputs)
        owner, names = build.owners(client)
        lengths = {"x": len(values), "y": len(target), "client": len(owner)}
        if part is not None:
            part = build.array(part)
            lengths["part"] = part.size
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            raise InputError(f"one row an example is expected: {said}")
        parts = build.drawn(owner, names, fractions, seed) if part is None else build.marked(part)
        codes, called = build.groups(groups or {}, len(values))
        three = build.splits(
            lambda rows: build.numbers(values[rows]), target, owner, parts, len(names), codes
        )
        made = cls(names, *three, outputs=outputs, kind=kind, classes=classes, groups=called)
        return replace(made, fields=fields) if fields else made

    @classmethod
    @checked
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
            scikit-learn or of your own, or its import path, which is fitted on all training
            examples in one place.

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
        if own.is_code(prepare):
            prepare = own.make(prepare, Allowed.by(named=prepare))
        elif frame.way_of(prepare) == "own" and not isinstance(prepare, own.Coded):
            prepare = own.coded(prepare)
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
        recipe, way = None, prepare.code if isinstance(prepare, own.Coded) else prepare
        if isinstance(read, Table) and isinstance(way, str):
            recipe = TableRecipe(
                **{**vars(roles), "client": client},
                table=read.pattern,
                prepare=way,
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
    @checked
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
        if not isinstance(train, list | tuple) or not all(map(_is_dataset, train)):
            raise InputError("from_datasets: give a list of torch datasets, one a client")
        names = _names(names) if names is not None else numbered(len(train))
        x, y, owner, part = torchsets.stacked(names, train, validation, test)
        target, kind, outputs, classes = build.targets(y, kind, outputs)
        if validation is None and test is None:
            part = build.drawn(owner, names, fractions, seed)
        three = build.splits(lambda rows: build.numbers(x[rows]), target, owner, part, len(names))
        return cls(names, *three, outputs=outputs, kind=kind, classes=classes)

    @classmethod
    @checked
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


def _names(given: Sequence[str] | str) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Iterable) or isinstance(names, Mapping):
        raise InputError(f"got {str(given)[:40]!r} for names of columns: give a list of names")
    return tuple(str(name) for name in names)


def _is_dataset(given: object) -> bool:
    return hasattr(given, "__len__") and hasattr(given, "__getitem__")


def numbered(clients: int) -> tuple[str, ...]:
    """Return ``client-0``, ``client-1``, ..., padded so that names sort in their order.

    >>> numbered(11)[:2]
    ('client-00', 'client-01')
    """
    width = len(str(max(clients - 1, 0)))
    return tuple(f"client-{k:0{width}d}" for k in range(clients))
