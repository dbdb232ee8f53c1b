"""The flags of ``run``, ``compare`` and ``profile``: one table, and the settings it makes.

A flag that is not given is not in the settings, so that flags override a file and defaults stay in
one place, the library. Values are checked there too, whether they come from a flag or a file.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from fedparity.errors import InputError

if TYPE_CHECKING:
    from fedparity.imports import Allowed

Command = TypeVar("Command", bound=Callable[..., None])
Settings = dict[str, Any]
AllowImport = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PACKAGE",
        help="A package whose code the file may name; may be given again.",
        show_default=False,
    ),
]


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _unseen(text: str) -> int | float | list[str] | None:
    if text.lower() == "none":
        return None
    try:
        return _number(text)
    except ValueError:
        return _listed(text)


def _or_none(word: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: None if text.lower() in (word, "none") else read(text)


def _three(text: str) -> list[float]:
    first, second, third = text.split(",")
    return [float(first), float(second), float(third)]


def _noise(text: str) -> list[str]:
    return [] if text.lower() == "none" else [text]


def _listed(text: str) -> list[str]:
    from fedparity.spec import split_list

    return split_list(text)


class Flag(NamedTuple):
    """A flag and its place in the settings."""

    name: str
    place: tuple[str, ...]
    kind: type
    help: str
    read: Callable[[str], Any] | None = None
    """Makes a value of the text, where that is not a plain number or word."""
    shape: str | None = None
    """What help shows in place of the kind."""


DATA = (
    Flag(
        "data",
        ("data", "dataset"),
        str,
        "Dataset (fedparity list datasets), own table (patients.csv, 'sites/*.csv') or hf:NAME.",
    ),
    Flag("partition", ("data", "partition"), str, "How it is dealt; by default its own clients."),
    Flag("clients", ("data", "clients"), int, "Number of clients."),
    Flag("data-seed", ("data", "seed"), int, "Seed of partition and noise; by default --seed."),
    Flag(
        "fractions",
        ("data", "fractions"),
        str,
        "Train, validation and test of each client.",
        _three,
        "0.8,0.1,0.1",
    ),
    Flag("official", ("data", "official"), bool, "Keep the publisher's test examples for test."),
    Flag("noise", ("data", "noise"), str, "Wrong labels, such as 'symmetric(rate=0.3)'.", _noise),
)
TABLE = (
    Flag("client", ("data", "client"), str, "Column that names the client; not for a file each."),
    Flag("target", ("data", "target"), str, "Column to be predicted."),
    Flag("part", ("data", "part"), str, "Column of train, validation or test."),
    Flag("groups", ("data", "groups"), str, "Columns of groups inside clients.", _listed, "LIST"),
    Flag("features", ("data", "features"), str, "Input columns; default all.", _listed, "LIST"),
    Flag("without", ("data", "without"), str, "Columns left out.", _listed, "LIST"),
    Flag("categories", ("data", "categories"), str, "Numbers that are codes.", _listed, "LIST"),
    Flag("about", ("data", "about"), str, "Columns of one number a client.", _listed, "LIST"),
    Flag(
        "prepare",
        ("data", "prepare"),
        str,
        "Whose numbers fill gaps and scale: federated, client, none; or a file, or code.",
    ),
    Flag("kind", ("data", "kind"), str, "What the target is: classes or values."),
    Flag("outputs", ("data", "outputs"), int, "Number of classes, where not every class occurs."),
)
LEARNING = (
    Flag("model", ("model",), str, "Model, or the import path of your own: package.module:name."),
    Flag("trainable", ("trainable",), str, "Parameters that are trained, such as 'classifier.*'."),
    Flag("pretrained", ("pretrained",), str, "A safetensors file that the model starts with."),
    Flag(
        "task",
        ("task",),
        str,
        "Task, such as binary or 'classification(weights=[1,3])'; by default by data.",
    ),
)
ALGORITHM = Flag("algorithm", ("algorithm",), str, "Algorithm, such as 'eagle(lam=1)+prox'.")
ROUNDS = Flag("rounds", ("rounds",), int, "Rounds of communication.")
TRAINING = (
    ROUNDS,
    Flag("lr", ("solver", "lr"), float, "Learning rate of the clients."),
    Flag("steps", ("solver", "steps"), int, "Local steps a round; or give --epochs."),
    Flag("epochs", ("solver", "epochs"), int, "Passes over the client's data a round."),
    Flag(
        "batch",
        ("solver", "batch"),
        str,
        "Examples a step, or 'full'.",
        _or_none("full", int),
        "int|full",
    ),
    Flag(
        "lots",
        ("solver", "lots"),
        str,
        "How a step's examples are drawn: shuffled, poisson (by chance each) or fixed.",
    ),
    Flag("momentum", ("solver", "momentum"), float, "Local momentum, reset every round."),
    Flag("weight-decay", ("solver", "weight_decay"), float, "Pull of the parameters to zero."),
    Flag(
        "clip",
        ("solver", "clip"),
        str,
        "Largest norm of a step's gradient.",
        _or_none("none", float),
        "float|none",
    ),
    Flag("decay", ("solver", "decay"), float, "Factor on the learning rate a round."),
    Flag("optimizer", ("solver", "optimizer"), str, "sgd or adam."),
)
SERVER = (
    Flag(
        "cohort",
        ("cohort",),
        str,
        "Clients asked a round: a number, a share in (0, 1), or 'all'.",
        _or_none("all", _number),
        "int|share|all",
    ),
    Flag(
        "sampling",
        ("sampling",),
        str,
        "How they are drawn: uniform, size, 'power_of_choice(candidates=20)' or "
        "'available(file=trace.csv)'.",
    ),
    Flag(
        "unseen",
        ("unseen",),
        str,
        "Clients that never train, judged at the end: a number, a share below 1, or names.",
        _unseen,
        "int|share|LIST",
    ),
    Flag("weighting", ("weighting",), str, "Weights before any part speaks: size or uniform."),
    Flag("drop", ("drop",), float, "Probability that a client asked does not answer."),
    Flag("min-replies", ("min_replies",), int, "Fewer replies leave the model as it is."),
    Flag("server-lr", ("server_lr",), float, "Factor on the direction the server takes."),
    Flag("buffers", ("buffers",), str, "BatchNorm statistics: average, local or refuse."),
)
RUN = (
    Flag("seed", ("seed",), int, "The one seed of the run."),
    Flag("engine", ("engine",), str, "auto, loop or vmap."),
    Flag("chunk", ("chunk",), int, "Clients in one stack of the vmap engine."),
    Flag("device", ("device",), str, "Where clients compute: auto, cpu, cuda or mps."),
    Flag("dtype", ("dtype",), str, "float32 or float64."),
    Flag("evaluate-every", ("evaluate_every",), int, "Rounds between evaluations."),
    Flag("checkpoint-every", ("checkpoint_every",), int, "Rounds between checkpoints."),
    Flag("keep", ("keep",), str, "Model kept: last, or best by this validation summary."),
    Flag("stop-metric", ("stop", "metric"), str, "Stop early by this validation summary."),
    Flag("patience", ("stop", "patience"), int, "Evaluations without improvement before that."),
    Flag("predictions", ("predictions",), bool, "Keep what models say of every example."),
    Flag("personal", ("personal",), bool, "Keep the clients' own models."),
    Flag(
        "metrics",
        ("metrics",),
        str,
        "What else is evaluated, such as auc,f1 (see: fedparity list metrics).",
        _listed,
        "LIST",
    ),
    Flag(
        "lstar",
        ("lstar",),
        str,
        "Best loss alone: best_validation, train_plateau, none, or a CSV or parquet file.",
        shape="RULE|FILE",
    ),
)
PANELS: Mapping[str, tuple[Flag, ...]] = {
    "Data": DATA,
    "Own table": TABLE,
    "What is learned": LEARNING,
    "Algorithm": (ALGORITHM,),
    "Local training": TRAINING,
    "Server": SERVER,
    "Run": RUN,
}
CHECKED = tuple(flag for flag in (*DATA, *TABLE) if flag.name != "data")
"""The flags of ``check``, which is given the data by itself."""
FLAGS = tuple(flag for flags in PANELS.values() for flag in flags)


def takes_settings(without: tuple[Flag, ...] = ()) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the flags, handed over as ``**given``."""

    def decorate(command: Command) -> Command:
        named = list(inspect.signature(command, eval_str=True).parameters.values())[:-1]
        flags = [
            _parameter(flag, panel)
            for panel, some in PANELS.items()
            for flag in some
            if flag not in without
        ]
        parameters = [*named, *flags]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _parameter(flag: Flag, panel: str) -> inspect.Parameter:
    option = typer.Option(
        f"--{flag.name}" + f"/--no-{flag.name}" * (flag.kind is bool),
        help=flag.help,
        rich_help_panel=panel,
        metavar=flag.shape,
        show_default=False,
    )
    return inspect.Parameter(
        flag.name.replace("-", "_"),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[flag.kind | None, option],
    )


def settings_from(
    file: Path | None, given: Mapping[str, Any], data_dir: Path | None = None
) -> Settings:
    """Return the settings of a file or run directory, overridden by the flags given."""
    settings = _read(file) if file is not None else {}
    if file is not None and "data" in settings and given.get("data") is None:
        from fedparity.records.settings import with_tables

        settings = with_tables(settings, file if file.is_dir() else file.parent, data_dir)
    for flag in FLAGS:
        value = given.get(flag.name.replace("-", "_"))
        if value is not None:
            _put(settings, flag, _value(flag, value))
    if given.get("data") is not None:
        _named(settings)
    for one, other in (("steps", "epochs"), ("epochs", "steps")):
        if given.get(one) is not None and given.get(other) is None:
            settings["solver"].pop(other, None)
    return settings


def allowed_from(allow_import: Sequence[str] | None, named: Settings | None = None) -> Allowed:
    """Return the code that flags allow: packages, and what the settings of flags name.

    What is not installed is looked for in the current directory, which is else not on the path.
    """
    from fedparity.imports import Allowed, texts_in

    allowed = Allowed.by(allow_import or (), texts_in(named or {}))
    if not all(_found(re.split("[.:]", path)[0]) for path in (*allowed.packages, *allowed.paths)):
        sys.path.append(os.getcwd())
    return allowed


def _found(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # of a module that is there, but was not found by a file
        return True


def _read(file: Path) -> Settings:
    from fedparity.records.rundir import RunDir, read_yaml

    return RunDir(file).settings() if file.is_dir() else read_yaml(file)


def _named(settings: Settings) -> None:
    """Make the data that a flag names a table or a dataset, without what was said of another."""
    from fedparity.data.hub import PREFIX, rewritten
    from fedparity.data.table import is_table

    data = settings["data"]
    if str(data["dataset"]).startswith(PREFIX):
        settings["data"] = rewritten(data)
        return
    table = is_table(data["dataset"])
    if table:
        data["table"] = data.pop("dataset")
    beside = {flag.place[1] for flag in (DATA if table else TABLE)} - {"seed", "fractions", "noise"}
    for name in {*beside, "sha256"} | (set() if table else {"table"}):
        if name in data and not (name in ("dataset",) and not table):
            del data[name]


def _put(settings: Settings, flag: Flag, value: Any) -> None:
    *above, last = flag.place
    for key in above:
        inner = settings.get(key)
        if key == "data" and isinstance(inner, str):
            inner = {"dataset": inner}
        if inner is not None and not isinstance(inner, Mapping):
            raise InputError(f"'{key}' must be a table of settings, got {inner!r}")
        settings[key] = dict(inner or {})
        settings = settings[key]
    settings[last] = value


def _value(flag: Flag, value: Any) -> Any:
    if flag.read is None:
        return value
    try:
        return flag.read(value)
    except ValueError:
        raise InputError(
            f"--{flag.name} expects {flag.shape or flag.kind.__name__}, got '{value}'"
        ) from None
