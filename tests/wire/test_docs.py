"""The tables of docs/wire.md say what the code does."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from tests.wire import oracle
from tokenpipe.transport import lane_messages as lane_messages
from tokenpipe.types import ErrorCode, RowStatus, SamplingParams
from tokenpipe.wire import StepBind
from tokenpipe.wire.fields import Blob, Flag, Int, Ints, Numbers, OneOf, Strings, Utf8
from tokenpipe.wire.messages import TAGS
from tokenpipe.wire.schema import ArraySpec, MapSpec

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
TYPES = {"<i8": "i64", "<u2": "u16", "<i4": "i32", "u1": "u8", "<u4": "u32", "<f4": "f32",
         "<u8": "u64"}  # fmt: skip
WORDS: dict[Any, str] = {
    Int(0, (1 << 32) - 1): "u32",
    Int(0, (1 << 64) - 1): "u64",
    Int(1, (1 << 63) - 1): "handle",
    Int(-1, (1 << 31) - 1): "-1 to 2^31-1",
    Int(1, 4): "1 to 4",
    Flag(): "bool",
    Utf8(cut=True): "text",
    Utf8(4096): "name",
    Blob(): "bytes",
    Ints("i", 1 << 24): "ids",
    Ints("q", 1 << 24): "wide",
    Strings(1 << 14, 1 << 14): "strings",
    Numbers(): "map of string to int",
    OneOf(ErrorCode): "error code",
}
DEFAULTS = {"()": "empty", "b''": "empty", "False": "false", "True": "true", "''": '""'}
DEFAULTS[repr(SamplingParams())] = "defaults"
DEFAULTS[repr(ErrorCode.NONE)] = "0"


def section(title: str) -> str:
    """Return the text below a heading of the second level."""
    match = re.search(rf"^## {title}.*?$(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert match is not None
    return match[1]


def rows(text: str) -> list[list[str]]:
    """Return the cells of all table rows."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


@pytest.mark.parametrize(
    ("title", "shape"), [("Kind 1", oracle.STEP), ("Kind 2", oracle.OUTPUT)], ids=["step", "output"]
)
def test_columns_and_header(title: str, shape: oracle.Shape) -> None:
    text = section(title)
    assert f"[{', '.join(shape.header)}]" in text
    table = {row[0]: row[1:] for row in rows(text) if row[0].isdigit() and len(row) == 4}
    assert len(table) == len(shape.columns)
    for column in shape.columns:
        name, typed, default = table[str(column.id)]
        assert name == column.name
        assert re.match(rf"{TYPES[column.dtype]}\b", typed)
        assert default == ("required" if column.default is None else str(column.default))


def test_statuses() -> None:
    table = [row for row in rows(section("Kind 1")) if row[0].isdigit() and len(row) == 3]
    assert [(int(value), name) for value, name, _ in table] == [
        (status.value, status.name.lower()) for status in RowStatus
    ]


def test_error_codes() -> None:
    table = [row for row in rows(section("Kind 2")) if row[0].isdigit() and len(row) == 3]
    assert [(int(value), name) for value, name, _ in table] == [
        (code.value, code.name.lower()) for code in ErrorCode
    ]


def described(cls: type[Any]) -> str:
    """Return a message's fields in the words of the page."""
    hints = get_type_hints(cls, include_extras=True)
    said = []
    for field in fields(cls):
        spec = get_args(hints[field.name])[1]
        if isinstance(spec, ArraySpec):
            word = "array of maps"
        elif isinstance(spec, MapSpec):
            word = "params"
        else:
            word = WORDS[spec]
        if field.default is not MISSING:
            word += f" = {DEFAULTS.get(repr(field.default), field.default)}"
        said.append(f"{field.name}: {word}")
    return ", ".join(said)


def test_control_messages() -> None:
    table = rows(section("Kind 3"))
    said = {row[0]: (row[1], row[2]) for row in table if row[0].isdigit()}
    assert said == {str(tag): (cls.__name__, described(cls)) for tag, cls in TAGS.items()}
    assert ["", "each of its binds", described(StepBind)] in table


def test_lane_messages() -> None:
    said = {row[0]: row[2] for row in rows(section("Kind 0"))[2:]}
    assert said == {
        name: ", ".join(f"{field}: {kind.__name__}" for field, kind in wanted.items())
        for name, wanted in lane_messages._FIELDS.items()
    }
    assert f"{lane_messages.MAX_MESSAGE_BYTES:,} bytes" in section("Kind 0")


def test_limits() -> None:
    for limit in (
        oracle.MAX_ROWS,
        oracle.MAX_TOKENS,
        oracle.MAX_ENTRIES,
        oracle.MAX_TEXT,
        oracle.MAX_EXTRAS,
    ):
        assert f"{limit:,}" in section("Columns")
