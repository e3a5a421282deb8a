"""The pure half under the sanitizers, on inputs that a fuzzer makes of the committed corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.csrc.fuzzing import TARGETS, build_target, corpus_of, fuzz

INPUTS = {"fuzz_frames": 100_000, "fuzz_text": 10_000, "fuzz_table": 4_000, "fuzz_inbox": 8_000}
SECONDS = 12  # at most, on a slow machine


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_the_pure_half(name: str, tmp_path: Path) -> None:
    said = fuzz(build_target(tmp_path, name), 1, INPUTS[name], SECONDS)
    assert int(said.split()[0]) > 100
    assert int(said.split()[2]) > len(corpus_of(name)), "no input reached new code"


def test_a_failing_input_is_shown(tmp_path: Path) -> None:
    program = tmp_path / "fuzz_none"
    program.write_text("#!/bin/sh\nprintf ab >failed-input\necho why >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(AssertionError, match="why\n\nits input: 6162"):
        fuzz(program, 1, 1, 1)
