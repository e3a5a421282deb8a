"""Serve a topology over HTTP, in the form of OpenAI's API. Importing this imports no framework."""

from .household import ServerFailed
from .launch import launch
from .own import run

__all__ = ["ServerFailed", "launch", "run"]
