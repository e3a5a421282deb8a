"""Describe the machine a figure was measured on, and keep the collector out of it."""

from __future__ import annotations

import gc
import os
import platform
from pathlib import Path


def describe() -> dict[str, str | int]:
    """Return CPU, cores, Python and its build: what a figure should never stand without."""
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "compiler": platform.python_compiler(),
        "kernel": platform.release(),
    }


def settle() -> None:
    """Collect once and freeze what is left, so that no figure holds a collection of imports."""
    gc.collect()
    gc.freeze()
