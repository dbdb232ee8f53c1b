"""From the columns of a table to the inputs of a model: fill in, encode, scale.

A fitted preparation is names and numbers, so it is written as a page of JSON and applied again to
any table with the same columns. The work is done by scikit-learn's ``ColumnTransformer``.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from fedparity.arguments import named
from fedparity.data.own import Own, OwnPage
from fedparity.errors import InputError

Floats = npt.NDArray[np.float32]
AT_ONCE = 1 << 15
"""Rows that are prepared at once, so that no second table of numbers is ever held."""
LARGEST = 1 << 26
"""Bytes of a file of numbers."""
STRICT = ConfigDict(extra="forbid")
Finite = Annotated[float, Field(allow_inf_nan=False)]


@checked(frozen=True, config=STRICT)
class Number:
    """A column of numbers: what is missing becomes ``fill``; then ``(x - mean) / scale``."""

    name: str
    fill: Finite = 0.0
    mean: Finite = 0.0
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    kind: Literal["number"] = "number"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the inputs made of it."""
        return (self.name,)


@checked(frozen=True, config=STRICT)
class Category:
    """A column of words: what is missing becomes ``fill``; then 0 and 1 for each level.

    With ``first=False`` the first level has no input of its own: two levels are one input. A word
    that is no level is 0 everywhere.
    """

    name: str
    levels: Annotated[tuple[str, ...], Field(min_length=1)]
    fill: str
    first: bool = True
    kind: Literal["category"] = "category"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the inputs made of it."""
        return tuple(f"{self.name}={level}" for level in self.levels[0 if self.first else 1 :])


Rule = Annotated[Number | Category, Field(discriminator="kind")]


@checked(frozen=True, config=STRICT)
class _Page:
    """What the file of a preparation says."""

    how: Literal["federated", "client", "none"]
    columns: Annotated[tuple[Rule, ...], Field(min_length=1)]
    clients: dict[str, tuple[Rule, ...]]
    client: str | None
    target: str | None
    classes: tuple[str, ...]
    format: Literal[1] = 1


Page = Annotated[_Page | OwnPage, Field(discriminator="how")]


@named
@dataclass(frozen=True, eq=False)
class Preparation:
    """How the columns of a table become the inputs of a model.

    Parameters
    ----------
    how
        ``federated`` (the same numbers for all clients, from sums that they send), ``client``
        (each client's own), ``none`` (numbers as they are), or ``own``.
    columns
        What is done with each column, in the order of the inputs.
    clients
        Where they differ, the same for each client; a client that is not named gets ``columns``.
    client, target
        The columns that name the client and what is to be predicted.
    classes
        The names of the classes.
    own
        A transformer of the user's instead, which takes the columns as a DataFrame.

    Examples
    --------
    >>> age = Number("age", fill=50.0, mean=50.0, scale=10.0)
    >>> smokes = Category("smokes", levels=("no", "yes"), fill="no", first=False)
    >>> table = pd.DataFrame({"smokes": ["yes", None], "age": [None, 70]})
    >>> Preparation("federated", (age, smokes)).apply(table).tolist()
    [[0.0, 1.0], [2.0, 0.0]]
    """

    how: str
    columns: tuple[Number | Category, ...]
    clients: Mapping[str, tuple[Number | Category, ...]] = dataclasses.field(default_factory=dict)
    client: str | None = None
    target: str | None = None
    classes: tuple[str, ...] = ()
    own: Own | None = None

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The names of the inputs."""
        if self.own is not None:
            return self.own.outputs
        return tuple(name for rule in self.columns for name in rule.outputs)

    def apply(self, df: pd.DataFrame, clients: Sequence[str] | None = None) -> Floats:
        """Return the inputs ``[N, F]`` of a table's rows.

        Columns are found by name, whatever their order; others are ignored. ``clients`` names the
        client of each row, by default the table's own column if it has one.
        """
        self.require(df)
        if clients is None and self.clients and self.client in df.columns:
            clients = df[self.client].astype(str).to_numpy().tolist()
        owner = None if clients is None else np.asarray(clients, dtype=object)
        out: Floats = np.empty((len(df), len(self.outputs)), dtype=np.float32)
        self.fill(out, df, np.arange(len(df)), owner)
        return out

    def fill(
        self,
        out: npt.NDArray[Any],
        df: pd.DataFrame,
        rows: npt.NDArray[np.int64],
        clients: npt.NDArray[Any] | None,
    ) -> None:
        """Write the inputs of the given rows into ``out``; ``clients`` names the client of each."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a word that is no level
            for name, some in self._blocks(clients, len(rows)):
                out[some] = self._block(df.iloc[rows[some]], name)

    def _blocks(
        self, clients: npt.NDArray[Any] | None, rows: int
    ) -> Iterator[tuple[str | None, npt.NDArray[np.int64] | slice]]:
        if clients is None or not self.clients:
            for start in range(0, rows, AT_ONCE):
                yield None, slice(start, start + AT_ONCE)
            return
        codes, names = pd.factorize(clients)
        order = np.argsort(codes, kind="stable")
        for name, places in zip(
            names, np.split(order, np.cumsum(np.bincount(codes))[:-1]), strict=True
        ):
            for start in range(0, len(places), AT_ONCE):
                yield str(name), places[start : start + AT_ONCE]

    def _block(self, df: pd.DataFrame, client: str | None) -> npt.NDArray[Any]:
        if self.own is not None:
            return self.own.transform(df)
        key = client if client in self.clients else None
        rules = self.columns if key is None else self.clients[key]
        table = {
            rule.name: numbers(df[rule.name])
            if isinstance(rule, Number)
            else words(df[rule.name]).to_numpy(dtype=object, na_value=np.nan)
            for rule in rules
        }
        made: npt.NDArray[Any] = self._transformers[key].transform(pd.DataFrame(table))
        return made

    @cached_property
    def _transformers(self) -> dict[str | None, Any]:
        every: dict[str | None, Any] = {None: transformer(self.columns)}
        return every | {name: transformer(rules) for name, rules in self.clients.items()}

    def require(self, df: pd.DataFrame) -> None:
        """Refuse what is no table, or lacks a column."""
        if not isinstance(df, pd.DataFrame):
            raise InputError(f"df is a {type(df).__name__}: give a table, as pandas.read_csv does")
        wanted = (
            list(self.own.reads) if self.own is not None else [rule.name for rule in self.columns]
        )
        absent = [f"'{name}'" for name in wanted if name not in df.columns]
        if absent:
            raise InputError(
                f"the table has no column {', '.join(absent)}: the model was trained with "
                f"{', '.join(wanted)}"
            )

    def text(self) -> str:
        """Return the preparation as JSON."""
        if self.own is not None:
            told = {f.name: getattr(self.own, f.name) for f in dataclasses.fields(self.own)}
            told = {name: value for name, value in told.items() if name != "fitted"}
            own = OwnPage("own", **told, **self._roles)
            return json.dumps(dataclasses.asdict(own), ensure_ascii=False)
        page = _Page(
            self.how,  # type: ignore[arg-type]
            self.columns,
            dict(self.clients),
            **self._roles,
        )
        return json.dumps(dataclasses.asdict(page), ensure_ascii=False)

    @property
    def _roles(self) -> dict[str, Any]:
        return {"client": self.client, "target": self.target, "classes": self.classes}

    def save(self, path: str | Path) -> None:
        """Write the preparation as JSON: names and numbers, no code."""
        Path(path).write_text(self.text(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Preparation:
        """Read the preparation of a file, or of the directory of a run."""
        if not isinstance(path, str | Path):
            raise InputError(f"path is a {type(path).__name__}: name a file, or a run's directory")
        file = Path(path)
        file = file / FILE if file.is_dir() else file
        try:
            with file.open("rb") as handle:
                content = handle.read(LARGEST + 1)
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}") from error
        return cls.read(content, str(file))

    @classmethod
    def read(cls, content: bytes, where: str) -> Preparation:
        """Return the preparation that a file holds, or say what is wrong with it."""
        if len(content) > LARGEST:
            raise InputError(f"{where} is too large for a preparation")
        try:
            page = TypeAdapter(Page).validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{where} is no preparation: {at} {first['msg']}") from error
        if isinstance(page, OwnPage):
            own = Own(page.code, page.reads, page.outputs, page.means, page.deviations)
            return cls("own", (), {}, page.client, page.target, page.classes, own)
        names = [rule.name for rule in page.columns]
        if len(set(names)) < len(names):
            raise InputError(f"{where} is no preparation: two columns have the same name")
        for rule in (r for rules in (page.columns, *page.clients.values()) for r in rules):
            if isinstance(rule, Category) and len(set(rule.levels)) < len(rule.levels):
                raise InputError(f"{where} is no preparation: '{rule.name}' has a level twice")
        for name, rules in page.clients.items():
            if [rule.outputs for rule in rules] != [rule.outputs for rule in page.columns]:
                raise InputError(f"{where}: client '{name}' has other columns than all")
        return cls(page.how, page.columns, page.clients, page.client, page.target, page.classes)


FILE = "preparation.json"
"""In the directory of a run."""


def transformer(columns: Sequence[Number | Category]) -> Any:
    """Return scikit-learn's fitted ``ColumnTransformer`` that does what is said of the columns."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    steps: list[tuple[str, Any, list[str]]] = []
    example: dict[str, npt.NDArray[Any]] = {}
    for rule in columns:
        if isinstance(rule, Number):
            second = StandardScaler()
            example[rule.name] = np.array([rule.mean, rule.mean])
        else:
            second = OneHotEncoder(
                categories=[np.array(rule.levels, dtype=object)],
                drop=None if rule.first else "first",
                handle_unknown="ignore",
                sparse_output=False,
            )
            example[rule.name] = np.array([rule.levels[0]] * 2, dtype=object)
        fill = SimpleImputer(strategy="constant", fill_value=rule.fill)
        steps.append((str(len(steps)), make_pipeline(fill, second), [rule.name]))
    made = ColumnTransformer(steps, sparse_threshold=0.0).fit(pd.DataFrame(example))
    for place, rule in enumerate(columns):
        if isinstance(rule, Number):  # the numbers themselves, not those of the two example rows
            scaler = made.named_transformers_[str(place)][-1]
            scaler.mean_, scaler.scale_ = np.array([rule.mean]), np.array([rule.scale])
            scaler.var_ = scaler.scale_**2
    return made


def numbers(column: pd.Series[Any]) -> npt.NDArray[np.float64]:
    """Return a column as numbers, NaN where one is missing."""
    values = column if column.dtype.kind in "iufb" else pd.to_numeric(column, errors="coerce")
    made = values.to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = np.flatnonzero(np.isinf(made) | (np.isnan(made) & column.notna().to_numpy()))
    if len(wrong):
        value = str(column.iloc[wrong[0]])[:40]
        raise InputError(f"column '{column.name}' has '{value}' where a number is expected")
    return made


def words(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column as words; a whole number is written without a point."""
    if column.dtype.kind == "f":
        known = column.dropna()
        if bool((known == known.round()).all()):
            column = column.astype("Int64")
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.rename_categories([str(level) for level in column.cat.categories])
    return column.astype(str).where(column.notna())
