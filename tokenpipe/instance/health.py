"""Write the health of an instance into its directory; read it in any process.

The engine's process writes it several times a second and whenever something changes, so an old one
says that the engine itself is stuck, or that its file system is full.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .atomic_write import remove_whole, write_whole
from .sweep import HEALTH_FILE

HEALTH_S = 0.25  # between two writes while nothing changes


@dataclass(frozen=True, slots=True)
class Health:
    """The health of an instance. `problems` maps each unhealthy process to the reason."""

    problems: Mapping[str, str] = field(default_factory=dict)
    ranks_up: tuple[int, ...] = ()
    running: int = 0
    waiting: int = 0


class HealthWriter:
    """Writes the health file, in the engine's process."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / HEALTH_FILE
        self._last: Health | None = None
        self._due = float("-inf")

    def write(self, health: Health, now: float) -> None:
        """Write the file if it is due, or if a problem came or went.

        OSError if it cannot be written: the next call tries again, whatever is due.
        """
        last = self._last
        news = last is None or (last.problems, last.ranks_up) != (health.problems, health.ranks_up)
        if not news and now < self._due:
            return
        self._last = None
        text = json.dumps({"time": time.monotonic(), **asdict(health)})
        write_whole(self._path, text)
        self._last, self._due = health, now + HEALTH_S

    def close(self) -> None:
        """Remove the file. Raises OSError if it stays."""
        remove_whole(self._path)


def read_health(directory: Path, stuck_s: float) -> Health:
    """Return the health. An engine that has not written it for `stuck_s` is itself a problem."""
    try:
        raw = json.loads((directory / HEALTH_FILE).read_text())
    except FileNotFoundError:
        return Health({"engine 0": "is not there, or cannot write its status"})
    except OSError as error:
        return Health({"engine 0": f"its status cannot be read: {error.strerror}"})
    age = time.monotonic() - raw["time"]
    if age > stuck_s:
        said = "its status is that old: it is stuck, or cannot write it, as its log would say"
        return Health({"engine 0": f"no sign of life for {age:.0f} s ({said})"})
    return Health(raw["problems"], tuple(raw["ranks_up"]), raw["running"], raw["waiting"])
