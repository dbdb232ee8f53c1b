"""The file readers: right files are read, wrong ones are refused before they do harm."""

import gzip
import pickle
import struct
import zipfile

import numpy as np
import pytest

from fedparity.data.cifar import read_binary, read_python
from fedparity.data.heart import inputs, read_hospital
from fedparity.data.idx import read_idx
from fedparity.data.npz import read_npz
from fedparity.errors import InputError


def random_bytes(*shape):
    return np.random.Generator(np.random.Philox(0)).integers(0, 256, shape, dtype=np.uint8)


def idx(array, announced=None):
    shape = announced or array.shape
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + array.tobytes()


@pytest.mark.parametrize("name", ["images", "images.gz"])
def test_idx_files_are_read_plain_and_gzipped(tmp_path, name):
    images = random_bytes(5, 4, 3)
    content = idx(images)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    np.testing.assert_array_equal(read_idx(path, (4, 3)), images)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file"),
        (b"\x00\x00\x0d\x03" + bytes(12), "not an idx file"),
        (idx(random_bytes(5, 4, 3))[:-1], "does not hold the 5 items it announces"),
        (idx(random_bytes(5, 4, 3)) + b"x", "does not hold the 5 items it announces"),
        (idx(random_bytes(5, 4, 3), (2**32 - 1, 4, 3)), "says it holds 4294967295 items"),
        (idx(random_bytes(5, 4, 3), (10**7, 4, 3)), "does not hold the 10000000 items"),
        (idx(random_bytes(5, 3, 4)), r"items of shape \(3, 4\), not \(4, 3\)"),
        (idx(random_bytes(0, 4, 3), (0, 4, 3)), "says it holds 0 items"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_wrong_idx_files_are_refused(tmp_path, content, message, zipped):
    path = tmp_path / ("file.gz" if zipped else "file")
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(InputError, match=message):
        read_idx(path, (4, 3))


@pytest.mark.parametrize("cut", [3, 20, -3])
def test_broken_gzip_files_are_refused(tmp_path, cut):
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(idx(random_bytes(50, 4, 3)))[:cut])
    with pytest.raises(InputError, match=r"not a whole gzip file|not an idx file"):
        read_idx(path, (4, 3))


def test_cifar_binary_batches_are_read(tmp_path):
    images, labels = random_bytes(7, 3, 32, 32), np.arange(7, dtype=np.uint8)
    path = tmp_path / "batch.bin"
    path.write_bytes(np.concatenate([labels[:, None], images.reshape(7, -1)], axis=1).tobytes())
    x, y = read_binary(path)
    np.testing.assert_array_equal(x, images)
    np.testing.assert_array_equal(y, labels)


@pytest.mark.parametrize("content", [b"", bytes(3072), bytes([10]) + bytes(3072)])
def test_wrong_cifar_binary_batches_are_refused(tmp_path, content):
    path = tmp_path / "batch.bin"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"not a multiple of 3073|has label 10"):
        read_binary(path)


def python_2_batch(images, labels):
    """Write the operations of the published files, which Python 2 pickled with protocol 2."""

    def short(text):
        return b"U" + bytes([len(text)]) + text

    pixels = images.tobytes()
    listed = b"".join(b"(" + bytes(b for v in part for b in (75, v)) + b"e" for part in labels)
    return (
        b"\x80\x02}q\x01("
        + short(b"batch_label") + b"q\x02" + short(b"training batch 1 of 5") + b"q\x03"
        + short(b"labels") + b"q\x04]q\x05" + listed
        + short(b"data") + b"q\x06cnumpy.core.multiarray\n_reconstruct\nq\x07"
        + b"cnumpy\nndarray\nq\x08K\x00\x85" + short(b"b") + b"\x87Rq\x09(K\x01"
        + b"M" + struct.pack("<H", len(images)) + b"M\x00\x0c\x86"
        + b"cnumpy\ndtype\nq\x0a" + short(b"u1") + b"K\x00K\x01\x87Rq\x0b(K\x03"
        + short(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + b"T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
        + short(b"filenames") + b"q\x0c]q\x0d(" + short(b"data") + b"q\x0e" + short(b"cat.png")
        + b"q\x0feu."
    )  # fmt: skip


def test_the_python_2_stream_of_these_tests_is_a_real_pickle():
    images = random_bytes(3, 3072)
    read = pickle.loads(python_2_batch(images, [[1, 2], [3]]), encoding="bytes")  # noqa: S301
    np.testing.assert_array_equal(read[b"data"], images)
    assert read[b"labels"] == [1, 2, 3]


def test_cifar_python_batches_are_read_as_published(tmp_path):
    images = random_bytes(3, 3072)
    path = tmp_path / "data_batch_1"
    path.write_bytes(python_2_batch(images, [[1, 2], [9]]))
    x, y = read_python(path)
    np.testing.assert_array_equal(x.reshape(3, -1), images)
    assert y.tolist() == [1, 2, 9]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("turned", [False, True])
def test_cifar_python_batches_are_read_in_every_protocol(tmp_path, protocol, turned):
    images, labels = random_bytes(1500, 3072), [i % 10 for i in range(1500)]
    batch = {b"batch_label": b"test", b"labels": labels, b"data": images, b"filenames": [b"7.png"]}
    path = tmp_path / "data_batch_1"
    items = reversed(batch.items()) if turned else batch.items()
    path.write_bytes(pickle.dumps(dict(items), protocol=protocol))
    x, y = read_python(path)
    np.testing.assert_array_equal(x.reshape(1500, -1), images)
    assert y.tolist() == labels


class Trap:
    def __reduce__(self):
        return (exec, ("raise SystemExit('the pickle was run')",))


def test_a_pickle_that_runs_code_is_not_run(tmp_path):
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps({b"data": Trap(), b"labels": [1]}))
    with pytest.raises(InputError, match="not a CIFAR-10 python batch"):
        read_python(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        bytes(100),
        python_2_batch(random_bytes(3, 3072), [[1, 2, 3]])[:-2000],
        python_2_batch(random_bytes(3, 3072), [[1, 2]]),
        b"\x80\x04U\x04data\x8e" + struct.pack("<Q", 2**40) + b"announced, not there",
        pickle.dumps({b"data": random_bytes(1, 3072), b"labels": [10]}),
        pickle.dumps({b"data": random_bytes(1, 3072), b"labels": [-1]}),
    ],
)
def test_wrong_cifar_python_batches_are_refused(tmp_path, content):
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    with pytest.raises(InputError, match="data_batch_1"):
        read_python(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_LZMA])
def test_npz_arrays_are_read(tmp_path, compression):
    arrays = {"a": random_bytes(4, 5), "b": np.array([b"x", b"yy"])}
    with zipfile.ZipFile(tmp_path / "file.npz", "w", compression) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)
    read = read_npz(tmp_path / "file.npz", ("a", "b"))
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)


def test_wrong_npz_files_are_refused(tmp_path):
    path = tmp_path / "file.npz"
    path.write_bytes(b"not a zip")
    with pytest.raises(InputError, match="not a whole npz file"):
        read_npz(path, ("a",))
    np.savez(path, a=np.zeros(3))
    with pytest.raises(InputError, match="has no array 'b'"):
        read_npz(path, ("a", "b"))
    np.savez(path, a=np.array([{"an": "object"}], dtype=object))
    with pytest.raises(InputError, match="not what its header says"):
        read_npz(path, ("a",))


def test_an_npz_array_that_announces_more_than_the_file_holds_is_refused(tmp_path):
    path = tmp_path / "file.npz"
    with zipfile.ZipFile(path, "w") as archive, archive.open("a.npy", "w") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (10**12,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(b"few")
    with pytest.raises(InputError, match="not what its header says"):
        read_npz(path, ("a",))


def test_hospital_records_mark_missing_values_and_impossible_zeros(tmp_path):
    path = tmp_path / "processed.va.data"
    path.write_text("63,1,4,0,260,0,1,112,1,3,2,?,?,2\n44,1,4,130,0,0,1,127,0,0,?,?,?,0\n\n")
    table = read_hospital(path)
    assert table.shape == (2, 14)
    assert np.isnan(table).sum(axis=1).tolist() == [3, 4]


@pytest.mark.parametrize("line", ["1,2,3", "a" + ",1" * 13, "1," * 13 + "?", ""])
def test_wrong_hospital_records_are_refused(tmp_path, line):
    path = tmp_path / "processed.va.data"
    path.write_text(line)
    with pytest.raises(InputError, match=r"line 1|is empty"):
        read_hospital(path)


def test_missing_values_come_from_the_hospital_or_from_all():
    # Column 0 (age, a number): hospital 0 has 40, 50 and a gap; hospital 1 has 90 and 90;
    # hospital 2 has only a gap. Column 2 (cp, a category) is complete.
    table = np.ones((6, 14))
    table[:, 0] = [40, 50, np.nan, 90, 90, np.nan]
    client = np.array([0, 0, 0, 1, 1, 2])
    overall = 70  # the median of 40, 50, 90, 90
    own = inputs(table, client, "client", "none", "common")
    assert own[:, 0].tolist() == [40, 50, 45, 90, 90, overall]
    together = inputs(table, client, "global", "none", "common")
    assert together[:, 0].tolist() == [40, 50, overall, 90, 90, overall]
