"""The README's program runs as written, and is the example it says it is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_readmes_program_is_the_example_and_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    example = ROOT / "examples" / "echo.py"
    assert blocks == [example.read_text()]
    done = subprocess.run(
        [sys.executable, "-c", blocks[0]], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.stdout == "[7, 8, 7, 8, 7, 8, 7, 8, 7, 8]\n", done.stderr
