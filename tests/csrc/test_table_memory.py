"""The table where an allocation fails, without Python and under the sanitizers."""

from __future__ import annotations

from pathlib import Path

from tests.csrc.build import build, run

WRAPPED = ("malloc", "calloc", "realloc", "aligned_alloc")


def test_without_memory_the_account_stays_right(tmp_path: Path) -> None:
    program = build(
        tmp_path,
        "test_table_memory",
        "buffer.c",
        "wire",
        "text",
        "table",
        flags=[f"-Wl,--wrap={name}" for name in WRAPPED],
    )
    assert run(program) == "ok\n"
