"""The Flower app that is written for an experiment."""

from __future__ import annotations

import importlib
import io
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "fedparity[flower]"')

from flwr.cli.build import build_fab_from_disk
from flwr.common.config import get_fab_config

from fedparity.deploy.app import clients_of, new_app, run_config
from fedparity.errors import InputError
from fedparity.records.settings import federation_of

EXPERIMENT = """\
data: eagle_synthetic(n=20)
model: linear
algorithm: eagle(lam=1)
rounds: 2
min_replies: 2
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    file = tmp_path / "experiment.yaml"
    file.write_text(EXPERIMENT)
    return file


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's own
def test_an_app_is_what_flower_takes_and_nothing_else_is_sent(tmp_path, experiment):
    folder = tmp_path / "three-sites"
    new_app(folder, experiment)
    (folder / "patients.json").write_text("[]")
    fab = build_fab_from_disk(folder)
    sent = {n for n in zipfile.ZipFile(io.BytesIO(fab)).namelist() if not n.startswith(".info")}
    assert sent == {
        "pyproject.toml",
        "task.py",
        "client_app.py",
        "server_app.py",
        "experiment.yaml",
    }
    config = get_fab_config(fab)["tool"]["flwr"]["app"]["config"]
    assert config["clients"] == "client-1,client-2,client-3"
    assert "min-replies" not in config  # the experiment's counts
    assert clients_of(folder) == ["client-1", "client-2", "client-3"]


def test_each_client_loads_its_share_of_the_experiment(tmp_path, experiment, monkeypatch):
    new_app(tmp_path / "app", experiment)
    monkeypatch.syspath_prepend(tmp_path / "app")
    task = importlib.import_module("task")
    monkeypatch.delitem(sys.modules, "task")
    whole = federation_of({"data": "eagle_synthetic(n=20)"})
    for place, name in enumerate(whole.names):
        share = task.load(name)
        begin, last = whole.train.offsets[place : place + 2]
        assert share.names == (name,)
        assert share.train.x.equal(whole.train.x[begin:last])


def test_an_experiment_that_is_wrong_makes_no_app(tmp_path, experiment):
    experiment.write_text(EXPERIMENT.replace("eagle(lam", "egale(lam"))
    with pytest.raises(InputError, match="did you mean 'eagle'"):
        new_app(tmp_path / "app", experiment)
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.yaml"]


def test_an_app_carries_what_its_author_allowed(tmp_path, experiment, monkeypatch):
    name = f"nets_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(
        "from torch import nn\n\ndef small(shape, outputs):\n    return nn.Linear(2, outputs)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    experiment.write_text(EXPERIMENT.replace("linear", f"{name}:small"))
    with pytest.raises(InputError, match=f"--allow-import {name}"):
        new_app(tmp_path / "app", experiment)
    assert not (tmp_path / "app").exists()
    new_app(tmp_path / "app", experiment, [name])
    for half, given in (("client", "EXPERIMENT, load"), ("server", "EXPERIMENT")):
        written = (tmp_path / "app" / f"{half}_app.py").read_text()
        assert f'app = make_{half}_app({given}, allow_import=["{name}"])\n' in written


def test_a_directory_that_is_used_is_left_alone(tmp_path, experiment):
    with pytest.raises(InputError, match="not an empty directory"):
        new_app(tmp_path, experiment)
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.yaml"]


@pytest.mark.parametrize("name", ["a,b", " a", ""])
def test_a_name_that_cannot_be_told_from_two_is_refused(name):
    with pytest.raises(InputError, match="cannot be a client id"):
        run_config(["fine", name], "runs")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "cannot read .* 'fedparity flower new"),
        ("[project", "not valid TOML"),
        ("[project]\n", "not of a Flower app"),
        ("[tool.flwr.app]\nconfig = 3\n", "not of a Flower app"),
    ],
)
def test_a_folder_that_is_no_app_is_named(tmp_path, text, told):
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(InputError, match=told):
        clients_of(tmp_path)
