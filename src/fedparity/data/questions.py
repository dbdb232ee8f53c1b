"""Pairs of questions that ask the same or not: of doctors, and of Quora."""

from __future__ import annotations

import csv
import io
import re
import zlib
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from fedparity.arguments import checked
from fedparity.data.dataset import Dataset
from fedparity.data.folder import data_dir as root_of
from fedparity.data.folder import find
from fedparity.data.texts import read_text
from fedparity.errors import InputError

Vocabulary = Annotated[int, Field(ge=2, le=1_000_000)]
Length = Annotated[int, Field(ge=1, le=1000)]
ROW = ("question1", "question2", "is_duplicate")
"""The columns of Quora's files that are read."""
MOST_BROKEN = 0.01
"""The share of rows that may be broken."""


@checked
def medical_question_pairs(
    vocabulary: Vocabulary = 4096,
    length: Length = 32,
    data_dir: Path | str | None = None,
) -> Dataset:
    """3,048 pairs of medical questions that ask the same or not, one natural client a doctor.

    Inputs are ``[2, length]`` numbers of words below ``vocabulary``, 0 where a question has ended,
    as ``pair_lstm`` reads them. Read from ``mqp/mqp.csv``, gzipped or not: doctor, two questions
    and the label.

    References
    ----------
    McCreery, Katariya, Kannan, Chablani, Amatriain. Effective transfer learning for identifying
    similar questions. KDD 2020.
    """
    remedy = "get mqp.csv of github.com/curai/medical-question-pair-dataset"
    names = ("mqp/mqp.csv", "mqp/mqp.csv.gz")
    path = find("medical_question_pairs", data_dir, names, remedy)
    rows = list(csv.reader(read_text(path).splitlines()))
    if not rows or any(len(row) != 4 or row[3] not in ("0", "1") for row in rows):
        raise InputError(f"{path} does not hold rows of doctor, two questions and 0 or 1")
    doctors = sorted({row[0] for row in rows}, key=lambda name: (len(name), name))
    pairs = [[numbered_words(row[side], vocabulary, length) for side in (1, 2)] for row in rows]
    return Dataset(
        "medical_question_pairs",
        np.asarray(pairs, dtype=np.int64),
        np.asarray([int(row[3]) for row in rows], dtype=np.int64),
        2,
        natural=np.asarray([doctors.index(row[0]) for row in rows], dtype=np.int64),
        natural_names=tuple(f"doctor-{name}" for name in doctors),
    ).named("medical_question_pairs", vocabulary=vocabulary, length=length)


@checked
def quora_question_pairs(
    vocabulary: Vocabulary = 4096,
    length: Length = 32,
    data_dir: Path | str | None = None,
) -> Dataset:
    """404,000 pairs of questions of Quora's users that ask the same or not (QQP).

    Inputs as of :func:`medical_question_pairs`; there are no natural clients. Read from GLUE's
    ``QQP/train.tsv`` and ``QQP/dev.tsv``, which is the official test part (the labels of GLUE's own
    are not published). Where these are absent: Quora's ``QQP/quora_duplicate_questions.tsv`` or
    Kaggle's ``QQP/train.csv``, without a test part. The few lines of GLUE's files that have not all
    columns are left out.

    References
    ----------
    Iyer, Dandekar, Csernai. First Quora dataset release: question pairs. 2017.
    Wang, Singh, Michael, Hill, Levy, Bowman. GLUE: a multi-task benchmark and analysis platform for
    natural language understanding. ICLR 2019.
    """
    glue = (root_of(data_dir) / "QQP" / "dev.tsv").is_file()
    own = ("QQP/quora_duplicate_questions.tsv", "QQP/train.csv")
    files = [("QQP/train.tsv",), ("QQP/dev.tsv",)] if glue else [("QQP/train.tsv", *own)]
    remedy = "get QQP of GLUE (gluebenchmark.com), or the question pairs of Quora"
    name = "quora_question_pairs"
    parts = [_labelled(find(name, data_dir, named, remedy)) for named in files]
    rows = [row for part in parts for row in part]
    pairs = [[numbered_words(text, vocabulary, length) for text in row[:2]] for row in rows]
    return Dataset(
        name,
        np.asarray(pairs, dtype=np.int64),
        np.asarray([int(row[2]) for row in rows], dtype=np.int64),
        2,
        held_out=np.arange(len(rows)) >= len(parts[0]) if glue else None,
    ).named(name, vocabulary=vocabulary, length=length)


def _labelled(path: Path) -> list[tuple[str, str, str]]:
    """Return the questions and the label of every whole row of one of Quora's files."""
    text = io.StringIO(read_text(path), newline="")
    if path.name in ("train.tsv", "dev.tsv"):  # a quotation mark is a letter as any other
        lines = csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        lines = csv.reader(text, delimiter="," if path.suffix == ".csv" else "\t")
    try:
        head = next(lines, [])
        if any(name not in head for name in ROW):
            raise InputError(f"{path} has no columns {', '.join(ROW)}")
        places, rows = [head.index(name) for name in ROW], list(lines)
    except csv.Error as error:
        raise InputError(f"{path} is not a table of questions ({error}): get it again") from None
    whole = [row for row in rows if len(row) == len(head) and row[places[2]] in ("0", "1")]
    if len(whole) < (1 - MOST_BROKEN) * len(rows) or not whole:
        raise InputError(f"{path}: {len(rows) - len(whole)} of {len(rows)} rows are broken")
    return [(row[places[0]], row[places[1]], row[places[2]]) for row in whole]


def numbered_words(text: str, vocabulary: int, length: int) -> list[int]:
    """Return the numbers of a text's first words, 0 where it has ended.

    A word's number is a checksum of its letters, so that it depends on no other text and nobody has
    to agree on a list of words; two words may share one.

    >>> numbered_words("Is it? It is.", vocabulary=100, length=5)
    [90, 56, 56, 90, 0]
    """
    words = re.findall(r"[a-z0-9']+", text.lower())[:length]
    found = [1 + zlib.crc32(word.encode()) % (vocabulary - 1) for word in words]
    return found + [0] * (length - len(found))
