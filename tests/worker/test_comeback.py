"""A worker waits for the next process of a dead processor, but not for ever and not for nobody."""

from __future__ import annotations

from tests.conftest import Clock
from tokenpipe.worker.comeback import Comeback


def test_a_processor_that_never_lived_is_not_waited_for(clock: Clock) -> None:
    assert not Comeback(lambda: False, lambda: True, 30.0, clock)()


def test_a_dead_processor_is_waited_for_as_long_as_a_start_may_take(clock: Clock) -> None:
    living = {"processor", "engine"}
    comeback = Comeback(lambda: "processor" in living, lambda: "engine" in living, 30.0, clock)
    assert comeback()
    living.discard("processor")
    clock.advance(29.0)
    assert comeback()
    clock.advance(1.0)
    assert not comeback()
    living.add("processor")
    assert comeback()  # its next process: the time begins again
    living.discard("processor")
    clock.advance(29.0)
    assert comeback()
    living.discard("engine")  # nobody starts another
    assert not comeback()


def test_where_no_process_is_started_again_nobody_waits(clock: Clock) -> None:
    living = {"processor"}
    comeback = Comeback(lambda: "processor" in living, lambda: True, 0.0, clock)
    assert comeback()
    living.clear()
    assert not comeback()
