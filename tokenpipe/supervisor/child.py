"""Start one child process by exec, and notice its end. Decides nothing."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
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
    """Describes a child: it runs `python -m module *args` with this environment plus `env`.

    The child inherits the descriptors `fds` under their own numbers. The child is ready when
    `processes` processes (itself or forks of it) have sent `ready`.
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
        """Role and rank: `worker 0.1`. The name stays the same after a restart."""
        return f"{self.role} {self.rank}"


class Died(NamedTuple):
    """A child that ended. `returncode` is negative for a signal, as in subprocess."""

    child: Child
    returncode: int
    log_tail: str

    @property
    def how(self) -> str:
        """How the child ended: `ended with exit code 3`, `died by SIGKILL`, or why it was killed.

        The text is the end of a sentence whose subject is the child.
        """
        if self.returncode >= 0:
            return f"ended with exit code {self.returncode}"
        if self.child.kill_reason and self.returncode == -signal.SIGKILL:
            return f"was killed, because {self.child.kill_reason}"
        return f"died by {_SIGNALS.get(-self.returncode, f'signal {-self.returncode}')}"

    @property
    def explanation(self) -> str:
        """The failure that the child sent, or the end of its log if it sent none."""
        if self.child.notify.failure.strip():
            return f"it reported:\n{self.child.notify.failure}"
        return f"its log ends:\n{self.log_tail}" if self.log_tail.strip() else "its log is empty"

    def __str__(self) -> str:
        return f"{self.child} {self.how}; {self.explanation}"


class Child:
    """A started process. It has a session of its own, so a Ctrl-C in the terminal misses it."""

    def __init__(self, spec: ChildSpec, log_path: Path, now: float) -> None:
        self.spec = spec
        self.started = now
        self.died: Died | None = None
        self.kill_reason = ""
        self._log = ChildLog(log_path)
        with ExitStack() as undoing:
            self.notify = NotifyReader(now)
            undoing.callback(self.notify.close)
            self._death_pipe = DeathPipe()
            undoing.callback(self._death_pipe.close)
            self._process = process = self._start()
            undoing.callback(process.wait)
            undoing.callback(process.kill)
            self.pid = process.pid
            self.pidfd = os.pidfd_open(self.pid)
            self._death_pipe.arm(self.pid)
            self.notify.started()
            undoing.pop_all()

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
        """The file with the child's stdout and stderr."""
        return self._log.path

    def log_tail(self) -> str:
        """Return the last lines that this process wrote, or why they cannot be read."""
        return self._log.tail()

    def missing(self) -> str | None:
        """Return the phase of the child's start, None once the child is ready."""
        ready, wanted = len(self.notify.ready), self.spec.processes
        if ready >= wanted:
            return None
        return f"{self.notify.phase} ({ready} of {wanted} ready)" if ready else self.notify.phase

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. A signal to a dead child is dropped."""
        if self.died is None:
            with suppress(ProcessLookupError):  # other code in this process waited for the child
                signal.pidfd_send_signal(self.pidfd, number)

    def kill(self, reason: str) -> None:
        """Kill the child. The report of its death gives this reason."""
        self.kill_reason = self.kill_reason or reason
        self.signal(signal.SIGKILL)

    def kill_fork(self, pid: int) -> None:
        """Kill a process that the child forked."""
        with suppress(ProcessLookupError):
            if os.getsid(pid) == self.pid:  # else a foreign process has the number by now
                os.kill(pid, signal.SIGKILL)

    def reap(self) -> Died | None:
        """Return how the child ended, None while it lives. Kill the rest of its process group."""
        if self.died is None and self._ended():
            # The dead leader still holds the group's number: no other group can have it.
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.died = Died(self, self._process.wait(), self.log_tail())
            self.notify.read(self.started)  # the last notifications
            self.notify.close()
            self._death_pipe.close()
            os.close(self.pidfd)
        return self.died

    def wait_end(self) -> None:
        """Wait for the end of a killed child, and release what belongs to it."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        poll.poll()
        self.reap()

    def _ended(self) -> bool:
        try:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PIDFD, self.pidfd, flags) is not None
        except ChildProcessError:  # other code in this process waited for the child
            return True


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return this environment plus `extra`; the child imports the same tokenpipe."""
    here = str(Path(__file__).parents[2])
    environment = {**os.environ, **extra}
    paths = [here, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    environment.setdefault("PYTHONUNBUFFERED", "1")  # the log must have the last lines of a crash
    environment.setdefault("PYTHONFAULTHANDLER", "1")
    return environment
