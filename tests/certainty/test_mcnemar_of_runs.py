"""McNemar's test on kept predictions."""

import numpy as np
import pandas as pd
import pytest

from fedparity.certainty import mcnemar_of
from fedparity.errors import InputError


def said(guesses, target=0):
    guesses = np.asarray(guesses)
    about = {"client": "a", "split": "test", "index": range(len(guesses)), "model": "global"}
    outputs = {"output_0": 1.0 - guesses, "output_1": 1.0 * guesses}
    return pd.DataFrame({**about, "target": target, **outputs})


def test_only_examples_that_one_of_two_gets_right_count():
    first, second = said([0, 0, 0, 1, 1]), said([0, 1, 1, 0, 1])
    found = mcnemar_of(first, second.sample(frac=1, random_state=0))
    assert (found.only_first, found.only_second) == (2, 1)


def test_other_examples_are_refused():
    with pytest.raises(InputError, match="same examples"):
        mcnemar_of(said([0, 1]), said([0, 1, 1]))
    with pytest.raises(InputError, match="same examples"):
        mcnemar_of(said([0, 1]), said([0, 1], target=1))
