"""Count the tokens that arrived correctly, and those that did not."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass
class Verdict:
    """Numbers of tokens. All but `tokens` must be 0."""

    tokens: int = 0  # right, once, in order
    lost: int = 0
    duplicated: int = 0
    misattributed: int = 0  # this request has another token at this offset
    reordered: int = 0  # arrived after a later token of its request
    misscored: int = 0  # without the logprobs asked for, or with wrong or unwanted ones

    @property
    def wrong(self) -> int:
        """Number of tokens that did not arrive as they should."""
        wrong = self.lost + self.duplicated + self.misattributed + self.reordered
        return wrong + self.misscored

    def __add__(self, other: Verdict) -> Verdict:
        mine, theirs = asdict(self), asdict(other)
        return Verdict(**{name: mine[name] + theirs[name] for name in mine})
