"""Choose how the API is served: by one process without a fork, or by several forked workers.

Only the module of the chosen way is imported: `single` or `prefork`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tokenpipe.errors import ConfigError
from tokenpipe.postprocess import check_tokenizer
from tokenpipe.topology import Topology

from .owner import ServerOwner
from .settings import ApiSettings

SINGLE_NEEDS = ("fastapi", "starlette", "uvicorn", "httptools", "jinja2")
PREFORK_NEEDS = (*SINGLE_NEEDS, "gunicorn", "uvicorn_worker")
NEEDS_EXTRA = "serving needs the extra tokenpipe[serve]"


def check_start(topology: Topology) -> None:
    """Raise ConfigError if a package, or a file of the topology, is missing.

    It imports no web framework.
    """
    needed = PREFORK_NEEDS if topology.api.workers > 1 else SINGLE_NEEDS
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{NEEDS_EXTRA} (missing: {', '.join(missing)})")
    check_tokenizer(topology.tokenizer)
    template = topology.api.chat_template
    if template is not None and not template.is_file():
        raise ConfigError(f"api.chat_template: {template} is not a file")


def run_api(settings: ApiSettings) -> int:
    """Serve until a signal; return the exit status. Raises ConfigError for a missing package."""
    module = _load("prefork" if settings.topology.api.workers > 1 else "single")
    status: int = module.run(settings)
    return status


def load_single() -> Callable[[ApiSettings, ServerOwner], int]:
    """Return `single.run`, for a server that runs in its owner's process.

    Raises ConfigError for a missing package.
    """
    run: Callable[[ApiSettings, ServerOwner], int] = _load("single").run
    return run


def _load(module: str) -> Any:
    try:
        return import_module(f"tokenpipe.api.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in PREFORK_NEEDS:
            raise
        raise ConfigError(f"{NEEDS_EXTRA} ({error})") from None
