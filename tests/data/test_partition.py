"""Every scheme deals every example once, and is what its name says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedparity.data import IID, ByClass, Dirichlet, Natural, Shards
from fedparity.data.partition import PARTITIONS, as_partition, deal_alike, partition_text
from fedparity.errors import InputError


def rng(seed=0):
    return np.random.Generator(np.random.Philox(seed))


def labels_of(n, classes):
    return np.arange(n) % classes


schemes = st.sampled_from([IID(), Dirichlet(alpha=1.0, min_size=1), Shards(), Shards(per_client=3)])


@given(schemes, st.integers(1, 12), st.integers(36, 300), st.integers(1, 7), st.integers(0, 99))
def test_every_example_goes_to_exactly_one_client_and_none_is_empty(scheme, clients, n, c, seed):
    owner = scheme.assign(labels_of(n, c), None, clients, rng(seed))
    assert owner.shape == (n,)
    assert set(owner.tolist()) == set(range(clients))


@given(schemes, st.integers(0, 99))
def test_the_same_generator_gives_the_same_partition(scheme, seed):
    labels = labels_of(120, 5)
    first, second = (scheme.assign(labels, None, 4, rng(seed)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_iid_sizes_differ_by_at_most_one():
    sizes = np.bincount(IID().assign(labels_of(103, 10), None, 10, rng()))
    assert sizes.max() - sizes.min() == 1
    assert sizes.sum() == 103


def test_iid_is_shuffled_so_that_sorted_labels_reach_every_client():
    labels = np.repeat(np.arange(10), 100)
    owner = IID().assign(labels, None, 10, rng())
    counts = np.zeros((10, 10), dtype=int)
    np.add.at(counts, (owner, labels), 1)
    assert counts.min() > 0
    assert (np.diff(owner[:10]) != 1).any()


def test_dirichlet_of_large_alpha_is_nearly_even_and_of_small_alpha_is_not():
    labels = labels_of(10_000, 10)
    even = np.bincount(Dirichlet(alpha=1e5).assign(labels, None, 10, rng()))
    skewed = np.bincount(Dirichlet(alpha=0.1).assign(labels, None, 10, rng()))
    assert even.max() - even.min() < 100
    assert skewed.max() > 2 * skewed.min()


def test_dirichlet_shares_of_a_class_have_the_mean_and_variance_of_the_distribution():
    # One class, K = 4, alpha = 1: the share of a client has mean 1/4 and variance
    # (1/4)(3/4) / (4 alpha + 1) = 0.0375.
    shares = np.array(
        [
            np.bincount(
                Dirichlet(alpha=1.0, min_size=1).assign(np.zeros(4000, int), None, 4, rng(seed)),
                minlength=4,
            )
            / 4000
            for seed in range(400)
        ]
    )
    assert shares.mean() == pytest.approx(0.25)
    assert shares.var() == pytest.approx(0.0375, rel=0.15)


def test_dirichlet_respects_the_minimum_size():
    owner = Dirichlet(alpha=0.5, min_size=30).assign(labels_of(1000, 10), None, 10, rng())
    assert np.bincount(owner).min() >= 30


def test_dirichlet_gives_up_after_bounded_retries_and_names_the_remedy():
    scheme = Dirichlet(alpha=0.001, min_size=10, retries=5)
    with pytest.raises(InputError, match=r"after 6 draws .* raise alpha, or lower clients \(50\)"):
        scheme.assign(labels_of(1000, 10), None, 50, rng())


@pytest.mark.parametrize("alpha", [1e-8, 1e-3, 1e6])
def test_dirichlet_counts_are_whole_for_extreme_alpha(alpha):
    owner = Dirichlet(alpha=alpha, min_size=1).assign(np.zeros(100, int), None, 1, rng())
    assert (owner == 0).all()


def test_shards_give_a_client_at_most_as_many_classes_as_its_shards_can_touch():
    # 600 examples of 10 classes, 10 clients, 2 shards each: a shard of 30 lies inside one class
    # of 60, so that a client sees at most two classes, and every client has 60 examples.
    labels = labels_of(600, 10)
    owner = Shards(per_client=2).assign(labels, None, 10, rng())
    for client in range(10):
        assert len(np.unique(labels[owner == client])) <= 2
        assert (owner == client).sum() == 60


def test_shards_are_dealt_at_random():
    labels = labels_of(600, 10)
    assert (
        Shards().assign(labels, None, 10, rng(0)) != Shards().assign(labels, None, 10, rng(1))
    ).any()


def test_by_class_gives_client_k_class_k():
    labels = labels_of(100, 5)
    np.testing.assert_array_equal(ByClass().assign(labels, None, None, rng()), labels)
    np.testing.assert_array_equal(ByClass().assign(labels, None, 2, rng()), labels % 2)


def test_by_class_keeps_only_the_chosen_classes_in_their_order():
    owner = ByClass(classes=(6, 2, 0)).assign(np.array([0, 1, 2, 6, 9]), None, None, rng())
    assert owner.tolist() == [2, -1, 1, 0, -1]


def test_natural_keeps_the_clients_of_the_data_and_drops_small_ones():
    natural = np.array([0, 0, 1, 2, 2, 2])
    labels = np.zeros(6, int)
    assert Natural().assign(labels, natural, None, rng()).tolist() == [0, 0, 1, 2, 2, 2]
    assert Natural(min_examples=2).assign(labels, natural, None, rng()).tolist() == [
        0,
        0,
        -1,
        1,
        1,
        1,
    ]


def test_natural_samples_the_asked_number_of_clients():
    natural = np.repeat(np.arange(50), 3)
    owner = Natural().assign(np.zeros(150, int), natural, 7, rng())
    assert set(owner.tolist()) == {-1, *range(7)}
    assert (owner >= 0).sum() == 21


@pytest.mark.parametrize(
    ("scheme", "clients", "message"),
    [
        (IID(), None, "iid: say how many clients"),
        (IID(), 7, "iid: 6 examples are too few for 7 clients"),
        (Shards(), 4, "shards: 6 examples are too few for 4 clients of at least 2"),
        (ByClass(), 9, "by_class: 9 clients for 3 classes"),
        (ByClass(classes=(0, 5)), None, "class 5 does not occur"),
        (ByClass(classes=(0, 0)), None, "classes must be different"),
        (Natural(), None, "no clients of its own"),
    ],
)
def test_what_cannot_be_dealt_is_refused_in_one_line(scheme, clients, message):
    with pytest.raises(InputError, match=message) as raised:
        scheme.assign(labels_of(6, 3), None, clients, rng())
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("scheme", [Dirichlet(alpha=1.0, min_size=1), ByClass()])
def test_schemes_by_class_refuse_values(scheme):
    with pytest.raises(InputError, match="needs classes"):
        scheme.assign(np.linspace(0, 1, 9), None, 2, rng())


@pytest.mark.parametrize(
    "text",
    ["iid", "dirichlet(alpha=0.1)", "shards(per_client=3)", "by_class(classes=[6,2])", "natural"],
)
def test_a_scheme_survives_its_own_text(text):
    scheme = as_partition(text)
    assert as_partition(partition_text(scheme)) == scheme


def test_the_table_of_partitions_names_all_five():
    assert set(PARTITIONS) == {"iid", "dirichlet", "shards", "by_class", "natural"}
    with pytest.raises(InputError, match="did you mean 'dirichlet'"):
        as_partition("dirichlt(alpha=1)")
    with pytest.raises(InputError, match="alpha should be greater than 0, got -1"):
        as_partition("dirichlet(alpha=-1)")


def test_new_examples_are_dealt_in_proportion_to_those_held():
    # Class 0: three quarters at client 0; class 1: all at client 1; class 2: held by nobody.
    labels, owner = np.array([0, 0, 0, 0, 1]), np.array([0, 0, 0, 1, 1])
    new = np.repeat([0, 1, 2], 8)
    dealt = deal_alike(labels, owner, new, rng())
    assert np.bincount(dealt[new == 0]).tolist() == [6, 2]
    assert dealt[new == 1].tolist() == [1] * 8
    assert dealt[new == 2].tolist() == [-1] * 8
