"""Programs as users write them, checked by mypy and pyright in a folder that is not ours.

So the checkers find tokenpipe as it is installed. A line that they must refuse ends with
`# type: ignore[code]`; both report such a comment where there is no error.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = [path for path in Path(__file__).parent.glob("*.py") if path.name != Path(__file__).name]
PYRIGHT = {"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": "error"}
CHECKERS = {
    "mypy": ["mypy", "--strict", "--cache-dir=cache", "."],
    "pyright": ["pyright", f"--pythonpath={sys.executable}"],
}
LINES = {
    "a missing argument": "tp.split_handle()",
    "a wrong type": "tp.Topology(clients='3')",
    "a name that is not there": "tp.Pipelin",
    "a comment that nothing needs": "tp.Topology(clients=3)  # type: ignore[arg-type]",
}


def checked(checker: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a checker over a folder; PYTHONPATH is as the caller has it, the folder is not in it."""
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    command = [sys.executable, "-m", *CHECKERS[checker]]
    quiet = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # it would ask for newer versions
    return subprocess.run(command, cwd=folder, env=quiet, capture_output=True, text=True)


@pytest.mark.parametrize("checker", CHECKERS)
def test_what_users_write_is_right_and_what_is_wrong_is_refused(
    tmp_path: Path, checker: str
) -> None:
    assert len(PROGRAMS) > 4
    for program in PROGRAMS:
        shutil.copy(program, tmp_path)
    for number, line in enumerate(LINES.values()):
        (tmp_path / f"bad{number}.py").write_text(f"import tokenpipe as tp\n\n{line}\n")
    done = checked(checker, tmp_path)
    found = [line for line in done.stdout.splitlines() if "error" in line and ".py:" in line]
    unexpected = [line for line in found if "bad" not in Path(line.strip().split(":")[0]).name]
    assert not unexpected, done.stdout
    for number, what in enumerate(LINES):
        assert any(f"bad{number}.py:3" in line for line in found), f"{what}: {done.stdout}"
