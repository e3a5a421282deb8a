"""What a model accepts is checked, written as a whole, and read where it was replaced."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tokenpipe.errors import ConfigError
from tokenpipe.instance import ModelCard, ModelCardReader, write_model_card
from tokenpipe.instance.model_card import MAX_FIELDS, MAX_NAME
from tokenpipe.instance.sweep import MODEL_CARD_FILE, remove_files


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"request_fields": ("priority", "priority")}, "each one once"),
        ({"request_fields": tuple(f"f{i}" for i in range(MAX_FIELDS + 1))}, "at most"),
        ({"request_fields": ("top_p", "priority", "seed")}, "seed, top_p: a standard field"),
        ({"request_fields": ["priority"]}, "must be a tuple"),
        ({"request_fields": ("",)}, "1 to 64"),
        ({"request_fields": ("x" * (MAX_NAME + 1),)}, "1 to 64"),
        ({"request_fields": ("größe",)}, "printable characters of ASCII"),
        ({"request_fields": ("a\n",)}, "printable characters of ASCII"),
        ({"request_fields": (7,)}, "must be a tuple of names"),
        ({"max_model_len": 0}, "max_model_len: must be None or an integer"),
        ({"max_model_len": 1 << 31}, "max_model_len"),
        ({"max_model_len": True}, "max_model_len"),
        ({"max_model_len": 4096.0}, "max_model_len"),
    ],
)
def test_what_is_no_card_is_refused_by_name(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ModelCard(**values)


def test_two_cards_narrow_to_what_both_accept() -> None:
    one, other = ModelCard(("a", "b", "c"), 100), ModelCard(("c", "b", "d"), 80)
    assert one.narrowed(other) == ModelCard(("b", "c"), 80)
    assert one.narrowed(ModelCard()) == ModelCard((), 100)
    assert ModelCard().narrowed(ModelCard()) == ModelCard()


def test_plain_values_come_back_and_others_are_refused() -> None:
    card = ModelCard(("priority", "tools"), 4096)
    assert ModelCard.from_json_dict(card.to_json_dict()) == card
    assert ModelCard.from_json_dict({}) == ModelCard()
    with pytest.raises(ConfigError, match="must be a list of names"):
        ModelCard.from_json_dict({"request_fields": "priority"})


def test_a_reader_sees_each_new_card(tmp_path: Path) -> None:
    reader = ModelCardReader(tmp_path)
    assert reader.read() is None
    for card in (ModelCard(("a",), 10), ModelCard(("b",), 10), ModelCard(max_model_len=20)):
        write_model_card(tmp_path, card)
        assert reader.read() == card
        assert reader.read() is reader.read()  # the file is not parsed again
    (tmp_path / MODEL_CARD_FILE).unlink()
    assert reader.read() is None
    write_model_card(tmp_path, ModelCard(("a",), 10))
    assert reader.read() == ModelCard(("a",), 10)


def test_the_clean_up_of_an_instance_takes_the_card(tmp_path: Path) -> None:
    write_model_card(tmp_path, ModelCard())
    os.close(os.open(tmp_path / f"{MODEL_CARD_FILE}.part", os.O_CREAT, 0o600))
    remove_files(tmp_path, ())
    assert not list(tmp_path.iterdir())
