"""The engine's face: one Pipeline, its events and its commands. Holds no logic of another room."""

from .pipeline import Pipeline

__all__ = [
    "Pipeline",
]
