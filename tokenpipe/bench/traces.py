"""Read when requests arrive and how long they are, from a production trace or the built-in sample.

Two forms of CSV are known by their header line; other columns and their order do not matter:

    TIMESTAMP,ContextTokens,GeneratedTokens       2023-11-16 18:15:46.6805900,374,44    (Azure)
    timestamp_ms,input_length,output_length       0,6758,500                            (Mooncake)

Lines end in LF or CRLF. Requests are put in order of arrival, the first at second 0. A request of 0
output tokens has nothing to deliver; it is left out and counted in `skipped`.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from tokenpipe.errors import ConfigError

from .azure_lengths import CREDIT, LENGTHS

MAX_TOKENS = 1 << 24  # a length beyond it is a mistake in the file, not a request


class Arrival(NamedTuple):
    """One request: seconds after the first one, and its lengths in tokens."""

    at_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival, and where they come from."""

    name: str
    credit: str
    arrivals: tuple[Arrival, ...]
    skipped: int = 0

    @property
    def output_tokens(self) -> int:
        """Tokens that all requests together will produce."""
        return sum(arrival.output_tokens for arrival in self.arrivals)

    def first(self, requests: int) -> Trace:
        """Return the same trace cut after that many requests."""
        return Trace(self.name, self.credit, self.arrivals[:requests], self.skipped)

    def faster(self, speed_up: float) -> Trace:
        """Return the same trace with all arrivals `speed_up` times as early; inf: all at once."""
        if not speed_up > 0:
            raise ConfigError(f"speed-up must be above 0, not {speed_up}")
        arrivals = tuple(a._replace(at_s=a.at_s / speed_up) for a in self.arrivals)
        return Trace(self.name, self.credit, arrivals, self.skipped)


class _TraceForm(NamedTuple):
    name: str
    columns: tuple[str, str, str]
    seconds: Callable[[str], float]
    credit: str


def _azure_seconds(text: str) -> float:
    # seven digits of a second, one more than datetime reads
    whole, _, fraction = text.strip().partition(".")
    seconds = (datetime.fromisoformat(whole) - datetime(1970, 1, 1)).total_seconds()
    if fraction and not fraction.isdecimal():
        raise ValueError(text)
    return seconds + float(f"0.{fraction or 0}")


def _mooncake_seconds(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text) / 1000


_FORMS = (
    _TraceForm(
        "azure",
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        _azure_seconds,
        'Azure LLM inference trace (CC-BY 4.0, Azure Public Dataset; Patel et al., "Splitwise")',
    ),
    _TraceForm(
        "mooncake",
        ("timestamp_ms", "input_length", "output_length"),
        _mooncake_seconds,
        "Mooncake FAST'25 trace (Apache-2.0, kvcache-ai/Mooncake)",
    ),
)


def load(path: str | Path) -> Trace:
    """Read a trace file in either form. ConfigError names file, line and column."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    reader = csv.reader(text.splitlines())
    lines = ((reader.line_num, cells) for cells in reader if any(cells))
    try:
        number, header = next(lines)
    except StopIteration:
        raise ConfigError(f"{path}: is empty") from None
    form = _form_of(path, number, [cell.strip() for cell in header])
    where = tuple([cell.strip() for cell in header].index(column) for column in form.columns)
    found = sorted(_arrivals(path, lines, form, where))
    if not found:
        raise ConfigError(f"{path}: has a header but no requests")
    begin = found[0].at_s
    kept = tuple(a._replace(at_s=a.at_s - begin) for a in found if a.output_tokens)
    return Trace(path.name, form.credit, kept, len(found) - len(kept))


def sample(requests: int, seed: int = 0, rate: float | None = None) -> Trace:
    """Return requests of real lengths, arriving at random, `rate` a second, or all at once."""
    chance = random.Random(seed)
    at_s = 0.0
    arrivals = []
    for _ in range(requests):
        prompt, output = chance.choice(LENGTHS)
        arrivals.append(Arrival(at_s, prompt, output))
        at_s += chance.expovariate(rate) if rate else 0.0
    return Trace("built-in sample", CREDIT, tuple(arrivals))


def _form_of(path: Path, line: int, header: Sequence[str]) -> _TraceForm:
    for form in _FORMS:
        if set(form.columns) <= set(header):
            return form
    known = " or ".join(",".join(form.columns) for form in _FORMS)
    raise ConfigError(f"{path}:{line}: no trace header; needs the columns {known}")


def _arrivals(
    path: Path, lines: Iterator[tuple[int, list[str]]], form: _TraceForm, where: tuple[int, ...]
) -> Iterator[Arrival]:
    for number, cells in lines:
        if len(cells) <= max(where):
            raise ConfigError(f"{path}:{number}: {len(cells)} columns, the header has more")
        when, prompt, output = (cells[index].strip() for index in where)
        try:
            at_s = form.seconds(when)
        except ValueError:
            raise ConfigError(
                f"{path}:{number}: {form.columns[0]}: {when!r} is not a time of this form"
            ) from None
        yield Arrival(
            at_s,
            _length(f"{path}:{number}: {form.columns[1]}", prompt),
            _length(f"{path}:{number}: {form.columns[2]}", output),
        )


def _length(place: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= MAX_TOKENS):
        raise ConfigError(f"{place}: {text!r} is not a number of tokens (0..{MAX_TOKENS})")
    return int(text)
