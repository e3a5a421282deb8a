"""Import PaddlePaddle when a model runner is made. Importing tokenpipe imports no framework."""

from __future__ import annotations

import importlib
from typing import Any

from tokenpipe.errors import ConfigError

_HOW = {
    "cpu": "pip install 'tokenpipe[cpu]'",
    "gpu": "pip install 'tokenpipe[gpu]', or the wheel for your CUDA version",
    "xpu": "install Kunlun's PaddlePaddle wheel",
    "metax_gpu": "install Metax's PaddlePaddle wheel and its paddle-metax-gpu plug-in",
}


def load_paddle(platform: str) -> Any:
    """Return the module paddle. Its ConfigError tells how to install it for this platform."""
    try:
        return importlib.import_module("paddle")
    except ImportError as error:
        raise ConfigError(
            f"a model runner needs PaddlePaddle ({error}): {_HOW.get(platform, _HOW['cpu'])}"
        ) from error
