"""EMNIST: handwritten digits and letters, from its publishers' idx files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from fedparity.arguments import checked
from fedparity.data.dataset import Dataset
from fedparity.data.folder import find
from fedparity.data.idx import read_idx
from fedparity.data.images import Normalise, Reading, image_dataset
from fedparity.errors import InputError

OUTPUTS = {"balanced": 47, "byclass": 62, "bymerge": 47, "digits": 10, "letters": 26, "mnist": 10}
REMEDY = "unpack the gzip version of EMNIST (Cohen, Afshar, Tapson, van Schaik) of NIST"


@checked
def emnist(
    split: Literal["balanced", "byclass", "bymerge", "digits", "letters", "mnist"] = "balanced",
    normalise: Normalise = False,
    classes: tuple[int, ...] | None = None,
    part: Literal["all", "train"] = "all",
    data_dir: Path | str | None = None,
) -> Dataset:
    """Handwritten digits and letters of 28 x 28 pixels, up to 814,255 in 62 classes.

    Four idx files of the split in ``EMNIST/raw``, gzipped or not, such as
    ``emnist-balanced-train-images-idx3-ubyte``. Their images lie on their side and are turned
    upright; letters are numbered from 0, not from 1. Settings as for ``mnist``.

    References
    ----------
    Cohen, Afshar, Tapson, van Schaik. EMNIST: extending MNIST to handwritten letters. IJCNN 2017.
    """
    images, labels = [], []
    for name in ("train", "test"):
        x, y = (
            read_idx(
                find("emnist", data_dir, (f"EMNIST/raw/{f}.gz", f"EMNIST/raw/{f}"), REMEDY), item
            )
            for f, item in (
                (f"emnist-{split}-{name}-images-idx3-ubyte", (28, 28)),
                (f"emnist-{split}-{name}-labels-idx1-ubyte", ()),
            )
        )
        if len(x) != len(y):
            raise InputError(f"emnist: {len(x)} {name} images and {len(y)} labels: get them again")
        images.append(x.transpose(0, 2, 1)[:, None])
        labels.append(y.astype(np.int64) - (split == "letters"))
    y = np.concatenate(labels)
    held_out = np.arange(len(y)) >= len(labels[0])
    reading = Reading(normalise, classes, part)
    made = image_dataset("emnist", np.concatenate(images), y, OUTPUTS[split], held_out, reading)
    return made.named("emnist", split=split, **reading.settings)
