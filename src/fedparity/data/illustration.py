"""Gaussian clients: those of the EAGLE paper, and two on which equal losses are not fair."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from fedparity.arguments import checked
from fedparity.data.dataset import Dataset
from fedparity.data.synthetic import eagle_clients
from fedparity.learning.seeds import generator

Seed = Annotated[int, Field(ge=0)]
Distance = Annotated[float, Field(ge=0, le=10)]


@checked
def eagle_synthetic(
    seed: Seed = 0,
    n: Annotated[int, Field(ge=2, le=1_000_000)] = 100,
    rotated: Annotated[int, Field(ge=1, le=3)] = 3,
) -> Dataset:
    r"""Three Gaussian clients that are unlike in difficulty and in direction.

    .. math:: x \mid y \sim N(\pm(m_k, m_k), I), \qquad m = (2, 0.5, 0.1)

    for the natural clients client-1, client-2, client-3 and the sign of the class; half of the
    ``n`` points of a client are of each class. The points of client ``rotated`` are turned by 45
    degrees about the origin, so that its best boundary is not that of the others.

    Notes
    -----
    The paper rotates "client 2" and numbers its clients 0, 1, 2, as its figure does: it is the one
    with means (0.1, 0.1), here client-3.

    References
    ----------
    Erraji, Perrot, Bellet. Loss gap parity for fairness in heterogeneous federated learning. 2026.
    """
    x, y, client = eagle_clients(seed, n, rotated - 1)
    names = ("client-1", "client-2", "client-3")
    made = Dataset(
        "eagle_synthetic", x.astype(np.float32), y, 2, natural=client, natural_names=names
    )
    return made.named("eagle_synthetic", seed=seed, n=n, rotated=rotated)


@checked
def easy_and_hard(
    seed: Seed = 0,
    n: Annotated[int, Field(ge=2, le=1_000_000)] = 4000,
    near: Distance = 1.0,
    far: Distance = 2.0,
) -> Dataset:
    r"""Two Gaussian clients, of whom one has an easy task and the other a hard one.

    .. math:: x \mid y \sim N(\pm(far, 0), I) \text{ on easy}, \qquad
              x \mid y \sim N(\pm(0, near), I) \text{ on hard}

    for the sign of the class; half of the ``n`` points of a client are of each. The best boundaries
    are perpendicular, and the hard client's loss is the larger one whatever the model. So a method
    that equalises losses trains for the hard client alone, and the easy one pays for nothing that
    the hard one could not reach by itself; one that equalises loss gaps finds a model between them.

    Notes
    -----
    This shows what Figure 1 of the EAGLE paper shows; its own points are not published, so figures
    will differ.

    References
    ----------
    Erraji, Perrot, Bellet. Loss gap parity for fairness in heterogeneous federated learning. 2026.
    """
    rng = generator(seed, "easy_and_hard")
    y = np.tile(np.arange(n) % 2, 2)
    client = np.repeat([0, 1], n)
    centre = np.asarray([(far, 0.0), (0.0, near)])[client] * np.where(y == 1, 1.0, -1.0)[:, None]
    x = (rng.standard_normal((2 * n, 2)) + centre).astype(np.float32)
    made = Dataset("easy_and_hard", x, y, 2, natural=client, natural_names=("easy", "hard"))
    return made.named("easy_and_hard", seed=seed, n=n, near=near, far=far)
