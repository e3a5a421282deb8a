"""A tokenizer whose text is easy to check: each token is a space and three letters, all different.

To the processor it is a byte-level tokenizer.json like any other.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .oracle import VOCAB_BITS

WIDTH = 4  # bytes of a word
_LETTERS = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8
)


def words(bits: int) -> NDArray[np.uint32]:
    """Return the words of all tokens below 1 << bits, as u32: a word's four bytes are one number.

    The index is the token id.
    """
    ids = np.arange(1 << bits)
    columns = [np.full(len(ids), 32, np.uint8)]
    columns += [_LETTERS[ids >> shift & 63] for shift in (12, 6, 0)]
    return np.ascontiguousarray(np.stack(columns, axis=1)).view("<u4").reshape(-1)


def write_tokenizer(path: Path) -> None:
    """Write the tokenizer.json of VOCAB_SIZE words."""
    text = words(VOCAB_BITS).tobytes().decode()
    vocab = {"\u0120" + text[i * WIDTH + 1 : (i + 1) * WIDTH]: i for i in range(1 << VOCAB_BITS)}
    decoder = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True
    }  # fmt: skip
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    path.write_text(
        json.dumps({"version": "1.0", "added_tokens": [], "decoder": decoder, "model": model})
    )
