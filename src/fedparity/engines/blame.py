"""Who was at fault: an error of client code with its client, round, phase and part."""

from __future__ import annotations

import traceback

from fedparity.errors import ClientError
from fedparity.method import Part
from fedparity.method.messages import Down


def blame(error: Exception, down: Down, who: str) -> ClientError:
    """Return the error that says where ``error`` happened; ``who`` names the client or clients."""
    hook = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if isinstance(owner, Part):
            hook = f", part '{owner.name}' ({frame.f_code.co_name})"
    said = str(error) or "no message"
    return ClientError(
        f"{who}, round {down.round}, phase {down.phase}{hook}: {type(error).__name__}: {said}"
    )
