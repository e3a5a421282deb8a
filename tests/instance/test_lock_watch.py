"""A peer's life is asked of the open file of its lock. No path and no shortage decides it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.instance.test_role_lock import HOLD
from tests.transport.child import child, line
from tokenpipe.instance import Instance
from tokenpipe.instance.lock_watch import LockWatch
from tokenpipe.instance.names import lock_name
from tokenpipe.instance.role_lock import take

PROBE = """
import sys
from tokenpipe.instance import Instance
print(Instance.attach(sys.argv[1]).alive("worker", "0.0"))
"""


@pytest.fixture
def owner(base: Path) -> Iterator[Instance]:
    made = Instance.create(base, None, {})
    yield made
    made.close()


@contextmanager
def no_descriptors(spare: int = 0) -> Iterator[None]:
    """Let this process open no further file, or only `spare` further ones."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, highest + 16), hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.dup(0))
        for _ in range(spare):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


@pytest.mark.case("F02")
@pytest.mark.parametrize("seen_before", [True, False])
def test_without_descriptors_a_peer_stays_alive_and_a_death_is_seen(
    owner: Instance, seen_before: bool
) -> None:
    with child(HOLD, owner.directory) as other:
        assert line(other) == "held"
        if seen_before:
            assert owner.alive("worker", "0.0")
        with no_descriptors():
            assert owner.alive("worker", "0.0")
            if seen_before:
                other.kill()
                other.wait()
                assert not owner.alive("worker", "0.0")
        other.kill()
        other.wait()
        assert not owner.alive("worker", "0.0")


def test_a_removed_file_is_no_death_and_the_next_holder_is_found(owner: Instance) -> None:
    with child(HOLD, owner.directory) as other:
        assert line(other) == "held" and owner.alive("worker", "0.0")
        (owner.directory / "worker0.0.lock").unlink()
        assert owner.alive("worker", "0.0")
        other.kill()
        other.wait()
        assert not owner.alive("worker", "0.0")
    with child(HOLD, owner.directory) as other:
        assert line(other) == "held"
        assert owner.alive("worker", "0.0")


def test_a_holder_in_another_instance_of_the_same_name_does_not_count(owner: Instance) -> None:
    watch = LockWatch(owner.directory / "worker0.0.lock", owner.id + 2)
    with child(HOLD, owner.directory) as other:
        assert line(other) == "held"
        assert owner.alive("worker", "0.0") and not watch.alive()
    with owner_of(owner, owner.id + 2):
        assert watch.alive() and not owner.alive("worker", "0.0")


@contextmanager
def owner_of(instance: Instance, number: int) -> Iterator[None]:
    lock = take(instance.directory / lock_name("worker", "0.0"), "", number)
    yield
    lock.release()


def test_a_watch_that_is_closed_does_not_drop_a_lock_of_its_own_process(owner: Instance) -> None:
    """POSIX drops a process's locks on a file when the process closes any descriptor of it."""
    watch = LockWatch(owner.directory / "worker0.0.lock", owner.id)
    with child(HOLD, owner.directory) as other:
        assert line(other) == "held"
        assert watch.alive()
    mine = owner.claim("worker", "0.0")
    watch.close()
    with child(PROBE, owner.directory) as other:
        assert line(other) == "True"
    mine.release()
    assert not owner.alive("worker", "0.0")
