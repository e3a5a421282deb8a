"""Golden frames: C reads the valid ones as their JSON says, and refuses each invalid one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.wire import make_vectors
from tokenpipe import _core
from tokenpipe.errors import FrameError
from tokenpipe.wire import OutputFrame, StepFrame

UNPACK = {1: _core.unpack_step, 2: _core.unpack_output}


def vectors(folder: str) -> list[Path]:
    """Return the frames of a folder, in order."""
    found = sorted((make_vectors.VECTORS / folder).glob("*.bin"))
    assert len(found) > 10
    return found


def about(path: Path) -> dict[str, Any]:
    """Return what is said beside a frame."""
    said: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
    return said


@pytest.mark.parametrize("path", vectors("valid"), ids=lambda p: p.stem)
def test_valid(path: Path) -> None:
    raw, said = path.read_bytes(), about(path)
    before_it = path.with_name(f"{int(path.stem) - 1:03}.bin")
    before = before_it.read_bytes() if before_it.exists() else b""
    assert {"shows": said["shows"], **make_vectors.meaning(raw, before)} == said
    header, _ = UNPACK[said["kind"]](raw)
    assert header == tuple(said["header"].values())
    view: StepFrame | OutputFrame
    if said["kind"] == 2:
        view = OutputFrame.unpack(raw)
    elif "continues" in said["shows"]:
        view = StepFrame.unpack(raw, StepFrame.unpack(before))
    else:
        view = StepFrame.unpack(raw)
    for name, values in said["columns"].items():
        if name.startswith("error") or name in ("text", "extras"):
            continue
        array = getattr(view, "positions" if name == "position" else name)
        assert [repr(v) if isinstance(v, float) else v for v in array.tolist()] == values


@pytest.mark.parametrize("path", vectors("invalid"), ids=lambda p: p.stem)
def test_invalid(path: Path) -> None:
    with pytest.raises(FrameError):
        UNPACK[about(path)["kind"]](path.read_bytes())


def test_the_files_are_those_the_generator_writes() -> None:
    for folder, made in (("valid", make_vectors.valid()), ("invalid", make_vectors.invalid())):
        frames = [raw for _, raw in made]
        assert [path.read_bytes() for path in vectors(folder)] == frames
