"""Turn a caller's text into token ids, and ids into the text of an answer, where there is one.

With a tokenizer in the topology an answer's text comes from the processor, made of its tokens
there. Without one it is plain: each token id in decimal, behind a space. A prompt is then given as
token ids; the synthetic engine, which has no language, also takes text, as its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tokenpipe.postprocess import Encoder, load_encoder
from tokenpipe.topology import Topology
from tokenpipe.types import RequestOutput

from .chat import ChatTemplate
from .problems import Problem
from .request_models import ChatMessage


class Text(Protocol):
    """What an API server knows about text."""

    can_stop: bool  # stop strings can be found

    def encode(self, text: str, param: str) -> list[int]:
        """Return the ids of a prompt. Raises Problem."""

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Return the ids of a conversation. Raises Problem."""

    def of(self, output: RequestOutput) -> str:
        """Return the text of a delta."""

    def of_token(self, token_id: int) -> str:
        """Return what one token looks like."""


class PlainText:
    """Ids in decimal. `takes_text`: prompts may be text, whose UTF-8 bytes are its ids."""

    can_stop = False

    def __init__(self, takes_text: bool) -> None:
        self._takes_text = takes_text

    def encode(self, text: str, param: str) -> list[int]:
        """Return the bytes of a text, where that is taken."""
        if not self._takes_text:
            said = f"{param}: the server has no tokenizer; give a list of token ids"
            raise Problem(400, said, param=param, code="no_tokenizer")
        return list(text.encode())

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Return the bytes of role and content, line by line."""
        text = "".join(f"{message.role}: {message.text}\n" for message in messages)
        return self.encode(f"{text}assistant:", "messages")

    def of(self, output: RequestOutput) -> str:
        """Return each id behind a space."""
        ids = output.token_ids
        return f" {ids[0]}" if len(ids) == 1 else "".join([f" {token}" for token in ids])

    def of_token(self, token_id: int) -> str:
        """Return the id behind a space."""
        return f" {token_id}"


class TokenizerText:
    """Text by the topology's tokenizer; answers have theirs when they come."""

    can_stop = True

    def __init__(self, encoder: Encoder, template: ChatTemplate | None) -> None:
        self._encoder = encoder
        self._template = template

    def encode(self, text: str, param: str) -> list[int]:
        """Return the ids of a text; an empty one has none and is refused."""
        ids = self._encoder.encode(text)
        if not ids:
            raise Problem(400, f"{param}: there is no token in it", param=param)
        return ids

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Return the ids of what the model's template makes of a conversation."""
        if self._template is None:
            said = "messages: the model has no chat template; /v1/completions takes prompts"
            raise Problem(400, said, param="messages", code="no_chat_template")
        text = self._template.render(messages)
        return self._encoder.encode(text, special_tokens=False)  # the template has them

    def of(self, output: RequestOutput) -> str:
        """Return the text that came with it."""
        return output.text

    def of_token(self, token_id: int) -> str:
        """Return what the token reads as by itself."""
        return self._encoder.token(token_id)


def text_for(topology: Topology, takes_text: bool) -> Text:
    """Return what a server of this topology knows. Raises ConfigError."""
    if topology.tokenizer is None:
        return PlainText(takes_text)
    given = topology.api.chat_template
    template = ChatTemplate.read(given) if given else ChatTemplate.beside(topology.tokenizer)
    return TokenizerText(load_encoder(topology.tokenizer), template)
