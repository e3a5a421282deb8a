"""The send window's ring and arithmetic, without Python and under the sanitizers."""

from __future__ import annotations

from pathlib import Path

from tests.csrc.build import build, run


def test_send_window(tmp_path: Path) -> None:
    program = build(tmp_path, "test_send_window", "buffer.c", "wire", "pack/send_window.c")
    assert run(program) == "ok\n"
