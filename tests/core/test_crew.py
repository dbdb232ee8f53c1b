"""Workers side by side: who calls is one of them."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from fedparity.core.crew import HELD, Crew


@pytest.fixture
def crew():
    crew = Crew(["a", "b"])
    yield crew
    crew.close()


def test_work_comes_back_in_order_and_each_desk_is_handed_out_once(crew):
    held = set()

    def one(piece, desk):
        assert desk not in held
        held.add(desk)
        held.discard(desk)
        return piece * piece

    assert crew.run(20, one) == [n * n for n in range(20)]


@pytest.mark.parametrize("way", ["run", "stream"])
def test_whoever_calls_works_too(crew, way):
    meeting = threading.Barrier(2, timeout=20)

    def one(piece, desk):
        meeting.wait()
        return threading.get_ident()

    assert threading.get_ident() in set(getattr(crew, way)(2, one))


def test_an_operation_has_one_thread_whoever_does_it(crew):
    before, meeting = torch.get_num_threads(), threading.Barrier(2, timeout=20)

    def one(piece, desk):
        meeting.wait()
        return torch.get_num_threads()

    torch.set_num_threads(3)
    try:
        assert crew.run(2, one) == [1, 1]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_stream_has_few_pieces_ahead(crew):
    begun = []

    def one(piece, desk):
        begun.append(piece)
        return piece

    for piece, found in enumerate(crew.stream(50, one)):
        assert found == piece
        assert len(begun) <= piece + 1 + 2 * HELD
    assert sorted(begun) == list(range(50))


@pytest.mark.parametrize("way", ["run", "stream"])
def test_a_piece_that_fails_stops_those_behind_it(crew, way):
    begun = []

    def one(piece, desk):
        begun.append(piece)
        if piece == 0:
            raise ValueError("no")
        time.sleep(0.02)

    with pytest.raises(ValueError, match="no"):
        list(getattr(crew, way)(50, one))
    assert len(begun) < 2 * HELD + 2


def test_of_two_pieces_that_fail_the_first_is_told(crew):
    meeting = threading.Barrier(2, timeout=20)

    def one(piece, desk):
        meeting.wait()
        time.sleep(0.05 * (1 - piece))
        raise ValueError(f"piece {piece}")

    with pytest.raises(ValueError, match="piece 0"):
        crew.run(2, one)


def test_a_crew_of_one_keeps_nobody_waiting(crew):
    alone, meeting = Crew([None]), threading.Barrier(2, timeout=20)
    crew.run(2, lambda piece, desk: alone.run(1, lambda *_: meeting.wait()))
