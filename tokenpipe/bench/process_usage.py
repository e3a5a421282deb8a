"""Read how much CPU time and memory a process has used."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int | None = None) -> float:
    """Return the CPU seconds, user and system, of all threads of a process (None: this one).

    The value is the kernel's clock of the process, in ns. /proc/PID/stat counts in steps of 10 ms.
    Raises ProcessLookupError if there is no such process.
    """
    if pid is None:
        return time.process_time()
    try:
        return time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid(3) computes it
    except OSError as error:
        raise ProcessLookupError(f"no process {pid}") from error


def rss_mb(pid: int | None = None) -> float:
    """Return the resident memory of a process (None: this one), in MiB.

    Raises ProcessLookupError if there is no such process.
    """
    try:
        # A Path would intern its parts, and so grow the memory that the caller watches.
        with open(f"/proc/{pid or 'self'}/statm", encoding="ascii") as file:
            fields = file.read().split()
    except FileNotFoundError as error:
        raise ProcessLookupError(f"no process {pid}") from error
    return int(fields[1]) * _PAGE_BYTES / 2**20


def pin(cpu: int) -> None:
    """Bind this process, and the children it starts, to one of the CPUs that it may use now."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[cpu % len(allowed)]})


@dataclass(frozen=True, slots=True)
class UsageMeter:
    """The usage of this process at one point in time; `spent` returns the usage since then."""

    cpu_at_s: float
    wall_at_s: float

    @classmethod
    def start(cls) -> UsageMeter:
        """Return a meter that begins now."""
        return cls(cpu_s(), time.monotonic())

    def spent(self) -> dict[str, float]:
        """Return cpu_s and wall_s since the start, and rss_mb now."""
        return {
            "cpu_s": cpu_s() - self.cpu_at_s,
            "wall_s": time.monotonic() - self.wall_at_s,
            "rss_mb": rss_mb(),
        }
