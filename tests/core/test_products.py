"""Products of updates, block by block."""

from __future__ import annotations

import functools
import os
import signal
import time

import numpy as np
import pytest
import torch

from fedparity.core import products
from fedparity.core.crew import Crew
from fedparity.core.products import gram_matrix, inner_products, mixture
from fedparity.engines.setup import intraop


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_blocks_of_columns_add_up_to_the_whole(monkeypatch, dtype):
    monkeypatch.setattr(products, "BLOCK", 20)  # four columns of five updates
    monkeypatch.setattr(products, "READ", 30)
    draw = torch.Generator().manual_seed(0)
    updates = torch.randn(5, 43, dtype=dtype, generator=draw)
    mix, g = (torch.randn(n, dtype=torch.float64, generator=draw).numpy() for n in (5, 43))
    narrow, wide = updates.numpy(), updates.double().numpy()
    rounding = 300 * torch.finfo(dtype).eps
    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=rounding)
    close(gram_matrix(narrow, narrow.dtype), wide @ wide.T)
    close(mixture(mix, narrow, narrow.dtype), mix @ wide)
    close(inner_products(narrow, g), wide @ g)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_workers_of_its_own(monkeypatch):
    monkeypatch.setattr(products, "BLOCK", 20)
    updates = np.ones((5, 43))
    gram_matrix(updates, updates.dtype)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(float(gram_matrix(updates, updates.dtype)[0, 0]) != 43)
        finally:
            os._exit(code)
    for _ in range(200):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert done
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("m", [1, 2, 3, 8])
def test_products_of_float32_updates_are_right_to_their_rounding(m):
    width = products.BLOCK // m + 5  # a full block and a bit
    updates = np.random.default_rng(m).normal(1, 1, (m, width)).astype(np.float32)
    wide = updates.astype(np.float64)
    wanted, scale = wide @ wide.T, 2 * width
    rough = 2e-5  # half a million float32 terms, if one after the other: about 1e-5 is usual
    found = gram_matrix(updates, updates.dtype)
    np.testing.assert_allclose(found / scale, wanted / scale, rtol=0, atol=rough)
    exact = gram_matrix(updates, np.dtype(np.float64))
    np.testing.assert_allclose(exact, wanted, rtol=1e-12)
    g = wide[0]
    along = inner_products(updates, g)
    np.testing.assert_allclose(along / scale, wide @ g / scale, rtol=0, atol=rough)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_number_of_workers_does_not_show(monkeypatch, kind):
    monkeypatch.setattr(products, "BLOCK", 300)
    monkeypatch.setattr(products, "READ", 500)
    updates = np.random.default_rng(0).normal(size=(5, 999)).astype(kind)
    mix, g = np.arange(5.0), updates[0].astype(np.float64)
    found = []
    for workers in (1, 3):
        crew = Crew([None] * workers)
        monkeypatch.setattr(products, "_crew", lambda crew=crew: crew)
        with intraop(1):
            every = gram_matrix(updates, updates.dtype), inner_products(updates, g)
            found.append([*every, mixture(mix, updates, updates.dtype)])
        crew.close()
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


def test_a_mixture_of_some_rows_is_that_of_all_with_zeros():
    updates = np.random.default_rng(0).normal(size=(5, 40))
    coefficients, kind = np.array([0.0, 2.0, 0.0, -1.0, 0.0]), updates.dtype
    rows = np.flatnonzero(coefficients)
    found = mixture(coefficients[rows], updates, kind, rows)
    wanted = mixture(coefficients, updates, kind)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)
