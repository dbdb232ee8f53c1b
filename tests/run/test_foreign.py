"""Files of strangers, opened in Python: no code of theirs runs unless it was allowed."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import nn

import fedparity as fp
from fedparity.errors import InputError
from fedparity.imports import Allowed
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


@dataclass(frozen=True)
class Doubled(fp.Part):
    """A part of this module: it can be found again."""

    factor: float = 2.0
    name = "doubled"

    def finish(self, delta: torch.Tensor, c: fp.Client) -> fp.Finish:
        return fp.Finish(self.factor * delta)


@dataclass(frozen=True)
class InTurn(fp.sampling.Sampling):
    start: int = 0
    name = "in_turn"

    def draw(self, round, state, who, losses):
        return np.asarray([(self.start + round) % len(who)]), state


@dataclass(frozen=True)
class Rotten:
    rate: float = 0.5

    def flip(self, labels, classes, rng):
        return (labels + (rng.random(len(labels)) < self.rate)) % classes


class Smooth(fp.Classification):
    def __init__(self, model: str, by: float = 0.1) -> None:
        super().__init__(model)
        self.by = by

    def losses(self, output, target):
        return F.cross_entropy(output, target, reduction="none", label_smoothing=self.by)


def experiment(part: object, rounds: int = 1, **conditions: object) -> fp.Experiment:
    federation = fp.datasets.eagle_synthetic(n=10).split("natural")
    known = {"task": "linear", "lstar": "none", **conditions}
    return fp.Experiment(federation, algorithm=[part], rounds=rounds, **known)


def test_what_is_made_in_python_is_recorded_by_where_it_is_with_all_settings(tmp_path):
    data = fp.datasets.eagle_synthetic(n=10).split("natural", noise=Rotten(rate=0.25))
    made = fp.Experiment(
        data, Smooth("linear", by=0.2), [Doubled()], 1, cohort=1, sampling=InTurn(1), lstar="none"
    )
    told = made.describe()
    assert told["algorithm"] == f"{__name__}:Doubled(factor=2.0)"
    assert told["sampling"] == f"{__name__}:InTurn(start=1)"
    assert told["task"] == f"{__name__}:Smooth(by=0.2)"
    assert told["data"]["noise"][0]["noise"] == f"{__name__}:Rotten(rate=0.25)"
    made.run(out=tmp_path / "run")
    again = fp.load(tmp_path / "run", allow_import=__name__)
    assert again.describe() | {"record": None} == told | {"record": None}
    assert fp.resume(tmp_path / "run", rounds=2, allow_import=__name__).rounds == 2
    parameters = fp.load_model(tmp_path / "run", factory=fp.models.linear).parameters()
    assert sum(p.numel() for p in parameters) == 6


@pytest.mark.parametrize("part", ["local class", "setting that no text holds"])
def test_what_no_file_can_name_goes_on_only_where_it_was_made(tmp_path, part):
    @dataclass(frozen=True)
    class Local(Doubled):
        pass

    mine = Local() if part == "local class" else Doubled(np.ones(1, dtype=np.float32)[0])
    name = type(mine).__name__
    experiment(mine).run(out=tmp_path)
    for open_it in (fp.load, fp.resume):
        with pytest.raises(InputError) as told:
            open_it(tmp_path, allow_import=__name__)
        assert f"the algorithm '{name}' is known only to the program that made it" in str(
            told.value
        )
        assert "\n" not in str(told.value)
    assert experiment(mine, rounds=2).resume(tmp_path).rounds == 2


def test_a_part_is_not_taken_for_fedparitys_own_of_the_same_name(tmp_path):
    class Prox(Doubled):
        name = "prox"

    assert experiment(Prox(3.0)).describe()["algorithm"] == "__main__:Prox(factor=3.0)"


@pytest.mark.parametrize("text", ["foreign_nets:small", "os:system(command='touch mark')"])
def test_a_recipe_runs_no_code(run, text):
    recipes = (
        {"dataset": text, "partition": "natural"},
        {"dataset": "eagle_synthetic(n=10)", "partition": text},
        {"dataset": "eagle_synthetic(n=10)", "partition": "natural", "noise": [{"noise": text}]},
    )
    for recipe in recipes:
        with pytest.raises(InputError, match="allow-import"):
            fp.data.rebuild(recipe)
    assert not Path("mark").exists()
    assert not Path("imported").exists()


def one_client() -> fp.Federation:
    return fp.Federation.from_arrays(np.zeros((4, 2)), [0, 1, 0, 1], ["a"] * 4)


def pairs() -> fp.Dataset:
    return fp.Dataset.from_arrays(np.zeros((4, 2)), [0, 1, 0, 1])


def test_a_function_that_makes_a_federation_is_dealt_by_nobody():
    made = fp.datasets.federation(f"{__name__}:one_client")
    allowed = Allowed.by(__name__)
    assert fp.data.rebuild(made.recipe, allowed=allowed).fingerprint == made.fingerprint
    for more in ({"partition": "iid"}, {"clients": 2}, {"official": True}):
        with pytest.raises(InputError, match="makes a federation of its own: leave partition"):
            fp.data.rebuild({**made.recipe, **more}, allowed=allowed)
    with pytest.raises(InputError, match="makes a federation, not a dataset"):
        fp.datasets.load(f"{__name__}:one_client")
    with pytest.raises(InputError, match="makes a dataset: deal it"):
        fp.datasets.federation(f"{__name__}:pairs")
    with pytest.raises(InputError, match="the folder is not a setting"):
        fp.datasets.load(f"{__name__}:pairs(data_dir=here)")
