"""Write outputs in the format of one endpoint: the events of a stream, or one JSON object."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tokenpipe.types import RequestOutput, SamplingParams, TokenLogprobs, Usage

from .json_text import json_text, quoted
from .logprob_formats import chat_logprobs, completion_logprobs, json_list, prompt_logprobs
from .text_codec import TextCodec
from .token_names import TokenNames


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """What the caller asked for, and what it is about.

    Args:
        prompts: token ids of each prompt.
        params: of each prompt.
        with_usage: a stream ends with its usage.
        each_usage: each chunk of a stream has the usage so far.
        with_ids: choices have their token ids.
        names_as_ids: tokens are named by their ids.
        eos_token_ids: an end by one of these has no stop reason, as in vLLM.
    """

    prompts: Sequence[Sequence[int]] = ((),)
    params: Sequence[SamplingParams] = (SamplingParams(),)
    with_usage: bool = False
    each_usage: bool = False
    with_ids: bool = False
    names_as_ids: bool = False
    eos_token_ids: Sequence[int] = ()


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
        self, request_id: str, model: str, codec: TextCodec, options: FormatOptions
    ) -> None:
        self.id = f"{self.id_prefix}-{request_id}"
        self.created = int(time.time())
        self.model = model
        self.codec = codec
        self._options = options
        self._names: dict[int, TokenNames] = {}  # of the choices with logprobs, by index
        stops = options.params[0].stop_token_ids
        self._eos = frozenset(options.eos_token_ids).difference(stops)
        self._completion_tokens = 0
        head = {"id": self.id, "object": self.chunk_object}
        head |= {"created": self.created, "model": model}  # type: ignore[dict-item]
        self._head = "data: " + json_text(head)[:-1] + ',"choices":['
        self._plain_tail = '],"usage":null}\n\n' if options.with_usage else "]}\n\n"

    @property
    def _tail(self) -> str:
        """The end of a chunk."""
        if not self._options.each_usage:
            return self._plain_tail
        prompt_tokens = sum(map(len, self._options.prompts))
        usage = usage_dict(Usage(prompt_tokens, self._completion_tokens))
        del usage["prompt_tokens_details"]  # it is known at the end
        return f'],"usage":{json_text(usage)}}}\n\n'

    def chunk(self, index: int, text: str, output: RequestOutput) -> bytes:
        """Return the event of an output of the choice with this index."""
        if output.finish_reason is None and output.logprobs is None and not self._options.with_ids:
            self._completion_tokens += len(output.token_ids)
            begin = self._begin(index, text)
            return f'{begin}"logprobs":null,"finish_reason":null}}{self._tail}'.encode()
        return "".join(self.chunk_parts(index, text, output)).encode()

    def chunk_parts(self, index: int, text: str, output: RequestOutput) -> Iterator[str]:
        """Yield the same event in small parts, for an output of any size."""
        self._completion_tokens += len(output.token_ids)
        yield self._begin(index, text)
        yield from self._logprobs(index, text, output.logprobs, output.finished)
        if self._options.with_ids:
            yield ', "token_ids": '
            yield from json_list(output.token_ids, 4096)
        reason = output.finish_reason
        if reason is None:
            yield f', "finish_reason": null}}{self._tail}'
        else:
            yield f', "finish_reason": "{reason}", '
            yield f'"stop_reason": {json_text(self._stop_reason(output))}}}{self._tail}'

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
        text = "".join(choice.text)
        yield json_text({"index": index, **self.content(text)})[:-1] + ", "
        yield from self._logprobs(index, text, choice.logprobs or None, True)
        end = {"finish_reason": choice.finish_reason, "stop_reason": self._stop_reason(choice)}
        yield ", " + json_text(end)[1:-1]
        if self._options.with_ids:
            yield ', "token_ids": '
            yield from json_list(choice.token_ids, 4096)
        if choice.prompt_logprobs:
            yield ', "prompt_logprobs": '
            label = self.codec.label
            yield from json_list(prompt_logprobs(e, label) for e in choice.prompt_logprobs)
        yield "}"

    def _stop_reason(self, ended: RequestOutput | ChoiceBuffer) -> int | str | None:
        """Return the stop token id or stop string of the caller; None for the model's EOS."""
        reason = ended.stop_reason
        return None if isinstance(reason, int) and reason in self._eos else reason

    def _logprobs(
        self, index: int, text: str, entries: list[TokenLogprobs] | None, last: bool
    ) -> Iterator[str]:
        """Yield the field of logprobs, for the next text of a choice."""
        yield '"logprobs": '
        if self._options.params[0].logprobs is None:
            yield "null"
            return
        if index not in self._names:
            self._names[index] = self._names_of(index)
        names = self._names[index]
        names.told(text)
        if entries is None:
            yield "null"
        else:
            yield from self.logprobs(entries, names, last)

    def _names_of(self, index: int) -> TokenNames:
        options, codec = self._options, self.codec
        at = index // options.params[0].n
        detokenizer = codec.detokenizer(options.prompts[at], options.params[at])
        return TokenNames(codec.label, detokenizer, as_ids=options.names_as_ids)

    def content(self, text: str) -> dict[str, Any]:
        """Return the field that has the text of a whole choice."""
        raise NotImplementedError

    def logprobs(
        self, entries: list[TokenLogprobs], names: TokenNames, last: bool
    ) -> Iterator[str]:
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

    def logprobs(
        self, entries: list[TokenLogprobs], names: TokenNames, last: bool
    ) -> Iterator[str]:
        """Yield logprobs in the format of the endpoint, in small parts."""
        return completion_logprobs(entries, names, last)


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
                f'"logprobs":null,"finish_reason":null}}{self._tail}'
            ).encode()
            for index in range(choices)
        )

    def content(self, text: str) -> dict[str, Any]:
        """Return the field that has the text of a whole choice."""
        return {"message": {"role": "assistant", "content": text}}

    def logprobs(
        self, entries: list[TokenLogprobs], names: TokenNames, last: bool
    ) -> Iterator[str]:
        """Yield logprobs in the format of the endpoint, in small parts."""
        return chat_logprobs(entries, names, last)


def usage_dict(usage: Usage) -> dict[str, Any]:
    """Return the usage as OpenAI writes it; reasoning tokens only if the engine counts them."""
    fields: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    if usage.reasoning_tokens is not None:
        fields["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return fields
