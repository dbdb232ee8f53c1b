"""Named tables with natural clients: people, sensors, schools, stations, hospitals.

Files are read from the data folder as their publishers, or those who joined them, gave them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from fedparity.arguments import checked
from fedparity.data import tabular
from fedparity.data.dataset import Dataset
from fedparity.data.folder import find
from fedparity.data.npz import read_npz
from fedparity.data.table import read as read_table
from fedparity.data.tabular import Way
from fedparity.errors import InputError
from fedparity.learning.seeds import draws, seeds_of

Folder = Path | str | None
LARGEST = 1 << 26
ADULT = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation",
    "relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week",
    "native_country", "income",
)  # fmt: skip
ACS = ("age", "worker", "schooling", "married", "occupation", "birthplace", "relationship", "hours")
JOBS = {
    10: "management", 500: "business", 800: "finance", 1005: "computers", 1305: "engineering",
    1600: "science", 2001: "community", 2100: "law", 2205: "education", 2600: "arts",
    3000: "medicine", 3601: "health_support", 3700: "protection", 4000: "food", 4200: "cleaning",
    4330: "personal_care", 4700: "sales", 5000: "office", 6005: "farming", 6200: "construction",
    6800: "extraction", 7000: "repair", 7700: "production", 9000: "transport", 9800: "military",
}  # fmt: skip
"""The first code of each major group of occupations of the census."""
PLACES = {
    0: "united_states", 60: "us_territory", 100: "europe", 200: "asia", 300: "north_america",
    303: "latin_america", 400: "africa", 500: "oceania",
}  # fmt: skip
"""The first code of each region of birth."""
AGES = {0: "under 30", 30: "30 to 44", 45: "45 to 59", 60: "60 and more"}


@checked
def adult(prepare: Way = "federated", protected: bool = False, data_dir: Folder = None) -> Dataset:
    """48,842 people of a census: does one earn more than 50,000 dollars? Doctorates and others.

    Natural clients are those with a doctorate (594) and all others, as in the papers on agnostic
    and q-fair federated learning; groups are sex and race.

    Parameters
    ----------
    prepare
        How columns become inputs, see :meth:`Federation.from_frame`.
    protected
        Whether the groups are inputs too.

    Notes
    -----
    The survey's weight of a person (fnlwgt) is no input.

    References
    ----------
    Becker, Kohavi. Adult. UCI repository, 1996.
    Mohri, Sivek, Suresh. Agnostic federated learning. ICML 2019.
    """
    remedy = "get adult.data and adult.test of the UCI repository"
    tables = []
    for part in ("data", "test"):
        names = (f"adult/adult.{part}", f"adult/adult.{part}.gz")
        tables.append(_adult(find("adult", data_dir, names, remedy)))
    df = pd.concat(tables, ignore_index=True)
    doctor = np.where(df["education"] == "Doctorate", "doctorate", "others")
    return tabular.of(
        "adult",
        df.drop(columns=["fnlwgt", "sex", "race", "income"]),
        (df["income"].str.rstrip(".") == ">50K").to_numpy(dtype=np.int64),
        doctor,
        {"prepare": prepare, "protected": protected},
        groups={"sex": df["sex"], "race": df["race"]},
        held_out=np.arange(len(df)) >= len(tables[0]),
    )


def _adult(path: Path) -> pd.DataFrame:
    if path.stat().st_size > LARGEST:
        raise InputError(f"{path} is larger than the census file")
    try:
        df = pd.read_csv(path, names=list(ADULT), skipinitialspace=True, na_values="?", comment="|")
    except (ValueError, OSError) as error:
        raise InputError(f"{path} is not the census file: {' '.join(str(error).split())}") from None
    if len(df) < 1 or not df["income"].astype(str).str.contains("50K").all():
        raise InputError(f"{path} is not the census file: its last column is not the income")
    return df


@checked
def acs_income(
    prepare: Way = "federated",
    protected: bool = False,
    share: Annotated[float, Field(gt=0, le=1)] = 1.0,
    data_dir: Folder = None,
) -> Dataset:
    """1.43 million people of 50 states and Puerto Rico: does one earn more than 50,000 dollars?

    Natural clients are the states; groups are sex, race (five, as published) and age band.

    Parameters
    ----------
    prepare
        How columns become inputs, see :meth:`Federation.from_frame`.
    protected
        Whether the groups are inputs too.
    share
        Of the people, drawn once and for all: 0.1 is a tenth of each state.

    Notes
    -----
    Codes of occupations are grouped by the 25 major groups of the census, birthplaces into eight
    regions.

    References
    ----------
    Ding, Hardt, Miller, Schmidt. Retiring Adult: new datasets for fair machine learning. NeurIPS
    2021.
    """
    remedy = "join the ACS PUMS of 2018 by state, as folktables does, into X, y, state and names"
    path = find("acs_income", data_dir, ("acs-income/acs_income_2018.npz",), remedy)
    read = read_npz(path, ("X", "y", "state", "names"))
    x, y, state = read["X"], read["y"], read["state"]
    if share < 1:
        places = np.arange(len(y), dtype=np.int64)
        keys = draws(seeds_of(0, "acs", ["income"])[np.zeros(len(y), dtype=np.int64)], places)
        kept = keys < np.uint64(int(share * 2**63) * 2)
        x, y, state = x[kept], y[kept], state[kept]
    table: dict[str, Any] = {name: x[:, k] for k, name in enumerate(ACS)}
    table |= {name: _coded(table[name]) for name in ("worker", "married", "relationship")}
    table["occupation"] = _banded(table["occupation"], JOBS)
    table["birthplace"] = _banded(table["birthplace"], PLACES)
    groups = {
        "sex": _categories((x[:, 8] != 1).astype(np.int8), ["male", "female"]),
        "race": _coded(x[:, 9]),
        "age_band": _banded(x[:, 0], AGES),
    }
    return tabular.of(
        "acs_income",
        pd.DataFrame(table),
        y.astype(np.int64),
        _categories(state, [str(name) for name in read["names"]]),
        {"prepare": prepare, "protected": protected, "share": share},
        groups=groups,
    )


def _categories(codes: Any, names: Any) -> Any:
    return pd.Categorical.from_codes(codes, pd.Index(names))


def _coded(codes: Any) -> Any:
    return pd.Categorical(codes)


def _banded(codes: Any, first: dict[int, str]) -> Any:
    place = np.searchsorted(list(first), codes, side="right") - 1
    return _categories(place.astype(np.int8), list(first.values()))


@checked
def vehicle(prepare: Way = "federated", data_dir: Folder = None) -> Dataset:
    """1,860 recordings of 23 sensors beside a road: which of two kinds of vehicle passes?

    Natural clients are the sensors, 7 to 534 recordings each, with 100 acoustic and seismic
    features.

    Parameters
    ----------
    prepare
        How columns become inputs, see :meth:`Federation.from_frame`.

    References
    ----------
    Duarte, Hu. Vehicle classification in distributed sensor networks. 2004.
    """
    return _tasks("vehicle", "sensor", data_dir, prepare, lambda y: (y > 0).astype(np.int64))


@checked
def landmine(prepare: Way = "federated", data_dir: Folder = None) -> Dataset:
    """14,820 radar images of 29 mine fields: is there a mine? 6 % are.

    Natural clients are the fields, 445 to 690 images each, with nine features.

    Parameters
    ----------
    prepare
        How columns become inputs, see :meth:`Federation.from_frame`.

    References
    ----------
    Xue, Liao, Carin, Krishnapuram. Multi-task learning for classification with Dirichlet process
    priors. JMLR 2007.
    """
    return _tasks("landmine", "field", data_dir, prepare, lambda y: y.astype(np.int64))


@checked
def school(prepare: Way = "federated", data_dir: Folder = None) -> Dataset:
    """15,362 pupils of 139 schools of London: the exam score, a value.

    Natural clients are the schools, 22 to 251 pupils each, with 27 features; the column of ones
    that the published table has is left out.

    Parameters
    ----------
    prepare
        How columns become inputs, see :meth:`Federation.from_frame`.

    References
    ----------
    Inner London Education Authority; Zhou, Chen, Ye. MALSAR: multi-task learning via structural
    regularization. 2011.
    """
    return _tasks("school", "school", data_dir, prepare, lambda y: y.astype(np.float64), True)


def _tasks(
    name: str, client: str, data_dir: Folder, prepare: Way, targets: Any, values: bool = False
) -> Dataset:
    remedy = f"write X, y and task (the {client} of each row) of the published tasks into it"
    read = read_npz(find(name, data_dir, (f"{name}/{name}.npz",), remedy), ("X", "y", "task"))
    x = read["X"][:, :27] if name == "school" else read["X"]
    table = pd.DataFrame({f"x{k}": x[:, k] for k in range(x.shape[1])})
    owner = np.asarray([f"{client}-{k}" for k in read["task"]], dtype=object)
    return tabular.of(name, table, targets(read["y"]), owner, {"prepare": prepare}, values=values)


@checked
def beijing_air(prepare: Way = "federated", data_dir: Folder = None) -> Dataset:
    """412,029 hours at 12 stations of Beijing: the fine dust (PM2.5), a value.

    Natural clients are the stations. Hours without the target are left out; other gaps are filled
    in. Month, hour and the direction of the wind are encoded as words.

    Parameters
    ----------
    prepare
        How columns become inputs, see :meth:`Federation.from_frame`.

    References
    ----------
    Zhang, Guo, Dong, He, Xu, Chen. Cautionary tales on air-quality improvement in Beijing.
    Proceedings of the Royal Society A, 2017. UCI repository 501.
    """
    remedy = "join the 12 stations of UCI dataset 501 into one parquet file"
    df = read_table(find("beijing_air", data_dir, ("beijing-air/beijing_air.parquet",), remedy))
    df = df[df["PM2.5"].notna()].reset_index(drop=True)
    table = df.drop(columns=["PM2.5", "station", "day"])
    coded = {name: pd.Categorical(table[name]) for name in ("month", "hour", "wd")}
    return tabular.of(
        "beijing_air",
        table.assign(**coded),
        df["PM2.5"].to_numpy(),
        df["station"],
        {"prepare": prepare},
        values=True,
    )


@checked
def communities_crime(prepare: Way = "federated", data_dir: Folder = None) -> Dataset:
    """1,994 communities of 46 states: violent crimes for their people, a value from 0 to 1.

    Natural clients are the states by their census code, 1 to 278 communities each.

    Parameters
    ----------
    prepare
        How columns become inputs, see :meth:`Federation.from_frame`.

    References
    ----------
    Redmond, Baveja. A data-driven software tool for enabling cooperative information sharing among
    police departments. European Journal of Operational Research, 2002. UCI repository 183.
    """
    remedy = "get UCI dataset 183 as CSV with its names"
    names = ("communities-crime/communities.csv.gz", "communities-crime/communities.csv")
    df = read_table(find("communities_crime", data_dir, names, remedy))
    named = ["state", "county", "community", "communityname string", "fold"]
    return tabular.of(
        "communities_crime",
        df.drop(columns=[*named, "ViolentCrimesPerPop"]),
        df["ViolentCrimesPerPop"].to_numpy(),
        df["state"].to_numpy(),
        {"prepare": prepare},
        values=True,
    )


@checked
def law_school(
    prepare: Way = "federated", protected: bool = False, data_dir: Folder = None
) -> Dataset:
    """21,791 students of law in eleven regions: does one pass the first year?

    Natural clients are the regions; one, PO, has a single student, and natural(min_examples=10)
    leaves it out. Inputs are the admission test and the grades before; groups are race and gender
    (1 and 2, as published).

    Parameters
    ----------
    prepare
        How columns become inputs, see :meth:`Federation.from_frame`.
    protected
        Whether the groups are inputs too.

    References
    ----------
    Wightman. LSAC national longitudinal bar passage study. 1998.
    """
    remedy = "get law_school.csv of the national longitudinal bar passage study"
    names = ("law-school/law_school.csv.gz", "law-school/law_school.csv")
    df = read_table(find("law_school", data_dir, names, remedy))
    return tabular.of(
        "law_school",
        df[["LSAT", "UGPA"]],
        df["first_pf"].to_numpy(dtype=np.int64),
        df["region_first"],
        {"prepare": prepare, "protected": protected},
        groups={"race": df["race"], "gender": df["gender"]},
    )
