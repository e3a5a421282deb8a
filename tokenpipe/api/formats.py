"""Write outputs in the format of one endpoint: the events of a stream, or one JSON object."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from tokenpipe.types import RequestOutput, TokenLogprobs, Usage

from .json_text import json_text, quoted
from .text_codec import TextCodec

ENTRIES_AT_ONCE = 32  # of a list; 32 tokens with 20 alternatives each take about a millisecond
LOWEST = -9999.0
"""Stands for a log probability of minus infinity, which JSON cannot express."""


@dataclass(slots=True)
class ChoiceBuffer:
    """The outputs of one choice, until the response is sent as a whole."""

    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def add(self, text: str, output: RequestOutput) -> None:
        """Append an output and its text."""
        self.text.append(text)
        self.token_ids += output.token_ids
        self.logprobs += output.logprobs or ()
        self.prompt_logprobs += output.prompt_logprobs or ()
        if output.finish_reason is not None:
            self.finish_reason = str(output.finish_reason)
            self.stop_reason = output.stop_reason


class EndpointFormat(Protocol):
    """The format of one endpoint's responses."""

    prompt_field: str  # the request's field that has the prompt

    def opening(self, choices: int) -> bytes:
        """Return the events that precede all text."""

    def chunk(self, index: int, text: str, output: RequestOutput) -> bytes:
        """Return the event of an output of the choice with this index."""

    def chunk_parts(self, index: int, text: str, output: RequestOutput) -> Iterator[str]:
        """Yield the same event in small parts, for an output of any size."""

    def usage(self, usage: Usage) -> bytes:
        """Return the event with the usage of a stream."""

    def whole(self, choices: Sequence[ChoiceBuffer], usage: Usage) -> Iterator[str]:
        """Yield the JSON object of a response that is not streamed, in small parts."""


class _SharedFormat:
    """The parts that both formats share. A chunk is joined from text that is made once."""

    prompt_field: str
    id_prefix: str
    chunk_object: str
    whole_object: str
    before_text: str
    after_text: str

    def __init__(
        self, request_id: str, model: str, codec: TextCodec, *, with_usage: bool, with_ids: bool
    ) -> None:
        """`with_usage`: a stream has its usage. `with_ids`: choices have their token ids."""
        self.id = f"{self.id_prefix}-{request_id}"
        self.created = int(time.time())
        self.model = model
        self.codec = codec
        self._with_ids = with_ids
        head = {"id": self.id, "object": self.chunk_object}
        head |= {"created": self.created, "model": model}  # type: ignore[dict-item]
        self._head = "data: " + json_text(head)[:-1] + ',"choices":['
        self._tail = '],"usage":null}\n\n' if with_usage else "]}\n\n"
        self._plain_end = f'"finish_reason":null}}{self._tail}'

    def chunk(self, index: int, text: str, output: RequestOutput) -> bytes:
        """Return the event of an output of the choice with this index."""
        if output.finish_reason is None and output.logprobs is None and not self._with_ids:
            begin = self._begin(index, text)
            return f'{begin}"logprobs":null,{self._plain_end}'.encode()
        return "".join(self.chunk_parts(index, text, output)).encode()

    def chunk_parts(self, index: int, text: str, output: RequestOutput) -> Iterator[str]:
        """Yield the same event in small parts, for an output of any size."""
        yield self._begin(index, text)
        yield from self._logprobs(output.logprobs, output.offset)
        if self._with_ids:
            yield ', "token_ids": '
            yield from json_list(output.token_ids, 4096)
        reason = output.finish_reason
        if reason is None:
            yield f', "finish_reason": null}}{self._tail}'
        else:
            yield f', "finish_reason": "{reason}", '
            yield f'"stop_reason": {json_text(output.stop_reason)}}}{self._tail}'

    def _begin(self, index: int, text: str) -> str:
        return f'{self._head}{{"index":{index},{self.before_text}{quoted(text)}{self.after_text},'

    def usage(self, usage: Usage) -> bytes:
        """Return the event with the usage of a stream."""
        return f'{self._head}],"usage":{json_text(usage_dict(usage))}}}\n\n'.encode()

    def whole(self, choices: Sequence[ChoiceBuffer], usage: Usage) -> Iterator[str]:
        """Yield the JSON object of a response that is not streamed, in small parts."""
        head = {"id": self.id, "object": self.whole_object}
        head |= {"created": self.created, "model": self.model}  # type: ignore[dict-item]
        yield json_text(head)[:-1] + ', "choices": ['
        for index, choice in enumerate(choices):
            yield ", " if index else ""
            yield from self._choice(index, choice)
        yield f'], "usage": {json_text(usage_dict(usage))}}}'

    def _choice(self, index: int, choice: ChoiceBuffer) -> Iterator[str]:
        content = {"index": index, **self.content("".join(choice.text))}
        yield json_text(content)[:-1] + ", "
        yield from self._logprobs(choice.logprobs or None, 0)
        end = {"finish_reason": choice.finish_reason, "stop_reason": choice.stop_reason}
        yield ", " + json_text(end)[1:-1]
        if self._with_ids:
            yield ', "token_ids": '
            yield from json_list(choice.token_ids, 4096)
        if choice.prompt_logprobs:
            yield ', "prompt_logprobs": '
            yield from json_list(map(self._of_prompt, choice.prompt_logprobs))
        yield "}"

    def _logprobs(self, entries: list[TokenLogprobs] | None, offset: int) -> Iterator[str]:
        """Yield the field of logprobs."""
        yield '"logprobs": '
        if entries is None:
            yield "null"
        else:
            yield from self.logprobs(entries, offset)

    def _of_prompt(self, entry: TokenLogprobs | None) -> dict[str, Any] | None:
        """Return the logprobs of a prompt token as vLLM writes them: by id, its own id first."""
        if entry is None:
            return None
        own = entry.token_ids[0]
        by_id: dict[str, Any] = {}
        for nth, (token, value) in enumerate(zip(entry.token_ids, entry.logprobs, strict=True)):
            rank = entry.rank if token == own else nth
            text = self.codec.token_text(token)
            by_id.setdefault(
                str(token), {"logprob": finite(value), "rank": rank, "decoded_token": text}
            )
        return by_id

    def content(self, text: str) -> dict[str, Any]:
        """Return the field that has the text of a whole choice."""
        raise NotImplementedError

    def logprobs(self, entries: list[TokenLogprobs], offset: int) -> Iterator[str]:
        """Yield logprobs in the format of the endpoint, in small parts."""
        raise NotImplementedError


class CompletionFormat(_SharedFormat):
    """The format of /v1/completions."""

    prompt_field = "prompt"
    id_prefix = "cmpl"
    chunk_object = whole_object = "text_completion"
    before_text, after_text = '"text":', ""

    def opening(self, choices: int) -> bytes:
        """Return nothing: the first chunk has text."""
        return b""

    def content(self, text: str) -> dict[str, Any]:
        """Return the field that has the text of a whole choice."""
        return {"text": text}

    def logprobs(self, entries: list[TokenLogprobs], offset: int) -> Iterator[str]:
        """Yield three lists that have an entry for each token."""
        text = self.codec.token_text
        yield '{"tokens": '
        yield from json_list(text(entry.token_ids[0]) for entry in entries)
        yield ', "token_logprobs": '
        yield from json_list(finite(entry.logprobs[0]) for entry in entries)
        yield ', "top_logprobs": '
        if any(len(entry.token_ids) > 1 for entry in entries):
            yield from json_list(map(self._top, entries))
        else:
            yield "null"
        yield "}"

    def _top(self, entry: TokenLogprobs) -> dict[str, float | None]:
        text = self.codec.token_text
        pairs = list(zip(entry.token_ids, entry.logprobs, strict=True))[1:]
        return {text(token): finite(value) for token, value in pairs}


class ChatFormat(_SharedFormat):
    """The format of /v1/chat/completions."""

    prompt_field = "messages"
    id_prefix = "chatcmpl"
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"
    before_text, after_text = '"delta":{"content":', "}"

    def opening(self, choices: int) -> bytes:
        """Return an event for each choice, which names the assistant's role."""
        return b"".join(
            (
                f'{self._head}{{"index":{index},"delta":{{"role":"assistant","content":""}},'
                f'"logprobs":null,{self._plain_end}'
            ).encode()
            for index in range(choices)
        )

    def content(self, text: str) -> dict[str, Any]:
        """Return the field that has the text of a whole choice."""
        return {"message": {"role": "assistant", "content": text}}

    def logprobs(self, entries: list[TokenLogprobs], offset: int) -> Iterator[str]:
        """Yield a list that has an entry for each token, with its alternatives."""
        yield '{"content": '
        yield from json_list(map(self._entry, entries))
        yield "}"

    def _entry(self, entry: TokenLogprobs) -> dict[str, Any]:
        own, *alternatives = [
            self._token(token, value)
            for token, value in zip(entry.token_ids, entry.logprobs, strict=True)
        ]
        return {**own, "top_logprobs": alternatives}

    def _token(self, token: int, value: float | None) -> dict[str, Any]:
        text = self.codec.token_text(token)
        return {"token": text, "logprob": finite(value), "bytes": list(text.encode())}


def json_list(entries: Iterable[Any], at_once: int = ENTRIES_AT_ONCE) -> Iterator[str]:
    """Yield a JSON list of any size in parts of a few entries, which are made when they are due."""
    left = iter(entries)
    comma = "["
    while some := list(islice(left, at_once)):
        yield comma + json_text(some)[1:-1]
        comma = ", "
    yield "]" if comma == ", " else "[]"


def finite(value: float | None) -> float | None:
    """Return a log probability that JSON can express: null for NaN, `LOWEST` for -infinity."""
    if value is None or math.isnan(value):
        return None
    return max(value, LOWEST) if value < 0 else min(value, 0.0) if math.isinf(value) else value


def usage_dict(usage: Usage) -> dict[str, Any]:
    """Return the usage as OpenAI writes it; reasoning tokens only where the engine counts them."""
    fields: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    if usage.reasoning_tokens is not None:
        fields["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return fields
