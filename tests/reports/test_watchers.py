"""How the progress of a run is told."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import fedparity as fp
from fedparity.reports import progress
from fedparity.reports.progress import Bar, Lines


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
    assert len(told) == 10
    assert told[0] == "fedavg: 20/200"
    assert told[4] == "fedavg: 100/200, worst 3 %"


def test_a_short_run_is_not_told_of(console, printed):
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


def test_a_run_is_silent_where_there_is_no_terminal(alike, capsys):
    fp.Experiment(alike, "linear", rounds=2).run()
    assert capsys.readouterr() == ("", "")


def test_a_run_shows_a_bar_on_a_terminal(alike, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    fp.Experiment(alike, "linear", rounds=2).run()
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
    fp.Experiment(alike, "linear", rounds=3).run(watch=notes)
    assert notes.stages[-1].startswith("fedavg")
    assert notes.done == 3
