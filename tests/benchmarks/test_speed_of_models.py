"""The section on larger models: the same work for ours and the plain loop, and its table."""

from __future__ import annotations

from dataclasses import replace

import models
import pytest
import torch
from contest import Rounds, experiment
from plain import PlainLoop
from report import Section

import fedparity as fp

SMALL = replace(
    models.MODELS["LSTM"].work, clients=2, cohort=2, examples=4, shape=(6,), steps=1, batch=None
)
LSTM = models.Model(replace(SMALL, model="char_lstm(embedding=2, hidden=3)"), tokens=True)


def test_the_plain_loop_on_sequences_gives_the_models_of_the_loop_engine():
    def made() -> fp.Experiment:
        return experiment(LSTM.work, data=LSTM.federation(), model=LSTM.task, engine="loop")

    ours, plain = Rounds(made()), PlainLoop(made())
    plain()
    ours()
    ours.close()
    moved = torch.cat([p.detach().flatten() for p in plain.model.parameters()])
    torch.testing.assert_close(moved, ours.state.server.x)


def test_the_table_has_a_row_and_a_bar_a_model(monkeypatch):
    monkeypatch.setattr(models, "MODELS", {"LSTM": LSTM})
    section: Section = models.measure(repeats=1, names=["LSTM"])
    ((told, engine, *_, faster, model, peak),) = section.rows
    assert told.startswith("LSTM: 2 of 2 clients")
    assert (engine, faster[-1], model, peak) == ("loop", "x", "", "")
    assert [bar.claim for bar in section.bars] == ["LSTM: times as fast as the plain loop"]


@pytest.mark.parametrize("name", models.MODELS)
def test_every_workload_is_one_of_the_library(name):
    model = models.MODELS[name]
    assert model.task.model_text == model.work.model
    assert model.federation().outputs == model.work.outputs


def test_the_peak_holds_at_least_an_update_a_client():
    found = models.memory.model(2, "mlp(hidden=2000)")
    assert found["peak"] > 2 * found["model"] > 0
