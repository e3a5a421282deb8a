"""Choose how the API is served: one worker without any fork, several with a pre-fork manager.

This file holds the choice. The module of the other flavour is not even imported.
"""

from __future__ import annotations

from importlib import import_module

from tokenpipe.errors import ConfigError

from .settings import Settings

EXTRA = {"fastapi", "starlette", "uvicorn", "httptools", "gunicorn", "uvicorn_worker", "jinja2"}


def run_api(settings: Settings) -> int:
    """Serve until told to stop; return the exit status. ConfigError where a package is missing."""
    flavour = "many" if settings.topology.api.workers > 1 else "one"
    try:
        module = import_module(f"tokenpipe.serve.{flavour}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in EXTRA:
            raise
        raise ConfigError(f"serving needs the extra tokenpipe[serve] ({error})") from None
    status: int = module.run(settings)
    return status
