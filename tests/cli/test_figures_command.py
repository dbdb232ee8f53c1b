"""Figures and frontiers of what has been run, on the command line."""

from __future__ import annotations

import pytest

import fedparity as fp

SETTINGS = {
    "data": {"dataset": "synthetic(clients=3)", "seed": 1},
    "model": "linear",
    "rounds": 1,
    "lstar": "best_validation(rounds=1)",
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    out = tmp_path_factory.mktemp("figures") / "study"
    return fp.Study(SETTINGS, ["fedavg", "qffl(q=1)"], out, seeds=2).run(workers=1).out


def test_figures_are_drawn_as_far_as_the_runs_allow(cli, study, tmp_path):
    pytest.importorskip("vl_convert")
    done = cli("figures", str(study), "--out", "drawn", "--format", "svg")
    assert done.code == 0, done.err
    names = {file.name for file in (tmp_path / "drawn").iterdir()}
    assert {"curves.svg", "clients.svg", "frontier.svg"} <= names
    assert sum(name.startswith("payers-") for name in names) == 1
    assert "no ranks: Friedman's test needs 3 methods" in done.out


def test_a_frontier_is_told_in_a_table_and_in_words(cli, study):
    made = fp.Study.load(study)
    told = cli("frontier", str(study))
    assert told.code == 0, told.err
    assert "qffl(q=1)" in told.out
    assert "Hypervolume of the front" in told.out
    runs = {}
    for run, result in made.results():
        runs.setdefault(run.cell.label, []).append(result)
    assert fp.frontier(runs).reason in told.out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["frontier", "STUDY", "--across", "gap_variance"], "two summaries"),
        (["frontier", "STUDY", "--across", "mean_acuracy,max_gap"], "did you mean 'mean_accuracy'"),
        (["frontier", "STUDY", "--split", "tset"], "did you mean 'test'"),
        (["frontier", "none"], "is not there"),
        (["figures", "STUDY", "--format", "gif"], "format of a figure 'gif'"),
        (["figures", "STUDY", "--reference", "fedag"], "did you mean 'fedavg'"),
        (["figures", "."], "holds no finished run"),
    ],
)
def test_mistakes_are_told_in_one_line(cli, study, args, told):
    done = cli(*(str(study) if arg == "STUDY" else arg for arg in args))
    assert done.code == 2
    assert told in done.err
    assert len(done.err.splitlines()) == 1
