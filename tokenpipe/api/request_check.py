"""Judge a request by the model card: fields of the executor's own, and the length of a sequence.

What is refused here never reaches the engine.
"""

from __future__ import annotations

import json

from tokenpipe.instance import ModelCard

from .problems import Problem
from .request_models import Asked

TOO_LONG = "context_length_exceeded"  # OpenAI's code


def executor_fields(asked: Asked, card: ModelCard) -> bytes:
    """Return the request's fields that the executor accepts: one JSON object, b"" without any.

    A field that is null counts as absent. Raises Problem, a 400 that names the field, where a field
    would change the answer and is not served.
    """
    asked.refuse_what_is_not_served(card.request_fields)
    given = asked.model_extra or {}
    fields = {name: given[name] for name in card.request_fields if given.get(name) is not None}
    return json.dumps(fields).encode() if fields else b""


def max_tokens_of(
    given: tuple[str, int] | None, default: int, prompt: tuple[str, int], card: ModelCard
) -> int:
    """Return how many tokens the output of one prompt may have.

    Args:
        given: name and value of the field that says it; None where the request does not.
        default: how many without that field, as far as the model has room for them.
        prompt: name of the prompt's field, and how many tokens the prompt has.
        card: its `max_model_len` bounds prompt and output together.

    Raises Problem, a 400 with OpenAI's code, where they do not fit.
    """
    field, length = prompt
    most = card.max_model_len
    if most is None:
        return default if given is None else given[1]
    left = most - length
    if left < 1:
        said = f"{field}: {length} tokens; max_model_len is {most}, of which the output needs one"
        raise Problem(400, said, param=field, code=TOO_LONG)
    if given is None:
        return min(default, left)
    name, wanted = given
    if wanted > left:
        said = f"{name}: {length} prompt tokens and {wanted} more exceed max_model_len {most}"
        raise Problem(400, said, param=name, code=TOO_LONG)
    return wanted
