"""Name the columns of a StepFrame and of an OutputFrame. docs/wire.md describes each."""

from __future__ import annotations

from enum import IntEnum

from tokenpipe import _core


class StepColumn(IntEnum):
    """Columns of a StepFrame."""

    HANDLES = _core.STEP_HANDLES
    COUNTS = _core.STEP_COUNTS
    TOKENS = _core.STEP_TOKENS
    STATUS = _core.STEP_STATUS
    POSITION = _core.STEP_POSITION
    LP_K = _core.STEP_LP_K
    LP_IDS = _core.STEP_LP_IDS
    LP_VALUES = _core.STEP_LP_VALUES
    LP_RANKS = _core.STEP_LP_RANKS
    EXTRAS_LEN = _core.STEP_EXTRAS_LEN
    EXTRAS = _core.STEP_EXTRAS


class OutputColumn(IntEnum):
    """Columns of an OutputFrame."""

    KEYS = _core.OUT_KEYS
    COUNTS = _core.OUT_COUNTS
    TOKENS = _core.OUT_TOKENS
    OFFSETS = _core.OUT_OFFSETS
    FINISH = _core.OUT_FINISH
    STOP_REASON = _core.OUT_STOP_REASON
    LP_K = _core.OUT_LP_K
    LP_IDS = _core.OUT_LP_IDS
    LP_VALUES = _core.OUT_LP_VALUES
    LP_RANKS = _core.OUT_LP_RANKS
    ERROR_LEN = _core.OUT_ERROR_LEN
    ERROR = _core.OUT_ERROR
    TEXT_LEN = _core.OUT_TEXT_LEN
    TEXT = _core.OUT_TEXT
    TEXT_OFFSET = _core.OUT_TEXT_OFFSET
    STOP_STRING = _core.OUT_STOP_STRING
    CACHED = _core.OUT_CACHED
    EXTRAS_LEN = _core.OUT_EXTRAS_LEN
    EXTRAS = _core.OUT_EXTRAS
    EXTRAS_OFFSET = _core.OUT_EXTRAS_OFFSET
    ERROR_CODE = _core.OUT_ERROR_CODE
    ERROR_FIELD = _core.OUT_ERROR_FIELD
