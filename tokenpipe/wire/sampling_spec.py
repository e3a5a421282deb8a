"""The spec of SamplingParams: how a message holds its fields."""

from __future__ import annotations

from tokenpipe._core import MAX_STOP_BYTES
from tokenpipe.types import RequestOutputKind, SamplingParams

from .fields import Flag, Int, Ints, OneOf, Real, Strings
from .schema import MapSpec

_POSITIVE = Int(1, (1 << 31) - 1)
_COUNT = Int(0, (1 << 31) - 1)

# The specs are not in the annotations of SamplingParams, because users read that class.
PARAMS = MapSpec(
    SamplingParams,
    {
        "n": _POSITIVE,
        "max_tokens": _POSITIVE,
        "min_tokens": _COUNT,
        "stop_token_ids": Ints("i", 1 << 16),
        "ignore_eos": Flag(),
        "temperature": Real(),
        "top_p": Real(),
        "top_k": Int(-(1 << 31), (1 << 31) - 1),
        "min_p": Real(),
        "seed": Int(-(1 << 63), (1 << 64) - 1, optional=True),
        "logprobs": Int(0, (1 << 31) - 1, optional=True),
        "prompt_logprobs": Int(0, (1 << 31) - 1, optional=True),
        "stop": Strings(MAX_STOP_BYTES, MAX_STOP_BYTES),
        "include_stop_str_in_output": Flag(),
        "detokenize": Flag(),
        "skip_special_tokens": Flag(),
        "spaces_between_special_tokens": Flag(),
        "stream_interval": _POSITIVE,
        "stream_interval_ms": _COUNT,
        "output_kind": OneOf(RequestOutputKind),
    },
)
