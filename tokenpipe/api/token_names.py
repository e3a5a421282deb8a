"""Name the tokens of one choice, so that the names joined are its text.

A token alone may have another text than within an output: a space may be missing, or it may be a
part of a character. So each token is named by the text that it adds to the output. An alternative
is named by its text after another token, or by its bytes if these are a part of a character.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tokenpipe.postprocess import Detokenizer
from tokenpipe.types import TokenLogprobs

Label = Callable[[int], tuple[str, bytes]]


class NamedToken(NamedTuple):
    """A token of an output."""

    name: str  # the text that it adds; "" if it adds none, as a first part of a character does
    offset: int  # characters of the text before it
    raw: bytes  # its bytes; of all tokens joined, those of the text


class TokenNames:
    """The names of the tokens of one choice. A stream names them as they come."""

    def __init__(
        self, label: Label, detokenizer: Detokenizer | None = None, *, as_ids: bool = False
    ) -> None:
        """Make the names of a choice without tokens.

        Args:
            label: returns name and bytes of a token by itself.
            detokenizer: makes the text of the choice; None: a token adds its label.
            as_ids: name each token "token_id:" and its id.
        """
        self._label = label
        self._detokenizer = detokenizer
        self._as_ids = as_ids
        self._offset = 0
        self._told = 0  # characters of the choice's text

    def told(self, text: str) -> None:
        """Note the next text of the choice."""
        self._told += len(text)

    def take(self, token_ids: Sequence[int], last: bool) -> Iterator[NamedToken]:
        """Yield the next tokens with their names; `last`: no token follows, and no text.

        No name of the last tokens goes beyond the text: a stop string may have cut it.
        """
        for nth, token in enumerate(token_ids, 1):
            label, raw = self._label(token)
            name = label
            if self._detokenizer is not None:
                name = self._detokenizer.feed([token])
                if last:
                    name += self._detokenizer.end() if nth == len(token_ids) else ""
                    name = name[: max(0, self._told - self._offset)]
                raw = raw if label.startswith("bytes:") else name.encode()
            yield NamedToken(f"token_id:{token}" if self._as_ids else name, self._offset, raw)
            self._offset += len(name)

    def of_top(
        self, entry: TokenLogprobs, own: NamedToken
    ) -> Iterator[tuple[str, bytes, float | None]]:
        """Yield (name, bytes, logprob) of each of the top tokens, most likely first.

        All names are distinct. The token of the output has its own name, if it has one.
        """
        pairs = zip(entry.token_ids[1:], entry.logprobs[1:], strict=True)
        names: set[str] = set()
        own_name = self.own_name(entry.token_ids[0], own)
        for token, logprob in pairs:
            label, raw = self._label(token)
            if token == entry.token_ids[0]:
                label, raw = own_name, own.raw
            elif label == own_name:
                label = ""  # it is the name of the token of the output
            if self._as_ids or not label or label in names:
                label = f"token_id:{token}"
            names.add(label)
            yield label, raw, logprob

    def own_name(self, token: int, own: NamedToken) -> str:
        """Return the name of the token of the output among the top tokens."""
        return own.name or self._label(token)[0]
