"""Datasets of text: characters of plays by role, and pairs of questions by doctor."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from fedparity.arguments import checked
from fedparity.data.dataset import Dataset
from fedparity.data.folder import find
from fedparity.data.sequences import windows
from fedparity.errors import InputError

LARGEST = 256 * 1024 * 1024


@checked
def shakespeare(
    length: Annotated[int, Field(ge=1, le=10_000)] = 80,
    least: Annotated[int, Field(ge=1)] = 5,
    data_dir: Path | str | None = None,
) -> Dataset:
    """What the roles of Shakespeare's plays say: the next character is to be told.

    One natural client a role that says at least ``least`` windows of ``length`` characters; the
    others are left out. An example is a window, its target the same one character later. Read from
    ``tinyshakespeare/input.txt``, gzipped or not: speeches after a line with the role and a colon,
    with an empty line between them; 65 different characters.

    Notes
    -----
    LEAF and the papers that use it take the collected plays, where a client is a role of one play;
    this is the million characters of char-rnn. Windows do not overlap.

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Aguera y Arcas. Communication-efficient learning of deep
    networks from decentralized data. AISTATS 2017.
    Karpathy. The unreasonable effectiveness of recurrent neural networks. 2015.
    """
    remedy = "get input.txt of github.com/karpathy/char-rnn, data/tinyshakespeare"
    names = ("tinyshakespeare/input.txt", "tinyshakespeare/input.txt.gz")
    text = _text(find("shakespeare", data_dir, names, remedy))
    said: dict[str, list[str]] = {}
    for speech in text.split("\n\n"):
        role, colon, words = speech.partition(":\n")
        if colon and "\n" not in role.strip():
            said.setdefault(role.strip(), []).append(words)
    speeches = {role: "\n".join(words) for role, words in said.items()}
    enough = {role: t for role, t in speeches.items() if (len(t) - 1) // length >= least}
    if not enough:
        raise InputError(f"shakespeare: no role has {least} windows of {length} characters")
    cut = windows(enough, length, "".join(sorted(set(text))))
    return Dataset(
        "shakespeare",
        cut.x,
        cut.y,
        cut.outputs,
        "tokens",
        cut.letters,
        natural=cut.owner,
        natural_names=tuple(enough),
    ).named("shakespeare", length=length, least=least)


@checked
def medical_question_pairs(
    vocabulary: Annotated[int, Field(ge=2, le=1_000_000)] = 4096,
    length: Annotated[int, Field(ge=1, le=1000)] = 32,
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
    rows = list(csv.reader(_text(path).splitlines()))
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


def _text(path: Path) -> str:
    """Return the text of a file, gzipped or not, of a size that a text may have."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise InputError(f"{path} is larger than any text it could be")
        return content.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a whole text ({error}): get it again") from None
