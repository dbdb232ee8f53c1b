"""Who names the code of a federation: its app, and no file, run config or message."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from inprocess import SETTINGS

from fedparity.errors import InputError
from fedparity.flower import make_client_app, server_app
from fedparity.flower.agreement import settings_of
from fedparity.flower.config import run_config
from fedparity.flower.server_app import serve
from fedparity.flower.testing import LocalGrid
from fedparity.imports import Allowed
from fedparity.testing import unlike_clients

ATTACK = "os:system(command='touch mark')"
NETS = """
from pathlib import Path
from torch import nn

Path("imported").touch()

def small(shape, outputs):
    return nn.Linear(shape[0], outputs)
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module that every site and the server could import."""
    name = f"nets_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def run(
    model: str = "linear",
    sites: tuple[str, ...] = (),
    server: tuple[str, ...] = (),
    **more: str,
) -> int:
    """Run an experiment file on sites and a server that allow these packages."""
    settings = {**SETTINGS, "model": model, "rounds": 1, "lstar": "none", **more}
    federation = unlike_clients()
    app = make_client_app(settings, federation.only, allow_import=sites)
    told = {"clients": ",".join(federation.names), "out": "run", "wait": 0.0}
    return serve(
        settings_of(settings),
        None,
        LocalGrid(app, federation.names, "sites"),
        run_config(told),
        allowed=Allowed.by(server),
    ).rounds


@pytest.mark.parametrize("model", [ATTACK, "{nets}:small"])
def test_a_site_runs_no_code_that_its_app_does_not_allow(nets, model):
    with pytest.raises(InputError, match=r"its site failed: .*--allow-import"):
        run(model.format(nets=nets), server=(nets,))
    assert not Path("mark").exists()
    assert not Path("imported").exists()


@pytest.mark.parametrize("key", ["algorithm", "task"])
@pytest.mark.parametrize("code", [ATTACK, "{nets}:small"])
def test_neither_side_runs_code_in_another_setting(nets, key, code):
    with pytest.raises(InputError, match="--allow-import"):
        run(**{key: code.format(nets=nets)})
    assert not Path("mark").exists()
    assert not Path("imported").exists()


@pytest.mark.parametrize("key", ["algorithm", "task", "model", "metrics"])
def test_a_site_only_compares_the_settings_that_a_server_tells(nets, monkeypatch, key):
    told = server_app.agreed
    lie = {key: f"{nets}:small"}
    monkeypatch.setattr(server_app, "agreed", lambda *given: {**told(*given), **lie})
    with pytest.raises(InputError, match=f"its {key} is .*, the server's is '{nets}:small'"):
        run(sites=(nets,), server=(nets,))
    assert not Path("imported").exists()


def test_the_server_runs_no_code_that_its_app_does_not_allow(nets):
    with pytest.raises(InputError, match=f"'{nets}:small'.*--allow-import {nets}"):
        run(f"{nets}:small", sites=(nets,))
    assert not Path("run").exists()


def test_an_app_may_allow_a_package(nets):
    assert run(f"{nets}:small", sites=(nets,), server=(nets,)) == 1


@pytest.mark.parametrize("key", ["model", "allow-import", "experiment", "task"])
def test_a_run_config_names_no_code(key):
    with pytest.raises(InputError, match=f"unknown key of the run config '{key}'"):
        run_config({"clients": "0", "out": "run", key: ATTACK})
