"""Read an executor's model card: the request fields that it accepts, and its `max_model_len`."""

from __future__ import annotations

from operator import index

from tokenpipe.errors import ConfigError
from tokenpipe.instance import ModelCard


def model_card_of(executor: object) -> ModelCard:
    """Return the card of an executor: its `request_fields` and `max_model_len`, if it has them.

    Raises ConfigError if `ModelCard` does not take a value.
    """
    fields = getattr(executor, "request_fields", ())
    if isinstance(fields, str):
        raise ConfigError(f"request_fields: must be a sequence of names, not the text {fields!r}")
    length = getattr(executor, "max_model_len", None)
    try:
        names = tuple(fields)
    except TypeError:
        raise ConfigError(f"request_fields: must be a sequence of names, not {fields!r}") from None
    try:
        return ModelCard(names, None if length is None else index(length))  # ints of numpy too
    except TypeError:
        raise ConfigError(f"max_model_len: must be None or an integer, not {length!r}") from None
