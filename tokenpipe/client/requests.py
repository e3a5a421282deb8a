"""Give requests their keys and make the messages that submit them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np

from tokenpipe.errors import ConfigError, FieldError
from tokenpipe.types import SamplingParams
from tokenpipe.wire import Submit

from .sizes import NO_LIMITS, PROMPT, SizeLimits

KEY_COUNTER_BITS = 32
MAX_VOCAB = 1 << 31


class RequestKeys:
    """Gives out request keys. No other client and no other incarnation gives out the same keys."""

    def __init__(self, incarnation: int) -> None:
        self._prefix = (incarnation & 0xFFFFFFFF) << KEY_COUNTER_BITS
        self._next = 1

    def take(self, count: int) -> range:
        """Return the next `count` keys."""
        first = self._next
        if first + count > 1 << KEY_COUNTER_BITS:
            raise ConfigError("this client has used up its request keys; open a new one")
        self._next = first + count
        return range(self._prefix + first, self._prefix + first + count)


def expand(
    request_keys: RequestKeys,
    prompt_token_ids: Iterable[int],
    params: SamplingParams,
    request_id: str | None,
    extra: bytes,
    limits: SizeLimits = NO_LIMITS,
    *,
    streamed: bool = True,
) -> list[Submit]:
    """Return one Submit per sample. FieldError if a prompt token is not in the vocabulary.

    It is raised too if the request does not fit into the `limits`; `streamed`: as the output
    goes into a stream.

    With n > 1 each sample is a request of its own with n = 1. Its seed is the given seed plus its
    index, so that the samples differ.
    """
    prompt = _token_ids(prompt_token_ids, limits.vocab_size)
    named = 0 if request_id is None else len(request_id.encode(errors="replace"))
    limits.check(len(prompt), params, named + len(extra), streamed=streamed)
    keys = request_keys.take(params.n)
    external_id = f"req-{keys[0]:016x}" if request_id is None else request_id
    if params.n == 1:
        return [Submit(keys[0], external_id, prompt, params, extra=extra)]
    return [
        Submit(key, external_id, prompt, _sample(params, i), keys[0] if i else 0, i, extra)
        for i, key in enumerate(keys)
    ]


def _sample(params: SamplingParams, index: int) -> SamplingParams:
    seed = None if params.seed is None else params.seed + index
    return replace(params, n=1, seed=seed)


def _token_ids(tokens: Iterable[int] | Sequence[int], vocab_size: int | None) -> tuple[int, ...]:
    if isinstance(tokens, str | bytes | bytearray):  # array() would take bytes for raw integers
        raise FieldError(PROMPT, f"needs token ids, and {type(tokens).__name__} was given")
    try:
        ids = array("i", tokens)
    except (OverflowError, TypeError) as error:
        raise FieldError(PROMPT, str(error)) from None
    # One pass of numpy, because a prompt may have a million tokens.
    bound = MAX_VOCAB if vocab_size is None else vocab_size
    if ids and np.frombuffer(ids, np.uint32).max() >= bound:  # a negative id is large as uint32
        _refuse(ids, vocab_size)
    return tuple(ids)


def _refuse(ids: array[int], vocab_size: int | None) -> NoReturn:
    if min(ids) < 0:
        raise FieldError(PROMPT, f"{min(ids)} is not a token id")
    raise FieldError(PROMPT, f"{max(ids)} is outside of vocab_size {vocab_size}")
