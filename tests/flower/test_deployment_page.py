"""What the pages on deployment show is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='Flower is not installed: pip install "fedparity[flower]"')

from runs import assert_same

from fedparity.cli import main
from fedparity.deploy.app import clients_of, run_config
from fedparity.deploy.local import LocalFederation
from fedparity.deploy.processes import Child
from fedparity.records.rundir import RunDir

pytestmark = pytest.mark.xdist_group("processes")  # one federation at a time

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "docs" / "deployment.md", ROOT / "examples" / "hospitals" / "README.md")
FLOWERS = ("flower-superlink", "flower-supernode", "flwr")


def commands(page: Path) -> list[list[str]]:
    blocks = re.findall(r"^ *```console\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [shlex.split(line.removeprefix("$ ")) for line in lines]


class Recorded(LocalFederation):
    """A federation that only writes down what it would start."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, warm=False)
        self.words: list[list[str]] = []

    def _begin(self, name: str, home: Path, program: str, *words: str | Path) -> Child:
        self.words.append([program, *map(str, words)])
        return Silent()

    def flwr(self, *words: str | Path) -> str:
        self.words.append(["flwr", *map(str, words)])
        return ""


class Silent(Child):
    """A process that was not started."""

    code = 0

    def __init__(self) -> None:
        pass

    def said(self, pattern: str, seconds: float) -> re.Match[str]:
        return re.match("", "")


def form(words: list[str]) -> tuple[str, ...]:
    """Return a command without the values that differ from site to site."""
    verbs = [word for word in words if word in (*FLOWERS, "run", "supernode", "register")]
    return *verbs, *sorted(word for word in words if word.startswith("--"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_flowers_programs_are_shown_as_they_are_called_here(page, tmp_path):
    with Recorded(tmp_path / "federation") as made:
        made.add_node("site", {"client-id": "a"})
        made.start_run(tmp_path, {})
    called = {form(words) for words in made.words}
    shown = {form(words) for words in commands(page) if words[0] in FLOWERS}
    simulated = {one for one in shown if {"--simulation", "--federation-config"} & set(one)}
    assert shown - simulated == called


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_the_run_config_that_is_shown_exists(page):
    known = run_config(["a"], "runs")
    for words in commands(page):
        if "--run-config" in words:
            given = words[words.index("--run-config") + 1]
            assert {pair.partition("=")[0] for pair in given.split()} <= set(known)


def test_the_steps_on_one_machine_lead_to_the_same_result(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = PAGES[0].read_text()
    (written,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    Path("experiment.yaml").write_text(written)
    shown = [words[1:] for words in commands(PAGES[0]) if words[0] == "fedparity"]
    for words in shown:
        if words[0] == "resume":  # what it shows is in a folder of the coordinator's
            words = ["resume", "runs/local"]
        if "--address" in words:  # nobody answers there
            del words[words.index("--address") :]
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 0, capsys.readouterr().err
    assert clients_of(Path("sites")) == ["client-1", "client-2", "client-3"]
    assert_same(RunDir("runs/local"), RunDir("runs/simulated"))
