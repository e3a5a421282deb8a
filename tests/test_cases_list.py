"""tests/cases.md and the `case` markers name the same ids."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
WITHOUT_TEST = "## Ids without a test"


def ids_of_markers() -> dict[str, str]:
    """Return each id that a drained row names, and one file that names it."""
    found: dict[str, str] = {}
    for path in sorted(TESTS.rglob("*.py")):
        for name in _markers(path):
            found.setdefault(name, str(path.relative_to(TESTS)))
    return found


def _markers(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.case":
            (argument,) = node.args
            assert isinstance(argument, ast.Constant), f"{path}:{node.lineno}: not a plain id"
            yield str(argument.value)


def ids_of_list() -> tuple[list[str], list[str]]:
    """Return the ids of the list: those that have a section, those without a test."""
    sections, without = (TESTS / "cases.md").read_text().split(WITHOUT_TEST)
    return (
        re.findall(r"^### ([A-Z]\d+) \S", sections, re.MULTILINE),
        re.findall(r"^- ([A-Z]\d+) \([^)]+\): \S", without, re.MULTILINE),
    )


def test_each_marker_stands_in_the_list() -> None:
    listed, _ = ids_of_list()
    unknown = {name: path for name, path in ids_of_markers().items() if name not in listed}
    assert not unknown, f"not in tests/cases.md: {unknown}"


def test_each_case_of_the_list_has_a_test() -> None:
    used = ids_of_markers()
    listed, without = ids_of_list()
    assert len(used) > 40, "the case markers are not found"
    assert not (missing := [name for name in listed if name not in used]), missing
    assert not (tested := [name for name in without if name in used]), tested


def test_each_id_stands_once() -> None:
    listed, without = ids_of_list()
    every = [*listed, *without]
    assert sorted(set(every)) == sorted(every)


def test_each_case_has_a_scenario_and_a_right_behaviour() -> None:
    sections, _ = (TESTS / "cases.md").read_text().split(WITHOUT_TEST)
    for case in sections.split("\n### ")[1:]:
        lines = case.splitlines()
        starts = [line.split()[1] for line in lines if line.startswith("- ")]
        assert starts == ["Scenario:", "Right:"], lines[0]
