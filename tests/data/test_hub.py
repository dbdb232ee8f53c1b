"""Datasets of Hugging Face's library and partitioners of flwr-datasets, without a network."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedparity as fp
from fedparity.cli import main
from fedparity.data import rebuild

datasets = pytest.importorskip("datasets", reason="pip install 'fedparity[hf]'")

N = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a data folder with a saved table, a folder of CSVs, and images."""
    root = tmp_path_factory.mktemp("hf")
    datasets.disable_progress_bars()
    rng = np.random.default_rng(0)
    columns = {
        "age": [None if k % 9 == 4 else float(20 + k) for k in range(N)],
        "ward": [("a", "b", None)[k % 3] for k in range(N)],
        "sex": ["fm"[k % 2] for k in range(N)],
        "hospital": [k // 20 for k in range(N)],
        "ill": [k // 2 % 2 for k in range(N)],
    }
    kinds = datasets.Features(
        {
            "age": datasets.Value("float64"),
            "ward": datasets.Value("string"),
            "sex": datasets.Value("string"),
            "hospital": datasets.ClassLabel(names=["north", "south", "east"]),
            "ill": datasets.ClassLabel(names=["no", "yes"]),
        }
    )
    whole = datasets.Dataset.from_dict(columns, features=kinds)
    parts = {"train": whole.select(range(50)), "test": whole.select(range(50, N))}
    datasets.DatasetDict(parts).save_to_disk(str(root / "people"))
    (root / "files").mkdir()
    whole.to_pandas().to_csv(root / "files" / "train.csv", index=False)
    pixels = [rng.integers(0, 255, (6, 5, 3), dtype=np.uint8) for _ in range(20)]
    images = {"image": pixels, "label": [k % 2 for k in range(20)]}
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict(images, features=kinds).save_to_disk(str(root / "images"))
    vectors = {"x": [[float(k), 1.0, 2.0] for k in range(20)], "y": [k / 3 for k in range(20)]}
    datasets.Dataset.from_dict(vectors).save_to_disk(str(root / "vectors"))
    return root


@pytest.fixture(autouse=True)
def here(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPARITY_DATA", str(folder))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def people(**more) -> fp.Dataset:
    settings = {"target": "ill", "client": "hospital", "groups": ("sex",), **more}
    return fp.datasets.hf("people", **settings)


def test_a_saved_table_is_that_of_the_same_rows_in_a_file(tmp_path):
    federation = people().split("natural")
    assert federation.names == ("east", "north", "south")
    assert federation.classes == ("no", "yes")
    assert federation.groups == {"sex": ("f", "m")}
    whole = datasets.load_from_disk(str(Path(fp.data.data_dir()) / "people"))
    frame = pd.concat([part.to_pandas() for part in whole.values()])
    frame["hospital"] = np.array(["north", "south", "east"])[frame["hospital"]]
    frame["ill"] = np.array(["no", "yes"])[frame["ill"]]
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = fp.Federation.from_frame(tmp_path / "t.csv", "hospital", "ill", groups=["sex"])
    assert table.fingerprint == federation.fingerprint
    assert rebuild(federation.recipe).fingerprint == federation.fingerprint


def test_the_publishers_test_is_kept_and_others_are_dealt():
    official = people(client=None).split("iid", clients=2, official=True)
    assert official.test.sizes.sum() == 10
    assert len(people(split="train")) == 50
    assert len(people(client=None).split("dirichlet(alpha=5.0)", clients=3)) == 3
    with pytest.raises(fp.InputError, match="unknown split of 'people' 'trian': did you mean"):
        people(split="trian")
    with pytest.raises(fp.InputError, match="unknown column 'hospitl': did you mean 'hospital'"):
        people(client="hospitl")


def test_images_and_vectors_are_inputs_by_themselves():
    images = fp.datasets.hf("images", target="label").split("iid", clients=2)
    assert images.shape == (3, 6, 5)
    assert 0 <= float(images.train.x.min()) <= float(images.train.x.max()) <= 1
    vectors = fp.datasets.hf("vectors", target="y").split("iid", clients=2)
    assert (vectors.shape, vectors.kind) == ((3,), "values")


def test_a_folder_of_files_goes_through_the_command_line(capsys):
    args = ["--data", "hf:files", "--target", "ill", "--client", "hospital", "--groups", "sex"]
    for command in (
        ["check", "hf:files", *args[2:]],
        ["run", *args, "--model", "linear", "--rounds", "1", "--lstar", "none", "--out", "one"],
        ["resume", "one", "--rounds", "2"],
        ["predict", "one", str(Path(fp.data.data_dir()) / "files" / "train.csv")],
    ):
        with pytest.raises(SystemExit) as end:
            main(command)
        assert end.value.code == 0, capsys.readouterr().err
    assert "probability_1" in capsys.readouterr().out
    assert fp.Result.load("one").groups == ["sex"]
    assert "hf(name=files, target=ill" in Path("one/experiment.yaml").read_text().replace("'", "")


def test_problems_of_all_columns_are_one_answer(folder):
    table = {"seen": ["2020-01-31"] * 4, "bed": ["x", "1", "2", "3"], "y": [0, 1, 0, 1]}
    datasets.Dataset.from_dict(table).save_to_disk(str(folder / "odd"))
    with pytest.raises(fp.InputError, match=r"'seen' holds dates.*; column 'bed' holds numbers"):
        fp.datasets.hf("odd", target="y")


@pytest.mark.parametrize("name", ["user/absent", "absent"])
def test_nothing_is_downloaded(name):
    with pytest.raises(fp.InputError, match=rf"hf: cannot read '{name}' .*load it once, online"):
        fp.datasets.hf(name, target="y")


def test_a_name_reads_nothing_outside_of_the_data_folder(tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "t.csv").write_text("a,y\n1,0\n2,1\n")
    for name in ("private", str(tmp_path / "private"), "../" + tmp_path.name + "/private"):
        with pytest.raises(fp.InputError, match=r"is not in the data folder|cannot read"):
            fp.datasets.hf(name, target="y")


MODULE = '''
class Halves:
    """In the form of flwr-datasets: given a dataset once, then asked for its rows."""

    def __init__(self, by="label", parts=2):
        self.by, self.parts = by, parts
        self.dataset = None

    @property
    def num_partitions(self):
        return self.parts

    def load_partition(self, partition_id):
        ids = [k for k, y in enumerate(self.dataset[self.by]) if y % self.parts == partition_id]
        return self.dataset.select(ids)
'''


def test_a_partitioner_deals_any_dataset(tmp_path, monkeypatch):
    (tmp_path / "dealers_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    text = "dealers_of_mine:Halves(by='label', parts=2)"
    made = fp.datasets.digits().split(text)
    even, odd = (set(made.train.client(k)[1].tolist()) for k in range(2))
    assert (even, odd) == ({0, 2, 4, 6, 8}, {1, 3, 5, 7, 9})
    assert made.recipe["partition"].startswith("dealers_of_mine:Halves")
    with pytest.raises(fp.InputError, match="a file alone does not make it run"):
        rebuild(made.recipe)
    again = rebuild(made.recipe, allowed=fp.data.datasets.Allowed.by("dealers_of_mine"))
    assert again.fingerprint == made.fingerprint
    code = sys.modules.pop("dealers_of_mine")
    assert fp.datasets.digits().split(code.Halves()).fingerprint == made.fingerprint
    with pytest.raises(fp.InputError, match="the partitioner makes 2 clients"):
        fp.datasets.digits().split(text, clients=3)


@pytest.mark.parametrize(
    ("file", "page"),
    [
        ("README.md", "\n ---\n{}\n---\n"),
        ("README.md", "---\n{}\n---\n"),
        (".huggingface.yaml", "{}"),
    ],
)
def test_a_folder_that_names_files_by_address_is_refused(tmp_path, monkeypatch, file, page):
    (tmp_path / "far").mkdir()
    told = (
        "tags: ['a---b']\nconfigs:\n- config_name: default\n  data_files: http://127.0.0.1:9/x.csv"
    )
    (tmp_path / "far" / file).write_text(page.format(told))
    with pytest.raises(fp.InputError, match="names data files by address, and nothing is down"):
        fp.datasets.hf("far", target="y", data_dir=tmp_path)


def test_a_folder_may_say_which_of_its_files_are_read(tmp_path):
    (tmp_path / "near").mkdir()
    pd.DataFrame({"x": range(20), "y": [0, 1] * 10}).to_csv(
        tmp_path / "near" / "a.csv", index=False
    )
    told = "configs:\n- config_name: default\n  data_files: a.csv"
    (tmp_path / "near" / "README.md").write_text(f"---\n{told}\n---\nSee https://example.org.\n")
    assert len(fp.datasets.hf("near", target="y", data_dir=tmp_path).y) == 20
