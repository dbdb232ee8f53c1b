"""Uniform: the plain mean in any experiment."""

from __future__ import annotations

import pytest
import torch
from scripted import FIXTURE, Script, vector

from fedparity.errors import InputError
from fedparity.parts import Uniform
from fedparity.recipes import algorithm


def test_weights_by_size_and_uniform_of_the_fixture():
    # size: 0.5 w_1 + 0.25 w_2 + 0.25 w_3; uniform: their mean
    torch.testing.assert_close(Script([]).play(FIXTURE), vector(0.825, 1.8))
    torch.testing.assert_close(Script([Uniform()]).play(FIXTURE), vector(2.5 / 3, 1.9))
    torch.testing.assert_close(Script([], by_size=False).play(FIXTURE), vector(2.5 / 3, 1.9))


def test_absent_clients_do_not_count():
    found = Script([Uniform()]).play(FIXTURE[:2], clients=[0, 1])
    torch.testing.assert_close(found, vector(1.0, 1.7))  # the mean of w_1 and w_2


def test_it_refuses_to_overwrite_weights():
    with pytest.raises(InputError, match="'uniform' would overwrite the weights of 'qffl'"):
        algorithm("qffl+uniform")
