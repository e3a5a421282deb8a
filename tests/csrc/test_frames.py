"""The codec and the packer, without Python and under the sanitizers, on damaged frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.csrc.build import ROOT, build, run

VECTORS = ROOT / "tests" / "wire" / "vectors"


def drive(folder: Path, seed: int, rounds: int) -> str:
    """Run the driver over all vectors and return what it prints."""
    frames = sorted(str(path) for path in VECTORS.glob("*/*.bin"))
    return run(
        build(folder, "test_frames", "buffer.c", "wire", "pack"), str(seed), str(rounds), *frames
    )


@pytest.mark.case("B50")
def test_damaged_frames_never_reach_past_their_end(tmp_path: Path) -> None:
    assert "rounds each" in drive(tmp_path, seed=1, rounds=1000)


@pytest.mark.soak
def test_damaged_frames_at_length(tmp_path: Path) -> None:
    for seed in range(3):
        drive(tmp_path, seed=seed, rounds=100_000)
