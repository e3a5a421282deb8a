"""Serve HTTP requests in the form of OpenAI's API: the process of an API server.

Importing this room imports no web framework.
"""

from .owner import DrainableServer
from .settings import ApiSettings
from .start import check_start, load_single

__all__ = [
    "ApiSettings",
    "DrainableServer",
    "check_start",
    "load_single",
]
