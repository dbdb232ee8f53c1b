"""The entry point: what goes wrong becomes one line and an exit code.

0 done; 1 something failed while running, or a run diverged; 2 something that was written is wrong;
130 interrupted. An exception that nobody foresaw keeps its traceback.
"""

from __future__ import annotations

import atexit
import gc
import re
import sys
from collections.abc import Sequence
from typing import Any

import typer

from fedparity.cli.commands import app
from fedparity.cli.work import plain, warned
from fedparity.errors import FedparityError, InputError, unknown

UsageError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError"
)
"""Not exported by typer by name, but the base of what it exports."""
SELDOM = 100_000
"""New objects after which Python looks for cycles; its own number is 700 or 2000."""


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    # Searching all that torch loads for cycles takes half a second, and half a second again at the
    # end. Nothing of ours is in many.
    before = gc.get_threshold()
    gc.set_threshold(SELDOM)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    given = list(sys.argv[1:] if args is None else args)
    try:
        code = _code(given or ["--help"])
    finally:
        gc.set_threshold(*before)
    sys.exit(code)


def _code(args: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        with warned():
            code = command.main(args=args, prog_name="fedparity", standalone_mode=False)
    except UsageError as error:
        return _said(_usage(error), 2)
    except InputError as error:
        return _said(str(error), 2)
    except FedparityError as error:
        return _said(str(error), 1)
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        return _said(f"{where}{error.strerror or error}", 1)
    except typer.Abort:
        return _said("interrupted", 130)
    return code if isinstance(code, int) else 0


def _usage(error: Exception) -> str:
    """Return what is wrong with the words of the command line, and the nearest right one."""
    text = str(getattr(error, "format_message", error.__str__)())
    context: Any = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "fedparity")
    command = re.match(r"No such command '([^']*)'", text)
    if command:
        return str(unknown("command", command[1], context.command.list_commands(context)))
    option, near = getattr(error, "option_name", None), getattr(error, "possibilities", None)
    if near:
        return f"no such option '{option}': did you mean '{near[0]}'? See '{path} --help'"
    return f"{text[:1].lower()}{text[1:].rstrip('.')}. See '{path} --help'"


def _said(text: str, code: int) -> int:
    print(plain(f"fedparity: {' '.join(text.split())}"), file=sys.stderr)
    return code
