"""Describing and drawing: sizes and labels are shown, names are data and not markup."""

import io
import sys

import numpy as np
import pytest
from rich.console import Console

from fedparity.data import Federation
from fedparity.errors import InputError


def shown(federation, encoding="utf-8", **settings):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    federation.describe(Console(file=stream, width=100), **settings)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


def federation(clients=3, classes=4, each=20):
    n = clients * each
    return Federation.from_arrays(
        np.zeros((n, 2)), np.arange(n) % classes, np.repeat(np.arange(clients), each)
    )


def test_describe_prints_sizes_and_a_bar_a_class():
    text = shown(federation())
    assert "Federation(3 clients, 48 train + 6 validation + 6 test examples" in text
    assert "████" in text
    assert "Training examples a client: 16 to 16, median 16." in text


def test_describe_limits_the_rows_and_counts_the_rest():
    text = shown(federation(clients=50), limit=5)
    assert "45 more clients." in text
    assert len(text.splitlines()) < 15


def test_describe_works_where_only_plain_letters_can_be_printed():
    assert "####" in shown(federation(), encoding="ascii")


def test_many_classes_share_bars():
    assert "labels 0 to 99" in shown(federation(classes=100, each=200))


def test_names_are_not_markup():
    made = Federation.from_arrays(np.zeros((2, 1)), [0, 1], ["[red]x[/red]", "[/oops]"])
    text = shown(made)
    assert "[red]x[/red]" in text
    assert "[/oops]" in text


def test_values_are_described_by_their_mean():
    made = Federation.from_arrays(np.zeros((2, 1)), [0.25, 0.75], ["a", "a"])
    assert "0.5" in shown(made)


def test_plot_stacks_the_splits_and_draws_the_labels():
    pytest.importorskip("plotly")
    figure = federation().plot()
    assert [trace.name for trace in figure.data[:3]] == ["train", "validation", "test"]
    assert list(figure.data[0].y) == [16, 16, 16]
    assert np.asarray(figure.data[3].z).tolist() == [[5] * 3] * 4


def test_plot_of_values_and_of_many_clients():
    pytest.importorskip("plotly")
    made = Federation.from_arrays(np.zeros((9, 1)), np.linspace(0, 1, 9), np.arange(9))
    figure = made.plot(limit=4)
    assert len(figure.data[0].x) == 4
    assert sum(figure.data[3].y) == 9
    assert figure.layout.title.text == "9 clients, the first 4 shown"


def test_plot_without_plotly_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(InputError, match=r"pip install 'fedparity\[plot\]'"):
        federation().plot()
