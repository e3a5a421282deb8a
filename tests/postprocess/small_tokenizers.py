"""Small tokenizers with a decoder of each kind."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models

PIECES = ["\u2581the", "\u2581", "##ing", "don", " '", "'t", " n't", ".", "a.b", "é", "</w>",
          "x</w>", "\u2581\u2581b", "<0xC3>", "<0xA9>", "<0xZZ>", " do not", "##"]  # fmt: skip


def tokenizer_with(decoder: Any) -> Tokenizer:
    """Return a tokenizer of the PIECES with two special and two added tokens."""
    made = Tokenizer(models.WordLevel({p: i for i, p in enumerate(PIECES)}, unk_token="."))
    if decoder is not None:
        made.decoder = decoder
    made.add_special_tokens(["<s>", "</s>"])
    made.add_tokens([AddedToken("<tool>", normalized=False), "\u2581added"])
    return made


# Decoders that can be written as a table.
TABLES = {
    "none": None,
    "wordpiece": decoders.WordPiece(),
    "wordpiece, no cleanup": decoders.WordPiece(cleanup=False),
    "metaspace": decoders.Metaspace(),
    "metaspace, never": decoders.Metaspace(prepend_scheme="never"),
    "replace": decoders.Replace("\u2581", " "),
    "byte-level": decoders.ByteLevel(),
    "byte-level, fused": decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()]),
    "fallback only": decoders.ByteFallback(),
    "gemma": decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    ),
    "llama": decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    ),
    "strip each": decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Strip(" ", 1, 0)]),
    "strip two": decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.Fuse(), decoders.Strip(content=" ", left=2)]
    ),
}
# Decoders that cannot.
OTHERS = {
    "bpe": decoders.BPEDecoder(),
    "ctc": decoders.CTC(),
    "strip the end": decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 0, 1)]),
    "strip each end": decoders.Sequence([decoders.Strip(" ", 0, 1), decoders.Fuse()]),
    "replace across": decoders.Sequence([decoders.Fuse(), decoders.Replace("tt", "T")]),
}
