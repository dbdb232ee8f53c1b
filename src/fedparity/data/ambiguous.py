"""Handwritten digits of which some could be read in two ways."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from fedparity.arguments import checked
from fedparity.data.dataset import Dataset
from fedparity.data.images import Reading, read_mnist_like
from fedparity.data.split import Ints
from fedparity.errors import InputError
from fedparity.learning.seeds import generator

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The part of each client's examples that is ambiguous."""
Pixels = npt.NDArray[np.float32]


def ambiguous_clients(
    x: npt.NDArray[np.uint8], y: Ints, each: int, low: float, seed: int
) -> tuple[Pixels, Ints, Ints]:
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


@checked
def ambiguous_mnist(
    each: Annotated[int, Field(ge=8, le=8000)] = 1000,
    low: Annotated[float, Field(gt=0, le=0.5)] = 0.4,
    seed: Annotated[int, Field(ge=0)] = 0,
    data_dir: Path | str | None = None,
) -> Dataset:
    """Five clients of whose digits none, a quarter, half, three quarters and all are ambiguous.

    Natural clients ambiguous-0 to ambiguous-100, of ``each`` images. An ambiguous digit is a mix of
    MNIST images of two digits, of which each has a share of at least ``low``, and its label is one
    of the two by chance: nobody can tell it, so the best loss differs from client to client. Read
    from the files of ``mnist``; no image occurs twice.

    Notes
    -----
    The EAGLE paper has such clients of DirtyMNIST, whose ambiguous digits come out of a generative
    model. These are made by interpolation, so numbers will differ from the paper's.

    References
    ----------
    Erraji, Perrot, Bellet. Loss gap parity for fairness in heterogeneous federated learning. 2026.
    Mukhoti, Kirsch, van Amersfoort, Torr, Gal. Deep deterministic uncertainty. CVPR 2023.
    """
    remedy = "get the four files of the MNIST database (LeCun, Cortes, Burges) as .gz"
    found = read_mnist_like("mnist", "MNIST/raw", remedy, Reading(), data_dir)
    x, y, client = ambiguous_clients(found.x, found.y, each, low, seed)
    names = tuple(f"ambiguous-{round(100 * share)}" for share in SHARES)
    made = Dataset("ambiguous_mnist", x, y, 10, natural=client, natural_names=names)
    return made.named("ambiguous_mnist", each=each, low=low, seed=seed)
