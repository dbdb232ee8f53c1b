"""Federations from a user's own data: what is built, and what is refused by name."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from fedparity.data import Federation
from fedparity.errors import InputError


def small(**changes):
    given = {
        "x": np.arange(12.0).reshape(6, 2),
        "y": [0, 1, 2, 0, 1, 2],
        "client": ["b", "a", "b", "a", "b", "a"],
        "part": ["train", "train", "validation", "test", "train", "train"],
    }
    return Federation.from_arrays(**(given | changes))


def test_clients_are_sorted_and_their_examples_keep_their_order():
    made = small()
    assert made.names == ("a", "b")
    assert made.train.offsets.tolist() == [0, 2, 4]
    assert made.train.x.tolist() == [[2, 3], [10, 11], [0, 1], [8, 9]]
    assert made.train.y.tolist() == [1, 2, 0, 1]
    assert made.train.owner.tolist() == [0, 0, 1, 1]
    assert made.validation.sizes.tolist() == [0, 1]
    assert made.test.sizes.tolist() == [1, 0]
    assert (len(made), made.shape, made.outputs, made.kind) == (2, (2,), 3, "classes")


def test_client_gives_views_not_copies():
    made = small()
    x, _ = made.train.client(1)
    assert x.tolist() == [[0, 1], [8, 9]]
    assert x.data_ptr() == made.train.x[2:].data_ptr()


def test_clients_with_numbers_are_sorted_as_numbers():
    made = Federation.from_arrays(np.zeros((3, 1)), [0, 1, 0], [10, 9, 2])
    assert made.names == ("2", "9", "10")


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 5))
def test_the_split_rounds_validation_and_test_down_and_loses_nothing(sizes, seed):
    client = np.repeat(np.arange(len(sizes)), sizes)
    n = len(client)
    made = Federation.from_arrays(np.arange(n)[:, None], np.zeros(n, int), client, seed=seed)
    assert made.test.sizes.tolist() == [size // 10 for size in sizes]
    assert made.validation.sizes.tolist() == [size // 10 for size in sizes]
    together = torch.cat([made.train.x, made.validation.x, made.test.x]).ravel()
    assert sorted(together.tolist()) == list(range(n))
    for split in (made.train, made.validation, made.test):
        rows = split.x.ravel().long()
        assert client[rows.numpy()].tolist() == split.owner.tolist()


def test_the_split_depends_on_the_seed_alone():
    client = np.repeat([0, 1], 50)
    one, same, other = (
        Federation.from_arrays(np.arange(100)[:, None], np.zeros(100, int), client, seed=seed)
        for seed in (1, 1, 2)
    )
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_a_client_with_one_example_trains():
    made = Federation.from_arrays(np.zeros((21, 1)), np.zeros(21, int), ["one"] + ["more"] * 20)
    assert made.sizes().set_index("client").loc["one"].tolist() == [1, 0, 0]


def test_a_client_without_training_examples_is_refused_by_name():
    with pytest.raises(InputError, match="client 'a' has no training example"):
        small(part=["train", "test", "train", "test", "train", "validation"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": [0, 1]}, "one row an example is expected: x has 6, y has 2, client has 6"),
        ({"part": ["train"]}, "part has 1"),
        ({"x": np.zeros(6)}, r"x has shape \(6,\)"),
        ({"x": [["a", "b"]] * 6}, "where numbers are expected"),
        ({"x": [[np.nan, 0]] * 6}, "client 'a' has an input that is not finite in train"),
        ({"y": [0, 1, 2, 0, 1, -1]}, "y has class -1: classes are numbered from 0"),
        ({"y": [0, 1, 2, 0, 1, 9], "outputs": 3}, "y has class 9: with 3 outputs the last is 2"),
        ({"y": [0, 1, 2, 0, 1, 10**9]}, "y has class 1000000000: number the classes from 0"),
        ({"y": [0, 1, 2, 0, 1, np.inf]}, "the target of example 5 is inf"),
        ({"y": [[0]] * 6}, "one target an example"),
        ({"y": [0.5] * 6, "kind": "classes"}, "kind='values'"),
        ({"kind": "ordinal"}, "kind should be 'classes'"),
        ({"client": ["a", "b", None, "a", "b", "a"]}, "example 2 has no client"),
        ({"client": [1, "1", 1, 1, 1, 1], "part": None}, "two clients are called '1'"),
        ({"part": ["train"] * 5 + ["tests"]}, "unknown part 'tests': did you mean 'test'"),
        ({"part": ["train"] * 5 + [None]}, "example 5 has no part"),
        ({"part": None, "fractions": (0.5, 0.1, 0.1)}, "sum to 1"),
        ({"part": None, "fractions": (0.0, 0.5, 0.5)}, "train must be above 0"),
    ],
)
def test_wrong_arrays_are_refused_in_one_line(changes, message):
    if "client" in changes:
        changes = changes | {"client": np.array(changes["client"], dtype=object)}
    with pytest.raises(InputError, match=message) as raised:
        small(**changes)
    assert "\n" not in str(raised.value)


def test_text_labels_become_their_sorted_places():
    made = small(y=["dog", "cat", "emu", "dog", "cat", "emu"])
    assert made.classes == ("cat", "dog", "emu")
    assert made.train.y.tolist() == [0, 2, 1, 0]
    assert made.label_counts().columns.tolist() == ["cat", "dog", "emu"]


def test_numbers_with_fractions_are_values():
    made = small(y=[0.5, 1, 2, 0, 1, 2])
    assert (made.kind, made.outputs, made.train.y.dtype) == ("values", 1, torch.float64)
    with pytest.raises(InputError, match="label_counts is for classes"):
        made.label_counts()


def test_whole_numbers_are_values_when_said_so():
    assert small(kind="values").train.y.dtype == torch.float64


def test_float64_is_kept_and_everything_else_is_float32():
    assert small().train.x.dtype == torch.float64
    assert small(x=np.ones((6, 2), np.uint8)).train.x.dtype == torch.float32
    assert small(x=torch.ones(6, 2, dtype=torch.bfloat16)).train.x.dtype == torch.float32


def test_to_changes_the_floating_point_type_only():
    made = small(y=[0.5, 1, 2, 0, 1, 2])
    assert made.to(torch.float64) is made
    other = made.to(torch.float32)
    assert (other.train.x.dtype, other.test.y.dtype) == (torch.float32, torch.float32)
    assert other.to(torch.float64).fingerprint == made.fingerprint
    with pytest.raises(InputError, match="floating point"):
        made.to(torch.int64)


def test_sizes_and_label_counts_count_every_split():
    made = small()
    assert made.sizes().to_dict("list") == {
        "client": ["a", "b"],
        "n_train": [2, 2],
        "n_validation": [0, 1],
        "n_test": [1, 0],
    }
    assert made.label_counts().to_numpy().tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize(
    "changes",
    [
        {"x": np.arange(12.0).reshape(6, 2) + 1e-9},
        {"y": [0, 1, 2, 0, 2, 2]},
        {"client": ["b", "a", "b", "a", "b", "b"]},
        {"client": ["b", "c", "b", "c", "b", "c"]},
        {"outputs": 4},
    ],
)
def test_the_fingerprint_sees_every_change(changes):
    assert small(**changes).fingerprint != small().fingerprint


def test_the_fingerprint_is_the_same_everywhere():
    # Recorded once: another value would disown every run that was stored before.
    assert small().fingerprint == "0a665a8221fd524cef4c5d48a517696b45ad86cf03ed27a7de937dce8a4c3c4a"


def hospitals(**changes):
    columns = {
        "hospital": ["north", "south"] * 3,
        "age": [50, 60, 70, 80, 55, 65],
        "smokes": [True, False] * 3,
        "disease": ["no", "yes", "yes", "no", "no", "yes"],
    }
    return pd.DataFrame(columns | changes)


def test_a_frame_of_numbers_becomes_a_federation():
    made = Federation.from_frame(hospitals(), "hospital", "disease", prepare="none")
    assert made.names == ("north", "south")
    assert made.classes == ("no", "yes")
    assert made.train.client(0)[0].tolist() == [[50, 1], [70, 1], [55, 1]]
    assert made.train.client(1)[1].tolist() == [1, 0, 1]


def test_a_frame_may_name_parts_and_features():
    frame = hospitals(role=["train"] * 4 + ["test"] * 2)
    made = Federation.from_frame(
        frame, "hospital", "disease", "role", features=["age"], prepare="none"
    )
    assert made.shape == (1,)
    assert made.test.x.tolist() == [[55], [65]]


def test_a_categorical_target_is_mapped_and_a_float_one_is_a_value():
    frame = hospitals(disease=pd.Categorical(["b", "a"] * 3))
    assert Federation.from_frame(frame, "hospital", "disease").classes == ("a", "b")
    frame = hospitals(disease=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert Federation.from_frame(frame, "hospital", "disease").kind == "values"


def test_nullable_columns_without_gaps_are_numbers():
    frame = hospitals(age=pd.array([1, 2, 3, 4, 5, 6], dtype="Int64"))
    frame["disease"] = pd.array([0, 1, 0, 1, 0, 1], dtype="Int64")
    made = Federation.from_frame(frame, "hospital", "disease")
    assert (made.kind, made.outputs) == ("classes", 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"age": ["old"] * 6},
            r"column 'age' is not numeric: .*get_dummies\(df, columns=\['age'\]",
        ),
        ({"age": [50, None, 70, 80, None, 65]}, "column 'age' misses 2 of 6 values"),
        ({"disease": ["no", None, "yes", "no", "no", "yes"]}, "column 'disease' misses 1 of 6"),
        ({"hospital": [None] * 6}, "column 'hospital' misses 6 of 6"),
    ],
)
def test_a_wrong_column_is_named_with_its_remedy(changes, message):
    with pytest.raises(InputError, match=message):
        Federation.from_frame(hospitals(**changes), "hospital", "disease", prepare="none")


def test_a_missing_column_is_named_with_the_nearest():
    with pytest.raises(InputError, match="unknown column 'hospitl': did you mean 'hospital'"):
        Federation.from_frame(hospitals(), "hospitl", "disease")
    with pytest.raises(InputError, match="no input column is left"):
        Federation.from_frame(hospitals()[["hospital", "disease"]], "hospital", "disease")


class Pairs(TorchDataset):
    def __init__(self, pairs):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


def test_torch_datasets_become_clients():
    first = TensorDataset(torch.ones(3, 2), torch.tensor([0, 1, 0]))
    second = Pairs([(torch.zeros(2), 2)])
    made = Federation.from_datasets([first, second], names=["big", "one"])
    assert (made.names, made.outputs) == (("big", "one"), 3)
    assert made.train.sizes.tolist() == [3, 1]
    assert made.train.y.tolist() == [0, 1, 0, 2]


def test_torch_datasets_may_come_with_their_own_test_sets():
    train = [TensorDataset(torch.ones(20, 2), torch.zeros(20, dtype=torch.long))] * 2
    made = Federation.from_datasets(train, test=[train[0], Pairs([])])
    assert made.names == ("client-0", "client-1")
    assert made.train.sizes.tolist() == [20, 20]
    assert made.test.sizes.tolist() == [20, 0]


def test_an_empty_torch_dataset_is_refused_by_name():
    full = TensorDataset(torch.ones(3, 2), torch.tensor([0, 1, 0]))
    with pytest.raises(InputError, match="client 'client-1' has no training example"):
        Federation.from_datasets([full, Pairs([])])


@pytest.mark.parametrize("pairs", [[("picture", 0)], [(torch.ones(2), 0), (torch.ones(3), 0)], [3]])
def test_a_torch_dataset_of_something_else_is_refused_by_name(pairs):
    with pytest.raises(InputError, match="dataset of client 'client-0' does not give") as raised:
        Federation.from_datasets([Pairs(pairs)])
    assert "\n" not in str(raised.value)


def test_clients_with_inputs_of_different_shapes_are_refused():
    sets = [TensorDataset(torch.ones(1, n), torch.tensor([0])) for n in (2, 3)]
    with pytest.raises(InputError, match="different shapes"):
        Federation.from_datasets(sets)
    with pytest.raises(InputError, match="1 test datasets for 2 clients"):
        Federation.from_datasets(sets, test=sets[:1])


def test_a_hundred_thousand_clients_are_one_vectorised_step():
    n = 100_000
    made = Federation.from_arrays(np.zeros((3 * n, 1)), np.zeros(3 * n, int), np.arange(3 * n) % n)
    assert len(made) == n
    assert (made.train.sizes == 3).all()


def test_only_keeps_the_examples_of_the_named_clients(unlike):
    alone = unlike.only("3", "0")
    assert alone.names == ("3", "0")
    for part in ("train", "validation", "test"):
        for mine, theirs in ((0, 3), (1, 0)):
            kept, given = (getattr(f, part) for f in (alone, unlike))
            for found, wanted in zip(kept.client(mine), given.client(theirs), strict=True):
                assert torch.equal(found, wanted)


def test_only_refuses_a_client_that_is_not_there(unlike):
    with pytest.raises(InputError, match="unknown client 'nobody'"):
        unlike.only("nobody")
