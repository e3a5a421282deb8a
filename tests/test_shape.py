"""The package's form: small files, short functions, each file name and class name once."""

from __future__ import annotations

import ast
import statistics
from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "tokenpipe"
MODULES = sorted(PACKAGE.rglob("*.py"))
MEDIAN_LINES, MOST_LINES, MOST_FUNCTION_LINES = 100, 350, 50
Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def classes_of(tree: ast.Module) -> set[str]:
    """Return the public class names of a file; one that is written for two cases counts once."""
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return {name for name in names if not name.startswith("_")}


def repeated(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_the_median_file_is_small() -> None:
    assert statistics.median(map(lines_of, MODULES)) <= MEDIAN_LINES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_files_and_functions_are_short(path: Path) -> None:
    assert lines_of(path) <= MOST_LINES
    for node in ast.walk(parsed(path)):
        if isinstance(node, Function):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            assert lines <= MOST_FUNCTION_LINES, f"{node.name} has {lines} lines"


def test_each_file_name_occurs_once() -> None:
    names = [path.name for path in MODULES if path.stem not in ("__init__", "__main__")]
    assert not repeated(names)


def test_each_class_name_occurs_once() -> None:
    assert not repeated([name for path in MODULES for name in classes_of(parsed(path))])
