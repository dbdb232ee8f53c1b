"""From the arrays a user has to the splits of a federation: clients, targets, parts.

Everything is vectorised over examples; no step loops over clients.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from fedparity.data.split import Groups, Ints, Split
from fedparity.errors import InputError, unknown
from fedparity.learning.seeds import draws, seeds_of

Kind = Literal["classes", "values", "labels", "tokens", "survival"]
KINDS: tuple[Kind, ...] = get_args(Kind)
WHOLE: tuple[Kind, ...] = ("classes", "tokens")
"""Kinds whose targets are integers."""
PARTS = ("train", "validation", "test")
Parts = npt.NDArray[np.int8]
MOST_CLASSES = 10_000
MOST_GROUPS = 1000
DIGITS = re.compile("([0-9]+)")


def array(values: Any) -> npt.NDArray[Any]:
    """Return tensors, lists and series as a numpy array, without a copy where possible."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    try:
        return np.asarray(values)
    except ValueError:
        raise InputError("rows of different lengths: one value in every place is needed") from None


def inputs(x: Any) -> npt.NDArray[Any]:
    """Return the inputs as a numeric array ``[N, ...]``."""
    values = array(x)
    if values.dtype.kind not in "biuf":
        raise InputError(f"x holds {values.dtype} where numbers are expected: encode it first")
    if values.ndim < 2 or values.size == 0:
        raise InputError(f"x has shape {values.shape} where [examples, ...] is expected")
    return values


def targets(
    y: Any, kind: Kind | None, outputs: int | None
) -> tuple[npt.NDArray[Any], Kind, int, tuple[str, ...]]:
    """Return the targets as numbers, what they are, how many outputs they need and their names.

    Text and booleans become the places of their sorted values; whole numbers are classes unless
    ``kind="values"``; other numbers are values. Several fractions an example are values too; what
    else is several numbers an example is told by ``kind``.
    """
    values = array(y)
    names: tuple[str, ...] = ()
    if kind is not None and kind not in KINDS:
        raise unknown("kind of target", str(kind), KINDS)
    several = values.ndim == 2 and values.dtype.kind in "biuf" and len(values) > 0
    if kind in ("labels", "tokens", "survival") or (several and kind == "values"):
        return (*rows(values, kind, outputs), ())
    if several and kind is None and values.dtype.kind == "f" and (values != values.round()).any():
        return (*rows(values, "values", outputs), ())
    if values.ndim != 1:
        more = ": say kind='values', 'labels', 'tokens' or 'survival'" if several else ""
        raise InputError(
            f"y has shape {values.shape} where one target an example is expected{more}"
        )
    if values.dtype.kind not in "iuf":
        values, names = _named(values)
    elif not np.isfinite(values).all():
        place = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InputError(f"the target of example {place} is {values[place]}: drop it or fill it in")
    whole = values.dtype.kind != "f" or bool((values == np.round(values)).all())
    if kind is None:
        kind = "classes" if whole else "values"
    if kind == "values":
        if names or outputs not in (None, 1):
            raise InputError("targets of kind 'values' are numbers with one output")
        return values.astype(np.float64, copy=False), kind, 1, ()
    if not whole:
        raise InputError("y has fractions where whole class numbers are expected: kind='values'?")
    return (*_classes(values.astype(np.int64), outputs, len(names)), names)


def rows(
    values: npt.NDArray[Any], kind: Kind, outputs: int | None
) -> tuple[npt.NDArray[Any], Kind, int]:
    """Return several numbers an example as targets of a kind, and how many outputs they need."""
    if values.ndim != 2 or values.dtype.kind not in "biuf" or not values.size:
        raise InputError(f"targets of kind '{kind}' are numbers in rows, not {values.shape}")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError("a target is not finite: drop it or fill it in")
    if kind == "tokens":
        if values.dtype.kind not in "iu" or values.min() < 0:
            raise InputError("targets of kind 'tokens' are whole numbers from 0")
        outputs = int(values.max()) + 1 if outputs is None else outputs
        return values.astype(np.int64), kind, outputs
    found = values.astype(np.float64)
    if kind == "survival":
        if found.shape[1] != 2 or found.min() < 0 or not np.isin(found[:, 1], (0, 1)).all():
            raise InputError(
                "targets of kind 'survival' are (time, event): a time from 0 and an event of 0 or 1"
            )
        return found, kind, int(found[:, 0].max()) + 1 if outputs is None else outputs
    if kind == "labels" and not np.isin(found, (0, 1)).all():
        raise InputError("targets of kind 'labels' are 0 or 1")
    if outputs not in (None, found.shape[1]):
        raise InputError(f"{outputs} outputs for {found.shape[1]} targets an example")
    return found, kind, found.shape[1]


def told(kind: Kind, outputs: int) -> str:
    """Return a few words on what is to be learned.

    >>> told("classes", 3), told("values", 1)
    ('3 classes', 'regression')
    """
    if kind == "values":
        return "regression" if outputs == 1 else f"regression of {outputs} values"
    words = {"survival": "intervals of survival"}
    return f"{outputs} {words.get(kind, kind)}"


def _named(values: npt.NDArray[Any]) -> tuple[Ints, tuple[str, ...]]:
    missing = np.flatnonzero(pd.isna(values))
    if len(missing):
        raise InputError(f"example {missing[0]} has no target: drop it or fill it in")
    codes, found = pd.factorize(values)
    names = [str(value) for value in found]
    order = sorted(range(len(names)), key=names.__getitem__)
    return np.argsort(np.asarray(order, dtype=np.int64))[codes], tuple(names[i] for i in order)


def _classes(values: Ints, outputs: int | None, named: int) -> tuple[Ints, Kind, int]:
    lowest, highest = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if lowest < 0:
        raise InputError(f"y has class {lowest}: classes are numbered from 0")
    if outputs is None and highest >= MOST_CLASSES:
        raise InputError(
            f"y has class {highest}: number the classes from 0, give outputs=, "
            "or kind='values' for regression"
        )
    outputs = max(highest + 1, named) if outputs is None else outputs
    if highest >= outputs:
        raise InputError(f"y has class {highest}: with {outputs} outputs the last is {outputs - 1}")
    return values, "classes", outputs


def owners(client: Any) -> tuple[Ints, tuple[str, ...]]:
    """Return the client number of each example and the clients' names, in natural order."""
    values = array(client)
    if values.ndim != 1:
        raise InputError(f"client has shape {values.shape} where one name an example is expected")
    missing = np.flatnonzero(pd.isna(values))
    if len(missing):
        raise InputError(f"example {missing[0]} has no client: name one or leave it out")
    if values.dtype.kind == "f" and (values == np.round(values)).all():
        values = values.astype(np.int64)
    if not len(values):
        raise InputError("there is no row: a federation needs at least one example a client")
    codes, found = pd.factorize(values)
    names = np.asarray([str(value) for value in found])
    if values.dtype.kind in "biuf":
        order = np.argsort(found, kind="stable")
    else:
        order = np.asarray(sorted(range(len(names)), key=lambda k: natural(str(names[k]))))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], tuple(names[order].tolist())


def natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Return a key that sorts the numbers in names as numbers.

    >>> sorted(["client-10", "client-2", "a"], key=natural)
    ['a', 'client-2', 'client-10']
    """
    words = [word for word in DIGITS.split(str(name)) if word]
    numbers = [word.isascii() and word.isdigit() for word in words]
    return tuple(
        (not number, int(word) if number else 0, word)
        for word, number in zip(words, numbers, strict=True)
    )


def groups(given: Mapping[str, Any], examples: int) -> tuple[Groups, dict[str, tuple[str, ...]]]:
    """Return the group of each example as a place among the names of its kind's groups.

    Names are in natural order; where the value is missing, the group is called ``missing``.
    """
    codes, names = {}, {}
    if not isinstance(given, Mapping):
        raise InputError("groups are told by kind, such as {'sex': [...]}, one value an example")
    for kind, values in given.items():
        column: Any = array(values)
        if column.shape != (examples,):
            raise InputError(f"groups '{kind}' has shape {column.shape} for {examples} examples")
        gone = np.asarray(pd.isna(column))
        if column.dtype.kind == "f" and (column[~gone] == np.round(column[~gone])).all():
            column = pd.array(column, dtype="Int64")  # whole numbers, read beside missing ones
        found, levels = pd.factorize(column)
        texts = [str(level) for level in levels]
        known = sorted(set(texts), key=natural) + (["missing"] if gone.any() else [])
        if len(known) > MOST_GROUPS:
            raise InputError(
                f"groups '{kind}' has {len(known)} different values: make bands of them, at most "
                f"{MOST_GROUPS}"
            )
        place = np.asarray([known.index(text) for text in texts] + [len(known) - 1])
        codes[kind], names[kind] = place[found].astype(np.int16), tuple(known)
    return codes, names


def marked(part: Any) -> Parts:
    """Return the part of each example as 0 (train), 1 (validation) or 2 (test)."""
    codes, found = pd.factorize(array(part))
    if (codes < 0).any():
        raise InputError(f"example {int(np.argmin(codes))} has no part: {', '.join(PARTS)}")
    for name in found:
        if name not in PARTS:
            raise unknown("part", str(name), PARTS)
    places = np.asarray([PARTS.index(name) for name in found], dtype=np.int8)
    return places[codes] if len(codes) else np.zeros(0, dtype=np.int8)


def drawn(owner: Ints, names: Sequence[str], fractions: Sequence[float], seed: int) -> Parts:
    """Draw the part of each example, client by client.

    A client of n examples has ``floor(n f_test)`` in test, ``floor(n f_validation)`` in
    validation and the rest, at least one, in train. One random key an example decides which: its
    rank among the keys of its client. The keys follow from the seed, the client's name and the
    place of the example among the client's own, so that a site alone deals as the simulator does.
    """
    _, validation, test = checked(fractions)
    n = np.bincount(owner, minlength=len(names))
    n_test = np.floor(n * test + 1e-9).astype(np.int64)
    n_validation = np.floor(n * validation + 1e-9).astype(np.int64)
    by_client = np.argsort(owner, kind="stable")
    client = owner[by_client]
    place = np.arange(len(owner)) - (np.cumsum(n) - n)[client]
    order = by_client[np.lexsort((draws(seeds_of(seed, "split", names)[client], place), client))]
    rank = place
    past = (rank >= n_test[client]).astype(np.int8) + (rank >= (n_test + n_validation)[client])
    part = np.empty(len(owner), dtype=np.int8)
    part[order] = 2 - past
    return part


def checked(fractions: Sequence[float]) -> tuple[float, float, float]:
    """Return the train, validation and test fractions, or say what is wrong with them."""
    try:
        values = tuple(float(fraction) for fraction in fractions)
    except (TypeError, ValueError):
        values = ()
    if len(values) != 3 or not math.isclose(sum(values), 1, abs_tol=1e-6):
        raise InputError(f"fractions {fractions} are not three numbers that sum to 1")
    if values[0] <= 0 or min(values) < 0:
        raise InputError(f"fractions {values}: train must be above 0, the others not below")
    return values


def splits(
    take: Callable[[Ints], Tensor],
    y: npt.NDArray[Any],
    owner: Ints,
    part: Parts,
    clients: int,
    groups: Groups | None = None,
) -> tuple[Split, Split, Split]:
    """Gather the examples of each part, client after client, in their original order.

    ``take`` returns the inputs of the given rows; examples whose owner is -1 are left out.
    """
    order = np.argsort(owner, kind="stable")
    order = order[owner[order] >= 0]
    train, validation, test = (
        _split(take, y, owner, order[part[order] == code], clients, groups or {})
        for code in range(3)
    )
    return train, validation, test


def _split(
    take: Callable[[Ints], Tensor],
    y: npt.NDArray[Any],
    owner: Ints,
    rows: Ints,
    clients: int,
    groups: Groups,
) -> Split:
    sizes = np.bincount(owner[rows], minlength=clients)
    x = take(rows)
    target = torch.from_numpy(y[rows])
    values = x.dtype if x.dtype.is_floating_point else torch.float32
    target = target.to(values if y.dtype.kind == "f" else torch.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Split(x, target, offsets, {kind: codes[rows] for kind, codes in groups.items()})


def numbers(values: npt.NDArray[Any]) -> Tensor:
    """Return fresh values as a tensor: float64 is kept, and so are integers, in 64 bits.

    Bytes and booleans are pixels and marks rather than words, and become float32 like all others.
    """
    kind: type[np.generic] = np.float32
    if values.dtype == np.float64:
        kind = np.float64
    elif values.dtype.kind in "iu" and values.dtype.itemsize > 1:
        kind = np.int64
    return torch.from_numpy(values.astype(kind))
