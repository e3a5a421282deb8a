"""An executor says what it accepts by two attributes; both may be absent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokenpipe.errors import ConfigError
from tokenpipe.instance import ModelCard
from tokenpipe.worker import model_card_of


class Executor:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def test_attributes_become_the_card() -> None:
    assert model_card_of(Executor()) == ModelCard()
    assert model_card_of(Executor(max_model_len=np.int64(64))) == ModelCard((), 64)
    executor = Executor(request_fields=["priority", "lora"], max_model_len=None)
    assert model_card_of(executor) == ModelCard(("priority", "lora"))


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"request_fields": "priority"}, "not the text 'priority'"),
        ({"request_fields": 3}, "must be a sequence of names, not 3"),
        ({"request_fields": ("temperature",)}, "temperature: a standard field"),
        ({"max_model_len": "4096"}, "must be None or an integer, not '4096'"),
    ],
)
def test_another_value_is_refused_by_name(attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_card_of(Executor(**attributes))
