"""Messages from the pipeline to a processor."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import U32, U64, Handle, Stops, TokenIds, Wide, Yes


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a request to a slot of a rank. `output_token_ids` are the tokens that it has already."""

    handle: Handle
    rank_incarnation: U64
    key: U64
    client: U32
    max_tokens: U32
    min_tokens: U32 = 0
    ignore_eos: Yes = False
    stop_token_ids: TokenIds = ()
    output_token_ids: TokenIds = ()
    prefill: Yes = False  # the binding ends with HandlePrefilled after its first tokens
    stream_interval: U32 = 1
    stream_interval_ms: U32 = 0
    cached_tokens: U32 = 0  # prompt tokens from a cache, for the usage
    text: Yes = False  # make text; the fields up to prompt_cut say how
    stop: Stops = ()
    include_stop_str_in_output: Yes = False
    skip_special_tokens: Yes = True
    spaces_between_special_tokens: Yes = True
    prompt_tail: TokenIds = ()
    prompt_cut: Yes = False  # the prompt has tokens before its tail
    extras_offset: U64 = 0  # bytes of extras that the client has


@dataclass(frozen=True, slots=True)
class Preempt:
    """Preempt a binding. HandleRescheduled follows its drained row."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class Abort:
    """End a binding's request now. HandleReleased follows its drained row."""

    handle: Handle


@dataclass(frozen=True, slots=True)
class OpenRank:
    """Serve this rank's lanes. `floors`: the highest dead generation of each slot, or empty."""

    dp: U32
    floors: Wide = ()


@dataclass(frozen=True, slots=True)
class OpenClient:
    """Send output to this incarnation of a client."""

    client: U32
    incarnation: U64


@dataclass(frozen=True, slots=True)
class CloseClient:
    """Forget a client and drop its output."""

    client: U32


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Ask for Counters, which have the same id."""

    id: U64
