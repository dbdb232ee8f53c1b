"""A federation in one process: real Flower messages, no SuperLink, faults on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fedparity.learning.seeds import generator

Fault = Callable[[str, Message, Message], Message | None]
"""From client, message and reply to the reply that arrives; None is a lost one."""


class LocalGrid(Grid):
    """Nodes in this process, whose replies arrive in any order.

    What passes is written to bytes and read again, as between machines.

    Parameters
    ----------
    app
        What every node runs.
    clients
        The ``client-id`` of each node.
    state_dir
        The ``state-dir`` of all nodes.
    fault
        What happens to replies.
    seed
        Of the order of replies and of the nodes' numbers.
    """

    def __init__(
        self,
        app: ClientApp,
        clients: Sequence[str],
        state_dir: str | Path,
        fault: Fault = lambda client, asked, reply: reply,
        seed: int = 0,
    ) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.app, self.state_dir, self.fault = app, str(state_dir), fault
        self.rng = generator(seed, "local grid")
        self.nodes: dict[int, Context] = {}
        self.offline: set[str] = set()
        """Clients whose nodes are gone."""
        self.sent: list[tuple[str, str]] = []
        """Type and client of every message so far."""
        for client in clients:
            self.connect(client)

    def connect(self, client: str) -> int:
        """Start a node of a client, with an empty memory, and return its number."""
        node = int(self.rng.integers(1, 1 << 62))
        config: dict[str, Any] = {"client-id": client, "state-dir": self.state_dir}
        self.nodes[node] = Context(1, node, config, RecordDict(), {})
        return node

    def restart(self, client: str) -> None:
        """Start the nodes of a client again: what they had in memory is gone."""
        for context in self.nodes.values():
            if context.node_config["client-id"] == client:
                context.state = RecordDict()

    def get_node_ids(self) -> list[int]:
        """Return the nodes that are connected."""
        return [n for n, c in self.nodes.items() if self._client(c) not in self.offline]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Let the nodes answer and return what arrives of it, shuffled."""
        arrived = [reply for message in messages if (reply := self._deliver(message)) is not None]
        return [arrived[i] for i in self.rng.permutation(np.arange(len(arrived)))]

    def _deliver(self, message: Message) -> Message | None:
        context = self.nodes[message.metadata.dst_node_id]
        client = self._client(context)
        self.sent.append((message.metadata.message_type, client))
        if client in self.offline:
            return None
        message.metadata.__dict__["_message_id"] = f"message {len(self.sent)}"
        message.content = through_bytes(message.content)
        reply = self.app(message, context)
        context.state = through_bytes(context.state)
        if reply.has_content():
            reply.content = through_bytes(reply.content)
        return self.fault(client, message, reply)

    @staticmethod
    def _client(context: Context) -> str:
        return str(context.node_config["client-id"])

    def set_run(self, run: object) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> NoReturn:
        """There is no such thing here."""
        raise NotImplementedError

    def create_message(self, *args: object, **kwargs: object) -> NoReturn:
        """Refuse: Flower's own way is the constructor of Message."""
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> NoReturn:
        """Refuse: messages are sent and received at once."""
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> NoReturn:
        """Refuse: messages are sent and received at once."""
        raise NotImplementedError


def through_bytes(records: RecordDict) -> RecordDict:
    """Return what the other side of a wire reads."""
    contents = {name: part.deflate() for name, part in get_all_nested_objects(records).items()}
    read = inflate_object_from_contents(records.object_id, contents)
    assert isinstance(read, RecordDict)
    return read
