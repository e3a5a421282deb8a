"""Write a topology for SmolLM2: `python -m examples.smollm2.topology smollm2.yaml`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .tokenizer import Chat
from .weights import Weights, unpack


def topology() -> dict[str, Any]:
    """Return what a topology has to say of the model; unpacks it if that was not done yet."""
    folder = unpack()
    shape = Weights(folder).settings
    return {
        "vocab_size": shape["vocabulary"],
        "eos_token_ids": [shape["eos"]],
        "tokenizer": str(Chat().save(folder)),
        "slots_per_rank": 8,
        "timeouts": {"startup_s": 120},
        "api": {"model": "SmolLM2-135M-Instruct"},
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(topology(), indent=2) + "\n")  # JSON is YAML
