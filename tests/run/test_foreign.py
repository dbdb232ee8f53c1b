"""Files of strangers, opened in Python: no code of theirs runs unless it was allowed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

import fedparity as fp
from fedparity.errors import InputError
from fedparity.records.checksums import Checksums

EXPERIMENT = {"data": "eagle_synthetic(n=10)", "rounds": 1, "lstar": "none"}
NETS = """
from pathlib import Path
from torch import nn

Path("imported").touch()

def small(shape, outputs, hidden=3):
    return nn.Sequential(nn.Linear(shape[0], hidden), nn.Linear(hidden, outputs))
"""
ATTACKS = (
    "os:system(command='touch mark')",
    "subprocess:run(args='touch mark', shell=true)",
    'builtins:exec(source=\'open("mark", "w")\')',
    "posixpath:os.system(command='touch mark')",
    "foreign_nets:small",
)
DOORS = {
    "load": lambda run: fp.load(run),
    "load a file": lambda run: fp.load(run / "experiment.yaml"),
    "resume": lambda run: fp.resume(run),
    "load_model": lambda run: fp.load_model(run),
    "Result.model": lambda run: fp.Result.load(run).model(),
    "another package": lambda run: fp.load(run, allow_import="other"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run with a model of its author's own."""
    folder = tmp_path_factory.mktemp("author")
    (folder / "foreign_nets.py").write_text(NETS.replace('"imported"', "__file__"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        federation = fp.datasets.eagle_synthetic(n=10).split("natural")
        task = fp.Classification("foreign_nets:small(hidden=2)")
        fp.Experiment(federation, task, rounds=1, lstar="none").run(out=folder / "run")
        del sys.modules["foreign_nets"]
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory as somebody else has it, and where their Python finds the code."""
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "foreign_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "foreign_nets", raising=False)
    yield tmp_path / "run"
    sys.modules.pop("foreign_nets", None)


def change(run: Path, **settings: object) -> None:
    """Change settings of a run as a stranger would, who sends checksums that agree."""
    file = run / "experiment.yaml"
    changed = yaml.safe_dump({**yaml.safe_load(file.read_text()), **settings})
    with Checksums(run).placing(file) as beside:
        beside.write_text(changed)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda text: text.partition("(")[0])
@pytest.mark.parametrize("door", DOORS)
def test_a_directory_does_not_run_code(run, door, attack):
    change(run, model=attack)
    with pytest.raises(InputError) as refused:
        DOORS[door](run)
    assert "\n" not in str(refused.value)
    assert not Path("mark").exists()
    assert not Path("imported").exists()


def test_a_run_without_a_recorded_shape_does_not_run_code_either(run):
    change(run, record={}, model=ATTACKS[0])
    with pytest.raises(InputError, match="os:system"):
        fp.load_model(run)
    assert not Path("mark").exists()


def test_who_opens_a_run_may_allow_its_code(run):
    shared = fp.load_model(run, allow_import="foreign_nets")
    read = fp.Result.load(run).model(allow_import=("foreign_nets",))
    for one, two in zip(shared.parameters(), read.parameters(), strict=True):
        assert torch.equal(one, two)
    assert fp.load(run, allow_import="foreign_nets").setup.layout.size == 2 * 2 + 2 + 2 * 2 + 2
    assert fp.resume(run, rounds=2, allow_import="foreign_nets").rounds == 2


def test_who_opens_a_run_may_bring_the_model(run):
    def mine(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], 2), nn.Linear(2, outputs))

    change(run, model=ATTACKS[0])
    loaded = fp.load_model(run, factory=mine)
    read = fp.Result.load(run).model(factory=mine)
    for one, two in zip(loaded.parameters(), read.parameters(), strict=True):
        assert torch.equal(one, two)
    change(run, record={})
    assert torch.equal(next(fp.load_model(run, factory=mine).parameters()), one_of(loaded))
    assert not Path("mark").exists()


def one_of(module: nn.Module) -> torch.Tensor:
    return next(module.parameters())


def test_a_model_that_does_not_fit_is_one_line(run):
    with pytest.raises(InputError, match=r"model\.safetensors does not fit the model: .*0\.weight"):
        fp.load_model(run, factory=fp.models.linear)


def test_a_text_in_python_is_named_by_who_wrote_it(run):
    made = fp.Classification("foreign_nets:small")
    assert made.build((4,), 3, 0, torch.float32)
    with pytest.raises(InputError, match="Python's own library"):
        fp.Classification(ATTACKS[0])


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system ['touch mark']", "!!python/name:os.system"]
)
def test_a_tag_of_yaml_makes_no_object(tmp_path, monkeypatch, tag):
    monkeypatch.chdir(tmp_path)
    Path("file.yaml").write_text(f"data: digits\nmodel: {tag}\n")
    with pytest.raises(InputError, match="is not valid YAML"):
        fp.load("file.yaml")
    assert not Path("mark").exists()
