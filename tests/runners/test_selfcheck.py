"""The one command with which an owner of the hardware proves a runner."""

from __future__ import annotations

from typing import Any

import pytest

from tokenpipe.runners import selfcheck
from tokenpipe.runners.devices import FACTS
from tokenpipe.runners.probe import ProbeModel

pytestmark = pytest.mark.usefixtures("paddle")


def test_it_passes_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert selfcheck.main(["cpu"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("cpu, PaddlePaddle ") and len(said) == 7
    assert all(line.startswith("ok ") for line in said[1:])


@pytest.mark.parametrize("platform", ["gpu", "xpu", "metax_gpu"])
def test_it_says_what_is_not_there(
    platform: str, paddle: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    if FACTS[platform].count(paddle):
        pytest.skip("it is here")
    assert selfcheck.main([platform]) == 2
    assert f"there is no device {platform}:0" in capsys.readouterr().out


def test_a_wrong_token_fails_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decode = ProbeModel.decode

    def off_by_one(self: Any, rows: Any, last: Any, lengths: Any) -> Any:
        return decode(self, rows, last, lengths + 1)

    monkeypatch.setattr(ProbeModel, "decode", off_by_one)
    assert selfcheck.main(["cpu"]) == 1
    assert "FAILED  streams: AssertionError: depth 0" in capsys.readouterr().out
