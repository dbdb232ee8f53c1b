"""Which node is which client: nodes introduce themselves, and those that do not fit are refused."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid

from fedparity.data.told import Told, combine
from fedparity.errors import InputError
from fedparity.flower import codec
from fedparity.flower.agreement import difference
from fedparity.flower.census import Hello, other_groups, unlike
from fedparity.flower.codec import BadMessage, shown
from fedparity.flower.link import Failure, exchange
from fedparity.run.lstar import ACCURACIES, COLUMNS

LOOK_AGAIN = 1.0
"""Seconds between two looks for nodes that are not there yet."""
ATTEMPTS = 3
"""Times that a node which appears during a run may fail to introduce itself."""
COMMON = (
    "fields",
    "shape",
    "target",
    "whole",
    "outputs",
    "kind",
    "classes",
    "model",
    "parameters",
)
"""What all sites must have alike, beside the settings."""


class Roster:
    """The nodes of a run by client, and why others are not among them.

    Parameters
    ----------
    grid
        Flower's way to the nodes.
    clients
        The ids of all clients, in order.
    settings
        What sites must agree with.
    """

    def __init__(self, grid: Grid, clients: Sequence[str], settings: Mapping[str, str]) -> None:
        self.grid, self.clients, self.settings = grid, tuple(clients), dict(settings)
        self.hello: dict[str, Hello] = {}
        self.lstar: dict[str, dict[str, float]] = {}
        self.told: dict[str, Told] = {}
        """What clients tell of their tables."""
        self.common = ""
        """How all prepare their tables; empty before all have told, or where none is one."""
        self.node: dict[str, int] = {}
        self.spare: dict[str, int] = {}
        self.strangers: dict[int, str] = {}
        """Nodes of clients that are not the run's, with the client."""
        self.refused: dict[int, str] = {}
        self.attempts: Counter[int] = Counter()
        self.silent: set[str] = set()
        """Clients whose node did not answer its last message."""

    def gather(self, wait: float, deadline: float, lstar: bool, enough: int) -> None:
        """Wait until there is a node for every client, and learn what each tells of itself.

        Parameters
        ----------
        wait
            Seconds to wait for nodes.
        deadline
            Seconds that a node may take to answer.
        lstar
            Whether sites shall tell their L*.
        enough
            Clients without whom there is no run.

        Raises
        ------
        InputError
            With the reason of every node and client that does not fit.
        """
        until = time.monotonic() + wait
        while True:
            # Waits for all nodes before greeting any: to greet is to make a site compute its L*.
            late = time.monotonic() >= until
            if late or len(self._unknown()) + len(self.node) >= len(self.clients):
                self.greet(deadline, lstar)
                if self._agree_on_tables():
                    self.greet(deadline, lstar)
            if late or len(self.node) == len(self.clients) or self.refused:
                break
            time.sleep(LOOK_AGAIN)
        # Nodes of other clients, or refused ones, do not matter when there are enough.
        if len(self.node) < enough or self.spare:
            raise InputError(f"the federation is not complete: {'; '.join(self._problems())}")

    def _problems(self) -> list[str]:
        problems = [f"node {node}: {why}" for node, why in self.refused.items()]
        known = ", ".join(self.clients)
        problems += [
            f"node {node}: it is client {shown(client)}, which is not one of the run's: {known}"
            for node, client in self.strangers.items()
        ]
        problems += [f"client '{client}' has two nodes" for client in self.spare]
        missing = [f"'{client}'" for client in self.clients if client not in self.node]
        if missing:
            problems.append(f"no node is connected for {', '.join(missing)}")
        return problems

    def refresh(self, deadline: float) -> set[int]:
        """Look for new nodes, forget those that left, and return all that are connected."""
        self._forget(set(self.grid.get_node_ids()))
        if self._unknown():
            self.greet(deadline, lstar=False)
        online = set(self.grid.get_node_ids())
        for client, node in list(self.spare.items()):
            if self.node[client] not in online or client in self.silent:
                self.node[client] = node
                self.silent.discard(client)
                del self.spare[client]
        return online

    def _forget(self, online: set[int]) -> None:
        """Give a node that was not taken another chance when it connects again."""
        told: tuple[dict[int, str] | Counter[int], ...] = (
            self.refused,
            self.strangers,
            self.attempts,
        )
        for known in told:
            for node in [node for node in known if node not in online]:
                del known[node]

    def why_absent(self, client: str) -> str:
        """Return why a client has no node that could be asked."""
        told = [why for why in self.refused.values() if why.startswith(f"client '{client}': ")]
        return f"its node is refused: {told[-1]}" if told else "no node of it is connected"

    def greet(self, deadline: float, lstar: bool) -> None:
        """Ask the nodes not yet known who they are."""
        words = ConfigRecord({"clients": list(self.clients), "lstar": lstar})
        if self.common:
            words["common"] = self.common
        question = RecordDict({"words": words, "settings": ConfigRecord(dict(self.settings))})
        answers = exchange(
            self.grid, dict.fromkeys(self._unknown(), question), "query.hello", 0, deadline
        )
        for node, answer in sorted(answers.items()):
            if isinstance(answer, Failure):
                self.attempts[node] += 1
                if lstar or self.attempts[node] == ATTEMPTS:
                    self.refused[node] = answer.reason
                continue
            try:
                if self._tells(node, codec.words(answer)):
                    continue
                hello = Hello.read(codec.words(answer).get("hello"))
                if hello.client not in self.clients:
                    self.strangers[node] = hello.client
                    continue
                self._check(hello)
                numbers = codec.numbers(answer)
            except BadMessage as error:
                self.refused[node] = str(error)
                continue
            self._admit(node, hello, numbers)

    def _tells(self, node: int, words: Mapping[str, object]) -> bool:
        """Take what a site tells of its table, and return whether it is that."""
        if "table" not in words:
            return False
        client = str(words.get("client"))
        if client not in self.clients:
            self.strangers[node] = client
            return True
        try:
            told = Told.read(words["table"])
        except InputError as error:
            raise BadMessage(f"client '{client}': {error}") from error
        if told.client != client:
            raise BadMessage(f"client '{client}': it tells of the table of {shown(told.client)}")
        self.told[client] = told
        return True

    def _agree_on_tables(self) -> bool:
        """Make of what all told of their tables what they have in common, once all have."""
        if self.common or not self.told:
            return False
        prepared = [client for client in self.clients if client in self.node]
        if prepared:
            tables = ", ".join(f"'{client}'" for client in self.clients if client in self.told)
            raise InputError(
                f"client '{prepared[0]}' gives a Federation, {tables} a table: let load return the "
                "same everywhere"
            )
        if len(self.told) < len(self.clients):
            return False
        self.common = combine([self.told[client] for client in self.clients]).text()
        return True

    def _admit(self, node: int, hello: Hello, numbers: dict[str, float]) -> None:
        client = hello.client
        if client in self.node:
            self.spare[client] = node
            return
        self.node[client], self.hello[client] = node, hello
        if numbers:
            self.lstar.setdefault(
                client, {k: v for k, v in numbers.items() if k in (*COLUMNS, *ACCURACIES)}
            )

    def _check(self, hello: Hello) -> None:
        client = hello.client
        if differs := difference(hello.settings, self.settings):
            raise BadMessage(f"client '{client}': {differs}")
        before = self.hello.get(client)
        if before is not None and before.fingerprint != hello.fingerprint:
            told = "another node of it has" if client in self.node else "it began the run with"
            raise BadMessage(f"client '{client}': {told} other data")
        for other in self.hello.values():
            if differs := unlike(hello, other) or other_groups(hello, other):
                raise BadMessage(f"client '{client}': {differs}")
            for name in COMMON:
                mine, theirs = getattr(hello, name), getattr(other, name)
                if mine != theirs:
                    raise BadMessage(
                        f"client '{client}': its {name} is {shown(mine)}, that of "
                        f"'{other.client}' is {shown(theirs)}"
                    )

    def _unknown(self) -> list[int]:
        known = {*self.node.values(), *self.spare.values(), *self.strangers, *self.refused}
        return sorted(set(self.grid.get_node_ids()) - known)
