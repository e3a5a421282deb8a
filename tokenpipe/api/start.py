"""Choose how the API is served: one worker without any fork, several with a pre-fork manager.

This file holds the choice. The module of the other flavour is not even imported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tokenpipe.errors import ConfigError
from tokenpipe.postprocess import check_tokenizer
from tokenpipe.topology import Topology

from .owner import Owner
from .settings import Settings

ONE = ("fastapi", "starlette", "uvicorn", "httptools", "jinja2")
MANY = (*ONE, "gunicorn", "uvicorn_worker")
NEEDS_EXTRA = "serving needs the extra tokenpipe[serve]"


def check_start(topology: Topology) -> None:
    """Raise ConfigError where a package or a file of the topology is missing; imports nothing."""
    needed = MANY if topology.api.workers > 1 else ONE
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{NEEDS_EXTRA} (missing: {', '.join(missing)})")
    check_tokenizer(topology.tokenizer)
    template = topology.api.chat_template
    if template is not None and not template.is_file():
        raise ConfigError(f"api.chat_template: {template} is not a file")


def run_api(settings: Settings) -> int:
    """Serve until told to stop; return the exit status. ConfigError where a package is missing."""
    module = _load("prefork" if settings.topology.api.workers > 1 else "single")
    status: int = module.run(settings)
    return status


def load_one() -> Callable[[Settings, Owner], int]:
    """Return what serves in a process with its owner. ConfigError where a package is missing."""
    run: Callable[[Settings, Owner], int] = _load("single").run
    return run


def _load(flavour: str) -> Any:
    try:
        return import_module(f"tokenpipe.api.{flavour}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in MANY:
            raise
        raise ConfigError(f"{NEEDS_EXTRA} ({error})") from None
