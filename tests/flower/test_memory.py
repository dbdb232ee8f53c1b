"""What a client remembers, and which of it the server may count on."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed")

from flwr.app import RecordDict

from fedparity.flower.codec import Stamp
from fedparity.flower.memory import Forgotten, Memory

RUN = "0" * 32
FRESH = {"part/c": torch.zeros(2)}


def state(round: int) -> dict[str, torch.Tensor]:
    return {"part/c": torch.full((2,), float(round))}


def trained(memory: Memory, round: int, received: int) -> None:
    """Do a round that starts from the state after the round received."""
    stamp = Stamp(RUN, 0, received)
    memory.keep(stamp, round, memory.recall(stamp, FRESH), state(round))


def recalled(memory: Memory, round: int) -> float:
    return float(memory.recall(Stamp(RUN, 0, round), FRESH)["part/c"][0])


def test_a_state_that_is_only_on_disk_is_found_there(tmp_path):
    old = RecordDict()
    trained(Memory(RUN, old, tmp_path), 1, 0)
    trained(Memory(RUN, RecordDict(), tmp_path), 2, 1)  # another node of the same client
    assert recalled(Memory(RUN, old, tmp_path), 2) == 2.0


def test_a_first_message_that_arrives_again_discards_nothing(tmp_path):
    context = RecordDict()
    for round in (1, 2, 3):
        trained(Memory(RUN, context, tmp_path), round, round - 1)
    trained(Memory(RUN, context, tmp_path), 1, 0)
    for found in (context, RecordDict()):
        memory = Memory(RUN, found, tmp_path)
        assert [recalled(memory, round) for round in (2, 3)] == [2.0, 3.0]


def test_states_before_the_one_received_are_forgotten(tmp_path):
    context = RecordDict()
    for round in (1, 2, 3):
        trained(Memory(RUN, context, tmp_path), round, round - 1)
    memory = Memory(RUN, context, tmp_path)
    assert list(memory.states) == [2, 3]
    with pytest.raises(Forgotten, match="its state after round 1 is lost"):
        recalled(memory, 1)
