"""Studies and comparisons over seeds on the command line."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from fedparity.studies.live import line, table
from fedparity.studies.schedule import Board

FILE = """\
data: synthetic(clients=3)
model: linear
rounds: 1
lstar: none
algorithms: {plain: fedavg}
seeds: 1
"""
WRONG = {
    "roundz: 3": "line 7: unknown setting of a study 'roundz': did you mean 'rounds'",
    "solver: {lrr: 3}": "line 7: .*did you mean 'solver.lr'",
    "solver:\n  lr: -1": "line 8: solver: lr should be greater than 0",
    "grid: {rouns: [1]}": "line 7: .*did you mean 'rounds'",
    "grid:\n  rounds:\n  - 1\n  - 0": "line 10: experiment: rounds should be greater",
    "grid: {data.partition: [shardz]}": "line 7: unknown partition 'shardz'",
    "grid: &a {rounds: [*a]}": "line 7: nested too deep",
    "grid: {data.dataset: [synthetic(alfa=1)]}": "line 7: .*did you mean 'alpha'",
    "grid: 3": "line 7: 'grid' must be a table",
    "task: classify": "line 7: .*did you mean 'classification'",
}


@pytest.mark.parametrize("more", WRONG)
def test_what_is_wrong_in_a_file_is_told_with_its_line(more, cli, tmp_path):
    (tmp_path / "s.yaml").write_text(FILE + more + "\n")
    code, out, err = cli("study", "s.yaml")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert re.search(WRONG[more], err), err


def test_a_study_is_run_and_told_and_compared_again_in_its_directory(cli, tmp_path):
    (tmp_path / "s.yaml").write_text(FILE)
    told = cli("study", "s.yaml", "--workers", "1")
    assert told.code == 0, told.err
    assert "plain" in told.out
    rows = pd.read_csv(tmp_path / "runs/s/studies/s.csv")
    assert list(rows["state"]) == ["done"]
    again = cli("study", "runs/s")
    assert again.out == told.out
    flags = ["--data", "synthetic(clients=3)", "--model", "linear", "--rounds", "1"]
    flags += ["--lstar", "none", "--set", "server_lr=1.0", "--label", "A=fedavg", "--seeds", "0,"]
    assert cli("compare", *flags).code == 2
    flags[-1] = "1"
    compared = cli("compare", *flags, "--out", "runs/s")
    assert compared.code == 0, compared.err
    assert len(list((tmp_path / "runs/s/runs").iterdir())) == 1  # the same run
    assert pd.read_csv(tmp_path / "runs/s/studies/s.csv").equals(rows)
    (other,) = (tmp_path / "runs/s/studies").glob("compare-*.csv")
    assert list(pd.read_csv(other)["algorithm"]) == ["A"]
    both = cli("study", "runs/s")
    assert both.code == 2
    assert "name the file of one" in both.err
    assert cli("study", "runs/s/studies/s.yaml").out == told.out


def test_the_file_of_the_user_is_never_written(cli, tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(FILE + "# mine\n")
    assert cli("study", "study.yaml", "--workers", "1").code == 0
    assert file.read_text().endswith("# mine\n")
    assert (tmp_path / "runs/study/studies/study.csv").exists()


def test_a_board_tells_done_running_left_and_time_to_go():
    running = {0: ("a, seed 1", {"stage": "x", "done": 5, "total": 10, "alone": False})}
    board = Board(total=10, done=3, running=running, took=[10.0, 30.0], workers=1)
    # 10 - 3 - one half = 6.5 runs of 20 s
    assert line(board) == "3 of 10 runs done, 1 running, 6 left, about 2 min to go"
    assert table(board).row_count == 1


def test_packaged_studies_are_listed_and_a_wrong_name_is_told(cli):
    assert "fedfv3" in cli("study", "--list").out
    told = cli("study", "fedfv33")
    assert told.code == 2
    assert "did you mean 'fedfv3'" in told.err
    assert cli("study").code == 2


def test_a_packaged_study_is_written_into_a_page_and_not_run(cli, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Results\n")
    told = cli("study", "fedfv3", "--write", str(page))
    assert (told.code, told.err.strip()) == (
        2,
        "fedparity: the study has no finished run: run it first",
    )
    assert page.read_text() == "# Results\n"
    assert not (tmp_path / "runs").exists()
    (tmp_path / "s.yaml").write_text(FILE)
    assert "--write is for packaged studies" in cli("study", "s.yaml", "--write", str(page)).err


def test_a_value_that_is_no_yaml_is_told_in_a_line(cli):
    flags = ["--data", "synthetic(clients=3)", "--model", "linear", "--algorithms", "fedavg"]
    told = cli("compare", *flags, "--set", "solver.lr=[0.1")
    assert told.code == 2
    assert "cannot read" in told.err
    assert len(told.err.splitlines()) == 1
