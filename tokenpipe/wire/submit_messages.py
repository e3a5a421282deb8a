"""Messages from a client to the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tokenpipe.types import SamplingParams

from .fields import U32, U64, Extra, Name, TokenIds
from .sampling_spec import PARAMS


@dataclass(frozen=True, slots=True)
class Submit:
    """Ask the engine to generate one sequence."""

    key: U64
    external_id: Name
    prompt_token_ids: TokenIds
    params: Annotated[SamplingParams, PARAMS]
    parent: U64 = 0  # key of the first sample if n > 1, else 0
    sample_index: U32 = 0
    extra: Extra = b""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ask the engine to end a request that its client no longer needs."""

    key: U64
