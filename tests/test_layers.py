"""Imports go one way: a package imports only those that stand before it in this list."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedparity

ORDER = (
    "errors",
    "arguments",
    "spec",
    "imports",
    "workers",
    "toolbox",
    "learning",
    "data",
    "metrics",
    "certainty",
    "method",
    "parts",
    "recipes",
    "engines",
    "clients",
    "records",
    "contracts",
    "pytest_plugin",
    "reports",
    "run",
    "joining",
    "tuning",
    "fronts",
    "figures",
    "studies",
    "flower",
    "testing",
    "profiling",
    "catalogue",
    "deploy",
    "cli",
)
SOURCE = Path(fedparity.__file__).parent


def imported(file: Path) -> set[str]:
    """Return the top-level names below fedparity that a file imports, wherever it does so."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "fedparity":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedparity."):
            found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("fedparity.")}
    return found


def test_every_package_has_a_place():
    there = {p.stem for p in SOURCE.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert there - {"__init__", "__main__"} == set(ORDER)


@pytest.mark.parametrize("package", ORDER)
def test_imports_go_one_way(package):
    below = {*ORDER[: ORDER.index(package)], package}
    files = [*SOURCE.glob(f"{package}.py"), *(SOURCE / package).rglob("*.py")]
    upwards = {str(f.relative_to(SOURCE)): wrong for f in files if (wrong := imported(f) - below)}
    assert not upwards
