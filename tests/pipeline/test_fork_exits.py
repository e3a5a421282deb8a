"""A forked child leaves the `with` block of its parent: its own exit status counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, pathlib, sys
from tokenpipe import Pipeline, Topology
from tokenpipe.supervisor import Supervisor
topology = Topology(runtime_dir={base!r}, processors={{"mode": "inline"}})

def fork():
    if os.fork():
        return os.waitstatus_to_exitcode(os.wait()[1])
    sys.exit({status})

with Pipeline(topology) as pipe:
    made = [fork()]
    with pipe.commands():
        made.append(fork())
    with Supervisor(pathlib.Path({logs!r})) as children:
        made.append(fork())
    pipe.poll()
    print(*made)
"""


@pytest.mark.case("F28")
@pytest.mark.parametrize("status", [0, 7])
def test_a_childs_exit_status_is_its_own(runtime_dir: Path, tmp_path: Path, status: int) -> None:
    program = PROGRAM.format(base=str(runtime_dir), logs=str(tmp_path), status=status)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(status)] * 3 and not done.stderr, done.stderr
