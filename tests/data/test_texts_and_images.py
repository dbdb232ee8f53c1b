"""Readers of CIFAR-100, EMNIST, texts, survival tables and ambiguous digits, on small files."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from fedparity import InputError
from fedparity.data import load, rebuild
from fedparity.data.ambiguous import ambiguous_clients
from fedparity.data.cifar import PIXELS

PLAY = "A:\nabcabc\n\nB:\nhello you\nthere\n\nA:\ncba\n\nEXIT:\nx"


def idx(path, values: np.ndarray) -> None:
    sizes = b"".join(int(n).to_bytes(4, "big") for n in values.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = bytes([0, 0, 8, values.ndim])
    path.write_bytes(head + sizes + values.astype(np.uint8).tobytes())


def test_cifar100_is_read_from_the_publishers_files(tmp_path):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    for name, pairs in {"train": [(3, 42), (19, 99)], "test": [(0, 7)]}.items():
        records = [bytes(pair) + bytes([pair[1]] * PIXELS) for pair in pairs]
        (folder / f"{name}.bin").write_bytes(b"".join(records))
    fine, coarse = load("cifar100", tmp_path), load("cifar100(labels=coarse)", tmp_path)
    assert (fine.y.tolist(), fine.outputs) == ([42, 99, 7], 100)
    assert (coarse.y.tolist(), coarse.outputs) == ([3, 19, 0], 20)
    assert fine.x[:, 0, 0, 0].tolist() == [42, 99, 7]
    assert fine.held_out.tolist() == [False, False, True]
    (folder / "test.bin").write_bytes(b"x")
    with pytest.raises(InputError, match="get it again"):
        load("cifar100", tmp_path)


def test_cifar100_is_read_from_arrays(tmp_path):
    (tmp_path / "cifar100").mkdir()
    images = np.arange(2 * PIXELS, dtype=np.uint8).reshape(2, 32, 32, 3)
    for name in ("train", "test"):
        file = tmp_path / "cifar100" / f"cifar100_subset_{name}.npz"
        np.savez(file, images=images, labels=np.uint8([5, 6]), coarse=np.uint8([1, 2]))
    made = load("cifar100", tmp_path)
    assert made.x[0, :, 0, 0].tolist() == [0, 1, 2]
    assert made.y.tolist() == [5, 6, 5, 6]


def test_emnist_stands_upright_and_its_letters_begin_at_0(tmp_path):
    raw = tmp_path / "EMNIST" / "raw"
    image = np.zeros((2, 28, 28))
    image[:, 3, 9] = 200
    for name in ("train", "test"):
        idx(raw / f"emnist-letters-{name}-images-idx3-ubyte", image)
        idx(raw / f"emnist-letters-{name}-labels-idx1-ubyte", np.array([1, 26]))
    made = load("emnist(split=letters)", tmp_path)
    assert (made.y.tolist(), made.outputs) == ([0, 25, 0, 25], 26)
    assert np.argwhere(made.x[0, 0]).tolist() == [[9, 3]]


@pytest.mark.parametrize("packed", [False, True])
def test_roles_say_windows_of_all_their_speeches(tmp_path, packed):
    (tmp_path / "tinyshakespeare").mkdir()
    file = tmp_path / "tinyshakespeare" / ("input.txt.gz" if packed else "input.txt")
    file.write_bytes(gzip.compress(PLAY.encode()) if packed else PLAY.encode())
    made = load("shakespeare(length=4, least=2)", tmp_path)
    # A: "abcabc\ncba" is 10 characters, 2 windows; B: 15 characters, 3; EXIT has none
    assert made.natural_names == ("A", "B")
    assert made.natural.tolist() == [0, 0, 1, 1, 1]
    letters = np.array(made.classes)
    assert "".join(letters[made.x[1]]) == "bc\nc"
    assert "".join(letters[made.y[1]]) == "c\ncb"
    dealt = made.split("natural")
    assert rebuild(dealt.recipe, tmp_path).fingerprint == dealt.fingerprint


def test_questions_are_numbers_of_their_words(tmp_path):
    (tmp_path / "mqp").mkdir()
    rows = '10,"Is it, really?",it is,1\n2,What?,Really what,0\n'
    (tmp_path / "mqp" / "mqp.csv").write_text(rows)
    made = load("medical_question_pairs(vocabulary=1000, length=4)", tmp_path)
    assert made.natural_names == ("doctor-2", "doctor-10")
    (one, other), (what, both) = made.x.tolist()
    assert one[:2] == other[1::-1]
    assert one[3] == other[2] == other[3] == 0
    assert both[:2] == [one[2], what[0]]
    assert made.y.tolist() == [1, 0]
    (tmp_path / "mqp" / "mqp.csv").write_text("1,2\n")
    with pytest.raises(InputError, match="does not hold rows of doctor"):
        load("medical_question_pairs", tmp_path)


def test_patients_have_a_time_in_intervals_and_the_region_of_their_centre(tmp_path):
    folder = tmp_path / "tcga-brca"
    folder.mkdir()
    patients = "pid,age_at_index,x,E,T\nTCGA-BH-1,50,1,1.0,100\nTCGA-AO-2,80,0,0.0,250\n"
    (folder / "tcga_brca.csv").write_text(patients)
    split = "pid,fold,fold2\nTCGA-AO-2,test,test_1\nTCGA-BH-1,train,train_0\n"
    (folder / "tcga_train_test_split.csv").write_text(split)
    (folder / "tcga_centers.csv").write_text("TSS Code,Region\nBH,South\nAO,Canada\n")
    made = load("tcga_brca(intervals=3, days=100)", tmp_path)
    assert made.y.tolist() == [[1.0, 1.0], [2.5, 0.0]]
    assert made.x.tolist() == [[0.5, 1.0], [np.float32(0.8), 0.0]]
    assert [made.natural_names[k] for k in made.natural] == ["South", "Canada"]
    assert (made.held_out.tolist(), made.kind, made.outputs) == ([False, True], "survival", 3)


def test_an_ambiguous_digit_is_a_mix_of_two_and_has_the_label_of_one():
    y = np.arange(200) % 10
    x = np.repeat(25 * y, 784).reshape(-1, 1, 28, 28).astype(np.uint8)  # each digit its own grey
    images, labels, client = ambiguous_clients(x, y, each=16, low=0.4, seed=0)
    assert np.bincount(client).tolist() == [16] * 5
    pure = np.isclose(images[:, 0, 0, 0] * 255, 25 * labels, atol=1e-3)
    shares = [1 - pure[client == k].mean() for k in range(5)]
    assert shares == [0, 0.25, 0.5, 0.75, 1]
    with pytest.raises(InputError, match="images are needed"):
        ambiguous_clients(x, y, each=30, low=0.4, seed=0)


@pytest.mark.parametrize(
    "name",
    ["cifar100", "emnist", "ambiguous_mnist", "shakespeare", "medical_question_pairs", "tcga_brca"],
)
def test_what_is_missing_is_told_with_where_to_get_it(name, tmp_path):
    with pytest.raises(InputError, match=r"no file .*: (get|unpack) .*--data-dir"):
        load(name, tmp_path)
