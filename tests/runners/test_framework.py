"""Nobody pays for a framework that he does not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("paddle", "torch", "tokenizers", "transformers", "openvino", "fastapi", "starlette")


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60
    )


@pytest.mark.parametrize("module", ["tokenpipe", "tokenpipe.runners", "tokenpipe.runners.probe"])
def test_importing_loads_no_framework(module: str) -> None:
    done = run(f"import sys, {module}; print(sorted(set({HEAVY!r}) & set(sys.modules)))")
    assert done.stdout == "[]\n", done.stderr


def test_without_paddle_it_says_how_to_get_it() -> None:
    code = """
import sys
sys.modules["paddle"] = None
from tokenpipe import ConfigError, runner_for
for platform in ("cpu", "gpu", "xpu", "metax_gpu"):
    try:
        runner_for(platform).select_device()
    except ConfigError as error:
        print(error)
"""
    said = run(code).stdout.splitlines()
    assert len(said) == 4 and all("needs PaddlePaddle" in line for line in said)
    assert "tokenpipe[cpu]" in said[0] and "tokenpipe[gpu]" in said[1]
    assert "Kunlun" in said[2] and "Metax" in said[3]
