"""The ClientApp: one site's answers to the server's messages."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import lru_cache

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedparity.core.task import Task
from fedparity.engines.flower import Load, Settings, codec
from fedparity.engines.flower.agreement import difference, settings_of
from fedparity.engines.flower.config import client_of
from fedparity.engines.flower.memory import Memory, folder_of
from fedparity.engines.flower.site import Site, check
from fedparity.engines.setup import intraop
from fedparity.errors import FedparityError

SITES = 64
"""Clients that one process keeps in memory; in a deployment it is one."""
Answer = Callable[[Site, RecordDict, Context], RecordDict]


def client_app(experiment: Settings, load: Load, task: Task | None) -> ClientApp:
    """Return the ClientApp; see :func:`fedparity.engines.flower.make_client_app`."""
    settings = settings_of(experiment)
    app = ClientApp()

    @lru_cache(maxsize=SITES)
    def site(client: str) -> Site:
        return Site(settings, client, load, task)

    def answering(answer: Answer) -> Callable[[Message, Context], Message]:
        def handle(message: Message, context: Context) -> Message:
            try:
                with intraop(1):
                    content = answer(site(client_of(context)), message.content, context)
            except Exception as error:
                content = failure(error)
            return Message(content, reply_to=message)

        return handle

    app.query("hello")(answering(_hello))
    app.query("probe")(answering(_exchange))
    app.train()(answering(_exchange))
    app.evaluate()(answering(_evaluate))
    return app


def failure(error: Exception) -> RecordDict:
    """Return the answer of a site that cannot answer: the reason, in one line."""
    if not isinstance(error, FedparityError):
        traceback.print_exception(error)  # for the site's own log: the server gets one line
    kind = "" if isinstance(error, FedparityError) else f"{type(error).__name__}: "
    reason = f"{kind}{' '.join(str(error).split()) or 'no message'}"
    return RecordDict({"failure": ConfigRecord({"reason": reason[:1000]})})


def _hello(site: Site, asked: RecordDict, context: Context) -> RecordDict:
    facts, told = site.facts(), codec.words(asked)
    clients = list(told.get("clients", []))
    theirs = {k: str(v) for k, v in (asked.config_records.get("settings") or {}).items()}
    answer = RecordDict({"words": ConfigRecord({"facts": facts.text()})})
    alike = difference(facts.settings, theirs) is None  # else the server will refuse this site
    if told.get("lstar") and site.client in clients and alike:
        folder = folder_of(site.client, context.node_config.get("state-dir"))
        answer["numbers"] = MetricRecord(dict(site.alone(clients, folder)))
    return answer


def _exchange(site: Site, asked: RecordDict, context: Context) -> RecordDict:
    down, stamp = codec.read_down(asked, *site.start)
    check(down, site)
    return codec.write_up(site.answer(down, stamp, _memory(site, stamp.run, context)))


def _evaluate(site: Site, asked: RecordDict, context: Context) -> RecordDict:
    down, stamp = codec.read_down(asked, *site.start)
    check(down, site)
    values = site.evaluate(down, stamp, _memory(site, stamp.run, context))
    return RecordDict({"numbers": MetricRecord(dict(values))})


def _memory(site: Site, run: str, context: Context) -> Memory:
    folder = folder_of(site.client, context.node_config.get("state-dir"))
    return Memory(run, context.state, folder)
