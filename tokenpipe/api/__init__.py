"""Answer HTTP requests in the form of OpenAI's API: the process of an API server.

Importing this room imports no web framework.
"""

from .owner import Draining
from .settings import Settings
from .start import check_start, load_one

__all__ = [
    "Draining",
    "Settings",
    "check_start",
    "load_one",
]
