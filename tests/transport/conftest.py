from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transport.rig import Rig


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory with a short name: a socket's path may have 107 bytes, pytest's are long."""
    path = Path(tempfile.mkdtemp(prefix="tp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=["memory", "zmq"])
def rig(request: pytest.FixtureRequest, base: Path) -> Iterator[Rig]:
    made = Rig(request.param, base)
    yield made
    made.close()
