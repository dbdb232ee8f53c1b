"""What the benchmark writes is what it measured."""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import others
import page
import pytest
import rounds
from contest import Times
from report import Bar, Section, bars_markdown
from scaling import Curve, figure


@pytest.mark.parametrize(
    ("value", "at_least", "passed"),
    [(1.1, False, True), (1.3, False, False), (1.3, True, True), (1.1, True, False)],
)
def test_a_bar_is_passed_on_the_right_side_of_its_limit(value, at_least, passed):
    assert Bar("a round", value, 1.2, at_least).passed is passed


def test_a_number_that_could_not_be_measured_passes_no_bar():
    assert not Bar("a round", float("nan"), 1.0).passed
    assert not Bar("a round", float("nan"), 1.0, at_least=True).passed


def test_the_page_holds_machine_command_bars_and_tables():
    section = Section("Rounds", "As told.", ("workload", "ms"), [("lin", "6.1")])
    section.bars.append(Bar("lin: of the arithmetic's time", 2.61, 2.5))
    written = page.text([section], "python benchmarks/speed.py lin", before=0.25)
    assert "$ python benchmarks/speed.py lin" in written
    assert "| lin: of the arithmetic's time | 2.61x | ≤ 2.5x | FAIL |" in written
    assert "## Rounds\n\nAs told.\n\n| workload | ms |\n| --- | ---: |\n| lin | 6.1 |" in written
    assert page.processor() in written
    assert "Load of the machine before: 0.25." in written
    assert bars_markdown([section]) in written


def test_bars_against_peers_stand_only_where_a_peer_was_measured():
    times = Times({"auto": [6.0, 9.0], "plain": [240.0, 360.0], rounds.HAND: [3.0, 4.5]})
    alone = {bar.claim: bar for bar in rounds.bars("lin", times)}
    assert set(alone) == {"lin: of the arithmetic's time", "lin: times as fast as the plain loop"}
    assert alone["lin: times as fast as the plain loop"].value == 40
    measured = {
        ("fedjax", "lin"): others.Peer(42.0, 7.0),
        ("fedlab", "lin"): others.Peer(200.0, 33.0),
        ("fedlab", "cnn"): others.Peer(3350.0, 1.1),
    }
    against = {bar.claim: (bar.value, bar.limit) for bar in rounds.peer_bars(measured)}
    assert against == {
        "lin: times as fast as fedjax": (7, 6),
        "cnn: times as fast as fedlab": (1.1, 1),
    }


def test_published_figures_are_marked_as_such():
    measured = {("pfl", "mlp"): others.Peer(61.2, 1.5)}
    rows = {row[0]: row[1:] for row in rounds.peers_section(measured, {}).rows}
    assert rows["pfl"] == ("(143)", "61.2 (1.5x)", "(3190)")
    assert rows["fedjax"] == ("(42)", "(86)", "-")


def test_peers_take_turns_in_their_own_environment_and_failures_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(others.Contestant, "turn", lambda self, calls: 2.0)
    monkeypatch.setitem(others.WORKLOADS, "lin", replace(others.WORKLOADS["lin"], examples=10))
    asked = tmp_path / "asked"
    answers = {
        "pfl": f"""echo progress; echo '{{"version": "0.6.0"}}'
            while read line; do echo asked >> {asked}; echo '{{"ms": 61.0}}'; done""",
        "fedlab": "echo 'No module named fedlab' >&2; exit 1",
        "fedjax": """echo '{"version": "0.0.17"}'; read line; echo 'out of memory' >&2; exit 1""",
    }
    for peer, script in answers.items():
        python = tmp_path / peer / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    said: list[str] = []
    found = others.collect(tmp_path, ["lin", "device"], 1, said.append)
    assert set(found) == {("pfl", "lin")}
    assert (found["pfl", "lin"].ms, found["pfl", "lin"].ratio) == (61.0, 30.5)
    assert asked.read_text(encoding="utf-8") == others.MORE * "asked\n"
    assert "fedlab lin: No module named fedlab" in said
    assert "fedjax lin: out of memory" in said


DRIVER = """
import sys
sys.path.insert(0, {drivers!r})
import work
rounds = open({log!r}, "a")
work.version = lambda package: "1.0"
print("{{not an answer")
work.Turns("some").take(lambda: print("round", file=rounds, flush=True))
"""


def driver(folder: Path, *more: str) -> others.Driver:
    """Return a driver of three rounds that writes a line for each."""
    script = DRIVER.format(drivers=str(others.DRIVERS), log=str(folder / "log"))
    return others.Driver([sys.executable, "-c", script, "lin", "--rounds", "3", *more])


def done(folder: Path) -> int:
    return len((folder / "log").read_text(encoding="utf-8").splitlines())


def test_a_driver_warms_up_and_does_a_round_when_asked(tmp_path):
    with driver(tmp_path, "--turns") as peer:
        assert peer.told()["version"] == "1.0"
        assert done(tmp_path) == 2
        for rounds in (3, 4, 5):
            assert peer.round() > 0
            assert done(tmp_path) == rounds
        with pytest.raises(others.Silence, match="no answer"):
            peer.round()


def test_a_driver_that_nobody_asks_ends(tmp_path):
    with driver(tmp_path, "--turns") as peer:
        peer.told()
    assert done(tmp_path) == 2


def test_a_driver_alone_prints_its_median(tmp_path):
    with driver(tmp_path) as peer:
        assert float(str(peer.told("ms")["ms"])) > 0
    assert done(tmp_path) == 5


def test_every_peer_has_a_driver_and_instructions():
    readme = (others.DRIVERS / "README.md").read_text(encoding="utf-8")
    for peer in others.PEERS:
        assert (others.DRIVERS / f"time_{peer}.py").exists()
        assert f"DIR/{peer}/bin/pip install" in readme


def test_the_figure_is_a_whole_svg_with_a_line_a_contestant():
    curve = Curve("Clients", "clients", [1, 10, 100], {"auto": [1, 2, 4], "plain": [2, 20, 200]})
    root = ET.fromstring(figure([curve, curve]))
    lines = [e for e in root.iter() if e.tag.endswith("polyline")]
    assert len(lines) == 4
    places = [float(pair.split(",")[0]) for pair in lines[0].attrib["points"].split()]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2)


def test_the_core_is_free_again_after_it_was_kept_busy():
    psutil = pytest.importorskip("psutil")
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("cores cannot be chosen here")
    from busy import spinning

    me = psutil.Process()
    before = {child.pid for child in me.children()}
    with spinning():
        assert len({child.pid for child in me.children()} - before) == 1
    assert {child.pid for child in me.children()} == before


def test_random_images_are_read_as_mnist(tmp_path):
    import whole

    import fedparity as fp

    whole.write_images(tmp_path)
    data = fp.datasets.mnist(data_dir=Path(tmp_path))
    assert data.x.shape == (70_000, 1, 28, 28)
