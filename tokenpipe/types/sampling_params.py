"""SamplingParams: how to sample, when to end, what to return."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index

from tokenpipe._core import MAX_STOP_BYTES
from tokenpipe.accepts import Accepts, default
from tokenpipe.errors import FieldError

from .enums import RequestOutputKind

MOST = (1 << 31) - 1
MOST_FLOAT = 1.7976931348623157e308
_INTS = (
    ("n", 1, MOST),
    ("max_tokens", 1, MOST),
    ("stream_interval", 1, MOST),
    ("stream_interval_ms", 0, MOST),
    ("top_k", -1, MOST),
    ("seed", -(1 << 63), (1 << 64) - 1),
    ("logprobs", 0, MOST),
    ("prompt_logprobs", 0, MOST),
    ("min_tokens", 0, MOST),
)
_MAY_BE_NONE = frozenset({"seed", "logprobs", "prompt_logprobs"})
_FLOATS = (("temperature", 0.0, MOST_FLOAT), ("top_p", 0.0, 1.0), ("min_p", 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample, when to end and what to return. Names and defaults are those of vLLM.

    Only the default of `output_kind` differs: it is DELTA.

    tokenpipe itself applies `max_tokens`, `min_tokens`, `ignore_eos`, `stop_token_ids`, `stop` and
    the fields about text and outputs. The engine applies the others.

    `ignore_eos` ignores the model's EOS ids, but not `stop_token_ids`. `min_tokens` is the least
    number of tokens: an EOS or stop id ends the request from token number `min_tokens` on, and a
    stop string if a later token completes it. Requests have text if the topology has a tokenizer
    and `detokenize` is True. An output has at least `stream_interval` tokens and comes at least
    `stream_interval_ms` after the one before; the first and the last output may break both rules.

    `stop_token_ids` and `stop` take any iterable and keep a tuple. Raises `FieldError`, which names
    the wrong field.
    """

    n: int = 1
    max_tokens: int = 16
    min_tokens: int = 0
    stop_token_ids: Accepts[tuple[int, ...], Iterable[int]] = default(())
    ignore_eos: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    stop: Accepts[tuple[str, ...], Iterable[str]] = default(())
    include_stop_str_in_output: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    stream_interval: int = 1
    stream_interval_ms: int = 0
    output_kind: RequestOutputKind = RequestOutputKind.DELTA

    def __post_init__(self) -> None:
        self._check_numbers()
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise FieldError(
                "min_tokens", f"must be in 0..max_tokens ({self.max_tokens}), not {self.min_tokens}"
            )
        if type(self.stop_token_ids) is not tuple or self.stop_token_ids:
            object.__setattr__(self, "stop_token_ids", _token_ids(self.stop_token_ids))
        if type(self.stop) is not tuple or self.stop:
            object.__setattr__(self, "stop", _texts(self.stop))
        if not all(self.stop):
            raise FieldError("stop", "a stop string must not be empty")
        if sum(len(text.encode()) for text in self.stop) > MAX_STOP_BYTES:
            raise FieldError("stop", f"must have at most {MAX_STOP_BYTES} bytes of UTF-8 in all")
        if self.stop and not self.detokenize:
            raise FieldError("stop", "stop strings need text, but detokenize is False")

    def _check_numbers(self) -> None:
        for name, least, most in _INTS:
            value = getattr(self, name)
            if type(value) is not int:
                if value is None and name in _MAY_BE_NONE:
                    continue
                value = _int(name, value)
                object.__setattr__(self, name, value)
            if not least <= value <= most:
                none = "None or " if name in _MAY_BE_NONE else ""
                bound = f"at least {least}" if value < least else f"at most {most}"
                raise FieldError(name, f"must be {none}{bound}, not {value}")
        for name, low, high in _FLOATS:
            value = getattr(self, name)
            if type(value) is not float:
                value = _float(name, value)
                object.__setattr__(self, name, value)
            if not low <= value <= high or (name == "top_p" and value == 0):
                above = "above 0 and" if name == "top_p" else f"at least {low:g} and"
                limit = f"{above} at most {high:g}" if high < MOST_FLOAT else f"at least {low:g}"
                raise FieldError(name, f"must be a number, {limit}, not {value}")


def _int(name: str, value: object) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        raise FieldError(name, f"must be an integer, not {value!r}") from None


def _float(name: str, value: object) -> float:
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise FieldError(name, f"must be a number, not {value!r}") from None


def _token_ids(ids: Iterable[int]) -> tuple[int, ...]:
    try:
        tokens = tuple(map(index, ids))  # takes numpy integers too
    except TypeError as error:
        raise FieldError("stop_token_ids", f"must be token ids, not {ids!r}: {error}") from None
    for token in tokens:
        if not 0 <= token < 1 << 31:
            raise FieldError("stop_token_ids", f"{token} is not a token id")
    return tokens


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    if isinstance(texts, str):
        raise FieldError("stop", "must be a tuple of strings; write (text,) for one")
    try:
        all_texts = tuple(texts)
    except TypeError:
        raise FieldError("stop", f"must be a tuple of strings, not {texts!r}") from None
    for text in all_texts:
        if not isinstance(text, str):
            raise FieldError("stop", f"{text!r} is not a string")
    return all_texts
