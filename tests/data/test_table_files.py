"""Own tables: files that are read, columns that are prepared, what is odd and what is refused."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from messy import SITES, patients, together, write_sites
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from fedparity.data import Federation, Preparation, rebuild, table
from fedparity.data.doctor import Finding
from fedparity.data.prepare import Number
from fedparity.errors import InputError

NUMBERS, WORDS = ["age", "dose"], ["smoker", "sex"]


def made(df=None, **settings):
    rows = together() if df is None else df
    return Federation.from_frame(rows, "hospital", "disease", **settings)


def pooled():
    """Return the usual preparation, as scikit-learn does it with all rows in one place."""
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(drop="if_binary"))
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    steps = [("age", numbers, ["age"]), ("smoker", words, ["smoker"]), ("sex", words, ["sex"])]
    return ColumnTransformer([*steps, ("dose", numbers, ["dose"])], sparse_threshold=0)


def trained_rows(federation):
    """Return the table with the rows that the federation trains with marked."""
    marks = Federation.from_frame(
        together().assign(place=range(120)),
        "hospital",
        "disease",
        features=["place"],
        prepare="none",
    )
    assert marks.train.sizes.tolist() == federation.train.sizes.tolist()
    return marks.train.x.ravel().long().numpy()


def test_the_federated_preparation_is_that_of_all_training_examples_in_one_place():
    federation = made()
    rows = trained_rows(federation)
    training = together().drop(columns=["hospital", "disease"]).iloc[rows]
    training["smoker"] = training["smoker"].where(training["smoker"].notna(), np.nan)
    wanted = pooled().fit_transform(training)
    np.testing.assert_allclose(federation.train.x.numpy(), wanted, atol=1e-6)
    assert federation.preparation.outputs == (
        *("age", "smoker=former", "smoker=no", "smoker=yes", "sex=m", "dose"),
    )


def test_validation_and_test_examples_change_nothing_of_the_preparation():
    df, rows = together(), trained_rows(made())
    other = df.copy()
    held_out = ~np.isin(np.arange(120), rows)
    other.loc[held_out, "age"] = 1e6
    assert made(other).preparation.text() == made(df).preparation.text()


def test_a_client_may_be_prepared_by_its_own_numbers():
    federation = made(prepare="client")
    for k in range(3):
        x, _ = federation.train.client(k)
        assert x[:, 0].mean().item() == pytest.approx(0, abs=1e-5)
        assert x[:, 5].std(correction=0).item() == pytest.approx(1, abs=1e-5)
    df = together().head(40)
    own = federation.preparation.apply(df)
    assert not np.allclose(own, federation.preparation.apply(df, ["somewhere"] * 40))


def test_a_transformer_of_ones_own_is_fitted_on_training_examples():
    df = together()
    df["smoker"] = df["smoker"].where(df["smoker"].notna(), np.nan)
    own, usual = made(df, prepare=pooled()), made(df)
    np.testing.assert_allclose(own.test.x.numpy(), usual.test.x.numpy(), atol=1e-6)
    with pytest.raises(InputError, match="prepare is int: give federated, client, none"):
        made(prepare=3)
    with pytest.raises(InputError, match="unknown way to prepare 'federted': did you mean"):
        made(prepare="federted")


def test_a_written_preparation_is_numbers_and_does_the_same_to_a_new_table(tmp_path):
    federation = made(prepare="client")
    federation.preparation.save(tmp_path / "preparation.json")
    read = Preparation.load(tmp_path)
    df = together()[["dose", "sex", "smoker", "age", "hospital"]].iloc[::-1]  # another order
    np.testing.assert_array_equal(read.apply(df), federation.preparation.apply(df))
    assert read.classes == ("no", "yes")
    again = made(prepare=str(tmp_path / "preparation.json"))
    assert again.fingerprint == federation.fingerprint
    with pytest.raises(InputError, match="has no column 'age', 'sex': the model was trained with"):
        read.apply(df.drop(columns=["age", "sex"]))
    with pytest.raises(InputError, match="column 'age' has 'old' where a number is expected"):
        read.apply(df.assign(age="old"))


def test_a_word_never_seen_in_training_is_no_level():
    rule = made().preparation
    row = together().head(1).assign(smoker="pipe")
    assert rule.apply(row)[0, 1:4].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": [{"name": "age", "scale": 0, "kind": "number"}]},
        {"columns": [{"name": "age", "mean": "NaN", "kind": "number"}]},
        {"columns": [{"name": "age", "kind": "code"}]},
        {"columns": []},
        {"columns": [{"name": "age", "kind": "number"}] * 2},
        {"columns": [{"name": "sex", "kind": "category", "levels": [], "fill": "f"}]},
        {"columns": [{"name": "sex", "kind": "category", "levels": ["f", "f"], "fill": "f"}]},
        {"clients": {"a": []}},
        {"own": "os:system"},
        {"format": 2},
    ],
)
def test_a_preparation_of_odd_content_is_refused(tmp_path, changes):
    page = json.loads(Preparation("federated", (Number("age"),)).text())
    (tmp_path / "preparation.json").write_text(json.dumps(page | changes))
    with pytest.raises(InputError, match=r"preparation\.json"):
        Preparation.load(tmp_path)


def test_one_file_a_client_is_the_same_as_one_table(tmp_path):
    write_sites(tmp_path / "sites")
    files = Federation.from_frame(str(tmp_path / "sites" / "*.csv"), None, "disease")
    assert files.names == SITES
    assert files.fingerprint == made().fingerprint
    listed = Federation.from_frame(
        [tmp_path / "sites" / f"{site}.csv" for site in SITES], None, "disease"
    )
    assert listed.fingerprint == files.fingerprint


@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "p.tsv", "p.parquet", "german.csv"])
def test_tables_of_every_kind_are_read_alike(tmp_path, name):
    df, path = together(), tmp_path / name
    if name.endswith("parquet"):
        df.to_parquet(path)
    elif name == "german.csv":
        df.to_csv(path, index=False, sep=";", decimal=",", encoding="utf-8-sig")
    else:
        df.to_csv(path, index=False, sep="\t" if ".tsv" in name else ",")
    read = Federation.from_frame(path, "hospital", "disease")
    assert read.fingerprint == made().fingerprint


def test_a_table_is_built_again_from_its_recipe_and_not_from_a_changed_file(tmp_path):
    path = tmp_path / "patients.csv"
    together().to_csv(path, index=False)
    first = Federation.from_frame(
        path, "hospital", "disease", groups=["sex"], without=["dose"], seed=3
    ).with_label_noise("symmetric(rate=0.2)", seed=1)
    recipe = json.loads(json.dumps(first.recipe))
    again = rebuild(recipe)
    assert again.fingerprint == first.fingerprint
    assert again.recipe == first.recipe
    with path.open("a") as file:
        file.write("50,no,f,5000,no,site-1\n")
    with pytest.raises(InputError, match=r"patients\.csv has changed since it was recorded"):
        rebuild(recipe)


def test_files_that_come_and_go_are_told(tmp_path):
    write_sites(tmp_path / "sites")
    recipe = Federation.from_frame(str(tmp_path / "sites/*.csv"), None, "disease").recipe
    (tmp_path / "sites" / "more.csv").write_bytes((tmp_path / "sites/site-1.csv").read_bytes())
    with pytest.raises(InputError, match=r"more\.csv was not among the tables"):
        rebuild(recipe)
    (tmp_path / "sites" / "more.csv").unlink()
    (tmp_path / "sites" / "site-2.csv").unlink()
    with pytest.raises(InputError, match=r"site-2\.csv was recorded and is not there"):
        rebuild(recipe)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"a,b\n", "has no rows"),
        (b'a,b\n"1,2\n', "is not a whole table"),
        (b"a,b\n\xff\xfe,2\n", "is not UTF-8 text"),
    ],
)
def test_a_file_that_is_no_table_is_one_line(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        Federation.from_frame(path, "a", "b")
    assert "\n" not in str(raised.value)


def test_files_are_bounded_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "LARGEST", 1000)
    small = tmp_path / "bomb.csv.gz"
    small.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 10_000))
    with pytest.raises(InputError, match="unpacks to more than"):
        table.read(small)
    pd.DataFrame({"a": np.zeros(10_000)}).to_parquet(tmp_path / "bomb.parquet")
    with pytest.raises(InputError, match="unpacks to more than"):
        table.read(tmp_path / "bomb.parquet")
    once = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), pa.array(["x" * 100]))
    pq.write_table(pa.table({"a": once}), tmp_path / "word.parquet", store_schema=False)
    with pytest.raises(InputError, match="unpacks to more than"):  # 100 words of 100 letters
        table.read(tmp_path / "word.parquet")
    pd.DataFrame({"a": [[1.0]]}).to_parquet(tmp_path / "lists.parquet")
    with pytest.raises(InputError, match="column 'a' holds lists"):
        table.read(tmp_path / "lists.parquet")
    (tmp_path / "large.csv").write_bytes(b"a,b\n" * 1000)
    with pytest.raises(InputError, match="is larger than"):
        Federation.from_frame(tmp_path / "large.csv", "a", "b")


def bad():
    """Return a table with something wrong in most columns."""
    df = together()
    df["admitted"] = pd.date_range("2020-01-01", periods=120).astype(str)
    df["pressure"] = ["high", *(["1", "2", "3"] * 40)][:120]
    df["name"] = [f"patient {k}" for k in range(120)]
    df.loc[7, "disease"] = None
    df["country"] = "DE"
    df["notes"] = None
    return df


def test_all_problems_of_all_columns_are_one_answer():
    with pytest.raises(InputError) as raised:
        made(bad())
    told = str(raised.value)
    for part in (
        "column 'disease' misses 1 of 120 values: fill them in or drop the rows",
        "column 'admitted' holds dates ('2020-01-01'): turn them into numbers",
        "column 'pressure' holds numbers and text ('high'): leave such cells empty",
        "column 'name' has 120 different words ('patient 0')",
    ):
        assert part in told
    assert "country" not in told


def test_what_is_odd_and_no_problem_is_told():
    df = bad().drop(columns=["admitted", "pressure", "name"]).dropna(subset=["disease"])
    told = {str(finding) for finding in made(df).check()}
    out = "leave it out (--without"
    assert f"column 'country' is always DE: it says nothing, {out} country)" in told
    assert f"column 'notes' holds nothing: {out} notes)" in told
    assert "column 'age' misses 12 of 119 values: the mean is taken" in told
    assert "column 'sex' is text ('m'): its 2 words become inputs of 0 and 1" in told


def test_what_a_spreadsheet_makes_of_numbers_and_words_is_told(tmp_path):
    rows = ["6,1", "5", "4,75", None] * 30
    with pytest.raises(InputError) as raised:
        made(together().assign(**{"blood sugar": rows}))
    comma = "column 'blood sugar' holds numbers with a decimal comma ('6,1'): write them with a poi"
    assert comma in str(raised.value)
    assert "(--without 'blood sugar')" in str(raised.value)
    told = {str(finding) for finding in made(together().assign(ward=["A", "a", "b "] * 40)).check()}
    assert any("'ward' has words that differ in case or spaces alone ('A', 'a')" in t for t in told)
    wards = pd.Series(["North", "north "] * 60, dtype=object)
    told = " ".join(str(f) for f in made(together().assign(sex=wards), groups=["sex"]).check())
    assert "'sex' has words that differ in case or spaces alone ('North', 'north ')" in told
    always = {str(finding) for finding in made(together().assign(ward="w")).check()}
    assert not any("its 1 words" in finding for finding in always)


def test_numbers_that_are_codes_are_encoded_when_said_so():
    federation = made(together().assign(ward=[10, 2, 7] * 40), categories=["ward"])
    assert federation.preparation.outputs[-3:] == ("ward=2", "ward=7", "ward=10")


def test_files_with_other_columns_are_refused_and_with_another_order_told(tmp_path):
    folder = tmp_path / "sites"
    write_sites(folder)
    turned = patients("site-2")[["disease", "dose", "sex", "smoker", "age"]]
    turned.to_csv(folder / "site-2.csv", index=False)
    federation = Federation.from_frame(str(folder / "*.csv"), None, "disease")
    assert federation.fingerprint == made().fingerprint
    assert federation.check()[0][:2] == (
        "file site-2.csv",
        "has its columns in another order",
    )
    turned.rename(columns={"age": "Age"}).to_csv(folder / "site-2.csv", index=False)
    odd = patients("site-10").astype({"dose": object})
    odd.loc[3, "dose"] = "much"
    odd.to_csv(folder / "site-10.csv", index=False)
    with pytest.raises(InputError) as raised:
        Federation.from_frame(str(folder / "*.csv"), None, "disease")
    assert "file site-2.csv has no column 'age', and columns that others lack: 'Age'" in str(
        raised.value
    )
    assert "file site-10.csv has text in column 'dose' ('much'), elsewhere numbers" in str(
        raised.value
    )


def findings(x, y, client, **settings):
    return Federation.from_arrays(x, y, client, **settings).check()


def test_clients_and_classes_that_are_odd_are_told():
    x = np.arange(12.0)[:, None]
    one = findings(x, [1] * 12, ["a", "b"] * 6)
    assert [f[:2] for f in one] == [("the target", "is always '1'")]
    told = findings(x, [0, 2] * 5 + [0, 0], ["a", "b"] * 5 + ["a", "c"])
    assert [f[:2] for f in told] == [
        ("client 'c'", "has one example"),
        ("the target", "never is '1' of 0 to 2"),
        ("clients a, b, c", "lack classes (a '2'; b '0'; c '2')"),
    ]


def test_inputs_that_nobody_scaled_are_told():
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(0, 1, 40), rng.normal(0, 5000, 40), np.ones(40)], axis=1)
    told = findings(x, [0, 1] * 20, ["a"] * 40)
    assert told[0][:2] == ("input 2", "is the same in all training examples")
    assert told[1].where == "the scales of input 0 and input 1"
    assert told[1].what.endswith("times apart")
    raw = made(together()[["age", "dose", "disease", "hospital"]].fillna(50), prepare="none")
    assert not any("apart" in f.what for f in raw.check() if f.where.startswith("the scales"))
    wide = raw_frame().assign(dose=lambda df: df["dose"] * 100)
    assert any("apart" in finding.what for finding in made(wide, prepare="none").check())


def raw_frame():
    return together()[["age", "dose", "disease", "hospital"]].fillna(50)


def test_data_in_order_are_silent():
    x = np.random.default_rng(0).normal(size=(40, 2))
    assert findings(x, [0, 1] * 20, ["a"] * 20 + ["b"] * 20) == ()


def test_a_finding_is_a_line():
    assert str(Finding("column 'a'", "is odd", "mend it")) == "column 'a' is odd: mend it"


def test_groups_of_a_table_are_no_inputs_unless_asked_for():
    beside = made(groups=["sex"])
    assert "sex=m" not in beside.preparation.outputs
    assert beside.group_table("test")["sex"].isin(["f", "m"]).all()
    fed = made(groups=["sex"], features=["age", "sex"])
    assert fed.preparation.outputs == ("age", "sex=m")
    assert fed.groups == {"sex": ("f", "m")}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"without": ["does"]}, "unknown column 'does': did you mean 'dose'"),
        ({"features": ["disease"]}, "'disease' is the client or the target"),
        ({"groups": ["gender"]}, "unknown column 'gender'"),
    ],
)
def test_a_wrong_column_name_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        made(**settings)


def test_one_file_needs_a_column_of_clients(tmp_path):
    together().to_csv(tmp_path / "p.csv", index=False)
    with pytest.raises(InputError, match=r"name the column that tells its clients apart"):
        Federation.from_frame(tmp_path / "p.csv", None, "disease")
    with pytest.raises(InputError, match=r"cannot read .*q\.csv: there is no such file"):
        Federation.from_frame(tmp_path / "q.csv", "hospital", "disease")
