"""Write a file of the instance's directory so that a reader sees all of it or the one before."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Replace the file. Raises OSError; the old file is then unchanged."""
    part = part_of(path)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def remove_whole(path: Path) -> None:
    """Remove the file and what a failed write left of it. Raises OSError if one stays."""
    part_of(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def part_of(path: Path) -> Path:
    """Return the name that the file has while it is written."""
    return path.with_name(f"{path.name}.part")
