"""Name the files through which the processes of a run exchange requests, counts and reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .client_results import PlannedRequest


class ScratchFiles:
    """The files of one run, in one directory. A process is named by its role and its rank."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def tokenizer(self) -> Path:
        """The tokenizer.json of a run with text."""
        return self.directory / "tokenizer.json"

    def report(self, role: str, rank: str) -> Path:
        """Return the file for the report of a process."""
        return self.directory / f"report-{role}-{rank}.json"

    def token_count(self, role: str, rank: str) -> Path:
        """Return the file for how many tokens a process has seen so far."""
        return self.directory / f"tokens-{role}-{rank}"

    def write_requests(self, rank: str, requests: Sequence[PlannedRequest]) -> Path:
        """Write the requests of a client; return the file."""
        path = self.directory / f"requests-{rank}.json"
        path.write_text(json.dumps(requests))
        return path

    def read_report(self, role: str, rank: str) -> dict[str, Any]:
        """Return the report of a process that has ended."""
        report: dict[str, Any] = json.loads(self.report(role, rank).read_text())
        return report
