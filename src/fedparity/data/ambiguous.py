"""Handwritten digits of which some could be read in two ways."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedparity import spec
from fedparity.arguments import checked
from fedparity.data.dataset import Dataset
from fedparity.data.folder import data_dir as root_of
from fedparity.data.images import Reading, read_mnist_like
from fedparity.data.pt import read_tensor
from fedparity.data.split import Ints
from fedparity.errors import InputError
from fedparity.learning.seeds import generator

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The part of each client's examples that is ambiguous."""
PUBLISHED = "AmbiguousMNIST/amnist_{}.pt"
"""The images ``[N, 1, 28, 28]`` and, for each, several labels that people might give it."""
Pixels = npt.NDArray[np.float32]
Clients = tuple[Pixels, Ints, Ints]
"""Images, labels and the client of each."""


def ambiguous_clients(
    x: npt.NDArray[np.uint8], y: Ints, each: int, low: float, seed: int
) -> Clients:
    """Return images, labels and clients: ``each`` examples of every share of ambiguous ones.

    An ambiguous digit is ``(1 - t) a + t b`` of images a and b of two digits that differ, with t
    uniform in ``[low, 1 - low]``; its label is that of a or of b, with equal probability. No image
    is used twice.
    """
    rng = generator(seed, "ambiguous digits")
    order = rng.permutation(len(y))
    needed = len(SHARES) * each + round(sum(SHARES) * each)
    if needed > len(y):
        raise InputError(f"{needed} images are needed for {each} a client, and there are {len(y)}")
    images, labels, clients, used = [], [], [], 0
    for client, share in enumerate(SHARES):
        mixed = round(share * each)
        first, used = order[used : used + each], used + each
        found, label = x[first].astype(np.float32) / 255, y[first].copy()
        second, used = _other_digits(y, first[:mixed], order, used)
        t = rng.uniform(low, 1 - low, (mixed, 1, 1, 1)).astype(np.float32)
        found[:mixed] = (1 - t) * found[:mixed] + t * (x[second].astype(np.float32) / 255)
        label[:mixed] = np.where(rng.random(mixed) < 0.5, label[:mixed], y[second])
        images.append(found)
        labels.append(label)
        clients.append(np.full(each, client))
    return np.concatenate(images), np.concatenate(labels), np.concatenate(clients)


def _other_digits(y: Ints, first: Ints, order: Ints, used: int) -> tuple[Ints, int]:
    """Return an unused image of another digit for each; images so passed over stay where they are.

    The next unused images are swapped until each differs from the one that it is mixed with.
    """
    for place, image in enumerate(first):
        here = used + place
        swap = here
        while swap < len(order) and y[order[swap]] == y[image]:
            swap += 1
        if swap == len(order):
            raise InputError("too few images of other digits are left: take fewer examples")
        order[[here, swap]] = order[[swap, here]]
    return order[used : used + len(first)], used + len(first)


def published_clients(
    x: npt.NDArray[np.uint8], y: Ints, unclear: Pixels, answers: Ints, each: int, seed: int
) -> Clients:
    """Return the same of published ambiguous images ``[N, 1, 28, 28]`` and answers ``[N, L]``.

    The label of an ambiguous image is one of its answers, by chance. No image is used twice.
    """
    rng = generator(seed, "ambiguous digits")
    clear, dirty = rng.permutation(len(y)), rng.permutation(len(answers))
    images, labels, clients = [], [], []
    for client, share in enumerate(SHARES):
        mixed = round(share * each)
        if mixed > len(dirty) or each - mixed > len(clear):
            raise InputError(f"too few images for {each} a client: take fewer examples")
        some, dirty = dirty[:mixed], dirty[mixed:]
        others, clear = clear[: each - mixed], clear[each - mixed :]
        images.append(np.concatenate([unclear[some], x[others].astype(np.float32) / 255]))
        told = answers[some, rng.integers(0, answers.shape[1], mixed)]
        labels.append(np.concatenate([told, y[others]]))
        clients.append(np.full(each, client))
    return np.concatenate(images), np.concatenate(labels), np.concatenate(clients)


def _published(folder: Path) -> tuple[Pixels, Ints]:
    """Return the published ambiguous images, from 0 to 1, and their answers."""
    files = [folder / PUBLISHED.format(name) for name in ("samples", "labels")]
    unclear = read_tensor(files[0], (None, 1, 28, 28))
    answers = read_tensor(files[1], (len(unclear), None))
    if unclear.dtype != np.float32 or answers.dtype != np.int64:
        raise InputError(f"{files[0]} holds {unclear.dtype} and {files[1].name} {answers.dtype}")
    if not (np.isfinite(unclear).all() and unclear.min() >= 0 and unclear.max() <= 1):
        raise InputError(f"{files[0]} holds pixels that are not from 0 to 1")
    if answers.min() < 0 or answers.max() > 9:
        raise InputError(f"{files[1]} holds labels {answers.min()} to {answers.max()}, not 0 to 9")
    return unclear, answers


@checked
def ambiguous_mnist(
    each: Annotated[int, Field(ge=8, le=8000)] = 1000,
    low: Annotated[float, Field(gt=0, le=0.5)] = 0.4,
    seed: Annotated[int, Field(ge=0)] = 0,
    source: Literal["auto", "published", "mixed"] = "auto",
    data_dir: Path | str | None = None,
) -> Dataset:
    """Five clients of whose digits none, a quarter, half, three quarters and all are ambiguous.

    Natural clients ambiguous-0 to ambiguous-100, of ``each`` images; the others are MNIST's, from
    the files of ``mnist``. Nobody can tell an ambiguous digit, so the best loss differs from client
    to client. No image occurs twice.

    Parameters
    ----------
    source
        ``published``: the ambiguous images of DirtyMNIST, which the EAGLE paper uses, from
        ``AmbiguousMNIST/amnist_samples.pt`` and ``amnist_labels.pt``; the label is one of the ten
        that come with each image, by chance. ``mixed``: a mix of two MNIST images of different
        digits, whose label is that of one of the two. ``auto``: published where the files are
        there; the run records which it was.
    low
        The least share that either image has of a mix.

    Notes
    -----
    The published images come out of a generative model, so numbers of mixed ones will differ from
    the paper's. The publishers' loader adds Gaussian noise to all images; none is added here. Their
    files are read without unpickling.

    References
    ----------
    Erraji, Perrot, Bellet. Loss gap parity for fairness in heterogeneous federated learning. 2026.
    Mukhoti, Kirsch, van Amersfoort, Torr, Gal. Deep deterministic uncertainty. CVPR 2023.
    """
    remedy = "get the four files of the MNIST database (LeCun, Cortes, Burges) as .gz"
    found = read_mnist_like("mnist", "MNIST/raw", remedy, Reading(), data_dir)
    root = root_of(data_dir)
    there = (root / PUBLISHED.format("samples")).is_file()
    settings: dict[str, spec.Value] = {"each": each, "seed": seed}
    if source == "published" or (source == "auto" and there):
        x, y, client = published_clients(found.x, found.y, *_published(root), each, seed)
        settings["source"] = "published"
    else:
        x, y, client = ambiguous_clients(found.x, found.y, each, low, seed)
        settings |= {"low": low, "source": "mixed"}
    names = tuple(f"ambiguous-{round(100 * share)}" for share in SHARES)
    made = Dataset("ambiguous_mnist", x, y, 10, natural=client, natural_names=names)
    return made.named("ambiguous_mnist", **settings)
