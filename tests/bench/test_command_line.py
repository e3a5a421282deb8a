"""The command line offers what Options has, and each option says what it means."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest
import typer

from tokenpipe.bench import __main__ as program
from tokenpipe.bench.command_line import _rate
from tokenpipe.bench.options import Options


def test_each_option_of_a_run_can_be_given() -> None:
    parameters = set(inspect.signature(program.main).parameters)
    assert parameters == {field.name for field in fields(Options)} | {"json_file"}


def test_defaults_are_those_of_the_options() -> None:
    for field in fields(Options):
        default = inspect.signature(program.main).parameters[field.name].default
        assert default == ("max" if field.name == "rate" else field.default), field.name


def test_each_option_has_a_help_text() -> None:
    options = typer.main.get_command(program.app).params
    assert {option.name for option in options} >= {field.name for field in fields(Options)}
    assert not [option.name for option in options if not getattr(option, "help", "")]


@pytest.mark.parametrize(("text", "rate"), [("max", 0.0), ("0.5", 0.5), ("1000", 1000.0)])
def test_a_rate_is_a_number_or_max(text: str, rate: float) -> None:
    assert _rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "0", "-1", "nan"])
def test_another_rate_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="above 0, or max"):
        _rate(text)
