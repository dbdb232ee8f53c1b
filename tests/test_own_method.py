"""The package of examples/own_method: from Python, from the command line, resumed, on Flower."""

from __future__ import annotations

import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

import fedparity as fp
from fedparity.cli import main
from fedparity.errors import InputError
from fedparity.imports import Allowed
from fedparity.records.settings import federation_of
from fedparity.run.file import experiment
from fedparity.testing import CHECKS, Trial

EXAMPLE = Path(__file__).parent.parent / "examples" / "own_method"
SETTINGS = yaml.safe_load((EXAMPLE / "experiment.yaml").read_text(encoding="utf-8"))
PATHS = (
    "own_method.data:rivers, own_method.partition:Uneven, own_method.part:Tempered, "
    "own_method.metric:missed"
)
MINE = ("--allow-import", "own_method")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in an empty directory, with a copy of the example on Python's path."""
    shutil.copytree(EXAMPLE, tmp_path / "example")
    monkeypatch.syspath_prepend(str(tmp_path / "example"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_method"]:
        del sys.modules[name]


@pytest.fixture
def installed(folder: Path) -> None:
    """Let the copy look as if it were installed, with the entry points of its pyproject."""
    text = (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    groups = re.findall(r'^\[project\.entry-points\."(.+)"\]\n((?:.+\n)+)', text, re.MULTILINE)
    info = folder / "example" / "own_method-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: own-method\nVersion: 1.0.0\n")
    offers = [f"[{group}]\n{lines}" for group, lines in groups]
    (info / "entry_points.txt").write_text("\n".join(offers).replace('"', ""))


def command(*args: str) -> int | str | None:
    with pytest.raises(SystemExit) as end:
        main(args)
    return end.value.code


def state(run: str) -> dict[str, torch.Tensor]:
    return load_file(Path(run, "checkpoint", "state.safetensors"))


def same(one: str, two: str) -> bool:
    first, second = state(one), state(two)
    return first.keys() == second.keys() and all(first[k].equal(second[k]) for k in first)


def in_python(out: str, rounds: int) -> fp.Result:
    """Run what experiment.yaml says, made of objects."""
    from own_method import Tempered, Uneven, missed

    data = fp.datasets.load("own_method.data:rivers(n=40)")
    return fp.Experiment(
        data.split(Uneven(ratio=1.5), clients=4),
        "linear",
        [fp.algorithm("prox(mu=0.1)").parts[0], Tempered(beta=0.5)],
        rounds=rounds,
        solver=fp.Solver(lr=0.1, steps=3, batch=8),
        dtype="float64",
        lstar="none",
        metrics=[fp.Metric(missed, better="lower")],
    ).run(out=out)


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_part_keeps_the_contract(check):
    from own_method import Tempered

    check(Tempered(), Trial())


def test_python_and_the_command_line_are_one_run_and_both_resume(capsys):
    in_python("python", rounds=4)
    assert command("run", "example/experiment.yaml", *MINE, "--out", "file") == 0
    assert f"imported: {PATHS}\n" in capsys.readouterr().out
    assert same("python", "file")
    assert in_python("whole", rounds=6).rounds == 6
    assert command("resume", "file", "--rounds", "6", *MINE) == 0
    assert fp.resume("python", rounds=6, allow_import="own_method").rounds == 6
    assert same("whole", "file")
    assert same("whole", "python")
    again = fp.load("whole", allow_import="own_method")
    assert again.describe()["algorithm"] == "prox(mu=0.1)+own_method.part:Tempered(beta=0.5)"
    assert again.federation.names == ("client-0", "client-1", "client-2", "client-3")


@pytest.mark.parametrize("door", ["run", "resume", "compare", "load", "resume in python"])
def test_without_permission_nothing_of_it_is_imported(door, capsys):
    in_python("mine", rounds=1)
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_method"]:
        del sys.modules[name]
    if door == "load":
        with pytest.raises(InputError, match="allow_import='own_method'"):
            fp.load("mine")
    elif door == "resume in python":
        with pytest.raises(InputError, match="allow_import='own_method'"):
            fp.resume("mine", rounds=2)
    else:
        more = {"compare": ("--algorithms", "fedavg"), "resume": ("--rounds", "2")}
        assert command(door, "mine", *more.get(door, ())) == 2
        assert "--allow-import own_method" in capsys.readouterr().err
    assert "own_method" not in sys.modules


def test_a_comparison_is_resumed(capsys):
    texts = "fedavg,own_method.part:Tempered(beta=0.9)"
    started = ("--algorithms", texts, "--rounds", "1", "--out", "both", *MINE)
    assert command("compare", "example/experiment.yaml", *started) == 0
    told = "own_method.data:rivers, own_method.partition:Uneven, own_method.metric:missed"
    assert f"imported: {told}, own_method.part:Tempered\n" in capsys.readouterr().out
    assert command("resume", "both", "--rounds", "2") == 2
    assert command("resume", "both", "--rounds", "2", *MINE) == 0
    assert "Tempered(beta=0.9)" in capsys.readouterr().out


def test_what_is_typed_needs_no_permission(capsys):
    told = ("--data", "own_method.data:rivers(n=20)", "--model", "linear", "--rounds", "1")
    typed = ("--algorithm", "own_method.part:Tempered+fedprox", "--lstar", "none")
    assert command("run", *told, *typed, "--out", "typed") == 0
    assert "imported: own_method.data:rivers, own_method.part:Tempered\n" in capsys.readouterr().out
    assert command("explain", "own_method.part:Tempered(beta=0.9)") == 0
    assert "share of what was sent before" in capsys.readouterr().out.lower()
    assert command("run", *told[2:], "--data", "eagle_synthetic", "--algorithm", "tempered") == 2
    assert "unknown algorithm 'tempered'" in capsys.readouterr().err


def test_once_installed_short_names_are_as_good_as_fedparitys_own(installed, capsys):
    told = ("--data", "rivers(n=40)", "--partition", "uneven(ratio=1.5)", "--clients", "4")
    more = ("--model", "linear", "--lstar", "none", "--rounds", "1")
    assert command("list", "parts") == 0
    assert "Installed beside these: tempered (own_method.part:Tempered)." in capsys.readouterr().out
    assert "own_method" not in sys.modules
    assert command("run", *told, *more, "--algorithm", "prox+tempered", "--out", "short") == 0
    recorded = yaml.safe_load(Path("short/experiment.yaml").read_text())
    assert recorded["data"]["dataset"] == "own_method.data:rivers(n=40, seed=0)"
    assert recorded["data"]["partition"] == "own_method.partition:Uneven(ratio=1.5)"
    assert recorded["algorithm"] == "prox(mu=0.1)+own_method.part:Tempered(beta=0.5)"
    assert recorded["record"]["written_as"] == "prox+tempered"
    assert command("resume", "short", "--rounds", "2") == 0


def test_an_app_of_it_cuts_out_the_clients_of_its_own_data():
    from fedparity.deploy.app import new_app

    new_app(Path("app"), Path("example/experiment.yaml"), ["own_method"])
    load = runpy.run_path("app/task.py")["load"]
    whole = federation_of(SETTINGS, allowed=Allowed.by("own_method"))
    assert load("client-2").fingerprint == whole.only("client-2").fingerprint


def test_on_flower_it_gives_the_simulators_bits(folder):
    pytest.importorskip("flwr")
    from fedparity.flower import make_client_app
    from fedparity.flower.agreement import settings_of
    from fedparity.flower.config import run_config
    from fedparity.flower.server_app import serve
    from fedparity.flower.testing import LocalGrid

    allowed = Allowed.by("own_method")
    federation = federation_of(SETTINGS, allowed=allowed)
    simulated = experiment({**SETTINGS, "engine": "loop"}, allowed=allowed).run()

    def flower(out: str, site: str | tuple[()], server: Allowed) -> fp.Result:
        app = make_client_app(SETTINGS, federation.only, allow_import=site)
        grid = LocalGrid(app, federation.names, folder / f"{out}-sites")
        told = {"clients": ",".join(federation.names), "out": out, "wait": 0.0}
        return serve(settings_of(SETTINGS), None, grid, run_config(told), allowed=server)

    result = flower("flower", "own_method", allowed)
    assert "test_missed" in result.clients
    assert result.settings["algorithm"] == "prox(mu=0.1)+own_method.part:Tempered(beta=0.5)"
    for mine, known in zip(
        result.model().parameters(), simulated.model().parameters(), strict=True
    ):
        assert mine.equal(known)
    # A site whose app does not allow the package takes no name from the server.
    with pytest.raises(fp.FedparityError, match="the algorithm is code, 'own_method"):
        flower("refused", (), allowed)
