"""The tables in the terminal."""

from __future__ import annotations

import io
import math

from clients import run
from rich.console import Console

from fedparity.reports.numbers import summaries
from fedparity.reports.tables import show, show_algorithms, show_clients


def line_of(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


def test_a_client_has_its_examples_accuracy_loss_optimum_and_gap(console, printed):
    show_clients({"fedavg": run([0.9, 0.7], [0.3, 0.8], [0.4, 0.2])}, console)
    # gaps: 0.3 - 0.4 = -0.1 and 0.8 - 0.2 = 0.6
    first, second = (line_of(printed(), f"client-{k}").split()[1:] for k in (0, 1))
    assert first == ["50/10/100", "0.400", "90.0", "0.300", "-0.100g"]
    assert second == ["50/10/100", "0.200", "70.0▼", "0.800", "+0.600p▲"]


def test_the_worst_tenth_is_marked(console, printed):
    accuracies = [0.5 + k / 100 for k in range(20)]
    show_clients({"fedavg": run(accuracies)}, console)
    rows = [line for line in printed().splitlines() if line.startswith("client-")]
    assert [row.split()[0] for row in rows if "▼" in row] == ["client-0", "client-1"]


def test_a_single_client_is_its_own_worst_tenth(console, printed):
    show_clients({"fedavg": run([0.9])}, console)
    assert "90.0▼" in line_of(printed(), "client-0")


def test_clients_with_few_test_examples_are_flagged_and_kept(console, printed):
    show_clients({"fedavg": run([1.0, 0.8], n_test=[3, 100])}, console)
    assert "50/10/3?" in line_of(printed(), "client-0")
    assert "?" not in line_of(printed(), "client-1")
    assert "1 client has fewer than 25 test examples" in printed()


def test_a_client_without_test_examples_has_dashes(console, printed):
    numbers = run([math.nan, 0.8], [math.nan, 0.3], [math.nan, 0.2], n_test=[0, 100])
    show_clients({"fedavg": numbers}, console)
    assert line_of(printed(), "client-0").split()[2:] == ["-", "-", "-", "-"]
    assert "1 client has no test example" in printed()


def test_a_long_federation_shows_the_worst_ten_and_the_best_five(console, printed):
    count = 60
    accuracies = [k / count for k in range(count)]
    show_clients({"fedavg": run(accuracies)}, console)
    rows = [line.split()[0] for line in printed().splitlines() if line.startswith("client-")]
    assert rows == [f"client-{k}" for k in [*range(10), *range(55, 60)]]
    assert "45 more clients are between these" in printed()


def test_names_are_data_and_not_markup(console, printed):
    numbers = run([0.5, 0.6], names=["[red]a[/red]", "[/]"])
    show({"[bold]x": numbers}, console)
    assert "[red]a[/red]" in printed()
    assert "[/]" in printed()
    assert "[bold]x" in printed()


def test_algorithms_stand_side_by_side_as_far_as_there_is_room():
    frames = {name: run([0.9, 0.7], [0.3, 0.8], [0.4, 0.2]) for name in "abcd"}
    tables = {}
    for width in (60, 80, 140):
        console = Console(file=io.StringIO(), width=width, color_system=None)
        show_clients(frames, console)
        text = console.file.getvalue()
        assert max(len(line) for line in text.splitlines()) <= width
        tables[width] = sum(line.startswith("client ") for line in text.splitlines())
        assert text.count("train/val/test") == 1
    # the name takes 8, examples 16, L* 7 and each algorithm 22 and 2 between: of 60 there is room
    # for one beside the examples, then for two
    assert tables == {60: 3, 80: 2, 140: 1}


def test_at_60_columns_no_number_is_cut():
    names = ["eagle(lam=0.5)+prox(mu=0.1)", "fedavg", "local"]
    wide = {"test_auc": [0.123, 0.456], "test_calibration_error": [0.777, 0.888]}
    wide |= {"test_base_accuracy": [0.95, 0.654], "test_alone_accuracy": [0.912, 0.345]}
    results = {
        name: run([0.9, 0.7], [12.345, 4e29], [0.4, 0.2], alone=wide, n_test=[100000, 100])
        for name in names
    }
    cells = {}
    for width in (60, 200):
        console = Console(file=io.StringIO(), width=width, color_system=None)
        show(results, console, "fedavg")
        text = console.file.getvalue()
        assert max(len(line) for line in text.splitlines()) <= width
        rows = [line for line in text.splitlines() if line.startswith(("client-", "fedavg"))]
        cells[width] = sorted(cell for row in rows for cell in row.split()[1:])
        assert "…" not in text
    assert cells[60] == cells[200]


def test_base_rate_and_accuracy_alone_stand_beside_the_accuracy(console, printed):
    more = {"test_base_accuracy": [0.725, 0.5], "test_alone_accuracy": [0.75, 0.6]}
    show_clients({"fedavg": run([0.7, 0.6], [0.3, 0.8], [0.4, 0.2], alone=more)}, console)
    row = line_of(printed(), "client-0").split()
    assert row[2:] == ["0.400", "72.5", "75.0", "70.0", "≤", "0.300", "-0.100g"]
    assert "60.0▼ " in line_of(printed(), "client-1")
    text = " ".join(printed().split())
    assert (
        "client-0 is served no better than by always answering its most frequent training class: "
        "70.0 % where that has 72.5 %." in text
    )


def test_a_terminal_without_unicode_gets_letters():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    show({"fedavg": run([0.9, 0.7], [0.3, 0.8], [0.4, 0.2])}, Console(file=file, width=80))
    file.flush()
    assert b"70.0v" in file.buffer.getvalue()


def test_an_algorithm_has_the_summaries_of_its_clients(console, printed):
    show_algorithms({"fedavg": run([0.9, 0.7], [0.3, 0.8], [0.4, 0.2])}, console)
    # mean 80, worst 70, worst tenth 70, variance ((10)^2 + (10)^2) / 2 = 100;
    # gaps -0.1 and 0.6: sample variance 2 * 0.35^2 = 0.245, and one client gains, one pays.
    assert line_of(printed(), "fedavg").split() == [
        "fedavg",
        "80.0",
        "70.0",
        "70.0",
        "100.0",
        "0.245",
        "0.600",
        "-0.100",
        "1",
        "1",
    ]
    assert "gap var: sample variance (divisor K-1) of the loss gaps" in " ".join(printed().split())


def test_the_best_of_a_column_is_marked(console, printed):
    show_algorithms({"a": run([0.9, 0.7]), "b": run([0.8, 0.8])}, console)
    # both have mean 80; b has the better worst client (80) and no variance
    assert line_of(printed(), "a ").split() == ["a", "80.0", "70.0", "70.0", "100.0"]
    assert line_of(printed(), "b ").split() == ["b", "80.0", "80.0*", "80.0*", "0.0*"]


def test_training_alone_has_no_gain_and_no_best_gap(console, printed):
    gapped = run([0.9, 0.7], [0.5, 0.8], [0.4, 0.2])
    more = run([0.8, 0.8], [0.6, 0.8], [0.4, 0.2])
    alone = run([0.9, 0.8], [0.4, 0.2], [0.4, 0.2], weights="none")
    show_algorithms({"fedavg": gapped, "more": more, "local": alone}, console)
    gaps = {name: line_of(printed(), name).split()[-5:] for name in ("fedavg", "more", "local")}
    # gaps: 0.1 and 0.6 against 0.2 and 0.6; who trains alone has 0 and 0, and wins nothing by it
    assert gaps["fedavg"] == ["0.125", "0.600", "0.100*", "0", "2"]
    assert gaps["more"] == ["0.080*", "0.600", "0.200", "0", "2"]
    assert gaps["local"] == ["0.000", "0.000", "0.000", "-", "-"]
    assert "In local each client trains alone: nobody joins" in " ".join(printed().split())


def test_who_diverged_is_marked_and_never_the_best(console, printed):
    # A network that collapsed serves all alike, badly: its variances are the smallest.
    good, other = run([0.9, 0.7], [0.3, 0.8], [0.4, 0.2]), run([0.8, 0.7], [0.4, 0.8], [0.4, 0.2])
    collapsed = run([0.1, 0.1], [9.0, 8.9], [0.4, 0.2], diverged="the mean loss is 8.95")
    show({"good": good, "other": other, "bad": collapsed}, console, "good")
    assert line_of(printed(), "other ").split()[4] == "25.0*"
    row = line_of(printed(), "bad (diverged)")
    assert "*" not in row
    assert row.split()[5] == "0.0"
    text = " ".join(printed().split())
    assert "bad diverged: the mean loss is 8.95." in text
    assert "diverged: at the end the clients' mean loss is not finite, or more" in text


def test_a_loss_of_any_size_keeps_its_column(console, printed):
    numbers = run([0.9, 0.7], [4690.2, 4e29], [0.4, 0.2])
    show_clients({"fedavg": numbers}, console)
    assert line_of(printed(), "client-0").split()[-2:] == ["4690", "+4690p"]
    assert line_of(printed(), "client-1").split()[-2:] == ["4e+29", "+4e+29p▲"]


def test_a_regression_shows_losses():
    columns = list(summaries({"fedavg": run(None, [0.3, 0.8])}).columns)
    assert columns == ["mean_loss", "worst_loss"]


def test_an_lstar_with_a_reservation_is_marked(console, printed):
    more = {
        "lstar_rounds": [9, 3, 9],
        "lstar_capped": [True, False, True],
        "n_validation": [10, 0, 0],
        "validation_lstar": [0.1, math.nan, math.nan],
    }
    show_clients({"a": run([0.9, 0.7, 0.8], [0.5] * 3, [0.1, 0.2, 0.3], alone=more)}, console)
    shown = [line_of(printed(), f"client-{k}").split()[2] for k in range(3)]
    assert shown == ["0.100~", "0.200t", "0.300~t"]
    assert "~ still improving after 9 rounds alone" in " ".join(printed().split())


def test_without_lstar_there_are_no_gaps(console, printed):
    show({"fedavg": run([0.9, 0.7])}, console)
    assert "gap" not in printed()
    assert "L*" not in printed()
