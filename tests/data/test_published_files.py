"""Readers of DirtyMNIST, Tiny-ImageNet, Quora and Reddit, on small files of their layout."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from test_texts_and_images import idx

from fedparity import InputError
from fedparity.data import load, rebuild
from fedparity.data.ambiguous import published_clients
from fedparity.data.pt import read_tensor


def write_mnist(folder: Path, n: int) -> None:
    """Write MNIST's four files: every image of digit k is grey of level k."""
    y = np.arange(n) % 10
    for part, rows in (("train", y), ("t10k", y[:10])):
        images = np.repeat(rows, 784).reshape(-1, 28, 28)
        idx(folder / "MNIST" / "raw" / f"{part}-images-idx3-ubyte", images)
        idx(folder / "MNIST" / "raw" / f"{part}-labels-idx1-ubyte", rows)


def write_dirty(folder: Path, samples: torch.Tensor, labels: torch.Tensor) -> None:
    (folder / "AmbiguousMNIST").mkdir(exist_ok=True)
    torch.save(samples, folder / "AmbiguousMNIST" / "amnist_samples.pt")
    torch.save(labels, folder / "AmbiguousMNIST" / "amnist_labels.pt")


def test_published_ambiguous_digits_are_taken_where_they_are(tmp_path):
    write_mnist(tmp_path, 60)
    generated = load("ambiguous_mnist(each=8)", tmp_path)
    assert "source='mixed'" in generated.recipe
    bright = torch.linspace(0.5, 1, 40)[:, None, None, None].expand(40, 1, 28, 28).contiguous()
    answers = torch.stack([torch.arange(40) % 10, torch.arange(40) % 10], 1)
    write_dirty(tmp_path, bright, answers)
    made = load("ambiguous_mnist(each=8)", tmp_path)
    assert "source='published'" in made.recipe
    dirty = made.x[:, 0, 0, 0] >= 0.5
    assert np.bincount(made.natural, dirty).tolist() == [0, 2, 4, 6, 8]
    found = made.x[dirty][:, 0, 0, 0]
    assert len(np.unique(found)) == 20  # no image twice
    row = np.searchsorted(bright[:, 0, 0, 0].numpy(), found)
    assert (made.y[dirty] == row % 10).all()
    clear = np.round(made.x[~dirty][:, 0, 0, 0] * 255)
    assert (made.y[~dirty] == clear).all()
    dealt = made.split("natural")
    assert rebuild(dealt.recipe, tmp_path).fingerprint == dealt.fingerprint
    assert load(generated.recipe, tmp_path).x.tobytes() == generated.x.tobytes()
    with pytest.raises(InputError, match="too few images for 20 a client"):
        load("ambiguous_mnist(each=20)", tmp_path)


def test_each_answer_of_people_is_drawn():
    answers = np.tile([3, 7], (600, 1))
    x, unclear = np.zeros((600, 1, 1, 1), np.uint8), np.ones((600, 1, 1, 1), np.float32)
    _, y, client = published_clients(x, np.zeros(600, np.int64), unclear, answers, 200, seed=0)
    whole = y[client == 4]
    assert set(whole) == {3, 7}
    assert 70 < (whole == 3).sum() < 130  # 200 fair coins: 100, deviation 7


@pytest.mark.parametrize("kind", [torch.float32, torch.int64])
def test_a_tensor_is_read_as_torch_wrote_it_without_unpickling(kind, tmp_path, monkeypatch):
    wanted = torch.arange(3 * 1 * 300).reshape(3, 1, 300).to(kind)
    torch.save(wanted, tmp_path / "a.pt")
    monkeypatch.setattr("pickle.Unpickler", None)
    monkeypatch.setattr("pickle.loads", None)
    found = read_tensor(tmp_path / "a.pt", (None, 1, 300))
    assert found.dtype == wanted.numpy().dtype
    np.testing.assert_array_equal(found, wanted.numpy())


class Bomb:
    """Something that would run code if it were unpickled."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.witness,))


def test_a_file_with_code_in_it_runs_none(tmp_path):
    torch.save(Bomb(tmp_path / "gone"), tmp_path / "a.pt")
    with pytest.raises(InputError, match="not one tensor"):
        read_tensor(tmp_path / "a.pt", (None, 2))
    with zipfile.ZipFile(tmp_path / "b.pt", "w") as archive:
        archive.writestr("b/data.pkl", pickle.dumps(Bomb(tmp_path / "gone"), protocol=2))
        archive.writestr("b/data/0", bytes(16))
    with pytest.raises(InputError, match="not one tensor"):
        read_tensor(tmp_path / "b.pt", (None, 2))
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("name", ["a/data.pkl", "a/byteorder"])
def test_a_description_too_long_to_be_one_is_not_read(name, tmp_path):
    with zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data/0", bytes(16))
        archive.writestr(name, bytes(100_000))
        if name != "a/data.pkl":
            archive.writestr("a/data.pkl", b"")
    with pytest.raises(InputError, match=r"not one tensor .*too long"):
        read_tensor(tmp_path / "b.pt", (None, 2))


def test_a_locked_file_is_told_in_one_line(tmp_path):
    torch.save(torch.zeros(3, 2), tmp_path / "a.pt")
    content = bytearray((tmp_path / "a.pt").read_bytes())
    content[6] |= 1  # of the first member, and its entry in the list: encrypted
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(InputError, match=r"not one tensor .*encrypted"):
        read_tensor(tmp_path / "a.pt", (None, 2))


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        (torch.zeros(3, 4), r"holds a tensor \[3, 4\], not \[N, 2\]"),
        (torch.zeros(4), "not 2 dimensions"),
        (torch.zeros(3, 2, dtype=torch.float64), "float32 or int64"),
        (torch.zeros(2, 3).T, "row by row"),
        (torch.zeros(0, 2), r"holds a tensor \[0, 2\]"),
        ([torch.zeros(2, 2), torch.zeros(2, 2)], "it has 2 of them"),
    ],
)
def test_other_tensors_are_told_in_one_line(tensor, told, tmp_path):
    torch.save(tensor, tmp_path / "a.pt")
    with pytest.raises(InputError, match=told):
        read_tensor(tmp_path / "a.pt", (None, 2))
    (tmp_path / "a.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:100])
    with pytest.raises(InputError, match="not one tensor"):
        read_tensor(tmp_path / "a.pt", (None, 2))


def write_photographs(folder: Path, side: int = 64) -> Path:
    """Write two classes of two and one grey training photographs, and one to judge by."""
    image = pytest.importorskip("PIL.Image")
    root = folder / "tiny-imagenet-200"
    root.mkdir()
    (root / "wnids.txt").write_text("n02\nn01\n")
    for file, colour in {
        "train/n01/images/n01_0.JPEG": (250, 0, 0),
        "train/n01/images/n01_1.JPEG": (0, 250, 0),
        "train/n02/images/n02_0.JPEG": 120,
        "val/images/val_0.JPEG": (0, 0, 250),
    }.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        mode = "L" if isinstance(colour, int) else "RGB"
        image.new(mode, (side, side), colour).save(root / file, "JPEG")
    (root / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t62\t62\n")
    return root


def test_photographs_are_read_from_the_publishers_folders(tmp_path):
    root = write_photographs(tmp_path)
    made = load("tiny_imagenet", tmp_path)
    assert (made.x.shape, made.x.dtype, made.outputs) == ((4, 3, 64, 64), np.uint8, 2)
    assert made.y.tolist() == [0, 0, 1, 1]
    assert made.held_out.tolist() == [False, False, False, True]
    wanted = [[250, 0, 0], [0, 250, 0], [120, 120, 120], [0, 0, 250]]
    np.testing.assert_allclose(made.x.mean((2, 3)), wanted, atol=3)  # JPEG is not exact
    assert load("tiny_imagenet(classes=[1], part=train)", tmp_path).y.tolist() == [0]
    with (root / "val" / "val_annotations.txt").open("a") as file:
        file.write("../../secret\tn01\t0\t0\t1\t1\n")
    with pytest.raises(InputError, match="a line is no image and class"):
        load("tiny_imagenet", tmp_path)


@pytest.mark.parametrize("break_it", ["side", "bytes", "missing"])
def test_a_photograph_that_is_none_is_told_by_its_name(break_it, tmp_path):
    root = write_photographs(tmp_path, side=32 if break_it == "side" else 64)
    if break_it == "bytes":
        (root / "train/n01/images/n01_0.JPEG").write_bytes(b"GIF89a")
    if break_it == "missing":
        (root / "val/images/val_0.JPEG").unlink()
    with pytest.raises(InputError, match=r"(n01_0|val_0).JPEG (has|is not a whole JPEG)"):
        load("tiny_imagenet", tmp_path)


HEAD = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"


def test_pairs_of_questions_are_read_as_glue_publishes_them(tmp_path):
    (tmp_path / "QQP").mkdir()
    rows = '0\t1\t2\tWhat is "AI?\tWhat is it?\t0\n' + "7\t8\t9\tWhy?\tWhy?\t1\n" * 150
    (tmp_path / "QQP" / "train.tsv").write_text(HEAD + rows + "1\t3\t4\tbroken\n")
    (tmp_path / "QQP" / "dev.tsv").write_text(HEAD + "2\t5\t6\tWho?\tWhat?\t0\n")
    made = load("quora_question_pairs(vocabulary=1000, length=3)", tmp_path)
    assert (len(made), made.y.sum(), made.held_out.sum()) == (152, 150, 1)
    assert made.x.shape == (152, 2, 3)
    assert made.x[0, 0, :2].tolist() == made.x[0, 1, :2].tolist()
    assert made.x[0, 0, 2] != made.x[0, 1, 2]
    (tmp_path / "QQP" / "train.tsv").write_text(HEAD + "1\t3\t4\tbroken\n" * 3)
    with pytest.raises(InputError, match="3 of 3 rows are broken"):
        load("quora_question_pairs", tmp_path)


@pytest.mark.parametrize("name", ["quora_duplicate_questions.tsv", "train.csv"])
def test_pairs_of_questions_are_read_as_quora_publishes_them(name, tmp_path):
    (tmp_path / "QQP").mkdir()
    between = "," if name.endswith("csv") else "\t"
    head = HEAD.replace("\t", between)
    row = between.join(["0", "1", "2", '"one,\n""two"""', "three", "1"]) + "\n"
    (tmp_path / "QQP" / name).write_text(head + row)
    made = load("quora_question_pairs(vocabulary=1000, length=3)", tmp_path)
    assert made.held_out is None
    assert (made.x[0] > 0).sum(1).tolist() == [2, 1]
    (tmp_path / "QQP" / name).write_text("a,b\n")
    with pytest.raises(InputError, match="has no columns question1, question2, is_duplicate"):
        load("quora_question_pairs", tmp_path)


def comment(words: str) -> tuple[list[list[str]], dict[str, object]]:
    """Return a comment as LEAF writes it: lines of ten words, filled up, and what counts."""
    said = ["<BOS>", *words.split(), "<EOS>"]
    fill = -len(said) % 10
    padded, counts = said + ["<PAD>"] * fill, [1.0] * len(said) + [0.0] * fill
    lines = [padded[k : k + 10] for k in range(0, len(padded), 10)]
    marks = [counts[k : k + 10] for k in range(0, len(padded), 10)]
    target = [*said[1:], "<PAD>", *["<PAD>"] * fill]
    told = {"target_tokens": [target[k : k + 10] for k in range(0, len(target), 10)]}
    return lines, {**told, "count_tokens": marks, "subreddit": "a", "score": "1"}


def write_reddit(folder: Path, part: str, users: dict[str, list[str]]) -> Path:
    data = {}
    for user, comments in users.items():
        x, y = zip(*map(comment, comments), strict=True) if comments else ((), ())
        data[user] = {"x": list(x), "y": list(y)}
    file = folder / "reddit" / part / f"reddit_0_{part}.json"
    file.parent.mkdir(parents=True)
    told = {"users": list(users), "num_samples": [1] * len(users), "user_data": data}
    file.write_text(json.dumps(told))
    return file


def test_users_of_reddit_say_windows_of_words(tmp_path):
    write_reddit(tmp_path, "train", {"7": ["a b a", "a c"], "8": ["b"], "9": ["a b a b a b a"]})
    write_reddit(tmp_path, "val", {"7": ["a"], "8": [], "9": []})
    file = write_reddit(tmp_path, "test", {"7": ["c a b zz"], "8": ["b b b b"], "9": []})
    made = load("reddit(vocabulary=5, length=4, least=2)", tmp_path)
    # 7: BOS a b a EOS BOS a c EOS BOS a EOS, 12 words and 2 windows; 8 says 3, 9 says 9
    assert made.natural_names == ("user-7", "user-9")
    assert made.natural.tolist() == [0, 0, 1, 1, 0]
    assert made.held_out.tolist() == [False] * 4 + [True]
    # a is said 8 times, b 4, <BOS> and <EOS> 4: alphabetically "<BOS>" first, c is left out
    assert made.classes == ("<UNK>", "a", "<BOS>", "<EOS>", "b")
    words = np.array(made.classes)
    assert " ".join(words[made.x[0]]) == "<BOS> a b a"
    assert " ".join(words[made.y[0]]) == "a b a <EOS>"
    assert " ".join(words[made.x[1]]) == "<EOS> <BOS> a <UNK>"
    assert " ".join(words[made.x[4]]) == "<BOS> <UNK> a b"
    assert made.kind == "tokens"
    dealt = made.split("natural", official=True)
    assert rebuild(dealt.recipe, tmp_path).fingerprint == dealt.fingerprint
    with pytest.raises(InputError, match="no user has 50 windows of 4 words"):
        load("reddit(length=4, least=50)", tmp_path)
    for broken, told in (
        ("[" * 10_000, "not a whole file of JSON"),
        ('{"users": []}', "has no 'user_data'"),
        ('{"user_data": {"7": {"x": [["a"]], "y": [3]}}}', "does not hold comments"),
    ):
        file.write_text(broken)
        with pytest.raises(InputError, match=told):
            load("reddit", tmp_path)


@pytest.mark.parametrize("name", ["tiny_imagenet", "quora_question_pairs", "reddit"])
def test_what_is_missing_is_told_with_where_to_get_it(name, tmp_path):
    with pytest.raises(InputError, match=r"no file .*: (get|unpack) .*--data-dir"):
        load(name, tmp_path)
