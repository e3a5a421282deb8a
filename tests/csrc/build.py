"""Build and run C programs of tests/csrc under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "csrc"
FLAGS = (
    "-std=c11 -O1 -g -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
).split()


# Flags with which tests/csrc/failing.h lets allocations fail.
WRAPPED = [f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc", "aligned_alloc")]


def clean_environment() -> dict[str, str]:
    """Return the environment without the sanitizers that `make test-c` preloads for Python."""
    return {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "ASAN_OPTIONS")}


def compiler() -> str:
    """Return the C compiler."""
    found = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    assert found is not None, "a C compiler is part of what a developer needs"
    return found


def build(folder: Path, program: str, *sources: str, flags: Sequence[str] = ()) -> Path:
    """Compile tests/csrc/<program>.c with sources of csrc/; a folder stands for all files in it."""
    files = [Path(__file__).parent / f"{program}.c"]
    for source in sources:
        path = CSRC / source
        files += sorted(path.glob("*.c")) if path.is_dir() else [path]
    target = folder / program
    include = ["-I", str(CSRC), "-I", str(Path(__file__).parent)]
    command = [compiler(), *FLAGS, *flags, *include, *map(str, files), "-o", str(target)]
    subprocess.run(command, check=True, env=clean_environment())
    return target


def run(program: Path, *arguments: str) -> str:
    """Run a program and return what it prints; a failure shows what it says."""
    done = subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, env=clean_environment()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
