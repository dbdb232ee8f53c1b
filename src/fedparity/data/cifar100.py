"""CIFAR-100, from its publishers' binary files or from arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from fedparity.arguments import checked
from fedparity.data.cifar import IMAGE, LARGEST, PIXELS
from fedparity.data.dataset import Dataset
from fedparity.data.folder import data_dir as root_of
from fedparity.data.folder import find
from fedparity.data.images import Bytes, Normalise, Reading, image_dataset
from fedparity.data.npz import read_npz
from fedparity.errors import InputError

REMEDY = "unpack CIFAR-100, binary version, from www.cs.toronto.edu/~kriz/cifar.html"
OUTPUTS = {"fine": 100, "coarse": 20}


@checked
def cifar100(
    labels: Literal["fine", "coarse"] = "fine",
    normalise: Normalise = False,
    classes: tuple[int, ...] | None = None,
    part: Literal["all", "train"] = "all",
    data_dir: Path | str | None = None,
) -> Dataset:
    """60,000 colour photographs of 32 x 32 pixels in 100 fine or 20 coarse classes.

    Read from ``cifar-100-binary``, whose 10,000 test images are official, or, where that is absent,
    from ``cifar100/cifar100_subset_train.npz`` and ``..._test.npz`` with bytes ``images``
    [N, 32, 32, 3], ``labels`` and ``coarse``. Settings as for ``cifar10``.

    References
    ----------
    Krizhevsky. Learning multiple layers of features from tiny images. 2009.
    """
    binary = (root_of(data_dir) / "cifar-100-binary" / "train.bin").is_file()
    images, told = [], []
    for name in ("train", "test"):
        files = (f"cifar-100-binary/{name}.bin", f"cifar100/cifar100_subset_{name}.npz")
        path = find("cifar100", data_dir, files[:1] if binary else files, REMEDY)
        x, fine, coarse = _binary(path) if path.suffix == ".bin" else _arrays(path)
        images.append(x)
        told.append(fine if labels == "fine" else coarse)
    y = np.concatenate(told)
    held_out = np.arange(len(y)) >= len(told[0])
    reading, outputs = Reading(normalise, classes, part), OUTPUTS[labels]
    made = image_dataset("cifar100", np.concatenate(images), y, outputs, held_out, reading)
    return made.named("cifar100", labels=labels, **reading.settings)


def _binary(path: Path) -> tuple[Bytes, Bytes, Bytes]:
    """Return images, fine and coarse labels of records of both labels and the pixels."""
    size = path.stat().st_size
    if size == 0 or size % (2 + PIXELS) or size > LARGEST:
        raise InputError(f"{path} has {size} bytes, not a multiple of {2 + PIXELS}: get it again")
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, 2 + PIXELS)
    return records[:, 2:].reshape(-1, *IMAGE), records[:, 1], records[:, 0]


def _arrays(path: Path) -> tuple[Bytes, Bytes, Bytes]:
    found = read_npz(path, ("images", "labels", "coarse"))
    images, n = found["images"], len(found["images"])
    if images.shape != (n, 32, 32, 3) or images.dtype != np.uint8 or n == 0:
        raise InputError(f"{path}: images are {images.dtype} {images.shape}, not bytes")
    if any(found[name].shape != (n,) for name in ("labels", "coarse")):
        raise InputError(f"{path}: images and labels have different lengths")
    return images.transpose(0, 3, 1, 2), found["labels"], found["coarse"]
