"""Code that a text names: which of it may be imported, and what of it may be called.

A text names code by its import path, ``package.module:name(setting=value)``. A text that came from
a file or over a network is data: its path is followed only if :class:`Allowed` says so, which is
made of what the person at the keyboard wrote, or if a distribution that they installed offers it
(an entry point of the group ``fedparity.models`` for models). Nothing is imported before that is
known, and what is found is only taken if it is a function, or a class of the right kind, of the
very package that was allowed.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

from fedparity import spec
from fedparity.errors import InputError, unknown


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
    def read(cls, text: str) -> ImportPath | None:
        """Return the import path that a text is, or None if it is another text.

        >>> ImportPath.read("mypackage.nets:small(width=4)")
        ImportPath(module='mypackage.nets', name='small', settings={'width': 4})
        >>> ImportPath.read("mlp(hidden=4)")
        """
        module, colon, rest = text.partition(":")
        if not colon or "(" in module:
            return None
        module = module.strip()
        if not _is_module(module):
            raise InputError(f"cannot read '{text}': an import path is package.module:name")
        term = spec.parse_one(rest)
        return cls(module, term.name, term.settings)


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
    def by(cls, allow_import: str | Iterable[str] = (), named: str | None = None) -> Allowed:
        """Return what a person allows.

        Parameters
        ----------
        allow_import
            The name of a package, or several.
        named
            A text of theirs: if it is an import path, that path is allowed.
        """
        packages = (allow_import,) if isinstance(allow_import, str) else tuple(allow_import)
        for package in packages:
            if not _is_module(package):
                raise InputError(
                    f"cannot allow the import of '{package}': name a package, such as mypackage"
                )
        path = None if named is None else ImportPath.read(named)
        return cls(packages, () if path is None else (str(path),))

    def home(self, path: ImportPath) -> str | None:
        """Return the package that code at an allowed path must be of; None if it is not allowed."""
        for package in self.packages:
            if _within(path.module, package):
                return package
        return path.package if str(path) in self.paths else None


NOTHING = Allowed()


def find(path: ImportPath, allowed: Allowed, kind: str, base: type) -> Callable[..., Any]:
    """Return the code at an import path; it is not called.

    Parameters
    ----------
    path
        Where it is.
    allowed
        What may be named.
    kind
        What is looked for, such as ``model``: entry points of ``fedparity.models`` are allowed too.
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
            f"{base.__name__}"
        )
    if not _within(str(found.__module__), home):
        raise InputError(
            f"'{path}' is not of {home}, it comes from {found.__module__}: name it where it is "
            "defined"
        )
    made: Callable[..., Any] = found
    return made


def _installed(path: ImportPath, kind: str) -> bool:
    """Tell whether an installed distribution offers the code; the current directory is none."""
    here = Path.cwd()
    places = [place for place in sys.path if place and Path(place).resolve() != here]
    return any(
        (entry.module, entry.attr) == (path.module, path.name)
        for distribution in distributions(path=places)
        for entry in distribution.entry_points
        if entry.group == f"fedparity.{kind}s"
    )


def _is_module(text: str) -> bool:
    return all(name.isidentifier() for name in text.split("."))


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
