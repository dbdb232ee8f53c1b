"""Tables at sites: what they have in common is made of sums, and is that of the simulator."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

pytest.importorskip("flwr", reason='Flower is not installed: pip install "fedparity[flower]"')

from runs import assert_same
from wards import DATA, SETTINGS, WARDS, ward, write_wards

import fedparity as fp
from fedparity.data import SiteTable
from fedparity.data.source import TableRecipe
from fedparity.data.told import LONGEST, Told, combine
from fedparity.flower import make_client_app
from fedparity.flower.config import run_config
from fedparity.flower.server_app import serve
from fedparity.flower.testing import Fault, LocalGrid
from fedparity.records.rundir import RunDir
from fedparity.records.settings import site_of
from fedparity.run.file import experiment


@pytest.fixture
def table(tmp_path: Path) -> pd.DataFrame:
    return pd.read_csv(write_wards(tmp_path))


def recipe(file: Path | str = "wards.csv", **more: object) -> TableRecipe:
    return TableRecipe.read({"table": str(file), **DATA, **more})


def sites(table: pd.DataFrame, **more: object) -> list[SiteTable]:
    return [SiteTable.of(recipe(**more), table, name) for name in WARDS]


def simulated(table: pd.DataFrame, **more: object) -> fp.Federation:
    return fp.Federation.from_frame(table, **{**DATA, **more})


def deploy(
    folder: Path, table: pd.DataFrame, fault: Fault | None = None, server: Any = SETTINGS, **more
) -> fp.Result:
    by_name = {site.client: site for site in sites(table)}
    app = make_client_app(SETTINGS, by_name.__getitem__)
    grid = LocalGrid(app, WARDS, folder / "state", *([fault] if fault else []))
    told = {"clients": ",".join(WARDS), "out": str(folder / "flower"), "wait": 0.0, **more}
    return serve(server, None, grid, run_config(told))


@pytest.mark.parametrize("how", ["federated", "client"])
def test_sums_of_sites_make_the_preparation_of_the_simulator_to_the_bit(table, how):
    told = [Told.read(site.told().text()) for site in sites(table, prepare=how)]
    common = combine(told)
    whole = simulated(table, prepare=how)
    assert common.preparation == whole.preparation.text()
    assert (common.kind, common.outputs) == (whole.kind, whole.outputs)
    for site in sites(table, prepare=how):
        mine, share = site.federation(common), whole.only(site.client)
        assert mine.fingerprint == share.fingerprint
        for split in ("train", "validation", "test"):
            one, two = getattr(mine, split), getattr(share, split)
            assert one.x.equal(two.x)
            assert one.y.equal(two.y)
        assert mine.groups == {"sex": ("f", "m")}


def test_a_run_over_tables_is_that_of_the_simulator_and_predicts(table, tmp_path):
    deployed = deploy(tmp_path, table)
    whole = simulated(table)
    made = experiment({**SETTINGS, "engine": "loop"}, federation=whole).run(tmp_path / "simulated")
    assert_same(RunDir(tmp_path / "flower"), RunDir(tmp_path / "simulated"))
    assert RunDir(tmp_path / "flower").preparation.read_text() == whole.preparation.text()
    new = ward("ward-10", 5).drop(columns="outcome")
    assert deployed.predict_proba(new).equals(made.predict_proba(new))


@pytest.mark.parametrize("own", [False, True])
def test_a_site_reads_its_own_file_by_what_the_experiment_says(table, tmp_path, own):
    written = tmp_path / "experiment.yaml"
    named = "absent.csv" if own else "wards.csv"
    written.write_text(yaml.safe_dump({"data": {"table": named, **DATA}, "model": "linear"}))
    mine = table[table["ward"] == "ward-2"].drop(columns="ward")
    mine.to_csv(tmp_path / "mine.csv", index=False)
    site = site_of(written, "ward-2", tmp_path / "mine.csv" if own else None)
    assert site.told() == sites(table)[0].told()


def test_label_noise_is_refused_where_a_site_has_its_own_file(table, tmp_path):
    written, mine = tmp_path / "experiment.yaml", tmp_path / "mine.csv"
    table.to_csv(tmp_path / "wards.csv", index=False)
    table[table["ward"] == "ward-2"].to_csv(mine, index=False)
    data = {"table": "wards.csv", **DATA, "noise": "pair(rate=1.0)"}
    written.write_text(yaml.safe_dump({"data": data, "model": "linear"}))
    with pytest.raises(fp.InputError, match=r"label noise.*mine\.csv\): take 'noise' out"):
        site_of(written, "ward-2", mine)
    noisy = site_of(written, "ward-2").train.y
    clean = simulated(table).only("ward-2").train.y
    assert noisy.equal((clean - 1) % 3)


def test_a_resumed_run_prepares_as_it_began(table, tmp_path):
    deploy(tmp_path, table)
    again = deploy(tmp_path, table, resume=True)
    assert again.rounds == SETTINGS["rounds"]


def test_whole_numbers_of_one_site_are_values_where_others_have_fractions(table):
    table["outcome"] = table["age"].fillna(1.0)
    table.loc[table["ward"] == "ward-2", "outcome"] = 3.0
    told = [site.told() for site in sites(table)]
    assert [each.kind for each in told] == ["classes", "values", "values"]
    assert combine(told).preparation == simulated(table).preparation.text()
    assert combine(told).kind == "values"


UNLIKE = {
    "absent": (lambda t: t.drop(columns="age"), "client 'ward-10': it has no column 'age'"),
    "more": (lambda t: t.assign(bmi=1.0), "client 'ward-10': it has a column 'bmi'"),
    "kind": (lambda t: t.assign(age="old"), "'ward-10': its column 'age' holds category and not"),
    "target": (lambda t: t.assign(outcome=1), "client 'ward-10': its target is classes, that of"),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_a_site_whose_table_is_unlike_is_named(table, case):
    change, words = UNLIKE[case]
    told = [site.told() for site in sites(table)]
    other = change(table[table["ward"] == "ward-10"])
    told[1] = SiteTable.of(recipe(), other, "ward-10").told()
    with pytest.raises(fp.InputError, match=words):
        combine(told)


def damaged(change: dict[str, object] | str, column: int | None = None) -> Fault:
    """Return the fault of a ward-10 that tells something else of its table."""

    def fault(client, asked, reply):
        words = reply.content.config_records.get("words", {})
        if client == "ward-10" and "table" in words:
            told = json.loads(words["table"])
            if isinstance(change, dict):
                (told if column is None else told["columns"][column]).update(change)
            words["table"] = change if isinstance(change, str) else json.dumps(told)
        return reply

    return fault


HOSTILE = {
    "no text": (damaged("{"), "wrong at ''"),
    "too much": (damaged(" " * (LONGEST + 1)), "cannot be read"),
    "not finite": (damaged({"mean": float("nan")}, 0), "columns.0.number.mean"),
    "overflow": (damaged({"squares": 1e300}, 0), "columns.0.number.squares"),
    "too many": (damaged({"n": 9}, 0), "'age' counts"),
    "words": (damaged({"words": {"no": -1}}, 1), "columns.1.category.words.no"),
    "levels": (damaged({"words": {str(k): 1 for k in range(1001)}}, 1), "at most 1000"),
    "of another": (damaged({"client": "ward-2"}), "it tells of the table of 'ward-2'"),
    "more": (damaged({"code": "import os"}), "'code'"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_site_that_tells_nonsense_ends_the_run_in_one_line_with_its_name(table, tmp_path, case):
    fault, words = HOSTILE[case]
    with pytest.raises(fp.InputError) as error:
        deploy(tmp_path, table, fault)
    (line,) = str(error.value).splitlines()
    assert "client 'ward-10': " in line
    assert words in line
    assert not (tmp_path / "flower").exists()


def test_a_site_tells_no_sum_to_a_server_with_other_settings(table, tmp_path):
    sent = []

    def heard(client, asked, reply):
        sent.append(reply.content)
        return reply

    with pytest.raises(fp.InputError, match="client 'ward-10': its metrics is '"):
        deploy(tmp_path, table, heard, {**SETTINGS, "metrics": ["brier"]})
    assert len(sent) == len(WARDS)
    assert all(list(content) == ["failure"] for content in sent)


def test_a_site_takes_no_preparation_of_other_columns(table):
    site, *others = sites(table)
    common = combine([each.told() for each in (site, *others)])
    page = json.loads(common.preparation)
    page["columns"] = page["columns"][:1]
    with pytest.raises(fp.InputError, match=r"common preparation is of the columns age and"):
        site.federation(dataclasses.replace(common, preparation=json.dumps(page)))


def test_a_federation_beside_tables_is_refused(table, tmp_path):
    by_name = {site.client: site for site in sites(table)}
    common = combine([site.told() for site in by_name.values()])
    by_name["ward-2"] = by_name["ward-2"].federation(common)
    app = make_client_app(SETTINGS, by_name.__getitem__)
    told = {"clients": ",".join(WARDS), "out": str(tmp_path / "out"), "wait": 0.0}
    with pytest.raises(fp.InputError, match="'ward-2' gives a Federation, 'ward-10'"):
        serve(SETTINGS, None, LocalGrid(app, WARDS, tmp_path / "state"), run_config(told))
