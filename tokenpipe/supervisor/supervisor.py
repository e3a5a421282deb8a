"""Start children, wait until they are ready, notice deaths, stop them all."""

from __future__ import annotations

import errno
import os
import select
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from signal import SIGKILL, SIGTERM
from types import TracebackType
from typing import Any

from typing_extensions import Self

from tokenpipe.errors import ConfigError, ForkError, StartupError

from .child import Child, ChildSpec, Died
from .child_log import make_log_dir
from .startup_report import startup_report

READY_POLL_S = 0.05
FROZEN_S = 3.0  # a step of a wait that takes longer does not count
PUMP_PAUSE_S = 0.005  # if `pump` returns at once, this pause prevents a busy loop


class Supervisor:
    """Owns the children that it starts. Use it from one thread, in the process that made it.

    A loop of your own can wait on `fileno()`. It is readable from a death on,
    until `poll` returns the death.
    """

    def __init__(
        self,
        log_dir: Path,
        *,
        keep_logs: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make `log_dir` if it is missing. Without `keep_logs`, `close` removes the logs.

        Raises ConfigError if `log_dir` cannot be made.
        """
        _check_kernel()
        try:
            log_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"log_dir {log_dir}: {error.strerror}") from None
        self.log_dir = log_dir
        self._keep_logs = keep_logs
        self._clock = clock
        self._pid = os.getpid()
        self._living: dict[int, Child] = {}  # by pidfd
        self._unreported: list[Died] = []
        self._logs: set[Path] = set()
        self._epoll = select.epoll()
        self._keep = weakref.finalize(self, _dropped, self._pid, self._living, self._epoll)
        self._keep.atexit = False

    @property
    def living(self) -> tuple[Child, ...]:
        """The children whose death was not noticed yet, in the order of their start."""
        return tuple(self._living.values())

    def start(self, spec: ChildSpec) -> Child:
        """Start a child and return before it is ready. StartupError if it cannot be started."""
        self._check("start")
        log_path = self.log_dir / f"{spec.role}-{spec.rank}.log"
        try:
            make_log_dir(self.log_dir)
            child = Child(spec, log_path, self._clock())
        except OSError as error:
            raise StartupError(f"{spec.role} {spec.rank} cannot be started: {error}") from error
        self._logs.add(log_path)
        self._living[child.pidfd] = child
        self._epoll.register(child.pidfd, select.EPOLLIN)
        return child

    def fileno(self) -> int:
        """Return a descriptor that is readable from a child's death until `poll` returns it."""
        return self._epoll.fileno()

    def poll(self, timeout_s: float = 0.0) -> list[Died]:
        """Return the deaths since the last call, each once. Wait for one up to `timeout_s`."""
        self._check("poll")
        self._collect(0.0 if self._unreported else timeout_s)
        died, self._unreported = self._unreported, []
        return died

    def read_notifications(self) -> float:
        """Read the notifications of all living children. Return the time of the reading."""
        now = self._clock()
        for child in self._living.values():
            child.notify.read(now)
        return now

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return the facts that each living child has sent until now, by the child's rank."""
        self.read_notifications()
        return {child.spec.rank: dict(child.notify.facts) for child in self._living.values()}

    def wait_ready(
        self,
        pending: Mapping[Child, Callable[[], str | None]],
        timeout_s: float,
        pump: Callable[[float], object] | None = None,
    ) -> None:
        """Wait until all children are ready: until every predicate returns None.

        A predicate returns the phase that is missing. For a child with a Notifier use
        `child.missing`. `pump(seconds)` waits for work that children need to become ready, and
        does this work. Without a pump the predicates are called every 50 ms. Raises StartupError,
        which names the child that died first, or all children that missed the deadline.
        """
        self._check("wait_ready")
        before = self._clock()
        deadline = before + timeout_s
        while True:
            now = self._clock()
            if now - before > FROZEN_S:  # this process did not run, and perhaps no child did
                deadline += now - before
            before = now
            # Deaths are read before notifications: a child that was ready and died is not ready.
            self._collect(0.0)
            self.read_notifications()
            missing = {child: child_missing() for child, child_missing in pending.items()}
            for child, phase in missing.items():
                if child.died is not None:
                    raise StartupError(startup_report(child, child.died.how, phase, self._clock()))
            waiting = {child: phase for child, phase in missing.items() if phase is not None}
            if not waiting:
                return
            left = deadline - self._clock()
            if left <= 0:
                what, now = f"not ready after {timeout_s:g} s", self._clock()
                late = [startup_report(child, what, phase, now) for child, phase in waiting.items()]
                raise StartupError("\n".join(late))
            if pump is None:
                self._collect(min(left, READY_POLL_S))
            else:
                pump(min(left, READY_POLL_S))

    def stop(
        self,
        timeout_s: float,
        children: Iterable[Child] | None = None,
        pump: Callable[[float], object] | None = None,
    ) -> list[Died]:
        """Send SIGTERM, at the deadline SIGKILL, and reap. Without `children` stop all of them.

        `pump(seconds)` waits for messages that the children still send to this process, and
        answers them. Return how each child ended; `poll` does not report these deaths again.
        """
        self._check("stop")
        chosen = self.living if children is None else children
        stopping = [child for child in chosen if child.died is None]
        for child in stopping:
            child.signal(SIGTERM)
        self._await_end(stopping, self._clock() + timeout_s, pump)
        for child in stopping:
            child.signal(SIGKILL)
        self._await_end(stopping, None, None)
        ended = [child.died for child in stopping if child.died is not None]
        self._unreported = [died for died in self._unreported if died not in ended]
        return ended

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop all children and close all descriptors. A second call does nothing."""
        self._check("close")
        if self._epoll.closed:
            return
        self._keep.detach()
        self.stop(timeout_s)
        self._epoll.close()
        if not self._keep_logs:
            for path in self._logs:
                path.unlink(missing_ok=True)
            if self.log_dir.is_dir() and not any(self.log_dir.iterdir()):
                self.log_dir.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except ForkError:  # a forked child leaves the block of its parent
            if error is None:
                raise

    def _collect(self, timeout_s: float) -> None:
        for fd, _ in self._epoll.poll(timeout_s):
            child = self._living.pop(fd)
            self._epoll.unregister(fd)
            died = child.reap()
            assert died is not None, f"{child} is readable and not dead"
            self._unreported.append(died)

    def _await_end(
        self,
        children: list[Child],
        deadline: float | None,
        pump: Callable[[float], object] | None,
    ) -> None:
        while any(child.died is None for child in children):
            left = 60.0 if deadline is None else deadline - self._clock()
            if left <= 0:
                return
            if pump is None:
                self._collect(left)
            else:
                pump(min(left, READY_POLL_S))
                self._collect(min(left, PUMP_PAUSE_S))

    def _check(self, what: str) -> None:
        if os.getpid() != self._pid:
            raise ForkError(
                f"Supervisor.{what}: made in process {self._pid}, used in {os.getpid()}"
            )


def _dropped(pid: int, living: dict[int, Child], epoll: select.epoll) -> None:
    """Kill the children of a Supervisor that was collected, and close its descriptors."""
    if pid != os.getpid():
        return
    names = ", ".join(str(child) for child in living.values()) or "no child"
    for child in living.values():
        child.signal(SIGKILL)
        child.wait_end()
    living.clear()
    epoll.close()
    what = f"Supervisor with {names} was collected without close()"
    warnings.warn(what, ResourceWarning, stacklevel=2)


def _check_kernel() -> None:
    """Raise ConfigError if the kernel has no pidfds."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        raise ConfigError(
            f"tokenpipe needs pidfd_open: Linux 5.4 or later, and a sandbox that allows it; this "
            f"kernel is {os.uname().release}"
        ) from None
