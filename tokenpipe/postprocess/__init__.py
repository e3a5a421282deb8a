"""Tokens to text. Knows vocabularies and sequences; no rank, lane or clock, and it logs nothing.

What happens per token is in C (csrc/text/); here is what is done once: reading a
tokenizer. The `tokenizers` package is needed only where one is read.
"""

from .detokenizer import Detokenizer, TextWish, wish_for
from .vocabulary import Encoder, Vocabulary, check_tokenizer, load_encoder, load_vocabulary

__all__ = [
    "Detokenizer",
    "Encoder",
    "TextWish",
    "Vocabulary",
    "check_tokenizer",
    "load_encoder",
    "load_vocabulary",
    "wish_for",
]
