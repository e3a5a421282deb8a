"""Collect the parameters that a processor needs to make a request's text."""

from __future__ import annotations

from typing import Any

from tokenpipe.postprocess import text_options
from tokenpipe.types import Request


def text_fields(request: Request) -> dict[str, Any]:
    """Return the text fields of a Bind message."""
    params = request.params
    options = text_options(
        request.prompt_token_ids,
        params.stop,
        include_stop_str_in_output=params.include_stop_str_in_output,
        skip_special_tokens=params.skip_special_tokens,
        spaces_between_special_tokens=params.spaces_between_special_tokens,
    )
    return {"text": True, **options._asdict()}
