"""The plan of csrc/, enforced. Reads the sources as text.

A unit is a .c file and its header. It depends on the units of which it includes a header, in either
file. So a circle among units is found also where no circle of headers shows it.
"""

from __future__ import annotations

import graphlib
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.csrc.build import CSRC

FILES = sorted(CSRC.rglob("*.[ch]"))
# What the units of a folder may include, beside those of their own folder; "" is csrc/ itself.
MAY_INCLUDE = {
    "": {"wire"},
    "wire": set[str](),
    "pack": {"", "wire"},
    "text": {"", "wire"},
    "table": {"", "wire", "text"},
    "stream": {"", "wire"},
    "py": {"", "wire", "pack", "text", "table", "stream"},
}
WITHOUT_HEADER = {"py/module.c": "Python calls its one function by name"}
INCLUDE = re.compile(r'^#include "([^"]+)"$', re.MULTILINE)
SYSTEM = re.compile(r"^#include <([^>]+)>$", re.MULTILINE)
DECLARED = re.compile(r"^(?!static|typedef|#| ).*?\b(tp_\w+)\([^;{]*\)(?: __attribute__.*)?;", re.M)
BEGIN = re.compile(r"^[A-Za-z].*\{$")  # clang-format puts a function's name and brace in column 0


def name_of(path: Path) -> str:
    return path.relative_to(CSRC).as_posix()


def unit_of(name: str) -> str:
    return name.rsplit(".", 1)[0]


def included(path: Path) -> list[str]:
    return INCLUDE.findall(path.read_text())


each_file = pytest.mark.parametrize("path", FILES, ids=name_of)
each_source = pytest.mark.parametrize("path", sorted(CSRC.rglob("*.c")), ids=name_of)


@each_file
def test_includes_only_folders_that_it_may(path: Path) -> None:
    folder = path.relative_to(CSRC).parent.as_posix().removeprefix(".")
    for header in included(path):
        assert (CSRC / header).exists(), f"{header}: name a header from csrc/ on"
        other = Path(header).parent.as_posix().removeprefix(".")
        assert other == folder or other in MAY_INCLUDE[folder], header


@each_file
def test_only_bindings_know_python(path: Path) -> None:
    python = {"Python.h", "structmember.h"} & set(SYSTEM.findall(path.read_text()))
    assert not python or path.parent.name == "py"


def test_no_unit_needs_itself() -> None:
    graph: dict[str, set[str]] = {}
    for path in FILES:
        needs = graph.setdefault(unit_of(name_of(path)), set())
        needs |= {unit_of(header) for header in included(path)} - {unit_of(name_of(path))}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"units include one another: {' -> '.join(error.args[1])}")


def test_no_file_name_comes_twice() -> None:
    names = Counter(path.name for path in FILES)
    assert [name for name, count in names.items() if count > 1] == []


@each_source
def test_has_a_header_of_its_own_and_includes_it_first(path: Path) -> None:
    if name_of(path) in WITHOUT_HEADER:
        assert not path.with_suffix(".h").exists(), "take it from WITHOUT_HEADER"
        return
    assert path.with_suffix(".h").exists()
    assert included(path)[0] == unit_of(name_of(path)) + ".h"


@pytest.mark.parametrize("path", sorted(CSRC.rglob("*.h")), ids=name_of)
def test_declares_only_what_its_own_source_defines(path: Path) -> None:
    source = path.with_suffix(".c")
    code = source.read_text() if source.exists() else ""
    for name in DECLARED.findall(path.read_text()):
        defined = re.search(rf"^\w[^;\n]*\b{name}\(", code, re.MULTILINE)
        assert defined, f"{name} is defined elsewhere"


@each_file
def test_is_short(path: Path) -> None:
    lines = path.read_text().split("\n")
    assert len(lines) <= 350
    assert [number for number, line in enumerate(lines, 1) if len(line) > 110] == []
    begin = 0
    for number, line in enumerate(lines, 1):
        if BEGIN.match(line) and "(" in line:
            begin = number
        elif line == "}" and begin:
            assert number - begin < 50, f"line {begin}: a function of {number - begin + 1} lines"
            begin = 0
