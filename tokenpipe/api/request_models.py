"""The bodies of requests: the fields of OpenAI's API, and the usual ones that vLLM adds.

A field that would change the response and is not served is refused by name. It is never ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator

from tokenpipe.errors import FieldError
from tokenpipe.instance import STANDARD_FIELDS
from tokenpipe.types import SamplingParams

from .problems import Problem
from .token_lists import Prompts, prompts_of, stop_ids_of
from .unserved_fields import refuse_unserved

MAX_N = 128
MAX_STOPS = 16

# Fields of several types. Pydantic would give an error for each of the types.
UNION_ERRORS = {
    "stop": f"must be a string, or a list of at most {MAX_STOPS}",
    "content": 'must be a text, or a list of parts {"type": "text", "text": ...}',
}

_TEMPLATE_VALUES = frozenset({"messages", "add_generation_prompt"})


class _RequestBody(BaseModel):
    """In a body null means the same as no value."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        needed = {name for name, field in cls.model_fields.items() if field.is_required()}
        return {k: v for k, v in given.items() if v is not None or k in needed}


class StreamOptions(_RequestBody):
    """What a stream has beside its chunks."""

    include_usage: bool = False
    continuous_usage_stats: bool = False  # each chunk has the usage so far


class GenerationRequest(_RequestBody):
    """The fields that both endpoints have. A field without an effect here (`user`) is ignored."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_N)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | Annotated[list[str], Field(max_length=MAX_STOPS)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=1 << 31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    ignore_eos: bool = False
    stop_token_ids: Annotated[Sequence[int], PlainValidator(stop_ids_of)] = ()
    request_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False  # names of tokens are "token_id:7"
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    detokenize: bool = True
    prompt_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    stream_interval: Annotated[int, Field(ge=1, lt=1 << 31)] = 1
    stream_interval_ms: Annotated[int, Field(ge=0, le=60_000)] = 0

    def refuse_what_is_not_served(self, declared: Collection[str] = ()) -> None:
        """Raise Problem, a 400 that names the field. The fields in `declared` are served."""
        refuse_unserved(self.model_extra or {}, declared, STANDARD_FIELDS)
        if self.stream_options is not None and not self.stream:
            raise Problem(400, "stream_options: only with stream", param="stream_options")
        if self.prompt_logprobs is not None and self.stream:
            what = "prompt_logprobs: not with stream"
            raise Problem(400, what, param="prompt_logprobs", code="unsupported")

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def params(self, max_tokens: int, logprobs: int | None) -> SamplingParams:
        """Return the parameters of the request. Raises Problem if a value is wrong."""
        given: dict[str, Any] = {
            "n": self.n,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
        }
        try:
            return SamplingParams(
                max_tokens=max_tokens,
                min_tokens=self.min_tokens,
                stop_token_ids=tuple(self.stop_token_ids),
                ignore_eos=self.ignore_eos,
                seed=self.seed,
                logprobs=logprobs,
                prompt_logprobs=self.prompt_logprobs,
                stop=self.stops,
                include_stop_str_in_output=self.include_stop_str_in_output,
                skip_special_tokens=self.skip_special_tokens,
                spaces_between_special_tokens=self.spaces_between_special_tokens,
                detokenize=self.detokenize,
                stream_interval=self.stream_interval,
                stream_interval_ms=self.stream_interval_ms,
                **{name: value for name, value in given.items() if value is not None},
            )
        except FieldError as error:
            raise Problem(400, str(error), param=error.field) from None


class CompletionRequest(GenerationRequest):
    """The body of POST /v1/completions."""

    prompt: Annotated[Prompts, PlainValidator(prompts_of)]  # one text or list of ids is a list too
    max_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    add_special_tokens: bool = True

    @property
    def given_max_tokens(self) -> tuple[str, int] | None:
        """The field that bounds the output, and its value; None if the caller gave none."""
        return None if self.max_tokens is None else ("max_tokens", self.max_tokens)


class ContentPart(BaseModel):
    """A part of a message's content. Only text is served."""

    model_config = ConfigDict(extra="allow")
    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="allow")
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Annotated[list[ContentPart], Field(fail_fast=True)] | None = None

    @property
    def text(self) -> str:
        """The content as one string."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class ChatOptions(NamedTuple):
    """Says how a conversation becomes a prompt."""

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    special_tokens: bool = False  # those that the tokenizer adds; a template writes its own
    template_kwargs: Mapping[str, Any] = MappingProxyType({})


class ChatCompletionRequest(GenerationRequest):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, fail_fast=True)]
    max_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    @property
    def options(self) -> ChatOptions:
        """How the conversation becomes a prompt. Raises Problem."""
        goes_on = self.continue_final_message
        if goes_on and self.add_generation_prompt:
            what = "continue_final_message: not with add_generation_prompt"
            raise Problem(400, what, param="continue_final_message")
        if ours := _TEMPLATE_VALUES.intersection(self.chat_template_kwargs):
            what = f"chat_template_kwargs: the server sets {', '.join(sorted(ours))}"
            raise Problem(400, what, param="chat_template_kwargs")
        asked = not goes_on if self.add_generation_prompt is None else self.add_generation_prompt
        return ChatOptions(asked, goes_on, self.add_special_tokens, self.chat_template_kwargs)

    @property
    def given_max_tokens(self) -> tuple[str, int] | None:
        """The field that bounds the output, and its value; None if the caller gave none."""
        if self.max_completion_tokens is not None:
            return "max_completion_tokens", self.max_completion_tokens
        return None if self.max_tokens is None else ("max_tokens", self.max_tokens)

    @property
    def wanted_logprobs(self) -> int | None:
        """How many alternatives each token has; None if no logprobs are wanted."""
        if self.top_logprobs and not self.logprobs:
            raise Problem(400, "top_logprobs: only with logprobs", param="top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None


class AbortRequest(BaseModel):
    """The body of POST /v1/abort. The id may have the prefix that an answer shows."""

    request_id: Annotated[str, Field(min_length=1, max_length=640)]
