"""Set up the log of a process, for people or as JSON lines, and limit the rate of its lines.

A room calls `logging.getLogger("tokenpipe.<room>")`. Values beside the message go into
`extra={"fields": {...}}`. Only the entry point of a process sets up the log.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TextIO

from tokenpipe.errors import ConfigError

LogFormat = Literal["human", "json"]
LEVELS = ("debug", "info", "warning", "error")


def set_up_logs(
    role: str,
    rank: str = "",
    *,
    instance: str = "",
    also: Sequence[str] = (),
    form: LogFormat = "human",
    level: str = "info",
    stream: TextIO | None = None,
) -> logging.Logger:
    """Send the log of this process to `stream` (default: stderr). Replaces an earlier set-up.

    `also` names loggers of other packages that get the same format. Raises ConfigError for an
    unknown level or form.
    """
    if level not in LEVELS:
        raise ConfigError(f"log level must be one of {', '.join(LEVELS)} (got {level!r})")
    if form not in ("human", "json"):
        raise ConfigError(f"log format must be human or json (got {form!r})")
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_form(form)(role, rank, instance))
    for name in ("tokenpipe", *also):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level.upper())
        logger.propagate = False  # root handlers of an engine would print every line again
    return logging.getLogger("tokenpipe")


def _form(form: LogFormat) -> type[_Json] | type[_Human]:
    return _Json if form == "json" else _Human


class RateLimit:
    """Lets one line per key and period pass, and counts the lines that it holds back."""

    def __init__(self, period_s: float, clock: Callable[[], float]) -> None:
        self._period_s = period_s
        self._clock = clock
        self._last: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def passes(self, key: str) -> int | None:
        """Return how many lines of `key` were held back before this one; None: hold this one."""
        now = self._clock()
        last = self._last.get(key)
        if last is not None and now - last < self._period_s:
            self._held[key] = self._held.get(key, 0) + 1
            return None
        self._last[key] = now
        return self._held.pop(key, 0)

    def log(self, logger: logging.Logger, level: int, key: str, message: str) -> None:
        """Log `message` if `key` may pass, with the number of lines held back."""
        held = self.passes(key)
        if held is not None:
            more = f" ({held} more like this were not logged)" if held else ""
            logger.log(level, "%s%s", message, more)


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, Mapping) else {}


class _Human(logging.Formatter):
    def __init__(self, role: str, rank: str, instance: str) -> None:
        who = " ".join(filter(None, (instance, role, rank)))
        super().__init__(f"%(asctime)s.%(msecs)03d %(levelname)-7s {who}: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {key}={value}" for key, value in _fields(record).items())
        return super().formatMessage(record) + fields


class _Json(logging.Formatter):
    def __init__(self, role: str, rank: str, instance: str) -> None:
        super().__init__()
        self._who = {"instance": instance, "role": role, "rank": rank}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._who,
            "pid": record.process,  # not from the set-up, which a fork inherits
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)
