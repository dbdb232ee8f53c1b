"""Two-layer LSTMs: the next character of a text, and whether two questions ask the same."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from fedparity.arguments import checked
from fedparity.errors import InputError
from fedparity.learning.models.shapes import Shape

Count = Annotated[int, Field(ge=1)]


class Characters(nn.Module):
    """Tokens ``[B, T]`` to the scores of what follows each, ``[B, T, V]``."""

    def __init__(self, outputs: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(outputs, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.classifier = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(self.embed(x))
        found: Tensor = self.classifier(states)
        return found


class Pairs(nn.Module):
    """Two texts ``[B, 2, T]``, padded with 0, to scores ``[B, o]``."""

    def __init__(self, outputs: int, words: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.classifier = nn.Linear(4 * hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        one, other = (self._read(text) for text in x.unbind(1))
        both = torch.cat([one, other, (one - other).abs(), one * other], -1)
        found: Tensor = self.classifier(both)
        return found

    def _read(self, text: Tensor) -> Tensor:
        """Return the mean state over the words of each text."""
        states, _ = self.lstm(self.embed(text))
        word = (text != 0)[..., None].to(states.dtype)
        found: Tensor = (states * word).sum(1) / word.sum(1).clamp_min(1)
        return found


@checked
def char_lstm(
    shape: Shape,
    outputs: int,
    *,
    embedding: Count = 8,
    hidden: Count = 256,
    layers: Count = 2,
) -> nn.Module:
    """Two LSTM layers of 256 units over embeddings of 8, for the next character of a text.

    References
    ----------
    McMahan, Moore, Ramage, Hampson, Aguera y Arcas. Communication-efficient learning of deep
    networks from decentralized data. AISTATS 2017.
    """
    if len(shape) != 1:
        raise InputError(f"char_lstm reads sequences of tokens (length,), not shape {shape}")
    return Characters(outputs, embedding, hidden, layers)


@checked
def pair_lstm(
    shape: Shape,
    outputs: int,
    *,
    vocabulary: Count = 4096,
    embedding: Count = 64,
    hidden: Count = 128,
    layers: Count = 2,
) -> nn.Module:
    """Two LSTM layers over each of two texts, which are then held against each other.

    Inputs are ``[2, T]`` tokens below ``vocabulary``, 0 where a text has ended. With u and v the
    mean states over the words of the two, the last layer reads ``(u, v, |u - v|, u v)``.
    """
    if len(shape) != 2 or shape[0] != 2:
        raise InputError(f"pair_lstm reads two sequences of tokens (2, length), not shape {shape}")
    return Pairs(outputs, vocabulary, embedding, hidden, layers)
