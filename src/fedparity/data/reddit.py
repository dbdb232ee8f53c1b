"""Comments of Reddit's users, from the files of LEAF: the next word is to be told."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fedparity.arguments import checked
from fedparity.data.dataset import Dataset
from fedparity.data.folder import data_dir as root_of
from fedparity.data.sequences import windows
from fedparity.errors import InputError

REMEDY = "get the preprocessed Reddit data of LEAF (github.com/TalwalkarLab/leaf, data/reddit)"
LARGEST = 1 << 31
UNKNOWN = "<UNK>"
PARTS = ("train", "val", "test")
Said = dict[str, list[str]]
"""What each user said, word by word, one comment after another."""


@checked
def reddit(
    vocabulary: Annotated[int, Field(ge=2, le=1_000_000)] = 10_000,
    length: Annotated[int, Field(ge=1, le=1000)] = 10,
    least: Annotated[int, Field(ge=1)] = 5,
    data_dir: Path | str | None = None,
) -> Dataset:
    """Comments of Reddit's users of December 2017: the next word is to be told.

    One natural client a user with at least ``least`` windows of ``length`` words to train on. An
    example is a window, its target the same one word later. Read from ``reddit/train/*.json``,
    ``reddit/val/*.json`` (pooled with training) and ``reddit/test/*.json``, the official test part.
    Words are numbered by how often they stand in the training files, alphabetically among equals;
    the ``vocabulary`` has the most frequent ones, and number 0 for all others.

    Notes
    -----
    LEAF fills every comment up to a multiple of ten words and hides what it filled in from the
    loss. Here a user's comments follow each other, with LEAF's marks of their begin and end
    between them, so nothing is filled in; windows do not overlap, and what is left at the end is
    dropped.

    References
    ----------
    Caldas et al. LEAF: a benchmark for federated settings. 2018.
    """
    train, val, test = (_said(root_of(data_dir) / "reddit" / part) for part in PARTS)
    learnt = {user: [*words, *val.get(user, [])] for user, words in train.items()}
    enough = {user: words for user, words in learnt.items() if (len(words) - 1) // length >= least}
    if not enough:
        raise InputError(f"reddit: no user has {least} windows of {length} words")
    counted = Counter(word for words in learnt.values() for word in words)
    ordered = sorted(counted, key=lambda word: (-counted[word], word))
    known = (UNKNOWN, *[word for word in ordered if word != UNKNOWN][: vocabulary - 1])
    number = {word: place for place, word in enumerate(known)}
    judged = {user: test[user] for user in enough if len(test.get(user, ())) > length}
    cut = [
        windows(
            {u: [number.get(w, 0) for w in said] for u, said in some.items()}, length, len(known)
        )
        for some in (enough, judged)
        if some
    ]
    users = list(enough)
    owner = [cut[0].owner]
    if judged:
        owner.append(np.asarray([users.index(user) for user in judged])[cut[1].owner])
    natural = np.concatenate(owner)
    return Dataset(
        "reddit",
        np.concatenate([part.x for part in cut]),
        np.concatenate([part.y for part in cut]),
        len(known),
        "tokens",
        known,
        natural=natural,
        natural_names=tuple(f"user-{user}" for user in users),
        held_out=np.arange(len(natural)) >= len(cut[0].x) if judged else None,
    ).named("reddit", vocabulary=vocabulary, length=length, least=least)


def _said(folder: Path) -> Said:
    """Return what the users of a folder's files said."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(
            f"reddit: no file *.json in {folder}: {REMEDY}, or say where it is with --data-dir"
        )
    found: Said = {}
    for file in files:
        for user, comments in _users(file).items():
            found.setdefault(str(user), []).extend(_words(comments, file))
    return found


def _users(file: Path) -> dict[str, Any]:
    """Return the comments of each user in a file."""
    try:
        if file.stat().st_size > LARGEST:
            raise InputError(f"{file} is larger than any file of LEAF's Reddit")
        told = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file} is not a whole file of JSON ({error}): {REMEDY}") from None
    users = told.get("user_data") if isinstance(told, dict) else None
    if not isinstance(users, dict):
        raise InputError(f"{file} has no 'user_data' of LEAF: {REMEDY}")
    return users


def _words(data: Any, file: Path) -> list[str]:
    """Return a user's words: comments are lists of lines, of which ``count_tokens`` marks words."""
    try:
        return [
            word
            for comment, told in zip(data["x"], data["y"], strict=True)
            for line, counts in zip(comment, told["count_tokens"], strict=True)
            for word, counts_it in zip(line, counts, strict=True)
            if counts_it and isinstance(word, str)
        ]
    except (TypeError, KeyError, ValueError):
        raise InputError(f"{file} does not hold comments as LEAF writes them: {REMEDY}") from None
