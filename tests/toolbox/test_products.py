"""Products of updates, block by block."""

from __future__ import annotations

import functools
import os
import signal
import time

import numpy as np
import pytest

from fedparity.engines.engine import intraop
from fedparity.toolbox import products
from fedparity.toolbox.products import gram_matrix, inner_products, mixture
from fedparity.workers import Crew


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_blocks_of_columns_add_up_to_the_whole_in_float64(monkeypatch, kind):
    monkeypatch.setattr(products, "PRODUCT_BLOCK", 20)  # four columns of five updates
    draw = np.random.default_rng(0)
    updates = draw.normal(1, 1, (5, 43)).astype(kind)
    mix, g, wide = draw.normal(size=5), draw.normal(size=43), updates.astype(np.float64)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-12)
    close(gram_matrix(updates), wide @ wide.T)
    close(mixture(mix, updates), mix @ wide)
    close(inner_products(updates, g), wide @ g)


def test_rough_products_of_large_updates_are_off_by_their_own_rounding(monkeypatch):
    draw = np.random.default_rng(0)
    wide = draw.normal(1, 1, (5, 43))
    updates = wide.astype(np.float32)
    exact = gram_matrix(updates)
    assert np.array_equal(gram_matrix(updates, rough=True), exact)  # small ones cost nothing
    monkeypatch.setattr(products, "PRODUCT_BLOCK", 20)
    rough = gram_matrix(updates, rough=True)
    assert rough.dtype == np.float64
    assert not np.array_equal(rough, exact)
    lengths = np.sqrt(exact.diagonal())
    np.testing.assert_allclose(
        rough / np.outer(lengths, lengths), exact / np.outer(lengths, lengths), atol=3e-7
    )
    np.testing.assert_allclose(gram_matrix(wide, rough=True), wide @ wide.T, rtol=1e-12)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_workers_of_its_own(monkeypatch):
    monkeypatch.setattr(products, "PRODUCT_BLOCK", 20)
    updates = np.ones((5, 43))
    gram_matrix(updates)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(float(gram_matrix(updates)[0, 0]) != 43)
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


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_number_of_workers_does_not_show(monkeypatch, kind):
    monkeypatch.setattr(products, "PRODUCT_BLOCK", 300)
    updates = np.random.default_rng(0).normal(size=(5, 999)).astype(kind)
    mix, g = np.arange(5.0), updates[0].astype(np.float64)
    found = []
    for workers in (1, 3):
        crew = Crew([None] * workers)
        monkeypatch.setattr(products, "_crew", lambda crew=crew: crew)
        with intraop(1):
            every = gram_matrix(updates), inner_products(updates, g)
            found.append([*every, mixture(mix, updates)])
        crew.close()
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)
