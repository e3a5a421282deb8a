"""Describe the machine on which a figure was measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, Any]:
    """Return the CPU, its usable cores, the kernel and the Python build as plain values."""
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "python_build": " ".join(platform.python_build()),
        "compiler": platform.python_compiler(),
        "kernel": platform.release(),
    }
