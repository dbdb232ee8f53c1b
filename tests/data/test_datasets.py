"""The named datasets, how they are split, and the recipes that build them again."""

import gzip
import json
import struct

import numpy as np
import pytest
import torch
import yaml

from fedparity.data import (
    DATASETS,
    ByClass,
    Dataset,
    Dirichlet,
    Symmetric,
    data_dir,
    dataset,
    datasets,
    images,
    load,
    rebuild,
)
from fedparity.data.heart import HOSPITALS
from fedparity.errors import InputError


def write_mnist(root, folder="MNIST/raw", train=40, test=20):
    (root / folder).mkdir(parents=True)
    for part, n in (("train", train), ("t10k", test)):
        pixels = (np.arange(n * 784) % 251).astype(np.uint8)
        images = struct.pack(">HBBIII", 0, 8, 3, n, 28, 28) + pixels.tobytes()
        labels = struct.pack(">HBBI", 0, 8, 1, n) + (np.arange(n) % 10).astype(np.uint8).tobytes()
        (root / folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (root / folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    return root


def write_cifar10(root):
    (root / "cifar-10-batches-bin").mkdir()
    for batch in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        record = np.zeros((2, 3073), dtype=np.uint8)
        record[:, 0] = [1, 9]
        record[:, 1:1025] = 255  # the red plane comes first
        (root / "cifar-10-batches-bin" / f"{batch}.bin").write_bytes(record.tobytes())


def test_digits_are_scaled_to_one():
    made = datasets.digits().split("iid", clients=10)
    assert made.shape == (1, 8, 8)
    assert sum(map(len, (made.train, made.validation, made.test))) == 1797
    assert (made.train.x.min(), made.train.x.max()) == (0, 1)
    assert made.train.x.dtype == torch.float32


def test_eagle_synthetic_has_the_means_of_the_paper():
    # The mean of y * x over n points is the class mean with deviation 1 / sqrt(n) = 0.01; turned by
    # 45 degrees (0.1, 0.1) becomes (0, 0.1 sqrt 2).
    data = datasets.eagle_synthetic(n=10_000)
    sign = np.where(data.y == 1, 1, -1)[:, None]
    means = [(data.x * sign)[data.natural == k].mean(axis=0) for k in range(3)]
    expected = [[2, 2], [0.5, 0.5], [0, 0.1 * 2**0.5]]
    np.testing.assert_allclose(means, expected, atol=0.05)
    for k in range(3):
        spread = np.cov(data.x[(data.natural == k) & (data.y == 1)].T)
        np.testing.assert_allclose(spread, np.eye(2), atol=0.08)


def test_eagle_synthetic_is_a_hundred_points_a_client_half_of_each_class():
    made = datasets.eagle_synthetic(seed=42).split("natural", seed=42)
    assert made.names == ("client-1", "client-2", "client-3")
    assert made.label_counts().to_numpy().tolist() == [[50, 50]] * 3


def test_eagle_synthetic_turns_another_client_when_asked():
    usual, other = datasets.eagle_synthetic(), datasets.eagle_synthetic(rotated=2)
    same = [(usual.x == other.x)[usual.natural == k].all() for k in range(3)]
    assert same == [True, False, False]


def test_synthetic_labels_are_linear_a_client_and_sizes_are_unlike():
    data = datasets.synthetic(alpha=1, beta=1, clients=30, seed=0)
    sizes = np.bincount(data.natural)
    assert (data.x.shape[1], data.outputs, len(sizes)) == (60, 10, 30)
    assert sizes.min() >= 50
    assert sizes.max() > 5 * np.median(sizes)
    deviation = data.x[data.natural == sizes.argmax()].std(axis=0)
    np.testing.assert_allclose(deviation, np.arange(1, 61) ** -0.6, rtol=0.15)


def test_synthetic_depends_on_its_seed():
    first, same, other = (datasets.synthetic(seed=seed, clients=3) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.x, same.x)
    assert first.x.shape != other.x.shape or (first.x != other.x).any()


def test_a_dataset_of_your_own_arrays_is_dealt_by_any_scheme():
    data = Dataset.from_arrays(np.arange(200.0)[:, None], np.arange(200) % 4)
    made = data.split(Dirichlet(alpha=0.5), clients=5, seed=1)
    assert made.recipe is None
    rows = torch.cat([made.train.x, made.validation.x, made.test.x]).ravel()
    assert sorted(rows.tolist()) == list(range(200))
    assert made.sizes().drop(columns="client").to_numpy().min() >= 1


class EveryOther:
    def assign(self, labels, natural, clients, rng):
        return np.arange(len(labels)) % 2


class Nonsense:
    def assign(self, labels, natural, clients, rng):
        return np.full(len(labels), 7)


def test_a_scheme_of_your_own_needs_only_assign():
    data = Dataset.from_arrays(np.zeros((10, 1)), np.zeros(10, int))
    assert data.split(EveryOther()).names == ("client-0", "client-1")
    with pytest.raises(InputError, match="did not name a client"):
        data.split(Nonsense(), clients=2)


def test_a_client_that_a_scheme_leaves_empty_is_refused_by_name():
    data = Dataset.from_arrays(np.zeros((10, 1)), np.zeros(10, int))
    with pytest.raises(InputError, match="client 'client-2' has no training example"):
        data.split(EveryOther(), clients=3)


def test_by_class_drops_the_other_classes():
    made = datasets.digits().split(ByClass(classes=(6, 2, 0)))
    counts = made.label_counts().to_numpy()
    assert [np.flatnonzero(row).tolist() for row in counts] == [[6], [2], [0]]
    assert made.outputs == 10


def official(y_train, y_test, natural=None):
    y = np.array([*y_train, *y_test])
    return Dataset(
        "made",
        np.arange(float(len(y)))[:, None],
        y,
        int(y.max()) + 1,
        natural=natural,
        natural_names=() if natural is None else ("a", "b", "c"),
        held_out=np.arange(len(y)) >= len(y_train),
    )


def test_official_test_examples_stay_test_and_follow_the_training_classes():
    data = official([0, 1] * 50, [0, 1] * 10)
    made = data.split("by_class", official=True)
    assert sorted(made.test.x.ravel().tolist()) == list(range(100, 120))
    assert made.sizes().to_numpy()[:, 1:].tolist() == [[45, 5, 10], [45, 5, 10]]
    assert (made.test.y == made.test.owner).all()


def test_official_test_examples_are_dealt_in_proportion():
    data = official([0] * 1000, [0] * 100)
    made = data.split(Dirichlet(alpha=0.5), clients=4, official=True)
    trained = made.train.sizes + made.validation.sizes
    np.testing.assert_allclose(made.test.sizes / 100, trained / 1000, atol=0.011)


def test_official_natural_clients_keep_their_own_test_examples():
    natural = np.array([0, 0, 1, 1, 2, 0, 1, 2])
    made = official([0, 1, 0, 1, 0], [1, 1, 1], natural).split(
        "natural(min_examples=2)", official=True
    )
    assert made.names == ("a", "b")
    assert made.test.x.ravel().tolist() == [5, 6]


def test_a_dataset_without_official_test_part_says_so():
    with pytest.raises(InputError, match="digits has no official test part"):
        datasets.digits().split("iid", clients=2, official=True)


@pytest.mark.parametrize(
    ("text", "scheme", "settings"),
    [
        ("digits", "dirichlet(alpha=0.5)", {"clients": 10, "seed": 7}),
        ("eagle_synthetic(n=50)", "natural", {"fractions": (0.6, 0.2, 0.2)}),
        ("synthetic(alpha=1/2, clients=4)", "natural", {"clients": 3}),
        ("digits", "by_class(classes=[3,1])", {"noise": Symmetric(rate=0.2), "seed": 1}),
    ],
)
def test_a_recipe_builds_the_same_federation_again(text, scheme, settings):
    made = load(text).split(scheme, **settings)
    assert rebuild(json.loads(json.dumps(made.recipe))).fingerprint == made.fingerprint
    again = rebuild(yaml.safe_load(yaml.safe_dump(made.recipe)))
    assert again.fingerprint == made.fingerprint
    assert again.recipe == made.recipe


def test_a_recipe_remembers_noise_on_some_clients():
    made = load("digits").split("iid", clients=3)
    noisy = made.with_label_noise("pair(rate=0.5)", seed=4, clients=["client-1"])
    assert rebuild(noisy.recipe).fingerprint == noisy.fingerprint != made.fingerprint


def test_a_recipe_remembers_the_settings_but_not_the_folder(tmp_path):
    write_mnist(tmp_path)
    made = load("mnist(normalise=true)", tmp_path).split("iid", clients=2, official=True)
    assert made.recipe == {
        "dataset": "mnist(normalise=True)",
        "partition": "iid",
        "clients": 2,
        "seed": 0,
        "fractions": [0.8, 0.1, 0.1],
        "official": True,
        "noise": [],
    }
    assert rebuild(made.recipe, tmp_path).fingerprint == made.fingerprint


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"dataset": "digits"}, "data: partition"),
        ({"dataset": "digits", "partition": "iid", "clients": 0}, "data: clients"),
        ({"dataset": "digits", "partition": "iid", "client": 2}, "did you mean 'clients'"),
        ("digits", "a recipe is a table"),
    ],
)
def test_a_wrong_recipe_is_refused_in_one_line(recipe, message):
    with pytest.raises(InputError, match=message) as raised:
        rebuild(recipe)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("digts", "unknown dataset 'digts': did you mean 'digits'"),
        ("synthetic(gamma=1)", "unknown setting of synthetic 'gamma'"),
        ("synthetic(alpha=-1)", "synthetic: alpha should be greater than or equal to 0, got -1"),
        ("heart_disease(scale=log)", "heart_disease: scale should be 'client', 'global' or 'none'"),
        ("mnist(data_dir=x)", "the folder is not a setting"),
        ("digits+synthetic", "has 2 terms where one is expected"),
    ],
)
def test_a_wrong_specification_is_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message) as raised:
        load(text)
    assert "\n" not in str(raised.value)


def test_the_folder_is_the_one_given_else_the_variable_else_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPARITY_DATA", str(tmp_path / "variable"))
    assert data_dir(tmp_path / "given") == tmp_path / "given"
    assert data_dir() == tmp_path / "variable"
    monkeypatch.delenv("FEDPARITY_DATA")
    assert data_dir().parts[-2:] == (".cache", "fedparity")


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "femnist", "heart_disease"])
def test_a_missing_dataset_says_where_it_was_looked_for_and_how_to_get_it(name, tmp_path):
    with pytest.raises(InputError, match=f"{name}: no file .* in ") as raised:
        load(name, tmp_path)
    message = str(raised.value)
    assert str(tmp_path) in message
    assert "get " in message or "unpack " in message or "make " in message
    assert "--data-dir" in message
    assert "\n" not in message


@pytest.mark.parametrize("at_once", [7, 1024])
def test_images_are_scaled_and_may_be_normalised(tmp_path, monkeypatch, at_once):
    for module in (dataset, images):
        monkeypatch.setattr(module, "AT_ONCE", at_once)
    write_mnist(tmp_path)
    plain = load("mnist", tmp_path).split("iid", clients=2, official=True)
    assert plain.shape == (1, 28, 28)
    assert 0 <= plain.train.x.min() < plain.train.x.max() == 250 / 255
    normal = load("mnist(normalise=true)", tmp_path).split("iid", clients=2, official=True)
    pixels = torch.cat([normal.train.x, normal.validation.x])
    assert pixels.mean() == pytest.approx(0, abs=1e-5)
    assert pixels.std(correction=0) == pytest.approx(1, abs=1e-5)


def all_of(made):
    return torch.cat([made.train.x, made.validation.x, made.test.x])


@pytest.mark.parametrize("at_once", [7, 1024])
def test_pixels_may_be_normalised_one_by_one(tmp_path, monkeypatch, at_once):
    for module in (dataset, images):
        monkeypatch.setattr(module, "AT_ONCE", at_once)
    write_mnist(tmp_path)
    plain, each = (
        load(text, tmp_path).split("iid", clients=1, official=True)
        for text in ("mnist", "mnist(normalise=pixel)")
    )
    trained = 255 * torch.cat([plain.train.x, plain.validation.x]).double()
    spread = trained.std(0, correction=0) + 0.001
    wanted = (255 * all_of(plain).double() - trained.mean(0)) / spread
    torch.testing.assert_close(all_of(each).double(), wanted, atol=1e-4, rtol=1e-5)


def test_a_pixel_that_never_changes_is_zero(tmp_path):
    write_cifar10(tmp_path)
    made = load("cifar10(normalise=pixel)", tmp_path).split("iid", clients=2)
    assert made.train.x.abs().max() < 1e-3  # of rounding: 0.001 of 255 divides it


def test_channels_may_be_normalised_by_given_numbers(tmp_path):
    write_cifar10(tmp_path)
    text = "cifar10(normalise=[[0.5, 0.5, 0.25], [0.25, 0.5, 0.125]])"
    made = load(text, tmp_path).split("iid", clients=2)
    assert made.train.x[0].mean(dim=(1, 2)).tolist() == [2, -1, -2]
    assert rebuild(made.recipe, tmp_path).fingerprint == made.fingerprint


def test_chosen_classes_are_numbered_anew_and_normalised_like_all(tmp_path):
    write_mnist(tmp_path)
    whole = load("mnist(normalise=pixel)", tmp_path).split("by_class(classes=[6,2,0])")
    made = load("mnist(normalise=pixel, classes=[6,2,0])", tmp_path).split("by_class")
    assert (made.outputs, whole.outputs) == (3, 10)
    assert made.train.y.tolist() == made.train.owner.tolist()
    assert torch.equal(made.train.x, whole.train.x)
    assert rebuild(made.recipe, tmp_path).fingerprint == made.fingerprint


def test_the_first_of_the_training_images_are_normalised_like_all(tmp_path):
    write_mnist(tmp_path, train=40, test=20)
    whole, made = (load(f"mnist(normalise=pixel{more})", tmp_path) for more in ("", ", first=12"))
    assert made.recipe == "mnist(normalise='pixel', first=12)"
    split = {"official": True, "fractions": (1.0, 0.0, 0.0)}
    some, every = (data.split("by_class", **split) for data in (made, whole))
    assert (len(some.train), len(some.test)) == (12, 20)
    assert torch.equal(some.train.client(1)[0], every.train.client(1)[0][:2])  # 1 and 11 of 40


def test_the_official_test_images_may_be_left_out(tmp_path):
    write_mnist(tmp_path, train=40, test=20)
    data = load("mnist(part=train)", tmp_path)
    assert len(data) == 40
    assert data.recipe == "mnist(normalise=False, part='train')"
    with pytest.raises(InputError, match="mnist has no official test part"):
        data.split("iid", clients=2, official=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mnist(normalise=pixels)", "mnist: normalise should be true, false, pixel, or"),
        ("mnist(normalise=[0.5, 0.5])", "mnist: normalise should be true, false, pixel, or"),
        (
            "mnist(normalise=[[0.5, 0.5], [1, 1]])",
            "mnist: normalise takes 1 means and 1 deviations",
        ),
        ("mnist(normalise=[[0.5], [0]])", "1 deviations above 0"),
        ("mnist(classes=[1, 11])", "mnist: class 11 does not occur"),
        ("mnist(classes=[1, 1])", "classes must be different"),
        ("mnist(part=test)", "mnist: part should be 'all' or 'train'"),
    ],
)
def test_a_wrong_way_to_read_images_is_refused_in_one_line(tmp_path, text, message):
    write_mnist(tmp_path)
    with pytest.raises(InputError, match=message) as raised:
        load(text, tmp_path)
    assert "\n" not in str(raised.value)


def test_images_and_labels_must_be_as_many(tmp_path):
    write_mnist(tmp_path)
    write_mnist(tmp_path / "other", train=30)
    name = "MNIST/raw/train-labels-idx1-ubyte"
    (tmp_path / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(InputError, match="40 train images and 30 labels"):
        load("mnist", tmp_path)


def test_cifar10_is_six_batches_of_which_the_last_is_test(tmp_path):
    write_cifar10(tmp_path)
    data = datasets.cifar10(data_dir=tmp_path)
    assert data.held_out.tolist() == [False] * 10 + [True] * 2
    made = data.split("iid", clients=2)
    assert made.train.x[0].mean(dim=(1, 2)).tolist() == [1, 0, 0]


def write_femnist(path, **changes):
    arrays = {
        "images": np.full((4, 28, 28), 255, dtype=np.uint8),
        "labels": np.array([0, 61, 5, 5], dtype=np.uint8),
        "writer": np.array([0, 0, 1, 1], dtype=np.uint16),
        "is_test": np.array([0, 1, 0, 1], dtype=np.uint8),
        "writer_ids": np.array([b"f1", b"f2"]),
    }
    path.mkdir()
    np.savez(path / "femnist.npz", **(arrays | changes))


def test_femnist_writers_are_clients(tmp_path):
    write_femnist(tmp_path / "femnist")
    made = datasets.femnist(data_dir=tmp_path).split("natural", official=True)
    assert (made.names, made.outputs, made.shape) == (("f1", "f2"), 62, (1, 28, 28))
    assert made.test.y.tolist() == [61, 5]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": np.zeros((4, 27, 28), np.uint8)}, "not bytes"),
        ({"labels": np.zeros(3, np.uint8)}, "different lengths"),
        ({"labels": np.full(4, 62, np.uint8)}, "labels 62 to 62, not 0 to 61"),
        ({"writer": np.full(4, 2, np.uint16)}, "writer 2 is not among the 2 writer_ids"),
    ],
)
def test_a_wrong_femnist_file_is_refused(tmp_path, changes, message):
    write_femnist(tmp_path / "femnist", **changes)
    with pytest.raises(InputError, match=message):
        datasets.femnist(data_dir=tmp_path)


def write_hospitals(root):
    (root / "heart-disease").mkdir()
    for k, name in enumerate(HOSPITALS):
        rows = [
            f"{40 + 10 * k + i},1,{1 + i % 4},120,{200 + i},?,0,150,0,{i / 2},?,?,3,{i % 3}"
            for i in range(20)
        ]
        (root / "heart-disease" / f"processed.{name}.data").write_text("\n".join(rows))


def test_hospitals_are_scaled_by_themselves_or_together(tmp_path):
    write_hospitals(tmp_path)
    own = datasets.heart_disease(data_dir=tmp_path)
    together = datasets.heart_disease(scale="global", data_dir=tmp_path)
    raw = datasets.heart_disease(scale="none", data_dir=tmp_path)
    age = [[data.x[data.natural == k, 0].mean() for k in range(4)] for data in (own, together, raw)]
    np.testing.assert_allclose(age[0], 0, atol=1e-5)
    assert age[1][0] < -0.5 < 0.5 < age[1][3]
    np.testing.assert_allclose(age[2], [49.5, 59.5, 69.5, 79.5], rtol=1e-6)
    assert own.x.shape == (80, 13)
    assert datasets.heart_disease(columns="all", data_dir=tmp_path).x.shape == (80, 18)
    assert own.y[:3].tolist() == [0, 1, 1]


def test_the_table_of_datasets_is_complete():
    assert set(DATASETS) == {
        "digits", "eagle_synthetic", "synthetic", "mnist", "fashion_mnist", "cifar10", "femnist",
        *("heart_disease", "adult", "vehicle", "landmine", "school", "acs_income", "beijing_air"),
        *("communities_crime", "law_school", "tcga_brca", "cifar100", "emnist", "ambiguous_mnist"),
        *("shakespeare", "medical_question_pairs", "quora_question_pairs", "reddit"),
        *("easy_and_hard", "tiny_imagenet", "hf"),
    }  # fmt: skip


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "folder"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")]
)
def test_the_real_idx_datasets_are_whole(real, name, folder):
    data = load(name, real(f"{folder}/raw"))
    assert data.x.shape == (70_000, 1, 28, 28)
    assert np.bincount(data.y).min() > 6000
    assert data.held_out.sum() == 10_000
    made = data.split("by_class(classes=[6,2,0])", official=True)
    assert made.test.sizes.tolist() == [
        int(((data.y == c) & data.held_out).sum()) for c in (6, 2, 0)
    ]


@pytest.mark.data
def test_the_real_cifar10_is_whole(real):
    folder = real("cifar-10-batches-bin")
    data = load("cifar10", folder)
    assert data.x.shape == (60_000, 3, 32, 32)
    assert np.bincount(data.y).tolist() == [6000] * 10
    assert np.bincount(data.y[data.held_out]).tolist() == [1000] * 10
    # the channel means of the training images that are commonly quoted
    means = (data.x[~data.held_out].mean(axis=(0, 2, 3)) / 255).round(4)
    np.testing.assert_allclose(means, [0.4914, 0.4822, 0.4465], atol=1e-4)


@pytest.mark.data
def test_the_real_femnist_has_its_writers(real):
    data = load("femnist", real("femnist/femnist.npz"))
    made = data.split("natural", clients=20, seed=1)
    assert (len(data.natural_names), data.x.shape) == (396, (63_351, 1, 28, 28))
    assert len(made) == 20
    assert set(made.names) <= set(data.natural_names)


@pytest.mark.data
def test_the_real_hospitals_are_four_and_complete(real):
    made = load("heart_disease", real("heart-disease")).split("natural")
    assert made.names == HOSPITALS
    total = made.sizes().drop(columns="client").sum(axis=1)
    assert total.tolist() == [303, 294, 123, 200]
    # 139 of 303, 106 of 294, 115 of 123 and 149 of 200 patients have the disease
    assert made.label_counts()[1].tolist() == [139, 106, 115, 149]
