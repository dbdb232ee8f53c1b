"""Workers side by side: who calls is one of them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fedparity.workers import HELD, Crew


@pytest.fixture
def crew():
    crew = Crew(["a", "b"])
    yield crew
    crew.close()


def test_work_comes_back_in_order(crew):
    assert crew.run(20, lambda piece, workspace: piece * piece) == [n * n for n in range(20)]


def test_two_who_work_at_once_have_a_desk_each(crew):
    meeting = threading.Barrier(2, timeout=20)

    def one(piece, workspace):
        meeting.wait()
        return workspace

    for _ in range(10):
        assert set(crew.run(2, one)) == {"a", "b"}


@pytest.mark.parametrize("way", ["run", "stream"])
def test_whoever_calls_works_too(crew, way):
    meeting = threading.Barrier(2, timeout=20)

    def one(piece, workspace):
        meeting.wait()
        return threading.get_ident()

    assert threading.get_ident() in set(getattr(crew, way)(2, one))


@pytest.mark.parametrize(
    "mode",
    [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu")],
    ids=["no grad", "inference", "autocast"],
)
def test_it_does_not_show_who_did_a_piece(crew, mode):
    before, meeting = torch.get_num_threads(), threading.Barrier(2, timeout=20)

    def one(piece, workspace):
        meeting.wait()
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        return torch.get_num_threads(), *modes, torch.is_autocast_enabled("cpu")

    torch.set_num_threads(3)
    try:
        with mode():
            assert crew.run(2, one) == [(1, True, False, False)] * 2
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_others_begin_before_anybody_waits(crew):
    begun = threading.Event()

    def one(piece, workspace):
        begun.set()
        return piece

    job = crew.begin(2, one)
    assert begun.wait(20)
    assert list(job.results()) == [0, 1]


def test_what_is_called_off_is_not_begun(crew):
    held, goes_on, begun = threading.Event(), threading.Event(), []

    def one(piece, workspace):
        begun.append(piece)
        held.set()
        assert goes_on.wait(20)

    job = crew.begin(10, one)
    assert held.wait(20)
    job.call_off()
    goes_on.set()
    crew.close()
    assert begun == [0]
    assert list(job.results()) == []


def test_two_may_call_at_once(crew):
    meeting = threading.Barrier(2, timeout=20)
    with ThreadPoolExecutor(2) as others:

        def call(first):
            meeting.wait()
            return crew.run(20, lambda piece, workspace: first + piece)

        assert list(others.map(call, (0, 100))) == [[*range(20)], [*range(100, 120)]]


@pytest.mark.parametrize("alone", [True, False])
def test_an_interrupt_is_raised_at_once(alone):
    crew = Crew([None] if alone else ["a", "b"])
    home, begun, goes_on = threading.get_ident(), [], threading.Event()

    def one(piece, workspace):
        if threading.get_ident() == home:
            begun.append(piece)
            raise KeyboardInterrupt
        assert goes_on.wait(20)

    with pytest.raises(KeyboardInterrupt):
        crew.run(10, one)
    goes_on.set()
    crew.close()
    assert len(begun) == 1


def test_a_stream_has_few_pieces_ahead(crew):
    begun = []

    def one(piece, workspace):
        begun.append(piece)
        return piece

    for piece, found in enumerate(crew.stream(50, one)):
        assert found == piece
        assert len(begun) <= piece + 1 + 2 * HELD
    assert sorted(begun) == list(range(50))


@pytest.mark.parametrize("way", ["run", "stream"])
def test_a_piece_that_fails_stops_those_behind_it(crew, way):
    begun = []

    def one(piece, workspace):
        begun.append(piece)
        if piece == 0:
            raise ValueError("no")
        time.sleep(0.02)

    with pytest.raises(ValueError, match="no"):
        list(getattr(crew, way)(50, one))
    assert len(begun) < 2 * HELD + 2


def test_of_two_pieces_that_fail_the_first_is_told(crew):
    failed = threading.Event()

    def one(piece, workspace):
        if piece == 0:
            assert failed.wait(20)
        failed.set()
        raise ValueError(f"piece {piece}")

    with pytest.raises(ValueError, match="piece 0"):
        crew.run(2, one)


def test_a_crew_of_one_keeps_nobody_waiting(crew):
    alone, meeting = Crew([None]), threading.Barrier(2, timeout=20)
    crew.run(2, lambda piece, workspace: alone.run(1, lambda *_: meeting.wait()))
