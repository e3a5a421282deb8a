"""The pure half of the frame codec, without Python and under the sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VECTORS = ROOT / "tests" / "wire" / "vectors"
SOURCES = [path for room in ("wire", "pack") for path in sorted((ROOT / "csrc" / room).glob("*.c"))]
FLAGS = (
    "-std=c11 -O1 -g -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
).split()


def drive(folder: Path, seed: int, rounds: int) -> str:
    """Build the driver and run it over all vectors; return what it says."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None, "a C compiler is part of what a developer has"
    program = folder / "drive_frames"
    driver = Path(__file__).parent / "drive_frames.c"
    sources = [str(path) for path in SOURCES]
    include = ["-I", str(ROOT / "csrc")]
    # `make test-c` preloads the sanitizers for Python; the compiler and the driver do without.
    env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "ASAN_OPTIONS")}
    build = [compiler, *FLAGS, *include, str(driver), *sources, "-o", str(program)]
    subprocess.run(build, check=True, env=env)
    frames = sorted(str(path) for path in VECTORS.glob("*/*.bin"))
    done = subprocess.run(
        [str(program), str(seed), str(rounds), *frames], capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.case("B50")
def test_damaged_frames_never_reach_past_their_end(tmp_path: Path) -> None:
    assert "rounds each" in drive(tmp_path, seed=1, rounds=1000)


@pytest.mark.soak
def test_damaged_frames_at_length(tmp_path: Path) -> None:
    for seed in range(3):
        drive(tmp_path, seed=seed, rounds=100_000)
