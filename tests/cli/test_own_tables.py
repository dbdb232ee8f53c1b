"""Own tables on the command line and in experiment files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

import fedparity as fp

SITES = ("a", "b")
USUAL = ("--model", "linear", "--rounds", "2", "--lr", "0.1", "--lstar", "none")
ONE = ("--data", "patients.csv", "--client", "hospital", "--target", "disease", *USUAL)


def write(folder: Path = Path(), n: int = 30) -> None:
    """Write one table of two hospitals, with text and gaps."""
    rows = [
        {
            "hospital": SITES[k % 2],
            "age": None if k % 7 == 3 else 40 + k,
            "smoker": ("no", "yes", None)[k % 3],
            "sex": "fm"[k // 2 % 2],
            "disease": "ill" if k % 4 == 0 else "well",
        }
        for k in range(n)
    ]
    pd.DataFrame(rows).to_csv(folder / "patients.csv", index=False)


def split_files() -> None:
    """Write the same table as a file a hospital."""
    Path("sites").mkdir()
    df = pd.read_csv("patients.csv")
    for name, rows in df.groupby("hospital"):
        rows.drop(columns="hospital").to_csv(f"sites/{name}.csv", index=False)


def clients(directory: str) -> pd.DataFrame:
    return pd.read_parquet(Path(directory) / "clients.parquet")


def test_a_table_is_run_compared_and_resumed(cli):
    write()
    done = cli("run", *ONE, "--groups", "sex", "--out", "one")
    assert done.code == 0, done.err
    assert "data: column 'age' misses 4 of 30 values" in done.out
    data = yaml.safe_load(Path("one/experiment.yaml").read_text())["data"]
    assert data["groups"] == ["sex"]
    assert len(data["sha256"]) == 64
    assert Path("one/preparation.json").exists()
    assert fp.data.Preparation.load("one").outputs == ("age", "smoker=yes")
    assert cli("resume", "one", "--rounds", "3").code == 0
    assert cli("run", "one", "--rounds", "3", "--out", "again").code == 0
    pd.testing.assert_frame_equal(clients("one"), clients("again"))
    done = cli("compare", *ONE, "--algorithms", "fedavg,afl", "--out", "both")
    assert done.code == 0, done.err
    with Path("patients.csv").open("a") as file:
        file.write("a,50,no,f,ill\n")
    for args in (("resume", "one", "--rounds", "4"), ("resume", "both", "--rounds", "3")):
        done = cli(*args)
        assert done.code == 2
        assert "patients.csv has changed since it was recorded" in done.err
        assert done.err.count("\n") == 1


def test_one_file_a_client_gives_the_same_run(cli):
    write()
    split_files()
    assert cli("run", *ONE, "--out", "one").code == 0
    done = cli("run", "--data", "sites/*.csv", "--target", "disease", *USUAL, "--out", "files")
    assert done.code == 0, done.err
    pd.testing.assert_frame_equal(clients("one"), clients("files"))


def test_a_file_names_tables_beside_itself(cli):
    folder = Path("study")
    folder.mkdir()
    write(folder)
    text = "model: linear\nrounds: 1\nlstar: none\nsolver: {lr: 0.1}\n"
    table = "data: {table: patients.csv, client: hospital, target: disease, without: sex}\n"
    (folder / "experiment.yaml").write_text(table + text)
    done = cli("run", "study/experiment.yaml", "--out", "one")
    assert done.code == 0, done.err
    made = fp.load("study/experiment.yaml")
    assert made.federation.preparation.outputs == ("age", "smoker=yes")
    assert made.federation.recipe["table"] == str((folder / "patients.csv").resolve())


@pytest.mark.parametrize("path", ["../secret.csv", "{here}/secret.csv", "link.csv", "../*.csv"])
def test_a_strangers_file_names_no_table_elsewhere_unless_it_knows_it(cli, path):
    write()
    secret = Path("patients.csv").rename("secret.csv")
    sent = Path("sent")
    sent.mkdir()
    (sent / "link.csv").symlink_to(secret.resolve())
    table = path.format(here=Path().resolve())
    settings = {
        "data": {"table": table, "client": "hospital", "target": "disease"},
        **{"model": "linear", "rounds": 1, "lstar": "none"},
    }
    file = sent / "experiment.yaml"
    file.write_text(yaml.safe_dump(settings))
    done = cli("run", str(file), "--out", "run")
    assert done.code == 2
    assert "is neither beside it nor in the data folder" in done.err
    assert not Path("run").exists()
    settings["data"]["sha256"] = "0" * 64  # a guess: nothing of the table is told
    file.write_text(yaml.safe_dump(settings))
    done = cli("run", str(file), "--out", "run")
    assert done.code == 2
    assert "has changed since it was recorded" in done.err
    done = cli("run", str(file), "--data", "secret.csv", "--out", "run")  # named by the person
    assert done.code == 0, done.err


def test_a_run_directory_is_opened_where_its_table_is_known(cli):
    write()
    assert cli("run", *ONE, "--out", "one").code == 0
    Path("elsewhere").mkdir()
    shutil.move("one", "elsewhere/one")
    assert cli("resume", "elsewhere/one", "--rounds", "3").code == 0


MISTAKES = [
    (("--data", "absent.csv", "--target", "disease"), "there is no such file"),
    (("--data", "patients.csv", "--client", "hospital"), "name the column to be predicted"),
    (("--data", "patients.csv", "--target", "disease"), "name the column that tells its clients"),
    ((*ONE[:4], "--target", "diseas"), "unknown column 'diseas': did you mean 'disease'"),
    ((*ONE[:6], "--prepare", "federted"), "unknown way to prepare 'federted'"),
    (("--data", "patients.xlsx", "--target", "disease"), "save it as CSV or parquet"),
    ((*ONE[:6], "--prepare", "none"), "column 'smoker' is not numeric: text ('no')"),
]


@pytest.mark.parametrize(("args", "told"), MISTAKES, ids=[told[:30] for _, told in MISTAKES])
def test_a_mistake_with_a_table_is_one_line(cli, args, told):
    write()
    done = cli("run", *args, *USUAL)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
    assert not Path("runs").exists()


def test_a_run_keeps_the_preparation_that_it_was_given(tmp_path):
    rows = {"site": list("ab") * 20, "age": range(40), "ill": [0, 0, 1, 1] * 10}
    pd.DataFrame(rows).to_csv(tmp_path / "t.csv", index=False)
    given = str(tmp_path / "given.json")
    fp.Federation.from_frame(tmp_path / "t.csv", "site", "ill").preparation.save(given)
    federation = fp.Federation.from_frame(tmp_path / "t.csv", "site", "ill", prepare=given)
    fp.Experiment(federation, "linear", rounds=1, lstar="none").run(out=tmp_path / "runs" / "one")
    assert fp.resume(tmp_path / "runs" / "one", rounds=2).rounds == 2
