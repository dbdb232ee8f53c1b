"""The same experiment on a real Flower federation: the data stays where it is.

``make_client_app`` and ``make_server_app`` make the two halves of a Flower app from the experiment
file that was tried in the simulator. What a site is told by its own operator is in the *node
config*, what the one who starts the run says is in the *run config*. Neither can name code, nor can
a message: a site runs the code of its app, and of the packages that the app allows.

Node config
-----------
``client-id``
    Which client of the federation this node is. In Flower's own simulation, where nodes have no
    config, the client is the one at the place ``partition-id`` of ``clients``.
``state-dir``
    Where the node keeps what its client remembers between rounds and its L*; a folder for each
    client is made in it. By default ``flower`` in ``$FEDPARITY_CACHE``, else in
    ``~/.cache/fedparity``.

Run config
----------
``clients``
    The ids of all clients, separated by commas, in the order of the simulator's federation.
``out``
    The run directory. A relative path is taken from where the ServerApp runs.
``resume``
    True goes on with the run in ``out`` from its last checkpoint; default false.
``deadline``
    Seconds that a reply may take; default 600.
``min-replies``
    Replies without which a round changes nothing; default the experiment's ``min_replies``.
``wait``
    Seconds to wait at the start until a node of every client is connected; default 300.
``first-deadline``
    Seconds that the first exchange may take, in which each site computes its L*; default 3600.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedparity.errors import InputError
from fedparity.imports import Allowed

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    from fedparity.data import Federation, SiteTable
    from fedparity.learning.task import Task

Settings = str | Path | Mapping[str, Any]
"""An experiment: its file, a run directory, or its settings."""
Load = Callable[[str], "Federation | SiteTable"]
"""From a client's id to the federation of that client alone, or to its table.

Of a table the site first tells sums, and prepares it by what the server makes of those of all.
"""

__all__ = ["Load", "Settings", "make_client_app", "make_server_app"]


def make_client_app(
    experiment: Settings,
    load: Load,
    *,
    task: Task | None = None,
    allow_import: str | Iterable[str] = (),
) -> ClientApp:
    """Return the ClientApp of an experiment: what a site runs.

    Parameters
    ----------
    experiment
        The experiment file, or its settings. Its ``data`` is not read.
    load
        Called with the client's id, returns a :class:`~fedparity.Federation` of that one client,
        made from the data of the site. ``Federation.only`` picks one client of several. Or its
        :class:`~fedparity.data.SiteTable`, which all sites prepare alike.
    task
        Stands in for a task that a file cannot name.
    allow_import
        Packages whose code the experiment may name.
    """
    _require_flwr()
    from fedparity.flower.client_app import client_app

    return client_app(experiment, load, task, Allowed.by(allow_import))


def make_server_app(
    experiment: Settings, *, task: Task | None = None, allow_import: str | Iterable[str] = ()
) -> ServerApp:
    """Return the ServerApp of an experiment: it runs the rounds and holds no data.

    Parameters
    ----------
    experiment
        The experiment file, or its settings. Its ``data`` is recorded, not read.
    task
        Stands in for a task that a file cannot name.
    allow_import
        Packages whose code the experiment may name.
    """
    _require_flwr()
    from fedparity.flower.server_app import server_app

    return server_app(experiment, task, Allowed.by(allow_import))


def _require_flwr() -> None:
    try:
        import flwr  # noqa: F401
    except ImportError as error:
        raise InputError(
            'Flower is not installed: pip install "fedparity[flower]" (Python 3.11 or newer)'
        ) from error
