"""The ClientApp: one site's answers to the server's messages."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedparity.data import SiteTable
from fedparity.data.told import Common
from fedparity.engines.engine import intraop
from fedparity.errors import FedparityError
from fedparity.flower import Load, Settings, codec
from fedparity.flower.agreement import agreed, difference, settings_of
from fedparity.flower.codec import BadMessage
from fedparity.flower.config import client_of
from fedparity.flower.memory import Memory, folder_of
from fedparity.flower.site import Site, check
from fedparity.imports import Allowed
from fedparity.learning.task import Task

SITES = 64
"""Clients that one process keeps in memory; in a deployment it is one."""
Answer = Callable[[Site, RecordDict, Context], RecordDict]


class Sites:
    """The clients that this process has met; what it has read of them is not pickled.

    Parameters
    ----------
    settings
        The experiment's.
    load
        Returns the federation of one client alone.
    task
        Stands in for a task that settings cannot name.
    allowed
        The code that settings may name.
    """

    def __init__(
        self, settings: Mapping[str, Any], load: Load, task: Task | None, allowed: Allowed
    ) -> None:
        self.settings, self.load, self.task, self.allowed = settings, load, task, allowed
        self._met: dict[tuple[str, str], Site] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_met": {}}

    @property
    def agreed(self) -> dict[str, str]:
        """What this site and the server must have alike."""
        return agreed(self.settings, self.task, self.allowed)

    def site(self, client: str, common: str) -> Site | SiteTable:
        """Return the site of a client; the one met first makes room.

        ``common`` says how all sites prepare their tables. Without it a site whose data is a table
        has nothing to compute with: the table is returned.
        """
        if (client, common) not in self._met:
            data = self.load(client)
            if isinstance(data, SiteTable):
                if not common:
                    return data
                data = data.federation(Common.read(common))
            site = Site(self.settings, client, data, self.task, self.allowed)
            if len(self._met) == SITES:
                del self._met[next(iter(self._met))]
            self._met[client, common] = site
        return self._met[client, common]


@dataclass(frozen=True)
class Handler:
    """What a site does with one kind of message: it answers, or says why it cannot."""

    sites: Sites
    answer: Answer

    def __call__(self, message: Message, context: Context) -> Message:
        """Return the reply to a message."""
        try:
            with intraop(1):
                site = self.sites.site(client_of(context), codec.common(message.content))
                if isinstance(site, SiteTable):
                    content = _tell(site, message, self.sites.agreed)
                else:
                    content = self.answer(site, message.content, context)
        except Exception as error:
            content = failure(error)
        return Message(content, reply_to=message)


def client_app(experiment: Settings, load: Load, task: Task | None, allowed: Allowed) -> ClientApp:
    """Return the ClientApp; see :func:`fedparity.flower.make_client_app`."""
    sites, app = Sites(settings_of(experiment), load, task, allowed), ClientApp()
    app.query("hello")(Handler(sites, _hello))
    app.query("probe")(Handler(sites, _exchange))
    app.query("losses")(Handler(sites, _exchange))
    app.train()(Handler(sites, _exchange))
    app.evaluate()(Handler(sites, _evaluate))
    app.query("groups")(Handler(sites, _groups))
    return app


def failure(error: Exception) -> RecordDict:
    """Return the answer of a site that cannot answer: the reason, in one line.

    The text of an error that is not of fedparity's own may quote the data: it stays in the log of
    the site.
    """
    if isinstance(error, FedparityError):
        reason = " ".join(str(error).split()) or "no message"
    else:
        traceback.print_exception(error)
        reason = f"{type(error).__name__}, see the log of the site"
    return RecordDict({"failure": ConfigRecord({"reason": reason[:1000]})})


def _tell(table: SiteTable, message: Message, mine: Mapping[str, str]) -> RecordDict:
    """Return what a table tells before there is anything in common, and nothing else.

    A server with other settings than ``mine`` is told in which, and no sum.
    """
    if not message.metadata.message_type.endswith("hello"):
        raise BadMessage("it does not say how tables are prepared")
    if differs := difference(mine, _settings(message.content)):
        raise BadMessage(f"client '{table.client}': {differs}")
    return RecordDict(
        {"words": ConfigRecord({"client": table.client, "table": table.told().text()})}
    )


def _hello(site: Site, asked: RecordDict, context: Context) -> RecordDict:
    hello, told = site.hello(), codec.words(asked)
    clients = list(told.get("clients", []))
    answer = RecordDict({"words": ConfigRecord({"hello": hello.text()})})
    alike = difference(hello.settings, _settings(asked)) is None  # else it is refused
    if told.get("lstar") and site.client in clients and alike:
        folder = folder_of(site.client, context.node_config.get("state-dir"))
        answer["numbers"] = MetricRecord(dict(site.alone(clients, folder)))
    return answer


def _settings(asked: RecordDict) -> dict[str, str]:
    """Return the settings that the server says it has."""
    return {k: str(v) for k, v in (asked.config_records.get("settings") or {}).items()}


def _exchange(site: Site, asked: RecordDict, context: Context) -> RecordDict:
    down, stamp = codec.read_down(asked, *site.start)
    check(down, stamp, site)
    return codec.write_up(site.answer(down, stamp, _memory(site, stamp.run, context)))


def _evaluate(site: Site, asked: RecordDict, context: Context) -> RecordDict:
    down, stamp = codec.read_down(asked, *site.start)
    check(down, stamp, site)
    values = site.evaluate(down, stamp, _memory(site, stamp.run, context))
    return RecordDict({"numbers": MetricRecord(dict(values))})


def _groups(site: Site, asked: RecordDict, context: Context) -> RecordDict:
    down, stamp = codec.read_down(asked, *site.start)
    check(down, stamp, site)
    told = site.groups(down, stamp, _memory(site, stamp.run, context))
    return RecordDict({"words": ConfigRecord({"groups": told})})


def _memory(site: Site, run: str, context: Context) -> Memory:
    folder = folder_of(site.client, context.node_config.get("state-dir"))
    return Memory(run, context.state, folder)
