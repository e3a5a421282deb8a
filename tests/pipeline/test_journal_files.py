"""The files of a journal have no path, and outlive whoever writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokenpipe.pipeline.journal_files import JournalFiles

WRITES = "import os, signal, sys; os.write(int(sys.argv[1]), b'kept'); os.kill(os.getpid(), 9)"


@pytest.mark.parametrize("memfd", [True, False])
def test_what_a_killed_process_wrote_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memfd: bool
) -> None:
    if not memfd:
        monkeypatch.delattr(os, "memfd_create")
    files = JournalFiles(3, tmp_path)
    assert len(files.fds) == 2 and not list(tmp_path.iterdir())
    assert not any(os.get_inheritable(fd) for fd in files.fds)
    command = [sys.executable, "-c", WRITES, str(files.fds[1])]
    assert subprocess.run(command, pass_fds=files.fds).returncode == -9
    assert [os.pread(fd, 9, 0) for fd in files.fds] == [b"", b"kept"]
    files.clear()
    assert os.pread(files.fds[1], 9, 0) == b""
    files.close()
    files.close()
    assert not files.fds


def test_without_memory_nothing_stays_open(tmp_path: Path, no_journal: None) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="memory"):
        JournalFiles(0, tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
