"""The lists of what there is, made from the tables that the grammar reads.

``fedparity list KIND`` prints them, and the README's table of methods is one of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedparity.catalogue.settings import Setting, settings_of, summary_line, value_text
from fedparity.catalogue.traffic import traffic
from fedparity.data import DATASETS, PARTITIONS, data_dir
from fedparity.data.about import ABOUT, About
from fedparity.errors import unknown
from fedparity.imports import GROUPS, offered
from fedparity.learning import models
from fedparity.method import HOOKS, Part
from fedparity.method.algorithm import Algorithm
from fedparity.metrics import METRICS, SUMMARIES
from fedparity.parts import PARTS, Uniform
from fedparity.recipes import RECIPES
from fedparity.records.divergence import RULE


@dataclass(frozen=True)
class Listing:
    """A table of words, to be printed or written as Markdown."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """Return the table in Markdown, without the note."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        cells = [[cell.replace("|", "\\|").replace("\n", "<br>") for cell in row] for row in lines]
        return "\n".join(f"| {' | '.join(row)} |" for row in cells)

    def show(self, console: Console) -> None:
        """Print the table and its note."""
        view = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for place, column in enumerate(self.columns):
            view.add_column(column, overflow="fold", no_wrap=place == 0)
        for row in self.rows:
            view.add_row(*(escape(cell) for cell in row))
        console.print(view)
        if self.note:
            console.print(escape(self.note), style="dim")


def algorithms() -> Listing:
    """List what can be named as an algorithm by itself, with what it costs and claims."""
    rows = [_algorithm_row(name, parts, paper) for name, parts, paper in sorted(_algorithms())]
    return Listing(
        ("name", "what it equalises", "exchanges", "extra up", "extra down", "paper"),
        tuple(rows),
        "Exchanges a round, and bytes a client and round on top of FedAvg's 4d each way, d being "
        "the parameters; with default settings. Any of these, and any part, combine by '+'.",
    )


def named_algorithms(by_group: bool = True) -> list[str]:
    """Return the names of what can be named as an algorithm by itself, each once.

    Without ``by_group``, those that go by groups inside clients are left out.
    """
    return sorted(
        name
        for name, parts, _ in _algorithms()
        if by_group or not any(part.group_kinds for part in parts)
    )


def _algorithms() -> Iterable[tuple[str, tuple[Part, ...], str]]:
    wrapped: set[type[Part]] = {Uniform}  # parts that a recipe names with their own defaults
    for name, recipe in RECIPES.items():
        parts = recipe.parts()
        own = [part for part in parts if not isinstance(part, Uniform)]
        if len(own) == 1 and own[0] == type(own[0])():
            wrapped.add(type(own[0]))
        yield name, parts, recipe.paper
    for name, part in PARTS.items():
        if part not in wrapped:
            yield name, (part(),), part.paper


def _algorithm_row(name: str, parts: tuple[Part, ...], paper: str) -> tuple[str, ...]:
    sent = traffic(Algorithm(parts, name))
    equal = ", ".join(part.equalises for part in parts if part.equalises != "nothing")
    if any(part.reconstructed for part in parts):
        paper += ", reconstructed"
    exchanges = str(len(sent.exchanges) if sent.federated else 0)
    up, down = sent.extra_up.bytes(), sent.extra_down.bytes()
    if not sent.shares_model:
        up, down = (f"-4d + {more}" if more != "0" else "-4d" for more in (up, down))
    return name, equal or "-", exchanges, up, down, paper


def parts() -> Listing:
    """List the parts: what each does in a round, and its settings."""
    return Listing(
        ("name", "what it does", "hooks", "settings"),
        tuple(
            (name, summary_line(part), ", ".join(_hooks(part())), _short(settings_of(part)))
            for name, part in PARTS.items()
        ),
        "Settings with their defaults; 'fedparity explain NAME' tells meaning and range.",
    )


def _hooks(part: Part) -> list[str]:
    return [hook for hook in HOOKS if hook in part.hooks]


def datasets() -> Listing:
    """List the datasets, and which of them are read from the data folder."""
    return Listing(
        ("name", "what it is", "size", "licence", "cite", "from"),
        tuple(
            (name, summary_line(make), *_about(name), _source(make))
            for name, make in DATASETS.items()
        ),
        "Settings of each: fedparity explain NAME. "
        f"The data folder is --data-dir, else $FEDPARITY_DATA, else the cache; now {data_dir()}.",
    )


def _about(name: str) -> About:
    return ABOUT.get(name, About("-", "-", "-"))


def _source(make: Callable[..., object]) -> str:
    return "data folder" if "data_dir" in inspect.signature(make).parameters else "built in"


def partitions() -> Listing:
    """List the ways to deal a dataset to clients."""
    return Listing(
        ("name", "how examples are dealt", "settings"),
        tuple(
            (name, summary_line(scheme), listed(settings_of(scheme)))
            for name, scheme in PARTITIONS.items()
        ),
    )


def known_models() -> Listing:
    """List the models that have a name."""
    return Listing(
        ("name", "what it is", "settings"),
        tuple(
            (name, summary_line(make), listed(settings_of(make)))
            for name, make in models.MODELS.items()
        ),
        "A model of your own is named by its import path: --model mypackage.nets:small",
    )


def metrics() -> Listing:
    """List the metrics of a client, and the summaries of a federation."""
    of_clients = (
        (m.name, f"{m.definition} (of a client's {m.of})", m.better) for m in METRICS.values()
    )
    return Listing(
        ("name", "definition", "better"),
        (
            *of_clients,
            *((name, s.definition, s.better or "-") for name, s in SUMMARIES.items()),
        ),
        f"{', '.join(METRICS)} are evaluated with --metrics, and each then has summaries such as "
        "mean_auc, worst_auc, worst10_auc, best10_auc, auc_std. Summaries "
        "that say which direction is better can be given to --keep and --stop-metric. "
        f"A run is marked as {RULE}.",
    )


def _short(settings: list[Setting]) -> str:
    return ", ".join(f"{s.name}={value_text(s.default)}" for s in settings) or "-"


def listed(settings: list[Setting]) -> str:
    """Return settings as lines, with what is allowed of each."""
    return "\n".join(f"{_written(s)}: {s.allowed}" for s in settings) or "-"


def _written(setting: Setting) -> str:
    return setting.name if setting.required else f"{setting.name}={value_text(setting.default)}"


KINDS: dict[str, Callable[[], Listing]] = {
    "algorithms": algorithms,
    "parts": parts,
    "datasets": datasets,
    "partitions": partitions,
    "models": known_models,
    "metrics": metrics,
}


def listing(kind: str) -> Listing:
    """Return the list of a kind, such as ``algorithms``."""
    asked = kind.strip().lower()
    if asked not in KINDS:
        raise unknown("list", kind, KINDS)
    found = KINDS[asked]()
    return replace(found, note="\n".join(filter(None, [found.note, *_installed(asked)])))


def lists() -> Listing:
    """List the lists."""
    return Listing(
        ("list", "what is in it"),
        tuple((name, summary_line(make)) for name, make in KINDS.items()),
        "Each is shown by 'fedparity list NAME', and each name in it by 'fedparity explain NAME'.",
    )


def _installed(kind: str) -> list[str]:
    """Return a line on what installed distributions offer beside the list."""
    group = "fedparity.parts" if kind == "algorithms" else f"fedparity.{kind}"
    offers = [offered(word) for word, known in GROUPS.items() if known == group]
    told = [f"{name} ({', '.join(map(str, at))})" for each in offers for name, at in each.items()]
    return [f"Installed beside these: {', '.join(told)}."] if told else []
