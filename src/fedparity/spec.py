"""The little language of names with settings: ``name(setting=value) + name``.

Algorithms, partitions, datasets and models are all written this way, on the command line, in an
experiment file and in Python. What is not fedparity's own is named by where it is,
``package.module:name(setting=value)``. The text is parsed, never executed.
A name may be written in any case and with hyphens: ``FedAvg`` is ``fedavg``.

>>> parse("eagle(lam=1/2)+prox")
(Spec(name='eagle', settings={'lam': 0.5}), Spec(name='prox', settings={}))
>>> parse("prox+mypackage.parts:Mine(a=1)")[1]
Spec(name='mypackage.parts:Mine', settings={'a': 1})
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import keyword
import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError

from fedparity.arguments import ArgumentError, told
from fedparity.errors import InputError, unknown

LONGEST = 2000
NAME = re.compile(r"\s*[A-Za-z_][\w-]*")
KEYWORD = re.compile(rf"\b({'|'.join(keyword.kwlist)})\s*=(?!=)")
"""A setting that Python reserves, such as ``lambda=``: read, so that the right one is suggested."""
HEAD = re.compile(r"\s*([^\W\d]\w*(?:\.[^\W\d]\w*)*):(?=\s*[^\W\d])")
"""The module of a term that names code, ``package.module:name``."""
T = TypeVar("T")
Value = bool | int | float | str | None | tuple["Value", ...]


@dataclass(frozen=True)
class Spec:
    """A name, or where code is, and the settings written behind it."""

    name: str
    settings: Mapping[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        inside = ", ".join(f"{key}={_text(value)}" for key, value in self.settings.items())
        return f"{self.name}({inside})" if inside else self.name


def parse(text: str) -> tuple[Spec, ...]:
    """Read ``a(x=1)+b`` into its terms, in order."""
    if len(text) > LONGEST:
        raise InputError(f"a specification of {len(text)} characters: at most {LONGEST} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd literals, which are refused below
            return tuple(_term(term, text) for term in _split(text, "+"))
    except InputError:
        raise
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        raise InputError(_malformed(text)) from None


def parse_one(text: str) -> Spec:
    """Read a specification that must be a single term."""
    terms = parse(text)
    if len(terms) != 1:
        raise InputError(f"'{text}' has {len(terms)} terms where one is expected")
    return terms[0]


def split_list(text: str) -> list[str]:
    """Split ``a(x=1,y=2),b`` at the commas that stand outside brackets.

    >>> split_list("fedavg, qffl(q=5), eagle(lam=2)")
    ['fedavg', 'qffl(q=5)', 'eagle(lam=2)']
    """
    return [item.strip() for item in _split(text, ",") if item.strip()]


def construct(kind: str, spec: Spec, table: Mapping[str, Callable[..., T]]) -> T:
    """Call the entry of ``table`` that ``spec`` names with its settings.

    A wrong name, an unknown setting and a value out of range are each one line of
    :class:`InputError`.
    """
    if spec.name not in table:
        raise unknown(kind, spec.name, table)
    return call(spec.name, table[spec.name], spec.settings)


def call(name: str, make: Callable[..., T], settings: Mapping[str, Value]) -> T:
    """Call ``make(**settings)``, turning what may be wrong into one line."""
    check_names(name, make, settings)
    try:
        return make(**settings)
    except ValidationError as error:
        raise told(name, make, error) from None
    except ArgumentError as error:
        raise ArgumentError(name, error.problem) from None
    except TypeError as error:
        raise InputError(f"{name}: {error}") from None


def check_names(name: str, make: Callable[..., Any], settings: Mapping[str, Value]) -> None:
    """Refuse a setting that ``make`` does not have; nothing is called."""
    if not settings:
        return
    try:
        known = inspect.signature(make).parameters
    except ValueError as error:  # it takes less than it is given before the settings
        raise InputError(f"{name}: {error.__cause__ or error}") from None
    for setting in settings:
        if setting not in known:
            raise unknown(f"setting of {name}", setting, known)


def written(name: str, value: Any) -> Spec:
    """Return the complete specification of a settings dataclass: every field, by name."""
    settings = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    fields = {f.name: getattr(value, f.name) for f in settings if f.init}
    return Spec(name, fields)


def _split(text: str, mark: str) -> list[str]:
    """Split a text at a mark, where it stands outside brackets and quotes."""
    items, depth, quote, escaped = [""], 0, "", False
    for letter in text:
        if quote:
            quote = quote if escaped or letter != quote else ""
            escaped = letter == "\\" and not escaped
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "([") - (letter in ")]")
        if letter == mark and depth == 0 and not quote:
            items.append("")
        else:
            items[-1] += letter
    return items


def _term(term: str, text: str) -> Spec:
    head = HEAD.match(term)
    where = f"{head[1]}:" if head else ""
    rest = term[head.end() :] if head else _plain(term)
    node = ast.parse(KEYWORD.sub(r"\1_=", rest.strip()), mode="eval").body
    if isinstance(node, ast.Name):
        return Spec(where + node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = where + node.func.id
        if node.args:
            raise InputError(f"'{text}': write settings by name, as in '{name}(name=value)'")
        names = [keyword.arg for keyword in node.keywords]
        if None not in names and len(set(names)) == len(names):
            return Spec(name, {str(k.arg): _value(k.value, text) for k in node.keywords})
    raise InputError(_malformed(text))


def _plain(term: str) -> str:
    """Return a term with its name as tables have it, whatever its case and hyphens."""
    found = NAME.match(term)
    return found[0].lower().replace("-", "_") + term[found.end() :] if found else term


def _value(node: ast.expr, text: str) -> Value:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            above, below = _value(left, text), _value(right, text)
            if isinstance(above, int | float) and isinstance(below, int | float) and below:
                return above / below
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(_value(item, text) for item in items)
        case ast.Name(id="inf"):
            return math.inf
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return -math.inf
        case ast.Name(id=word):
            return word
        case ast.Attribute(value=ast.Name(id=stem), attr="csv"):  # a table's name, no attribute
            return f"{stem}.csv"
    raise InputError(f"'{text}': a value is a number, a word, true/false or a list of these")


def _text(value: Value) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return repr(float(value) if isinstance(value, float) else value)  # numpy's print otherwise


def _malformed(text: str) -> str:
    return f"cannot read '{text}': expected name(setting=value), joined by '+'"
