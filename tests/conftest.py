"""What every test may use, and what none may leave behind."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Deadlines per example only measure how busy the machine is.
settings.register_profile("quick", deadline=None, max_examples=100)
settings.register_profile("soak", deadline=None, max_examples=3000)
settings.load_profile(os.environ.get("TOKENPIPE_HYPOTHESIS", "quick"))

# A shell ignores SIGINT for what it starts in the background, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SETTLE_S = 15.0  # a deadline: libzmq closes sockets in its own thread, late on a busy machine


class Clock:
    """A clock that one moves: call it for the time, `advance` it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        self.now += seconds
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def runtime_dir() -> Iterator[Path]:
    """Give a directory with a short path for instances; fails if one of them leaves anything."""
    with tempfile.TemporaryDirectory(prefix="tp-") as base:
        yield Path(base)
        left = sorted(str(path.relative_to(base)) for path in Path(base).rglob("*"))
        assert not left, f"left in the runtime directory: {left}"


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory with a short name: a socket's path may have 107 bytes, pytest's are long."""
    path = Path(tempfile.mkdtemp(prefix="tp"))
    yield path
    shutil.rmtree(path)


def eventually(fact: Callable[[], object], timeout_s: float = 10.0) -> bool:
    """Wait for a fact with a deadline; returns whether it came."""
    deadline = time.monotonic() + timeout_s
    while not fact():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a process, a thread, a socket or an open file."""
    before = _holdings()
    yield
    eventually(lambda: _holdings() <= before, SETTLE_S)
    left = sorted(_holdings() - before)
    assert not left, f"left behind: {left}\n{_unix_sockets(left)}"


def _holdings() -> set[str]:
    held = {f"child process {pid}" for pid in _children()}
    held |= {f"thread {t.name} {t.ident}" for t in threading.enumerate()}
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # the descriptor that listed the directory
            continue
        # libzmq's context and numpy keep event descriptors and devices: those are per process.
        if not target.startswith(("anon_inode:", "/dev/", "/proc/")):
            held.add(f"fd {fd} {target}")
    return held


def _unix_sockets(left: list[str]) -> str:
    """Return the kernel's lines of the sockets among what was left: state and path."""
    inodes = {what.split("socket:[")[1].rstrip("]") for what in left if "socket:[" in what}
    with open("/proc/net/unix") as table:
        return "".join(line for line in table if line.split()[6:7][0] in inodes)


def _children() -> list[str]:
    pids: list[str] = []
    for task in os.listdir("/proc/self/task"):
        try:
            pids += Path(f"/proc/self/task/{task}/children").read_text().split()
        except FileNotFoundError:  # a thread that has just ended
            continue
    return pids
