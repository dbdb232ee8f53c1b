"""How the progress of a run is told."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import fedparity as fp
from fedparity.reports import progress
from fedparity.reports.progress import Bar, Lines
from fedparity.run import driver

FEW = "best_validation(rounds=2)"


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    """What is odd about data is told once a process: here, once a test."""
    monkeypatch.setattr(driver, "TOLD", set())


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_log_gets_a_line_every_tenth(console, printed):
    lines = Lines(console)
    lines.stage("fedavg", 200)
    for done in range(1, 201):
        lines.advance(done, "worst 3 %" if done == 100 else "")
    told = printed().splitlines()
    assert len(told) == 11
    assert told[:2] == ["fedavg: 1/200", "fedavg: 20/200"]
    assert told[5] == "fedavg: 100/200, worst 3 %"


def test_a_stage_that_was_told_of_is_told_to_its_end(console, printed, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    lines = Lines(console)
    lines.stage("alone", 1000)
    lines.advance(0)
    lines.advance(7, "all have stopped")
    lines.stage("fedavg", 2)
    monkeypatch.setattr(progress, "PATIENCE", 1e9)
    lines.advance(1)
    lines.close()
    assert printed().splitlines() == ["alone: 0/1000", "alone: 7/1000, all have stopped"]


def test_a_slow_stage_is_told_of_before_a_tenth_is_done(console, printed, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "LONGEST", 0.0)
    lines = Lines(console)
    lines.stage("alone", 1000)
    for done in range(3):
        lines.advance(done)
    assert printed().splitlines() == [f"alone: {done}/1000" for done in range(3)]


def test_a_short_run_is_not_told_of(console, printed, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 1e9)
    lines = Lines(console)
    lines.stage("fedavg", 10)
    for done in range(1, 11):
        lines.advance(done)
    assert printed() == ""


@pytest.mark.usefixtures("at_once")
def test_the_text_of_a_stage_is_not_markup(console, printed):
    lines = Lines(console)
    lines.stage("pvr(layers=[a])", 1)
    lines.advance(1)
    assert printed() == "pvr(layers=[a]): 1/1\n"


def test_a_bar_shows_the_stage_and_the_last_note():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    bar = Bar(console)
    bar.stage("each client alone (L*)", 4)
    bar.advance(1)
    bar.stage("eagle [x]", 4)
    bar.advance(2, "accuracy 50 %")
    bar.advance(3)
    bar.close()
    text = console.file.getvalue()
    assert "eagle [x]" in text
    assert "accuracy 50 %" in text.partition("3/4")[2]


def test_a_short_run_tells_of_the_data_alone_where_there_is_no_terminal(alike, capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 1e9)
    fp.Experiment(alike, "linear", rounds=2, lstar=FEW).run()
    told = capsys.readouterr()
    assert told.out == ""
    assert [line[:6] for line in told.err.splitlines()] == ["data: "] * len(alike.check())


@pytest.mark.usefixtures("at_once")
def test_a_long_run_that_nobody_watches_tells_of_itself(alike, capsys):
    fp.Experiment(alike, "linear", rounds=2, lstar="best_validation(rounds=4)", seed=7).run()
    told = capsys.readouterr().err.splitlines()[len(alike.check()) :]
    assert told[0] == ("each client alone (L*), 4 clients, 1 step a round: 0/4, 4 still improving")
    assert told[-1].startswith("fedavg (vmap): 2/2, accuracy")


def test_a_run_shows_a_bar_on_a_terminal(alike, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    fp.Experiment(alike, "linear", rounds=2, lstar=FEW).run()
    assert "fedavg" in terminal.getvalue()
    assert "2/2" in terminal.getvalue()


def test_a_watcher_of_ones_own_takes_the_place_of_the_bar(alike):
    class Notes:
        def __init__(self) -> None:
            self.stages: list[str] = []
            self.done = 0

        def stage(self, text: str, total: int) -> None:
            self.stages.append(text)

        def advance(self, done: int, note: str = "") -> None:
            self.done = done

    notes = Notes()
    fp.Experiment(alike, "linear", rounds=3, lstar=FEW).run(watch=notes)
    assert notes.stages[-1].startswith("fedavg")
    assert notes.done == 3
