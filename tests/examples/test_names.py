"""Two examples are called like the library that they embed; its name still gives the library."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NAMES = ("transformers", "openvino")
WHERE = """
import importlib.util, sys
spec = importlib.util.find_spec(sys.argv[1])
print("none" if spec is None else spec.origin)
"""


def is_the_library(origin: str | None) -> bool:
    return origin in (None, "none") or EXAMPLES not in Path(str(origin)).parents


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_the_librarys_however_python_is_started(name: str, tmp_path: Path) -> None:
    """From the root by -c and -m, from a script, under pytest: whether it is installed or not."""
    assert (EXAMPLES / name / "__init__.py").exists()
    spec = importlib.util.find_spec(name)
    assert is_the_library(spec.origin if spec else None)
    (tmp_path / "where.py").write_text(WHERE)
    for command in (["-c", WHERE], [str(tmp_path / "where.py")]):
        done = subprocess.run(
            [sys.executable, *command, name], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert is_the_library(done.stdout.strip()), (command, done.stdout)


def test_a_script_beside_them_needs_neither() -> None:
    """Its folder comes first on the path, so there the names would be the examples'."""
    code = (
        "import runpy, sys; sys.path.insert(0, 'examples'); "
        "runpy.run_path('examples/echo.py', run_name='__main__');"
        f"print([name for name in {NAMES} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-2:] == ["[7, 8, 7, 8, 7, 8, 7, 8, 7, 8]", "[]"]


def test_examples_are_imported_by_their_full_name() -> None:
    for path in sorted(EXAMPLES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom):
                continue
            at = f"{path.relative_to(ROOT)}:{node.lineno}"
            assert node.level <= 1, f"{at}: a dot never leaves the folder"
            beside = {alias.name for alias in node.names} if node.module == "examples" else set()
            assert not beside & set(NAMES), f"{at}: would hide the library of that name"
            if node.level and path.parent == EXAMPLES:
                assert node.module not in NAMES, f"{at}: would hide the library of that name"
