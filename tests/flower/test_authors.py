"""All that an author's part may say is the same on loop, stack and Flower, and after a resume."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed")

from authors import Asking, Everything
from inprocess import SETTINGS, vector

from fedparity.flower import make_client_app
from fedparity.flower.agreement import settings_of
from fedparity.flower.config import run_config
from fedparity.flower.server_app import serve
from fedparity.flower.testing import LocalGrid
from fedparity.imports import Allowed
from fedparity.method import HOOKS
from fedparity.run.file import experiment
from fedparity.testing import CHECKS, Trial, unlike_clients


def test_they_have_all_hooks_that_can_stand_together():
    apart = {"examples", "second", "look", "judge", "mixture", "guarantee"}
    assert Everything().hooks | Asking().hooks == set(HOOKS) - apart


@pytest.mark.parametrize("check", ["engines", "resume", "order", "schema", "pure"])
@pytest.mark.parametrize("part", [Everything(), Asking()], ids=["everything", "asking"])
def test_they_keep_the_contract(part, check):
    CHECKS[check](part, Trial())


def test_flower_gives_the_simulators_bits(tmp_path):
    settings = {**SETTINGS, "lstar": "none"}
    settings["algorithm"] = "authors:Asking+authors:Everything(strength=0.2)"
    allowed, clients = Allowed.by("authors"), unlike_clients()
    known = {**settings, "engine": "loop"}
    simulated = experiment(known, federation=clients, allowed=allowed).run()
    app = make_client_app(settings, clients.only, allow_import="authors")
    grid = LocalGrid(app, clients.names, tmp_path / "sites")
    told = {"clients": ",".join(clients.names), "out": str(tmp_path / "run"), "wait": 0.0}
    deployed = serve(settings_of(settings), None, grid, run_config(told), allowed=allowed)
    assert torch.equal(vector(deployed), vector(simulated))
    pd.testing.assert_frame_equal(deployed.history, simulated.history, check_exact=True)
