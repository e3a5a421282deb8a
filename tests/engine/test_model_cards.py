"""One card of all workers: written once every one has told its own, and again where it changes."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tokenpipe.engine.model_cards import ModelCards
from tokenpipe.errors import StartupError
from tokenpipe.instance import ModelCard


def told(*fields: str, length: int | None = None) -> dict[str, Any]:
    return {"model_card": ModelCard(fields, length).to_json_dict()}


def test_the_card_is_written_when_the_last_worker_has_told_its_own() -> None:
    written: list[ModelCard] = []
    cards = ModelCards(["0.0", "0.1"], written.append)
    cards.update({"0.0": told("a", length=10), "0.1": {}})
    assert not written
    cards.update({"0.1": told("a", length=10)})
    cards.update({"0.0": told("a", length=10), "0.1": told("a", length=10)})
    assert written == [ModelCard(("a",), 10)]
    cards.check()


def test_workers_that_differ_are_named(caplog: pytest.LogCaptureFixture) -> None:
    written: list[ModelCard] = []
    cards = ModelCards(["0.0", "0.1", "1.0", "1.1"], written.append)
    one, other = told("a", "b", length=10), told("b")
    with caplog.at_level(logging.WARNING, "tokenpipe.engine"):
        cards.update({"0.0": one, "0.1": one, "1.0": one, "1.1": other})
    assert written == [ModelCard(("b",), 10)]
    said = (
        "worker 0.0, worker 0.1, worker 1.0: request_fields ['a', 'b'], max_model_len 10; "
        "worker 1.1: request_fields ['b'], max_model_len None"
    )
    assert said in caplog.text
    with pytest.raises(StartupError) as caught:
        cards.check()
    assert said in str(caught.value)


def test_a_restarted_worker_changes_the_card() -> None:
    written: list[ModelCard] = []
    cards = ModelCards(["0.0"], written.append)
    cards.update({"0.0": told("a", length=10)})
    cards.update({})  # it has died: its card holds until the next life tells another
    cards.update({"0.0": {}})
    cards.update({"0.0": told("a", "b", length=20)})
    assert written == [ModelCard(("a",), 10), ModelCard(("a", "b"), 20)]


def test_a_failed_write_is_tried_again() -> None:
    written: list[ModelCard] = []
    full = True

    def write(card: ModelCard) -> None:
        if full:
            raise OSError("the disk is full")
        written.append(card)

    cards = ModelCards(["0.0"], write)
    with pytest.raises(OSError):
        cards.update({"0.0": told("a")})
    full = False
    cards.update({})
    assert written == [ModelCard(("a",))]
