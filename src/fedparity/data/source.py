"""Own tables in an experiment file: which file, which columns, and that it has not changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from fedparity import spec
from fedparity.data import table
from fedparity.data.build import Kind
from fedparity.data.folder import data_dir
from fedparity.data.frame import Roles
from fedparity.data.prepare import FILE as PREPARATION
from fedparity.errors import InputError

STRICT = ConfigDict(extra="forbid")
USUAL = (0.8, 0.1, 0.1)
Names = tuple[str, ...]


@dataclass(frozen=True, config=STRICT)
class NoiseStep:
    """One use of :meth:`Federation.with_label_noise`."""

    noise: str
    seed: int = 0
    clients: tuple[str, ...] | None = None


@dataclass(frozen=True, config=STRICT)
class TableRecipe:
    """What ``data`` says of own tables; see :meth:`Federation.from_frame`.

    Parameters
    ----------
    table
        A path, a pattern such as ``sites/*.csv``, or a list of them.
    client
        The column that names the client; None: each file is one.
    sha256
        The digest of the file, or of each file by its name; others are refused.
    """

    table: str | Names
    target: str
    client: str | None = None
    part: str | None = None
    features: Names | None = None
    without: Names = ()
    categories: Names = ()
    groups: Names = ()
    about: Names = ()
    prepare: str = "federated"
    kind: Kind | None = None
    outputs: int | None = Field(default=None, ge=1)
    seed: int = 0
    fractions: tuple[float, float, float] = USUAL
    noise: tuple[NoiseStep, ...] = ()
    sha256: str | dict[str, str] | None = None

    @classmethod
    def read(cls, recipe: Mapping[str, Any]) -> TableRecipe:
        """Return the recipe that settings tell, or say in one line what is wrong."""
        settings = {str(name): value for name, value in recipe.items()}
        for name in ("without", "categories", "groups", "about", "features"):
            if isinstance(settings.get(name), str):
                settings[name] = (settings[name],)
        if "target" not in settings:
            raise InputError(
                "the table has no target: name the column to be predicted (--target disease, or "
                "'target: disease' under data)"
            )
        return spec.call("data", cls, settings)

    @property
    def roles(self) -> Roles:
        """What the columns are for."""
        shared = {field.name: getattr(self, field.name) for field in dataclasses.fields(Roles)}
        return Roles(**{**shared, "client": table.CLIENT if self.client is None else self.client})

    def told(self) -> dict[str, Any]:
        """Return the recipe as plain values, without what is as always."""
        found = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default or field.name in ("client", "prepare", "seed", "fractions"):
                found[field.name] = list(value) if isinstance(value, tuple) else value
        return found


def located(data: object, folder: Path, data_folder: str | Path | None = None) -> object:
    """Return the ``data`` of a file with the paths of its tables, if the file may name them.

    A file is data, and may come from a stranger: it may name tables beside or below itself and in
    the data folder. Any other is read only if the file tells its sha256, so that who wrote the file
    has seen the table before.
    """
    data = {"table": data} if table.is_table(data) else data
    if not isinstance(data, Mapping) or not data.get("table"):
        return data
    named = data["table"]
    each = [named] if isinstance(named, str) else named
    if not isinstance(each, list | tuple) or not all(isinstance(path, str) for path in each):
        raise InputError("data: table is a path, a pattern such as 'sites/*.csv', or a list")
    found = [_place(path, folder, data_folder, bool(data.get("sha256"))) for path in each]
    prepare = data.get("prepare")
    more = {}
    if isinstance(prepare, str) and prepare.lower().endswith(".json"):
        more["prepare"] = _preparation(prepare, folder, data_folder)
    return {**data, "table": found[0] if isinstance(named, str) else found, **more}


def _preparation(text: str, folder: Path, data_folder: str | Path | None) -> str:
    """Return where the preparation is: at its path, or kept by the run whose directory this is."""
    try:
        return _place(text, folder, data_folder, False, "preparation", "--prepare")
    except InputError:
        kept = folder / PREPARATION
        if (folder / "experiment.yaml").is_file() and kept.is_file() and not kept.is_symlink():
            return str(kept)
        raise


def _place(
    text: str,
    folder: Path,
    data_folder: str | Path | None,
    known: bool,
    what: str = "table",
    flag: str = "--data",
) -> str:
    homes = [folder.resolve(), data_dir(data_folder).resolve()]
    for home in homes:
        path = home / Path(text).expanduser()
        matches = table.matches(path)
        if not matches:
            continue
        if known or all(any(m.resolve().is_relative_to(h) for h in homes) for m in matches):
            return str(path)
        raise InputError(
            f"the file names the {what} {text}, which is neither beside it nor in the data folder: "
            f"if you want it read, name it yourself ({flag} {text})"
        )
    raise InputError(f"the {what} {text} is neither in {homes[0]} nor in {homes[1]}: put it there")
