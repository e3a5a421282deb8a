"""Serve a topology over HTTP, in the form of OpenAI's API. Importing this imports no framework."""

from .launch import ServerFailed, launch

__all__ = ["ServerFailed", "launch"]
