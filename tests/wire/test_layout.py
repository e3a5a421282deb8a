"""The numbers of csrc/wire/layout.h are those of Python and of the twin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.wire import oracle
from tokenpipe import _core, types, wire

LAYOUT = (Path(__file__).parents[2] / "csrc" / "wire" / "layout.h").read_text()


def number(name: str) -> int:
    """Return the value of a #define or an enumerator."""
    match = re.search(rf"\b{name}\s*=?\s*(\d+)u?\b", LAYOUT)
    assert match is not None, name
    return int(match[1])


def test_version() -> None:
    assert number("TP_WIRE_VERSION") == _core.WIRE_VERSION == oracle.VERSION


@pytest.mark.parametrize("kind", wire.Kind)
def test_kinds(kind: wire.Kind) -> None:
    assert number(f"TP_KIND_{kind.name}") == kind


@pytest.mark.parametrize("status", types.RowStatus)
def test_row_statuses(status: types.RowStatus) -> None:
    assert number(f"TP_ROW_{status.name}") == status
    assert number("TP_ROW_STATUS_END") == len(types.RowStatus)


def test_finish_codes() -> None:
    for code, reason in enumerate(types.FINISH_CODES):
        assert number(f"TP_FINISH_{reason.name if reason else 'NONE'}") == code
    assert number("TP_FINISH_END") == len(types.FINISH_CODES)


def test_handle_bits() -> None:
    for name in ("GENERATION_BITS", "SLOT_BITS", "DP_BITS"):
        assert number(f"TP_{name}") == getattr(_core, name)


def test_limits() -> None:
    for name in ("MAX_ROWS", "MAX_TOKENS", "MAX_ENTRIES", "MAX_HEADER", "MAX_TEXT", "MAX_EXTRAS"):
        assert number(f"TP_{name}") == getattr(oracle, name)


@pytest.mark.parametrize(("prefix", "shape"), [("STEP", oracle.STEP), ("OUT", oracle.OUTPUT)])
def test_columns(prefix: str, shape: oracle.Shape) -> None:
    for column in shape.columns:
        assert number(f"TP_{prefix}_{column.name.upper()}") == column.id
