"""Datasets of images: bytes that become numbers between 0 and 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fedparity import spec
from fedparity.data import cifar
from fedparity.data.dataset import AT_ONCE, Dataset
from fedparity.data.folder import find
from fedparity.data.idx import read_idx
from fedparity.data.npz import read_npz
from fedparity.data.split import Ints
from fedparity.errors import InputError

Bytes = npt.NDArray[np.uint8]
Channels = npt.NDArray[np.float64]


def image_dataset(
    name: str,
    x: Bytes,
    y: npt.NDArray[np.integer],
    outputs: int,
    held_out: npt.NDArray[np.bool_],
    normalise: bool,
    natural: Ints | None = None,
    natural_names: tuple[str, ...] = (),
) -> Dataset:
    """Return the dataset of bytes ``[N, C, H, W]``, with moments where it is to be normalised."""
    if y.min() < 0 or y.max() >= outputs:
        raise InputError(f"{name}: labels {y.min()} to {y.max()}, not 0 to {outputs - 1}")
    return Dataset(
        name,
        x,
        y.astype(np.int64),
        outputs,
        natural=natural,
        natural_names=natural_names,
        held_out=held_out,
        pixels=True,
        moments=moments(x, ~held_out) if normalise else None,
        recipe=str(spec.Spec(name, {"normalise": normalise})),
    )


def moments(x: Bytes, of: npt.NDArray[np.bool_]) -> tuple[Channels, Channels]:
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
    return mean, np.where(deviation > 0, deviation, 1.0)


def read_mnist_like(
    name: str, folder: str, remedy: str, normalise: bool, data_dir: Path | str | None
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
    return image_dataset(name, np.concatenate(images), y, 10, held_out, normalise)


def read_cifar10(remedy: str, normalise: bool, data_dir: Path | str | None) -> Dataset:
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
    return image_dataset("cifar10", np.concatenate(images), y, 10, held_out, normalise)


def read_femnist(remedy: str, normalise: bool, data_dir: Path | str | None) -> Dataset:
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
        "femnist", images[:, None], arrays["labels"], 62, held_out, normalise, writer, names
    )
