"""Hold the requests of one bench client, and what the client counted and checked."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from tokenpipe.types import ErrorCode, SamplingParams

from .checker import Checker
from .oracle import VOCAB_BITS
from .progress import TokenCounter
from .samples import Samples
from .text_checker import TextChecker

NEVER = -1


class PlannedRequest(NamedTuple):
    """One request: when it is due, its length, and at which token the client cancels it."""

    at_s: float
    output_tokens: int
    cancel_at: int = NEVER


class ClientResults:
    """The checkers and the counts of one client, for both ways of reading.

    `requests` are in order of their time. `bits` is the oracle's. With `logprobs` each request
    asks for so many, with `text` it asks for text; both are then checked.
    """

    def __init__(
        self,
        requests: list[PlannedRequest],
        logprobs: int | None = None,
        bits: int = VOCAB_BITS,
        text: bool = False,
        token_counter: TokenCounter | None = None,
    ) -> None:
        self.requests = requests
        self.checker = Checker(bits=bits, logprobs=logprobs, requests=len(requests))
        self.text = TextChecker(bits, len(requests)) if text else None
        self.reasons: Counter[str] = Counter()
        self.error_codes: Counter[str] = Counter()
        self.cancelled = 0
        self.token_counter = token_counter or TokenCounter()
        self.latency = Samples()
        self.item_tokens: Counter[int] = Counter()
        self.verify_s = 0.0
        self.first = self.last = 0.0
        self.short = 0  # requests that ended before their length, though nobody aborted them
        self.errors: list[str] = []
        self._logprobs = logprobs

    def params(self, request: PlannedRequest) -> SamplingParams:
        """Return the parameters of a request. Nothing but its length ends it."""
        return SamplingParams(
            max_tokens=request.output_tokens,
            ignore_eos=True,
            logprobs=self._logprobs,
            detokenize=self.text is not None,
        )

    def received(self, now: float) -> None:
        """Note that output arrived at `now`, in seconds of the monotonic clock."""
        self.last = now
        self.first = self.first or now

    def ended(
        self,
        key: int,
        finish_reason: str,
        tokens: int,
        wanted: int,
        error: str | None,
        code: ErrorCode | None = None,
    ) -> None:
        """Note that a request ended after `tokens` of `wanted` tokens."""
        if code:
            self.error_codes[code.name.lower()] += 1
        self.reasons[finish_reason] += 1
        if finish_reason not in ("abort", "closed", "error") and tokens != wanted:
            self.short += 1
        if error:
            self.errors.append(error)
        self.checker.finish(key, tokens)

    def report(self) -> dict[str, Any]:
        """Return the verdict, the counts and the times as plain values."""
        verdict = self.checker.verdict()
        return {
            "tokens": verdict.tokens,
            "lost": verdict.lost,
            "duplicated": verdict.duplicated,
            "misattributed": verdict.misattributed,
            "reordered": verdict.reordered,
            "misscored": verdict.misscored,
            "misspelled": 0 if self.text is None else self.text.misspelled,
            "short": self.short,
            "cancelled": self.cancelled,
            "reasons": dict(self.reasons),
            "error_codes": dict(self.error_codes),
            "errors": self.errors[:10],
            "latency_us": self.latency.us(),
            "verify_s": self.verify_s,
            "first": self.first,
            "last": self.last,
            "item_tokens": quantiles(sorted(self.item_tokens.items())),
        }


def quantiles(items: list[tuple[int, int]]) -> dict[str, int]:
    """Return p50, p99 and max of (value, number of times), sorted by value; {} for none."""
    total = sum(n for _, n in items)
    found: dict[str, int] = {}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        seen = 0
        for value, n in items:
            seen += n
            if seen >= share * total:
                found[name] = value
                break
    return found
