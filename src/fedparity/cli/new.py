"""``fedparity new method``: the first file of a method of one's own, with its test."""

from __future__ import annotations

import importlib.util
import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from fedparity.errors import InputError

app = typer.Typer(help="Begin something of your own: a file that works, to be changed.")

PART = '''"""{kind}: clients of higher loss weigh more.

The part works as it is: change the idea, the words and the test together.
"""

from __future__ import annotations

import torch
from fedparity.method import STRICT, Client, Context, Finish, Loss, Part, Tensors
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor


@dataclass(frozen=True, config=STRICT)
class {kind}(Part):
    r"""Weigh clients by a power of their training loss.

    .. math:: w_k \\leftarrow \\frac{{w_k F_k(x_t)^q}}{{\\sum_j w_j F_j(x_t)^q}}

    Parameters
    ----------
    q
        Exponent on the loss; 0 leaves the weights as they are.

    Notes
    -----
    Sent up: one float more than FedAvg, the training loss, which the server learns.

    Examples
    --------
    >>> equal, told = torch.tensor([0.5, 0.5]), {{"loss": torch.tensor([3.0, 1.0])}}
    >>> {kind}(q=1.0).weigh(equal, told, {{}}, None)[0]
    tensor([0.7500, 0.2500])
    """

    q: float = Field(default=1.0, ge=0, description="exponent on the loss")

    name = "{name}"
    equalises = "loss"
    learns = "its update and its training loss"
    reports = {{"loss": Loss()}}

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({{"loss"}})

    def neutral(self) -> Part:
        """Return the setting in which this is FedAvg: the checks compare the two."""
        return {kind}(q=0.0)

    def finish(self, delta: Tensor, c: Client) -> Finish:
        """On a client, after its training: the update as it is, and the loss before it."""
        return Finish(delta, {{"loss": c.loss}})

    def weigh(
        self, w: Tensor, up: Tensors, s: Tensors, ctx: Context
    ) -> tuple[Tensor, Tensors]:
        """On the server: the weights of those who answered, and what it keeps (nothing)."""
        raised = w * torch.clamp(up["loss"], min=1e-10) ** self.q
        return raised / raised.sum(), s
'''
TEST = '''"""{kind} keeps the contract of parts, and does what it says."""

import torch
from {name} import {kind}

from fedparity.testing import check_part


def test_it_keeps_the_contract():
    check_part({kind}())


def test_clients_of_higher_loss_weigh_more():
    equal, told = torch.tensor([0.5, 0.5]), {{"loss": torch.tensor([3.0, 1.0])}}
    weights, _ = {kind}(q=2.0).weigh(equal, told, {{}}, None)
    torch.testing.assert_close(weights, torch.tensor([0.9, 0.1]))  # 9 to 1
'''


@app.callback()
def _new() -> None: ...


@app.command("method")
def method(
    name: Annotated[str, typer.Argument(help="What it is called, such as my_method.")],
    out: Annotated[Path, typer.Option(help="The directory for its two files.")] = Path(),
) -> None:
    """Write a part of your own, NAME.py, and its test, test_NAME.py."""
    check_name(name)
    kind = name.title().replace("_", "")
    files = {out / f"{name}.py": PART, out / f"test_{name}.py": TEST}
    for file in files:
        if file.exists():
            raise InputError(f"{file} exists already: choose another name, or a directory by --out")
    out.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        with file.open("x", encoding="utf-8") as handle:
            handle.write(text.format(name=name, kind=kind))
        typer.echo(str(file))
    where = "" if out == Path() else f"cd {out} && "
    typer.echo(
        f"\nTest it: {where}pytest test_{name}.py\n"
        f"Run it:  {where}fedparity run --data digits --partition shards --clients 5 "
        f"--model linear --algorithm '{name}:{kind}(q=1.0)'"
    )


def check_name(name: str) -> None:
    """Refuse a name that no module can have, or that something else has."""
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise InputError(f"'{name}' cannot name a method: write a word such as my_method")
    from fedparity.recipes import KNOWN

    if name in KNOWN:
        raise InputError(f"fedparity has a method '{name}' already: choose another name")
    if importlib.util.find_spec(name) is not None:
        raise InputError(f"'{name}' is a package that is installed: choose another name")
