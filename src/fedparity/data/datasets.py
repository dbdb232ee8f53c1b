"""The named datasets: drawn from a formula, carried by scikit-learn, or read from a folder.

A dataset of your own is named by the import path of the function that makes it, such as
``"mypackage.data:rivers(year=2020)"``; it returns a :class:`Dataset`, to be dealt to clients, or
the :class:`Federation` itself.

Files are read in their publishers' own layouts from the folder of
:func:`~fedparity.data.folder.data_dir`; nothing is downloaded. A name with settings, such as
``"synthetic(alpha=1, beta=1)"``, is loaded by :func:`load`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fedparity import imports, spec
from fedparity.arguments import checked
from fedparity.data import heart
from fedparity.data.ambiguous import ambiguous_mnist
from fedparity.data.cifar100 import cifar100
from fedparity.data.dataset import Dataset
from fedparity.data.emnist import emnist
from fedparity.data.federation import Federation, numbered
from fedparity.data.folder import find
from fedparity.data.hub import hf
from fedparity.data.illustration import eagle_synthetic, easy_and_hard
from fedparity.data.images import (
    Normalise,
    Reading,
    read_cifar10,
    read_femnist,
    read_mnist_like,
)
from fedparity.data.people import (
    acs_income,
    adult,
    beijing_air,
    communities_crime,
    landmine,
    law_school,
    school,
    vehicle,
)
from fedparity.data.questions import medical_question_pairs, quora_question_pairs
from fedparity.data.reddit import reddit
from fedparity.data.source import USUAL
from fedparity.data.synthetic import CLASSES, alpha_beta
from fedparity.data.tcga import tcga_brca
from fedparity.data.texts import shakespeare
from fedparity.data.tiny_imagenet import tiny_imagenet
from fedparity.errors import InputError, absent
from fedparity.imports import Allowed

Folder = Path | str | None
Seed = Annotated[int, Field(ge=0)]
Classes = tuple[int, ...] | None
Published = Literal["all", "train"]
First = Annotated[int, Field(ge=1)] | None


@checked
def digits() -> Dataset:
    """1,797 handwritten digits of 8 x 8 pixels, carried by scikit-learn: no download.

    References
    ----------
    Alpaydin, Kaynak. Optical recognition of handwritten digits. UCI repository, 1998.
    """
    from sklearn.datasets import load_digits  # takes a second, so only when asked for

    images, labels = load_digits(return_X_y=True)
    x = (images / 16).reshape(-1, 1, 8, 8).astype(np.float32)
    return Dataset("digits", x, labels.astype(np.int64), 10, recipe="digits")


@checked
def synthetic(
    alpha: Annotated[float, Field(ge=0)] = 1.0,
    beta: Annotated[float, Field(ge=0)] = 1.0,
    clients: Annotated[int, Field(ge=1, le=1_000_000)] = 30,
    seed: Seed = 0,
) -> Dataset:
    r"""Clients with linear models and inputs of their own, of very unlike sizes.

    .. math:: y = \arg\max(W_k x + b_k), \quad W_k, b_k \sim N(u_k, 1), \quad u_k \sim N(0, \alpha)

    .. math:: x \sim N(v_k, \Sigma), \quad \Sigma_{jj} = j^{-1.2}, \quad v_k \sim N(B_k, 1), \quad
              B_k \sim N(0, \beta)

    with 60 inputs and 10 classes. ``alpha`` says how unlike the models are, ``beta`` how unlike the
    inputs. Sizes are 50 plus a log-normal number of parameters 4 and 2, cut off at 50,000.

    Notes
    -----
    The papers write variances; as in the authors' code, alpha and beta are standard deviations
    (the same for 0 and 1, the values used most).

    References
    ----------
    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. Federated optimization in heterogeneous networks.
    MLSys 2020, section 5.1.
    Li, Sanjabi, Beirami, Smith. Fair resource allocation in federated learning. ICLR 2020.
    """
    x, y, client = alpha_beta(alpha, beta, clients, seed)
    return Dataset(
        "synthetic",
        x,
        y,
        CLASSES,
        natural=client,
        natural_names=numbered(clients),
        recipe=_text("synthetic", alpha=alpha, beta=beta, clients=clients, seed=seed),
    )


@checked
def mnist(
    normalise: Normalise = False,
    classes: Classes = None,
    part: Published = "all",
    first: First = None,
    data_dir: Folder = None,
) -> Dataset:
    """70,000 handwritten digits of 28 x 28 pixels, 10,000 of them official test.

    Four idx files in ``MNIST/raw``, gzipped or not. ``normalise`` brings the training pixels to
    mean 0 and standard deviation 1, or each of them with ``normalise="pixel"``; ``classes`` are
    those read, numbered anew from 0 in that order; ``part="train"`` leaves the official test
    images out, ``first`` takes so many of the training images. See
    :class:`~fedparity.data.images.Reading`.

    References
    ----------
    LeCun, Bottou, Bengio, Haffner. Gradient-based learning applied to document recognition. 1998.
    """
    remedy = "get the four files of the MNIST database (LeCun, Cortes, Burges) as .gz"
    return read_mnist_like(
        "mnist", "MNIST/raw", remedy, Reading(normalise, classes, part, first), data_dir
    )


@checked
def fashion_mnist(
    normalise: Normalise = False,
    classes: Classes = None,
    part: Published = "all",
    first: First = None,
    data_dir: Folder = None,
) -> Dataset:
    """70,000 pieces of clothing of 28 x 28 pixels, 10,000 of them official test.

    Four idx files in ``FashionMNIST/raw``, gzipped or not. Settings as for :func:`mnist`.

    References
    ----------
    Xiao, Rasul, Vollgraf. Fashion-MNIST: a novel image dataset. 2017.
    """
    remedy = "get the four .gz files of github.com/zalandoresearch/fashion-mnist"
    return read_mnist_like(
        "fashion_mnist",
        "FashionMNIST/raw",
        remedy,
        Reading(normalise, classes, part, first),
        data_dir,
    )


@checked
def cifar10(
    normalise: Normalise = False,
    classes: Classes = None,
    part: Published = "all",
    first: First = None,
    data_dir: Folder = None,
) -> Dataset:
    """60,000 colour photographs of 32 x 32 pixels in 10 classes, 10,000 of them official test.

    Read from ``cifar-10-batches-bin`` or, where that is absent, ``cifar-10-batches-py``; the
    latter's pickle files are read without unpickling. Settings as for :func:`mnist`; ``normalise``
    acts a colour channel, and takes the means and deviations of others' code as two lists.

    References
    ----------
    Krizhevsky. Learning multiple layers of features from tiny images. 2009.
    """
    remedy = "unpack CIFAR-10, binary or python version, from www.cs.toronto.edu/~kriz/cifar.html"
    return read_cifar10(remedy, Reading(normalise, classes, part, first), data_dir)


@checked
def femnist(normalise: Normalise = False, data_dir: Folder = None) -> Dataset:
    """Handwritten digits and letters of 28 x 28 pixels, 62 classes, one natural client a writer.

    Read from ``femnist/femnist.npz``: bytes ``images`` [N, 28, 28], ``labels``, ``writer`` (a
    place in ``writer_ids``) and ``is_test``. Classes are 0-9, A-Z, a-z; the background is white,
    that is 1.

    References
    ----------
    Caldas et al. LEAF: a benchmark for federated settings. 2018.
    """
    remedy = "make it from NIST Special Database 19 with LEAF (github.com/TalwalkarLab/leaf)"
    return read_femnist(remedy, Reading(normalise), data_dir)


@checked
def heart_disease(
    impute: Literal["client", "global"] = "client",
    scale: Literal["client", "global", "none"] = "client",
    columns: Literal["common", "all"] = "common",
    data_dir: Folder = None,
) -> Dataset:
    """920 patients of four hospitals, with or without heart disease.

    Natural clients are cleveland, hungarian, switzerland and va; the label is 1 for any disease
    (diagnosis above 0).

    Parameters
    ----------
    impute
        Missing numbers become the median, missing categories the most frequent value, of the same
        hospital (``client``; of all where it has none) or of all.
    scale
        Numbers to mean 0 and standard deviation 1 a hospital, overall, or not at all. Categories
        stay 0 and 1.
    columns
        ``common`` leaves out slope, ca and thal, missing in 34, 66 and 53 % of the
        rows; the remaining ten columns are 13 inputs, those of FLamby: age, sex, three of cp,
        trestbps, chol, fbs, two of restecg, thalach, exang, oldpeak. ``all`` gives 18.

    Notes
    -----
    FLamby drops the rows with missing values (180 of 920, and most of Switzerland's); here they
    are kept. A blood pressure or cholesterol of 0 counts as missing. Medians, means and deviations
    are taken over all rows of the hospital, whichever split they fall into later; no label enters
    them.

    References
    ----------
    Janosi, Steinbrunn, Pfisterer, Detrano. Heart disease. UCI repository, 1988.
    Ogier du Terrail et al. FLamby: datasets and benchmarks for cross-silo federated learning in
    realistic healthcare settings. NeurIPS 2022.
    """
    remedy = "get the four processed.*.data files of the UCI repository's Heart Disease dataset"
    tables = [
        heart.read_hospital(
            find("heart_disease", data_dir, (f"heart-disease/processed.{name}.data",), remedy)
        )
        for name in heart.HOSPITALS
    ]
    client = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    table = np.concatenate(tables)
    return Dataset(
        "heart_disease",
        heart.inputs(table, client, impute, scale, columns),
        (table[:, -1] > 0).astype(np.int64),
        2,
        natural=client,
        natural_names=heart.HOSPITALS,
        recipe=_text("heart_disease", impute=impute, scale=scale, columns=columns),
    )


DATASETS: Mapping[str, Callable[..., Dataset]] = {
    "digits": digits,
    "eagle_synthetic": eagle_synthetic,
    "easy_and_hard": easy_and_hard,
    "synthetic": synthetic,
    "mnist": mnist,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "femnist": femnist,
    "heart_disease": heart_disease,
    "cifar100": cifar100,
    "emnist": emnist,
    "ambiguous_mnist": ambiguous_mnist,
    "shakespeare": shakespeare,
    "medical_question_pairs": medical_question_pairs,
    "quora_question_pairs": quora_question_pairs,
    "reddit": reddit,
    "tiny_imagenet": tiny_imagenet,
    "adult": adult,
    "vehicle": vehicle,
    "landmine": landmine,
    "school": school,
    "acs_income": acs_income,
    "beijing_air": beijing_air,
    "communities_crime": communities_crime,
    "law_school": law_school,
    "tcga_brca": tcga_brca,
    "hf": hf,
}


@checked
def load(text: str, data_dir: Path | str | None = None) -> Dataset:
    """Load the dataset that a specification names, such as ``"cifar10(normalise=true)"``.

    >>> load("eagle_synthetic(n=50)")
    Dataset('eagle_synthetic', 150 examples, 2 classes, inputs (2,))
    """
    made = read(text, data_dir, Allowed.by(named=text))
    if isinstance(made, Federation):
        raise InputError(
            f"'{text}' makes a federation, not a dataset: take datasets.federation('{text}')"
        )
    return made


@checked
def federation(text: str, data_dir: Path | str | None = None) -> Federation:
    """Return the federation that a function of your own makes, recorded so that it is made again.

    The text is as for :func:`load`, of a function that returns a :class:`Federation`.
    """
    made = read(text, data_dir, Allowed.by(named=text))
    if isinstance(made, Dataset):
        raise InputError(f"'{text}' makes a dataset: deal it to clients by load('{text}').split()")
    return made


def read(
    text: str, data_dir: Path | str | None, allowed: Allowed, seed: int = 0
) -> Dataset | Federation:
    """Return what a text names, which may name the code that is allowed."""
    wanted = spec.parse_one(text)
    if "data_dir" in wanted.settings:
        raise InputError(f"'{text}': the folder is not a setting: give it by --data-dir")
    code: Callable[..., object] = imports.look_up(
        "dataset", wanted, DATASETS, allowed, (Dataset, Federation)
    )
    known = inspect.signature(code).parameters
    folder = {} if data_dir is None or "data_dir" not in known else {"data_dir": str(data_dir)}
    made = spec.call(wanted.name, code, {**wanted.settings, **folder})
    if not isinstance(made, Dataset | Federation):
        raise InputError(f"'{wanted.name}' made a {type(made).__name__}: a Dataset or a Federation")
    return made if wanted.name in DATASETS else _recorded(made, code, wanted, seed)


def _recorded(
    made: Dataset | Federation, code: Callable[..., object], wanted: spec.Spec, seed: int
) -> Dataset | Federation:
    """Return what code elsewhere has made, with the text that makes it again."""
    text = imports.complete(code, wanted, without=("data_dir",))
    if isinstance(made, Dataset):
        return replace(made, recipe=text)
    recipe = {
        "dataset": text,
        "partition": "natural",
        "clients": None,
        "seed": seed,
        "fractions": list(USUAL),
        "official": False,
        "noise": [],
    }
    return replace(made, recipe=recipe)


def _text(name: str, **settings: int | float | str) -> str:
    return str(spec.Spec(name, settings))


if not TYPE_CHECKING:  # a type checker finds a wrong name by itself

    def __getattr__(name: str) -> Any:
        raise absent("fedparity.datasets", name, DATASETS)
