"""The grammar of names with settings."""

from __future__ import annotations

import keyword
import math
import warnings
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedparity as fp
from fedparity.errors import InputError
from fedparity.parts import PARTS, Eagle
from fedparity.recipes import complete
from fedparity.spec import LONGEST, Spec, construct, parse, parse_one, split_list, written


def _reserved(word: str) -> bool:
    return keyword.iskeyword(word) or word in ("inf", "nan")


WORDS = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(
    lambda word: not _reserved(word)
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.just(math.inf)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("fedavg", [Spec("fedavg")]),
        ("  eagle( lam = 2 ) ", [Spec("eagle", {"lam": 2})]),
        ("a(x=1)+b+c(y=2)", [Spec("a", {"x": 1}), Spec("b"), Spec("c", {"y": 2})]),
        ("a()", [Spec("a")]),
        ("a(x=1/3)", [Spec("a", {"x": 1 / 3})]),
        ("a(x=-0.5)", [Spec("a", {"x": -0.5})]),
        ("a(x=1e-3)", [Spec("a", {"x": 0.001})]),
        ("a(x=inf)", [Spec("a", {"x": math.inf})]),
        ("a(x=True, y=None)", [Spec("a", {"x": True, "y": None})]),
        ("a(x=true)", [Spec("a", {"x": "true"})]),
        ("a(x=l2_unit)", [Spec("a", {"x": "l2_unit"})]),
        ("a(x=table.csv)", [Spec("a", {"x": "table.csv"})]),
        ("a(x='two words')", [Spec("a", {"x": "two words"})]),
        ("a(x=[1, fc2])", [Spec("a", {"x": (1, "fc2")})]),
        ("a(x=(1, 2))", [Spec("a", {"x": (1, 2)})]),
    ],
)
def test_texts_that_are_read(text, terms):
    assert list(parse(text)) == terms


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "+", "a+", "+a", "a*b", "a b", "1", "'a'", "a(", "a)", "a.b", "a.b()"),
        *("a(1)", "a(x)", "a(x=1, x=2)", "a(**x)", "a(*x)", "a(x=1)(y=2)", "a[0]", "a(x:=1)"),
        *("a(x=b())", "a(x=b.c)", "a(x={})", "a(x={1})", "a(x=lambda: 0)", "a(x=1 if 1 else 2)"),
        *("a(x=1+1)", "a(x=2**9)", "a(x=1//2)", "a(x=1/0)", "a(x='a'/2)", "a(x=-'a')", "a(x=1j)"),
        *("a(x=b'1')", "a(x=...)", "a(x=f'{1}')", "a(x=[i for i in y])", "a(x=not 1)", "a\nb"),
        *("__import__('os').system('true')", "a(x=__import__('os'))", "a\x00", "\ud800", "a(x='\\"),
        *("a(x=b.csv())", "a(x=b.c.csv)", "a(x=(1).csv)", "a(x=b/c.csv)"),
    ],
)
def test_texts_that_are_refused(text):
    with pytest.raises(InputError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 1500,
        "a(" * 900,
        "a(x=" + "[" * 900 + "]" * 900 + ")",
        "a(x=" + "(" * 150 + "1" + ",)" * 150 + ")",
        "a(x=" + "-" * 1900 + "1)",
        "a(x=" + "not " * 400 + "1)",
        "a(x=" + "/".join(["1"] * 900) + ")",
        "a(x=" + "1" * 900 + "/3)",
        "a(x=1/" + "1" * 900 + ")",
        "a(x=" + "9" * 1990 + ")",
        "+".join(["a"] * 990),
        "a" * (LONGEST + 1),
        "a(x=1e999/1e999)",
        "a(x=1e308/1e-308)",
        "a(x='\\d')",
    ],
)
def test_bombs_are_read_or_refused_and_nothing_else(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with suppress(InputError):
            parse(text)


def test_deep_nesting_is_refused_from_a_deep_stack_too():
    text = "a(x=" + "/".join(["1"] * 900) + ")"

    def deeper(levels: int) -> None:
        if levels:
            deeper(levels - 1)
        else:
            with suppress(InputError):
                parse(text)

    deeper(600)


@settings(max_examples=300)
@given(st.text(max_size=60) | st.text("ab(x=1,)+-/[]'\" .*", max_size=40))
def test_any_text_is_read_or_refused_and_nothing_else(text):
    try:
        terms = parse(text)
    except InputError:
        return
    assert terms


@given(name=WORDS, known=st.dictionaries(WORDS, VALUES, max_size=3))
def test_a_specification_reads_as_it_is_written(name, known):
    spec = Spec(name, known)
    assert parse_one(str(spec)) == spec


@given(st.lists(st.sampled_from(["fedavg", "qffl(q=5)", "a(x=[1, 2], y=(3,))", "p+q(r=1)"])))
def test_a_list_is_split_at_its_own_commas(items):
    assert split_list(", ".join(items)) == items


def test_one_term_is_asked_for_by_name():
    with pytest.raises(InputError, match="2 terms where one is expected"):
        parse_one("a+b")


@pytest.mark.parametrize("name", PARTS)
def test_every_part_reads_as_it_is_written(name):
    part = PARTS[name]()
    assert construct("algorithm", written(name, part), PARTS) == part
    assert fp.algorithm(complete(fp.algorithm([part]))).parts == (part,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("egle", "unknown algorithm 'egle': did you mean 'eagle'?"),
        ("eagle(lambda_=1)", "unknown setting of eagle 'lambda_'"),
        ("eagle(lam=a)", "eagle: lam should be a valid number"),
        ("eagle(lam=-1)", "eagle: lam should be greater than or equal to 0, got -1"),
        ("eagle(weights=old)", "eagle: weights should be 'stale' or 'fresh', got 'old'"),
        ("eagle(1)", "write settings by name, as in 'eagle(name=value)'"),
        ("fedprox(mu=-1)", "mu should be greater than or equal to 0"),
    ],
)
def test_what_is_wrong_is_said_with_name_range_and_value(text, said):
    with pytest.raises(InputError) as found:
        fp.algorithm(text)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


def test_positions_do_not_matter_and_defaults_are_filled_in():
    assert fp.algorithm("eagle(weights=fresh, lam=1/2)").parts == (Eagle(lam=0.5, weights="fresh"),)
