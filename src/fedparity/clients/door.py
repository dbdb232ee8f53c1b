"""The door to the clients: what a run needs of those behind it, wherever they compute."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedparity.engines.engine import Ids
from fedparity.engines.evaluation import Values
from fedparity.learning.seeds import seeds_for
from fedparity.method.messages import Down, Replies


@dataclass
class Attendance:
    """Who was asked in a round, who answered its last exchange, and why others did not."""

    round: int = 0
    asked: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)


class Door:
    """Asks clients, and remembers who answered.

    Parameters
    ----------
    seed
        The seed of the run, for the drawing of drop-outs.
    drop
        Probability that a client asked does not answer.
    min_replies
        With fewer replies than these an exchange counts as unanswered.
    """

    def __init__(self, seed: int, drop: float = 0.0, min_replies: int = 1) -> None:
        self.seed, self.drop, self.min_replies = seed, drop, min_replies
        self.attendance = Attendance()

    def ask(self, down: Down, cohort: Tensor) -> Replies:
        """Return the answers of those of the cohort who give one, by ascending id."""
        raise NotImplementedError

    def evaluate(self, down: Down, split: str) -> dict[str, Values]:
        """Return loss and metrics of every client, for the shared and any personal model."""
        raise NotImplementedError

    def base(self, split: str) -> Values:
        """Return what a guess without inputs gets of every client: its accuracy, or its loss."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what the door holds."""

    def _dropped(self, down: Down, clients: Ids) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        draws = seeds_for(self.seed, "dropout", down.round, clients) / float(2**64)
        dropped: np.ndarray[tuple[int], np.dtype[np.bool_]] = draws < self.drop
        return dropped

    def _record(self, round: int, asked: Ids, clients: Ids) -> None:
        if self.attendance.round != round:
            self.attendance = Attendance(round, asked.tolist())
        self.attendance.answered = clients.tolist()
        if len(clients) < len(asked):
            for client in np.setdiff1d(asked, clients).tolist():
                self.attendance.failed[client] = "dropped out"

    def _nobody(self, down: Down) -> Replies:
        """Return no replies: those who answered are too few for the exchange to count."""
        none = torch.zeros(0, dtype=torch.int64)
        empty = down.x.new_zeros(0, len(down.x))
        return Replies(none, none, {}, empty, empty[:, :0])
