"""Vocabularies for tests: real ones, loaded once, and how to cut a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from tokenizers import Tokenizer

from benchmarks import vocabularies
from tokenpipe.postprocess import Detokenizer, TextOptions, Vocabulary
from tokenpipe.postprocess.huggingface import vocabulary_of


class Real(NamedTuple):
    """A tokenizer, our table of it, and the ids of its ordinary words."""

    tokenizer: Tokenizer
    vocabulary: Vocabulary
    words: dict[bytes, int]
    spelled: dict[int, int]  # byte to the id that spells it, where there is fallback

    def encode(self, text: str) -> list[int]:
        return vocabularies.encode(self.words, text)


@cache
def real(name: str) -> Real:
    tokenizer = getattr(vocabularies, name)()
    ids = tokenizer.get_vocab()
    spelled = {b: ids[f"<0x{b:02X}>"] for b in range(256) if f"<0x{b:02X}>" in ids}
    vocabulary = vocabulary_of(tokenizer)
    return Real(tokenizer, vocabulary, vocabularies.words_of(tokenizer), spelled)


NAMES = ("tekken", "sentencepiece", "gpt2_style")


def cut(ids: Sequence[int], cuts: Sequence[int]) -> list[Sequence[int]]:
    """Cut a sequence at these places, which may repeat (an empty row) or lie beyond its end."""
    edges = [0, *sorted(min(c, len(ids)) for c in cuts), len(ids)]
    return [ids[a:b] for a, b in pairwise(edges)]


def streamed(
    vocabulary: Vocabulary, rows: Sequence[Sequence[int]], options: TextOptions | None = None
) -> list[str]:
    """Return the deltas of these rows, and what the end brings."""
    detokenizer = Detokenizer(vocabulary, options)
    return [*(detokenizer.feed(row) for row in rows), detokenizer.end()]


def random_ids(name: str, seeds: list[int]) -> list[int]:
    """Any ids at all, special, added and unknown ones included; spelled bytes make characters."""
    vocabulary = real(name)
    size = vocabulary.vocabulary.size
    spelled = set(vocabulary.spelled.values())
    ids = []
    for seed in seeds:
        token = seed % (size + 3)
        if seed % 7 == 0 and vocabulary.spelled:
            ids += [vocabulary.spelled[b] for b in chr(0x80 + seed % 0xD000).encode()]
        elif token not in spelled:
            ids.append(token)
    return ids
