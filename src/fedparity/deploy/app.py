"""The Flower app of an experiment: four short files and the experiment itself."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from fedparity.deploy.table import toml
from fedparity.errors import InputError
from fedparity.imports import Allowed

EXPERIMENT = "experiment.yaml"
LONGEST_NAME = 32

TASK = '''"""What happens at a site: the examples of its client are read."""

import os
from pathlib import Path

import fedparity as fp
from fedparity.data import SiteTable
{imports}from fedparity.records.settings import site_of

EXPERIMENT = Path(__file__).with_name("experiment.yaml")


def load(client: str) -> fp.Federation | SiteTable:
    """Return the examples of one client: its table, or a federation of it alone.

    Of an experiment whose data is a table each site says itself where its own is, by SITE_FILE in
    the environment of its SuperNode; the columns are those that the experiment names, and all
    sites prepare them alike. THE COORDINATOR WRITES HERE HOW OTHER FILES ARE READ: 'flwr run' sends
    this very file to all sites, which change nothing in it.

    Without SITE_FILE each client's share is cut out of the data that the experiment names: a trial.
    """
    return site_of(EXPERIMENT, client, os.environ.get("SITE_FILE"){allowed})
'''
CLIENT_APP = '''"""What every site runs."""

from task import EXPERIMENT, load

from fedparity.flower import make_client_app

app = make_client_app(EXPERIMENT, load{allowed})
'''
SERVER_APP = '''"""What the coordinator runs: it holds no data."""

from task import EXPERIMENT

from fedparity.flower import make_server_app

app = make_server_app(EXPERIMENT{allowed})
'''
PYPROJECT = """[project]
name = "{name}"
version = "1.0.0"
description = "A federation of fedparity."
license = "Apache-2.0"
dependencies = ["fedparity[flower]=={version}"]

[tool.flwr.app]
publisher = "fedparity"
fab-include = ["*.py", "{experiment}"]  # nothing else leaves this folder

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

[tool.flwr.app.config]
{config}"""


def new_app(directory: Path, experiment: Path, allow_import: Sequence[str] = ()) -> list[Path]:
    """Write the app of an experiment into a new directory, and return its files.

    The experiment is checked first, and its federation made, whose names become the ids of the
    clients. What code the experiment may name, the packages ``allow_import``, is written into the
    code of the app. The directory appears complete or not at all.
    """
    from fedparity.records.rundir import RunDir
    from fedparity.records.settings import settings_at
    from fedparity.run.file import experiment as made_of

    run = RunDir(experiment)
    file = run.experiment if experiment.is_dir() else experiment
    settings = settings_at(experiment)
    made = made_of(settings, allowed=Allowed.by(allow_import))
    name = _name(directory)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(f"{directory} is not an empty directory: choose another one")
    config = run_config(made.federation.names, f"runs/{name}")
    packages = json.dumps(list(allow_import))
    allowed = f", allow_import={packages}" if allow_import else ""
    text = file.read_text(encoding="utf-8")
    recipe = made.federation.recipe
    if recipe is not None and "table" in recipe:  # its path is told from anywhere, with its digest
        text = yaml.safe_dump({**settings, "data": dict(recipe)}, sort_keys=False)
    files = {
        "pyproject.toml": PYPROJECT.format(
            name=name, version=version("fedparity"), experiment=EXPERIMENT, config=toml(config)
        ),
        "task.py": TASK.format(
            imports="from fedparity.imports import Allowed\n" if allow_import else "",
            allowed=f", allowed=Allowed.by({packages})" if allow_import else "",
        ),
        "client_app.py": CLIENT_APP.format(allowed=allowed),
        "server_app.py": SERVER_APP.format(allowed=allowed),
        EXPERIMENT: text,
    }
    directory.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        for path, text in files.items():
            (beside / path).write_text(text, encoding="utf-8")
        beside.chmod(0o755)
        beside.rename(directory)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return [directory / path for path in files]


def run_config(names: Sequence[str], out: str) -> dict[str, Any]:
    """Return the run config of an app, which ``flwr run --run-config`` may change.

    ``min-replies`` is left out: it would overrule what the experiment says.
    """
    for name in names:
        if "," in name or name != name.strip() or not name:
            raise InputError(f"client '{name}' cannot be a client id: ids are separated by commas")
    return {
        "clients": ",".join(names),
        "out": out,
        "resume": False,
        "deadline": 600.0,
        "first-deadline": 3600.0,
        "wait": 300.0,
    }


def read_app(directory: Path) -> Mapping[str, Any]:
    """Return the ``[tool.flwr.app]`` table of an app."""
    import tomli

    file = directory / "pyproject.toml"
    try:
        app = tomli.loads(file.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
        if not isinstance(app["config"], dict):
            raise KeyError("config")
    except OSError as error:
        raise InputError(
            f"cannot read {file}: {error.strerror}; make an app by 'fedparity flower "
            f"new {directory} --experiment experiment.yaml'"
        ) from error
    except (tomli.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not valid TOML: {error}") from error
    except (KeyError, TypeError) as error:
        raise InputError(f"{file} is not of a Flower app: it has no {error}") from error
    return dict(app)


def clients_of(directory: Path) -> list[str]:
    """Return the ids of the clients that an app expects, in their order."""
    listed = str(read_app(directory)["config"].get("clients", ""))
    return [name.strip() for name in listed.split(",") if name.strip()]


def _name(directory: Path) -> str:
    """Return a name as Flower takes it: letters, digits and hyphens, a letter first."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", directory.absolute().name).strip("-")
    return words[:LONGEST_NAME].rstrip("-") if re.match("[A-Za-z]", words) else "federation"
