"""Texts and other sequences of tokens, cut into windows whose next tokens are to be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedparity.data.split import Ints
from fedparity.errors import InputError

Document = str | Sequence[int] | npt.NDArray[Any]
"""A text, whose tokens are its characters, or the numbers of tokens."""


class Windows(NamedTuple):
    """Windows of all clients, one behind the other."""

    x: Ints
    """Tokens ``[N, T]``."""
    y: Ints
    """The token after each, ``[N, T]``."""
    owner: Ints
    """The client of each window, as a place among the clients."""
    outputs: int
    """How many different tokens there are."""
    letters: tuple[str, ...]
    """The characters that the tokens stand for, if the sequences were texts."""


def windows(
    sequences: Mapping[str, Any], length: int, vocabulary: str | int | None = None
) -> Windows:
    """Cut every client's documents into windows of ``length`` tokens, without overlap.

    A client has a document or a list of several. What is left of one at its end, less than a window
    and the token after it, is dropped.
    """
    clients, names = _by_client(sequences), [str(name) for name in sequences]
    if length < 1:
        raise InputError(f"a window of {length} tokens is none: length is at least 1")
    documents = [document for some in clients for document in some]
    texts = {isinstance(document, str) for document in documents}
    if len(texts) > 1 or not documents:
        raise InputError("sequences are all texts, or all numbers of tokens, and at least one")
    letters: tuple[str, ...] = ()
    if texts == {True}:
        letters = _letters([str(document) for document in documents], vocabulary)
        place = {letter: number for number, letter in enumerate(letters)}
        coded = [[np.asarray([place[c] for c in str(t)], np.int64) for t in s] for s in clients]
    else:
        coded = [[_tokens(document) for document in some] for some in clients]
    cut = [[_cut(tokens, length) for tokens in some] for some in coded]
    rows = [sum(len(each) for each in some) for some in cut]
    if 0 in rows:
        raise InputError(
            f"client '{names[rows.index(0)]}' has no sequence of {length + 1} tokens: take a "
            "smaller length or leave the client out"
        )
    both = np.concatenate([each for some in cut for each in some])
    most = int(max(tokens.max(initial=0) for some in coded for tokens in some)) + 1
    outputs = len(letters) or (vocabulary if isinstance(vocabulary, int) else most)
    if most > outputs:
        raise InputError(f"there is a token {most - 1}: with {outputs} the last is {outputs - 1}")
    owner = np.repeat(np.arange(len(clients)), rows)
    return Windows(both[:, :-1].copy(), both[:, 1:].copy(), owner, outputs, letters)


def _by_client(sequences: Mapping[str, Any]) -> list[list[Document]]:
    """Return every client's documents."""
    found: list[list[Document]] = []
    if not isinstance(sequences, Mapping):
        raise InputError("sequences are told by client, such as {'a': 'some text'}")
    for documents in sequences.values():
        several = isinstance(documents, list | tuple) and len(documents) > 0
        several = several and not isinstance(documents[0], int | np.integer)
        found.append(list(documents) if several else [documents])
    return found


def _letters(texts: Sequence[str], vocabulary: str | int | None) -> tuple[str, ...]:
    """Return the characters that occur, in order, or those given, which must be all."""
    found = set().union(*texts)
    if not isinstance(vocabulary, str):
        if vocabulary is not None and vocabulary < len(found):
            raise InputError(f"the texts have {len(found)} different characters, not {vocabulary}")
        return tuple(sorted(found))
    if absent := sorted(found.difference(vocabulary)):
        raise InputError(f"the character {absent[0]!r} of a text is not in the vocabulary")
    return tuple(dict.fromkeys(vocabulary))


def _tokens(document: Any) -> Ints:
    values = np.asarray(document)
    if values.ndim != 1 or (len(values) and (values.dtype.kind not in "iu" or values.min() < 0)):
        raise InputError("a sequence is a text, or whole numbers from 0 in a row")
    return values.astype(np.int64)


def _cut(tokens: Ints, length: int) -> Ints:
    """Return windows ``[n, length + 1]``: the tokens of each and the one behind it."""
    count = max(0, (len(tokens) - 1) // length)
    places = np.arange(count)[:, None] * length + np.arange(length + 1)
    found: Ints = tokens[places]
    return found
