"""Wrong arguments, told in one line: of settings that are made, and of functions that are called.

Pydantic says what is wrong with a value, a name or a number of arguments; here it becomes an
:class:`~fedparity.errors.InputError` that reads alike wherever a user writes the argument.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError, validate_call

from fedparity.errors import InputError, unknown


class ArgumentError(InputError):
    """An argument of what is called ``name`` is wrong: a ``problem`` without that name."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.problem = problem


F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
PLAIN = (int, float, bool, str, NoneType, Path)
"""Types whose values are checked; others are left to what takes them."""


class _Signature:
    """What settings take: their ``__init__``, where the class tells nothing else."""

    def __get__(self, cls: type | None, meta: type) -> inspect.Signature:
        if cls is None:
            raise AttributeError("__signature__")
        found = inspect.signature(cls.__init__)  # type: ignore[misc]
        return found.replace(parameters=list(found.parameters.values())[1:])


class Settings(type):
    """The type of settings: a wrong one is refused in one line when they are made.

    Examples
    --------
    >>> from fedparity import Solver
    >>> Solver(lrr=0.1)
    Traceback (most recent call last):
    fedparity.errors.InputError: unknown setting of Solver 'lrr': did you mean 'lr'? Known: ...
    """

    __signature__ = _Signature()

    def __call__(cls: type[T], *given: Any, **named: Any) -> T:
        """Make the settings."""
        try:
            return super().__call__(*given, **named)  # type: ignore[misc, no-any-return]
        except ValidationError as error:
            raise told(cls.__name__, cls, error) from None


def made(cls: type[T]) -> type[T]:
    """Let a class refuse wrong names of arguments in one line when it is made.

    Its methods are left alone: of what a round calls at every step, no call is worth a check.
    """
    cls.__init__ = _checked(cls.__init__, cls.__name__, {})  # type: ignore[method-assign]
    return cls


def named(cls: type[T]) -> type[T]:
    """Let a class refuse wrong names of arguments in one line; it checks values itself.

    It does so when it is made and in each of its public methods.
    """
    made(cls)
    for name, found in list(vars(cls).items()):
        bound = isinstance(found, classmethod)
        method = found.__func__ if isinstance(found, classmethod) else found
        if name.startswith("_") or not inspect.isfunction(method) or hasattr(method, "__wrapped__"):
            continue
        wrapped = _checked(method, name, {})
        setattr(cls, name, classmethod(wrapped) if bound else wrapped)
    return cls


def checked(function: F) -> F:
    """Let a function refuse wrong names, and wrong values of plain types, in one line."""
    return _checked(function, function.__name__, _hints(function))


def _checked(function: F, name: str, hints: Mapping[str, Any]) -> F:

    @functools.wraps(function)
    def asked(*given: Any, **named: Any) -> Any:
        try:
            return validated(*given, **named)
        except ValidationError as error:
            if error.title != function.__qualname__:
                raise
            own = function.__name__ == "__init__"  # a class inherits it under its own name
            raise told(type(given[0]).__name__ if own else name, function, error) from None

    @functools.wraps(function)
    def plain(*given: Any, **named: Any) -> Any:
        return function(*given, **named)

    parameters = inspect.signature(function).parameters
    plain.__annotations__ = {name: hints.get(name, Any) for name in parameters}
    plain.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(annotation=plain.__annotations__[p.name]) for p in parameters.values()]
    )
    validated = validate_call(plain)
    return asked  # type: ignore[return-value]


def told(name: str, of: Callable[..., Any], error: ValidationError) -> InputError:
    """Return the line for what pydantic has against the arguments of ``of``, called ``name``."""
    places = list(inspect.signature(of).parameters)
    names = [n for n in places if n not in ("self", "cls")]
    problems = sorted(error.errors(), key=lambda problem: not problem["type"].startswith("unexp"))
    problem = problems[0]
    place = problem["loc"][0] if problem["loc"] else ""
    if problem["type"] == "unexpected_keyword_argument" and not names:
        return ArgumentError(name, f"takes no settings, got '{place}'")
    if problem["type"] == "unexpected_keyword_argument":
        return unknown(f"setting of {name}", str(place), names)
    if problem["type"] == "unexpected_positional_argument":
        return ArgumentError(name, _too_many(of, names))
    several = sum(each["loc"][:1] == problem["loc"][:1] for each in problems) > 1
    return ArgumentError(name, _line(problem, places, several))


def _too_many(of: Callable[..., Any], names: Sequence[str]) -> str:
    """Tell of more values than are taken without a name."""
    parameters = inspect.signature(of).parameters
    by_name = [name for name in names if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY]
    if not names:
        return "takes no settings"
    if by_name:
        return f"takes by name, as in {by_name[0]}=...: {', '.join(by_name)}"
    return f"takes {len(names)} settings, no more: {', '.join(names)}"


def _line(problem: Mapping[str, Any], names: Sequence[str], several: bool) -> str:
    """Tell of one problem; of a value of ``several`` possible types, without naming the type."""
    places = [str(place) for place in problem["loc"]]
    if places and isinstance(problem["loc"][0], int) and problem["loc"][0] < len(names):
        places[0] = names[problem["loc"][0]]
    where = ".".join(places[:1] if several else places)
    if problem["type"].startswith("missing"):
        return f"{where} must be given"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    given = problem["input"]
    got = f", got {given!r}" if isinstance(given, bool | int | float | str) else ""
    return f"{where} {message}{got}".lstrip()


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of plain types."""
    found: dict[str, Any] = {}
    for name, text in function.__annotations__.items():
        one = SimpleNamespace(__annotations__={name: text})
        with suppress(NameError):  # a name that is there for type checkers alone, or not yet
            found |= get_type_hints(one, function.__globals__, include_extras=True)
    return {name: hint for name, hint in found.items() if _is_plain(hint)}


def _is_plain(hint: Any) -> bool:
    kind = get_origin(hint)
    if kind is Annotated:
        return _is_plain(get_args(hint)[0])
    if kind in (Union, UnionType, tuple):
        return all(map(_is_plain, get_args(hint)))
    return kind is Literal or hint is ... or hint in PLAIN
