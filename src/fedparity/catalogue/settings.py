"""What can be set: name, default, allowed values and meaning, read from the code itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import TypeAdapter, create_model

GIVEN = ("shape", "outputs", "data_dir")
"""Parameters that the library fills in."""
SECTION = re.compile(r"^ *Parameters\n *-+\n(.*?)(?:\n\n *\w+\n *---|\Z)", re.DOTALL | re.MULTILINE)
ROLE = re.compile(r":\w+:`~?([^`]+)`")
FORMULA = (
    (re.compile(r"\\leftarrow"), "<-"),
    (re.compile(r"\\,"), " "),
    (re.compile(r"\\frac1(\w)"), r"1/\1 "),
    (re.compile(r"\\frac\{([^{}]*)\}\{([^{}]*)\}"), r"(\1)/(\2)"),
    (re.compile(r"\\(?:mathrm|text)\{(\w*)\}"), r"\1"),
    (re.compile(r"(?<=[A-Za-z0-9])\\(\w+)"), r" \1"),
    (re.compile(r"\\(\w+)"), r"\1"),
)
"""What makes a formula readable as plain text, in this order."""


@dataclass(frozen=True)
class Setting:
    """One setting of a part, a partition, a dataset or a model."""

    name: str
    default: Any
    allowed: str
    meaning: str
    required: bool = False


def settings_of(thing: Callable[..., Any]) -> list[Setting]:
    """Return the settings of a settings class or of a function, in their order.

    Examples
    --------
    >>> from fedparity.parts import Prox
    >>> [(s.name, s.default, s.allowed, s.meaning) for s in settings_of(Prox)]
    [('mu', 0.1, '>= 0', 'Strength of the pull')]
    """
    schema = _schema(thing)
    own, shared = _meanings(thing)
    return [
        Setting(
            name,
            about.get("default"),
            allowed(about),
            own.get(name) or about.get("description") or shared.get(name, ""),
            name in schema.get("required", ()),
        )
        for name, about in schema.get("properties", {}).items()
    ]


def allowed(about: Mapping[str, Any]) -> str:
    """Return the values that a field of a JSON schema allows, in words.

    >>> allowed({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]})
    'a whole number >= 1, or none'
    """
    if "anyOf" in about:
        return ", or ".join(allowed(choice) for choice in about["anyOf"])
    if "enum" in about:
        return " | ".join(str(value) for value in about["enum"])
    kind = about.get("type")
    limits = [
        f"{sign} {about[key]:g}"
        for key, sign in (
            ("exclusiveMinimum", ">"),
            ("minimum", ">="),
            ("exclusiveMaximum", "<"),
            ("maximum", "<="),
        )
        if key in about
    ]
    words = {
        "integer": "a whole number",
        "number": "" if limits else "a number",
        "boolean": "true | false",
        "array": "a list",
        "null": "none",
        "string": "a word",
    }
    return " ".join(filter(None, [words.get(str(kind), ""), ", ".join(limits)]))


def value_text(value: object) -> str:
    """Return a value as the grammar writes it.

    >>> value_text(0.5), value_text(True), value_text(None), value_text(("a", "b"))
    ('0.5', 'true', 'none', '[a, b]')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_text(item) for item in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def summary_line(thing: object) -> str:
    """Return the first sentence of a docstring, without its mark-up."""
    text = inspect.getdoc(thing) or ""
    return _plain(text.split("\n\n")[0])


def _schema(thing: Callable[..., Any]) -> dict[str, Any]:
    schema: dict[str, Any]
    if inspect.isclass(thing):
        schema = TypeAdapter(thing).json_schema()
        return schema
    hints = get_type_hints(inspect.unwrap(thing), include_extras=True)
    fields: dict[str, Any] = {
        p.name: (hints[p.name], ... if p.default is p.empty else p.default)
        for p in inspect.signature(thing).parameters.values()
        if p.name not in GIVEN
    }
    settings: Any = create_model("Settings", **fields)
    schema = settings.model_json_schema()
    return schema


def _meanings(thing: object) -> tuple[dict[str, str], dict[str, str]]:
    """Return the first sentence on each setting in the NumPy docstring, or in a base class's.

    Sentences on one setting come first, those on several at once second.
    """
    own: dict[str, str] = {}
    shared: dict[str, str] = {}
    for each in inspect.getmro(thing) if inspect.isclass(thing) else (thing,):
        section = SECTION.search(inspect.cleandoc(each.__doc__ or ""))
        for names, text in _entries(section.group(1) if section else ""):
            for name in names:
                if not text.startswith("See "):
                    (own if len(names) == 1 else shared).setdefault(name, text)
    return own, shared


def _entries(section: str) -> list[tuple[list[str], str]]:
    entries: list[tuple[list[str], list[str]]] = []
    for line in section.splitlines():
        if line and not line.startswith(" "):
            entries.append(([name.strip() for name in line.split(",")], []))
        elif entries:
            entries[-1][1].append(line.strip())
    return [(names, _first_sentence(_plain(" ".join(lines)))) for names, lines in entries]


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[a-z0-9)\]])\. (?=[A-Z])", text)[0].rstrip(".")


def _plain(text: str) -> str:
    """Return a text without roles and quotes, its formulas with words for symbols."""
    text = ROLE.sub(r"\1", text).replace("``", "")
    for pattern, plain in FORMULA:
        text = pattern.sub(plain, text)
    return " ".join(text.split())
