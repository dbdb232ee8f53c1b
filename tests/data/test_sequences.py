"""Texts and sequences become windows with the next token as target."""

import numpy as np
import pytest

from fedparity import Federation, InputError
from fedparity.data.sequences import windows


def test_a_window_is_followed_by_itself_one_token_later():
    cut = windows({"a": [[3, 1, 4, 1, 5, 9], [2, 6]], "b": np.array([5, 3, 5])}, 2)
    # (6 - 1) // 2 = 2 windows of the first, (2 - 1) // 2 = 0 of the second, 1 of client b
    assert cut.x.tolist() == [[3, 1], [4, 1], [5, 3]]
    assert cut.y.tolist() == [[1, 4], [1, 5], [3, 5]]
    assert cut.owner.tolist() == [0, 0, 1]
    assert cut.outputs == 10


def test_characters_are_numbered_in_order():
    made = Federation.from_sequences({"x": "banana", "y": "cabana"}, 2, fractions=(1, 0, 0))
    assert made.classes == ("a", "b", "c", "n")
    assert made.train.x.tolist() == [[1, 0], [3, 0], [2, 0], [1, 0]]
    assert (made.kind, made.outputs) == ("tokens", 4)


@pytest.mark.parametrize(
    ("sequences", "settings", "message"),
    [
        ({"a": "abc", "b": "ab"}, {"length": 2}, "client 'b' has no sequence of 3 tokens"),
        ({"a": "abc"}, {"length": 0}, "length is at least 1"),
        ({"a": "abc"}, {"length": 1, "vocabulary": "ab"}, "'c' of a text is not in"),
        ({"a": [1, 2, 3]}, {"length": 1, "vocabulary": 3}, "there is a token 3"),
        ({"a": [1.5, 2]}, {"length": 1}, "whole numbers from 0"),
        ({"a": "ab", "b": [1, 2]}, {"length": 1}, "all texts, or all numbers"),
    ],
)
def test_wrong_sequences_are_told_in_one_line(sequences, settings, message):
    with pytest.raises(InputError, match=message):
        Federation.from_sequences(sequences, **settings)
