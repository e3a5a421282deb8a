"""An API server with a tokenizer: prompts and answers of text, stop strings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.postprocess.vocab import real
from tests.serve.running import Running
from tokenpipe.api.problems import Problem
from tokenpipe.api.text_codec import PlainTextCodec
from tokenpipe.types import RequestOutput

VOCABULARY = real("gpt2_style")


def test_text_in_and_out_and_stop_strings(tmp_path: Path, runtime_dir: Path) -> None:
    path = tmp_path / "tokenizer.json"
    VOCABULARY.tokenizer.save(str(path))
    keys: dict[str, Any] = {"tokenizer": str(path), "vocab_size": VOCABULARY.vocabulary.size}
    asked: dict[str, Any] = {"model": "tokenpipe", "prompt": "The return statement", "seed": 5}
    prompt = VOCABULARY.tokenizer.encode(asked["prompt"]).ids
    with Running(tmp_path, runtime_dir, **keys) as server, server.client() as client:
        whole = client.completions.create(
            **asked, max_tokens=30, extra_body={"return_token_ids": True}
        )
        text = whole.choices[0].text
        ids = whole.choices[0].token_ids
        assert whole.usage is not None and whole.usage.prompt_tokens == len(prompt)
        assert text == VOCABULARY.tokenizer.decode(ids) and len(ids) == 30
        chunks = list(client.completions.create(**asked, max_tokens=30, stream=True))
        assert "".join(c.choices[0].text for c in chunks if c.choices) == text
        stop = text[len(text) // 2 :][:3]
        ended = client.completions.create(**asked, max_tokens=30, stop=["never that", stop])
        assert ended.choices[0].finish_reason == "stop"
        assert ended.choices[0].text == text[: text.index(stop)]


def test_text_needs_a_tokenizer_or_an_engine_without_language() -> None:
    assert [*map(list, PlainTextCodec(True).encode_prompts(["hü"]))] == [list("hü".encode())]
    with pytest.raises(Problem, match="no tokenizer"):
        PlainTextCodec(False).encode_prompts(["h"])
    output = RequestOutput("r1", 0, 0, [1, 22])
    assert PlainTextCodec(False).text(output) == " 1 22"
