"""Write outputs in the form of one endpoint: chunks of a stream, or the whole answer."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Protocol

from tokenpipe.types import RequestOutput, TokenLogprobs, Usage

from .text_codec import Text

LOWEST = -9999.0
"""What stands for a log probability of minus infinity, which JSON cannot say."""


@dataclass(slots=True)
class Choice:
    """What one choice of an answer has so far."""

    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def add(self, text: str, output: RequestOutput) -> None:
        """Append a delta."""
        self.text.append(text)
        self.token_ids += output.token_ids
        self.logprobs += output.logprobs or ()
        self.prompt_logprobs += output.prompt_logprobs or ()
        if output.finish_reason is not None:
            self.finish_reason = str(output.finish_reason)
            self.stop_reason = output.stop_reason


class Form(Protocol):
    """One endpoint's way to write an answer."""

    prompt_field: str  # of the request

    def opening(self, choices: int) -> bytes:
        """Return the events that come before any text."""

    def chunk(self, index: int, text: str, output: RequestOutput) -> bytes:
        """Return the event of a delta of choice `index`."""

    def usage(self, usage: Usage) -> bytes:
        """Return the event that holds a stream's usage."""

    def whole(self, choices: Sequence[Choice], usage: Usage) -> dict[str, Any]:
        """Return the JSON of an answer that is not streamed."""


class _Form:
    """What the two forms share. A stream's chunk is put together from bytes made once."""

    prompt_field: str
    id_prefix: str
    chunk_object: str
    whole_object: str
    before_text: str
    after_text: str

    def __init__(
        self, request_id: str, model: str, text: Text, *, with_usage: bool, with_ids: bool
    ) -> None:
        self.id = f"{self.id_prefix}-{request_id}"
        self.created = int(time.time())
        self.model = model
        self.text = text
        self._with_ids = with_ids
        head = {"id": self.id, "object": self.chunk_object}
        head |= {"created": self.created, "model": model}  # type: ignore[dict-item]
        self._head = "data: " + json.dumps(head)[:-1] + ',"choices":['
        self._tail = '],"usage":null}\n\n' if with_usage else "]}\n\n"
        self._usual = f'"finish_reason":null}}{self._tail}'

    def chunk(self, index: int, text: str, output: RequestOutput) -> bytes:
        """Return the event of a delta of choice `index`."""
        said = f'{self._head}{{"index":{index},{self.before_text}{quoted(text)}{self.after_text},'
        if output.finish_reason is None and output.logprobs is None and not self._with_ids:
            return f'{said}"logprobs":null,{self._usual}'.encode("ascii")
        rest: dict[str, Any] = {"logprobs": self.logprobs(output.logprobs, output.offset)}
        if self._with_ids:
            rest["token_ids"] = output.token_ids
        reason = output.finish_reason
        rest["finish_reason"] = None if reason is None else str(reason)
        if reason is not None:
            rest["stop_reason"] = output.stop_reason
        return f"{said}{json.dumps(rest)[1:]}{self._tail}".encode("ascii")

    def usage(self, usage: Usage) -> bytes:
        """Return the event that holds a stream's usage."""
        return f'{self._head}],"usage":{json.dumps(usage_dict(usage))}}}\n\n'.encode("ascii")

    def whole(self, choices: Sequence[Choice], usage: Usage) -> dict[str, Any]:
        """Return the JSON of an answer that is not streamed."""
        said = []
        for index, choice in enumerate(choices):
            one = {
                "index": index,
                **self.content("".join(choice.text)),
                "logprobs": self.logprobs(choice.logprobs or None, 0),
                "finish_reason": choice.finish_reason,
                "stop_reason": choice.stop_reason,
            }
            if self._with_ids:
                one["token_ids"] = choice.token_ids
            if choice.prompt_logprobs:
                one["prompt_logprobs"] = [self._of_prompt(e) for e in choice.prompt_logprobs]
            said.append(one)
        return {
            "id": self.id,
            "object": self.whole_object,
            "created": self.created,
            "model": self.model,
            "choices": said,
            "usage": usage_dict(usage),
        }

    def _of_prompt(self, entry: TokenLogprobs | None) -> dict[str, Any] | None:
        """Return the logprobs of a prompt's token in vLLM's shape: by id, its own first."""
        if entry is None:
            return None
        own = entry.token_ids[0]
        said: dict[str, Any] = {}
        for nth, (token, value) in enumerate(zip(entry.token_ids, entry.logprobs, strict=True)):
            rank = entry.rank if token == own else nth
            name = self.text.of_token(token)
            said.setdefault(
                str(token), {"logprob": finite(value), "rank": rank, "decoded_token": name}
            )
        return said

    def content(self, text: str) -> dict[str, Any]:
        """Return the text of a whole answer in its field."""
        raise NotImplementedError

    def logprobs(self, found: list[TokenLogprobs] | None, offset: int) -> dict[str, Any] | None:
        """Return logprobs in the endpoint's shape."""
        raise NotImplementedError


class CompletionForm(_Form):
    """The form of /v1/completions."""

    prompt_field = "prompt"
    id_prefix = "cmpl"
    chunk_object = whole_object = "text_completion"
    before_text, after_text = '"text":', ""

    def opening(self, choices: int) -> bytes:
        """Return nothing: the first chunk has text."""
        return b""

    def content(self, text: str) -> dict[str, Any]:
        """Return the text of a whole answer in its field."""
        return {"text": text}

    def logprobs(self, found: list[TokenLogprobs] | None, offset: int) -> dict[str, Any] | None:
        """Return lists side by side, an entry a token."""
        if found is None:
            return None
        name = self.text.of_token
        tokens = [name(entry.token_ids[0]) for entry in found]
        tops = [
            {name(i): finite(v) for i, v in list(zip(e.token_ids, e.logprobs, strict=True))[1:]}
            for e in found
        ]
        return {
            "tokens": tokens,
            "token_logprobs": [finite(entry.logprobs[0]) for entry in found],
            "top_logprobs": tops if any(tops) else None,
        }


class ChatForm(_Form):
    """The form of /v1/chat/completions."""

    prompt_field = "messages"
    id_prefix = "chatcmpl"
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"
    before_text, after_text = '"delta":{"content":', "}"

    def opening(self, choices: int) -> bytes:
        """Return an event for each choice that says who speaks."""
        return b"".join(
            (
                f'{self._head}{{"index":{index},"delta":{{"role":"assistant","content":""}},'
                f'"logprobs":null,{self._usual}'
            ).encode("ascii")
            for index in range(choices)
        )

    def content(self, text: str) -> dict[str, Any]:
        """Return the text of a whole answer in its field."""
        return {"message": {"role": "assistant", "content": text}}

    def logprobs(self, found: list[TokenLogprobs] | None, offset: int) -> dict[str, Any] | None:
        """Return an entry a token, with its alternatives."""
        return None if found is None else {"content": [self._entry(entry) for entry in found]}

    def _entry(self, entry: TokenLogprobs) -> dict[str, Any]:
        said = [
            self._token(token, value)
            for token, value in zip(entry.token_ids, entry.logprobs, strict=True)
        ]
        return {**said[0], "top_logprobs": said[1:]}

    def _token(self, token: int, value: float | None) -> dict[str, Any]:
        name = self.text.of_token(token)
        return {"token": name, "logprob": finite(value), "bytes": list(name.encode())}


def finite(value: float | None) -> float | None:
    """Return a log probability as JSON can say it: NaN is null, minus infinity `LOWEST`."""
    if value is None or math.isnan(value):
        return None
    return max(value, LOWEST) if value < 0 else min(value, 0.0) if math.isinf(value) else value


def usage_dict(usage: Usage) -> dict[str, Any]:
    """Return usage in OpenAI's words; of reasoning only where the engine speaks of it."""
    said: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    if usage.reasoning_tokens is not None:
        said["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return said
