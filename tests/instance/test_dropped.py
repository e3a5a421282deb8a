"""What is let go without being closed gives its resources back, with a warning."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from tokenpipe.instance import when_dropped


class Owner:
    """Something with resources."""


def test_it_is_released_once_and_the_warning_says_what_it_was() -> None:
    released: list[int] = []
    owner = Owner()
    when_dropped(owner, "Client 3", lambda: released.append(1))
    assert released == []
    with pytest.warns(ResourceWarning, match=r"^Client 3 was collected without close\(\)$") as seen:
        del owner
    assert released == [1]
    assert seen[0].filename == __file__  # the line that let it go


def test_a_cycle_is_released_when_it_is_collected() -> None:
    released: list[int] = []
    owner = Owner()
    owner.me = owner  # type: ignore[attr-defined]
    when_dropped(owner, "Client 3", lambda: released.append(1))
    del owner
    with pytest.warns(ResourceWarning):
        gc.collect()
    assert released == [1]


def test_what_was_closed_is_not_released_again() -> None:
    released: list[int] = []
    owner = Owner()
    cancel = when_dropped(owner, "Client 3", lambda: released.append(1))
    cancel()
    cancel()
    del owner
    assert released == []


def test_a_fork_releases_nothing_of_its_parent() -> None:
    released: list[int] = []
    owner = Owner()
    cancel = when_dropped(owner, "Client 3", lambda: released.append(1))
    pid = os.fork()
    if pid == 0:
        del owner
        os._exit(len(released))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    cancel()


def test_the_end_of_the_interpreter_is_no_drop() -> None:
    program = """
from tokenpipe.instance import when_dropped
class Owner: pass
owner = Owner()
when_dropped(owner, "it", lambda: print("released"))
import builtins; builtins.kept = owner
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == done.stderr == ""
