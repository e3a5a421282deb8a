"""The bar shows requests, tokens a second and the time that is left."""

from __future__ import annotations

import io

from rich.console import Console

from tokenpipe.bench.progress import Progress
from tokenpipe.bench.progress_bar import progress_bar


def test_shows_requests_the_token_rate_and_the_time_left() -> None:
    out = io.StringIO()
    with progress_bar(Console(file=out, force_terminal=True, width=80)) as shown:
        for tokens in range(0, 5001, 1000):
            shown.show(Progress(2, 64, tokens, 10_000))
    text = out.getvalue()
    line = [line for line in text.split("\r") if "50%" in line][-1]
    assert "2/64 requests" in line and "tokens/s" in line and "left" in line
