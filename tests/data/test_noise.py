"""Label noise flips the stated share of labels, and never those of the test split."""

import numpy as np
import pytest

from fedparity.data import Federation, Pair, Symmetric
from fedparity.data.noise import as_noise, noise_text
from fedparity.errors import InputError


def rng():
    return np.random.Generator(np.random.Philox(0))


def federation(n=4000, classes=5):
    y = np.arange(n) % classes
    return Federation.from_arrays(np.zeros((n, 1)), y, np.arange(n) // (n // 4), outputs=classes)


@pytest.mark.parametrize("noise", [Symmetric(rate=0.3), Pair(rate=0.3)])
def test_the_rate_is_the_share_of_wrong_labels(noise):
    labels = np.arange(50_000) % 10
    # standard deviation of the share: sqrt(0.3 * 0.7 / 50000) = 0.002
    assert (noise.flip(labels, 10, rng()) != labels).mean() == pytest.approx(0.3, abs=0.01)


def test_symmetric_noise_is_even_over_the_other_classes():
    flipped = Symmetric(rate=1.0).flip(np.full(30_000, 2), 4, rng())
    assert np.bincount(flipped, minlength=4)[2] == 0
    np.testing.assert_allclose(np.bincount(flipped)[[0, 1, 3]] / 30_000, 1 / 3, atol=0.02)


def test_pair_noise_goes_to_the_class_before():
    assert Pair(rate=1.0).flip(np.array([0, 1, 2]), 3, rng()).tolist() == [2, 0, 1]


@pytest.mark.parametrize("noise", [Symmetric(rate=0.0), Pair(rate=0.0)])
def test_noise_of_rate_zero_changes_nothing(noise):
    made = federation()
    assert made.with_label_noise(noise).fingerprint == made.fingerprint


def test_noise_leaves_test_labels_and_inputs_alone():
    made = federation()
    noisy = made.with_label_noise("symmetric(rate=0.5)", seed=1)
    assert (noisy.train.y != made.train.y).any()
    assert (noisy.validation.y != made.validation.y).any()
    assert (noisy.test.y == made.test.y).all()
    assert noisy.train.x is made.train.x


def test_noise_concerns_only_the_named_clients():
    made = federation()
    noisy = made.with_label_noise(Pair(rate=1.0), clients=["1", "3"])
    changed = [bool((noisy.train.client(k)[1] != made.train.client(k)[1]).any()) for k in range(4)]
    assert changed == [False, True, False, True]


def test_an_unknown_client_is_refused():
    with pytest.raises(InputError, match="unknown client '9'"):
        federation().with_label_noise(Pair(), clients=["9"])


def test_noise_needs_classes():
    made = Federation.from_arrays(np.zeros((4, 1)), [0.5, 1.5, 2.5, 3.5], [0, 0, 1, 1])
    with pytest.raises(InputError, match="at least two classes"):
        made.with_label_noise(Pair())


def test_a_noise_survives_its_own_text():
    assert as_noise(noise_text(Symmetric(rate=0.2))) == Symmetric(rate=0.2)
    with pytest.raises(InputError, match="rate should be less than or equal to 1, got 2"):
        as_noise("pair(rate=2)")
