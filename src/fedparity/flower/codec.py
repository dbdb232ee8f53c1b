"""Between what a run says and Flower's records: pure functions, nothing is unpickled.

Tensors travel as arrays in numpy's own format, under names such as ``scaffold/c``; numbers as
metrics, words as config. What arrives is held against what is expected before any of it is turned
into a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from torch import Tensor

from fedparity.errors import FedparityError
from fedparity.method.messages import Down, Named, Tensors, Up

Flat = dict[str, Tensor]
DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "bool": torch.bool,
}
ALONE = "alone"
"""Stands for a model where a site tells the metrics of the one that it trained alone."""
BASE = "base"
"""Stands for a model where a site tells what a guess without inputs gets of its examples."""
MOST_HEADER = 512
"""Bytes of an array's header; ours have 128."""


class BadMessage(FedparityError):
    """What arrived is not what was asked for."""


def shown(value: object) -> str:
    """Return what another side said as a short text for a message.

    >>> shown("x" * 1000)[:5], len(shown("x" * 1000))
    ("'xxxx", 80)
    """
    return repr(value)[:80]


class Like(NamedTuple):
    """What an array is expected to be."""

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> Like:
        """Return the type and shape of a tensor."""
        return cls(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))

    @property
    def bytes(self) -> int:
        """Size of the numbers alone."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Stamp:
    """What a message says beside the exchange itself.

    Attributes
    ----------
    run
        Names the run, also after it was resumed: state of another run is not used.
    place
        The client's place in the federation.
    received
        The last round of which the server has this client's reply; 0 if of none.
    lstar
        The client's L*, NaN if nobody computed it.
    client
        Whom the message is for.
    agreed
        Digest of the settings that the server and this client agreed on.
    common
        How all sites prepare their tables, see :mod:`fedparity.data.told`; empty if they need not.
    """

    run: str
    place: int
    received: int = 0
    lstar: float = math.nan
    client: str = ""
    agreed: str = ""
    common: str = ""


def pack(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Return tensors as arrays under the same names."""
    return ArrayRecord(
        {name: Array(t.detach().contiguous().numpy()) for name, t in tensors.items()}
    )


def unpack(record: ArrayRecord | None, expected: Mapping[str, Like] | None = None) -> Flat:
    """Return the tensors of a record, in the order and of the kind expected.

    Without ``expected`` any names and shapes are taken.
    """
    arrays = dict(record or {})
    if expected is None:
        return {name: _tensor(name, array) for name, array in arrays.items()}
    for name in [*(n for n in expected if n not in arrays), *(n for n in arrays)]:
        if name not in arrays:
            raise BadMessage(f"it leaves out '{name}'")
        if name not in expected:
            raise BadMessage(f"it sends {shown(name)}, which nobody asked for")
    for name, like in expected.items():
        found = Like(arrays[name].dtype, tuple(arrays[name].shape))
        if found != like:
            raise BadMessage(f"its '{name}' is {str(found)[:80]}, not {like}")
        if len(arrays[name].data) > like.bytes + MOST_HEADER:
            raise BadMessage(
                f"its '{name}' has {len(arrays[name].data):,} bytes where {like.bytes:,} belong"
            )
    return {name: _tensor(name, arrays[name]) for name in expected}


def _tensor(name: str, array: Array) -> Tensor:
    """Return the tensor of an array whose header agrees with its description."""
    if array.dtype not in DTYPES:
        raise BadMessage(f"its {shown(name)} has the type {shown(array.dtype)}")
    dtype, stream = np.dtype(array.dtype), BytesIO(array.data)
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("unknown version")
        shape, fortran, found = np.lib.format.read_array_header_1_0(stream, MOST_HEADER)
    except Exception as error:  # numpy's parser fails in many ways, all of them mean this
        raise BadMessage(f"its {shown(name)} is not an array: {str(error)[:80]}") from error
    start = stream.tell()
    agrees = found == dtype and shape == tuple(array.shape) and not fortran
    if not agrees or len(array.data) - start != math.prod(shape) * dtype.itemsize:
        claimed = f"{array.dtype}{list(array.shape)}"[:80]
        raise BadMessage(f"its {shown(name)} is not the {claimed} it claims to be")
    values = np.frombuffer(array.data, dtype, math.prod(shape), start).reshape(shape)
    return torch.from_numpy(values.copy())


def flat(tree: Mapping[str, Tensors]) -> Flat:
    """Return the tensors of all parts as ``part/name``."""
    return {f"{part}/{key}": v for part, tensors in tree.items() for key, v in tensors.items()}


def by_part(tensors: Mapping[str, Tensor]) -> Named:
    """Return the tree of :func:`flat`."""
    tree: Named = {}
    for name, value in tensors.items():
        part, slash, key = name.partition("/")
        if not slash:
            raise BadMessage(f"it sends {shown(name)}, which belongs to no part")
        tree.setdefault(part, {})[key] = value
    return tree


def write_down(down: Down, stamp: Stamp) -> RecordDict:
    """Return the message of an exchange to one client; ``down.each`` is what is its own."""
    return RecordDict(
        {
            "vectors": pack({"x": down.x, "buffers": down.buffers}),
            "shared": pack(flat(down.shared)),
            "each": pack(flat(down.each)),
            "numbers": MetricRecord(
                {
                    "round": down.round,
                    "lr": down.lr,
                    "search": down.search,
                    "place": stamp.place,
                    "received": stamp.received,
                    "lstar": stamp.lstar,
                }
            ),
            "words": ConfigRecord(
                {
                    "phase": down.phase,
                    "run": stamp.run,
                    "client": stamp.client,
                    "agreed": stamp.agreed,
                    "common": stamp.common,
                }
            ),
        }
    )


def read_down(records: RecordDict, x: Tensor, buffers: Tensor) -> tuple[Down, Stamp]:
    """Return the message of the server, whose vectors must be like ``x`` and ``buffers``."""
    arrays = records.array_records
    likes = {"x": Like.of(x), "buffers": Like.of(buffers)}
    vectors = unpack(arrays.get("vectors"), likes)
    told = numbers(records)
    try:
        down = Down(
            word(records, "phase"),
            int(told["round"]),
            told["lr"],
            vectors["x"],
            vectors["buffers"],
            by_part(unpack(arrays.get("shared"))),
            by_part(unpack(arrays.get("each"))),
            int(told["search"]),
        )
        stamp = Stamp(
            word(records, "run"),
            int(told["place"]),
            int(told["received"]),
            told["lstar"],
            word(records, "client"),
            word(records, "agreed"),
            common(records),
        )
    except KeyError as error:
        raise BadMessage(f"it leaves out the number {error}") from error
    return down, stamp


def write_up(up: Up) -> RecordDict:
    """Return a client's answer: its reports and, after training, its update and buffers."""
    vectors = {"delta": up.deltas, "buffers": up.buffers}
    return RecordDict(
        {
            "vectors": pack({name: v for name, v in vectors.items() if v is not None}),
            "reports": pack(flat(up.reports)),
        }
    )


class Schema(NamedTuple):
    """What the answer to an exchange must look like."""

    vectors: dict[str, Like]
    reports: dict[str, Like]

    @classmethod
    def of(cls, up: Up) -> Schema:
        """Return the schema of an answer."""
        vectors = {"delta": up.deltas, "buffers": up.buffers}
        return cls(
            {name: Like.of(v) for name, v in vectors.items() if v is not None},
            {name: Like.of(v) for name, v in flat(up.reports).items()},
        )

    @property
    def bytes(self) -> int:
        """Size of the numbers of an answer."""
        return sum(like.bytes for likes in self for like in likes.values())


def read_up(records: RecordDict, schema: Schema) -> Up:
    """Return a client's answer, or say why it is none."""
    arrays = records.array_records
    for kind in arrays:
        if kind not in ("vectors", "reports"):
            raise BadMessage(f"it sends {shown(kind)}, which nobody asked for")
    size = sum(len(array.data) for record in arrays.values() for array in record.values())
    most = schema.bytes + MOST_HEADER * (len(schema.vectors) + len(schema.reports))
    if size > most:
        raise BadMessage(f"it sends {size:,} bytes where at most {most:,} belong")
    vectors = unpack(arrays.get("vectors"), schema.vectors)
    reports = by_part(unpack(arrays.get("reports"), schema.reports))
    return Up(reports, vectors.get("delta"), vectors.get("buffers"))


def numbers(records: RecordDict) -> dict[str, float]:
    """Return the single numbers of a message."""
    found: dict[str, float] = {}
    for name, value in (records.metric_records.get("numbers") or MetricRecord()).items():
        if not isinstance(value, int | float):
            raise BadMessage("it sends lists where single numbers belong")
        found[name] = value
    return found


def words(records: RecordDict) -> dict[str, Any]:
    """Return the words of a message."""
    return dict(records.config_records.get("words") or {})


def word(records: RecordDict, name: str) -> str:
    """Return one word of a message."""
    found = words(records).get(name)
    if not isinstance(found, str):
        raise BadMessage(f"it leaves out the word '{name}'")
    return found


def common(records: RecordDict) -> str:
    """Return how all sites prepare their tables, empty if the message does not say."""
    return word(records, "common") if "common" in words(records) else ""
