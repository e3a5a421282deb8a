"""How much work the table and the streams do, without Python and under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.csrc.build import build, run


@pytest.mark.case("F13")
def test_the_work_depends_on_what_is_there(tmp_path: Path) -> None:
    program = build(
        tmp_path,
        "test_table_work",
        "buffer.c",
        "wire",
        "text",
        "table",
        "stream",
        flags=["-Wl,--wrap=memmove"],
    )
    assert run(program) == "ok\n"
