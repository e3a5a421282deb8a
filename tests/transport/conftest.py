from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transport.rig import Rig


@pytest.fixture(params=["memory", "zmq"])
def rig(request: pytest.FixtureRequest, base: Path) -> Iterator[Rig]:
    made = Rig(request.param, base)
    yield made
    made.close()
