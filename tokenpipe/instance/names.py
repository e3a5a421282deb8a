"""Name lanes, roles and directories. Both ends of a lane and all tools use these functions."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tokenpipe.errors import ConfigError

MAX_PATH_BYTES = 107  # sun_path is 108 bytes with its final zero (unix(7))
USUAL_LANE = "w99.99"  # the longest usual name of a lane: a directory must leave room for it

_KINDS = {
    "worker": ("w", 2),
    "command": ("c", 1),
    "report": ("e", 1),
    "submit": ("s", 1),
    "output": ("o", 2),
    "own_output": ("o-.", 1),
    "step": ("x", 2),
}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_ROLE = re.compile(r"[a-z]+\Z")
_RANK = re.compile(r"[a-z0-9.-]*\Z")


def lane_name(kind: str, a: int, b: int = 0) -> str:
    """Return the name of a lane, different for each (kind, a, b). Raises ConfigError."""
    try:
        letter, numbers = _KINDS[kind]
    except KeyError:
        raise ConfigError(f"no lane of kind {kind!r}; there are {', '.join(_KINDS)}") from None
    if a < 0 or b < 0 or (numbers == 1 and b):
        raise ConfigError(f"no {kind} lane {a}, {b}")
    return f"{letter}{a}.{b}" if numbers == 2 else f"{letter}{a}"


def worker_lane(dp_rank: int, tp_rank: int) -> str:
    """Return the lane from a worker rank to its processor."""
    return lane_name("worker", dp_rank, tp_rank)


def command_lane(processor: int) -> str:
    """Return the lane from the pipeline to a processor."""
    return lane_name("command", processor)


def report_lane(processor: int) -> str:
    """Return the lane from a processor to the pipeline."""
    return lane_name("report", processor)


def submit_lane(client: int) -> str:
    """Return the lane from a client to the pipeline."""
    return lane_name("submit", client)


def output_lane(processor: int, client: int) -> str:
    """Return the lane from a processor to a client."""
    return lane_name("output", processor, client)


def own_output_lane(client: int) -> str:
    """Return the lane from the pipeline itself to a client."""
    return lane_name("own_output", client)


def step_lane(dp_rank: int, tp_rank: int) -> str:
    """Return the lane from the engine to a worker rank."""
    return lane_name("step", dp_rank, tp_rank)


def lock_name(role: str, rank: str) -> str:
    """Return the file name of a role's lock. Raises ConfigError."""
    if not _ROLE.match(role) or not _RANK.match(rank):
        raise ConfigError(f"{role!r} {rank!r} is not a role and a rank")
    return f"{role}{rank}.lock"


def directory_name(base: Path, name: str, longest_lane: str) -> str:
    """Return the directory entry for an instance called `name`.

    The name itself if it is plain and leaves room for the longest socket, else a short digest
    (it begins with "~", as no plain name does).
    """
    if _PLAIN.match(name) and _fits(base / name / longest_lane):
        return name
    return "~" + hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


def check_room(directory: Path, longest_lane: str) -> None:
    """Raise ConfigError if a socket of that name in `directory` has too long a path."""
    path = directory / longest_lane
    if not _fits(path):
        raise ConfigError(
            f"runtime directory is too long: {path} has {len(bytes(path))} bytes, a socket may "
            f"have {MAX_PATH_BYTES}; choose a shorter runtime_dir"
        )


def _fits(path: Path) -> bool:
    return len(bytes(path)) <= MAX_PATH_BYTES
