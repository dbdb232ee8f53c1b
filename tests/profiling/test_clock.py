"""The clock counts what it says, and leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from fedparity.profiling.clock import Clock, watched


def ticking(*times: float) -> Iterator[float]:
    yield from times


def clock_at(*times: float) -> Clock:
    hands = ticking(*times)
    return Clock(lambda: next(hands))


def test_a_phase_does_not_count_the_phases_inside_it():
    clock = clock_at(0, 1, 4, 10)
    with clock.phase("outer"), clock.phase("inner"):
        pass
    assert clock.seconds == {"inner": 3, "outer": 7}
    assert not clock.parallel


def test_a_phase_that_fails_is_counted():
    clock = clock_at(0, 2)
    with pytest.raises(ValueError, match="wrong"), clock.phase("outer"):
        raise ValueError("wrong")
    assert clock.seconds == {"outer": 2}


def test_waiting_for_threads_is_divided_as_they_spent_their_time():
    # The home thread waits from 1 to 9; the others spend 3 s and 9 s.
    clock = clock_at(0, 1, 0, 3, 0, 9, 9, 10)

    def work(name: str) -> None:
        with clock.phase(name):
            pass

    with clock.phase("exchange"), clock.phase(None):
        for name in ("one", "two"):
            thread = threading.Thread(target=work, args=(name,))
            thread.start()
            thread.join()
    assert clock.seconds == {"one": 2, "two": 6, "exchange": 2}
    assert clock.parallel


def test_what_is_done_beside_threads_counts_as_what_it_is():
    # The home thread plans from 1 to 5, while another works from 0 to 4; then waits from 6 to 8.
    clock = clock_at(0, 1, 0, 4, 5, 6, 8, 10)

    def work() -> None:
        with clock.phase("working"):
            pass

    with clock.phase("exchange"):
        with clock.phase("planning"):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        with clock.phase(None):
            pass
    assert clock.seconds == {"planning": 4, "working": 2, "exchange": 4}


def test_a_phase_without_a_name_counts_as_the_one_around_it():
    clock = clock_at(0, 1, 4, 10)
    with clock.phase("outer"), clock.phase(None):
        pass
    assert clock.seconds == {"outer": 10}


def test_functions_wear_the_clock_only_while_they_are_watched():
    class Worker:
        def work(self) -> int:
            return 7

    before = vars(Worker)["work"]
    clock = clock_at(0, 5)
    with watched(clock, [(Worker, "work", "working")]):
        assert Worker().work() == 7
    assert clock.seconds == {"working": 5}
    assert vars(Worker)["work"] is before
    assert Worker().work() == 7


def test_a_place_that_is_not_there_leaves_the_others_as_they_were():
    class Worker:
        def work(self) -> None: ...

    before = vars(Worker)["work"]
    places = [(Worker, "work", "working"), (Worker, "rest", "resting")]
    with pytest.raises(KeyError), watched(Clock(), places):
        pass
    assert vars(Worker)["work"] is before
