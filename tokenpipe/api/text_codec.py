"""Turn the text of a request into token ids, and token ids into the text of a response.

With a tokenizer in the topology the processors make the text of outputs. Without one the text is
plain: each token id in decimal, behind a space; and a prompt is given as token ids. The synthetic
engine, which has no language, also takes text: its tokens are the text's bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np

from tokenpipe.postprocess import Detokenizer, Encoder, load_encoder, text_options
from tokenpipe.topology import Topology
from tokenpipe.types import RequestOutput, SamplingParams

from .chat import DEFAULTS, ChatTemplate
from .problems import Problem
from .request_models import ChatMessage, ChatOptions
from .token_lists import Prompts


class TextCodec(Protocol):
    """Encode the prompts and decode the outputs of one model."""

    finds_stops: bool  # whether stop strings can be found

    def encode_prompts(
        self, prompts: Prompts, special_tokens: bool = True
    ) -> Sequence[Sequence[int]]:
        """Return the token ids of each prompt. Prompts that are ids stay as they are.

        `special_tokens`: a text gets those that the tokenizer adds. Raises Problem. A thread of its
        own may call this and the next one.
        """

    def encode_chat(
        self, messages: Sequence[ChatMessage], options: ChatOptions = DEFAULTS
    ) -> Sequence[int]:
        """Return the token ids of a conversation. Raises Problem."""

    def text(self, output: RequestOutput) -> str:
        """Return the text of an output."""

    def label(self, token_id: int) -> tuple[str, bytes]:
        """Return name and bytes of one token by itself."""

    def detokenizer(self, prompt: Sequence[int], params: SamplingParams) -> Detokenizer | None:
        """Return what makes the text of an output; None where its text is its labels."""


class PlainTextCodec:
    """Text without a tokenizer. With `takes_text` a prompt may be text; its bytes are tokens."""

    finds_stops = False

    def __init__(self, takes_text: bool) -> None:
        self._takes_text = takes_text

    def encode_prompts(
        self, prompts: Prompts, special_tokens: bool = True
    ) -> Sequence[Sequence[int]]:
        """Return the bytes of each text in UTF-8. Raises Problem if text is not taken."""
        return [self._encode(p, "prompt") if isinstance(p, str) else p for p in prompts]

    def _encode(self, text: str, param: str) -> Sequence[int]:
        if not self._takes_text:
            what = f"{param}: the server has no tokenizer; give a list of token ids"
            raise Problem(400, what, param=param, code="no_tokenizer")
        ids = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
        return array("i", ids.tobytes())

    def encode_chat(
        self, messages: Sequence[ChatMessage], options: ChatOptions = DEFAULTS
    ) -> Sequence[int]:
        """Return the bytes of the conversation: a line for each message, its role in front."""
        if options.template_kwargs:
            name = "chat_template_kwargs"
            raise Problem(400, f"{name}: the server has no chat template", param=name)
        text = "\n".join(f"{message.role}: {message.text}" for message in messages)
        if not options.continue_final_message:
            text += "\nassistant:" if options.add_generation_prompt else "\n"
        return self._encode(text, "messages")

    def text(self, output: RequestOutput) -> str:
        """Return each token id in decimal, behind a space."""
        ids = output.token_ids
        return f" {ids[0]}" if len(ids) == 1 else "".join([f" {token}" for token in ids])

    def label(self, token_id: int) -> tuple[str, bytes]:
        """Return the token id in decimal, behind a space."""
        return f" {token_id}", f" {token_id}".encode()

    def detokenizer(self, prompt: Sequence[int], params: SamplingParams) -> Detokenizer | None:
        """Return None: the text of an output is its labels."""
        return None


class TokenizerCodec:
    """Text by the topology's tokenizer. Outputs come with their text."""

    finds_stops = True

    def __init__(self, encoder: Encoder, template: ChatTemplate | None) -> None:
        self._encoder = encoder
        self._template = template

    def encode_prompts(
        self, prompts: Prompts, special_tokens: bool = True
    ) -> Sequence[Sequence[int]]:
        """Return the token ids of each text. Raises Problem for a text without a token."""
        if not isinstance(prompts[0], str):
            return cast("Sequence[Sequence[int]]", prompts)
        encoded = self._encoder.encode(prompts, special_tokens)
        if not all(encoded):
            raise Problem(400, "prompt: the text has no token", param="prompt")
        return encoded

    def encode_chat(
        self, messages: Sequence[ChatMessage], options: ChatOptions = DEFAULTS
    ) -> Sequence[int]:
        """Return the token ids of the text that the model's template makes of a conversation."""
        if self._template is None:
            what = "messages: the model has no chat template; /v1/completions takes prompts"
            raise Problem(400, what, param="messages", code="no_chat_template")
        text = self._template.render(messages, options)
        (ids,) = self._encoder.encode([text], options.special_tokens)
        return ids

    def text(self, output: RequestOutput) -> str:
        """Return the text that the output came with."""
        return output.text

    def label(self, token_id: int) -> tuple[str, bytes]:
        """Return name and bytes of the token after another one."""
        return self._encoder.token(token_id)

    def detokenizer(self, prompt: Sequence[int], params: SamplingParams) -> Detokenizer | None:
        """Return what makes the text of an output; None if it has no text."""
        if not params.detokenize:
            return None
        options = text_options(
            prompt,
            skip_special_tokens=params.skip_special_tokens,
            spaces_between_special_tokens=params.spaces_between_special_tokens,
        )
        return self._encoder.detokenizer(options)


def text_codec_of(topology: Topology, takes_text: bool) -> TextCodec:
    """Return the codec of a topology. Raises ConfigError."""
    if topology.tokenizer is None:
        return PlainTextCodec(takes_text)
    given = topology.api.chat_template
    template = ChatTemplate.read(given) if given else ChatTemplate.beside(topology.tokenizer)
    return TokenizerCodec(load_encoder(topology.tokenizer), template)
