"""Log lines for people and for machines, and fewer of the same."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import Clock
from tokenpipe.errors import ConfigError
from tokenpipe.logs import RateLimit, set_up_logs


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    """Give the package's logger and put it back as it was."""
    made = logging.getLogger("tokenpipe")
    before = made.handlers[:], made.level, made.propagate
    yield made
    made.handlers[:], made.level, made.propagate = before


def test_human_line_says_who_and_carries_fields() -> None:
    out = io.StringIO()
    set_up_logs("worker", "0.1", stream=out)
    logging.getLogger("tokenpipe.lane").warning("gap of %d", 3, extra={"fields": {"lane": "w0.1"}})
    line = out.getvalue()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} WARNING worker 0\.1: gap of 3 lane=w0\.1\n", line)


def test_json_lines_hold_exceptions_too() -> None:
    out = io.StringIO()
    set_up_logs("processor", "0", form="json", stream=out)
    try:
        raise ValueError("a\nb")
    except ValueError:
        logging.getLogger("tokenpipe.x").exception("oh", extra={"fields": {"step": 7}})
    (line,) = out.getvalue().splitlines()
    said: dict[str, Any] = json.loads(line)
    assert (said["role"], said["rank"], said["level"]) == ("processor", "0", "error")
    assert said["step"] == 7 and said["message"] == "oh" and "ValueError: a" in said["exception"]


def test_second_set_up_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    set_up_logs("worker", stream=first)
    set_up_logs("worker", stream=second, level="error")
    logging.getLogger("tokenpipe").warning("no")
    logging.getLogger("tokenpipe").error("yes")
    assert first.getvalue() == "" and second.getvalue().count("yes") == 1
    assert "no" not in second.getvalue()


def test_wrong_choices_are_refused() -> None:
    wrong: Any = "xml"
    with pytest.raises(ConfigError, match="xml"):
        set_up_logs("worker", form=wrong)
    with pytest.raises(ConfigError, match="loud"):
        set_up_logs("worker", level="loud")


def test_rate_limit_counts_what_it_held_back(clock: Clock) -> None:
    limit = RateLimit(10.0, clock)
    assert [limit.passes("a") for _ in range(3)] == [0, None, None]
    assert limit.passes("b") == 0
    clock.advance(10.0)
    assert [limit.passes("a"), limit.passes("a")] == [2, None]


def test_rate_limited_line_says_how_many(clock: Clock) -> None:
    out = io.StringIO()
    logger = set_up_logs("worker", stream=out)
    limit = RateLimit(1.0, clock)
    for _ in range(3):
        limit.log(logger, logging.WARNING, "bad frame", "bad frame from w0.0: 100%")
    clock.advance(1.0)
    limit.log(logger, logging.WARNING, "bad frame", "bad frame from w0.1")
    first, second = out.getvalue().splitlines()
    assert first.endswith("bad frame from w0.0: 100%")
    assert second.endswith("bad frame from w0.1 (2 more like this were not logged)")
