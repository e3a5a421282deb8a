"""Every number that C and Python share is defined in csrc/, and Python reads it from _core."""

from __future__ import annotations

import ast
import re
from enum import IntEnum
from pathlib import Path

import pytest

from tokenpipe import _core, types, wire
from tokenpipe.processor import codes

ROOT = Path(__file__).parent.parent
EXPORTED = {name: value for name, value in vars(_core).items() if type(value) is int}
# The prefix of an enumeration's names in _core, and of its enumerators in which file of csrc/.
ENUMS: list[tuple[type[IntEnum], str, str, str]] = [
    (wire.Kind, "KIND_", "wire/layout.h", "tp_kind"),
    (wire.StepColumn, "STEP_", "wire/layout.h", "tp_step_column"),
    (wire.OutputColumn, "OUT_", "wire/layout.h", "tp_output_column"),
    (types.RowStatus, "ROW_", "wire/layout.h", "tp_row_status"),
    (types.ErrorCode, "ERROR_", "wire/layout.h", "tp_error_code"),
    (types.RequestOutputKind, "OUTPUT_", "stream/stream.h", "tp_output_kind"),
    (codes.State, "STATE_", "table/table_types.h", "tp_binding_state"),
    (codes.EventKind, "EVENT_", "table/table_types.h", "tp_event_kind"),
    (codes.Cause, "CAUSE_", "table/table_types.h", "tp_row_error"),
]
INSIDE_C = {"END", "CAUSE_NONE", "CAUSE_GAP", "CAUSE_FINISHED"}  # never leave the table


def enumerators(file: str, name: str) -> list[str]:
    """Return what an enum of a header names, without TP_."""
    text = (ROOT / "csrc" / file).read_text()
    match = re.search(rf"enum {name} \{{(.*?)\}}", text, re.S)
    assert match is not None, name
    return re.findall(r"\bTP_(\w+)", re.sub(r"/\*.*?\*/", "", match[1], flags=re.S))


@pytest.mark.parametrize(("enum", "prefix", "file", "c_name"), ENUMS)
def test_an_enumeration_is_that_of_c(
    enum: type[IntEnum], prefix: str, file: str, c_name: str
) -> None:
    exported = {name: value for name, value in EXPORTED.items() if name.startswith(prefix)}
    assert {prefix + member.name: member.value for member in enum} == exported
    known = {name.removeprefix("EV_").removeprefix(prefix) for name in enumerators(file, c_name)}
    hidden = {word.removeprefix(prefix) for word in INSIDE_C} | {"STATUS_END"}
    assert known - hidden == set(enum.__members__)


def test_finish_codes_are_those_of_c() -> None:
    codes = {name: value for name, value in EXPORTED.items() if name.startswith("FINISH_")}
    named = [reason.name if reason else "NONE" for reason in types.FINISH_CODES]
    assert codes == {f"FINISH_{name}": code for code, name in enumerate(named)}


def test_the_printed_boundary_has_every_number() -> None:
    tree = ast.parse((ROOT / "tokenpipe" / "_core.pyi").read_text())
    printed = [
        node.target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and ast.unparse(node.annotation) == "int"
    ]
    assert len(printed) == len(set(printed))
    assert set(printed) == set(EXPORTED)


def test_every_number_is_read_from_core_and_nothing_else_is() -> None:
    used: set[str] = set()
    for folder in ("tokenpipe", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            if path == Path(__file__):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module == "tokenpipe._core":
                    used |= {alias.name for alias in node.names}
                elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "_core":
                    used.add(node.attr)
    assert set(EXPORTED) <= used


def test_no_module_writes_a_shared_number_down() -> None:
    """A module-level name of a shared number is imported, never assigned a literal."""
    for path in (ROOT / "tokenpipe").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                assert not names & set(EXPORTED), f"{path.name}:{node.lineno}"
