"""A client's inbox where an allocation fails, without Python and under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.csrc.build import WRAPPED, build, run


@pytest.mark.case("F19")
def test_without_memory_each_stream_gets_all_and_is_woken(tmp_path: Path) -> None:
    program = build(tmp_path, "test_client_memory", "buffer.c", "wire", "stream", flags=WRAPPED)
    assert run(program) == "ok\n"
