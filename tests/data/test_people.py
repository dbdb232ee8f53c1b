"""The named tables with natural clients, on the real files and on small ones in their form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedparity.data import DATASETS, datasets, load, rebuild
from fedparity.data.about import ABOUT
from fedparity.errors import InputError

ROW = "39, State-gov, 77516, {}, 13, Never-married, ?, Own-child, White, {}, 0, 0, 40, Cuba, {}\n"


def write_adult(root):
    (root / "adult").mkdir()
    rows = [("Doctorate", "Male", ">50K"), ("11th", "Female", "<=50K"), ("HS-grad", "Male", ">50K")]
    (root / "adult/adult.data").write_text("".join(ROW.format(*row) for row in rows * 10))
    test = "|1x3 Cross validator\n" + "".join(ROW.format(*row[:2], row[2] + ".") for row in rows)
    (root / "adult/adult.test").write_text(test)


def test_adult_has_two_clients_and_its_groups_beside(tmp_path):
    write_adult(tmp_path)
    made = load("adult", tmp_path).split("natural", official=True)
    assert made.names == ("doctorate", "others")
    assert made.test.sizes.tolist() == [1, 2]
    assert made.test.y.tolist() == [1, 0, 1]
    assert made.group_table("test")["sex"].tolist() == ["Male", "Female", "Male"]
    assert not any(name.startswith("sex") for name in made.preparation.outputs)
    assert rebuild(made.recipe, tmp_path).fingerprint == made.fingerprint
    fed = load("adult(protected=true)", tmp_path).split("natural")
    assert "sex=Male" in fed.preparation.outputs


def test_people_of_the_census_are_coded_and_a_share_is_drawn_once(tmp_path):
    (tmp_path / "acs-income").mkdir()
    n = 400
    x = np.tile(np.array([[30, 1, 16, 1, 4700, 303, 2, 40, 2, 1]], dtype=np.uint16), (n, 1))
    x[::2] = [61, 2, 20, 2, 500, 6, 0, 20, 1, 5]
    np.savez(
        tmp_path / "acs-income/acs_income_2018.npz",
        **{"X": x, "y": np.arange(n) % 4 == 0, "state": np.arange(n, dtype=np.uint8) % 2},
        names=np.array(["AK", "AL"]),
    )
    made = load("acs_income", tmp_path).split("natural")
    assert made.names == ("AK", "AL")
    assert made.groups["age_band"] == ("30 to 44", "60 and more")
    assert "occupation=sales" in " ".join(made.preparation.outputs)
    part, same = (datasets.acs_income(share=0.25, data_dir=tmp_path) for _ in range(2))
    assert 60 < len(part) < 140
    assert part.table.equals(same.table)


@pytest.mark.parametrize("content", ["", "1,2,3\n", "not, the, census\n"])
def test_a_file_that_is_not_the_census_is_refused(tmp_path, content):
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult/adult.data").write_text(content)
    with pytest.raises(InputError, match="is not the census file"):
        load("adult", tmp_path)


def test_every_dataset_tells_size_licence_and_citation():
    assert set(DATASETS) <= set(ABOUT)


REAL = [
    # name, file, examples, clients, smallest and largest client, mean of the target
    ("adult", "adult/adult.data", 48_842, 2, (594, 48_248), 0.2393),
    ("vehicle", "vehicle/vehicle.npz", 1_860, 23, (7, 534), None),
    ("landmine", "landmine/landmine.npz", 14_820, 29, (445, 690), 0.061),
    ("school", "school/school.npz", 15_362, 139, (22, 251), None),
    ("acs_income(share=0.02)", "acs-income/acs_income_2018.npz", None, 51, None, None),
    ("beijing_air", "beijing-air/beijing_air.parquet", 412_029, 12, None, None),
    ("communities_crime", "communities-crime/communities.csv.gz", 1_994, 46, (1, 278), 0.238),
    ("law_school", "law-school/law_school.csv.gz", 21_791, 11, (1, 4302), None),
]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "file", "examples", "clients", "ends", "mean"), REAL, ids=[r[0] for r in REAL]
)
def test_the_real_tables_have_their_clients(real, name, file, examples, clients, ends, mean):
    data = load(name, real(file))
    made = data.split("natural")
    total = made.sizes().drop(columns="client").sum(axis=1)
    assert len(made) == clients
    assert examples in (None, int(total.sum()))
    assert ends in (None, (total.min(), total.max()))
    if mean is not None:
        assert float(np.mean(data.y)) == pytest.approx(mean, abs=6e-4)
    x = made.train.x.double()
    numbers = [k for k, name in enumerate(made.preparation.outputs) if "=" not in name]
    assert x[:, numbers].mean(dim=0).abs().max() < 1e-3
    assert isinstance(made.group_table("test"), pd.DataFrame)


@pytest.mark.data
def test_the_real_patients_have_their_regions(real):
    made = load("tcga_brca", real("tcga-brca/tcga_brca.csv")).split("natural", official=True)
    total = made.sizes().drop(columns="client").sum(axis=1)
    assert (len(made), int(total.sum()), int(total.min())) == (6, 1088, 51)
    assert made.kind == "survival"
    assert len(made.test) > 0
