"""Read a production trace from a CSV file.

The header line says which of two forms the file has. The order of the columns, and other columns,
do not matter:

    TIMESTAMP,ContextTokens,GeneratedTokens       2023-11-16 18:15:46.6805900,374,44    (Azure)
    timestamp_ms,input_length,output_length       0,6758,500                            (Mooncake)

Lines end in LF or CRLF. The requests are sorted by time, and the first one is at second 0. A
request without output tokens is left out and counted in `skipped`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from tokenpipe.errors import ConfigError

from .traces import Arrival, Trace

MAX_TOKENS = 1 << 24  # a larger length is a mistake in the file


class _TraceForm(NamedTuple):
    columns: tuple[str, str, str]  # time, prompt tokens, output tokens
    seconds: Callable[[str], float]
    credit: str


def _azure_seconds(text: str) -> float:
    # The fraction has seven digits, one more than datetime reads.
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
        ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
        _azure_seconds,
        'Azure LLM inference trace (CC-BY 4.0, Azure Public Dataset; Patel et al., "Splitwise")',
    ),
    _TraceForm(
        ("timestamp_ms", "input_length", "output_length"),
        _mooncake_seconds,
        "Mooncake FAST'25 trace (Apache-2.0, kvcache-ai/Mooncake)",
    ),
)


def load(path: str | Path) -> Trace:
    """Read a trace file. Raises ConfigError, which names the file, the line and the column."""
    path = Path(path)
    reader = csv.reader(_text_of(path).splitlines())
    lines = ((reader.line_num, cells) for cells in reader if any(cells))
    try:
        number, header = next(lines)
    except StopIteration:
        raise ConfigError(f"{path}: is empty") from None
    names = [cell.strip() for cell in header]
    form = _form_of(path, number, names)
    where = tuple(names.index(column) for column in form.columns)
    found = sorted(_arrivals(path, lines, form, where))
    if not found:
        raise ConfigError(f"{path}: has a header but no requests")
    begin = found[0].at_s
    kept = tuple(a._replace(at_s=a.at_s - begin) for a in found if a.output_tokens)
    return Trace(path.name, form.credit, kept, len(found) - len(kept))


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from error


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
