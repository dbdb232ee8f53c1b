"""Datasets of images: bytes that become numbers between 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BeforeValidator

from fedparity import spec
from fedparity.data import cifar
from fedparity.data.dataset import AT_ONCE, Dataset
from fedparity.data.folder import find
from fedparity.data.idx import read_idx
from fedparity.data.npz import read_npz
from fedparity.data.split import Ints
from fedparity.errors import InputError

Bytes = npt.NDArray[np.uint8]
Moments = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
"""Mean and standard deviation, ``[C, 1, 1]`` a channel or ``[C, H, W]`` a pixel."""
STILL = 0.001
"""Added to the standard deviation of a pixel, of bytes: some pixels hardly ever change."""


def _normalisation(value: Any) -> Any:
    if isinstance(value, bool) or value in ("true", "false", "pixel"):
        return value
    two = isinstance(value, tuple | list) and len(value) == 2
    if two and all(isinstance(v, tuple | list) and len(v) for v in value):
        return value
    raise ValueError(
        "should be true, false, pixel, or the means and the deviations of the channels"
    )


Normalise = Annotated[
    bool | Literal["pixel"] | tuple[tuple[float, ...], tuple[float, ...]],
    BeforeValidator(_normalisation),
]


@dataclass(frozen=True)
class Reading:
    """What of a dataset of images is read, and how its pixels become numbers.

    Parameters
    ----------
    normalise
        ``True``: each colour channel to mean 0 and standard deviation 1 of the training images.
        ``"pixel"``: each pixel by its own mean and, plus 0.001 of 255, standard deviation over
        them. Two lists: these means and deviations of the channels, of pixels from 0 to 1.
    classes
        Only these, numbered from 0 in this order. The means are still those of all images.
    part
        ``all`` images, or only those that the publisher calls ``train``.
    first
        Only so many of the training images, in the publisher's order; the means are still those of
        all.
    """

    normalise: Normalise = False
    classes: tuple[int, ...] | None = None
    part: Literal["all", "train"] = "all"
    first: int | None = None

    @property
    def settings(self) -> dict[str, spec.Value]:
        """The settings that name this reading."""
        chosen = {} if self.classes is None else {"classes": self.classes}
        part = {} if self.part == "all" else {"part": self.part}
        first = {} if self.first is None else {"first": self.first}
        return {"normalise": self.normalise, **chosen, **part, **first}

    def moments(self, name: str, x: Bytes, of: npt.NDArray[np.bool_]) -> Moments | None:
        """Return what is subtracted from pixels from 0 to 1 and what they are divided by."""
        if self.normalise == "pixel":
            return pixel_moments(x, of)
        if isinstance(self.normalise, bool):
            return moments(x, of) if self.normalise else None
        mean, deviation = (np.asarray(v, dtype=np.float64) for v in self.normalise)
        channels = x.shape[1]
        if len(mean) != channels or len(deviation) != channels or deviation.min() <= 0:
            raise InputError(
                f"{name}: normalise takes {channels} means and {channels} deviations above 0"
            )
        return mean[:, None, None], deviation[:, None, None]

    def rows(
        self, name: str, y: npt.NDArray[np.integer], held_out: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.bool_], Ints]:
        """Return which images are read, and the numbers of all their classes."""
        label = y.astype(np.int64)
        kept = ~held_out if self.part == "train" else np.ones(len(y), dtype=np.bool_)
        if self.classes is not None:
            wanted = np.asarray(self.classes, dtype=np.int64)
            absent = np.setdiff1d(wanted, label)
            if len(absent):
                raise InputError(f"{name}: class {absent[0]} does not occur in the data")
            if len(np.unique(wanted)) < len(wanted) or not len(wanted):
                raise InputError(f"{name}: classes must be different, and at least one")
            number = np.full(int(label.max()) + 1, -1, dtype=np.int64)
            number[wanted] = np.arange(len(wanted))
            label = number[label]
            kept &= label >= 0
        if self.first is not None:
            kept &= held_out | (np.cumsum(kept & ~held_out) <= self.first)
        return kept, label


def image_dataset(
    name: str,
    x: Bytes,
    y: npt.NDArray[np.integer],
    outputs: int,
    held_out: npt.NDArray[np.bool_],
    reading: Reading,
    natural: Ints | None = None,
    natural_names: tuple[str, ...] = (),
) -> Dataset:
    """Return the dataset of bytes ``[N, C, H, W]``, with moments where it is to be normalised."""
    if y.min() < 0 or y.max() >= outputs:
        raise InputError(f"{name}: labels {y.min()} to {y.max()}, not 0 to {outputs - 1}")
    kept, label = reading.rows(name, y, held_out)
    found = reading.moments(name, x, ~held_out)
    if not kept.all():
        x, label, held_out = x[kept], label[kept], held_out[kept]
        natural = None if natural is None else natural[kept]
    return Dataset(
        name,
        x,
        label,
        outputs if reading.classes is None else len(reading.classes),
        natural=natural,
        natural_names=natural_names,
        held_out=held_out if reading.part == "all" else None,
        pixels=True,
        moments=found,
        recipe=str(spec.Spec(name, reading.settings)),
    )


def moments(x: Bytes, of: npt.NDArray[np.bool_]) -> Moments:
    """Return mean and standard deviation of each channel of ``x[of] / 255``, from its histogram."""
    level = np.arange(256) / 255
    count = np.zeros((x.shape[1], 256), dtype=np.int64)
    for start in range(0, len(x), AT_ONCE):
        some = x[start : start + AT_ONCE][of[start : start + AT_ONCE]]
        for channel, seen in enumerate(count):
            # torch counts bytes as they are, numpy would make integers of eight bytes of them.
            pixels = torch.from_numpy(np.ascontiguousarray(some[:, channel]).ravel())
            seen += torch.bincount(pixels, minlength=256).numpy()
    mean = (count * level).sum(1) / count.sum(1)
    deviation = np.sqrt((count * (level - mean[:, None]) ** 2).sum(1) / count.sum(1))
    return mean[:, None, None], np.where(deviation > 0, deviation, 1.0)[:, None, None]


def pixel_moments(x: Bytes, of: npt.NDArray[np.bool_]) -> Moments:
    """Return mean and standard deviation, plus ``STILL``, of each pixel of ``x[of]``, over 255."""
    n, sums, squares = int(of.sum()), *np.zeros((2, *x.shape[1:]), dtype=np.int64)
    for start in range(0, len(x), AT_ONCE):
        some = x[start : start + AT_ONCE][of[start : start + AT_ONCE]].astype(np.int64)
        sums += some.sum(0)
        squares += (some * some).sum(0)
    deviation = np.sqrt(n * squares - sums * sums) / n
    return sums / n / 255, (deviation + STILL) / 255


def read_mnist_like(
    name: str, folder: str, remedy: str, reading: Reading, data_dir: Path | str | None
) -> Dataset:
    """Read the four idx files that MNIST and its successors consist of."""
    images, labels = [], []
    for part in ("train", "t10k"):
        x, y = (
            read_idx(
                find(name, data_dir, (f"{folder}/{file}.gz", f"{folder}/{file}"), remedy), item
            )
            for file, item in (
                (f"{part}-images-idx3-ubyte", (28, 28)),
                (f"{part}-labels-idx1-ubyte", ()),
            )
        )
        if len(x) != len(y):
            raise InputError(f"{name}: {len(x)} {part} images and {len(y)} labels: get them again")
        images.append(x[:, None])
        labels.append(y)
    y = np.concatenate(labels)
    held_out = np.arange(len(y)) >= len(labels[0])
    return image_dataset(name, np.concatenate(images), y, 10, held_out, reading)


def read_cifar10(remedy: str, reading: Reading, data_dir: Path | str | None) -> Dataset:
    """Read the six batches of CIFAR-10, in either form."""
    images, labels = [], []
    for batch in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        names = (f"cifar-10-batches-bin/{batch}.bin", f"cifar-10-batches-py/{batch}")
        path = find("cifar10", data_dir, names, remedy)
        x, y = cifar.read_binary(path) if path.suffix == ".bin" else cifar.read_python(path)
        images.append(x)
        labels.append(y)
    y = np.concatenate(labels)
    held_out = np.arange(len(y)) >= len(y) - len(labels[-1])
    return image_dataset("cifar10", np.concatenate(images), y, 10, held_out, reading)


def read_femnist(remedy: str, reading: Reading, data_dir: Path | str | None) -> Dataset:
    """Read the images of handwriting with their writers."""
    path = find("femnist", data_dir, ("femnist/femnist.npz",), remedy)
    arrays = read_npz(path, ("images", "labels", "writer", "is_test", "writer_ids"))
    images, writer = arrays["images"], arrays["writer"].astype(np.int64)
    n = len(images)
    if images.shape != (n, 28, 28) or images.dtype != np.uint8 or n == 0:
        raise InputError(f"{path}: images are {images.dtype} {images.shape}, not bytes [N, 28, 28]")
    if any(arrays[name].shape != (n,) for name in ("labels", "writer", "is_test")):
        raise InputError(f"{path}: images, labels, writer and is_test have different lengths")
    ids = arrays["writer_ids"].tolist()
    if writer.min() < 0 or writer.max() >= len(ids):
        raise InputError(f"{path}: writer {writer.max()} is not among the {len(ids)} writer_ids")
    names = tuple(i.decode("utf-8", "replace") if isinstance(i, bytes) else str(i) for i in ids)
    held_out = arrays["is_test"] != 0
    return image_dataset(
        "femnist", images[:, None], arrays["labels"], 62, held_out, reading, writer, names
    )
