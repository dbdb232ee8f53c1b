"""Files of strangers, given to the command line: no code of theirs runs unless it was allowed."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

import fedparity

EXPERIMENT = "data: eagle_synthetic(n=10)\nrounds: 1\nlstar: none\n"
NETS = """
from os import popen as opened, system
from pathlib import Path
from torch import nn

Path("imported").touch()

def small(shape, outputs):
    return nn.Linear(shape[0], outputs)

class Touch:
    def __init__(self):
        Path("mark").touch()

def touch():
    Path("mark").touch()
"""
ATTACKS = (
    "os:system(command='touch mark')",
    "subprocess:run(args='touch mark', shell=true)",
    'builtins:exec(source=\'open("mark", "w")\')',
    "posixpath:os.system(command='touch mark')",
    "{nets}:small",
)
BEYOND = ("{nets}:system(command='touch mark')", "{nets}:opened(cmd='touch mark')", "{nets}:Touch")
DOORS = {
    "run": ("run", "file.yaml"),
    "run a run": ("run", "run"),
    "profile": ("profile", "file.yaml", "--rounds", "1"),
    "compare": ("compare", "file.yaml", "--algorithms", "fedavg,afl"),
    "resume": ("resume", "run"),
    "resume a comparison": ("resume", "comparison", "--rounds", "2"),
}

PLACES = {
    "part": ("algorithm", "CODE"),
    "part beside others": ("algorithm", "fedprox(mu=0.1)+CODE"),
    "dataset": ("data", "CODE"),
    "partition": ("data", {"dataset": "digits", "partition": "CODE", "clients": 3}),
    "noise": ("data", {"dataset": "eagle_synthetic(n=10)", "noise": "CODE"}),
    "noise by steps": ("data", {"dataset": "eagle_synthetic(n=10)", "noise": [{"noise": "CODE"}]}),
    "task": ("task", "CODE"),
    "sampling": ("sampling", "CODE"),
}
"""Where else than as its model a file may name code."""


@pytest.fixture
def nets(cli, tmp_path: Path) -> str:
    """Return the name of a module in the current directory, which leaves a mark when imported."""
    name = f"nets_{tmp_path.name}".replace("-", "_")
    Path(f"{name}.py").write_text(NETS)
    return name


def write(model: str) -> None:
    """Write what a stranger sends: a file, a run that was begun, a comparison that was begun."""
    text = EXPERIMENT + yaml.safe_dump({"model": model})
    Path("file.yaml").write_text(text)
    for folder, file in (("run", "experiment.yaml"), ("comparison", "comparison.yaml")):
        Path(folder).mkdir()
        Path(folder, file).write_text(f"{text}algorithms: [fedavg]\n" * (folder != "run") or text)


def refused(done) -> bool:
    """Tell whether a command was refused in one line, and nothing of the stranger's ran."""
    one_line = done.err.count("\n") == 1 and done.out == ""
    return done.code == 2 and one_line and not Path("mark").exists()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda text: text.partition("(")[0])
@pytest.mark.parametrize("door", DOORS)
def test_a_file_does_not_run_code(cli, nets, door, attack):
    write(attack.format(nets=nets))
    done = cli(*DOORS[door])
    assert refused(done)
    assert not Path("imported").exists()
    if "os.system" not in attack:  # that is no import path at all
        assert attack.partition("(")[0].format(nets=nets) in done.err
        assert "--allow-import" in done.err


def place(what: str, code: str) -> None:
    """Write a stranger's files that name code in another place than the model."""
    write("linear")
    key, template = PLACES[what]
    value = json.loads(json.dumps(template).replace("CODE", json.dumps(code)[1:-1]))
    for file in ("file.yaml", "run/experiment.yaml", "comparison/comparison.yaml"):
        told = {**yaml.safe_load(Path(file).read_text()), key: value}
        Path(file).write_text(yaml.safe_dump(told))


CASES = [
    *itertools.product(("run", "resume"), PLACES),
    *itertools.product(("compare", "resume a comparison"), ("dataset", "task", "sampling")),
]


@pytest.mark.parametrize("code", ["{nets}:touch", "os:system(command='touch mark')"])
@pytest.mark.parametrize(("door", "what"), CASES)
def test_whatever_a_file_names_runs_no_code(cli, nets, door, what, code):
    place(what, code.format(nets=nets))
    done = cli(*DOORS[door])
    assert refused(done)
    assert code.partition("(")[0].format(nets=nets) in done.err
    assert "--allow-import" in done.err
    assert not Path("imported").exists()


@pytest.mark.parametrize("door", ["compare", "resume a comparison"])
def test_algorithms_of_a_comparison_are_data_too(cli, nets, door):
    write("linear")
    for file in ("file.yaml", "comparison/comparison.yaml"):
        told = {**yaml.safe_load(Path(file).read_text()), "algorithms": ["fedavg", f"{nets}:touch"]}
        Path(file).write_text(yaml.safe_dump(told))
    assert refused(cli(*DOORS[door][:2]))
    assert not Path("imported").exists()


def test_the_name_that_a_run_was_given_runs_no_code(cli, nets):
    write("linear")
    assert cli("run", "file.yaml", "--out", "sent").code == 0
    file = Path("sent/experiment.yaml")
    file.write_text(file.read_text().replace("written_as: fedavg", f"written_as: {nets}:touch"))
    Path("sent/checksums.json").unlink()
    assert cli("resume", "sent", "--rounds", "2").code == 0
    assert not Path("imported").exists()


@pytest.mark.parametrize("what", PLACES)
def test_what_allowed_code_makes_must_be_what_is_asked_for(cli, nets, what):
    place(what, f"{nets}:touch")
    done = cli("run", "file.yaml", "--allow-import", nets)
    assert (done.code, done.err.count("\n")) == (2, 1)
    told = "takes 0 positional arguments" if what == "task" else "made a NoneType"
    assert told in done.err


@pytest.mark.parametrize("attack", BEYOND)
@pytest.mark.parametrize("door", ["run", "resume"])
def test_an_allowed_module_lends_nobody_what_it_imported(cli, nets, door, attack):
    write(attack.format(nets=nets))
    assert refused(cli(*DOORS[door], "--allow-import", nets))


@pytest.mark.parametrize("door", [door for door in DOORS if door != "resume"])
def test_what_is_allowed_runs_and_is_found_in_the_current_directory(cli, nets, door):
    write(f"{nets}:small")
    done = cli(*DOORS[door], "--allow-import", "other_package", "--allow-import", nets)
    assert done.code == 0, done.err
    assert "3 clients, 6 parameters" in done.out


def test_a_model_on_the_command_line_is_named_by_who_wrote_it(cli, nets):
    write(ATTACKS[0])
    done = cli("run", "file.yaml", "--model", f"{nets}:small", "--out", "mine")
    assert done.code == 0, done.err
    again = cli("resume", "mine", "--rounds", "2")
    assert refused(again)
    assert f"'{nets}:small'" in again.err
    assert cli("resume", "mine", "--rounds", "2", "--allow-import", nets).code == 0


def test_a_package_is_allowed_by_its_name(cli):
    write("linear")
    done = cli("run", "file.yaml", "--allow-import", "../nets.py")
    assert refused(done)
    assert "name a package" in done.err


@pytest.mark.parametrize(
    "args",
    [("list", "models"), ("run", "file.yaml"), ("run", "file.yaml", "--allow-import", "yaml")],
)
def test_the_current_directory_is_not_on_the_path(cli, args):
    write("linear")
    cli(*args)
    assert os.getcwd() not in sys.path
    assert "" not in sys.path


def test_python_m_does_not_import_from_the_current_directory(tmp_path):
    (tmp_path / "typer.py").write_text("raise SystemExit('imported from the current directory')")
    source = str(Path(fedparity.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-m", "fedparity", "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("fedparity "), done.stderr


LINKS = ("lock", "log.jsonl", "experiment.yaml.part", "checkpoint/state.json", "clients.parquet")


@pytest.mark.parametrize("link", LINKS)
def test_a_run_is_not_written_where_links_lead(cli, link):
    write("linear")
    assert cli("run", "file.yaml", "--out", "linked").code == 0
    Path("private").write_text("mine")
    Path("linked", link).unlink(missing_ok=True)
    Path("linked", link).symlink_to(Path("private").absolute())
    done = cli("resume", "linked", "--rounds", "2")
    assert refused(done)
    assert f"linked/{link} is a link" in done.err
    assert Path("private").read_text() == "mine"


def test_a_comparison_is_not_written_where_links_lead(cli):
    write("linear")
    Path("elsewhere").mkdir()
    Path("comparison/fedavg").symlink_to(Path("elsewhere").absolute())
    done = cli("resume", "comparison")
    assert refused(done)
    assert "comparison/fedavg is a link" in done.err
    assert list(Path("elsewhere").iterdir()) == []


def test_names_out_of_files_do_not_move_the_cursor(cli):
    write("linear")
    assert cli("run", "file.yaml", "--out", "loud").code == 0
    table = pd.read_parquet("loud/clients.parquet")
    table.assign(client=["\x1b[2Jcleared", "b", "c"]).to_parquet("loud/clients.parquet")
    Path("loud/checksums.json").unlink()
    shown = cli("resume", "loud")
    assert "?[2Jclear" in shown.out
    assert "\x1b" not in shown.out
    Path("file.yaml").write_text(EXPERIMENT + 'model: "\\e[2Jlinear"\n')
    told = cli("run", "file.yaml")
    assert "?[2Jlinear" in told.err
    assert "\x1b" not in told.err


def test_a_file_of_brackets_is_one_line(cli):
    Path("deep.yaml").write_text("data: " + "[" * 100_000)
    assert refused(cli("run", "deep.yaml"))
