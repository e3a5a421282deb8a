"""The bound of connections stays below the limit of descriptors."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, resource
from tokenpipe.api.descriptors import connection_bound, raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (64, {hard}))
raise_descriptor_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], connection_bound(None), connection_bound(9))
held = [os.dup(0) for _ in range(32)]
print(connection_bound(None))
"""


def bounds(hard: int) -> list[int]:
    command = [sys.executable, "-c", PROGRAM.format(hard=hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.case("F02")
def test_the_soft_limit_becomes_the_hard_one_and_bounds_the_connections() -> None:
    limit, bound, given, with_files = bounds(400)
    assert limit == 400
    assert 256 < bound < 400 - 64 and bound - with_files == 32
    assert given == 9


def test_a_limit_without_room_leaves_a_few() -> None:
    assert bounds(100)[1:3] == [8, 8]
