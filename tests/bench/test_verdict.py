"""Verdicts can be added, and each kind of wrong token counts as wrong."""

from dataclasses import fields

import pytest

from tokenpipe.bench.verdict import Verdict


def test_verdicts_add_up() -> None:
    total = Verdict(tokens=1, lost=2) + Verdict(tokens=3, duplicated=4, reordered=5)
    assert total == Verdict(tokens=4, lost=2, duplicated=4, reordered=5)
    assert total.wrong == 11


@pytest.mark.parametrize("name", [field.name for field in fields(Verdict)])
def test_everything_but_a_right_token_is_wrong(name: str) -> None:
    assert Verdict(**{name: 3}).wrong == (0 if name == "tokens" else 3)
