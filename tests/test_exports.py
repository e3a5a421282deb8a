"""A door shows what it opens: `__all__` is what an `__init__` brings in, no more and no less."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

import tokenpipe
from tokenpipe import errors, events, types
from tokenpipe import extras as rows

PACKAGE = Path(__file__).parent.parent / "tokenpipe"
DOORS = sorted(PACKAGE.rglob("__init__.py"))


def brought_in(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("path", DOORS, ids=lambda path: path.parent.name)
def test_door_shows_what_it_opens(path: Path) -> None:
    module = importlib.import_module(".".join(path.parent.relative_to(PACKAGE.parent).parts))
    shown = getattr(module, "__all__", [])
    assert len(shown) == len(set(shown))
    assert {name for name in shown if not name.startswith("__")} == brought_in(path)


@pytest.mark.parametrize("path", DOORS, ids=lambda path: path.parent.name)
def test_room_begins_with_its_law(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "module", [errors, events, rows, types], ids=lambda module: module.__name__
)
def test_public_page_has_every_error_type_and_event(module: ModuleType) -> None:
    defined = {
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    }
    assert defined <= set(tokenpipe.__all__)
