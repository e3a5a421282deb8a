"""Read what a process has used: CPU of all its threads, and resident memory."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int | None = None) -> float:
    """Return CPU seconds, user and system, of all threads of a process (None: this one).

    Reads the kernel's clock of that process, in ns, where /proc/PID/stat counts ticks of 10 ms.
    Raises ProcessLookupError when there is no such process.
    """
    if pid is None:
        return time.process_time()
    try:
        return time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid(3) computes it
    except OSError as error:
        raise ProcessLookupError(f"no process {pid}") from error


def rss_mb(pid: int | None = None) -> float:
    """Return the resident set of a process in MiB (None: this one)."""
    try:
        # Not a Path: it interns its parts, and what watches memory should leave none behind.
        with open(f"/proc/{pid or 'self'}/statm", encoding="ascii") as file:
            fields = file.read().split()
    except FileNotFoundError as error:
        raise ProcessLookupError(f"no process {pid}") from error
    return int(fields[1]) * _PAGE_BYTES / 2**20


def pin(cpu: int) -> None:
    """Bind this process, and what it starts, to one of the CPUs it may use now."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[cpu % len(allowed)]})


@dataclass(frozen=True, slots=True)
class UsageMeter:
    """Hold a point in time of this process; `spent` says what was used since."""

    cpu_at_s: float
    wall_at_s: float

    @classmethod
    def start(cls) -> UsageMeter:
        """Return a meter that stands at now."""
        return cls(cpu_s(), time.monotonic())

    def spent(self) -> dict[str, float]:
        """Return cpu_s, wall_s since the start, and rss_mb of now."""
        return {
            "cpu_s": cpu_s() - self.cpu_at_s,
            "wall_s": time.monotonic() - self.wall_at_s,
            "rss_mb": rss_mb(),
        }
