"""The choice between the two flavours, and what it says where a package is missing."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tokenpipe.api.settings import Settings
from tokenpipe.api.start import run_api
from tokenpipe.errors import ConfigError
from tokenpipe.notify import Notifier
from tokenpipe.topology import Topology


class Recorder:
    """Stands where a flavour's module would."""

    def __init__(self) -> None:
        self.served: list[int] = []

    def run(self, settings: Settings) -> int:
        self.served.append(settings.topology.api.workers)
        return 7


def settings(workers: int) -> Settings:
    topology = Topology(api={"workers": workers})
    return Settings(topology, "/nowhere", -1, False, 0.0, Notifier(None))


@pytest.mark.case("B01")
@pytest.mark.parametrize(
    ("workers", "flavour", "other"), [(1, "single", "prefork"), (2, "prefork", "single")]
)
def test_one_flavour_is_imported(
    monkeypatch: pytest.MonkeyPatch, workers: int, flavour: str, other: str
) -> None:
    recorder: Any = Recorder()
    monkeypatch.setitem(sys.modules, f"tokenpipe.api.{flavour}", recorder)
    monkeypatch.setitem(sys.modules, f"tokenpipe.api.{other}", None)  # an import would raise
    assert run_api(settings(workers)) == 7 and recorder.served == [workers]


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tokenpipe.api.single", "tokenpipe.api.app"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(ConfigError, match=r"needs the extra tokenpipe\[serve\] .*fastapi"):
        run_api(settings(1))
