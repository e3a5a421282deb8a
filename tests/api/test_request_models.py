"""Bodies of requests: what is served, what is passed over, and what is refused by name."""

from __future__ import annotations

from tokenpipe.api.request_models import ChatAsked, CompletionAsked
from tokenpipe.instance import STANDARD_FIELDS


def test_the_standard_fields_are_those_of_the_two_bodies() -> None:
    """An executor may declare none of these; the worker's process checks that without pydantic."""
    assert set(CompletionAsked.model_fields) | set(ChatAsked.model_fields) == STANDARD_FIELDS
