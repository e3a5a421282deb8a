"""Serve HTTP requests in the form of OpenAI's API: the process of an API server.

Importing this room imports no web framework.
"""

from .descriptors import raise_descriptor_limit
from .owner import StoppableServer
from .settings import ApiSettings
from .start import check_start, load_single

__all__ = [
    "ApiSettings",
    "StoppableServer",
    "check_start",
    "load_single",
    "raise_descriptor_limit",
]
