"""Tiny-ImageNet: 200 classes of photographs, from its publishers' folder of JPEG files."""

from __future__ import annotations

import importlib.util
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np

from fedparity.arguments import checked
from fedparity.data.dataset import Dataset
from fedparity.data.folder import find
from fedparity.data.images import Bytes, Normalise, Reading, image_dataset
from fedparity.errors import InputError
from fedparity.workers import cores

FOLDER = "tiny-imagenet-200"
REMEDY = "unpack tiny-imagenet-200.zip of Stanford's course CS231n"
SIDE = 64
MOST_CLASSES, MOST_BYTES = 1000, 1 << 20
NAME = re.compile(r"[\w.-]+\.JPEG")


@checked
def tiny_imagenet(
    normalise: Normalise = False,
    classes: tuple[int, ...] | None = None,
    part: Literal["all", "train"] = "all",
    data_dir: Path | str | None = None,
) -> Dataset:
    """110,000 photographs of 64 x 64 pixels in 200 classes, 10,000 of them official test.

    Read from ``tiny-imagenet-200``: ``wnids.txt`` names the classes, numbered in alphabetical
    order; training images are ``train/WNID/images/*.JPEG``. The official test images are those
    that the publisher calls validation (``val/images``, told apart by ``val_annotations.txt``):
    the labels of its own test images are not published. Needs ``pip install 'fedparity[images]'``;
    as bytes the whole takes 1.4 GB, and a federation of all of it 5.4 GB. Settings as for
    ``cifar10``.

    References
    ----------
    Le, Yang. Tiny ImageNet visual recognition challenge. Stanford CS231n, 2015.
    """
    root = find("tiny_imagenet", data_dir, (f"{FOLDER}/wnids.txt",), REMEDY).parent
    known = sorted(set(_lines(root / "wnids.txt")))
    if not 1 <= len(known) <= MOST_CLASSES or not all(re.fullmatch(r"n\d+", n) for n in known):
        raise InputError(f"{root / 'wnids.txt'} does not name classes such as n01443537")
    files, labels = [], []
    for number, name in enumerate(known):
        of_class = sorted((root / "train" / name / "images").glob("*.JPEG"))
        files += of_class
        labels += [number] * len(of_class)
    training = len(files)
    for file, number in _held_out(root / "val", {name: k for k, name in enumerate(known)}):
        files.append(file)
        labels.append(number)
    if not training:
        raise InputError(f"{root / 'train'} has no image: {REMEDY}")
    x, y = _read(files), np.asarray(labels, dtype=np.int64)
    reading = Reading(normalise, classes, part)
    held_out = np.arange(len(y)) >= training
    made = image_dataset("tiny_imagenet", x, y, len(known), held_out, reading)
    return made.named("tiny_imagenet", **reading.settings)


def _held_out(folder: Path, number: dict[str, int]) -> list[tuple[Path, int]]:
    """Return the images whose labels stand in one file: a line is name, class and four corners."""
    found, told = [], folder / "val_annotations.txt"
    for line in _lines(told):
        name, _, rest = line.partition("\t")
        label = rest.partition("\t")[0]
        if not NAME.fullmatch(name) or label not in number:
            raise InputError(f"{told}: a line is no image and class: {line[:80]!r}")
        found.append((folder / "images" / name, number[label]))
    return found


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text(encoding="ascii").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read ({error}): {REMEDY}") from None


def _read(files: list[Path]) -> Bytes:
    """Return the images as bytes ``[N, 3, 64, 64]``; grey ones have three equal colours."""
    if importlib.util.find_spec("PIL") is None:
        raise InputError("images of JPEG need a package more: pip install 'fedparity[images]'")
    found = np.empty((len(files), 3, SIDE, SIDE), dtype=np.uint8)

    def fill(place: int) -> None:
        found[place] = _image(files[place])

    with ThreadPoolExecutor(cores()) as threads:
        for _ in threads.map(fill, range(len(files)), chunksize=64):
            pass
    return found


def _image(file: Path) -> Bytes:
    from PIL import Image

    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"{file} is larger than any of these images")
        with Image.open(file, formats=("JPEG",)) as image:
            if image.size != (SIDE, SIDE):
                raise InputError(f"{file} has {image.size} pixels, not {SIDE} x {SIDE}")
            return np.asarray(image.convert("RGB"), dtype=np.uint8).transpose(2, 0, 1)
    except (OSError, SyntaxError) as error:
        raise InputError(f"{file} is not a whole JPEG image ({error}): {REMEDY}") from None
