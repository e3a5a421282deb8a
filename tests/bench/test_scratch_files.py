"""Each process of a run has files of its own, and what one writes another reads."""

from __future__ import annotations

import json
from pathlib import Path

from tokenpipe.bench.client_results import NEVER, PlannedRequest
from tokenpipe.bench.scratch_files import ScratchFiles


def test_no_two_processes_share_a_file(tmp_path: Path) -> None:
    files = ScratchFiles(tmp_path)
    names = {files.tokenizer}
    for role, rank in (("worker", "0.0"), ("worker", "0.1"), ("client", "0"), ("client", "1")):
        names |= {files.report(role, rank), files.token_count(role, rank)}
    assert len(names) == 9 and {path.parent for path in names} == {tmp_path}


def test_a_client_reads_the_requests_as_they_were_written(tmp_path: Path) -> None:
    requests = [PlannedRequest(0.0, 5), PlannedRequest(1.5, 7, 3)]
    path = ScratchFiles(tmp_path).write_requests("1", requests)
    read = [PlannedRequest(*request) for request in json.loads(path.read_text())]
    assert read == requests and read[0].cancel_at == NEVER


def test_a_report_is_read_from_its_file(tmp_path: Path) -> None:
    files = ScratchFiles(tmp_path)
    files.report("client", "0").write_text('{"tokens": 3}')
    assert files.read_report("client", "0") == {"tokens": 3}
