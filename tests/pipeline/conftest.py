"""What the tests of the pipeline share."""

from __future__ import annotations

import errno
import os

import pytest


@pytest.fixture
def no_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no memory be left for a journal, so that a processor's requests die with it."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(os, "memfd_create", full)
