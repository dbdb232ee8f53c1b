"""The errors a user can meet.

Every message is one line that names the cause and the remedy. The command line turns
:class:`InputError` into exit code 2 and any other :class:`FedparityError` into exit code 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedparityError(Exception):
    """Something failed while running."""


class InputError(FedparityError, ValueError):
    """Something the user wrote is wrong: a name, a value, a file."""


class DamagedError(InputError):
    """A file is not as it was written, or is missing."""


class AbsentError(InputError, AttributeError):
    """A module has no such name."""


class ClientError(FedparityError):
    """A client failed; the message names client, round, phase and part."""


class DivergedError(FedparityError):
    """No update of a round is finite: the run cannot go on."""


def unknown(kind: str, name: object, known: Iterable[str]) -> InputError:
    """Return the error for a name that is not in a table, with the nearest valid one.

    >>> print(unknown("algorithm", "egale", ["eagle", "fedavg"]))
    unknown algorithm 'egale': did you mean 'eagle'? Known: eagle, fedavg
    """
    names = sorted(known)
    return InputError(f"unknown {kind} '{name}': {_hint(name, names)}Known: {', '.join(names)}")


def absent(module: str, name: str, known: Iterable[str]) -> AbsentError:
    """Return the error for a name that a module does not have, with the nearest it has.

    >>> print(absent("fedparity.models", "linar", ["linear", "mlp"]))
    module 'fedparity.models' has no attribute 'linar': did you mean 'linear'? Known: linear, mlp
    """
    names = sorted(known)
    hint = _hint(name, names)
    return AbsentError(
        f"module '{module}' has no attribute '{name}': {hint}Known: {', '.join(names)}"
    )


def _hint(name: object, names: list[str]) -> str:
    near = difflib.get_close_matches(str(name).lower(), names, n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'? " if near else ""
