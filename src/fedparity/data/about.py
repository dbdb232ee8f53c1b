"""What one must know before using a dataset: how large it is, its licence, and whom to cite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class About(NamedTuple):
    """A dataset's size, licence and citation.

    Parameters
    ----------
    size
        Examples, and natural clients if there are any.
    licence
        As its publisher states it.
    cite
        Authors and year; the reference is in the docstring.
    """

    size: str
    licence: str
    cite: str


NONE = "none stated"
ABOUT: Mapping[str, About] = {
    "digits": About("1,797", "CC BY 4.0 (UCI)", "Alpaydin and Kaynak 1998"),
    "eagle_synthetic": About("300, 3 clients", "drawn from a formula", "Erraji et al. 2026"),
    "synthetic": About("any, 30 clients", "drawn from a formula", "Li et al. 2020"),
    "mnist": About("70,000", "CC BY-SA 3.0, as usually stated", "LeCun et al. 1998"),
    "fashion_mnist": About("70,000", "MIT", "Xiao et al. 2017"),
    "cifar10": About("60,000", NONE, "Krizhevsky 2009"),
    "femnist": About("63,351, 396 writers", "public domain (NIST)", "Caldas et al. 2018"),
    "heart_disease": About("920, 4 hospitals", "CC BY 4.0", "Janosi et al. 1988"),
    "adult": About("48,842, 2 clients", "CC BY 4.0", "Becker and Kohavi 1996"),
    "vehicle": About("1,860, 23 sensors", NONE, "Duarte and Hu 2004"),
    "landmine": About("14,820, 29 fields", NONE, "Xue et al. 2007"),
    "school": About("15,362, 139 schools", NONE, "ILEA; Zhou et al. 2011"),
    "acs_income": About("1,434,979, 51 states", "public domain (US census)", "Ding et al. 2021"),
    "beijing_air": About("412,029, 12 stations", "CC BY 4.0", "Zhang et al. 2017"),
    "communities_crime": About("1,994, 46 states", "CC BY 4.0", "Redmond and Baveja 2002"),
    "law_school": About("21,791, 11 regions", NONE, "Wightman 1998"),
    "cifar100": About("60,000", NONE, "Krizhevsky 2009"),
    "emnist": About("131,600 and more", "public domain (NIST)", "Cohen et al. 2017"),
    "ambiguous_mnist": About("5,000, 5 clients", "as mnist", "Erraji et al. 2026"),
    "shakespeare": About(
        "1.1 million characters, 299 roles", "public domain", "McMahan et al. 2017"
    ),
    "medical_question_pairs": About("3,048, 11 doctors", NONE, "McCreery et al. 2020"),
    "easy_and_hard": About("8,000, 2 clients", "drawn from a formula", "Erraji et al. 2026"),
    "quora_question_pairs": About("404,000", "Quora's terms", "Iyer et al. 2017; Wang et al. 2019"),
    "reddit": About("any, a client a user", NONE, "Caldas et al. 2018"),
    "tiny_imagenet": About("110,000", NONE, "Le and Yang 2015"),
    "hf": About("any", "as its publisher states", "its publisher; Lhoest et al. 2021"),
    "tcga_brca": About("1,088, 6 regions", "GDC open access", "Ogier du Terrail et al. 2022"),
}
