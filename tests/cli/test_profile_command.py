"""``fedparity profile`` as a user calls it."""

from __future__ import annotations

from pathlib import Path

from calls import DIGITS

SETTINGS = DIGITS[: DIGITS.index("--rounds")]


def test_a_profile_shows_phases_and_leaves_nothing(cli):
    done = cli("profile", *SETTINGS, "--algorithm", "qffl(q=2)", "--rounds", "2")
    assert done.code == 0, done.err
    for told in ("forward pass", "qffl: finish", "evaluation", "a round", "100.0%", "Engine vmap"):
        assert told in done.out
    assert list(Path().iterdir()) == []


def test_a_profile_watches_the_experiment_of_a_file_or_of_a_run(cli):
    Path("experiment.yaml").write_text(
        "data: {dataset: digits, partition: shards, clients: 5}\n"
        "model: linear\nrounds: 400\nsolver: {lr: 0.1}\n"
    )
    done = cli("profile", "experiment.yaml", "--engine", "loop", "--rounds", "2")
    assert done.code == 0, done.err
    assert "400 rounds; engine loop" in done.out
    assert "2 rounds watched" in done.out
    assert "auto would take 'vmap'" in " ".join(done.out.split())
    assert cli("run", *DIGITS, "--out", "run").code == 0
    assert cli("profile", "run", "--rounds", "1").code == 0


def test_mistakes_of_a_profile_are_one_line(cli):
    for args, told in [
        (["--rounds", "0"], "'--rounds'"),
        (["--algorithm", "egale"], "did you mean 'eagle'"),
        (["--engine", "gpu"], "engine should be"),
    ]:
        done = cli("profile", *SETTINGS, *args)
        assert done.code == 2
        assert done.err.count("\n") == 1
        assert told in done.err
