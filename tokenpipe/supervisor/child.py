"""One child process: its start by exec, its log file, its end. No policy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tokenpipe.notify import NOTIFY_VARIABLE

from .child_log import ChildLog
from .death_pipe import DeathPipe
from .notify_reader import NotifyReader

_SIGNALS = {number.value: number.name for number in signal.Signals}


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run: `python -m module *args`, with `env` on top of our environment.

    The child inherits the descriptors `fds` under their own numbers. It is ready when as many of
    its processes (itself, or forks of it) have said so as `processes`.
    """

    role: str
    rank: str
    module: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    fds: tuple[int, ...] = ()
    processes: int = 1

    @property
    def name(self) -> str:
        """Role and rank: `worker 0.1`. A child that is started again keeps it."""
        return f"{self.role} {self.rank}"


class Died(NamedTuple):
    """A child that ended. `returncode` is negative for a signal, as in subprocess."""

    child: Child
    returncode: int
    log_tail: str

    @property
    def how(self) -> str:
        """Say how it ended: `ended with exit code 3`, `died by SIGKILL`, or why we killed it."""
        if self.returncode >= 0:
            return f"ended with exit code {self.returncode}"
        if self.child.kill_reason and self.returncode == -signal.SIGKILL:
            return f"was killed, because {self.child.kill_reason}"
        return f"died by {_SIGNALS.get(-self.returncode, f'signal {-self.returncode}')}"

    @property
    def last_words(self) -> str:
        """Say why it ended in the child's own words; else quote the end of its log."""
        if self.child.notify.failure.strip():
            return f"it said:\n{self.child.notify.failure}"
        return f"its log ends:\n{self.log_tail}" if self.log_tail.strip() else "its log is empty"

    def __str__(self) -> str:
        return f"{self.child} {self.how}; {self.last_words}"


class Child:
    """A started process, in a session of its own: a Ctrl-C on our terminal is not sent to it."""

    def __init__(self, spec: ChildSpec, log_path: Path, now: float) -> None:
        self.spec = spec
        self.started = now
        self.died: Died | None = None
        self.kill_reason = ""
        self.notify = NotifyReader(now)
        self._log = ChildLog(log_path)
        self._death_pipe = DeathPipe()
        try:
            self._process = self._start()
        except BaseException:
            self._death_pipe.close()
            self.notify.close()
            raise
        self.notify.started()
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)
        self._death_pipe.arm(self.pid)

    def _start(self) -> subprocess.Popen[bytes]:
        log = self._log.open()
        try:
            return subprocess.Popen(
                [sys.executable, "-m", self.spec.module, *self.spec.args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **_environment(self.spec.env),
                    NOTIFY_VARIABLE: str(self.notify.child_fd),
                },
                pass_fds=(self._death_pipe.child_fd, self.notify.child_fd, *self.spec.fds),
                start_new_session=True,
            )
        finally:
            os.close(log)

    def __str__(self) -> str:
        return f"{self.spec.name} (pid {self.pid})"

    @property
    def log_path(self) -> Path:
        """The file that its stdout and stderr go to."""
        return self._log.path

    def log_tail(self) -> str:
        """Return the last lines that this life has written, or why they cannot be read."""
        return self._log.tail()

    def missing(self) -> str | None:
        """Return the phase that it is in on the way to ready, None once it is there."""
        ready, wanted = len(self.notify.ready), self.spec.processes
        if ready >= wanted:
            return None
        return f"{self.notify.phase} ({ready} of {wanted} ready)" if ready else self.notify.phase

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; one to a dead child is dropped."""
        if self.died is None:
            with suppress(ProcessLookupError):  # reaped by somebody else's wait
                signal.pidfd_send_signal(self.pidfd, number)

    def kill(self, reason: str) -> None:
        """Kill it; its death is then reported with this reason."""
        self.kill_reason = self.kill_reason or reason
        self.signal(signal.SIGKILL)

    def kill_fork(self, pid: int) -> None:
        """Kill a process that was forked from it."""
        with suppress(ProcessLookupError):
            if os.getsid(pid) == self.pid:  # else the number is somebody else's by now
                os.kill(pid, signal.SIGKILL)

    def reap(self) -> Died | None:
        """Return how it ended, None while it lives; what it left in its session is killed."""
        if self.died is None and self._ended():
            # The dead leader still holds the group's number, so this can hit nobody else.
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.died = Died(self, self._process.wait(), self.log_tail())
            self.notify.read(self.started)  # what it said last
            self.notify.close()
            self._death_pipe.close()
            os.close(self.pidfd)
        return self.died

    def _ended(self) -> bool:
        try:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PIDFD, self.pidfd, flags) is not None
        except ChildProcessError:  # somebody else in this process has waited for it
            return True


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return ours plus `extra`, such that the child imports this very tokenpipe."""
    here = str(Path(__file__).parents[2])
    environment = {**os.environ, **extra}
    paths = [here, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    environment.setdefault("PYTHONUNBUFFERED", "1")  # the tail of a crash must be in the log
    environment.setdefault("PYTHONFAULTHANDLER", "1")
    return environment
