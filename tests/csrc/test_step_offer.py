"""Which packed steps count, without Python and under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.csrc.build import build, run


@pytest.mark.case("F18")
def test_step_offer(tmp_path: Path) -> None:
    assert run(build(tmp_path, "test_step_offer", "buffer.c", "wire", "pack")) == "ok\n"
