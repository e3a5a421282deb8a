"""A request, as the scheduler gets it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to generate."""

    internal_id: int  # u64, unique: 32 random bits of the client's incarnation, then a counter
    external_id: str  # the caller's id; several requests may have the same
    client: int  # index of the client that owns the output
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    parent: int | None = None  # internal id of the first sample, for the others if n > 1
    sample_index: int = 0
    extra: bytes = b""

    @property
    def request_fields(self) -> dict[str, Any]:
        """The fields that an API server put into `extra`. ValueError if it is no JSON object."""
        return request_fields_of(self.extra)


def request_fields_of(extra: bytes) -> dict[str, Any]:
    """Return the fields that an API server put into a request's `extra`, {} if it is empty.

    `extra` is one JSON object in UTF-8. Its keys are names of the model card's `request_fields`.
    Raises ValueError for other bytes.
    """
    fields = json.loads(extra) if extra else {}
    if not isinstance(fields, dict):
        raise ValueError(f"extra: must be a JSON object, not a {type(fields).__name__}")
    return fields
