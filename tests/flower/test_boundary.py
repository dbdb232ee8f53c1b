"""What leaves a site is what the boundary lets through, whichever part it is of."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed")
pytest.importorskip("dp_accounting")

from flwr.app import Message
from inprocess import Deployment


@pytest.mark.parametrize(
    "algorithm",
    [
        "scaffold+dp_client(clip=0.05, noise=0)",
        "dp_client(clip=0.05, noise=0)+scaffold",
        "dp_client(clip=0.05, noise=0)+ditto+scaffold",
    ],
)
def test_all_numbers_of_a_training_reply_are_inside_the_bound(algorithm, tmp_path):
    replies = []

    def look(client: str, asked: Message, reply: Message) -> Message:
        if asked.metadata.message_type == "train":
            replies.append(reply.content)
        return reply

    settings = {"algorithm": algorithm, "lstar": "none", "rounds": 2}
    Deployment(tmp_path, settings).run(fault=look)
    assert len(replies) == 8
    lengths = []
    for reply in replies:
        assert set(reply) == {"vectors", "reports"}
        assert set(reply.array_records) == {"vectors", "reports"}
        arrays = [array for record in reply.array_records.values() for array in record.values()]
        numbers = torch.cat([torch.from_numpy(array.numpy()).flatten() for array in arrays])
        lengths.append(float(numbers.norm()))
    assert lengths[:4] == pytest.approx([0.05] * 4)
    assert max(lengths) <= 0.05 + 1e-12
