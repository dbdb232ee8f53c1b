"""Our numbers beside the published ones: columns, choice, repetition, orders, and the page."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import fedparity as fp
from fedparity.certainty.predictions import mcnemar_of
from fedparity.studies import provenance
from fedparity.studies.beside import Beside
from fedparity.studies.columns import column
from fedparity.studies.packaged import read
from fedparity.studies.page import section, write
from fedparity.studies.work import Order, perform

FILE = """\
title: "A table"
protocol: How it is run.
study:
  data: {dataset: eagle_synthetic(n=40), partition: natural}
  model: mlp(hidden=4, layers=1)
  solver: {lr: 0.1, steps: 1}
  rounds: 3
  lstar: best_validation(rounds=3)
  evaluate_every: 1
  algorithms: {A: uniform, B: eagle(lam=1)}
  grid:
    data.dataset: [eagle_synthetic(n=40), "eagle_synthetic(n=40, seed=1)"]
    solver.lr: [0.1, 0.5]
  seeds: 1
quick: {rounds: 1}
repeats: [data.dataset]
choose: {key: solver.lr, by: validation}
columns:
  mean: mean_accuracy
  validation: {of: mean_loss, split: validation}
  p: {of: mcnemar, against: A}
  norm: {of: gradient_norm, over: max, layer: -1}
published:
- {what: "Table 9", column: mean, values: {A: 50, B: 60.5}}
claims:
- {what: "Table 9, text", column: norm, lower: A, higher: B, times: 3}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The study of a small table, run in this process."""
    folder = tmp_path_factory.mktemp("table")
    (folder / "small.yaml").write_text(FILE)
    table = read(folder / "small.yaml")
    study = table.planned(folder / "runs")
    for run in study.runs:
        assert perform(Order(run.cell.settings, run.directory)).state == "done"
    return Beside(table, study)


@pytest.fixture(scope="module")
def result(made):
    return next(result for run, result in made.study.results() if run.cell.label == "B")


def accuracies(result, split="test"):
    rows = result.history.query("split == @split and metric == 'accuracy' and model == 'global'")
    return 100 * rows.pivot(index="round", columns="client", values="value").to_numpy()


def test_columns_are_of_the_final_model_or_of_evaluations(result):
    each = accuracies(result).mean(1)
    assert column("mean_accuracy").value(result) == pytest.approx(each[-1])
    assert column({"of": "mean_accuracy", "last": 1}).value(result) == pytest.approx(each[-1])
    assert column({"of": "mean_accuracy", "last": 2}).value(result) == pytest.approx(
        each[-2:].mean()
    )
    assert column({"of": "mean_accuracy", "at": 1}).value(result) == pytest.approx(each[1])
    assert np.isnan(column({"of": "mean_accuracy", "at": 7}).value(result))
    spread = accuracies(result).var(1)
    best = column({"of": "accuracy_variance", "best": "mean_accuracy"})
    assert best.value(result) == pytest.approx(spread[each.argmax()])
    shirt = column({"of": "client_accuracy", "client": "client-2"})
    assert shirt.value(result) == pytest.approx(accuracies(result)[-1, 1])


@pytest.mark.parametrize("name", ["gap_variance", "pooled_accuracy", "worst_loss", "max_gap"])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_last_evaluation_is_the_final_model(result, name, split):
    last = column({"of": name, "split": split, "last": 1})
    assert last.value(result) == pytest.approx(result.summary(split)[name])


def test_rounds_to_a_target_are_those_of_the_first_evaluation_that_reaches_it(result):
    each = accuracies(result).mean(1)
    reached = column({"of": "mean_accuracy", "target": float(each.min())}).value(result)
    assert reached == int(np.flatnonzero(each >= each.min())[0])
    assert np.isnan(column({"of": "mean_accuracy", "target": 101}).value(result))
    assert column({"of": "mean_loss", "target": 100.0}).value(result) == 0  # lower is better


def test_what_a_part_tells_is_a_mean_over_rounds(result):
    told = result.told.query("part == 'eagle' and number == 'gamma'")["value"].to_numpy()
    assert len(told) == 3
    assert column({"of": "told", "number": "eagle.gamma"}).value(result) == pytest.approx(
        told.mean()
    )
    last = column({"of": "told", "number": "eagle.gamma", "last": 1})
    assert last.value(result) == pytest.approx(told[-1])


def test_who_certainly_gains_and_pays_is_counted(result):
    verdicts = list(result.verdicts["verdict"])
    assert column({"of": "gains"}).value(result) == verdicts.count("certainly gains")
    assert column({"of": "pays"}).value(result) == verdicts.count("certainly pays")


def test_norms_are_those_of_each_clients_gradient_and_p_that_of_mcnemar(made):
    every = made.every
    for number, (run, found) in enumerate(made.study.results()):
        federation = fp.load(run.directory).federation
        module, norms = found.model(), []
        for client in range(3):
            x, y = federation.train.client(client)
            loss = torch.nn.functional.cross_entropy(module(x), y)
            last = [p for name, p in module.named_parameters() if name.startswith("out")]
            pieces = torch.autograd.grad(loss, last)
            norms.append(float(torch.cat([piece.ravel() for piece in pieces]).norm()))
        assert every["norm"][number] == pytest.approx(max(norms), rel=1e-5)
    plain, eagle = (result for _, result in list(made.study.results())[:2])
    assert np.isnan(every["p"][0])
    assert every["p"][1] == mcnemar_of(plain.predictions, eagle.predictions).pvalue


def test_a_row_is_made_of_the_runs_at_its_best_value(made):
    every, chosen = made.every, made.numbers
    assert len(every) == 8
    assert len(chosen) == 4  # two rows, each at one rate, on two drawings of the points
    for row, runs in every.groupby("row"):
        means = runs.groupby("chosen")["validation"].mean()
        assert set(chosen[chosen["row"] == row]["chosen"]) == {means.idxmin()}  # of a loss
    cells = made.cells().set_index("")
    assert list(cells["seeds"]) == ["2 of 2", "2 of 2"]
    assert list(cells["mean, published"]) == ["50", "60.5"]
    assert "norm, published" not in cells


def told(monkeypatch, made, rows):
    """The same table with runs that have these numbers."""
    frame = pd.DataFrame(rows, columns=["row", "seed", "mean", "norm"]).assign(chosen="0.1")
    other = Beside(made.table, made.study)
    missing = frame.assign(validation=0.0, p=np.nan)
    monkeypatch.setattr(Beside, "every", missing)
    return other


def test_an_order_holds_on_the_seeds_that_both_have(monkeypatch, made):
    rows = [["A", "0", 3, 1.0], ["A", "1", 5, 1.0], ["B", "0", 4, 2.0], ["B", "1", 4, 2.0]]
    first, second = told(monkeypatch, made, rows).holding().to_dict("records")
    assert (first["lower"], first["higher"]) == ("A", "B")
    assert (first["holds on"], first["published"]) == ("1 of 2", "+10.5")
    # differences 1 and -1: mean 0, standard error 1, t with one degree of freedom 12.706
    assert first["ours"] == "0.0 (-12.7 to 12.7)"
    assert (second["published"], second["ours"]) == ("3 times", "2.00 times")


def test_equal_differences_have_no_interval(monkeypatch, made):
    rows = [["A", "0", 0.1, 1.0], ["A", "1", 0.3, 1.0], ["B", "0", 0.2, 1], ["B", "1", 0.4, 1]]
    assert told(monkeypatch, made, rows).holding()["ours"][0] == "+0.1"


def test_means_have_intervals_and_a_run_without_a_number_is_counted(monkeypatch, made):
    rows = [["A", "0", 3, 1.0], ["A", "1", 5, np.nan], ["B", "0", 4, 2.0]]
    cells = told(monkeypatch, made, rows).cells().set_index("")
    assert cells.loc["A", "mean"] == "4.0 (-8.7 to 16.7)"  # 4 ± 12.706
    assert cells.loc["A", "norm"] == "1, 1 of 2"
    assert (cells.loc["B", "mean"], cells.loc["B", "p"]) == ("4", "--")


def test_a_section_is_written_between_marks_and_over_itself(made, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Results\n\nMine.\n")
    text = section(made)
    assert "$ fedparity study small\n" in text
    told = " ".join(text.split())
    assert "All 8 runs, in full; seeds 0, each with 2 values of data.dataset." in told
    assert "| A | 2 of 2 |" in text
    write(page, "small", text)
    write(page, "small", "new")
    mine = "# Results\n\nMine.\n\n<!-- small: begin -->\nnew\n<!-- small: end -->\n"
    assert page.read_text() == mine
    page.write_text("<!-- small: begin -->")
    with pytest.raises(fp.InputError, match="has the mark <!-- small: begin --> and not"):
        write(page, "small", "new")
    with pytest.raises(fp.InputError, match="cannot read the page"):
        write(tmp_path / "none.md", "small", "new")


def test_a_section_says_what_has_no_number_and_when_it_was_run(made, tmp_path):
    study = made.table.planned(tmp_path, quick=True)
    run = study.runs[0]
    assert perform(Order(run.cell.settings, run.directory)).state == "done"
    text = section(Beside(made.table, study), quick=True)
    assert "1 of 8 runs so far, cut down to minutes" in text
    assert "When and by which commit is not known." in text.replace("\n", " ")
    assert "Without a number" not in text
    lost = study.runs[1]
    lost.note.write_text('{"state": "failed", "reason": "why"}')
    assert "failed\\: why" in section(Beside(made.table, study), quick=True)
    provenance.keep(tmp_path)
    provenance.keep(tmp_path)
    (session,) = provenance.sessions(tmp_path)
    assert session == provenance.now()
    assert session.day in section(Beside(made.table, study), quick=True)


def test_a_study_that_has_not_been_run_has_no_table(made, tmp_path):
    with pytest.raises(fp.InputError, match="no finished run: run it first"):
        Beside(made.table, made.table.planned(tmp_path)).cells()
