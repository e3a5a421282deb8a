"""An object belongs to the process that made it."""

from __future__ import annotations

import os

import pytest

from tokenpipe.errors import ForkError
from tokenpipe.instance import ForkGuard, close_at_exit
from tokenpipe.instance.guard import current_process


@pytest.mark.case("B04")
def test_the_guard_names_both_processes() -> None:
    guard = ForkGuard()
    guard.check("Publisher")
    pid = os.fork()
    if pid == 0:
        try:
            guard.check("Publisher")
        except ForkError as error:
            said = f"Publisher was made in process {os.getppid()}" in str(error)
            os._exit(0 if said else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_process_knows_itself_and_so_does_its_fork() -> None:
    assert current_process() == os.getpid()
    pid = os.fork()
    if pid == 0:
        guard = ForkGuard()
        guard.check("Publisher")  # its own
        os._exit(0 if current_process() == os.getpid() == guard.pid else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert current_process() == os.getpid()


@pytest.mark.case("F28")
def test_an_error_that_leaves_the_parents_block_goes_on() -> None:
    def close() -> None:
        raise ForkError("made elsewhere")

    close_at_exit(close, SystemExit(0))
    with pytest.raises(ForkError, match="made elsewhere"):
        close_at_exit(close, None)
    with pytest.raises(ValueError, match="other"):
        close_at_exit(lambda: int("other"), SystemExit(0))
