"""The automaton of stop strings, without Python and under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.csrc.build import build, run


@pytest.mark.case("F08")
def test_stops_take_the_memory_of_their_bytes_and_are_shared(tmp_path: Path) -> None:
    flags = ["-Wl,--wrap=malloc", "-Wl,--wrap=calloc"]
    program = build(tmp_path, "test_stops", "wire", "text/stops.c", flags=flags)
    assert run(program) == "ok\n"
