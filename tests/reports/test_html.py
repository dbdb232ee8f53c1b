"""The page of a run."""

from __future__ import annotations

import copy
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import fedparity as fp
from fedparity.records.rundir import RunDir
from fedparity.reports.html import page
from fedparity.reports.svg import Line, chart, ticks

VOID = {"meta", "br", "line"}


class Tags(HTMLParser):
    """Collects tags and text, and checks that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def federation(names: list[str]) -> fp.Federation:
    rng = np.random.default_rng(0)
    n = 20 * len(names)
    return fp.Federation.from_arrays(
        rng.normal(size=(n, 3)), np.arange(n) % 2, np.repeat(names, 20)
    )


def experiment(names: list[str], rounds: int = 1) -> fp.Experiment:
    solver, rule = fp.Solver(lr=0.1, steps=1), "best_validation(rounds=3)"
    return fp.Experiment(federation(names), "linear", rounds=rounds, solver=solver, lstar=rule)


@pytest.fixture(scope="module")
def result() -> fp.Result:
    return experiment(["a", "b", "c"], rounds=3).run()


def test_a_page_is_whole_and_needs_nothing_else(result):
    text = page({"fedavg": result})
    tags = Tags(text)
    assert {"h1", "table", "svg", "polyline", "style"} <= tags.seen
    assert not {"script", "link", "img", "iframe"} & tags.seen
    assert "http" not in text
    assert len(text) < 30_000


def test_a_page_shows_every_client_and_its_settings(result):
    words = Tags(page({"fedavg": result})).words
    assert {"a", "b", "c", "solver.lr", "0.1", "record.federation"} <= set(words)


def test_a_page_marks_who_was_still_improving_alone(result):
    text = page({"fedavg": result})
    assert "~ still improving after 3 rounds alone" in text
    assert text.count(" ~</td>") == 3


def test_names_are_data_and_not_markup():
    evil = "<script>alert(1)</script>"
    made = experiment([evil, "b"]).run()
    tags = Tags(page({evil: made}))
    assert "script" not in tags.seen
    assert evil in tags.words


def test_several_runs_stand_beside_each_other(result):
    words = Tags(page({"one": result, "two": result}, "one")).words
    assert any(word.startswith("No algorithm levelled down against one") for word in words)
    assert words.count("one") >= 3  # in the summary, the legend and above its columns


def test_a_run_that_diverged_is_marked_and_the_others_can_still_be_read(result):
    worse = copy.copy(result)
    worse.clients = result.clients.assign(test_loss=[4e29, math.inf, 1.0])
    worse.clients["test_gap"] = worse.clients["test_loss"] - worse.clients["test_lstar"]
    worse.settings = {**result.settings, "record": {"diverged": "the mean loss is not finite"}}
    text = page({"one": result, "two": worse}, "one")
    words = Tags(text).words
    assert "two diverged: the mean loss is not finite." in words
    assert (
        sum("two (diverged)" in word for word in words) == 3
    )  # in the summary, the legend and above its columns
    assert "4e+29" in words
    # Bars keep the scale of the run that did not diverge: somebody in it has the widest.
    assert {"50%", "100%"} & set(re.findall(r'class="(?:gain|pay)" style="[^"]*width:(\d+%)', text))


def test_the_curve_of_a_run_that_diverged_leaves_the_others_their_room():
    x = np.linspace(1, 2, 40)[:, None]
    federation = fp.Federation.from_arrays(x, x[:, 0], np.arange(40) % 2, kind="values")
    given = {"rounds": 12, "lstar": "none"}
    good = fp.Experiment(federation, "linear", solver=fp.Solver(lr=0.05, steps=1), **given).run()
    with pytest.warns(UserWarning, match="diverged"):
        bad = fp.Experiment(federation, "linear", solver=fp.Solver(lr=1.0, steps=1), **given).run()
    text = page({"good": good, "bad": bad}, "good")
    assert "drawn up to 3 times the first" in text
    marks = re.findall(r'text-anchor="end">([^<]+)</text>', text)
    assert max(map(float, marks)) < 5  # of the loss, which is below 1 before the first round


def test_a_run_leaves_its_report_in_the_directory(tmp_path):
    experiment(["a", "b"]).run(out=tmp_path / "run")
    Tags(RunDir(tmp_path / "run").report.read_text(encoding="utf-8"))


def test_a_chart_without_a_number_is_left_out():
    assert chart([Line([0, 1], [float("nan")] * 2, "#000")], "round", "loss") == ""


def test_a_chart_of_one_point_can_be_drawn():
    assert "polyline" in chart([Line([0], [0.5], "#000")], "round", "loss")


def test_ticks_are_round_numbers_that_cover_the_range():
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(3, 97) == [0, 20, 40, 60, 80, 100]
    assert ticks(5, 5) == [5]
    assert ticks(0, 4e29)[-1] == pytest.approx(4e29)
