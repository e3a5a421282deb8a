"""The table where an allocation fails, without Python and under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.csrc.build import WRAPPED, build, run


@pytest.mark.case("F19")
def test_without_memory_the_account_stays_right(tmp_path: Path) -> None:
    folders = ("wire", "text", "table")
    program = build(tmp_path, "test_table_memory", "buffer.c", *folders, flags=WRAPPED)
    assert run(program) == "ok\n"
