"""Two clients that show why equal losses are not equal gaps."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from fedparity.arguments import checked
from fedparity.data.dataset import Dataset
from fedparity.learning.seeds import generator

Distance = Annotated[float, Field(ge=0, le=10)]


@checked
def easy_and_hard(
    seed: Annotated[int, Field(ge=0)] = 0,
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
