"""Keep what a client of the bench knows of its requests: what it asked for, got and checked."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from tokenpipe.types import SamplingParams

from .checker import Checker
from .oracle import VOCAB_BITS
from .progress import TokenCounter
from .samples import Samples
from .text_checker import TextChecker

NEVER = -1


class PlannedRequest(NamedTuple):
    """One request to submit: when, how long, and after how many tokens to give it up."""

    at_s: float
    output_tokens: int
    cancel_at: int = NEVER


class ClientResults:
    """What both ways of reading share: the checker, the counts, the report."""

    def __init__(
        self,
        work: list[PlannedRequest],
        logprobs: int | None = None,
        bits: int = VOCAB_BITS,
        text: bool = False,
        tally: TokenCounter | None = None,
    ) -> None:
        self.work = work
        self.checker = Checker(bits=bits, logprobs=logprobs, requests=len(work))
        self.text = TextChecker(bits, len(work)) if text else None
        self.reasons: Counter[str] = Counter()
        self.cancelled = 0
        self.tally = tally or TokenCounter()
        self.latency = Samples()
        self.item_tokens: Counter[int] = Counter()
        self.verify_s = 0.0
        self.first = self.last = 0.0
        self.short = 0  # requests that ended before their length though nobody aborted them
        self.errors: list[str] = []
        self._logprobs = logprobs

    def params(self, work: PlannedRequest) -> SamplingParams:
        """Return the parameters of one request: its length and nothing else ends it."""
        return SamplingParams(
            max_tokens=work.output_tokens,
            ignore_eos=True,
            logprobs=self._logprobs,
            detokenize=self.text is not None,
        )

    def ended(self, key: int, reason: str, tokens: int, wanted: int, error: str | None) -> None:
        """Book a final output."""
        self.reasons[reason] += 1
        if reason not in ("abort", "left", "error") and tokens != wanted:
            self.short += 1
        if error:
            self.errors.append(error)
        self.checker.finish(key, tokens)

    def report(self) -> dict[str, Any]:
        """Return verdict, counts and times as plain values."""
        verdict = self.checker.verdict()
        items = sorted(self.item_tokens.items())
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
            "errors": self.errors[:10],
            "latency_us": self.latency.us(),
            "verify_s": self.verify_s,
            "first": self.first,
            "last": self.last,
            "item_tokens": quantiles(items),
        }


def quantiles(items: list[tuple[int, int]]) -> dict[str, int]:
    """Return p50, p99 and max of (value, how often), sorted by value; empty for nothing."""
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
