"""A small part of the drill: each file of a run is damaged once, in one way or another."""

from __future__ import annotations

import damage
import pytest

CASES = 27


def test_damage_gives_the_right_numbers_or_is_told(tmp_path):
    counts = damage.drill(tmp_path, CASES)
    assert {end for _, end in counts} == {"right", "told"}
    assert counts.total() >= CASES


def test_the_drill_notices_what_nobody_verifies(tmp_path, monkeypatch):
    damage.make_runs(tmp_path)
    wanted = damage.read(tmp_path / "finished")
    content = (tmp_path / "other-finished" / "clients.parquet").read_bytes()
    case = damage.Case("finished", "clients.parquet", "swapped", content)
    assert damage.damaged(tmp_path, case, wanted) == {"load": "told", "resume": "right"}
    monkeypatch.setattr("fedparity.records.checksums.Checksums._knows", lambda *_: True)
    assert damage.damaged(tmp_path, case, wanted)["load"] == "wrong"
    assert damage.damaged(tmp_path, case._replace(content=b""), wanted)["load"] == "told"


@pytest.mark.parametrize("harm", damage.HARMS)
def test_an_empty_file_can_be_harmed(harm):
    assert harm(b"", damage.random.Random(0)) in (b"", None) or harm is damage.longer
