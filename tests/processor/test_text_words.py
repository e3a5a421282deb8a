"""Rows of one token, of which a table makes short work, whatever the vocabulary."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.postprocess.vocab import NAMES, random_ids, real
from tests.processor.rig import Rig, Row
from tokenpipe.postprocess import text_options


@pytest.mark.case("B62")
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(
    seeds=st.lists(st.integers(0, 1 << 40), max_size=24),
    text=st.text(max_size=12),
    stop=st.lists(st.text("ae é€", min_size=1, max_size=3), max_size=2, unique=True),
    skip=st.booleans(),
    flushes=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_a_token_a_row_reads_as_all_tokens_at_once(
    name: str, seeds: list[int], text: str, stop: list[str], skip: bool, flushes: list[bool]
) -> None:
    """What a table does of most tokens at once is what a tokenizer makes of the whole."""
    vocabulary = real(name)
    size = vocabulary.vocabulary.size
    ids = [t for t in random_ids(name, seeds) if t < size] + vocabulary.encode(text)
    rig = Rig(vocab=vocabulary.vocabulary.table, vocab_size=size, eos_token_ids=())
    options = text_options((), stop, skip_special_tokens=skip)
    handle = rig.bind(9, max_tokens=max(1, len(ids)), text=True, **options._asdict())
    for i, token in enumerate(ids):
        rig.feed(Row(handle, [token]))
        if flushes[i % 8]:
            rig.flush(max_bytes=100 if i % 3 else 1 << 20)
    rig.flush()
    whole = vocabulary.tokenizer.decode(ids, skip_special_tokens=skip)
    first = min((whole.find(s) + len(s) for s in stop if s in whole), default=None)
    if not ids:
        assert 9 not in rig.clients[0].streams
    elif first is None:
        assert rig.stream(9).text.decode() == whole
    else:
        ended = rig.stream(9)
        assert whole.startswith(ended.text.decode() + stop[ended.stop_string])
        assert len(ended.text.decode() + stop[ended.stop_string]) == first
