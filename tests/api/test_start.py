"""One process or forked workers: only one module is imported, and a missing package is named."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tokenpipe.api.settings import ApiSettings
from tokenpipe.api.start import run_api
from tokenpipe.errors import ConfigError
from tokenpipe.notify import Notifier
from tokenpipe.topology import Topology


class Recorder:
    """Takes the place of a module that serves."""

    def __init__(self) -> None:
        self.served: list[int] = []

    def run(self, settings: ApiSettings) -> int:
        self.served.append(settings.topology.api.workers)
        return 7


def settings(workers: int) -> ApiSettings:
    topology = Topology(api={"workers": workers})
    return ApiSettings(topology, "/nowhere", -1, False, 0.0, Notifier(None))


@pytest.mark.case("B01")
@pytest.mark.parametrize(
    ("workers", "module", "other"), [(1, "single", "prefork"), (2, "prefork", "single")]
)
def test_only_the_chosen_module_is_imported(
    monkeypatch: pytest.MonkeyPatch, workers: int, module: str, other: str
) -> None:
    recorder: Any = Recorder()
    monkeypatch.setitem(sys.modules, f"tokenpipe.api.{module}", recorder)
    monkeypatch.setitem(sys.modules, f"tokenpipe.api.{other}", None)  # an import would raise
    assert run_api(settings(workers)) == 7 and recorder.served == [workers]


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tokenpipe.api.single", "tokenpipe.api.app"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(ConfigError, match=r"needs the extra tokenpipe\[serve\] .*fastapi"):
        run_api(settings(1))


@pytest.mark.case("B01")
@pytest.mark.parametrize(("module", "gunicorn"), [("single", False), ("prefork", True)])
def test_pre_fork_manager_is_imported_for_several_only(module: str, gunicorn: bool) -> None:
    code = f"import sys, tokenpipe.api.{module}; print('gunicorn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{gunicorn}\n"
