"""Datasets of Hugging Face's library, read where they lie: nothing is downloaded.

``hf:NAME`` in place of a dataset's name stands for :func:`hf`, whose settings are then those of own
tables (``target``, ``client``, ...).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import yaml

from fedparity.arguments import checked
from fedparity.data import build, tabular
from fedparity.data.dataset import Dataset
from fedparity.data.folder import data_dir as folder_of
from fedparity.data.frame import Roles, Study
from fedparity.data.tabular import Way
from fedparity.errors import InputError, unknown
from fedparity.spec import Spec

if TYPE_CHECKING:
    import datasets

PREFIX = "hf:"
SETTINGS = ("target", "client", "groups", "features", "without", "categories", "prepare", "kind")
"""What is said of own tables, and is said of these datasets as well."""
ALL = "all"
DESCRIPTIONS = ("README.md", ".huggingface.yaml")
"""What a folder of the library says of its files."""
LARGEST = 1 << 20
"""Bytes of a description."""
Names = tuple[str, ...]


def rewritten(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``data`` says with ``hf:NAME`` as the call of a function.

    >>> rewritten({"dataset": "hf:adult", "target": "income", "partition": "iid"})
    {'partition': 'iid', 'dataset': "hf(name='adult', target='income')"}
    """
    named = data.get("dataset")
    if not isinstance(named, str) or not named.startswith(PREFIX):
        return dict(data)
    told = {name: data[name] for name in SETTINGS if data.get(name) is not None}
    left = {name: value for name, value in data.items() if name not in (*SETTINGS, "dataset")}
    text = str(Spec("hf", {"name": named.removeprefix(PREFIX), **told}))
    return {**left, "dataset": text}


@checked
def hf(
    name: str,
    target: str,
    client: str | None = None,
    *,
    features: Names | None = None,
    without: Names = (),
    categories: Names = (),
    groups: Names = (),
    prepare: Way = "federated",
    kind: Literal["classes", "values"] | None = None,
    split: str | None = None,
    data_dir: Path | str | None = None,
) -> Dataset:
    """Any dataset of Hugging Face's library: a table, images, or vectors.

    It is read from the data folder, or from the cache of that library if it was loaded before;
    nothing is downloaded. Needs ``pip install 'fedparity[hf]'``.

    Parameters
    ----------
    name
        A directory in the data folder (of ``save_to_disk``, or with CSV, JSON or parquet files), or
        the name of a dataset in the cache, such as ``user/name``.
    target, client
        The columns of what is predicted, and of natural clients where there are any.
    features, without, categories, groups, prepare
        As of :meth:`Federation.from_frame`. Where one feature holds images or vectors, it alone is
        the input.
    kind
        What the targets are, where the numbers leave it open.
    split
        Take this split alone; by default all are taken, and ``test`` is the publisher's test.

    References
    ----------
    Lhoest et al. Datasets: a community library for natural language processing. EMNLP 2021.
    """
    rows, held_out = _whole(_read(name, data_dir), split, name)
    settings: dict[str, Any] = {"name": name, "target": target, "client": client}
    settings |= {"features": features, "without": without, "categories": categories}
    settings |= {"groups": groups, "prepare": prepare, "kind": kind, "split": split}
    unset = (None, ())
    settings = {key: value for key, value in settings.items() if value not in unset}
    for column in (target, *([client] if client else []), *groups, *without, *(features or ())):
        if column not in rows.column_names:
            raise unknown("column", column, rows.column_names)
    beside = {target, client, *groups, *without}
    chosen = [c for c in (features or rows.column_names) if c not in beside]
    deep = [column for column in chosen if not _is_plain(rows.features[column])]
    frame = _frame(rows.remove_columns(deep))
    owner = frame[client] if client else pd.Series([ALL] * len(frame))
    beside_inputs = {group: frame[group] for group in groups}
    if deep:
        if len(deep) > 1 or (features and list(features) != deep):
            raise InputError(
                f"columns {', '.join(deep)} hold images or lists: name one as the input, features="
            )
        made = _of_arrays(name, rows, deep[0], frame[target], kind, beside_inputs)
        made = replace(made, recipe=str(Spec("hf", settings)))
        natural, names = build.owners(owner)
        made = replace(made, natural=natural, natural_names=names)
    else:
        roles = Roles(client or ALL, target, None, features, without, categories, groups)
        study = Study.of(frame if client else frame.assign(**{ALL: owner}), roles, prepare)
        study.require()
        table = frame[list(study.kinds)].astype(dict.fromkeys(categories, "category"))
        made = tabular.of(
            "hf",
            table,
            frame[target].to_numpy(),
            owner,
            {**settings, "prepare": prepare},
            groups=beside_inputs,
            values=kind == "values",
        )
    made = replace(made, held_out=held_out)
    return made if client else replace(made, natural=None, natural_names=())


def _read(name: str, data_dir: Path | str | None) -> Any:
    """Return what Hugging Face's library reads under a name, offline."""
    root = folder_of(data_dir).resolve()
    here = (root / name).resolve()
    with _offline() as library:
        try:
            if here.is_dir() and here.is_relative_to(root):
                if any((here / file).exists() for file in ("dataset_dict.json", "state.json")):
                    return library.load_from_disk(str(here))
                _require_local(here)
                return library.load_dataset(str(here))
            if Path(name).exists():
                raise InputError(
                    f"'{name}' is not in the data folder {root}: name it by --data-dir"
                )
            return library.load_dataset(name)
        except InputError:
            raise
        except Exception as error:  # the library's own, of many kinds
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise InputError(
                f"hf: cannot read '{name}' ({why}): put it into {root}, or load it once, online: "
                f"datasets.load_dataset('{name}')"
            ) from error


def _require_local(folder: Path) -> None:
    """Refuse a folder whose description names files by address: the library would fetch them."""
    from huggingface_hub import DatasetCard

    for file in filter(Path.is_file, (folder / name for name in DESCRIPTIONS)):
        with file.open("rb") as opened:
            content = opened.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise InputError(f"{file} is larger than any description of a dataset")
        if file.suffix == ".md":
            files = DatasetCard.load(file).data.get("configs")
        else:
            said = yaml.safe_load(content)
            files = said.get("configs") if isinstance(said, dict) else None
        if "://" in str(files):
            raise InputError(
                f"{file} names data files by address, and nothing is downloaded: put the files "
                "beside it and name them as they lie there"
            )


@contextmanager
def _offline() -> Iterator[Any]:
    """Give Hugging Face's library, told to fetch nothing and to show no bars."""
    try:
        import datasets
        from huggingface_hub import constants
    except ImportError as error:
        raise InputError("hf: needs a package more: pip install 'fedparity[hf]'") from error
    before = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
    bars = datasets.are_progress_bars_disabled()
    datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
    datasets.disable_progress_bars()
    try:
        yield datasets
    finally:
        datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = before
        if not bars:
            datasets.enable_progress_bars()


def _whole(
    read: Any, split: str | None, name: str
) -> tuple[datasets.Dataset, npt.NDArray[np.bool_] | None]:
    """Return all splits as one, and which rows are the publisher's test."""
    import datasets

    parts = dict(read) if isinstance(read, datasets.DatasetDict) else {split or ALL: read}
    if split is not None:
        if split not in parts:
            raise unknown(f"split of '{name}'", split, parts)
        return parts[split], None
    rows = datasets.concatenate_datasets(list(parts.values()))
    if "test" not in parts or len(parts) == 1:
        return rows, None
    return rows, np.concatenate([np.full(len(p), part == "test") for part, p in parts.items()])


def _is_plain(feature: Any) -> bool:
    """Tell whether a column holds one number or word a row."""
    import datasets

    return isinstance(feature, datasets.Value | datasets.ClassLabel)


def _frame(rows: datasets.Dataset) -> pd.DataFrame:
    """Return the plain columns; numbers of classes become the words that they stand for."""
    import datasets

    frame: pd.DataFrame = rows.with_format(None).to_pandas()
    for column, feature in rows.features.items():
        if isinstance(feature, datasets.ClassLabel):
            codes = frame[column].fillna(-1).astype(int)
            words = pd.Categorical.from_codes(codes, categories=pd.Index(feature.names))
            frame[column] = words.astype(object)
    return frame


def _of_arrays(
    name: str,
    rows: datasets.Dataset,
    column: str,
    y: pd.Series[Any],
    kind: Literal["classes", "values"] | None,
    groups: Mapping[str, Any],
) -> Dataset:
    """Return the dataset whose inputs are images, as ``[N, C, H, W]``, or vectors."""
    import datasets

    image = isinstance(rows.features[column], datasets.Image)
    x = build.array([np.asarray(value) for value in rows.with_format(None)[column]])
    if image and x.ndim in (3, 4):
        x = x[:, None] if x.ndim == 3 else np.moveaxis(x, 3, 1)
    target, found, outputs, classes = build.targets(y.to_numpy(), kind, None)
    codes, called = build.groups(groups, len(x))
    return Dataset(
        name,
        np.ascontiguousarray(x) if image else build.inputs(x).astype(np.float32),
        target,
        outputs,
        found,
        classes,
        pixels=image,
        groups=codes,
        group_names=called,
    )
