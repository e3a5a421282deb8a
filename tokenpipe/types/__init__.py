"""Name what flows between processes: handles, requests, outputs. Does nothing.

Each thing has one word, which is the same here, in C, in tests, counters and docs.
"""

from .enums import (
    FINISH_CODES,
    ErrorCode,
    FinishReason,
    RequestOutputKind,
    RescheduleReason,
    RowStatus,
)
from .handle import (
    FIRST_GENERATION,
    MAX_DP,
    MAX_GENERATION,
    MAX_SLOTS,
    make_handle,
    split_handle,
)
from .request import Request, request_fields_of
from .request_output import OutputExtras, RequestOutput, TokenLogprobs, Usage
from .sampling_params import SamplingParams

__all__ = [
    "FINISH_CODES",
    "FIRST_GENERATION",
    "MAX_DP",
    "MAX_GENERATION",
    "MAX_SLOTS",
    "ErrorCode",
    "FinishReason",
    "OutputExtras",
    "Request",
    "RequestOutput",
    "RequestOutputKind",
    "RescheduleReason",
    "RowStatus",
    "SamplingParams",
    "TokenLogprobs",
    "Usage",
    "make_handle",
    "request_fields_of",
    "split_handle",
]
