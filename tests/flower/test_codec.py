"""What is written into Flower's records is read back, and what is wrong is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedparity.flower import codec
from fedparity.flower.codec import BadMessage, Like, Schema, Stamp
from fedparity.flower.testing import through_bytes as sent
from fedparity.method.messages import Down, Up

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=8)
FLOATS = (torch.float32, torch.float64)


@st.composite
def tensors(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...] = tuple(codec.DTYPES.values())):
    """Return a tensor of up to three dimensions, with any values that its type has."""
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    dtype = draw(st.sampled_from(dtypes))
    bits = draw(st.binary(min_size=8 * math.prod(shape), max_size=8 * math.prod(shape)))
    whole = torch.from_numpy(np.frombuffer(bits, dtype=np.int64).copy()).reshape(shape)
    if dtype == torch.float64:
        return whole.view(torch.float64)
    if dtype == torch.float32:
        return (whole >> 32).to(torch.int32).view(torch.float32)
    return whole.to(dtype)


TREES = st.dictionaries(
    NAMES, st.dictionaries(NAMES, tensors(), min_size=1, max_size=2), max_size=3
)


def same(found: Tensor, wanted: Tensor) -> bool:
    """Tell whether two tensors have the same type, shape and bits."""
    return Like.of(found) == Like.of(wanted) and found.numpy().tobytes() == wanted.numpy().tobytes()


def same_tree(found, wanted) -> bool:
    one, other = codec.flat(found), codec.flat(wanted)
    return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)


@given(TREES, TREES, tensors(FLOATS), tensors(FLOATS), st.integers(0, 2**40), st.floats(0, 1))
def test_down_is_read_back_to_the_bit(shared, each, x, buffers, round, lr):
    down = Down("train", round, lr, x, buffers, shared, each, search=2)
    stamp = Stamp("run", 3, round, lr)
    found, read = codec.read_down(sent(codec.write_down(down, stamp)), x, buffers)
    assert (found.phase, found.round, found.lr, found.search) == ("train", round, lr, 2)
    assert same(found.x, x)
    assert same(found.buffers, buffers)
    assert same_tree(found.shared, shared)
    assert same_tree(found.each, each)
    assert read == stamp


@given(TREES, tensors(FLOATS), tensors(FLOATS))
def test_up_is_read_back_to_the_bit(reports, delta, buffers):
    up = Up(reports, delta, buffers)
    found = codec.read_up(sent(codec.write_up(up)), Schema.of(up))
    assert same_tree(found.reports, reports)
    assert found.deltas is not None
    assert found.buffers is not None
    assert same(found.deltas, delta)
    assert same(found.buffers, buffers)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_array_are_refused_or_are_the_array_described(data):
    record = ArrayRecord({"x": Array("float32", (2,), "numpy.ndarray", data)})
    try:
        found = codec.unpack(record, {"x": Like("float32", (2,))})
    except BadMessage:
        return
    assert same(found["x"], torch.from_numpy(np.frombuffer(data[-8:], dtype=np.float32).copy()))


UP = Up({"afl": {"loss": torch.tensor(1.0)}}, torch.ones(3), torch.zeros(0))


def answer(**changes: object) -> RecordDict:
    """Return the records of an answer in which some arrays are others."""
    records = codec.write_up(UP)
    for name, value in changes.items():
        kind, key = name.split("__")
        record = records.array_records[kind]
        key = key.replace("_", "/")
        if value is None:
            del record[key]
        else:
            record[key] = value if isinstance(value, Array) else Array(np.asarray(value))
    return records


def claimed(data: bytes) -> Array:
    return Array("float32", (3,), "numpy.ndarray", data)


def npy(array: object) -> bytes:
    return Array(np.asarray(array)).data


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"vectors__delta": None}, "leaves out 'delta'"),
        ({"reports__afl_loss": None}, "leaves out 'afl/loss'"),
        ({"reports__afl_gap": np.float32(1)}, "'afl/gap', which nobody asked for"),
        ({"vectors__x": np.ones(3, np.float32)}, "'x', which nobody asked for"),
        ({"vectors__delta": np.ones(4, np.float32)}, r"'delta' is float32\[4\], not float32\[3\]"),
        ({"vectors__delta": np.ones(3)}, r"'delta' is float64\[3\], not float32\[3\]"),
        ({"vectors__delta": np.ones((3, 1), np.float32)}, r"float32\[3, 1\], not float32\[3\]"),
        ({"vectors__delta": np.ones(9000, np.float32)}, "bytes where at most"),
        ({"vectors__delta": claimed(npy(np.ones(200, np.float32)))}, "bytes where 12 belong"),
        ({"vectors__delta": claimed(npy(np.ones(4, np.float32)))}, "not the float32"),
        ({"vectors__delta": claimed(npy(np.ones(3, np.int32)))}, "not the float32"),
        ({"vectors__delta": claimed(npy(np.ones(3, np.float32))[:-1])}, "not the float32"),
        ({"vectors__delta": claimed(b"\x80\x04K\x01.")}, "not an array"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_is_refused(changes, told):
    with pytest.raises(BadMessage, match=told):
        codec.read_up(sent(answer(**changes)), Schema.of(UP))


def test_an_answer_that_is_what_was_asked_for_is_read():
    assert torch.equal(codec.read_up(answer(), Schema.of(UP)).deltas, torch.ones(3))


def test_an_array_of_an_unknown_type_is_refused():
    record = ArrayRecord({"x": Array("object", (1,), "numpy.ndarray", b"")})
    with pytest.raises(BadMessage, match="has the type 'object'"):
        codec.unpack(record)


def test_records_of_another_kind_are_refused():
    records = codec.write_up(UP)
    records["more"] = ArrayRecord({"x": Array(np.ones(1))})
    with pytest.raises(BadMessage, match="'more', which nobody asked for"):
        codec.read_up(records, Schema.of(UP))


def test_a_message_without_its_numbers_or_words_is_refused():
    x, buffers = torch.ones(2), torch.zeros(0)
    whole = codec.write_down(Down("train", 1, 0.1, x, buffers), Stamp("run", 0))
    whole["numbers"] = MetricRecord({"round": 1})
    with pytest.raises(BadMessage, match="leaves out the number 'lr'"):
        codec.read_down(whole, x, buffers)
    whole["words"] = ConfigRecord({"phase": 3})
    with pytest.raises(BadMessage, match="leaves out the word 'phase'"):
        codec.read_down(whole, x, buffers)


def test_lists_are_not_taken_for_numbers():
    with pytest.raises(BadMessage, match="lists where single numbers belong"):
        codec.numbers(RecordDict({"numbers": MetricRecord({"loss": [1.0, 2.0]})}))
