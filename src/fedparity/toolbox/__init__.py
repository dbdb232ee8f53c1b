"""Tools for authors of methods: the simplex, products of a round's updates, and shortest mixtures.

Noise of the server's is ``ctx.noise``, that of a client ``c.noise``; strict settings are
``fedparity.method.STRICT``.

>>> import torch
>>> project(torch.tensor([0.5, 1.0, 0.0]))
tensor([0.2500, 0.7500, 0.0000])
"""

from fedparity.toolbox.products import gram_matrix, inner_products, mixture
from fedparity.toolbox.shortest import min_norm
from fedparity.toolbox.simplex import project

__all__ = ["gram_matrix", "inner_products", "min_norm", "mixture", "project"]
