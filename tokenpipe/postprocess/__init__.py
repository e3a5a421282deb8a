"""Turn token ids into text. Knows vocabularies and sequences, but no rank, lane or clock.

The work per token is in C (csrc/text/). This room reads a tokenizer, once. Only that needs the
`tokenizers` package.
"""

from .detokenizer import Detokenizer, TextOptions, text_options
from .encoder import Encoder
from .tokenizer_file import check_tokenizer, load_encoder, load_vocabulary
from .vocabulary import Vocabulary

__all__ = [
    "Detokenizer",
    "Encoder",
    "TextOptions",
    "Vocabulary",
    "check_tokenizer",
    "load_encoder",
    "load_vocabulary",
    "text_options",
]
