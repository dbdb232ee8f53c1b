"""Tables in files: CSV and parquet, one for all clients or one a client.

A file is data: its size is bounded before it is read, and nothing in it is run.
"""

from __future__ import annotations

import gzip
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.lib import ArrowException

from fedparity.data.build import natural
from fedparity.errors import InputError

ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
MISSING = ["?"]
"""Words for a gap beside those that pandas knows: nothing, NA, NaN, null."""
LARGEST = 4 << 30
"""Bytes of a file, and of what it holds unpacked."""
MOST_FILES = 10_000
CLIENT = "client"
"""The column that names the client where each has a file."""


@dataclass(frozen=True)
class Table:
    """A table read from files.

    Parameters
    ----------
    frame
        Its rows; text as text, gaps as gaps.
    pattern
        The absolute path, pattern or paths of its files.
    files
        The files, in natural order.
    sha256
        The digest of each file by its name.
    odd
        What is unlike between the files: name of the file and what.
    """

    frame: pd.DataFrame
    pattern: str | tuple[str, ...]
    files: tuple[Path, ...]
    sha256: Mapping[str, str]
    odd: tuple[tuple[str, str], ...] = ()

    @property
    def told(self) -> str | dict[str, str]:
        """The digest of the one file, or the digests by name."""
        return next(iter(self.sha256.values())) if len(self.files) == 1 else dict(self.sha256)


def is_table(text: object) -> bool:
    """Tell whether a text names table files and not a dataset.

    >>> [is_table(text) for text in ("patients.csv", "sites/*.csv", "digits", "a.b:load")]
    [True, True, False, False]
    """
    return isinstance(text, str | Path) and str(text).lower().endswith(ENDINGS)


def matches(path: Path) -> list[Path]:
    """Return the files that a path or a pattern names, in natural order."""
    if any(mark in path.name for mark in "*?["):
        return sorted(path.parent.glob(path.name), key=lambda file: natural(file.name))
    return [path] if path.exists() else []


def files_of(pattern: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return the files that a path, a pattern or a list of them names."""
    patterns = [pattern] if isinstance(pattern, str | Path) else pattern
    if not isinstance(patterns, list | tuple) or not patterns:
        raise InputError("no table: give a DataFrame, the path of a file, or a list of paths")
    found: list[Path] = []
    for each in patterns:
        if not isinstance(each, str | Path):
            raise InputError(f"{str(each)[:40]!r} is no path of a table")
        path = Path(each).expanduser()
        these = matches(path)
        if not these:
            raise InputError(f"cannot read {path}: there is no such file")
        found += these
    if len(found) > MOST_FILES:
        raise InputError(f"{len(found):,} files: at most {MOST_FILES:,} are read")
    return found


def read_tables(
    pattern: str | Path | Sequence[str | Path],
    client: str | None,
    known: Mapping[str, str] | str | None = None,
) -> Table:
    """Read one table, or several as one.

    Parameters
    ----------
    pattern
        A path, a pattern such as ``"sites/*.csv"``, or a list of them.
    client
        The column that names the client; None: each file is one, called as the file.
    known
        The digests that the files must have, by file name; of one file the digest itself.
    """
    files = files_of(pattern)
    if client is None and len(files) == 1 and not _many(pattern):
        raise InputError(
            f"{files[0]} is one table: name the column that tells its clients apart (--client "
            "hospital; in Python client='hospital'), or give a file a client ('sites/*.csv')"
        )
    names = [file.name for file in files]
    if len(set(names)) < len(names):
        raise InputError("two files have the same name: a file is known by it, rename one")
    digests = {file.name: digest(file) for file in files}
    check(digests, known)
    frames = [read(file) for file in files]
    odd = unlike({file.name: frame for file, frame in zip(files, frames, strict=True)})
    if client is None:
        for file, frame in zip(files, frames, strict=True):
            if CLIENT in frame:
                raise InputError(
                    f"{file} has a column '{CLIENT}': name it by --client {CLIENT}, or rename it"
                )
            frame[CLIENT] = stem(file)
    frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    return Table(frame, _absolute(pattern), tuple(files), digests, odd)


def digest(file: Path) -> str:
    """Return the SHA-256 of a file of bounded size."""
    try:
        if file.stat().st_size > LARGEST:
            raise InputError(f"{file} is larger than {LARGEST >> 30} GiB: split it by client")
        found = hashlib.sha256()
        with file.open("rb") as handle:
            while block := handle.read(1 << 20):
                found.update(block)
        return found.hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error


def check(found: Mapping[str, str], known: Mapping[str, str] | str | None) -> None:
    """Refuse files that are not those that were recorded."""
    if known is None:
        return
    if isinstance(known, str):
        known = {next(iter(found), ""): known}
    for name in [*found, *known]:
        if name not in known:
            raise InputError(f"{name} was not among the tables when they were recorded: remove it")
        if name not in found:
            raise InputError(f"the table {name} was recorded and is not there: put it back")
        if found[name] != known[name]:
            raise InputError(
                f"{name} has changed since it was recorded (sha256 {found[name][:12]}, recorded "
                f"{known[name][:12]}): put the old file back, or begin a new run without 'sha256'"
            )


def stem(file: Path) -> str:
    """Return the name of a file without its ending.

    >>> stem(Path("sites/va.csv.gz"))
    'va'
    """
    name = file.name
    for ending in sorted(ENDINGS, key=len, reverse=True):
        if name.lower().endswith(ending):
            return name[: -len(ending)] or name
    return name


def read(file: Path) -> pd.DataFrame:
    """Return the table of one CSV or parquet file."""
    if not is_table(file):
        raise InputError(f"{file} is no table that can be read: {', '.join(ENDINGS)}")
    try:
        frame = _parquet(file) if file.suffix.lower() == ".parquet" else _csv(file)
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise InputError(f"cannot read {file}: {reason}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text: save it as UTF-8") from error
    except (ArrowException, ValueError, EOFError) as error:  # ParserError is a ValueError
        if isinstance(error, InputError):
            raise
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{file} is not a whole table: {reason}") from error
    frame.columns = pd.Index([str(name).strip() for name in frame.columns])
    if not len(frame):
        raise InputError(f"{file} has no rows")
    if frame.columns.has_duplicates:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InputError(f"{file}: two columns are called '{twice}': rename one")
    return frame


def _csv(file: Path) -> pd.DataFrame:
    content = _unpacked(file)
    head = content[: 1 << 16].decode("utf-8-sig", errors="replace").splitlines()
    if not head:
        raise InputError(f"{file} is empty")
    mark = max(",;\t", key=head[0].count)
    decimal = "," if mark == ";" and not any("." in line for line in head[1:20]) else "."
    return pd.read_csv(
        io.BytesIO(content),
        sep=mark,
        decimal=decimal,
        na_values=MISSING,
        skipinitialspace=True,
        encoding="utf-8-sig",
        low_memory=False,
    )


def _unpacked(file: Path) -> bytes:
    if file.suffix.lower() != ".gz":
        return file.read_bytes()
    with gzip.open(file) as handle:
        content = handle.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise InputError(f"{file} unpacks to more than {LARGEST >> 30} GiB: split it by client")
    return content


def _parquet(file: Path) -> pd.DataFrame:
    rows, schema = pq.read_metadata(file).num_rows, pq.read_schema(file)
    for each in schema:
        if pa.types.is_nested(each.type):
            raise InputError(f"{file}: column '{each.name}' holds lists: one value a cell is read")
    size = rows * sum(max(8, _width(each.type)) for each in schema)
    texts = [each.name for each in schema if _is_text(each.type)]
    if size <= LARGEST and texts:  # a word that is written once may stand in every row
        with pq.ParquetFile(file, read_dictionary=texts) as parts:
            for part in range(parts.num_row_groups):
                size += sum(_letters(column) for column in parts.read_row_group(part).columns)
    if size > LARGEST:
        raise InputError(f"{file} unpacks to more than {LARGEST >> 30} GiB: split it by client")
    made: pd.DataFrame = pq.read_table(file).to_pandas(ignore_metadata=True)
    return made


def _is_text(kind: pa.DataType) -> bool:
    kinds = pa.types
    return bool(kinds.is_large_string(kind) or kinds.is_large_binary(kind)) or bool(
        kinds.is_string(kind) or kinds.is_binary(kind)
    )


def _width(kind: pa.DataType) -> int:
    """Return the bytes of a value, where every value has as many."""
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return 0


def _letters(column: pa.ChunkedArray) -> int:
    """Return the bytes of all words of a column that is read as places in a list of words."""
    if not pa.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return 0
    lengths = ((pc.binary_length(c.dictionary), c.indices) for c in column.chunks)
    return sum(pc.sum(each.take(places)).as_py() or 0 for each, places in lengths)


def unlike(frames: Mapping[str, pd.DataFrame]) -> tuple[tuple[str, str], ...]:
    """Return in what the tables of several files differ: columns that lack, other types, order."""
    if len(frames) < 2:
        return ()
    usual = list(max(frames.values(), key=lambda frame: len(frame.columns)).columns)
    numeric = {
        name: [frame[name].dtype.kind in "iufb" for frame in frames.values() if name in frame]
        for name in usual
    }
    found = []
    for file, frame in frames.items():
        lacking = [f"'{name}'" for name in usual if name not in frame]
        more = [f"'{name}'" for name in frame if name not in usual]
        if lacking or more:
            told = [f"no column {', '.join(lacking)}"] * bool(lacking)
            told += [f"columns that others lack: {', '.join(more)}"] * bool(more)
            found.append((file, "has " + ", and ".join(told)))
        elif list(frame.columns) != usual:
            found.append((file, "has its columns in another order"))
        for name in frame:
            kinds = numeric.get(str(name), [])
            text = frame[name].dtype.kind not in "iufb" and bool(frame[name].notna().any())
            if text and sum(kinds) > len(kinds) / 2:
                value = _first_word(frame[name])
                found.append((file, f"has text in column '{name}' ('{value}'), elsewhere numbers"))
    return tuple(found)


def _first_word(column: pd.Series[Any]) -> str:
    told = column[pd.to_numeric(column, errors="coerce").isna() & column.notna()]
    return str(told.iloc[0] if len(told) else column.dropna().iloc[0])[:40]


def _absolute(pattern: str | Path | Sequence[str | Path]) -> str | tuple[str, ...]:
    if isinstance(pattern, str | Path):
        return str(Path(pattern).expanduser().absolute())
    return tuple(str(Path(path).expanduser().absolute()) for path in pattern)


def _many(pattern: object) -> bool:
    return not isinstance(pattern, str | Path) or any(mark in str(pattern) for mark in "*?[")
