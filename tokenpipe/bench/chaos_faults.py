"""Do each kind of fault to real processes and files, and undo those that last."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import zmq

from .chaos_plan import FaultKind, PlannedFault

SLOW_TURN_S = 0.02  # a slow process runs and stands still by turns of this length
Undo = Callable[[], None]


class Victims(Protocol):
    """The processes and the directory of a run, as they are now."""

    @property
    def workers(self) -> Sequence[int]:
        """Process ids of the living workers."""

    @property
    def processors(self) -> Sequence[int]:
        """Process ids of the living processors."""

    @property
    def clients(self) -> Sequence[int]:
        """Process ids of the living clients."""

    @property
    def directory(self) -> Path:
        """The instance's directory."""


def begin(fault: PlannedFault, victims: Victims) -> Undo:
    """Do a fault; return the function that undoes it. A process that is gone is no error."""
    return _ACTS[fault.kind](victims, random.Random(fault.seed))


def slow_turn(pid: int, running: bool) -> None:
    """Let a slow process run, or stop it, for one turn."""
    _signal(pid, signal.SIGCONT if running else signal.SIGSTOP)


def target(fault: PlannedFault, victims: Victims) -> int | None:
    """Return the process that a fault of this seed chooses; None if there is none."""
    pids = victims.processors if "processor" in fault.kind.value else victims.workers
    return _choose(pids, random.Random(fault.seed))


def _nothing() -> None:
    """Undo a fault that does not last."""


def _choose(pids: Sequence[int], choices: random.Random) -> int | None:
    return choices.choice(list(pids)) if pids else None


def _signal(pid: int | None, number: int) -> None:
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _kill(pids: Sequence[int | None]) -> Undo:
    for pid in pids:
        _signal(pid, signal.SIGKILL)
    return _nothing


def _stop(pid: int | None) -> Undo:
    _signal(pid, signal.SIGSTOP)
    return lambda: _signal(pid, signal.SIGCONT)


def _remove(paths: Sequence[Path]) -> Undo:
    for path in paths:
        path.unlink(missing_ok=True)
    return _nothing


def _sockets(directory: Path) -> list[Path]:
    with suppress(FileNotFoundError):
        return sorted(path for path in directory.iterdir() if path.is_socket())
    return []


def _remove_directory(directory: Path) -> Undo:
    shutil.rmtree(directory, ignore_errors=True)
    return _nothing


def _limit(pid: int | None, which: int, value: int) -> Undo:
    """Set the soft limit of another process."""
    if pid is None:
        return _nothing
    try:
        before = resource.prlimit(pid, which)
        resource.prlimit(pid, which, (value, before[1]))
    except ProcessLookupError:
        return _nothing

    def undo() -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(pid, which, before)

    return undo


def _no_descriptors(pid: int | None) -> Undo:
    """Leave a process no descriptor above those that it has."""
    try:
        used = max(map(int, os.listdir(f"/proc/{pid}/fd")), default=0) + 1
    except FileNotFoundError:
        return _nothing
    return _limit(pid, resource.RLIMIT_NOFILE, used)


def _send(directory: Path, choices: random.Random, parts: int) -> Undo:
    """Send bytes that are no frame, or messages of several parts, to each socket."""
    context = zmq.Context()
    context.max_sockets = 1024
    try:
        for path in _sockets(directory):
            socket = context.socket(zmq.DEALER)
            socket.set(zmq.LINGER, 200)
            socket.connect(f"ipc://{path}")
            for _ in range(4):
                message = [choices.randbytes(choices.randrange(1, 200)) for _ in range(parts)]
                with suppress(zmq.Again):
                    socket.send_multipart(message, zmq.DONTWAIT)
            socket.close()
    finally:
        context.term()
    return _nothing


_ACTS: dict[FaultKind, Callable[[Victims, random.Random], Undo]] = {
    FaultKind.KILL_WORKER: lambda v, r: _kill([_choose(v.workers, r)]),
    FaultKind.KILL_ALL_WORKERS: lambda v, _: _kill(v.workers),
    FaultKind.KILL_PROCESSOR: lambda v, r: _kill([_choose(v.processors, r)]),
    FaultKind.STOP_WORKER: lambda v, r: _stop(_choose(v.workers, r)),
    FaultKind.STOP_PROCESSOR: lambda v, r: _stop(_choose(v.processors, r)),
    FaultKind.STOP_CLIENT: lambda v, r: _stop(_choose(v.clients, r)),
    FaultKind.SLOW_WORKER: lambda v, r: _stop(_choose(v.workers, r)),
    FaultKind.SLOW_PROCESSOR: lambda v, r: _stop(_choose(v.processors, r)),
    FaultKind.REMOVE_LOCKS: lambda v, _: _remove(sorted(v.directory.glob("*.lock"))),
    FaultKind.REMOVE_SOCKETS: lambda v, _: _remove(_sockets(v.directory)),
    FaultKind.REMOVE_INSTANCE_FILE: lambda v, _: _remove([v.directory / "instance.json"]),
    FaultKind.REMOVE_DIRECTORY: lambda v, _: _remove_directory(v.directory),
    FaultKind.NO_DESCRIPTORS: lambda v, r: _no_descriptors(_choose([*v.workers, *v.processors], r)),
    FaultKind.NO_DISK: lambda v, r: _limit(
        _choose([*v.workers, *v.processors], r), resource.RLIMIT_FSIZE, 0
    ),
    FaultKind.BAD_FRAMES: lambda v, r: _send(v.directory, r, 1),
    FaultKind.MORE_PARTS: lambda v, r: _send(v.directory, r, 3),
}
