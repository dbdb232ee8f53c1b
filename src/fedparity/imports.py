"""Code that a text names: which of it may be imported, and what of it may be called.

A text names code by its import path, ``package.module:name(setting=value)``: a model, a part, a
dataset, a partition, label noise, a task, a sampling, a metric or what prepares columns. A text
that came from a file or over a network is data: its path is followed only if :class:`Allowed` says
so, which is made of what the person at the keyboard wrote, or if a distribution that they installed
offers it (an entry point of one of :data:`GROUPS`). Nothing is imported before that is known, and
what is found is only taken if it is a function, or a class of the right kind, of the very package
that was allowed.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fedparity import spec
from fedparity.errors import InputError, unknown

T = TypeVar("T")
GROUPS: Mapping[str, str] = {
    "model": "fedparity.models",
    "algorithm": "fedparity.parts",
    "dataset": "fedparity.datasets",
    "partition": "fedparity.partitions",
    "label noise": "fedparity.noises",
    "task": "fedparity.tasks",
    "sampling": "fedparity.samplings",
    "metric": "fedparity.metrics",
    "preparation": "fedparity.preparations",
}
"""What can be named, and the group of entry points by which a distribution offers it."""
NAMING = ("model", "task", "algorithm", "algorithms", "sampling", "metrics")
"""Settings of an experiment that may name code, beside those of its data."""
UNKNOWN = object()
"""In place of a setting that an object did not keep: no text can make it again."""
PROGRAM = "__main__"
"""The module of what only the program can make that made it."""
Bases = type | tuple[type, ...]


class ImportPath(NamedTuple):
    """Where code is, and the settings written behind it."""

    module: str
    name: str
    settings: Mapping[str, spec.Value] = {}

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"

    @property
    def package(self) -> str:
        """The package at the top."""
        return self.module.partition(".")[0]

    @classmethod
    def of(cls, term: spec.Spec) -> ImportPath | None:
        """Return the import path that a term is, or None if it is a name."""
        module, colon, name = term.name.partition(":")
        return cls(module, name, term.settings) if colon else None

    @classmethod
    def read(cls, text: str) -> ImportPath | None:
        """Return the import path that a text is, or None if it is another text.

        >>> ImportPath.read("mypackage.nets:small(width=4)")
        ImportPath(module='mypackage.nets', name='small', settings={'width': 4})
        >>> ImportPath.read("mlp(hidden=4)")
        """
        module, colon, _ = text.partition(":")
        if not colon or "(" in module:
            return None
        if not _is_module(module.strip()):
            raise InputError(f"cannot read '{text}': an import path is package.module:name")
        return cls.of(spec.parse_one(text))


@dataclass(frozen=True)
class Allowed:
    """The code that a text may name; by default none.

    Parameters
    ----------
    packages
        Packages or modules, such as ``mypackage``, all of whose functions may be named.
    paths
        Single import paths, such as ``mypackage.nets:small``.
    """

    packages: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @classmethod
    def by(
        cls, allow_import: str | Iterable[str] = (), named: str | Iterable[str] | None = None
    ) -> Allowed:
        """Return what a person allows.

        Parameters
        ----------
        allow_import
            The name of a package, or several.
        named
            A text of theirs, or several: the import paths in it are allowed.
        """
        packages = (allow_import,) if isinstance(allow_import, str) else tuple(allow_import)
        for package in packages:
            if not _is_module(package):
                raise InputError(
                    f"cannot allow the import of '{package}': name a package, such as mypackage"
                )
        texts = (named,) if isinstance(named, str) else named or ()
        return cls(packages, tuple(str(path) for text in texts for path in _paths(text)))

    def home(self, path: ImportPath) -> str | None:
        """Return the package that code at an allowed path must be of; None if it is not allowed."""
        for package in self.packages:
            if _within(path.module, package):
                return package
        return path.package if str(path) in self.paths else None


NOTHING = Allowed()


def texts_in(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the texts of an experiment's settings that may name code, in their order."""
    data = settings.get("data")
    inner = data if isinstance(data, Mapping) else {"dataset": data}
    found = [_unless_hub(inner.get("dataset")), inner.get("partition"), inner.get("prepare")]
    noise = inner.get("noise")
    for step in noise if isinstance(noise, list | tuple) else (noise,):
        found.append(step.get("noise") if isinstance(step, Mapping) else step)
    for key in NAMING:
        value = settings.get(key)
        listed = spec.split_list(value) if key == "metrics" and isinstance(value, str) else value
        found += listed if isinstance(listed, list | tuple) else [listed]
    return tuple(text for text in found if isinstance(text, str))


def _unless_hub(named: object) -> object:
    """Return what names a dataset, but for one of Hugging Face's, ``hf:NAME``, which is no code."""
    return None if isinstance(named, str) and named.startswith("hf:") else named


def paths_in(settings: Mapping[str, Any]) -> tuple[ImportPath, ...]:
    """Return the import paths of an experiment's settings, in their order.

    >>> [str(path) for path in paths_in({"data": "mypackage:load(n=5)", "algorithm": "fedavg"})]
    ['mypackage:load']
    """
    found = {str(path): path for text in texts_in(settings) for path in _paths(text)}
    return tuple(found.values())


def make(
    kind: str,
    term: spec.Spec,
    table: Mapping[str, Callable[..., T]],
    allowed: Allowed,
    base: Bases,
    given: tuple[object, ...] = (),
) -> T:
    """Make what a term names: an entry of the table, or code elsewhere that may be named.

    Parameters
    ----------
    kind
        What is made, one of :data:`GROUPS`.
    term
        Its name or import path, and the settings it is made with.
    table
        What has a name.
    allowed
        The code that may be named.
    base
        Classes of which the result must be.
    given
        What comes before the settings.

    Raises
    ------
    InputError
        In one line: a wrong name, an unknown setting, a value out of range, code that may not be
        named or makes something else.
    """
    code = look_up(kind, term, table, allowed, base)
    found = spec.call(term.name, functools.partial(code, *given) if given else code, term.settings)
    if not isinstance(found, base):
        raise InputError(f"'{term.name}' made a {type(found).__name__}: not what a {kind} is")
    return found


def look_up(
    kind: str,
    term: spec.Spec,
    table: Mapping[str, Callable[..., T]],
    allowed: Allowed,
    base: Bases,
) -> Callable[..., T]:
    """Return what makes the thing that a term names; it is not called. See :func:`make`."""
    path = ImportPath.of(term)
    if path is None and term.name in table:
        return table[term.name]
    if path is None:
        path = _offered(kind, term, table)
    if path.module == PROGRAM:
        raise InputError(
            f"the {kind} '{path.name}' is known only to the program that made it: resume there by "
            f"Experiment(...).resume(directory), or define '{path.name}' in a module, with "
            "settings that can be written"
        )
    return find(path, allowed, kind, base)


def find(path: ImportPath, allowed: Allowed, kind: str, base: Bases) -> Callable[..., Any]:
    """Return the code at an import path; it is not called.

    Parameters
    ----------
    path
        Where it is.
    allowed
        What may be named.
    kind
        What is looked for, one of :data:`GROUPS`: entry points of that group are allowed too.
    base
        Classes derived from it are taken, besides functions.
    """
    if path.package in sys.stdlib_module_names:
        raise InputError(
            f"'{path}' names code of Python's own library, where no {kind} is: it is not run, with "
            "or without --allow-import"
        )
    home = allowed.home(path) or (path.package if _installed(path, kind) else None)
    if home is None:
        raise InputError(
            f"the {kind} is code, '{path}', and a file alone does not make it run: if you trust "
            f"it, add --allow-import {path.package} (in Python, allow_import='{path.package}')"
        )
    try:
        module = importlib.import_module(path.module)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"cannot import the {kind} '{path}': {reason}") from error
    if not hasattr(module, path.name):
        own = [n for n, v in vars(module).items() if getattr(v, "__module__", None) == path.module]
        raise unknown(f"name in {path.module}", path.name, own)
    found = getattr(module, path.name)
    if not (inspect.isfunction(found) or (inspect.isclass(found) and issubclass(found, base))):
        raise InputError(
            f"'{path}' is not a {kind} factory: name a function that makes one, or a subclass of "
            f"{' or '.join(one.__name__ for one in _each(base))}"
        )
    if not _within(str(found.__module__), home):
        raise InputError(
            f"'{path}' is not of {home}, it comes from {found.__module__}: name it where it is "
            "defined"
        )
    made: Callable[..., Any] = found
    return made


def offered(kind: str) -> dict[str, list[ImportPath]]:
    """Return what installed distributions offer by short names; nothing is imported."""
    found: dict[str, set[tuple[str, str]]] = {}
    for entry in _offers(kind):
        found.setdefault(entry.name, set()).add((entry.module, entry.attr))
    return {name: [ImportPath(*one) for one in sorted(found[name])] for name in sorted(found)}


def path_of(code: object) -> str | None:
    """Return the import path under which a class or function is found again, or None."""
    module, name = getattr(code, "__module__", None), getattr(code, "__qualname__", "")
    if module in (None, PROGRAM, "builtins") or not str(name).isidentifier():
        return None
    return f"{module}:{name}" if getattr(sys.modules.get(module), name, None) is code else None


def text_of(value: object, settings: Mapping[str, object] | None = None) -> str:
    """Return the text that names an object by the import path of its class, with all settings.

    Where no text could make it again, it is written as of :data:`PROGRAM`.

    Parameters
    ----------
    value
        The object.
    settings
        What its class is called with; by default the fields of a dataclass, or what the constructor
        takes and keeps under the same name.
    """
    if settings is None:
        settings = {name: getattr(value, name, UNKNOWN) for name in _settings_of(value)}
    told: Any = {k: v if _is_literal(v) else type(v).__name__ for k, v in settings.items()}
    path = path_of(type(value)) if all(map(_is_literal, settings.values())) else None
    return str(spec.Spec(path or f"{PROGRAM}:{type(value).__name__}", told))


def complete(code: Callable[..., Any], term: spec.Spec, without: Iterable[str] = ()) -> str:
    """Return the text of a call of code elsewhere, where it is defined and with all settings.

    Parameters
    ----------
    code
        What the term names.
    term
        The name or import path, and the settings given.
    without
        Parameters that are no settings.
    """
    settings = {
        name: term.settings.get(name, p.default)
        for name, p in inspect.signature(code).parameters.items()
        if name not in without and (name in term.settings or _is_literal(p.default))
    }
    return str(spec.Spec(path_of(code) or term.name, settings))


def is_own(kind: type) -> bool:
    """Tell whether a class is fedparity's own."""
    return _within(kind.__module__, "fedparity")


def _settings_of(value: object) -> list[str]:
    """Return the names of what an object was made with."""
    if dataclasses.is_dataclass(value):
        return [f.name for f in dataclasses.fields(value) if f.init]
    made = next(kind for kind in type(value).__mro__ if "__init__" in vars(kind))
    if made is object or getattr(made, "_is_protocol", False):  # it has no constructor of its own
        return []
    return list(inspect.signature(type(value)).parameters)


def _is_literal(value: Any) -> bool:
    """Tell whether the grammar can write a setting."""
    if isinstance(value, list | tuple):
        return all(map(_is_literal, value))
    return value is None or isinstance(value, bool | int | float | str)


def _paths(text: str) -> Iterator[ImportPath]:
    """Yield the import paths of a text; one that cannot be read has none."""
    try:
        terms = spec.parse(text)
    except InputError:
        return
    yield from (path for term in terms if (path := ImportPath.of(term)) is not None)


def _offers(kind: str) -> Iterator[EntryPoint]:
    """Yield what installed distributions offer; the current directory is none."""
    here = Path.cwd()
    places = [place for place in sys.path if place and Path(place).resolve() != here]
    for distribution in distributions(path=places):
        for entry in distribution.entry_points:
            if entry.group == GROUPS[kind]:
                yield entry


def _installed(path: ImportPath, kind: str) -> bool:
    """Tell whether an installed distribution offers the code."""
    return any((entry.module, entry.attr) == (path.module, path.name) for entry in _offers(kind))


def _offered(kind: str, term: spec.Spec, table: Iterable[str]) -> ImportPath:
    """Return the code that an installed distribution offers by a short name."""
    offers = offered(kind)
    found = offers.get(term.name)
    if not found:
        raise unknown(kind, term.name, [*table, *offers])
    if len(found) > 1:
        both = " and ".join(f"'{path}'" for path in found[:2])
        raise InputError(f"the {kind} '{term.name}' is offered as {both}: name one of these")
    return found[0]._replace(settings=term.settings)


def _each(base: Bases) -> tuple[type, ...]:
    return base if isinstance(base, tuple) else (base,)


def _is_module(text: str) -> bool:
    return all(name.isidentifier() for name in text.split("."))


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
