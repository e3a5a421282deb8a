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

from .death_pipe import DeathPipe
from .notify_reader import NotifyReader

TAIL_BYTES = 4096
TAIL_LINES = 20
_SIGNALS = {number.value: number.name for number in signal.Signals}


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run: `python -m module *args`, with `env` on top of our environment.

    `fds` are descriptors that it inherits under their own numbers. It is ready when as many of its
    processes (itself, or forks of it) have said so as `processes`.
    """

    role: str
    rank: str
    module: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    fds: tuple[int, ...] = ()
    processes: int = 1


class Died(NamedTuple):
    """A child that ended. `returncode` is negative for a signal, as in subprocess."""

    child: Child
    returncode: int
    log_tail: str

    @property
    def reason(self) -> str:
        """Say how it ended: `exit code 3` or `signal SIGKILL`."""
        if self.returncode >= 0:
            return f"exit code {self.returncode}"
        return f"signal {_SIGNALS.get(-self.returncode, -self.returncode)}"

    def __str__(self) -> str:
        words = self.child.notify.failure or self.log_tail
        tail = f"; its last words:\n{words}" if words.strip() else "; it left no word"
        return f"{self.child} ended with {self.reason}{tail}"


class Child:
    """A started process, in a session of its own: a Ctrl-C on our terminal is not sent to it."""

    def __init__(self, spec: ChildSpec, log_path: Path, now: float) -> None:
        self.spec = spec
        self.log_path = log_path
        self.started = now
        self.died: Died | None = None
        self.notify = NotifyReader(now)
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
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        log = os.open(self.log_path, flags | os.O_NOFOLLOW, 0o600)
        try:
            self._log_start = os.fstat(log).st_size  # an earlier life may have written before
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
        return f"{self.spec.role} {self.spec.rank} (pid {self.pid})"

    def missing(self) -> str | None:
        """Return the phase that it is in on the way to ready, None once it is there."""
        ready, wanted = len(self.notify.ready), self.spec.processes
        if ready >= wanted:
            return None
        return f"{self.notify.phase} ({ready} of {wanted} ready)" if ready else self.notify.phase

    def silence(self, now: float) -> float:
        """Return seconds since the last sign of life of its most silent process, from ready on."""
        return max((now - beat for beat in self.notify.last_sign.values()), default=0.0)

    def kill_silent(self, now: float, after_s: float) -> None:
        """Kill those of its processes that gave no sign of life for so long, itself or forks."""
        for pid, beat in self.notify.last_sign.items():
            if now - beat <= after_s:
                continue
            if pid == self.pid:
                self.signal(signal.SIGKILL)
                continue
            with suppress(ProcessLookupError):
                if os.getsid(pid) == self.pid:  # else the number is somebody else's by now
                    os.kill(pid, signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; one to a dead child is dropped."""
        if self.died is None:
            with suppress(ProcessLookupError):  # reaped by somebody else's wait
                signal.pidfd_send_signal(self.pidfd, number)

    def reap(self) -> Died | None:
        """Return how it ended, None while it lives; takes what it left in its session with it."""
        if self.died is None and self._ended():
            # The dead leader still holds the group's number, so this can hit nobody else.
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.died = Died(self, self._process.wait(), self.log_tail())
            self.notify.read(self.started)  # its last words
            self.notify.close()
            self._death_pipe.close()
            os.close(self.pidfd)
        return self.died

    def log_tail(self) -> str:
        """Return the last lines this life has written, or why they cannot be read."""
        try:
            with open(self.log_path, "rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - TAIL_BYTES))
                text = log.read().decode("utf-8", "replace")
        except FileNotFoundError:  # somebody rotates logs, or cleans up: no reason to lose a death
            return "(its log is gone)"
        except OSError as error:
            return f"(its log cannot be read: {error.strerror})"
        return "\n".join(text.splitlines()[-TAIL_LINES:])

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
