"""PaddlePaddle where it is installed, and a reason where it is not."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest


@pytest.fixture(scope="session")
def paddle() -> Any:
    """Give the module paddle; skips where it is missing (pip install 'tokenpipe[cpu]')."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of a compiler cache that nobody needs here
        try:
            return importlib.import_module("paddle")
        except ImportError as error:
            pytest.skip(f"PaddlePaddle is not installed: {error}")
