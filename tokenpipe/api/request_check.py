"""Judge a request by the model card: the executor's own fields, and the length of the sequence.

A request that is refused here never reaches the engine.
"""

from __future__ import annotations

import json

from tokenpipe.instance import ModelCard
from tokenpipe.topology import Api

from .problems import Problem
from .request_models import GenerationRequest

TOO_MANY = "too_many"
TOO_LONG = "context_length_exceeded"  # OpenAI's code


def executor_fields(body: GenerationRequest, card: ModelCard) -> bytes:
    """Return the fields that the executor accepts as one JSON object; b"" if there are none.

    A field that is null counts as absent. Raises Problem, a 400 that names the field, if a field
    would change the response and is not served.
    """
    body.refuse_what_is_not_served(card.request_fields)
    given = body.model_extra or {}
    fields = {name: given[name] for name in card.request_fields if given.get(name) is not None}
    return json.dumps(fields).encode() if fields else b""


def max_tokens_of(
    given: tuple[str, int] | None, default: int, prompt: tuple[str, int], card: ModelCard
) -> int:
    """Return how many tokens the output of one prompt may have.

    Args:
        given: name and value of the field that says it; None if the caller gave none.
        default: the number without that field, if the model has room for so many.
        prompt: name of the prompt's field, and the number of the prompt's tokens.
        card: its `max_model_len` bounds prompt and output together.

    Raises Problem, a 400 with OpenAI's code, if prompt and output do not fit.
    """
    field, length = prompt
    most = card.max_model_len
    if most is None:
        return default if given is None else given[1]
    left = most - length
    if left < 1:
        what = f"{field}: {length} tokens leave no room for the output (max_model_len is {most})"
        raise Problem(400, what, param=field, code=TOO_LONG)
    if given is None:
        return min(default, left)
    name, wanted = given
    if wanted > left:
        what = f"{name}: {wanted} and the prompt's {length} tokens exceed max_model_len {most}"
        raise Problem(400, what, param=name, code=TOO_LONG)
    return wanted


def check_choices(prompts: int, n: int, api: Api) -> None:
    """Raise Problem, a 400, for a call that makes more sequences than one may."""
    most = api.max_choices
    if prompts > most:
        what = f"prompt: {prompts} prompts, one call may have {most}"
        raise Problem(400, what, param="prompt", code=TOO_MANY)
    if prompts * n > most:
        what = f"n: {prompts} prompt(s) with n = {n} make {prompts * n} sequences, one call may"
        raise Problem(400, f"{what} make {most}", param="n", code=TOO_MANY)


def check_ids(ids: int, field: str, api: Api) -> None:
    """Raise Problem, a 400, for prompts of more token ids than a call may have."""
    if ids > api.max_prompt_ids:
        what = f"{field}: {ids} tokens, one call may have {api.max_prompt_ids}"
        raise Problem(400, what, param=field, code=TOO_MANY)
