"""Judge a request by the bounds of the topology, before anything is made for it or sent.

A frame that is too large for its lane could not be sent, neither the one that submits the request
nor one with a row of its output.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenpipe.errors import FieldError
from tokenpipe.types import SamplingParams

SUBMIT_BYTES = 512  # at most, of a message without its prompt, id, stops and extra
ROW_BYTES = 512  # at most, of a row without its tokens and logprobs, and of the frame around it
PROMPT = "prompt_token_ids"


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """The topology's bounds of the requests of one client, in bytes. `vocab_size` None is any."""

    max_frame_bytes: int = (1 << 32) - 1
    stream_bytes: int = (1 << 32) - 1
    vocab_size: int | None = None

    def check(
        self, prompt: int, params: SamplingParams, more: int, *, streamed: bool = True
    ) -> None:
        """Raise FieldError, which names the field, for a request whose frames would not fit.

        Args:
            prompt: the number of prompt tokens.
            params: how to sample. Its `logprobs` are judged by one token, `prompt_logprobs` by the
                whole prompt, because they come with the first token.
            more: bytes of the request's id and of its `extra`.
            streamed: the output goes into a stream, which has a bound too.
        """
        self._check_submits(prompt, params, more)
        for field, tokens in (("logprobs", 1), ("prompt_logprobs", prompt)):
            wanted = getattr(params, field)
            if wanted is None:
                continue
            entries = 1 + (wanted if self.vocab_size is None else min(wanted, self.vocab_size))
            size = ROW_BYTES + tokens * (12 + 8 * entries)
            name, most = self._row_bound(streamed and field == "logprobs")
            if size > most:
                what = f"{wanted} for {tokens} token(s) take {size} bytes, {name} is {most}"
                raise FieldError(field, what)

    def _check_submits(self, prompt: int, params: SamplingParams, more: int) -> None:
        """Judge the frame that submits all samples."""
        most = self.max_frame_bytes
        stops = sum(5 + len(text.encode()) for text in params.stop) + 4 * len(params.stop_token_ids)
        one = SUBMIT_BYTES + more + stops
        size = one + 4 * prompt
        if size > most:
            field = "extra" if one > most else PROMPT
            what = f"{prompt} tokens and {one} other bytes, bounds.max_frame_bytes is {most}"
            raise FieldError(field, what)
        if size * params.n > most:
            what = f"{params.n} samples of {size} bytes each, bounds.max_frame_bytes is {most}"
            raise FieldError("n", what)

    def _row_bound(self, streamed: bool) -> tuple[str, int]:
        """Return name and value of the bound. Prompt logprobs come to a stream in pieces."""
        frame, stream = self.max_frame_bytes, self.stream_bytes
        if streamed and stream < frame:
            return "bounds.stream_bytes", stream
        return "bounds.max_frame_bytes", frame


NO_LIMITS = SizeLimits()
