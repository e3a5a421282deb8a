"""Choose how the API is served: one worker without any fork, several with a pre-fork manager.

This file holds the choice. The module of the other flavour is not even imported.
"""

from __future__ import annotations

from importlib import import_module

from .settings import Settings


def run_api(settings: Settings) -> int:
    """Serve until told to stop; return the exit status."""
    flavour = "many" if settings.topology.api.workers > 1 else "one"
    status: int = import_module(f"tokenpipe.serve.{flavour}").run(settings)
    return status
