"""Messages to nodes and what came back of them, in any order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid


class Failure(NamedTuple):
    """Why a node gave no answer."""

    reason: str


EXPIRED = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
"""Flower's codes of messages that passed their time to live, which is our deadline."""
Answers = dict[int, RecordDict | Failure]


def exchange(
    grid: Grid, messages: Mapping[int, RecordDict], kind: str, round: int, deadline: float
) -> Answers:
    """Send one message to each node and return what each said, or why it said nothing.

    Parameters
    ----------
    grid
        Flower's way to the nodes.
    messages
        By node.
    kind
        Flower's type of the messages, such as ``train`` or ``query.hello``.
    round
        For Flower's own records.
    deadline
        Seconds that a reply may take; a node does not begin with a message after that.
    """
    letters = [
        Message(content, node, kind, ttl=deadline, group_id=str(round))
        for node, content in messages.items()
    ]
    late = Failure(f"no answer within {deadline:g} s")
    answers: Answers = dict.fromkeys(messages, late)
    replies = list(grid.send_and_receive(letters, timeout=deadline)) if letters else []
    # An error may come from the SuperLink: only the message it answers tells whose it is.
    asked = {letter.metadata.message_id: letter.metadata.dst_node_id for letter in letters}
    for reply in replies:
        node = asked.get(reply.metadata.reply_to_message_id)
        if node is not None and answers[node] is late:
            answers[node] = _read(reply, late)
    return answers


def _read(reply: Message, late: Failure) -> RecordDict | Failure:
    if reply.has_error():
        error = reply.error
        if error.code in EXPIRED:
            return late
        said = " ".join((error.reason or "no reason given").split())
        return Failure(f"its node failed: {said[:300]} (Flower's code {error.code})")
    failure = reply.content.get("failure")
    if isinstance(failure, ConfigRecord):
        return Failure(f"its site failed: {str(failure.get('reason'))[:1000]}")
    return reply.content
