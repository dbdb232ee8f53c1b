"""Federations: their datasets, the schemes that deal them to clients, and your own data."""

from fedparity.data import datasets
from fedparity.data.dataset import Dataset
from fedparity.data.datasets import DATASETS, load
from fedparity.data.federation import Federation
from fedparity.data.folder import data_dir
from fedparity.data.noise import NOISES, Noise, Pair, Symmetric
from fedparity.data.partition import (
    IID,
    PARTITIONS,
    ByClass,
    Dirichlet,
    Natural,
    Partition,
    Shards,
)
from fedparity.data.prepare import Preparation
from fedparity.data.recipe import rebuild
from fedparity.data.site_table import SiteTable
from fedparity.data.split import Split

__all__ = [
    "DATASETS",
    "IID",
    "NOISES",
    "PARTITIONS",
    "ByClass",
    "Dataset",
    "Dirichlet",
    "Federation",
    "Natural",
    "Noise",
    "Pair",
    "Partition",
    "Preparation",
    "Shards",
    "SiteTable",
    "Split",
    "Symmetric",
    "data_dir",
    "datasets",
    "load",
    "rebuild",
]
